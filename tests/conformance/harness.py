"""What a law is, how its false certificates are counted, and when a rate convicts."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vapo.stats import binomial_rate

DELTA = 0.05
CHUNK = 2_000
"""Replications simulated at once; the reduced size is the first chunk of the full one."""

FULL, REDUCED = 20_000, 2_000
LEVEL = 0.999
_SEED = 20_260_731

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Run = Callable[[np.random.Generator, int], Flags]


@dataclass(frozen=True, slots=True)
class Law:
    """One way for records and labels to come about, with a claim that is made about them."""

    name: str
    claim: str
    run: Run
    """Simulates some replications and flags those that ended in a false certificate."""
    delta: float = DELTA
    note: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How often a claim was false under a law."""

    law: Law
    replications: int
    false: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """Share of replications with a false certificate."""
        return self.false / self.replications

    @property
    def convicted(self) -> bool:
        """Whether chance cannot explain the excess over delta."""
        return self.low > self.law.delta

    def __str__(self) -> str:
        return (
            f"{self.law.claim}, {self.law.name}: {self.false} false in {self.replications} "
            f"({self.rate:.4f}, interval {self.low:.4f} to {self.high:.4f}), delta {self.law.delta:g}"
        )


def replications() -> int:
    """How many replications this run makes of each law."""
    return FULL if os.environ.get("VAPO_CONFORMANCE", "") == "full" else REDUCED


def measure(law: Law, count: int) -> Outcome:
    """Simulate a law in chunks, each with a seed of its own, and count."""
    name = zlib.crc32(f"{law.claim}/{law.name}".encode())
    false = 0
    for chunk, first in enumerate(range(0, count, CHUNK)):
        rng = np.random.default_rng([_SEED, name, chunk])
        size = min(CHUNK, count - first)
        flags = law.run(rng, size)
        assert flags.shape == (size,), flags.shape
        false += int(np.count_nonzero(flags))
    found = binomial_rate(false, count, level=LEVEL)
    return Outcome(law, count, false, found.low, found.high)
