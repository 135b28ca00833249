"""Verifiers for tests of the pool: each does what its item's completion says, and some of it is awful."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vapo._internal.keyed import sha256_hex
from vapo.records import Source
from vapo.verifiers import Item, Outcome
from vapo.verifiers.rules import Hazard
from vapo.verifiers.sandbox import NoSandboxError

SOURCE = Source("obedient", sha256_hex(b"obedient"))


@dataclass(frozen=True)
class Obedient:
    """Does what the completion says; a number is its verdict."""

    source: Source = field(default=SOURCE, compare=False)

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        (item,) = items
        word, _, argument = item.completion.partition(" ")
        return getattr(self, f"_{word}", self._plain)(argument or item.completion)

    def _plain(self, said: str) -> list[Outcome]:
        return [Outcome(verdict=int(said), detail=f"asked {said}")]

    def _sleep(self, seconds: str) -> list[Outcome]:
        time.sleep(float(seconds))
        return [Outcome(verdict=1)]

    def _announce(self, path: str) -> list[Outcome]:
        """Leaves a file, so that others know that it has begun, and hangs."""
        Path(path).touch()
        return self._sleep("60")

    def _deaf(self, seconds: str) -> list[Outcome]:
        """Cancels every alarm, as libraries with time limits of their own do, and then hangs."""
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        return self._sleep(seconds)

    def _alarm(self, _: str) -> list[Outcome]:
        """A time limit by SIGALRM, which works in the main thread of a process only."""

        def late(number: int, frame: object) -> None:
            raise TimeoutError

        old = signal.signal(signal.SIGALRM, late)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        try:
            time.sleep(30)
        except TimeoutError:
            return [Outcome(verdict=-1, detail="the library's own limit")]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.signal(signal.SIGALRM, old)
        return [Outcome(verdict=1)]

    def _exit(self, code: str) -> list[Outcome]:
        os._exit(int(code))

    def _quit(self, _: str) -> list[Outcome]:
        raise SystemExit(3)

    def _raise(self, text: str) -> list[Outcome]:
        raise ValueError(text)

    def _segfault(self, _: str) -> list[Outcome]:
        ctypes.string_at(0)
        return [Outcome(verdict=1)]

    def _eat(self, mebibytes: str) -> list[Outcome]:
        held = [b"x" * (1 << 20) for _ in range(int(mebibytes))]
        time.sleep(30)
        return [Outcome(verdict=1, detail=str(len(held)))]

    def _print(self, text: str) -> list[Outcome]:
        for number in (0, 1, 2):
            os.write(number, text.encode() * 100_000)
        print(text)
        return [Outcome(verdict=1)]

    def _close(self, _: str) -> list[Outcome]:
        os.closerange(0, 256)
        return [Outcome(verdict=1)]

    def _nothing(self, _: str) -> list[Outcome]:
        return []

    def _pid(self, _: str) -> list[Outcome]:
        return [Outcome(verdict=1, detail=str(os.getpid()))]

    def _hash(self, text: str) -> list[Outcome]:
        return [Outcome(verdict=1, detail=str(hash(text)))]


@dataclass(frozen=True)
class Broken(Obedient):
    """Cannot be loaded."""

    def prepare(self) -> None:
        message = "no such library"
        raise ImportError(message)


@dataclass(frozen=True)
class Homeless(Obedient):
    """Wants a sandbox where there is none."""

    def prepare(self) -> None:
        message = "no isolation here: nothing at all"
        raise NoSandboxError(message)


@dataclass(frozen=True)
class Sandboxed(Obedient):
    """The same, but it says that it runs what it is given."""

    hazard = Hazard.EVALUATES
