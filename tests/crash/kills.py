"""Kills real processes at random moments: `python -m tests.crash.kills FOLDER --kills 5000`.

A child lives the life of a run and says, through a pipe, which events were acknowledged. The parent kills it after a
random time, makes sure that what was acknowledged is there, and starts the next child on the same folder, until that
run is finished; then it begins another one. Forked children share what the parent has imported and computed, so that
nearly all of their time is spent in the run. Every second run has a secondary without keys.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.crash.life import STAGES, absent, acknowledged, book_of, check_bill, live, replayed
from tests.crash.power import Quick
from tests.samples import files_of
from vapo.errors import IntegrityError
from vapo.ledger import Ledger, verify_run
from vapo.ledger.disk import System

LONGEST = 0.5
"""Seconds after which a forked child is killed at the latest."""


class Real(System):
    """The real file system, which is killed from outside."""

    def point(self, what: str) -> None:
        """Nothing happens here: the parent kills when it likes."""


class _Told(list[bytes]):
    """A list that tells a pipe of everything that is appended."""

    def __init__(self, pipe: int) -> None:
        super().__init__()
        self._pipe = pipe

    def append(self, line: bytes) -> None:
        os.write(self._pipe, line + b"\n")


def child(folder: Path, pipe: int, *, keyed: bool) -> None:
    """Live, or go on living; tell the pipe of every acknowledged event."""
    with acknowledged(_Told(pipe)):
        live(folder / "run", folder / "book", Real(), keyed=keyed)


def spawn(folder: Path, how: str, *, keyed: bool) -> tuple[int, int]:
    """Start a child; returns its number and the pipe to read."""
    read, write = os.pipe()
    if how == "fresh":
        os.set_inheritable(write, True)
        arguments = [sys.executable, "-m", "tests.crash.kills", str(folder), "--child", str(write)]
        process = subprocess.Popen([*arguments, "--keyed", str(int(keyed))], pass_fds=[write])
        process.returncode = 0  # it is waited for by number
        os.close(write)
        return process.pid, read
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(read)
            child(folder, write, keyed=keyed)
            code = 0
        finally:
            os._exit(code)
    os.close(write)
    return pid, read


def attempt(folder: Path, how: str, seconds: float, *, keyed: bool) -> bool:
    """One child, killed after so many seconds if it still lives; whether it finished."""
    pid, pipe = spawn(folder, how, keyed=keyed)
    told = bytearray()
    until, killed = time.monotonic() + seconds, False
    while True:
        if not killed and time.monotonic() >= until:
            os.kill(pid, signal.SIGKILL)
            killed = True
        ready, _, _ = select.select([pipe], [], [], None if killed else max(0.0, until - time.monotonic()))
        if ready:
            data = os.read(pipe, 1 << 20)
            if not data:
                break
            told += data
    os.close(pipe)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        msg = f"{folder}: the child failed by itself ({code})"
        raise SystemExit(msg)
    whole = bytes(told[: told.rfind(b"\n") + 1])
    log = folder / "run" / "log.jsonl"
    have = log.read_bytes() if log.exists() else b""
    missing = [line for line in whole.splitlines() if line + b"\n" not in have]
    if missing:
        msg = f"{folder}: acknowledged and gone: {missing[0]!r}"
        raise SystemExit(msg)
    return code == 0


def inspect(folder: Path) -> Counter[str]:
    """Look at what a kill has left: it can always be read, and what was acknowledged is whole."""
    log = folder / "run" / "log.jsonl"
    if not log.exists() or not log.read_bytes():
        return Counter(nothing=1)
    ledger = Ledger.read(folder / "run")
    gone = absent(
        {f"run/{k}": v for k, v in files_of(folder / "run").items()}, [e.line for e in ledger.events]
    )
    if gone:
        msg = f"{folder}: {gone} is gone"
        raise IntegrityError(msg)
    wheres = {finding.where.split("/")[0].split(":")[0] for finding in verify_run(folder / "run").findings}
    # What was under way: unfinished files, an event behind the mark, a certificate that is not written out yet.
    return Counter([str(ledger.events[-1].kind), *(f"finding in {where}" for where in wheres)])


def main() -> int:
    """Kill until there were enough."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--how", choices=["forked", "fresh"], default="forked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=int)
    parser.add_argument("--keyed", type=int, default=1)
    given = parser.parse_args()
    if given.child is not None:
        child(given.folder, given.child, keyed=bool(given.keyed))
        return 0
    chance = random.Random(given.seed)
    begun = time.monotonic()
    live(given.folder / "warm" / "run", given.folder / "warm.book", Quick())
    imports = 0.0
    if given.how == "fresh":
        started = time.monotonic()
        attempt(given.folder / "timed", "fresh", 600, keyed=True)
        imports = time.monotonic() - started
    kills = lost = 0
    runs: Counter[str] = Counter()
    where: Counter[str] = Counter()
    while kills < given.kills or not runs["keyed"]:
        name = "plain" if runs["keyed"] > runs["plain"] else "keyed"
        folder = given.folder / name / str(runs[name])
        folder.mkdir(parents=True)
        keyed = name == "keyed"
        while not attempt(folder, given.how, chance.uniform(imports / 2, imports + LONGEST), keyed=keyed):
            kills += 1
            where += inspect(folder)
        lost += check_bill(folder / "run", book_of(folder / "book"))
        runs[name] += 1
        if not keyed:
            assert verify_run(folder / "run").ok
            assert replayed(folder / "run") == STAGES
            shutil.rmtree(folder)
    seconds = round(time.monotonic() - begun)
    print(
        json.dumps(
            {"kills": kills, **runs, "lost": lost, "seconds": seconds, "after": dict(where.most_common())}
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
