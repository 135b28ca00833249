"""The claim about a frozen trace: exact tests, handed down ordered chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vapo.certification.binomial import (
    Floats,
    check_rate,
    clopper_pearson_upper,
    poisson_binomial_limit,
    poisson_binomial_rejects,
)
from vapo.certification.tables import ClaimTable, Requirements, Tally, Units
from vapo.errors import InputError

__all__ = ["Skip", "frozen_bet", "frozen_group_test", "frozen_skips", "frozen_table"]

_STAKE_LIMIT = 0.99


class Skip(NamedTuple):
    """Why a candidate is left out before any label is joined."""

    reason: str
    """``coverage``, ``calls``, ``skipped: too few admitted``, or empty when the candidate is to be tested."""

    margin: float
    """How far the candidate is from being tested, as a rate per record."""


class Stake(NamedTuple):
    """What a group bet risks, fixed before any label."""

    bet: float
    """``lambda``; 0 where nothing can be bet."""

    cap: int
    """Admitted records by which a group's excess is divided."""


def frozen_bet(
    units: Units, rho: float, alpha: float, *, cap: int | None = None, planned_square: float | None = None
) -> Stake:
    """Stake of the group bet, from counts that are frozen before the labels, or from declared ones.

    Args:
        units: Groups of the stage; harm is not looked at.
        rho: Tolerated harm.
        alpha: Level of the test.
        cap: Declared largest number of admitted records in a group; the realised one when absent.
        planned_square: Planned mean square of admitted records a group; the realised one when absent.

    Example:
        >>> groups = Units(np.array([8]), np.array([0]), np.array([0]), np.array([100]))
        >>> round(frozen_bet(groups, 0.08, 0.05).bet, 6)
        0.902251
    """
    check_rate(rho, "rho")
    check_rate(alpha, "alpha")
    largest = units.largest if cap is None else cap
    if units.largest > largest:
        expected = f"at most the declared {largest} admitted records in every group"
        raise InputError(expected, f"{units.largest}", where="group_cap")
    realised = float((units.count * units.admitted**2).sum())
    spread = realised if planned_square is None else planned_square * units.groups
    if largest == 0 or spread <= 0:
        return Stake(0.0, largest)
    spread /= largest**2
    bet = math.sqrt(2.0 * -math.log(alpha) / (rho * (1.0 - rho) * spread))
    return Stake(min(_STAKE_LIMIT / (1.0 - rho), bet), largest)


def frozen_group_test(
    units: Units, rho: float, alpha: float, stake: Stake | None = None
) -> tuple[float, float]:
    """Bet on independent groups whose records may depend on each other in any way.

    Args:
        units: Groups of the stage.
        rho: Tolerated harm.
        alpha: Level of the test.
        stake: What `frozen_bet` fixed; by default from the frozen counts themselves.

    Returns:
        The log evidence against "harm is at least ``rho``", and the upper limit for the harm that the same bet gives;
        the limit is at most ``rho`` exactly when the evidence has reached ``log(1 / alpha)``.

    Example:
        >>> groups = Units(np.array([8]), np.array([0]), np.array([0]), np.array([100]))
        >>> evidence, limit = frozen_group_test(groups, 0.08, 0.05)
        >>> evidence > 3, limit < 0.08
        (True, True)
    """
    bet, cap = frozen_bet(units, rho, alpha) if stake is None else stake
    used = (units.admitted > 0) & (units.count > 0)
    if bet == 0.0 or not used.any():
        return 0.0, 1.0
    admitted, count = units.admitted[used], units.count[used]
    excess = (units.harmful[used] - rho * admitted) / cap
    evidence = float((count * np.log1p(-bet * excess)).sum())
    groups = float(count.sum())
    level = -math.log(alpha)
    # invert prod(1 - bet * x) / (1 - bet * u)^groups for the largest mean u of the groups that admitted anything
    mean = -math.expm1((evidence - level) / groups) / bet
    limit = rho + mean * groups * cap / float((count * admitted).sum())
    limit = min(limit, rho) if evidence >= level else max(limit, math.nextafter(rho, 1.0))
    return evidence, min(max(limit, 0.0), 1.0)


def frozen_skips(
    tallies: Sequence[Tally], requirements: Requirements, chains: Sequence[Sequence[int]]
) -> tuple[Skip, ...]:
    """Say which candidates cannot be certified whatever their labels are. No harm is looked at.

    Args:
        tallies: Counts of every candidate.
        requirements: Tolerances and failure probability.
        chains: The family's chains; their number sets the level of each test.

    Example:
        >>> frozen_skips([Tally(100, 30, 0, 0)], Requirements(0.08, 0.25, 0.2, 0.05), [[0]])[0].reason
        'skipped: too few admitted'
    """
    level = -math.log(requirements.delta / max(len(chains), 1))
    return tuple(_skip(tally, requirements, level, index) for index, tally in enumerate(tallies))


def _group_stake(tally: Tally, requirements: Requirements, alpha: float, index: int) -> Stake | None:
    """The stake if a candidate has to be tested by group; None if its records are independent of each other."""
    if tally.units is None:
        return None
    if requirements.planned_squares is not None:
        squares = requirements.planned_squares[index]
        return frozen_bet(
            tally.units, requirements.rho, alpha, cap=requirements.group_cap, planned_square=squares
        )
    return frozen_bet(tally.units, requirements.rho, alpha) if tally.clustered else None


def _skip(tally: Tally, requirements: Requirements, level: float, index: int) -> Skip:
    coverage, calls = tally.admitted / tally.records, tally.appealed / tally.records
    if coverage < requirements.c_min:
        return Skip("coverage", requirements.c_min - coverage)
    if calls > requirements.b_max:
        return Skip("calls", calls - requirements.b_max)
    needed = level / -math.log1p(-requirements.rho)
    if tally.admitted == 0 or tally.admitted < needed:
        return Skip("skipped: too few admitted", (max(math.ceil(needed), 1) - tally.admitted) / tally.records)
    stake = _group_stake(tally, requirements, math.exp(-level), index)
    if stake is not None and tally.units is not None:
        clean = Units(tally.units.admitted, 0 * tally.units.harmful, tally.units.appealed, tally.units.count)
        best, _ = frozen_group_test(clean, requirements.rho, math.exp(-level), stake)
        if best < level:
            return Skip("skipped: too few admitted", coverage * (level / max(best, 1e-9) - 1.0))
    return Skip("", 0.0)


def frozen_table(
    tallies: Sequence[Tally], requirements: Requirements, chains: Sequence[Sequence[int]]
) -> ClaimTable:
    """Test every chain in its order at an equal share of the failure probability, until its first failure.

    Args:
        tallies: Counts of every candidate.
        requirements: Tolerances and failure probability.
        chains: Candidates from most to least selective; one that is in no chain is never tested.

    Example:
        >>> rows = [Tally(1000, 400, 9, 0), Tally(1000, 600, 90, 0), Tally(1000, 700, 1, 0)]
        >>> frozen_table(rows, Requirements(0.08, 0.25, 0.2, 0.05), [[0, 1, 2]]).constraint
        ('', 'risk', 'not tested: chain stopped at 1')
    """
    size, rho = len(tallies), requirements.rho
    _check_chains(chains, size)
    alpha = requirements.delta / max(len(chains), 1)
    skips = frozen_skips(tallies, requirements, chains)
    passes, limits = _tests(tallies, requirements, alpha)
    coverage = np.array([tally.admitted / tally.records for tally in tallies])
    calls = np.array([tally.appealed / tally.records for tally in tallies])
    short = coverage * (limits - rho)
    feasible = np.zeros(size, dtype=np.bool_)
    risk_upper = np.ones(size)
    reasons = [skip.reason or "not tested: in no chain" for skip in skips]
    margin = np.array([skip.margin if skip.reason else 1.0 for skip in skips])
    placed = np.zeros(size, dtype=np.bool_)
    for chain in chains:
        members = [index for index in chain if not skips[index].reason]
        stop = next((at for at, index in enumerate(members) if not passes[index]), len(members))
        whole = max((limits[index] for index in members), default=1.0) if stop == len(members) else 1.0
        for at, index in enumerate(members):
            if at < stop:
                feasible[index], reasons[index] = True, ""
                risk_upper[index] = min(risk_upper[index], rho, whole)
                margin[index] = min(short[index], 0.0)
            elif not feasible[index] and not placed[index]:
                first = members[stop]
                reasons[index] = "risk" if at == stop else f"not tested: chain stopped at {first}"
                margin[index] = max(short[index], short[first])
            placed[index] = True
    admitted = np.array([tally.admitted for tally in tallies], dtype=np.float64)
    harmful = np.array([tally.harmful for tally in tallies], dtype=np.float64)
    excess = coverage * (risk_upper - rho)
    observed = (harmful - rho * admitted) / float(tallies[0].records)
    met = feasible.astype(np.int64) + (coverage >= requirements.c_min) + (calls <= requirements.b_max)
    return ClaimTable(
        excess_upper=excess,
        risk_upper=risk_upper,
        coverage_lower=coverage,
        calls_upper=calls,
        radius=excess - observed,
        feasible=feasible,
        constraint=tuple(reasons),
        margin=margin,
        own_limit=np.asarray(clopper_pearson_upper(admitted, harmful, requirements.delta)),
        met=met.astype(np.int64),
        unit="group" if any(tally.clustered for tally in tallies) else "record",
    )


def _tests(tallies: Sequence[Tally], requirements: Requirements, alpha: float) -> tuple[np.ndarray, Floats]:
    rho = requirements.rho
    admitted = np.array([tally.admitted for tally in tallies], dtype=np.float64)
    harmful = np.array([tally.harmful for tally in tallies], dtype=np.float64)
    passes = np.atleast_1d(poisson_binomial_rejects(admitted, harmful, rho, alpha)).copy()
    limits = np.atleast_1d(poisson_binomial_limit(admitted, harmful, alpha)).copy()
    # test and limit are computed apart: let rounding never make them contradict each other
    limits = np.where(passes, np.minimum(limits, rho), np.maximum(limits, np.nextafter(rho, 1.0)))
    for index, tally in enumerate(tallies):
        stake = _group_stake(tally, requirements, alpha, index)
        if stake is not None and tally.units is not None:
            evidence, limits[index] = frozen_group_test(tally.units, rho, alpha, stake)
            passes[index] = evidence >= -math.log(alpha)
    return passes, limits


def _check_chains(chains: Sequence[Sequence[int]], size: int) -> None:
    for at, chain in enumerate(chains):
        if len(set(chain)) != len(chain) or any(not 0 <= index < size for index in chain):
            expected = f"different indices below {size}"
            raise InputError(expected, f"{list(chain)}", where=f"chain {at}")
