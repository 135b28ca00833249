"""Bounds that look right and are not, each under a law that shows it; the harness has to convict them all."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from tests.conformance.frozen_laws import own_limit
from tests.conformance.groups import climbing_groups
from tests.conformance.harness import DELTA, Flags, Ints, Law
from tests.conformance.lookup import (
    SPLIT,
    always_most_hits,
    frozen_most_harm,
    most,
    sequential_most_harm,
)
from tests.conformance.walks import freezer, walk
from vapo.certification.bounds import log_bet, log_sequential_evidence, planned_bet
from vapo.certification.evidence import PLANNED_SHARE

RHO = 0.08


def _drifting(rng: np.random.Generator, reps: int, n: int) -> Flags:
    """Harm .40 on the first fifth of the records, then none: on average exactly rho."""
    return (rng.random((n, reps)) < 0.4) & (np.arange(n) < n / 5)[:, None]


def plug_in_variance(rng: np.random.Generator, reps: int, *, n: int = 5000) -> Flags:
    """Bets sized by the variance seen so far, as in risk-controlling prediction sets."""
    harm = _drifting(rng, reps, n)
    capital = np.zeros(reps)
    total, squares = np.zeros(reps), np.zeros(reps)
    variance = np.full(reps, 0.25)
    best = np.zeros(reps)
    for t in range(n):
        stake = np.minimum(1.0, np.sqrt(2 * -np.log(DELTA) / (n * variance)))
        capital += np.log1p(-stake * (harm[t] - RHO))
        best = np.maximum(best, capital)
        total += harm[t]
        squares += (harm[t] - (0.5 + total) / (t + 2)) ** 2
        variance = (0.25 + squares) / (t + 2)
    return best >= -np.log(DELTA)


def plug_in_window(rng: np.random.Generator, reps: int, *, n: int = 1000, window: int = 200) -> Flags:
    """The best bet for the last 200 records, placed on the next one."""
    harm = _drifting(rng, reps, n)
    running = np.vstack([np.zeros(reps), harm.cumsum(axis=0)])
    capital = np.zeros(reps)
    best = np.zeros(reps)
    for t in range(n):
        first = max(0, t - window)
        rate = (running[t] - running[first] + 1) / (t - first + 2)
        stake = np.clip((RHO - rate) / (RHO * (1 - RHO)), 0.0, 0.9 / (1 - RHO))
        capital += np.log1p(-stake * (harm[t] - RHO))
        best = np.maximum(best, capital)
    return best >= -np.log(DELTA)


def constant_mixture(rng: np.random.Generator, reps: int, *, n: int = 1000) -> Flags:
    """Right, for comparison: constant bets under the same drift, read at every moment."""
    harm = _drifting(rng, reps, n)
    h = harm.cumsum(axis=0)
    table = sequential_most_harm(n, RHO, DELTA, float(n))
    return (h <= table[np.arange(1, n + 1)][:, None]).any(axis=0)


def records_for_groups(rng: np.random.Generator, reps: int, *, groups: int = 200, size: int = 8) -> Flags:
    """Eight records of one mind counted as eight."""
    bad = rng.binomial(groups, RHO, size=reps)
    return np.asarray(size * bad <= frozen_most_harm(size * groups, RHO, DELTA)[-1])


def random_estimand_chain(
    rng: np.random.Generator, reps: int, *, members: int, level: float, n: int = 3000
) -> Flags:
    """The law keeps a member on the boundary until it is certified, or makes it safe and goes on to the next.

    So each tested member is a fresh attempt, but a fixed sequence at `delta` pays for one attempt only.
    """
    false = np.zeros(reps, np.bool_)
    table = _planned_bet_most_harm(n, level)
    for _ in range(members):
        k = np.arange(1, n + 1)
        going = np.flatnonzero(~false)
        h = np.zeros(going.size, np.int64)
        crossed = np.zeros(going.size, np.bool_)
        for t in k:
            h += rng.random(going.size) < RHO
            crossed |= h <= table[t]
        false[going] = crossed
    return false


def exact_on_a_chosen_count(rng: np.random.Generator, reps: int, *, n: int = 10_000) -> Flags:
    """The exact binomial test where the law stops admitting as soon as it passes."""
    return walk(
        rng, reps, freezer, n=n, rho=RHO, coverage=1.0, most=frozen_most_harm(n, RHO, DELTA), always=False
    )


@lru_cache
def _planned_bet_most_harm(n: int, level: float) -> Ints:
    """By admitted count: the most harm at which the planned bet alone reaches the level."""
    k = np.arange(n + 1)
    bet = float(planned_bet(n / 4, RHO, -np.log(level)))
    top = np.ceil(RHO * k).astype(np.int64)
    return most(top, lambda h: np.asarray(log_bet(k, np.minimum(h, k), RHO, bet)) >= -np.log(level))


@lru_cache
def _realised_most_harm(n: int) -> Ints:
    k = np.arange(n + 1)
    bet = np.asarray(planned_bet(k, RHO, -np.log(PLANNED_SHARE * DELTA)))
    top = np.ceil(RHO * k).astype(np.int64)
    return most(
        top, lambda h: np.asarray(log_sequential_evidence(k, np.minimum(h, k), RHO, bet)) >= -np.log(DELTA)
    )


def bet_from_the_realised_count(rng: np.random.Generator, reps: int, *, n: int = 4000) -> Flags:
    """The planned bet computed from the admitted count that the law chose."""
    return walk(rng, reps, freezer, n=n, rho=RHO, coverage=1.0, most=_realised_most_harm(n), always=False)


def peeking(rng: np.random.Generator, reps: int, *, looks: int) -> Flags:
    """A refused frozen buffer is extended and tested again."""
    step = 200
    table = frozen_most_harm(step * looks, RHO, DELTA)
    h = rng.binomial(step, RHO, size=(reps, looks)).cumsum(axis=1)
    return (h <= table[step * np.arange(1, looks + 1)]).any(axis=1)


def limits_missed(
    rng: np.random.Generator, reps: int, *, split: tuple[float, float, float], n: int = 2000
) -> Flags:
    """Whether a stated limit for harm, coverage or calls is missed when the stage stops at its worst."""
    admits, calls = 0.4, 0.2
    risk, coverage, budget = (DELTA * share for share in split)
    harm_table = sequential_most_harm(n, RHO, risk, n * admits)
    miss_table = always_most_hits(n, 1.0 - admits, coverage, 1.0 - admits)
    call_table = always_most_hits(n, calls, budget, calls)
    k, h, a = (np.zeros(reps, np.int64) for _ in range(3))
    false = np.zeros(reps, np.bool_)
    for t in range(1, n + 1):
        admitted = rng.random(reps) < admits
        k += admitted
        h += admitted & (rng.random(reps) < RHO)
        # calls go to records that are not admitted outright; here they are independent of harm
        a += rng.random(reps) < calls
        false |= (h <= harm_table[k]) | (t - k <= miss_table[t]) | (a <= call_table[t])
    return false


def laws() -> list[Law]:
    """Every wrong bound under a law that shows it."""
    chain = [
        Law(
            f"fixed sequence on the random estimand, chain of {members}",
            "sequential",
            partial(random_estimand_chain, members=members, level=DELTA),
        )
        for members in (2, 5, 10, 20)
    ]
    looks = [
        Law(f"a frozen buffer looked at {many} times", "frozen", partial(peeking, looks=many))
        for many in (10, 50)
    ]
    thrice = partial(limits_missed, split=(1.0, 1.0, 1.0))
    return [
        Law("plug-in bets by running variance, harm front-loaded", "sequential", plug_in_variance),
        Law("plug-in bets on a window of 200, harm front-loaded", "sequential", plug_in_window),
        Law("records of groups of 8 counted as independent", "frozen", records_for_groups),
        *chain,
        Law("exact binomial test on a count that the law chooses", "sequential", exact_on_a_chosen_count),
        Law("planned bet from the realised count", "sequential", bet_from_the_realised_count),
        Law(
            "largest group of the stage in place of the declared cap",
            "sequential",
            partial(climbing_groups, realised=True, phase=600, sizes=(1, 2, 4, 8, 16)),
        ),
        *looks,
        Law("delta used three times for harm, coverage and calls", "sequential", thrice),
        Law("own limit of the selected member", "frozen", own_limit),
    ]


def right_counterparts() -> list[Law]:
    """The same laws under the bound that is used instead."""
    chain = [
        Law(
            f"chain of {members} against the random estimand",
            "sequential",
            partial(random_estimand_chain, members=members, level=DELTA / members),
        )
        for members in (2, 20)
    ]
    return [
        Law("harm .40 on a fifth, constant bets at delta", "sequential", constant_mixture),
        *chain,
        Law("all stated limits at every moment", "sequential", partial(limits_missed, split=SPLIT)),
    ]
