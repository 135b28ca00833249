"""Worker processes end with the process that owns them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from vapo._internal.workers import worker_pool

OWNER = """
import sys, time
from tests.test_workers import linger
from vapo._internal.workers import worker_pool
if __name__ == "__main__":
    with worker_pool(1) as pool:
        pool.submit(linger, sys.argv[1]).result()
"""


def linger(path: str) -> None:
    """Say who works, and work for longer than any test."""
    with open(path, "w", encoding="ascii") as stream:  # noqa: PTH123 - a worker imports as little as it can
        stream.write(f"{os.getpid()}\n")
    time.sleep(600)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # Nobody may be there to collect it, where the tests run as the first process of a container.
    with open(f"/proc/{pid}/stat", encoding="ascii") as stream:  # noqa: PTH123
        return stream.read().rpartition(")")[2].split()[0] == "Z"


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the process table of Linux")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_when_their_owner_is_killed_or_interrupted(tmp_path, how):
    told = tmp_path / "pid"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(told)], stderr=subprocess.DEVNULL)
    try:
        assert until(lambda: told.exists() and told.read_text().endswith("\n"))
        worker = int(told.read_text())
        owner.send_signal(how)
        owner.wait(60)
        assert until(lambda: gone(worker))
    finally:
        owner.kill()
        owner.wait()


def test_a_pool_that_is_left_in_order_has_done_its_work():
    with worker_pool(2) as pool:
        assert list(pool.map(abs, [-1, 2, -3])) == [1, 2, 3]
