"""Feeding a target: limits on time and memory, and what came out."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

from tests.fuzz.mutate import generator, mutate
from tests.fuzz.targets import Target
from vapo.errors import VapoError

SECONDS = 10.0
"""Processor time that one input may take."""
MEMORY = 3 << 30
"""Bytes of address space beyond what is taken at the start."""


class Hang(BaseException):
    """An input took too long."""


@dataclass(slots=True)
class Outcome:
    """What became of the inputs of one target."""

    target: str
    inputs: int = 0
    accepted: int = 0
    refused: int = 0
    slowest: float = 0.0
    seconds: float = 0.0
    peak: int = 0
    """Most memory that the process had, in bytes."""
    findings: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Errors of another kind, each once, with the number of the first input and the input."""

    def add(self, seconds: float, *, read: bool, wrong: bool) -> None:
        """Count an input that took so long, and was read, refused, or ended wrongly."""
        self.slowest = max(self.slowest, seconds)
        self.inputs += 1
        self.accepted += read
        self.refused += not read and not wrong

    def close(self, seconds: float) -> None:
        """Note how long it all took, and the most memory until now."""
        self.seconds = seconds
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def __str__(self) -> str:
        line = (
            f"{self.target}: {self.inputs} inputs in {self.seconds:.1f} s, {self.accepted} read, "
            f"{self.refused} refused, slowest {1000 * self.slowest:.0f} ms, peak {self.peak >> 20} MiB, "
            f"{len(self.findings)} findings"
        )
        found = [
            f"  input {number}: {what}\n    {data[:300]!r}" for what, (number, data) in self.findings.items()
        ]
        return "\n".join([line, *found])


def one(target: Target, data: bytes) -> tuple[bool, str]:
    """Feed one input: whether it was read, and what was wrong if something was."""
    try:
        target.read(data)
    except VapoError as error:
        return False, f"{type(error).__name__} where nothing may be raised" if target.total else ""
    except (Hang, Exception) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        inside = [
            f
            for f in traceback.extract_tb(error.__traceback__)
            if "/vapo/" in f.filename or "tools" in f.filename
        ]
        at = inside[-1] if inside else last
        where = f"{at.filename.rpartition('/src/')[2]}:{at.lineno}"
        return False, f"{type(error).__name__} at {where}: {str(error)[:120]}"
    return True, ""


def drive(name: str, target: Target, inputs: int, *, seed: int = 0, first: int = 0) -> Outcome:
    """Feed so many inputs; the same ones for the same name and seed."""
    outcome = Outcome(name)
    begun = time.perf_counter()
    with _limited():
        for number in range(first, first + inputs):
            data = mutate(generator(name, number, seed), target.seeds)
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            started = time.perf_counter()
            read, wrong = one(target, data)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            outcome.add(time.perf_counter() - started, read=read, wrong=bool(wrong))
            if wrong:
                outcome.findings.setdefault(wrong.split(": ")[0], (number, data))
    outcome.close(time.perf_counter() - begun)
    return outcome


@contextmanager
def _limited() -> Iterator[None]:
    def hang(number: int, frame: FrameType | None) -> None:
        del number, frame
        msg = f"more than {SECONDS:g} s"
        raise Hang(msg)

    before, memory = signal.signal(signal.SIGVTALRM, hang), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (taken() + MEMORY, memory[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGVTALRM, before)


def taken() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", encoding="ascii") as stream:  # noqa: PTH123 - a file of the system
        return int(stream.read().split()[0]) * resource.getpagesize()
