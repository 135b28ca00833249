"""Laws of harm that unfold record by record, some of them against the evidence gathered so far.

They hold the running average of conditional excess harm at zero or above whenever a certificate counts as
false. The same walks are read by the Hoeffding claim at the declared end and by the sequential one at every
moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.conformance.harness import DELTA, Flags, Floats, Ints, Law
from tests.conformance.lookup import SPLIT, hoeffding_most_harm, sequential_most_harm

_ROUNDING = 1e-7


@dataclass(slots=True)
class State:
    """Where all replications stand before the next record."""

    n: int
    rho: float
    coverage: float
    most: Ints
    """By admitted count: the most harm that is certified."""
    t: int
    k: Ints
    h: Ints
    debt: Floats
    """Sum of conditional excess harm so far."""
    left: Ints
    """Secondary calls left in the window, where the law has windows."""

    @property
    def room(self) -> Ints:
        """Harm that could still happen without losing the certificate; negative before there is one."""
        return self.most[self.k] - self.h


Step = Callable[[State, np.random.Generator], tuple[Any, Any]]
"""Gives the probability of admission and the probability of harm of what is admitted."""


def walk(
    rng: np.random.Generator,
    reps: int,
    step: Step,
    *,
    n: int,
    rho: float,
    coverage: float,
    most: Ints,
    always: bool,
) -> Flags:
    """Flag the replications that were certified while the average was not below zero."""
    zero = np.zeros(reps, np.int64)
    state = State(n, rho, coverage, most, 0, zero, zero, np.zeros(reps), zero)
    false = np.zeros(reps, np.bool_)
    for t in range(n):
        state.t = t
        admits, harm = step(state, rng)
        admitted = rng.random(reps) < admits
        harmful = admitted & (rng.random(reps) < harm)
        state.k = state.k + admitted
        state.h = state.h + harmful
        state.debt = state.debt + admits * (harm - rho)
        if always or t == n - 1:
            false |= (state.room >= 0) & (state.debt >= -_ROUNDING)
    return false


def iid(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    return state.coverage, state.rho


def front_loaded(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Five times the harm on the first fifth, none after (or as much as probabilities allow)."""
    times = min(5.0, 1.0 / state.rho)
    return state.coverage, times * state.rho * (state.t < state.n / times)


def back_loaded(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    times = min(5.0, 1.0 / state.rho)
    return state.coverage, times * state.rho * (state.t >= state.n * (1.0 - 1.0 / times))


def ramp_down(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    return state.coverage, 2.0 * state.rho * (1.0 - (state.t + 0.5) / state.n)


def alternating(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Risk differs from record to record: twice the limit, then none."""
    return state.coverage, 2.0 * state.rho * (state.t % 2 == 0)


def freezer(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """The law admits nothing more as soon as there is a certificate."""
    return np.where(state.room >= 0, 0.0, state.coverage), state.rho


def banker(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Does harm where evidence is far away and saves it where evidence is near."""
    room = state.room
    harm = np.where(
        room < -4, 2.0 * state.rho, np.where(state.debt >= state.coverage * state.rho, 0.0, state.rho)
    )
    return np.where(room >= 0, 0.0, state.coverage), np.minimum(harm, 1.0)


def rationer(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Admits everything while evidence is far and hardly anything while it is near, so the law chooses k."""
    room = state.room
    return np.where(room >= 0, 0.0, np.where(room < -2, 1.0, 0.3 * state.coverage)), state.rho


def sprinter(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Blocks of double harm, each followed by one without, and a stop at the first certificate."""
    harm = 2.0 * state.rho * (state.t // 25 % 2 == 0)
    return np.where(state.room >= 0, 0.0, state.coverage), harm


def rationed_appeals(state: State, rng: np.random.Generator) -> tuple[Any, Any]:
    """Records of a window compete for calls: while any are left, appeals are safe and acceptance is not.

    What an appeal saves in harm, acceptance adds, so that the conditional excess is zero with and without
    calls left. Whether a record is admitted depends on how many before it in the window asked.
    """
    window, budget = 20, 4
    if state.t % window == 0:
        state.left = np.full(state.k.size, budget)
    asks = (rng.random(state.k.size) < 0.4) & (state.left > 0)
    # an appeal confirms half of the records it is asked about
    rate = np.where(asks, 0.5, state.coverage)
    state.left = state.left - asks
    open_ = state.left + asks > 0
    safe = 0.5 * state.rho
    risky = state.rho + 0.4 * 0.5 * (state.rho - safe) / (0.6 * state.coverage)
    harm = np.where(asks, safe, np.where(open_, risky, state.rho))
    return np.where(state.room >= 0, 0.0, rate), harm


STEPS: tuple[tuple[str, Step, bool], ...] = (
    ("iid", iid, False),
    ("drift, harm front-loaded", front_loaded, True),
    ("drift, harm back-loaded", back_loaded, True),
    ("drift, harm falling steadily", ramp_down, True),
    ("heterogeneous risk", alternating, True),
    ("opportunistic stopping", iid, True),
    ("adaptive: stops admitting when certified", freezer, True),
    ("adaptive: does harm while evidence is far", banker, True),
    ("adaptive: chooses how many are admitted", rationer, True),
    ("adaptive: bursts, stops when certified", sprinter, True),
    ("shared budget, order coupled", rationed_appeals, True),
)


def _run(
    rng: np.random.Generator,
    reps: int,
    *,
    step: Step,
    claim: str,
    n: int,
    rho: float,
    coverage: float,
    always: bool,
) -> Flags:
    if claim == "hoeffding":
        most = hoeffding_most_harm(n, rho)
    else:
        most = sequential_most_harm(n, rho, DELTA * SPLIT[0], n * coverage)
    return walk(rng, reps, step, n=n, rho=rho, coverage=coverage, most=most, always=always)


def laws() -> list[Law]:
    """All walks, for both claims about running averages."""
    found = []
    for name, step, always in STEPS:
        wide = partial(_run, step=step, claim="sequential", n=2000, rho=0.08, coverage=0.5, always=always)
        found.append(Law(name, "sequential", wide))
        # a tolerance of one half has the largest variance, where the radius is least generous
        even = partial(_run, step=step, claim="hoeffding", n=400, rho=0.5, coverage=1.0, always=False)
        found.append(Law(name, "hoeffding", even))
    for claim, n, rho in (("sequential", 60, 0.08), ("hoeffding", 24, 0.5)):
        tiny = partial(_run, step=freezer, claim=claim, n=n, rho=rho, coverage=1.0, always=False)
        found.append(Law("tiny n", claim, tiny))
    return found
