"""The two claims about running averages: Hoeffding-Azuma radii and sequential bets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vapo.certification.binomial import Floats, clopper_pearson_upper, hoeffding_radius
from vapo.certification.evidence import PLANNED_SHARE, planned_bet
from vapo.certification.limits import (
    excess_upper,
    mean_lower,
    mean_upper,
    planned_mean_bet,
    unit_excess_upper,
    unit_mean_lower,
)
from vapo.certification.tables import ClaimTable, Requirements, Tally
from vapo.errors import InputError

__all__ = ["hoeffding_table", "sequential_table"]


def hoeffding_table(tallies: Sequence[Tally], requirements: Requirements) -> ClaimTable:
    """Apply one radius to every average of every candidate.

    Example:
        >>> table = hoeffding_table([Tally(512, 200, 0, 0)], Requirements(0.08, 0.0, 1.0, 0.05))
        >>> round(float(table.radius[0]), 10)
        0.0632327713
    """
    n, k, h, a = _counts(tallies)
    radius = np.full(k.size, hoeffding_radius(int(n[0]), k.size, requirements.delta))
    excess = (h - requirements.rho * k) / n
    return _table(requirements, tallies, excess + radius, k / n - radius, a / n + radius, radius, "record")


def sequential_table(
    tallies: Sequence[Tally],
    requirements: Requirements,
    planned_coverage: Floats,
    planned_calls: Floats,
    planned_records: int,
) -> ClaimTable:
    """Invert mixtures of constant bets at each candidate's share of the failure probability.

    With a declared group cap the bets on harm and coverage are read at group ends, so dependence inside a
    group cannot hurt. The limit for calls stays with single records: the cap says nothing about how often a
    group may appeal, and a limit for the average of conditional call rates holds under any dependence.

    Example:
        >>> rows = [Tally(2000, 800, 16, 0)]
        >>> asked = Requirements(0.08, 0.25, 0.2, 0.05)
        >>> bool(sequential_table(rows, asked, np.array([0.4]), np.array([0.0]), 2000).feasible[0])
        True
    """
    n, k, h, a = _counts(tallies)
    weights = requirements.candidate_weights(k.size)
    risk, coverage, calls = (requirements.delta * share * weights for share in requirements.split)
    levels = [-np.log(PLANNED_SHARE * level) for level in (risk, coverage, calls)]
    n0 = np.full(k.size, float(planned_records))
    rho, cap = requirements.rho, requirements.group_cap
    if cap is None:
        bet = np.asarray(planned_bet(n0 * planned_coverage, rho, levels[0]))
        upper = np.asarray(excess_upper(k, h, n, rho, risk, bet))
        stake = np.asarray(planned_mean_bet(1.0 - planned_coverage, n0, levels[1]))
        lower = np.asarray(mean_lower(k, n, coverage, stake))
    else:
        values, admitted, counts, groups = _group_rows(tallies, rho, cap)
        # n / groups is the number of records a group in the frozen file: known before any label
        per_group = n / groups
        bet = np.asarray(planned_bet(n0 * planned_coverage / cap, rho, levels[0]))
        limit, _ = unit_excess_upper(values, counts, groups, rho, risk, bet)
        upper = limit * cap / per_group
        planned_share = np.minimum(planned_coverage * per_group / cap, 1.0)
        stake = np.asarray(planned_mean_bet(1.0 - planned_share, groups, levels[1]))
        share = unit_mean_lower(admitted / cap, counts, groups, coverage, stake)
        lower = np.minimum(share * cap / per_group, 1.0)
    stake = np.asarray(planned_mean_bet(planned_calls, n0, levels[2]))
    asked = np.asarray(mean_upper(a, n, calls, stake))
    radius = upper - (h - rho * k) / n
    return _table(requirements, tallies, upper, lower, asked, radius, "record" if cap is None else "group")


def _counts(tallies: Sequence[Tally]) -> tuple[Floats, Floats, Floats, Floats]:
    rows = np.array([(t.records, t.admitted, t.harmful, t.appealed) for t in tallies], dtype=np.float64)
    return rows[:, 0], rows[:, 1], rows[:, 2], rows[:, 3]


def _group_rows(tallies: Sequence[Tally], rho: float, cap: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Distinct (admitted, harmful) pairs of the groups of each candidate, padded to one width."""
    rows = []
    for index, tally in enumerate(tallies):
        if tally.units is None:
            admitted = np.array([1, 1, 0])
            harmful = np.array([1, 0, 0])
            count = np.array([tally.harmful, tally.admitted - tally.harmful, tally.records - tally.admitted])
        else:
            if tally.units.largest > cap:
                where = f"candidate {index}: group_cap"
                got = f"a group with {tally.units.largest}"
                expected = f"at most {cap} admitted records in every group"
                raise InputError(expected, got, where=where)
            admitted, harmful, count = tally.units.admitted, tally.units.harmful, tally.units.count
        keys, inverse = np.unique(admitted * (cap + 1) + harmful, return_inverse=True)
        rows.append(
            (keys // (cap + 1), keys % (cap + 1), np.bincount(inverse, weights=count, minlength=keys.size))
        )
    width = max(row[0].size for row in rows)
    admitted_rows, harmful_rows, counts = (np.zeros((len(rows), width)) for _ in range(3))
    for target, part in zip((admitted_rows, harmful_rows, counts), range(3), strict=True):
        for index, row in enumerate(rows):
            target[index, : row[part].size] = row[part]
    return (harmful_rows - rho * admitted_rows) / cap, admitted_rows, counts, counts.sum(axis=1)


def _table(
    requirements: Requirements,
    tallies: Sequence[Tally],
    excess: Floats,
    coverage: Floats,
    calls: Floats,
    radius: Floats,
    unit: str,
) -> ClaimTable:
    rho = requirements.rho
    ratio = rho + excess / np.where(coverage > 0, coverage, 1.0)
    risk = np.where(excess <= 0, rho + excess, np.where(coverage > 0, ratio, 1.0))
    # each shortfall is a rate per record, so the three compare
    short = np.stack([excess, requirements.c_min - coverage, calls - requirements.b_max])
    met = short <= 0
    names = np.array(["risk", "coverage", "calls"])
    feasible = np.logical_and.reduce(met)
    worst = names[np.argmax(np.where(met, -np.inf, short), axis=0)]
    _, k, h, _ = _counts(tallies)
    return ClaimTable(
        excess_upper=excess,
        risk_upper=np.clip(risk, 0.0, 1.0),
        coverage_lower=coverage,
        calls_upper=calls,
        radius=radius,
        feasible=feasible,
        constraint=tuple("" if fine else str(name) for fine, name in zip(feasible, worst, strict=True)),
        margin=short.max(axis=0),
        own_limit=np.asarray(clopper_pearson_upper(k, h, requirements.delta)),
        met=met.sum(axis=0).astype(np.int64),
        unit=unit,
    )
