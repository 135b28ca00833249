"""What the three claims say of many stages at once: the package's own tests, without the limits that nobody reads.

`vapo.certification.claims.evaluate` inverts every limit of every candidate, a twentieth of a second a stage. Whether
a candidate is feasible and which one is selected needs less. That both agree is checked by a test and, in every run of
the study, on each of the stages that `evaluate` decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from vapo.certification.bounds import (
    hoeffding_radius,
    log_bet,
    log_sequential_evidence,
    mean_lower,
    mean_upper,
    planned_bet,
    planned_mean_bet,
    poisson_binomial_rejects,
)
from vapo.certification.evidence import PLANNED_SHARE, binary_kl
from vapo.certification.tables import Requirements

__all__ = ["Counts", "Decided", "Plan", "decide_stages"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_ROUNDING = 1e-9


class Counts(NamedTuple):
    """Counts of many stages: stages by candidates."""

    records: int
    """Records of each stage."""
    admitted: Ints
    """Admitted records."""
    harmful: Ints
    """Harmful ones among them."""
    appealed: Ints
    """Secondary calls."""


class Plan(NamedTuple):
    """Rates of every candidate that the design split led to expect."""

    coverage: Floats
    """Share of records admitted."""
    calls: Floats
    """Secondary calls a record."""


class Decided(NamedTuple):
    """One claim about many stages."""

    feasible: Flags
    """Stages by candidates: whether all three requirements are met."""
    selected: Ints
    """By stage: the candidate; -1 where the certificate is refused."""


def decide_stages(
    counts: Counts, requirements: Requirements, chains: Sequence[Sequence[int]], plan: Plan
) -> dict[str, Decided]:
    """Feasibility and selection under each of the three claims.

    Args:
        counts: What happened.
        requirements: Tolerances and failure probability.
        chains: The family's chains.
        plan: What bets are sized by.

    Example:
        >>> rows = Counts(2000, np.array([[600, 900]]), np.array([[12, 24]]), np.array([[0, 0]]))
        >>> plan = Plan(np.array([0.3, 0.45]), np.zeros(2))
        >>> found = decide_stages(rows, Requirements(0.08, 0.25, 0.2, 0.05), [[0, 1]], plan)
        >>> {name: decided.selected.tolist() for name, decided in found.items()}
        {'hoeffding': [-1], 'sequential': [1], 'frozen': [1]}
    """
    return {
        "hoeffding": _hoeffding(counts, requirements),
        "sequential": _sequential(counts, requirements, plan),
        "frozen": _frozen(counts, requirements, chains),
    }


def _select(feasible: Flags, coverage: Floats, calls: Floats) -> Ints:
    """The feasible candidate with the largest coverage, then the fewest calls, then the lowest index."""
    best = np.where(feasible, coverage, -np.inf)
    tied = feasible & (best == best.max(axis=1, keepdims=True))
    fewest = np.where(tied, calls, np.inf)
    chosen = np.argmax(tied & (fewest == fewest.min(axis=1, keepdims=True)), axis=1)
    return np.where(feasible.any(axis=1), chosen, -1)


def _hoeffding(counts: Counts, asked: Requirements) -> Decided:
    n, k, h, a = counts
    radius = hoeffding_radius(n, k.shape[1], asked.delta)
    lower, upper = k / n - radius, a / n + radius
    feasible = (
        ((h - asked.rho * k) / n + radius <= 0) & (asked.c_min - lower <= 0) & (upper - asked.b_max <= 0)
    )
    return Decided(feasible, _select(feasible, lower, upper))


def _frozen(counts: Counts, asked: Requirements, chains: Sequence[Sequence[int]]) -> Decided:
    n, k, h, a = counts
    alpha = asked.delta / max(len(chains), 1)
    needed = -math.log(alpha) / -math.log1p(-asked.rho)
    tested = (k / n >= asked.c_min) & (a / n <= asked.b_max) & (k > 0) & (k >= needed)
    passed = np.asarray(poisson_binomial_rejects(k, h, asked.rho, alpha))
    feasible = np.zeros(k.shape, np.bool_)
    for chain in chains:
        going = np.ones(len(k), np.bool_)
        for candidate in chain:
            here = tested[:, candidate]
            feasible[:, candidate] = going & here & passed[:, candidate]
            going &= ~here | passed[:, candidate]
    return Decided(feasible, _select(feasible, k / n, a / n))


def _sequential(counts: Counts, asked: Requirements, plan: Plan) -> Decided:
    n, k, h, a = counts
    risk, coverage, calls = (
        asked.delta * share * asked.candidate_weights(k.shape[1]) for share in asked.split
    )
    bet = np.asarray(planned_bet(n * plan.coverage, asked.rho, -np.log(PLANNED_SHARE * risk)))
    feasible = _enough_evidence(k, h, asked.rho, bet, -np.log(risk))
    miss = np.asarray(planned_mean_bet(1.0 - plan.coverage, n, -np.log(PLANNED_SHARE * coverage)))
    lower = _by_count(feasible, k, lambda found, g: mean_lower(found, n, coverage[g], miss[g]))
    feasible &= asked.c_min - lower <= 0
    hit = np.asarray(planned_mean_bet(plan.calls, n, -np.log(PLANNED_SHARE * calls)))
    upper = _by_count(feasible, a, lambda found, g: mean_upper(found, n, calls[g], hit[g]))
    feasible &= upper - asked.b_max <= 0
    return Decided(feasible, _select(feasible, lower, upper))


def _enough_evidence(k: Ints, h: Ints, rho: float, bet: Floats, level: Floats) -> Flags:
    """Where the mixture reaches the level; integrated only where its best and its planned bet leave that open."""
    rate = np.divide(h, k, out=np.ones(k.shape), where=k > 0)
    most = np.where(rate < rho, k * np.asarray(binary_kl(np.minimum(rate, rho), rho)), 0.0)
    least = math.log(PLANNED_SHARE) + np.asarray(log_bet(k, h, rho, bet))
    enough: Flags = least >= level + _ROUNDING
    places = np.nonzero((most >= level - _ROUNDING) & ~enough)
    if places[0].size:
        found = log_sequential_evidence(k[places], h[places], rho, bet[places[1]])
        enough[places] = np.asarray(found) >= level[places[1]]
    return enough


def _by_count(wanted: Flags, counts: Ints, limit: Callable[[Ints, Ints], npt.ArrayLike]) -> Floats:
    """A limit that depends on candidate and count, worked out once for each that is wanted; 0 elsewhere."""
    found = np.zeros(counts.shape)
    places = np.nonzero(wanted)
    if places[0].size:
        pairs, inverse = np.unique(np.stack([counts[places], places[1]]), axis=1, return_inverse=True)
        found[places] = np.asarray(limit(pairs[0], pairs[1]))[inverse]
    return found
