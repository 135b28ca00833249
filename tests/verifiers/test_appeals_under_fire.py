"""Whatever the server does and whenever the client dies: the cap holds, nothing is paid twice, all is accounted for."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.verifiers.appeals_child import items
from tests.verifiers.judge_server import JudgeServer, is_right, mostly_good
from tests.verifiers.processes import eventually
from vapo.verifiers.book import Book

ROOT = Path(__file__).parents[2]


def run_until_done(arguments: list[str], server: JudgeServer, kills: int, chance: random.Random) -> int:
    """Start the client again and again, killing it so many times at random moments of its work; how often it died."""

    def at_work_or_done() -> bool:
        return server.under_way > 0 or child.poll() is not None

    killed = 0
    while True:
        command = [sys.executable, "-m", "tests.verifiers.appeals_child", *arguments]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            if killed < kills:
                assert eventually(at_work_or_done)
                time.sleep(chance.uniform(0.0, 0.5))
                assert eventually(at_work_or_done)  # a call is in flight, or nothing is left to kill
                child.send_signal(signal.SIGKILL)
            said = child.stdout.read()
            code = child.wait()
        if code == -signal.SIGKILL:
            killed += 1
            continue
        assert (code, said) == (0, "done\n")
        if killed >= kills or code == 0:
            return killed


@pytest.mark.conformance
@pytest.mark.parametrize("honours", [False, True], ids=["keys ignored", "keys honoured"])
def test_appeals_under_random_kills_never_overspend_and_never_pay_twice(honours, full_size, tmp_path):
    count, kills = (10_000, 40) if full_size else (400, 3)
    cap = int(count * 0.85)
    with JudgeServer(
        mostly_good(0.3, "under fire"),
        honours=honours,
        latency=lambda key: 0.01 if full_size else 0.03,
        slow=0.9,
    ) as server:
        arguments = [server.url, str(tmp_path / "book"), str(count), str(cap), str(honours)]
        died = run_until_done(arguments, server, kills, random.Random(count))
        paid, seen = Counter(server.paid), Counter(server.seen)
    with Book(tmp_path / "book", cap=cap) as book:
        bill, rows = book.bill(), book.rows().to_pylist()
        outcomes = {row["item"]: book.outcome(row["key"]) for row in rows}
    print(
        f"\nkeys honoured: {honours}; killed {died} times; {sum(seen.values())} requests; paid {sum(paid.values())}"
    )
    print(bill)

    # The cap, by the server's own book and by ours.
    assert sum(paid.values()) <= bill.reserved <= cap
    assert bill.reserved == cap  # more was wanted than allowed
    # Never twice.
    assert max(paid.values()) == 1
    # Nothing was sent that had not been reserved.
    reserved = {row["key"] for row in rows if row["reserved"] == 1}
    assert set(seen) <= reserved
    assert len(reserved) == bill.reserved
    # What was paid is what the bill says may have been paid, or less.
    assert set(paid) <= {row["key"] for row in rows if row["calls"] == 1}
    # Every record is in one state, and no verdict is wrong.
    wanted = {item.id: item for item in items(count)}
    assert outcomes.keys() == wanted.keys()
    states = Counter(row["state"] for row in rows)
    assert bill.asked == count == sum(states.values())
    assert (bill.settled, bill.failed, bill.lost, bill.in_flight, bill.refused, bill.hits) == tuple(
        states[name] for name in ("settled", "failed", "lost", "reserved", "refused", "hit")
    )
    assert bill.in_flight == 0
    assert (bill.lost > 0) is (not honours and died > 0)
    for name, outcome in outcomes.items():
        if outcome.verdict is not None:
            assert (outcome.verdict > 0) is is_right(int(wanted[name].completion))
    assert bill.settled > cap / 4  # and it was not all in vain
