"""The process that verifiers run in. It reads items, judges one after the other, and says when it began with each.

Its parent learns from a few bytes of shared memory which item is being judged, and since when, even when this process
can no longer say anything. Lines of JSON go both ways, so that nothing which a hostile item might have forged is ever
unpickled.

The deadline of an item is kept in here, by the kernel: a plain worker sets a timer whose signal ends the process, also
in the middle of a multiplication that takes a week. A sandboxed worker judges each item in a child that it kills.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import json
import math
import mmap
import os
import pickle
import resource
import secrets
import select
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from vapo.verifiers.base import FREE, Cost, Failure, Item, Outcome, Verifier
from vapo.verifiers.rules import Hazard, grant
from vapo.verifiers.sandbox import (
    NoSandboxError,
    clear_scratch,
    close_files_from,
    die_with_parent,
    enter,
    lock_down,
    own_memory,
)

__all__ = ["STAMP", "main", "pack_outcome", "unpack_outcome"]

STAMP = struct.Struct("Qd")
"""What stands in the shared memory: how many items were begun, and when the current one was; 0 when there is none."""
FLUSH_SECONDS = 0.02
MOST_DETAIL = 300
MOST_ANSWER = 1 << 16
"""Bytes that a sandboxed child may answer."""

Judge = Callable[[Item], Outcome]
_dumps = json.dumps
"""Bound here, since a program that is judged may put something else in its place."""


def pack_outcome(outcome: Outcome) -> list[Any]:
    """An outcome as plain data.

    Example:
        >>> unpack_outcome(pack_outcome(Outcome(verdict=1, detail="sure"))).detail
        'sure'
    """
    failure = None if outcome.failure is None else outcome.failure.value
    return [outcome.verdict, outcome.confidence, failure, list(outcome.cost), outcome.detail[:MOST_DETAIL]]


def unpack_outcome(packed: Sequence[Any]) -> Outcome:
    """The outcome again.

    Raises:
        ValueError: If it is none; also KeyError, TypeError and OverflowError, as what is read here may be forged.
    """
    verdict, confidence, failure, cost, detail = packed
    if not isinstance(detail, str) or isinstance(verdict, bool) or len(cost) != len(Cost._fields):
        message = "no outcome"
        raise ValueError(message)
    return Outcome(
        verdict=verdict,
        confidence=float(confidence),
        failure=None if failure is None else Failure(failure),
        cost=Cost(int(cost[0]), int(cost[1]), int(cost[2]), float(cost[3])),
        detail=detail[:MOST_DETAIL],
    )


def main() -> NoReturn:
    """Serve until the parent closes the pipe."""
    parent = os.getppid()
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    reading, writing = os.dup(0), os.dup(1)
    # What a verifier prints must not reach the pipe, and what it reads must not come from there.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    lines = os.fdopen(reading, "rb", buffering=1 << 16)
    setup = json.loads(lines.readline())
    stamp = mmap.mmap(setup["stamp"], STAMP.size)
    os.close(setup["stamp"])
    try:
        judge, kernel_timer = _judge(setup, stamp)
    except NoSandboxError as error:
        _say(writing, {"refused": str(error)})
        os._exit(0)
    except BaseException as error:
        _say(writing, {"broken": f"{type(error).__name__}: {error}"[:MOST_DETAIL]})
        os._exit(1)
    _say(writing, {"ready": True})
    gc.freeze()
    _serve(lines, writing, judge, stamp, setup["deadline"] if kernel_timer else 0.0)
    os._exit(0)


def _say(writing: int, value: Any) -> None:
    _write_all(writing, json.dumps(value).encode() + b"\n")


def _judge(setup: dict[str, Any], stamp: mmap.mmap) -> tuple[Judge, bool]:
    """What judges an item, and whether this process itself is at stake when it takes too long."""
    verifier: Verifier = pickle.loads(base64.b64decode(setup["verifier"]))
    hazard = Hazard(setup["hazard"])
    prepare = getattr(verifier, "prepare", None)
    if prepare is not None:
        prepare()
    memory = setup["memory"]
    if hazard is not Hazard.EVALUATES:
        grant(Hazard.HANGS)
        # The parent watches what is really in use and kills at the limit; this is for what comes faster than it looks.
        _limit(resource.RLIMIT_AS, own_memory() + 2 * memory)
        _limit(resource.RLIMIT_CORE, 0)
        return lambda item: _once(verifier, item), True
    scratch = enter(needed=[os.path.realpath(__file__)])
    os.environ["HOME"] = os.environ["TMPDIR"] = scratch
    grant(hazard)
    child = _Child(verifier, memory, setup["deadline"], stamp)
    return lambda item: _in_a_child(child, item, scratch), False


def _limit(which: int, value: int) -> None:
    with contextlib.suppress(ValueError, OSError):  # a lower limit is in force already
        resource.setrlimit(which, (value, resource.getrlimit(which)[1]))


def _serve(lines: Any, writing: int, judge: Judge, stamp: mmap.mmap, timer: float) -> None:
    begun = 0
    flushed = time.monotonic()
    for line in lines:
        done: list[list[Any]] = []
        for fields in json.loads(line):
            item = Item(*fields)
            if timer:
                # Before the stamp: what is left of the last item's time must not run out on this one.
                # Libraries may have taken the signal for themselves; the parent watches the clock as well.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, timer)
            begun += 1
            STAMP.pack_into(stamp, 0, begun, 0.0)
            start = time.monotonic()
            STAMP.pack_into(stamp, 0, begun, start)
            outcome = judge(item)
            now = time.monotonic()
            STAMP.pack_into(stamp, 0, begun, 0.0)
            packed = pack_outcome(outcome)
            packed[3][3] = now - start
            done.append(packed)
            if now - flushed > FLUSH_SECONDS:
                if timer:
                    signal.setitimer(signal.ITIMER_REAL, 0.0)
                _say(writing, done)
                done, flushed = [], now
        if timer:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        if done:
            _say(writing, done)
            flushed = time.monotonic()


def _once(verifier: Verifier, item: Item) -> Outcome:
    """One item, with everything that can come out of a verifier made an outcome."""
    try:
        outcomes = verifier.verify([item])
    except MemoryError:
        return Outcome(failure=Failure.CRASH, detail="out of memory")
    except BaseException as error:
        return Outcome(failure=Failure.CRASH, detail=_described(error))
    if len(outcomes) == 1 and isinstance(outcomes[0], Outcome):
        return outcomes[0]
    return Outcome(
        failure=Failure.CRASH, detail="the verifier gave something else than one outcome for one item"
    )


def _described(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:MOST_DETAIL]
    except BaseException:  # its text may be as hostile as the rest
        return type(error).__name__


class _Child(NamedTuple):
    verifier: Verifier
    memory: int
    deadline: float
    stamp: mmap.mmap

    def run(self, item: Item, writing: int, nonce: str) -> NoReturn:
        """Judge one item with nothing left to do harm with, say the outcome, and end."""
        try:
            self.stamp.close()  # it is the parent's to read, and not for an item to write
            os.setsid()  # the worker's group holds processes outside of the sandbox
            pipe = os.dup2(writing, 3)
            close_files_from(4)
            try:
                lock_down(self.memory, self.deadline)
                outcome = _once(self.verifier, item)
            except NoSandboxError as error:
                outcome = Outcome(failure=Failure.REFUSED, detail=str(error))
            _write_all(pipe, f"{nonce} {_dumps(pack_outcome(outcome))}".encode())
        finally:
            os._exit(0)


def _in_a_child(child: _Child, item: Item, scratch: str) -> Outcome:
    """One item in a process of its own, which is gone afterwards with all its kin."""
    clear_scratch(scratch)
    # What the child says counts only with this before it: a few bytes written to every open file are no verdict.
    nonce = secrets.token_hex(16)
    reading, writing = os.pipe()
    end = time.monotonic() + child.deadline
    forked = os.fork()
    if not forked:
        child.run(item, writing, nonce)
    os.close(writing)
    heard, late = _hear(reading, end)
    os.close(reading)
    # This is the first process of its namespace: everybody else in there is the item's doing.
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    status = 0
    with contextlib.suppress(ChildProcessError):
        while True:
            process, result = os.waitpid(-1, 0)
            status = result if process == forked else status
    if late:
        return Outcome(failure=Failure.TIMEOUT, detail=f"no verdict within {child.deadline:g} seconds")
    said, _, packed = heard.partition(b" ")
    try:
        if secrets.compare_digest(said, nonce.encode()):
            # Nothing in here can have cost anything, whatever a program that writes its own outcome says.
            return replace(unpack_outcome(json.loads(packed)), cost=FREE)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return Outcome(failure=Failure.CRASH, detail=f"ended without a verdict: {how}")


def _hear(reading: int, end: float) -> tuple[bytes, bool]:
    """What the child wrote until it closed the pipe, and whether it did not do so in time."""
    heard = b""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    while len(heard) <= MOST_ANSWER:
        left = end - time.monotonic()
        if left <= 0 or not poll.poll(math.ceil(left * 1000)):
            return heard, True
        part = os.read(reading, MOST_ANSWER)
        if not part:
            break
        heard += part
    return heard, False


def _write_all(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]


if __name__ == "__main__":
    sys.exit("this is started by vapo.verifiers.pool")
