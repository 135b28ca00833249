"""What the paper reports about its certificates, and the sizes at which we look at them."""

from __future__ import annotations

from typing import NamedTuple

__all__ = [
    "B_MAX",
    "CAMPAIGN",
    "CHECKS",
    "C_MIN",
    "DELTA",
    "LARGE",
    "LONG",
    "ORDER",
    "REACH",
    "RHOS",
    "SHORT",
    "STRUCTURES",
    "TARGETS",
    "TEST_ITEMS",
    "Check",
    "Order",
    "Target",
]

RHOS = (0.10, 0.08, 0.06)
DELTA, C_MIN = 0.05, 0.25
B_MAX = 0.25
"""The paper fixes a bound on the call rate and does not print it; its reported rates lie near .18."""

SHORT = 512
"""The paper's calibration split."""
LONG = 16_384
"""Where the frozen and the sequential claim certify the paper's operating point more often than not."""
LARGE = 262_144
"""Where the paper's own certificate does."""
REACH = (2048, 4096, 8192, 32_768, 65_536, 131_072, 196_608)
"""Further sizes, to draw how certification sets in."""
TEST_ITEMS = 1319
"""Questions of the paper's test set."""


class Target(NamedTuple):
    """A line of the paper's table of certificates."""

    risk: float
    coverage: float
    satisfied: int
    """Stages of 60 that satisfied every constraint."""


class Check(NamedTuple):
    """A line of the paper's table of checks."""

    violations: int
    """Stages of 60."""
    coverage: float


class Order(NamedTuple):
    """A line of the paper's table of orders."""

    risk: float
    coverage: float
    calls: float
    violations: int
    """Of a number of stages that is not printed."""


TARGETS = {
    0.10: Target(0.0838, 0.5031, 60),
    0.08: Target(0.0697, 0.4125, 58),
    0.06: Target(0.0554, 0.3018, 54),
}

CHECKS = {
    "No shared-budget coupling": Check(0, 0.4193),
    "Shared budget": Check(1, 0.4125),
    "Shared budget + permutation": Check(2, 0.4084),
    "Correlated verifiers": Check(3, 0.3897),
}

ORDER = {
    "canonical": Order(0.0697, 0.4125, 0.1816, 0),
    "permutation 1": Order(0.0712, 0.4089, 0.1789, 1),
    "permutation 2": Order(0.0688, 0.4157, 0.1841, 0),
    "permutation 3": Order(0.0721, 0.4054, 0.1764, 1),
}

STRUCTURES = {
    "symmetric": (0.0679, 0.4146),
    "fp-heavy": (0.0738, 0.3989),
    "fn-heavy": (0.0654, 0.4217),
    "confidence-dependent": (0.0756, 0.3862),
    "correlated": (0.0791, 0.3728),
}
"""Selected risk and coverage of the certified learner under each structure of verifier noise."""

CAMPAIGN = 57
"""Stages of 60 that satisfied every constraint, over all structures of verifier noise."""
