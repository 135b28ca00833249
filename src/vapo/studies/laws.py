"""Sequences of records whose conditional means are known, so that certificates can be checked against truth.

A record is one of finitely many types: a score level, the sign of the primary verdict, whether that verdict is wrong,
and what the secondary would answer. Its level is drawn by a law of its place in the declared order; everything else by
its level and sign. Records are independent, yet what a policy does with them is not: all records of a window compete
for the same secondary calls. Given the history and the calls left before a record, the probabilities that it is
admitted, does harm and costs a call depend on its place and on whether calls are left, and on nothing else. Both cases
are sums over types, exact up to rounding, because every probability is a whole number of 65536ths (256ths for levels).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vapo.certification.tables import Requirements
from vapo.errors import InputError
from vapo.policy import Family, Policy

__all__ = [
    "BUDGET",
    "CYCLE",
    "LEVELS",
    "NOISES",
    "ORDERS",
    "REFERENCE",
    "UNIT",
    "WINDOW",
    "Means",
    "Rates",
    "SequenceLaw",
    "candidates",
    "edge_law",
    "law_of",
    "levels_of",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LEVELS = 16
"""Score levels; level l has the score l / 16."""
WINDOW = 64
"""Records that share one budget of secondary calls: the bits of one machine word."""
CYCLE = 256
"""Places after which the declared order repeats: four windows."""
BUDGET = 16
"""Calls a window where the budget is shared: a quarter of its records, what `b_max` 0.25 allows."""
UNIT = 65536
"""Denominator of every probability but that of a level."""

_ACCEPTED = (3, 4, 5, 6, 7, 8, 9, 10, 12, 13)
_SPAN = 3
REFERENCE = len(_ACCEPTED) + _ACCEPTED.index(5)
"""The candidate that stands at the paper's operating point: risk .0697 at coverage .4125."""

# Not printed by the paper: inferred from its operating point and its noise table. `validity_constants` varies them.
_FLOOR, _RISE, _BEND = 0.0645, 0.545, 2.1
_RIGHT, _WAVED, _WAVED_TOGETHER = 0.63, 0.146, 0.22
_POSITIVE = 0.70
_DOUBTFUL = slice(5, 13)
_TILT = 8

ORDERS = ("canonical", "permutation 1", "permutation 2", "permutation 3")
"""Declared orders of one cycle: doubtful records last, first, shuffled, and dealt out by turns."""

NOISES = ("symmetric", "fp-heavy", "fn-heavy", "confidence-dependent", "correlated")
"""Structures of verifier error."""

# Errors on positive and on negative verdicts, as multiples of the symmetric ones, and what a wrong record's chance of
# being waved through by the secondary is.
_STRUCTURES = {
    "symmetric": (1.0, 1.0, _WAVED),
    "fp-heavy": (1.30, 0.50, _WAVED),
    "fn-heavy": (0.60, 1.75, _WAVED),
    "confidence-dependent": (1.0, 1.0, _WAVED),
    "correlated": (1.0, 1.0, _WAVED_TOGETHER),
}


class Means(NamedTuple):
    """Conditional means of a record, by candidate, place in the cycle, and calls left (0: none, 1: some)."""

    harmful: Floats
    """Probability that it is admitted and does harm."""
    admitted: Floats
    """Probability that it is admitted."""
    appealed: Floats
    """Probability that it costs a call."""


class Rates(NamedTuple):
    """Long-run rates a record, by candidate: what the stage averages tend to."""

    harmful: Floats
    admitted: Floats
    appealed: Floats

    @property
    def risk(self) -> Floats:
        """Harm among admitted records."""
        return self.harmful / self.admitted


@dataclass(frozen=True, slots=True, eq=False)
class SequenceLaw:
    """How records come about; every number is the numerator of an exact probability."""

    levels: Ints
    """Places of the cycle by score levels: 256ths, each row adds up to 256."""
    positive: int
    """Chance that the primary says yes."""
    wrong: Ints
    """Sign (0: yes, 1: no) by level: chance that the primary's verdict is wrong."""
    confirm_right: int
    """Chance that the secondary agrees with a right verdict."""
    confirm_wrong: int
    """Chance that it agrees with a wrong one: the larger, the more the two err together."""

    def __post_init__(self) -> None:
        whole = (self.levels >= 0).all() and (self.levels.sum(axis=1) == CYCLE).all()
        chances = [self.positive, self.confirm_right, self.confirm_wrong, *self.wrong.ravel().tolist()]
        if self.levels.shape != (CYCLE, LEVELS) or not whole or not all(0 <= p <= UNIT for p in chances):
            expected = f"{CYCLE} places by {LEVELS} levels that add up to {CYCLE}, and chances up to {UNIT}"
            raise InputError(expected, "others", where="sequence law")

    @property
    def sign_shares(self) -> Floats:
        """Probability of either sign."""
        return np.array([self.positive, UNIT - self.positive]) / UNIT

    @property
    def confirmed(self) -> Floats:
        """Probability that an appealed record is confirmed, sign by level."""
        error = self.wrong / UNIT
        return np.asarray(((1 - error) * self.confirm_right + error * self.confirm_wrong) / UNIT)

    @property
    def harm_if_confirmed(self) -> Floats:
        """Probability that a confirmed record does harm, sign by level: what the frozen trace leaves open."""
        return np.asarray(self.wrong / UNIT * self.confirm_wrong / UNIT / self.confirmed)

    def means(self, family: Family) -> Means:
        """Conditional means given the place and whether calls are left."""
        share = self.levels / CYCLE
        sign = self.sign_shares
        error, confirmed = sign @ (self.wrong / UNIT), sign @ self.confirmed
        waved = sign @ (self.confirmed * self.harm_if_confirmed)
        out = np.zeros((3, len(family), CYCLE, 2))
        for g, policy in enumerate(family.policies):
            low, high, budget = levels_of(policy)
            accepted = np.arange(LEVELS) >= high
            asked = (np.arange(LEVELS) >= low) & ~accepted
            for left in (0, 1) if budget else (0,):
                out[0, g, :, left] = share @ (error * accepted + waved * asked * left)
                out[1, g, :, left] = share @ (accepted + confirmed * asked * left)
                out[2, g, :, left] = share @ (asked * float(left))
            if not budget:
                out[:, g, :, 1] = out[:, g, :, 0]
        return Means(*out)

    def rates(self, family: Family) -> Rates:
        """Long-run rates, from the exact law of the calls left before every place of a window."""
        means = self.means(family)
        limit = np.array([min(policy.budget, WINDOW) for policy in family.policies])
        some = (np.arange(WINDOW + 1) < limit[:, None])[:, None]
        asks = means.appealed[..., 1].reshape(len(family), -1, WINDOW)
        some_left = np.ones(asks.shape)
        spent = np.zeros((*asks.shape[:2], WINDOW + 1))
        spent[..., 0] = 1.0
        for place in range(WINDOW):
            some_left[..., place] = (spent * some).sum(axis=2)
            moving = spent * asks[..., place, None] * some
            spent = spent - moving
            spent[..., 1:] += moving[..., :-1]
        left = some_left.reshape(len(family), CYCLE)
        both = np.stack([1.0 - left, left], axis=2)
        return Rates(*((part * both).sum(axis=2).mean(axis=1) for part in means))


def levels_of(policy: Policy) -> tuple[int, int, int]:
    """The levels from which a policy appeals and accepts, and its budget.

    Example:
        >>> levels_of(Policy.plain(0.5, 0.75, budget=4))
        (8, 12, 4)
    """
    low, high = (int(np.ceil(threshold * LEVELS)) for threshold in (policy.pos.low, policy.pos.high))
    if policy.sign_specific:
        expected = "a policy with the same thresholds for both signs"
        raise InputError(expected, str(policy.as_dict()), where="sequence law")
    return low, high, policy.budget if low < high else 0


@lru_cache
def candidates(budget: int = BUDGET) -> Family:
    """Twenty candidates in two chains: ten thresholds, alone and with an appeal region of three levels below.

    Args:
        budget: Calls a window; `WINDOW` of them never run out.

    Example:
        >>> len(candidates()), [len(chain) for chain in candidates().chains]
        (20, [10, 10])
    """
    policies = [
        Policy.plain((LEVELS - x - span) / LEVELS, (LEVELS - x) / LEVELS, budget=budget if span else 0)
        for span in (0, _SPAN)
        for x in _ACCEPTED
    ]
    chains = [range(len(_ACCEPTED)), range(len(_ACCEPTED), 2 * len(_ACCEPTED))]
    return Family.of(policies, chains, rule="sixteenths of the score")


@lru_cache
def law_of(noise: str = "symmetric", order: str = "canonical") -> SequenceLaw:
    """The law at the paper's operating points.

    Args:
        noise: One of `NOISES`.
        order: One of `ORDERS`.

    Example:
        >>> rates = law_of().rates(candidates())
        >>> round(float(rates.risk[REFERENCE]), 4), round(float(rates.admitted[REFERENCE]), 4)
        (0.0697, 0.4125)
    """
    for name, value, known in (("noise", noise, NOISES), ("order", order, ORDERS)):
        if value not in known:
            expected = f"one of {', '.join(known)}"
            raise InputError(expected, repr(value), where=name)
    positive, negative, waved = _STRUCTURES[noise]
    # distance of a level's middle from the highest score
    distance = (LEVELS - np.arange(LEVELS) - 0.5) / LEVELS
    curve = _FLOOR + _RISE * distance**_BEND
    if noise == "confidence-dependent":
        # Fewer errors where the score is high and more where it is low.
        curve = 0.05 + 0.60 * distance**1.7
    wrong = np.minimum(np.stack([positive * curve, negative * curve]), 1.0)
    return SequenceLaw(
        levels=_level_shares(order),
        positive=round(_POSITIVE * UNIT),
        wrong=np.rint(wrong * UNIT).astype(np.int64),
        confirm_right=round(_RIGHT * UNIT),
        confirm_wrong=round(waved * UNIT),
    )


def _level_shares(order: str) -> Ints:
    """Doubtful levels gain what the others lose, from none to half again of their share, along the order."""
    places = np.arange(CYCLE)
    if order == "permutation 1":
        places = places[::-1]
    elif order == "permutation 2":
        places = np.random.default_rng(20_260_731).permutation(CYCLE)
    elif order == "permutation 3":
        places = places.reshape(WINDOW, -1).T.ravel()
    tilt = np.rint(_TILT * (2.0 * places / (CYCLE - 1) - 1.0)).astype(np.int64)
    shares = np.full((CYCLE, LEVELS), CYCLE // LEVELS) - tilt[:, None]
    shares[:, _DOUBTFUL] += 2 * tilt[:, None]
    return shares


@lru_cache
def edge_law(
    rho: float, noise: str = "symmetric", order: str = "canonical", budget: int = BUDGET
) -> SequenceLaw:
    """The same law with errors scaled until no eligible candidate is safe: each certificate for risk is false.

    The safest candidate that reaches coverage .25 has a long-run risk a hair above `rho`, all others more.

    Args:
        rho: Tolerated harm.
        noise: One of `NOISES`.
        order: One of `ORDERS`.
        budget: Calls a window.

    Example:
        >>> law, family = edge_law(0.08), candidates()
        >>> rates = law.rates(family)
        >>> bool(rates.risk[rates.admitted >= 0.25].min() > 0.08)
        True
    """
    base, family = law_of(noise, order), candidates(budget)

    def scaled(factor: float) -> SequenceLaw:
        wrong = np.minimum(np.ceil(base.wrong * factor), UNIT).astype(np.int64)
        return replace(base, wrong=wrong)

    def safest(law: SequenceLaw) -> float:
        rates = law.rates(family)
        return float(rates.risk[rates.admitted >= Requirements(rho, 0.25, 0.25, 0.05).c_min].min())

    low, high = 0.0, 4.0
    # Chances are whole 65536ths: what is finer than that scales nothing.
    for _ in range(24):
        middle = (low + high) / 2.0
        low, high = (low, middle) if safest(scaled(middle)) > rho else (middle, high)
    return scaled(high)
