"""A pool gives its verifier's verdicts, keeps every harm to the item that did it, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verifiers.processes import alive, eventually, workers_of
from tests.verifiers.troublemakers import Broken, Homeless, Obedient
from vapo.errors import InputError, ProtocolError
from vapo.verifiers import Failure, Item, Outcome, worker
from vapo.verifiers.channels import Channel, NoisyVerifier
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.pool import Pool
from vapo.verifiers.pool_crew import Batch, Crew, Task
from vapo.verifiers.pool_process import Limits

ROOT = Path(__file__).parents[2]
linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def items(*orders: str) -> list[Item]:
    return [Item(f"i{place}", "", order) for place, order in enumerate(orders)]


def said(outcomes):
    return [outcome.verdict if outcome.failure is None else outcome.failure for outcome in outcomes]


@pytest.fixture(scope="module")
def pool():
    with Pool(Obedient(), workers=2, deadline=1.0, memory=512 << 20) as pool:
        yield pool


@settings(max_examples=20)
@given(signs=st.lists(st.sampled_from([1, -1]), max_size=300), noise=st.text(max_size=5))
def test_outcomes_come_in_the_order_of_the_items_with_texts_unharmed(pool, signs, noise):
    asked = [Item(str(place), noise, str(sign), noise) for place, sign in enumerate(signs)]
    outcomes = pool.verify(asked)
    assert [outcome.verdict for outcome in outcomes] == signs
    assert [outcome.detail for outcome in outcomes] == [f"asked {sign}" for sign in signs]
    assert all(outcome.cost.seconds >= 0 for outcome in outcomes)


@pytest.mark.parametrize(
    ("order", "failure"),
    [
        ("sleep 60", Failure.TIMEOUT),
        ("deaf 60", Failure.TIMEOUT),
        ("exit 0", Failure.CRASH),
        ("exit 7", Failure.CRASH),
        ("quit", Failure.CRASH),
        ("raise no", Failure.CRASH),
        ("segfault", Failure.CRASH),
        ("close", Failure.CRASH),
        ("nothing", Failure.CRASH),
        ("1.5", Failure.CRASH),
        ("\ud800", Failure.CRASH),
    ],
)
def test_only_the_item_at_fault_gets_the_failure(pool, order, failure):
    outcomes = pool.verify(items(*["1"] * 20, order, *["-1"] * 20))
    assert said(outcomes) == [1] * 20 + [failure] + [-1] * 20
    assert outcomes[20].detail


@linux
@pytest.mark.parametrize(("order", "detail"), [("eat 300", "more than 256 MiB"), ("eat 4000", "memory")])
def test_a_worker_that_eats_the_memory_is_ended_slow_or_fast(order, detail):
    with Pool(Obedient(), workers=1, deadline=20.0, memory=256 << 20) as pool:
        outcomes = pool.verify(items("1", order, "-1"))
    assert said(outcomes) == [1, Failure.CRASH, -1]
    assert detail in outcomes[1].detail


def test_many_failures_in_one_batch_all_find_their_item(pool):
    orders = ["1", "exit 1", "-1", "sleep 60", "1", "segfault", "exit 2", "-1"]
    found = said(pool.verify(items(*orders)))
    assert found == [1, Failure.CRASH, -1, Failure.TIMEOUT, 1, Failure.CRASH, Failure.CRASH, -1]


def test_a_timeout_is_told_from_a_crash_by_its_detail_and_both_carry_their_time(pool):
    late, dead = pool.verify(items("sleep 60", "exit 7"))
    assert "1 seconds" in late.detail
    assert "exit code 7" in dead.detail
    assert late.cost.seconds >= 1.0


def test_a_verifier_that_prints_disturbs_nobody(pool):
    assert said(pool.verify(items("print {}", "1", 'print {"ready": true}\n', "-1"))) == [1, 1, 1, -1]


def test_what_is_left_of_one_items_time_cannot_run_out_on_the_next(monkeypatch):
    stamp, armed = bytearray(worker.STAMP.size), []

    def arm(_: int, seconds: float) -> None:
        if seconds:
            armed.append(worker.STAMP.unpack_from(stamp))

    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setattr(worker.signal, "setitimer", arm)
    reading, writing = os.pipe()
    line = json.dumps([["a", "", "1", ""]] * 3).encode()
    worker._serve([line], writing, lambda _: Outcome(verdict=1), stamp, 5.0)
    os.close(reading)
    os.close(writing)
    assert armed == [(0, 0.0), (1, 0.0), (2, 0.0)]


def test_libraries_with_alarms_work_from_every_thread_of_the_parent(pool):
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: said(pool.verify(items("alarm", "1", "alarm"))), range(4)))
    assert results == [[-1, 1, -1]] * 4


def test_the_parents_own_alarm_is_left_alone(pool):
    rung = []
    old = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        pool.verify(items("alarm", "sleep 60"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, old)
    assert rung == [1]


def test_threads_share_a_pool_and_each_gets_its_own(pool):
    def ask(sign: int) -> list[object]:
        return said(pool.verify(items(*[str(sign)] * 50)))

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(ask, [1, -1] * 6)) == [[1] * 50, [-1] * 50] * 6


@linux
def test_a_worker_killed_from_outside_costs_one_item_at_most(pool):
    pids = [int(outcome.detail) for outcome in pool.verify(items(*["pid"] * 8))]
    timer = threading.Timer(0.05, os.kill, (pids[0], signal.SIGKILL))
    timer.start()
    found = said(pool.verify(items(*["sleep 0.02"] * 20)))
    timer.join()
    assert set(found) <= {1, Failure.CRASH}
    assert found.count(Failure.CRASH) <= 1


@linux
@pytest.mark.slow
def test_under_random_kills_nothing_is_lost_mixed_up_or_judged_wrong():
    draw = random.Random(7)
    orders = [draw.choice(["1", "-1", "pid", "sleep 0.004"]) for _ in range(2000)]
    wanted = [-1 if order == "-1" else 1 for order in orders]
    killed: set[int] = set()

    def kill(pids: set[int]) -> None:
        for pid in pids - killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)

    outcomes = []
    with Pool(Obedient(), workers=2, deadline=20.0) as pool:
        for start in range(0, 2000, 100):
            known = {int(outcome.detail) for outcome in outcomes[-100:] if outcome.detail.isdigit()}
            timer = threading.Timer(draw.uniform(0.0, 0.2), kill, [known])
            timer.start()
            outcomes += pool.verify(items(*orders[start : start + 100]))
            timer.join()
    found = said(outcomes)
    assert len(killed) > 10
    assert all(one in (sign, Failure.CRASH) for one, sign in zip(found, wanted, strict=True))
    assert found.count(Failure.CRASH) <= len(killed)


def test_every_worker_orders_sets_alike():
    with Pool(Obedient(), workers=2) as pool:
        assert len({outcome.detail for outcome in pool.verify(items(*["hash abc"] * 50))}) == 1


def test_a_pool_is_the_source_that_it_runs():
    rule = NoisyVerifier(Numeric(), Channel.make("symmetric", 0.5))
    pool = Pool(rule, workers=1)
    assert pool.source == rule.source
    assert pool.by_id is rule.by_id is True
    assert not Pool(Numeric(), workers=1).by_id


def test_an_empty_batch_starts_nothing():
    pool = Pool(Numeric(), workers=1)
    assert pool.verify([]) == []


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"workers": 0}, "workers"),
        ({"deadline": 0.0}, "deadline"),
        ({"deadline": float("inf")}, "deadline"),
        ({"grace": -1.0}, "grace"),
        ({"memory": 10}, "memory"),
    ],
)
def test_arguments_outside_their_range_are_named(arguments, named):
    with pytest.raises(InputError, match=named):
        Pool(Numeric(), **arguments)


def test_a_verifier_that_cannot_travel_is_refused_at_once():
    class Local(Obedient):
        pass

    with pytest.raises(InputError, match="argument 'verifier'"):
        Pool(Local())


def test_items_hold_text_only(pool):
    with pytest.raises(InputError, match="item 1: expected texts only"):
        pool.verify([*items("1"), Item("x", "", 5)])  # type: ignore[arg-type]


def test_a_verifier_that_cannot_be_loaded_gives_crashes_and_the_reason():
    with Pool(Broken(), workers=2) as pool:
        outcomes = pool.verify(items(*["1"] * 40))
    assert said(outcomes) == [Failure.CRASH] * 40
    assert "no such library" in outcomes[0].detail


def test_a_system_that_starts_no_process_gives_crashes_and_the_reason(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with Pool(Obedient(), workers=2) as pool:
        outcomes = pool.verify(items(*["1"] * 40))
    assert said(outcomes) == [Failure.CRASH] * 40
    assert "/nowhere/python" in outcomes[0].detail


def test_where_there_is_no_isolation_everything_is_refused_with_the_reason():
    with Pool(Homeless(), workers=1) as pool:
        outcomes = pool.verify(items(*["1"] * 40))
    assert said(outcomes) == [Failure.REFUSED] * 40
    assert "no isolation here" in outcomes[0].detail


def test_a_closed_pool_says_so():
    pool = Pool(Obedient(), workers=1)
    pool.verify(items("1"))
    pool.close()
    pool.close()
    with pytest.raises(ProtocolError, match="the pool is closed"):
        pool.verify(items("1"))


def test_a_call_that_waits_while_the_pool_is_closed_ends_with_an_error(tmp_path):
    pool = Pool(Obedient(), workers=1, deadline=300.0)
    begun = tmp_path / "begun"
    closer = threading.Thread(target=lambda: eventually(begun.exists) and pool.close())
    closer.start()
    with pytest.raises(ProtocolError, match="closed while"):
        pool.verify(items(f"announce {begun}"))
    closer.join()


def test_what_breaks_a_thread_of_the_pool_reaches_everybody_who_asks(monkeypatch):
    def odd(*_: object) -> None:
        message = "how odd"
        raise ValueError(message)

    monkeypatch.setattr("vapo.verifiers.pool_crew._feed", odd)
    pool = Pool(Obedient(), workers=2)
    with pytest.raises(
        ProtocolError, match="closed while it was judging, since it broke: ValueError: how odd"
    ):
        pool.verify(items("1"))
    with pytest.raises(
        ProtocolError, match="the pool is closed, since it broke: ValueError: how odd"
    ) as raised:
        pool.verify(items("1"))
    assert isinstance(raised.value.__cause__, ValueError)
    pool.close()


def test_a_path_to_import_from_that_is_no_text_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    with Pool(Obedient(), workers=1) as pool:
        assert said(pool.verify(items("1"))) == [1]


def test_a_worker_that_the_closing_ends_gives_no_outcome():
    crew = Crew(Obedient(), 1, Limits(300.0, 0.5, 1 << 30))
    batch = Batch(items("1"), [None], 1)
    crew.close()
    crew.give_up([Task(batch, 0)], None)  # what the thread that minds the worker may still do
    assert batch.outcomes == [None]


@linux
def test_workers_end_with_the_pool_closed_or_forgotten():
    pool = Pool(Obedient(), workers=2)
    pids = [int(outcome.detail) for outcome in pool.verify(items(*["pid"] * 8))]
    assert all(map(alive, pids))
    del pool
    assert eventually(lambda: not any(map(alive, pids)))


def test_a_pool_that_came_through_a_fork_refuses_and_ends_nothing(pool):
    # In a process of its own, since the test process has threads that a fork would break.
    code = """
        import os, signal
        from tests.verifiers.troublemakers import Obedient
        from vapo.errors import InputError
        from vapo.verifiers import Item
        from vapo.verifiers.pool import Pool
        pool = Pool(Obedient(), workers=1)
        pool.start()
        child = os.fork()
        if not child:
            signal.alarm(30)
            try:
                pool.verify([Item("a", "", "1")])
            except InputError:
                pool.close()
                os._exit(5)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
        assert pool.verify([Item("a", "", "1")])[0].verdict == 1
    """
    with _script(code) as process:
        assert process.wait(60) == 0


PREPARED = """
    import os, sys, threading
    from tests.verifiers.troublemakers import Obedient
    from vapo.verifiers import Item
    from vapo.verifiers.pool import Pool
    pool = Pool(Obedient(), workers=2, deadline=300.0)
    print(*(outcome.detail for outcome in pool.verify([Item("a", "", "pid")] * 16)), flush=True)
"""


def _script(code: str, **options) -> subprocess.Popen[str]:
    # Python 3.12 and later warn of a fork beside threads; here that is the point.
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(code)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


def _pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


@linux
@pytest.mark.parametrize(
    "end", ["", "raise SystemExit(0)", "threading.Thread(target=pool.verify, args=([],)).start()"]
)
def test_an_interpreter_that_ends_takes_its_workers_along(end):
    with _script(PREPARED + f"    {end}\n") as process:
        pids = _pids(process)
        assert pids
        assert process.wait(60) == 0
    assert eventually(lambda: not any(map(alive, pids)))


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_parent_that_is_stopped_while_it_waits_leaves_no_orphans(number):
    code = PREPARED + '    pool.verify([Item("a", "", "sleep 300")])\n'
    with _script(code, start_new_session=True, stderr=subprocess.DEVNULL) as process:
        pids = _pids(process)
        assert pids
        assert eventually(lambda: bool(workers_of(process.pid)))
        os.killpg(process.pid, number)
        assert process.wait(60) != 0
    assert eventually(lambda: not any(map(alive, pids)))
