"""The project's own tests as tables over counts, so that thousands of replications share each evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tests.conformance.harness import DELTA, Flags, Floats, Ints
from vapo.certification.bounds import (
    hoeffding_radius,
    log_evidence_at,
    log_sequential_evidence,
    mean_lower,
    mean_upper,
    planned_bet,
    planned_mean_bet,
    poisson_binomial_rejects,
)
from vapo.certification.claims import Requirements
from vapo.certification.evidence import PLANNED_SHARE

SPLIT = (0.90, 0.05, 0.05)


def most(high: Any, passes: Callable[[Ints], Any]) -> Ints:
    """Largest whole number from 0 to `high` that passes, if passing is lost once; -1 where none does."""
    top = np.asarray(high, dtype=np.int64)
    low, up = np.full(top.shape, -1), top + 1
    while np.any(up - low > 1):
        middle = (low + up) // 2
        open_ = up - low > 1
        good = np.asarray(passes(np.clip(middle, 0, top))) & open_
        low, up = np.where(good, middle, low), np.where(open_ & ~good, middle, up)
    return low


@lru_cache(maxsize=256)
def frozen_most_harm(n: int, rho: float, alpha: float) -> Ints:
    """By admitted count: the most harm at which the frozen test passes."""
    k = np.arange(n + 1)
    return most(k, lambda h: poisson_binomial_rejects(k, h, rho, alpha))


@lru_cache(maxsize=256)
def sequential_most_harm(n: int, rho: float, level: float, planned_admitted: float) -> Ints:
    """By admitted count: the most harm at which the evidence reaches one over `level`."""
    k = np.arange(n + 1)
    bet = planned_bet(planned_admitted, rho, -np.log(PLANNED_SHARE * level))
    top = np.ceil(rho * k).astype(np.int64)
    return most(
        top, lambda h: np.asarray(log_sequential_evidence(k, np.minimum(h, k), rho, bet)) >= -np.log(level)
    )


def hoeffding_most_harm(n: int, rho: float, delta: float = DELTA, size: int = 1) -> Ints:
    """By admitted count out of n records: the most harm at which the radius leaves room."""
    k = np.arange(n + 1)
    radius = hoeffding_radius(n, size, delta)
    return most(k, lambda h: ((h - rho * k) / n + radius <= 0) & (k / n >= radius))


@lru_cache(maxsize=64)
def sequential_least_admitted(n: int, c_min: float, level: float, planned: float) -> int:
    """The fewest admissions out of n whose coverage limit reaches c_min."""
    stake = planned_mean_bet(1.0 - planned, n, -np.log(PLANNED_SHARE * level))
    missed = most(np.array([n]), lambda m: np.asarray(mean_lower(n - m, n, level, stake)) >= c_min)
    return n - int(missed[0])


@lru_cache(maxsize=64)
def sequential_most_calls(n: int, b_max: float, level: float, planned: float) -> int:
    """The most calls out of n whose limit stays within b_max."""
    stake = planned_mean_bet(planned, n, -np.log(PLANNED_SHARE * level))
    return int(most(np.array([n]), lambda a: np.asarray(mean_upper(a, n, level, stake)) <= b_max)[0])


@lru_cache(maxsize=64)
def always_most_hits(n: int, mean: float, level: float, planned: float) -> Ints:
    """By records so far, from 0 to n: the most hits at which the upper limit for the rate misses `mean`."""
    stake = float(planned_mean_bet(planned, n, -np.log(PLANNED_SHARE * level)))
    total = np.arange(n + 1, dtype=np.float64)

    def misses(hits: Ints) -> Flags:
        counts = np.minimum(hits, total)[:, None]
        args = np.ones((n + 1, 1)), counts, total, 1.0, np.full(n + 1, stake), mean
        return log_evidence_at(*args) >= -np.log(level)

    return most(np.ceil(mean * total).astype(np.int64), misses)


def hoeffding_feasible(n: int, k: Ints, h: Ints, a: Ints, asked: Requirements) -> Flags:
    """Feasibility of candidates (last axis) under one radius."""
    radius = hoeffding_radius(n, k.shape[-1], asked.delta)
    risk = (h - asked.rho * k) / n + radius <= 0
    return risk & (k / n - radius >= asked.c_min) & (a / n + radius <= asked.b_max)


def sequential_feasible(
    n: int, k: Ints, h: Ints, a: Ints, asked: Requirements, planned: Floats, planned_calls: float
) -> Flags:
    """Feasibility of candidates (last axis) under bets, each at its share of delta."""
    size = k.shape[-1]
    risk, coverage, calls = (asked.delta * share / size for share in asked.split)
    good = np.empty(k.shape, np.bool_)
    most_calls = sequential_most_calls(n, asked.b_max, calls, planned_calls) if asked.b_max < 1 else n
    for g in range(size):
        table = sequential_most_harm(n, asked.rho, risk, n * float(planned[g]))
        least = sequential_least_admitted(n, asked.c_min, coverage, float(planned[g])) if asked.c_min else 0
        good[..., g] = (h[..., g] <= table[k[..., g]]) & (k[..., g] >= least) & (a[..., g] <= most_calls)
    return good


def frozen_feasible(
    n: int, k: Ints, h: Ints, a: Ints, asked: Requirements, chains: Sequence[Sequence[int]]
) -> Flags:
    """Feasibility of candidates (last axis) when every chain is walked until its first failure."""
    table = frozen_most_harm(n, asked.rho, asked.delta / len(chains))
    possible = (table[k] >= 0) & (k / n >= asked.c_min) & (a / n <= asked.b_max)
    passed = possible & (h <= table[k])
    good = np.zeros(k.shape, np.bool_)
    for chain in chains:
        going = np.ones(k.shape[:-1], np.bool_)
        for g in chain:
            good[..., g] = going & passed[..., g]
            going &= ~(possible[..., g] & ~passed[..., g])
    return good
