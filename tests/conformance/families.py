"""Laws about whole families, where counts of a stage are drawn at once; read by all three claims."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from tests.conformance.harness import DELTA, Flags, Floats, Ints, Law
from tests.conformance.lookup import frozen_feasible, hoeffding_feasible, sequential_feasible
from vapo.certification.claims import Requirements


@dataclass(frozen=True, slots=True)
class Stages:
    """Counts of many stages: replications by candidates."""

    n: int
    k: Ints
    h: Ints
    a: Ints
    wrong: Flags
    """Which candidates truly break a requirement (at the boundary counts as breaking)."""
    planned: Floats
    chains: tuple[tuple[int, ...], ...]
    planned_calls: float = 0.0


class Draw(Protocol):
    """Draws stages."""

    def __call__(self, rng: np.random.Generator, reps: int, rho: float) -> Stages: ...


def feasible(claim: str, stages: Stages, asked: Requirements) -> Flags:
    """Feasibility under one claim, candidates along the last axis."""
    counts = stages.n, stages.k, stages.h, stages.a, asked
    if claim == "hoeffding":
        return hoeffding_feasible(*counts)
    if claim == "sequential":
        return sequential_feasible(*counts, stages.planned, stages.planned_calls)
    return frozen_feasible(*counts, stages.chains)


def _nested(rng: np.random.Generator, n: int, shares: Floats, harms: Floats, reps: int) -> tuple[Ints, Ints]:
    """Counts of nested candidates: shells with their own shares of the records and their own harm."""
    rest = 1.0 - shares.sum()
    shells = rng.multinomial(n, [*shares, rest], size=reps)[:, :-1]
    harmful = rng.binomial(shells, harms)
    return shells.cumsum(axis=1), harmful.cumsum(axis=1)


def _up_to_the_boundary(shares: Floats, safe: int, times: float, rho: float) -> Floats:
    """Harm of each shell: the first ones are safe, the next makes up for them, the rest have exactly rho."""
    harms = np.full(shares.size, rho)
    harms[:safe] = times * rho
    harms[safe] += (1.0 - times) * rho * shares[:safe].sum() / shares[safe]
    return harms


def correlated_verifiers(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1200) -> Stages:
    """Five verifiers, one candidate and one chain each; most of the time they err together."""
    size, shared, bad = 5, 0.7, 0.25
    good_pass = 0.6
    # the chance that lets a wrong record pass so that harm among the admitted is exactly rho
    bad_pass = rho * (1 - bad) * good_pass / ((1 - rho) * bad)
    patterns = (np.arange(2**size)[:, None] >> np.arange(size)) & 1

    def law(rate: float) -> Floats:
        alone = np.where(patterns, rate, 1 - rate).prod(axis=1) * (1 - shared)
        alone[-1] += shared * rate
        alone[0] += shared * (1 - rate)
        return alone

    cells = rng.multinomial(n, np.concatenate([(1 - bad) * law(good_pass), bad * law(bad_pass)]), size=reps)
    fine, harmful = cells[:, : 2**size] @ patterns, cells[:, 2**size :] @ patterns
    k = fine + harmful
    coverage = (1 - bad) * good_pass + bad * bad_pass
    chains = tuple((g,) for g in range(size))
    return Stages(n, k, harmful, 0 * k, np.ones(k.shape, np.bool_), np.full(size, coverage), chains)


def family_of_200(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1500) -> Stages:
    """Nested thresholds in ten blocks of twenty: each block begins safely and ends on the boundary."""
    columns, harms = [], []
    planned: list[float] = []
    wrong: list[bool] = []
    chains = []
    for block in range(10):
        shares = np.array([0.25 + 0.02 * block, *([0.005] * 9), 0.2, *([0.01] * 9)])
        k, h = _nested(rng, n, shares, _up_to_the_boundary(shares, 10, 0.2, rho), reps)
        columns.append(k)
        harms.append(h)
        planned += [0.3] * 10 + [0.5] * 10
        wrong += [False] * 10 + [True] * 10
        chains.append(tuple(range(20 * block, 20 * block + 20)))
    k, h = np.concatenate(columns, axis=1), np.concatenate(harms, axis=1)
    flags = np.broadcast_to(np.array(wrong), k.shape)
    return Stages(n, k, h, 0 * k, flags, np.array(planned), tuple(chains))


def safe_then_boundary(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1000) -> Stages:
    """One chain: a member that nearly always passes, then twenty nested ones exactly on the boundary."""
    shares = np.array([0.3, 0.2, *([0.02] * 19)])
    k, h = _nested(rng, n, shares, _up_to_the_boundary(shares, 1, 0.1, rho), reps)
    wrong = np.broadcast_to(np.arange(21) > 0, k.shape)
    planned = np.array([0.3, *([0.7] * 20)])
    return Stages(n, k, h, 0 * k, wrong, planned, (tuple(range(21)),))


def each_breaks_another(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1000) -> Stages:
    """Three candidates that break one requirement each: harm, coverage, calls."""
    k = rng.binomial(n, [0.7, 0.4, 0.7], size=(reps, 3))
    h = rng.binomial(k, [rho, 0.1 * rho, 0.1 * rho])
    a = rng.binomial(n, [0.05, 0.05, 0.2], size=(reps, 3))
    wrong = np.ones(k.shape, np.bool_)
    return Stages(n, k, h, a, wrong, np.array([0.7, 0.5, 0.7]), ((0,), (1,), (2,)), 0.1)


def coverage_on_the_boundary(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1000) -> Stages:
    k = rng.binomial(n, 0.4, size=(reps, 1))
    return Stages(
        n, k, rng.binomial(k, 0.1 * rho), 0 * k, np.ones(k.shape, np.bool_), np.array([0.5]), ((0,),), 0.1
    )


def calls_on_the_boundary(rng: np.random.Generator, reps: int, rho: float, *, n: int = 1000) -> Stages:
    k = rng.binomial(n, 0.7, size=(reps, 1))
    a = rng.binomial(n, 0.2, size=(reps, 1))
    return Stages(
        n, k, rng.binomial(k, 0.1 * rho), a, np.ones(k.shape, np.bool_), np.array([0.7]), ((0,),), 0.1
    )


def _run(rng: np.random.Generator, reps: int, *, draw: Draw, claim: str, asked: Requirements) -> Flags:
    stages = draw(rng, reps, asked.rho)
    return (feasible(claim, stages, asked) & stages.wrong).any(axis=1)


_LOOSE = (0.0, 1.0)
_TIGHT = (0.4, 0.2)
DRAWS: tuple[tuple[str, Draw, tuple[float, float], tuple[str, ...]], ...] = (
    ("correlated verifiers", correlated_verifiers, _LOOSE, ("hoeffding", "sequential", "frozen")),
    ("family of 200, nested thresholds", family_of_200, _LOOSE, ("hoeffding", "sequential", "frozen")),
    (
        "one chain, safe start, then the boundary",
        safe_then_boundary,
        _LOOSE,
        ("hoeffding", "sequential", "frozen"),
    ),
    ("each candidate breaks another requirement", each_breaks_another, _TIGHT, ("hoeffding", "sequential")),
    ("coverage on the boundary", coverage_on_the_boundary, _TIGHT, ("hoeffding", "sequential")),
    ("calls on the boundary", calls_on_the_boundary, _TIGHT, ("hoeffding", "sequential")),
)


def laws() -> list[Law]:
    """All families for all claims whose assumptions they meet."""
    found = []
    for name, draw, (c_min, b_max), claims in DRAWS:
        for claim in claims:
            rho = 0.3 if claim == "hoeffding" else 0.08
            asked = Requirements(rho, c_min, b_max, DELTA, claim)
            found.append(Law(name, claim, partial(_run, draw=draw, claim=claim, asked=asked)))
    return found
