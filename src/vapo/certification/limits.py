"""Confidence limits by inversion of the very evidence that certifies."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import elementwise

from vapo.certification.binomial import Floats, check_counts, check_rate
from vapo.certification.evidence import binary_kl, log_evidence_at, log_sequential_evidence
from vapo.errors import InputError

__all__ = [
    "excess_upper",
    "mean_lower",
    "mean_upper",
    "planned_mean_bet",
    "unit_excess_upper",
    "unit_mean_lower",
]

_TINY = float(np.finfo(np.float64).tiny)
_BELOW_ONE = 1.0 - 1e-9
_NEAR = 1e-6


def planned_mean_bet(
    planned_mean: npt.ArrayLike, planned_total: npt.ArrayLike, log_level: npt.ArrayLike
) -> Any:
    """Size of the bet that gives the lowest upper limit for a rate, if the plan comes true.

    With the plan's rate ``a`` over ``n`` records the limit to expect is the ``u`` above ``a`` where
    ``n * kl(a, u) = log_level``; the bet that reaches it stakes ``(u - a) / (u * (1 - a))``. Plans of
    exactly 0 or 1 are moved half a record inwards, so that one surprise does not ruin the bet.

    Args:
        planned_mean: Expected rate.
        planned_total: Declared number of records (or groups).
        log_level: Log evidence that the planned bet alone has to reach.

    Example:
        >>> 0.0 < float(planned_mean_bet(0.2, 1000, 3.0)) < 1.0
        True
    """
    a, n, level = np.broadcast_arrays(
        np.asarray(planned_mean, dtype=np.float64),
        np.asarray(planned_total, dtype=np.float64),
        np.asarray(log_level, dtype=np.float64),
    )
    if np.any(a < 0) or np.any(a > 1) or np.any(n < 1) or not np.all(level > 0):
        expected = "rates in [0, 1], totals of at least 1 and positive levels"
        raise InputError(expected, "others", where="plan")
    a = np.clip(a, 0.5 / n, 1.0 - 0.5 / n)
    low, high = np.zeros_like(a), np.ones_like(a)
    for _ in range(80):
        # the stake itself is the unknown: u = a / (1 - stake * (1 - a))
        middle = (low + high) / 2.0
        u = np.minimum(a / (1.0 - middle * (1.0 - a)), _BELOW_ONE)
        # the log capital of this stake after exactly the planned counts
        short = n * np.asarray(binary_kl(a, u)) < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.minimum(high, _BELOW_ONE)[()]


def mean_upper(
    count: npt.ArrayLike, total: npt.ArrayLike, alpha: npt.ArrayLike, eps_star: npt.ArrayLike
) -> Any:
    """Upper limit, valid at every stopping time, for the running average of a conditional rate.

    Args:
        count: Hits so far.
        total: Records so far.
        alpha: Failure probability of each limit.
        eps_star: Planned bets (`planned_mean_bet`).

    Example:
        >>> 0.2 < float(mean_upper(200, 1000, 0.05, planned_mean_bet(0.2, 1000, 3.1))) < 0.25
        True
    """
    n, hits = check_counts(total, count)
    hits, n, level, bet = np.broadcast_arrays(
        hits, n, _log_level(alpha), np.asarray(eps_star, dtype=np.float64)
    )
    ones = np.ones((n.size, 1))
    flat = (part.reshape(-1) for part in (n, bet, level))
    return _invert(ones, hits.reshape(-1, 1), *flat, scale=1.0, floor=0.0).reshape(n.shape)[()]


def mean_lower(
    count: npt.ArrayLike, total: npt.ArrayLike, alpha: npt.ArrayLike, eps_star: npt.ArrayLike
) -> Any:
    """Lower limit, valid at every stopping time: one minus the upper limit for the misses.

    Staking ``e`` on misses is the bet ``e / (1 - e)`` on hits, so both limits come from one mixture.

    Args:
        count: Hits so far.
        total: Records so far.
        alpha: Failure probability of each limit.
        eps_star: Planned bets on the misses: ``planned_mean_bet(1 - planned_rate, ...)``.

    Example:
        >>> 0.75 < float(mean_lower(800, 1000, 0.05, planned_mean_bet(0.2, 1000, 3.1))) < 0.8
        True
    """
    n, hits = check_counts(total, count)
    return (1.0 - np.asarray(mean_upper(n - hits, n, alpha, eps_star)))[()]


def excess_upper(
    admitted: npt.ArrayLike,
    harmful: npt.ArrayLike,
    total: npt.ArrayLike,
    rho: float,
    alpha: npt.ArrayLike,
    eps_star: npt.ArrayLike,
) -> Any:
    """Upper limit for the running average of ``harm - rho * admitted``, per record.

    It is at most 0 exactly when `log_sequential_evidence` has reached ``log(1 / alpha)``.

    Args:
        admitted: Admitted records.
        harmful: Harmful ones among them.
        total: All records.
        rho: Tolerated harm.
        alpha: Failure probability of each limit.
        eps_star: Planned bets (`planned_bet`).

    Example:
        >>> bool(excess_upper(400, 10, 1000, 0.08, 0.05, 0.5) < 0)
        True
    """
    check_rate(rho, "rho")
    k, h = check_counts(admitted, harmful)
    n, _ = check_counts(total, k)
    k, h, n, level, bet = np.broadcast_arrays(
        k, h, n, _log_level(alpha), np.asarray(eps_star, dtype=np.float64)
    )
    shape = k.shape
    k, h, n, level, bet = (part.reshape(-1) for part in (k, h, n, level, bet))
    values = np.broadcast_to(np.array([1.0 - rho, -rho]), (k.size, 2))
    counts = np.stack([h, k - h], axis=1)
    limit = _invert(values, counts, n, bet, level, scale=1.0 / (1.0 - rho), floor=-rho)
    certified = np.asarray(log_sequential_evidence(k, h, rho, bet)) >= level
    return np.where(certified, np.minimum(limit, 0.0), np.maximum(limit, _TINY)).reshape(shape)[()]


def unit_excess_upper(
    values: Floats, counts: Floats, total: Floats, rho: float, alpha: npt.ArrayLike, eps_star: Floats
) -> tuple[Floats, Floats]:
    """Upper limit for the running average over groups of bounded excess harm, and the evidence at zero.

    Args:
        values: Distinct excess values ``sum(harm - rho) / cap`` of groups, ``(candidates, m)``.
        counts: How many groups have each; 0 pads.
        total: All groups, also those without an admitted record.
        rho: Tolerated harm; every value lies in ``[-rho, 1 - rho]``.
        alpha: Failure probability of each limit.
        eps_star: Planned bets in units of groups.

    Returns:
        The limits and the log evidence that the average is below zero.

    Example:
        >>> x, c = np.array([[-0.2]]), np.array([[50.0]])
        >>> limit, evidence = unit_excess_upper(x, c, np.array([60.0]), 0.2, 0.05, np.array([0.5]))
        >>> bool(limit[0] < 0), bool(evidence[0] > 3)
        (True, True)
    """
    level = np.broadcast_to(_log_level(alpha), total.shape)
    scale = 1.0 / (1.0 - rho)
    limit = _invert(values, counts, total, eps_star, level, scale=scale, floor=-rho)
    evidence = log_evidence_at(values, counts, total, scale, eps_star, 0.0)
    return np.where(evidence >= level, np.minimum(limit, 0.0), np.maximum(limit, _TINY)), evidence


def unit_mean_lower(
    values: Floats, counts: Floats, total: Floats, alpha: npt.ArrayLike, eps_star: Floats
) -> Floats:
    """Lower limit for the running average of group values in [0, 1]; groups with value 0 are rows too.

    Example:
        >>> x, c = np.array([[0.0, 0.5]]), np.array([[10.0, 90.0]])
        >>> 0.3 < unit_mean_lower(x, c, np.array([100.0]), 0.05, np.array([0.3]))[0] < 0.45
        np.True_
    """
    level = np.broadcast_to(_log_level(alpha), total.shape)
    return 1.0 - _invert(1.0 - values, counts, total, eps_star, level, scale=1.0, floor=0.0)


def _log_level(alpha: npt.ArrayLike) -> Floats:
    level = np.asarray(alpha, dtype=np.float64)
    if not np.all((level > 0) & (level < 1)):
        expected = "numbers strictly between 0 and 1"
        raise InputError(expected, "others", where="alpha")
    return np.asarray(-np.log(level), dtype=np.float64)


def _invert(
    values: Floats,
    counts: Floats,
    total: Floats,
    eps_star: Floats,
    level: Floats,
    *,
    scale: float,
    floor: float,
) -> Floats:
    """Smallest mean that the evidence rejects, rounded to the safe side, from ``floor`` to ``1 / scale``."""
    ceiling = _BELOW_ONE / scale

    def surplus(mean: Floats, row: Floats, *, rough: bool = False) -> Floats:
        at = row.astype(np.intp)
        found = log_evidence_at(values[at], counts[at], total[at], scale, eps_star[at], mean, rough=rough)
        return found - level[at]

    def solve(low: Floats, high: Floats, row: Floats, *, rough: bool = False) -> Any:
        wanted: Any = {"xatol": 1e-9} if rough else {"xatol": 1e-13, "xrtol": 1e-12}
        return elementwise.find_root(
            partial(surplus, rough=rough), (low, high), args=(row,), tolerances=wanted
        )

    rows = np.arange(total.size, dtype=np.float64)
    limit = np.full(total.size, 1.0 / scale)
    live = surplus(np.full(total.size, ceiling), rows) > 0
    if np.any(live):
        row = rows[live]
        low, high = np.full(row.size, floor), np.full(row.size, ceiling)
        at = row.astype(np.intp)
        seen = (counts[at] * values[at]).sum(axis=1) / total[at]
        # nearly always the limit lies within twice a Hoeffding radius, and a short bracket is a cheap one
        radius = np.sqrt((level[at] + np.log(total[at]) + 5.0) / total[at])
        guess = solve(np.maximum(seen, floor), np.minimum(seen + radius, ceiling), row, rough=True).x
        guess = np.nan_to_num(guess, nan=floor)
        near = solve(np.maximum(guess - _NEAR, floor), np.minimum(guess + _NEAR, ceiling), row)
        limit[live] = near.bracket[1]
        # where the guess was too far off, there is no change of sign around it
        missed = ~near.success
        if np.any(missed):
            limit[np.flatnonzero(live)[missed]] = solve(low[missed], high[missed], row[missed]).bracket[1]
    return limit
