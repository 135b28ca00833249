"""In whatever order things are asked, with deaths in between: the cap holds, and a record has one call, one answer."""

from __future__ import annotations

import tempfile
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vapo._internal.keyed import sha256_hex
from vapo.records import Source
from vapo.verifiers import Cost, Failure, Item, Outcome
from vapo.verifiers.appeals import Appeals
from vapo.verifiers.book import Book


class Dying(BaseException):
    """The process is gone."""


class Scripted:
    """Answers under keys, some of them with failures, and dies where it is told to."""

    def __init__(self, honours: bool) -> None:
        self.honours_keys, self.most_calls = honours, 1
        self.source = Source("scripted", sha256_hex(b"scripted"))
        self.sent: Counter[str] = Counter()
        self.dies_after: int | None = None

    def verify(self, items):
        raise AssertionError

    def stream(self, items, keys):
        self.sent.update(keys)
        for number, item in enumerate(items):
            if number == self.dies_after:
                raise Dying
            failed = item.completion == "2"
            yield [
                (
                    number,
                    Outcome(failure=Failure.TIMEOUT, cost=Cost(1)) if failed else Outcome(1, cost=Cost(1)),
                )
            ]


RECORDS = st.integers(0, 11)
BATCHES = st.lists(
    st.tuples(st.lists(RECORDS, max_size=6), st.one_of(st.none(), st.integers(0, 4))), min_size=1, max_size=8
)


def item(record: int) -> Item:
    """Twelve records that ask five different things."""
    return Item(f"r{record}", "q", str(record % 5), "1")


@settings(max_examples=40)
@given(BATCHES, st.integers(0, 8), st.booleans())
@example([([5], 0)], 2, True)  # another record asks first what was in flight at a death
def test_no_sequence_of_batches_and_deaths_overspends_or_pays_twice(batches, cap, honours):
    verifier, first_answers = Scripted(honours), {}
    with tempfile.TemporaryDirectory() as folder:
        for records, dies_after in [*batches, (list(range(12)), None), (list(range(12)), None)]:
            verifier.dies_after = dies_after
            # Every batch is a process of its own, so that each death is followed by a restart.
            with Book(folder, cap=cap) as book, Appeals(verifier, book) as engine:
                asked = [item(record) for record in records]
                try:
                    outcomes = engine.verify(asked)
                except Dying:
                    outcomes = []
                for one, outcome in zip(asked, outcomes, strict=False):
                    assert first_answers.setdefault(one.id, outcome) == outcome
                bill = engine.bill()
            assert len(verifier.sent) == bill.reserved <= cap
            assert honours or max(verifier.sent.values(), default=1) == 1
            states = (bill.settled, bill.failed, bill.lost, bill.in_flight, bill.refused, bill.hits)
            assert sum(states) == bill.asked
    assert (bill.asked, bill.in_flight) == (12, 0)
    assert not (honours and bill.lost)
    assert bill.calls == bill.reserved == bill.settled + bill.failed + bill.lost


def test_the_script_dies_and_fails_as_these_tests_need():
    verifier = Scripted(honours=True)
    verifier.dies_after = 1
    stream = verifier.stream([item(2), item(3)], ["a", "b"])
    assert next(stream)[0][1].failure is Failure.TIMEOUT
    with pytest.raises(Dying):
        next(stream)
