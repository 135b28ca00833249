"""The monitor under laws of deployment that keep the certified harm, and under laws that break it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.conformance.harness import Flags, Floats, Law
from vapo.certification.monitor import Monitor, mirrored_bets

RHO = 0.08
DELTA = 0.05
BLOCK = 64


class Monitors:
    """Many monitors at once, in the linear domain, with the project's own bets."""

    def __init__(self, reps: int, delta: float = DELTA, pi_min: float = 1.0) -> None:
        bets = mirrored_bets(RHO, pi_min)
        self.stakes, self.shares = bets.stakes, np.exp(bets.log_weights)
        self.steady = np.tile(self.shares, (reps, 1))
        self.fresh = np.zeros_like(self.steady)
        self.checks = 0
        self.threshold = 2.0 / delta
        self.alarm = np.zeros(reps, np.bool_)

    def update(self, admitted: Flags, harmful: Flags, probability: float = 1.0) -> None:
        """One check of every monitor."""
        if self.checks % BLOCK == 0:
            start = self.checks // BLOCK + 1
            self.fresh += self.shares / (start * (start + 1.0))
        outcomes = np.stack([np.zeros_like(self.stakes), -RHO * self.stakes, (1 - RHO) * self.stakes])
        factors = 1.0 + outcomes / probability
        state = admitted.astype(np.intp) * (1 + harmful)
        # capital beyond every threshold is of no interest and must not overflow
        self.steady = np.minimum(self.steady * factors[state], 1e100)
        self.fresh = np.minimum(self.fresh * factors[state], 1e100)
        self.checks += 1
        starts = -(-self.checks // BLOCK)
        self.alarm |= self.steady.sum(axis=1) >= self.threshold
        self.alarm |= self.fresh.sum(axis=1) + 1.0 / (starts + 1.0) >= self.threshold


Harm = Callable[[int, Monitors, Floats], "Floats | float"]
"""Gives the probability of harm of the next admitted record."""


def steady(t: int, monitors: Monitors, credit: Floats) -> Floats | float:
    return RHO


def drifting(t: int, monitors: Monitors, credit: Floats) -> Floats | float:
    """Within each block no harm first, then double: no average since any start is above rho."""
    return 0.0 if t % BLOCK < BLOCK // 2 else 2.0 * RHO


def improving(t: int, monitors: Monitors, credit: Floats) -> Floats | float:
    return RHO * (0.5 if t > 300 else 1.0)


def saving(t: int, monitors: Monitors, credit: Floats) -> Floats | float:
    """Saves harm while the evidence is low and spends what it saved in the same block while it is high."""
    high = monitors.steady.sum(axis=1) + monitors.fresh.sum(axis=1) > 2.0
    return np.where(high, RHO + np.minimum(credit, 0.5), 0.5 * RHO)


def false_alarm(rng: np.random.Generator, reps: int, *, law, n: int = 640, weighted: bool = False) -> Flags:  # type: ignore[no-untyped-def]
    """Whether the alarm has gone off although no average since any start was above what was certified."""
    low = 0.25
    monitors = Monitors(reps, pi_min=low if weighted else 1.0)
    credit = np.zeros(reps)
    for t in range(n):
        if t % BLOCK == 0:
            credit = np.zeros(reps)
        harm = law(t, monitors, credit)
        admitted = rng.random(reps) < 0.7
        credit = credit + admitted * (RHO - harm)
        harmful = admitted & (rng.random(reps) < harm)
        if weighted:
            # an unchecked record moves nothing, a checked one counts by the inverse of its chance
            chance = low if t % 2 else 1.0
            admitted = admitted & (rng.random(reps) < chance)
            monitors.update(admitted, harmful & admitted, chance)
        else:
            monitors.update(admitted, harmful)
    return monitors.alarm


def missed(rng: np.random.Generator, reps: int, *, harm: float, good: int, patience: int) -> Flags:
    """Whether the alarm is still silent some checks after harm has risen at the end of a good spell."""
    monitors = Monitors(reps)
    for t in range(good + patience):
        admitted = np.ones(reps, np.bool_)
        monitors.update(admitted, rng.random(reps) < (harm if t >= good else 0.5 * RHO))
    return ~monitors.alarm


def alone(admitted: Flags, harmful: Flags, probability: float, pi_min: float) -> tuple[bool, float, float]:
    """One real monitor on one sequence: alarm and both evidences."""
    monitor = Monitor(RHO, DELTA, pi_min=pi_min, block=BLOCK)
    for a, h in zip(admitted.tolist(), harmful.tolist(), strict=True):
        monitor.update(a, h, probability)
    return monitor.alarm, monitor.log_evidence, monitor.log_fresh_evidence


def laws() -> list[Law]:
    """Laws under which an alarm is false."""
    return [
        Law("harm on the limit", "monitor", partial(false_alarm, law=steady), DELTA),
        Law("drift within every block", "monitor", partial(false_alarm, law=drifting), DELTA),
        Law("harm falling", "monitor", partial(false_alarm, law=improving), DELTA),
        Law("adaptive: saves and spends harm", "monitor", partial(false_alarm, law=saving), DELTA),
        Law("unequal chances of a check", "monitor", partial(false_alarm, law=steady, weighted=True), DELTA),
    ]


def power() -> list[Law]:
    """Laws under which silence is a miss; delta is the share of misses that is tolerated."""
    cases = ((0.3, 0, 80, 0.05), (0.3, 640, 120, 0.05), (0.16, 0, 300, 0.1), (0.16, 640, 600, 0.1))
    return [
        Law(
            f"harm {harm:.2f} after {good} checks at .04, {patience} checks later",
            "monitor",
            partial(missed, harm=harm, good=good, patience=patience),
            tolerated,
        )
        for harm, good, patience, tolerated in cases
    ]
