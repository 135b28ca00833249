"""One worker process as its parent sees it: started, fed, listened to, watched and ended."""

from __future__ import annotations

import base64
import json
import mmap
import os
import pickle
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vapo.verifiers.base import Cost, Failure, Item, Outcome, Verifier
from vapo.verifiers.rules import Hazard
from vapo.verifiers.worker import STAMP, unpack_outcome

__all__ = ["Limits", "StartError", "WorkerProcess"]

START_SECONDS = 120.0
TICK_SECONDS = 0.05
"""How often time and memory of a worker are looked at."""
MOST_LINE = 64 << 20

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from vapo.verifiers.worker import main; main()"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What an item may take."""

    deadline: float
    """Seconds, from when its worker begins with it."""
    grace: float
    """Seconds after which the parent kills a worker that the deadline did not end."""
    memory: int
    """Bytes: of the whole worker, or of one item where items run in children of their own."""


class StartError(Exception):
    """A worker could not begin to work."""

    def __init__(self, detail: str, failure: Failure = Failure.CRASH, *, final: bool = False) -> None:
        super().__init__(detail)
        self.failure = failure
        """What it makes of items: a crash, or refused where the system offers no isolation."""
        self.final = final
        """Whether the worker itself said why, and would say the same every time."""


class WorkerProcess:
    """A running worker. It belongs to one thread, which starts it and stays for as long as it lives."""

    def __init__(self, verifier: Verifier, limits: Limits) -> None:
        self._limits = limits
        self._hazard = Hazard(getattr(verifier, "hazard", Hazard.HANGS))
        self._incoming = bytearray()
        self._outgoing: list[memoryview] = []
        self._posted = self._answered = 0
        self.ended: Outcome | None = None
        """What the item at fault comes to, once the process is gone; None if none is known to be."""
        self.at_fault = -1
        """Which of the unanswered items that is."""
        with tempfile.TemporaryFile() as file:
            file.truncate(STAMP.size)
            self._stamp = mmap.mmap(file.fileno(), STAMP.size)
            self._process = subprocess.Popen(
                # Anything but text in there is no place to import from, here or there.
                [
                    sys.executable,
                    "-c",
                    _BOOT,
                    json.dumps([path for path in sys.path if isinstance(path, str)]),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[file.fileno()],
                env=_environment(self._hazard),
                bufsize=0,
                start_new_session=True,  # Ctrl-C is the parent's to hear
            )
            setup = {
                "verifier": base64.b64encode(pickle.dumps(verifier)).decode(),
                "hazard": int(self._hazard),
                "stamp": file.fileno(),
                "deadline": limits.deadline,
                "memory": limits.memory,
            }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        os.set_blocking(self._from, False)
        self._outgoing.append(memoryview(json.dumps(setup).encode() + b"\n"))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the verifier is loaded.

        Raises:
            StartError: If it cannot be.
        """
        end = time.monotonic() + START_SECONDS
        said: Any = None
        while said is None and self._exchange(TICK_SECONDS) and time.monotonic() < end:
            said = next(iter(self._lines()), None)
        if not isinstance(said, dict):
            said = {}
        if said.get("ready") is True:
            return
        self.kill()
        if "refused" in said:
            raise StartError(str(said["refused"]), Failure.REFUSED, final=True)
        if "broken" in said:
            raise StartError(str(said["broken"]), final=True)
        detail = "a worker died while it started"
        raise StartError(detail)

    def post(self, items: Sequence[Item]) -> None:
        """Give it more to do; it is sent as the pipe takes it."""
        self._posted += len(items)
        fields = [[item.id, item.question, item.completion, item.reference] for item in items]
        self._outgoing.append(memoryview(json.dumps(fields).encode() + b"\n"))

    def answers(self) -> list[Outcome]:
        """Outcomes that came since the last call, in the order of the items; waits a moment for them.

        When the process has died and an item is to blame for it, `ended` and `at_fault` say so.
        """
        alive = self._exchange(TICK_SECONDS)
        reason = self._overrun() if alive else None
        if reason is not None:
            self._process.kill()
        if not alive or reason is not None:
            self._reap()
        outcomes = self._outcomes()
        if outcomes is None or self._answered + len(outcomes) > self._posted:
            reason, outcomes = Outcome(failure=Failure.CRASH, detail="the worker answered nonsense"), []
            self.kill()
        self._answered += len(outcomes)
        if self._process.returncode is not None:
            self._blame(reason)
        return outcomes

    @property
    def alive(self) -> bool:
        """Whether it was still there when it was last looked at."""
        return self._process.returncode is None

    def end(self) -> None:
        """End it at once, from any thread; its own thread will find out."""
        self._process.kill()

    def kill(self) -> None:
        """End it at once, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def _reap(self) -> None:
        """Wait for its end, which is near, and take what it still said."""
        try:
            self._process.wait(self._limits.grace)
        except subprocess.TimeoutExpired:
            self.kill()
        self._outgoing.clear()
        heard = -1
        while len(self._incoming) > heard:
            heard = len(self._incoming)
            self._exchange(0.0)

    def close(self) -> None:
        """End it, and give back what it held here."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._stamp.close()

    def _exchange(self, seconds: float) -> bool:
        """Write and read what can be; False when nothing will come any more."""
        poll = select.poll()
        poll.register(self._from, select.POLLIN)
        if self._outgoing:
            poll.register(self._to, select.POLLOUT)
        for number, _ in poll.poll(seconds * 1000):
            try:
                if number == self._to:
                    self._write()
                    continue
                part = os.read(self._from, 1 << 20)
            except BlockingIOError:
                continue
            except BrokenPipeError:
                return False
            if not part:
                return False
            self._incoming += part
        return True

    def _write(self) -> None:
        while self._outgoing:
            first = self._outgoing[0]
            written = os.write(self._to, first[: 1 << 16])
            if written == len(first):
                self._outgoing.pop(0)
            else:
                self._outgoing[0] = first[written:]

    def _lines(self) -> list[Any]:
        complete, mark, rest = self._incoming.rpartition(b"\n")
        if not mark:
            return []
        self._incoming = rest
        try:
            return [json.loads(line) for line in complete.split(b"\n")]
        except (ValueError, RecursionError):
            return [None]

    def _outcomes(self) -> list[Outcome] | None:
        if len(self._incoming) > MOST_LINE:
            return None
        try:
            return [unpack_outcome(packed) for line in self._lines() for packed in line]
        except (ValueError, KeyError, TypeError, OverflowError):
            return None

    def _overrun(self) -> Outcome | None:
        """Why it must be killed, if it must."""
        begun, since = STAMP.unpack_from(self._stamp)
        late = self._limits.deadline + self._limits.grace
        if since and time.monotonic() - since > late and STAMP.unpack_from(self._stamp) == (begun, since):
            return self._timeout()
        if self._hazard is not Hazard.EVALUATES and _resident(self.pid) > self._limits.memory:
            return Outcome(
                failure=Failure.CRASH, detail=f"more than {self._limits.memory >> 20} MiB of memory"
            )
        return None

    def _timeout(self) -> Outcome:
        detail = f"no verdict within {self._limits.deadline:g} seconds"
        return Outcome(failure=Failure.TIMEOUT, detail=detail)

    def _blame(self, reason: Outcome | None) -> None:
        """Say which item was being judged when the process ended, and what that makes of it."""
        begun, since = STAMP.unpack_from(self._stamp)
        self.at_fault = begun - 1 - self._answered
        # Between two items it dies of one that it has judged and not answered: which, is known if it is the only one.
        if self.at_fault < 0 or (not since and self.at_fault > 0):
            return
        seconds = time.monotonic() - since if since else 0.0
        code = self._process.returncode
        # The alarm of a library that judges may end a worker too; then the deadline is not yet there.
        if reason is None and code == -signal.SIGALRM and seconds >= 0.9 * self._limits.deadline:
            reason = self._timeout()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        reason = reason or Outcome(failure=Failure.CRASH, detail=f"the worker died: {how}")
        self.ended = replace(reason, cost=Cost(seconds=seconds))


def _environment(hazard: Hazard) -> dict[str, str]:
    """One thread a worker, one order of sets for all; nothing secret for what runs programs."""
    fixed = {
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    if hazard is not Hazard.EVALUATES:
        return {**os.environ, **fixed}
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH") if name in os.environ
    }
    return {**kept, **fixed}


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return 0
