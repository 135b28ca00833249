"""Groups of one mind under the claims about running averages.

Where a cap is declared, evidence is read at group ends.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from tests.conformance.harness import DELTA, Flags, Floats, Law
from tests.conformance.lookup import SPLIT, hoeffding_most_harm
from vapo.certification.bounds import log_evidence_at, planned_bet
from vapo.certification.evidence import MIXED_SHARE, PLANNED_SHARE

RHO = 0.08
CAP = 8
LEVEL = DELTA * SPLIT[0]


@lru_cache
def bets(groups: int) -> tuple[Floats, Floats]:
    """The planned bet and a quadrature of the even mixture, as one finite mixture: sizes and shares."""
    nodes, weights = np.polynomial.legendre.leggauss(64)
    planned = float(planned_bet(groups, RHO, -np.log(PLANNED_SHARE * LEVEL)))
    return np.append((nodes + 1) / 2, planned), np.append(MIXED_SHARE * weights / 2, PLANNED_SHARE)


def climbing_groups(
    rng: np.random.Generator,
    reps: int,
    *,
    realised: bool,
    phase: int = 400,
    sizes: tuple[int, ...] = (1, 2, 4, 8),
) -> Flags:
    """Phases of groups that grow from phase to phase; the law stops at the first certificate.

    With the declared cap a group of size a stakes a share a / cap. With the largest size seen so far in its
    place, each phase starts almost afresh at full stake.
    """
    eps, shares = bets(phase)
    capital = np.tile(shares, (reps, 1))
    bad = np.zeros((reps, len(sizes)))
    false = np.zeros(reps, np.bool_)
    for at, size in enumerate(sizes):
        scale = size if realised else CAP
        rows = [_factors(eps, s / scale) for s in sizes[: at + 1]]
        logs = np.log(shares) + sum(
            bad[:, [j]] * np.log(harm) + (phase - bad[:, [j]]) * np.log(fine)
            for j, (harm, fine) in enumerate(rows[:at])
        )
        capital = np.exp(np.broadcast_to(logs, capital.shape))
        factors = np.stack(rows[at][::-1])
        for _ in range(phase):
            harmful = rng.random(reps) < RHO
            capital *= factors[harmful.astype(np.intp)]
            bad[:, at] += harmful
            false |= capital.sum(axis=1) >= 1.0 / LEVEL
    return false


def _factors(eps: Floats, share: float) -> tuple[Floats, Floats]:
    """What a wholly harmful and a harmless group of a relative size do to each bet."""
    return np.maximum(1.0 - eps * share, 1e-300), 1.0 + eps * share * RHO / (1.0 - RHO)


def mixed_groups(rng: np.random.Generator, reps: int, *, groups: int = 400) -> Flags:
    """Groups admit 0, 2 or 8 records, all harmful or none; read once, at the end."""
    shares = np.array([0.3, 0.35, 0.35])
    law = np.concatenate([shares[:1], shares[1:] * RHO, shares[1:] * (1 - RHO)])
    cells = rng.multinomial(groups, law, size=reps)
    sizes = np.array([2, 8]) / CAP
    values = np.concatenate([[0.0], sizes * (1 - RHO), sizes * -RHO])
    patterns, which = np.unique(cells, axis=0, return_inverse=True)
    planned = planned_bet(groups * float(shares[1:] @ sizes), RHO, -np.log(PLANNED_SHARE * LEVEL))
    bet = np.full(len(patterns), float(planned))
    total = np.full(len(patterns), float(groups))
    evidence = log_evidence_at(
        np.broadcast_to(values, patterns.shape),
        patterns.astype(np.float64),
        total,
        1.0 / (1.0 - RHO),
        bet,
        0.0,
    )
    return (evidence >= -np.log(LEVEL))[which.ravel()]


def groups_in_sequence(rng: np.random.Generator, reps: int, *, groups: int = 50, rho: float = 0.5) -> Flags:
    """The Hoeffding claim reads records: once the first of a group is seen the others hold no surprise.

    So their conditional harm is 0 or 1, and after a harmless group the law has to bring the average back up.
    """
    n = groups * CAP
    h = np.zeros(reps, np.int64)
    debt = np.zeros(reps)
    for _ in range(groups):
        first = np.where(debt < 0, 1.0, rho)
        bad = rng.random(reps) < first
        h += CAP * bad
        debt += first - rho + (CAP - 1) * (bad - rho)
    return (h <= hoeffding_most_harm(n, rho)[n]) & (debt >= -1e-9)


def laws() -> list[Law]:
    """Groups of one mind under both claims about running averages."""
    eight = "groups of 8, perfectly correlated"
    return [
        Law(eight, "hoeffding", groups_in_sequence),
        Law(eight, "sequential", partial(climbing_groups, realised=False, phase=1000, sizes=(8,))),
        Law("groups that grow as evidence fails", "sequential", partial(climbing_groups, realised=False)),
        Law("groups of 0, 2 and 8, perfectly correlated", "sequential", mixed_groups),
    ]
