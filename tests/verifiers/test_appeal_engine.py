"""The appeal engine spends what it reserved, answers from its book, and does not care when answers arrive."""

from __future__ import annotations

import sqlite3
import threading

import pytest

from tests.verifiers.judge_server import JudgeServer, is_right
from tests.verifiers.stubs import Stub, items, matches_reference
from vapo.errors import InputError, IntegrityError, LedgerLockedError, ProtocolError, StorageError
from vapo.verifiers import Cost, Failure, Item, Outcome
from vapo.verifiers.appeals import Appeals
from vapo.verifiers.book import FILE, Asked, Book
from vapo.verifiers.channels import Channel, NoisyVerifier
from vapo.verifiers.ensemble import Cascade
from vapo.verifiers.judge import Endpoint, Judge, Limits
from vapo.verifiers.numeric import Numeric

PRICE = Cost(1, 10, 2, 0.5)


def priced(item):
    return Outcome(matches_reference(item).verdict, 0.75, cost=PRICE)


@pytest.fixture
def book(tmp_path):
    with Book(tmp_path / "book", cap=5) as opened:
        yield opened


def verdicts(outcomes):
    return [outcome.verdict for outcome in outcomes]


def test_the_cap_is_spent_in_the_order_of_the_items_and_what_is_over_it_is_not_asked(book):
    stub = Stub(priced)
    with Appeals(stub, book) as engine:
        outcomes = engine.verify(items(7, right=3))
    assert verdicts(outcomes) == [1, 1, 1, -1, -1, None, None]
    assert {outcome.failure for outcome in outcomes[5:]} == {Failure.OVER_BUDGET}
    assert stub.asked == ["i0", "i1", "i2", "i3", "i4"]
    bill = book.bill()
    assert (bill.asked, bill.reserved, bill.calls, bill.settled, bill.refused, bill.left) == (
        7,
        5,
        5,
        5,
        2,
        0,
    )
    assert (bill.tokens_in, bill.tokens_out, bill.seconds) == (50, 10, 2.5)


def test_a_record_that_is_asked_again_has_what_it_had_and_costs_nothing(book):
    answers = iter([Outcome(failure=Failure.TIMEOUT, cost=Cost(1)), Outcome(verdict=1, cost=Cost(1))])
    stub = Stub(lambda item: next(answers))
    with Appeals(stub, book) as engine:
        first = engine.verify(items(2))
        assert engine.verify(items(2)) == first
        assert [outcome.failure for outcome in first] == [Failure.TIMEOUT, None]
    assert len(stub.asked) == 2
    assert (book.bill().asked, book.bill().reserved) == (2, 2)


def test_answers_are_shared_by_content_as_hits_that_name_the_cost_they_saved(book):
    same = [Item(name, "q", "4", "4") for name in ("a", "b")]
    stub = Stub(priced)
    with Appeals(stub, book) as engine:
        assert verdicts(engine.verify(same)) == [1, 1]
        (later,) = engine.verify([Item("c", "q", "4", "4")])
    assert stub.asked == ["a"]
    assert (later.verdict, later.confidence, later.cost) == (1, 0.75, Cost())
    assert "tokens_in=10" in later.detail
    bill = book.bill()
    assert (bill.reserved, bill.hits, bill.hit_tokens_in, bill.hit_tokens_out) == (1, 2, 20, 4)
    states = {row["item"]: (row["state"], row["hit"]) for row in book.rows().to_pylist()}
    assert states["a"] == ("settled", None)
    assert states["b"] == states["c"] == ("hit", Asked.of(stub.source, same[0]).key)


def test_a_failure_is_no_answer_that_later_records_could_share(book):
    answers = iter([Outcome(failure=Failure.CRASH), Outcome(verdict=1)])
    with Appeals(Stub(lambda item: next(answers)), book) as engine:
        together = engine.verify([Item("a", "q", "4", "4"), Item("b", "q", "4", "4")])
        assert {outcome.failure for outcome in together} == {Failure.CRASH}
        assert verdicts(engine.verify([Item("c", "q", "4", "4")])) == [1]


def test_another_source_has_answers_of_its_own(book):
    one, two = Stub(priced, "one"), Stub(priced, "two")
    with Appeals(one, book) as first, Appeals(two, book) as second:
        first.verify(items(2))
        second.verify(items(2))
    assert one.asked == two.asked == ["i0", "i1"]
    assert book.bill().reserved == 4


def test_verdicts_that_hang_on_the_record_are_never_shared(book):
    noisy = NoisyVerifier(Stub(priced), Channel.make("symmetric", 0.5, key="k"))
    same = [Item(str(n), "q", "4", "4") for n in range(5)]
    with Appeals(noisy, book) as engine:
        assert verdicts(engine.verify(same)) == verdicts(noisy.verify(same))
    assert book.bill().hits == 0


def test_a_verifier_that_raises_is_a_crash_of_every_item_and_the_run_goes_on(book):
    def explode(item):
        raise RuntimeError(item.completion + "\ud800")

    with Appeals(Stub(explode), book) as engine:
        outcomes = engine.verify(items(3))
        assert {outcome.failure for outcome in outcomes} == {Failure.CRASH}
        assert "RuntimeError: 0" in outcomes[0].detail
        assert {outcome.cost.calls for outcome in outcomes} == {1}
        short = Stub(priced, "short")
        short.verify = lambda batch: []
        with Appeals(short, book) as poor:
            assert poor.verify(items(1))[0].failure is Failure.CRASH
    assert (book.bill().failed, book.bill().in_flight) == (4, 0)


@pytest.mark.parametrize("nonsense", [None, 1, ("yes", 0.5)])
def test_a_verifier_that_gives_something_else_than_outcomes_is_a_crash_and_the_run_goes_on(nonsense, book):
    with Appeals(Stub(lambda item: nonsense), book) as engine:
        outcomes = engine.verify(items(2))
    assert {outcome.failure for outcome in outcomes} == {Failure.CRASH}
    assert (book.bill().failed, book.bill().in_flight) == (2, 0)


def test_calls_overlap_with_the_work_of_the_caller_and_with_each_other(book):
    both = threading.Barrier(3, timeout=20)

    def wait(item):
        both.wait()
        return Outcome(verdict=1)

    with Appeals(Stub(wait), book) as engine:
        one, two = engine.submit(items(1)), engine.submit([Item("z", "q", "z", "z")])
        assert not one.done()
        assert book.bill().in_flight == 2  # reserved, on disk, under way
        both.wait()  # two calls and this thread meet: all three run at the same time
        assert verdicts(one.result() + two.result()) == [1, 1]


def test_a_batch_that_shares_content_with_one_under_way_waits_for_its_answer(book):
    go = threading.Event()

    def wait(item):
        go.wait(20)
        return Outcome(failure=Failure.TIMEOUT) if item.id == "a" else Outcome(verdict=1)

    with Appeals(Stub(wait), book) as engine:
        first = engine.submit([Item("a", "q", "4", "4")])
        found = []
        later = threading.Thread(target=lambda: found.extend(engine.verify([Item("b", "q", "4", "4")])))
        later.start()
        later.join(0.1)
        assert later.is_alive()
        assert book.bill().asked == 1
        go.set()
        later.join(20)
        assert first.result()[0].failure is Failure.TIMEOUT
    assert verdicts(found) == [1]  # as if the first had been settled before the second was asked


@pytest.mark.parametrize("order", range(4))
def test_the_order_in_which_answers_arrive_changes_no_outcome_and_no_bill(order, tmp_path):
    asked = [Item(f"i{n}", f"question {n % 40}", str(n % 40), "1") for n in range(60)]

    def run(folder, latency):
        with (
            JudgeServer(latency=latency, honours=True) as server,
            Judge(Endpoint(server.url, "m", honours_keys=True), limits=Limits(concurrency=16)) as judge,
            Book(folder, cap=35) as book,
            Appeals(judge, book) as engine,
        ):
            pending = [engine.submit(asked[first : first + 15]) for first in range(0, 60, 15)]
            outcomes = [outcome for future in pending for outcome in future.result()]
            rows = book.rows().drop_columns(["seconds", "detail"]).to_pylist()
            return [(o.verdict, o.failure, o.confidence) for o in outcomes], rows

    even = run(tmp_path / "even", lambda key: 0.0)
    mixed = run(tmp_path / "mixed", lambda key: (int(key[order * 2 : order * 2 + 2], 16) % 16) / 200)
    assert mixed == even
    assert [verdict for verdict, _, _ in even[0][:35]] == [1 if is_right(n) else -1 for n in range(35)]


def test_the_cap_holds_when_many_threads_ask_at_once(tmp_path):
    stub = Stub(priced)
    with Book(tmp_path / "book", cap=50) as book, Appeals(stub, book) as engine:

        def work(name):
            for n in range(10):
                engine.verify([Item(f"{name}-{n}", f"{name}", f"{n}", "1")])

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bill = engine.bill()
    assert len(stub.asked) == bill.reserved == 50
    assert (bill.asked, bill.refused) == (80, 30)


def test_the_most_that_an_item_may_cost_is_reserved_before_it_is_asked(tmp_path):
    limits = Limits(attempts=4, paid_retries=1, backoff=0.001)
    with (
        JudgeServer(lambda key, attempt: "500 paid" if attempt == 0 else "ok") as server,
        Judge(Endpoint(server.url, "m"), limits=limits) as judge,
        Book(tmp_path / "book", cap=5) as book,
        Appeals(judge, book) as engine,
    ):
        outcomes = engine.verify([Item(f"i{n}", f"q{n}", str(n + 1), "1") for n in range(3)])
    assert verdicts(outcomes) == [1, 1, None]
    assert server.paid.total() == 4 <= 5
    assert outcomes[2].failure is Failure.OVER_BUDGET


def test_a_verifier_that_costs_more_than_it_said_is_charged_for_it(tmp_path):
    stub = Stub(lambda item: Outcome(verdict=1, cost=Cost(3)))
    for _ in "again":  # as well by a book that was opened anew
        with Book(tmp_path / "book", cap=5) as book, Appeals(stub, book) as engine:
            found = [engine.verify([item])[0] for item in items(4)]
            bill = book.bill()
    assert [outcome.failure for outcome in found] == [None, None, Failure.OVER_BUDGET, Failure.OVER_BUDGET]
    assert (bill.reserved, bill.calls, bill.left, len(stub.asked)) == (6, 6, 0, 2)


# Restarts


def full(*given):
    """What a book does on a full disk."""
    raise StorageError(FILE)


def interrupted(folder, honours, ask):
    """A book in which one call, of record a, was in flight when its process died; b shares its content."""
    stub = Stub(priced)
    stub.honours_keys = honours
    batch = [Item("a", "q", "4", "4"), Item("b", "q", "4", "4")]
    with Book(folder, cap=5) as book:
        book.request([Asked.of(stub.source, i) for i in batch], "stub", calls=1, honoured=honours)
    return stub, [item for item in batch if item.id in ask]


@pytest.mark.parametrize("ask", ["ab", "b", "ba"])
def test_a_call_that_was_in_flight_is_made_again_under_its_key_where_keys_are_honoured(ask, tmp_path):
    stub, batch = interrupted(tmp_path / "book", True, ask)
    with Book(tmp_path / "book", cap=5) as book, Appeals(stub, book) as engine:
        assert book.bill().in_flight == 1
        assert verdicts(engine.verify(batch)) == [1] * len(ask)
        assert (len(stub.asked), book.bill().reserved, book.bill().lost) == (1, 1, 0)


@pytest.mark.parametrize("ask", ["ab", "b"])
def test_a_call_that_was_in_flight_is_lost_and_spent_where_keys_are_not_honoured(ask, tmp_path):
    stub, batch = interrupted(tmp_path / "book", False, ask)
    with Book(tmp_path / "book", cap=5) as book, Appeals(stub, book) as engine:
        assert (book.bill().lost, book.bill().in_flight) == (1, 0)  # also if nobody ever asks again
        assert {outcome.failure for outcome in engine.verify(batch)} == {Failure.LOST}
        bill = book.bill()
        assert (stub.asked, bill.reserved, bill.calls, bill.lost) == ([], 1, 1, 1)


@pytest.mark.parametrize("order", ["ca", "acb", "cba"])
def test_a_record_that_shares_content_with_a_call_that_was_cut_off_takes_that_call_up(order, tmp_path):
    stub, _ = interrupted(tmp_path / "book", True, "")
    batch = [Item(name, "q", "4", "4") for name in order]
    with Book(tmp_path / "book", cap=5) as book, Appeals(stub, book) as engine:
        assert verdicts(engine.verify(batch)) == [1] * len(order)
        bill = book.bill()
        # Under the name of the record that it was paid for, since keys of judges behind other verifiers hang on it.
        assert stub.asked == ["a"]
        assert (bill.reserved, bill.settled, bill.in_flight, bill.hits) == (1, 1, 0, 2)


def test_a_judge_inside_an_ensemble_is_not_paid_twice_for_a_call_that_another_record_takes_up(tmp_path):
    first, again = (Item(name, "q \\ \ud800 ü", "four", "4") for name in ("a \\ \ud800 ü", "b"))
    with (
        JudgeServer(honours=True) as server,
        Judge(Endpoint(server.url, "m", honours_keys=True), limits=Limits(attempts=1)) as judge,
    ):
        ensemble = Cascade([Numeric(), judge])
        with Book(tmp_path / "book", cap=5) as book, Appeals(ensemble, book) as engine:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(book, "settle", full)  # the answer is paid for and never put down
                with pytest.raises(StorageError):
                    engine.verify([first])
            assert verdicts(engine.verify([again, first])) == [1, 1]
            assert (server.paid.total(), book.bill().reserved, book.bill().hits) == (1, 1, 1)


def test_a_verifier_that_stopped_honouring_keys_is_not_asked_again(tmp_path):
    stub, batch = interrupted(tmp_path / "book", True, "a")
    stub.honours_keys = False
    with Book(tmp_path / "book", cap=5) as book, Appeals(stub, book) as engine:
        assert (
            engine.verify([Item("c", "q", "4", "4")])[0].verdict == 1
        )  # a call of its own: a loss is no answer
        assert engine.verify(batch)[0].failure is Failure.LOST
        assert (len(stub.asked), book.bill().reserved, book.bill().in_flight) == (1, 2, 0)


def test_a_full_disk_is_a_typed_error_and_what_was_under_way_is_not_asked_twice(tmp_path, monkeypatch):
    with Book(tmp_path / "book", cap=5) as book, Appeals(stub := Stub(priced), book) as engine:
        with monkeypatch.context() as patch:
            patch.setattr(book, "settle", full)
            with pytest.raises(StorageError):
                engine.verify(items(1))
        assert engine.verify(items(1))[0].failure is Failure.LOST
        assert len(stub.asked) == 1


# The book


def test_a_book_has_one_writer_and_one_cap(tmp_path):
    with Book(tmp_path / "book", cap=5), pytest.raises(LedgerLockedError):
        Book(tmp_path / "book", cap=5)
    with pytest.raises(ProtocolError, match="a cap of 5 calls"):
        Book(tmp_path / "book", cap=6)
    with Book(tmp_path / "book", cap=5) as book:
        assert book.bill().asked == 0
    for cap in (-1, True, 2.5):
        with pytest.raises(InputError):
            Book(tmp_path / "other", cap=cap)


def test_a_damaged_book_is_refused_and_says_so(tmp_path):
    with Book(tmp_path / "book", cap=5):
        pass
    (tmp_path / "book" / FILE).write_bytes(b"not a database" * 100)
    with pytest.raises(IntegrityError, match=FILE):
        Book(tmp_path / "book", cap=5)


def test_what_the_database_cannot_do_is_a_typed_error(tmp_path):
    with Book(tmp_path / "book", cap=5) as book:
        with pytest.raises(InputError, match="asked and settled"):
            book.outcome("nobody asked")
        book._sql.execute("PRAGMA query_only = ON")
        with pytest.raises(StorageError):
            book.request([Asked("k", "c", "i")], "s", calls=1, honoured=True)
        book._sql.execute("PRAGMA query_only = OFF")
        assert book.request([Asked("k", "c", "i")], "s", calls=1, honoured=True) == [(0, "k")]
    with pytest.raises(ProtocolError):
        book.bill()


def test_requests_are_flushed_to_the_medium_before_the_call():
    # A commit under FULL is flushed; this is what the promise rests on.
    import tempfile

    with tempfile.TemporaryDirectory() as folder, Book(folder, cap=1) as book:
        assert book._sql.execute("PRAGMA synchronous").fetchone() == (2,)
        assert book._sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        seen = []

        def look(item):
            # Another connection could not look while this one holds the file, so the log itself is read.
            log = book.path / f"{FILE}-wal"
            seen.append(item.id.encode() in log.read_bytes())
            return Outcome(verdict=1)

        with Appeals(Stub(look), book) as engine:
            engine.verify([Item("a record with a long name", "q", "1", "1")])
        assert seen == [True]
        assert sqlite3.threadsafety == 3


def test_a_closed_engine_says_so_and_reserves_nothing(book):
    engine = Appeals(Stub(priced), book)
    engine.close()
    with pytest.raises(ProtocolError, match="closed"):
        engine.submit(items(1))
    assert book.bill().asked == 0
    with pytest.raises(InputError, match="at least one worker"):
        Appeals(Stub(priced), book, workers=0)
