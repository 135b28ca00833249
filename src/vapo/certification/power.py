"""How often a test certifies one candidate, over what the stage may bring."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special
from scipy.optimize import elementwise

from vapo.certification.binomial import Floats
from vapo.certification.evidence import PLANNED_SHARE, log_sequential_evidence, planned_bet

__all__ = [
    "frozen_critical_count",
    "frozen_power",
    "log_choose",
    "sequential_power",
]

_TAIL = 7.5  # standard deviations of the admitted count that are summed over
_POINTS = 4096
_FITTED, _EXACT = 14, 1500


def frozen_critical_count(admitted: Floats, rho: float, alpha: float) -> Floats:
    """Largest harmful count that still certifies, for each admitted count; -1 where none does.

    Args:
        admitted: Admitted counts.
        rho: Tolerated harm.
        alpha: Level of the test.

    Example:
        >>> frozen_critical_count(np.array([35.0, 36.0, 128.0]), 0.08, 0.05).tolist()
        [-1.0, 0.0, 4.0]
    """
    k = np.asarray(admitted, dtype=np.float64)
    low, high = np.full(k.shape, -1.0), np.ceil(k * rho)
    for _ in range(64):
        wide = high - low > 1
        if not wide.any():
            break
        middle = np.where(wide, np.floor((low + high) / 2.0), low)
        hits = np.clip(middle, 0.0, np.maximum(k - 1.0, 0.0))
        fits = (special.betainc(np.maximum(k - hits, 0.5), hits + 1.0, 1.0 - rho) <= alpha) & (middle >= 0)
        fits |= middle < 0
        low, high = np.where(wide & fits, middle, low), np.where(wide & ~fits, middle, high)
    return low


def frozen_power(records: float, coverage: float, risk: float, rho: float, alpha: float) -> float:
    """Probability that one candidate passes the exact binomial test, over admitted and harmful counts.

    Args:
        records: Records in the stage.
        coverage: Expected share of admitted records.
        risk: True harm among them.
        rho: Tolerated harm.
        alpha: Level of the test.

    Example:
        >>> 0.5 < frozen_power(311, 0.4125, 0.04, 0.08, 0.05) < 0.51
        True
    """
    k, weights = _admitted_law(records, coverage)
    if k.size <= _EXACT:
        return _pass_rate(k, weights, frozen_critical_count(k, rho, alpha), risk)
    critical = _along(k, lambda some: _frozen_critical(some, rho, alpha))
    return _pass_rate(k, weights, np.floor(critical + 1e-9), risk)


def sequential_power(records: float, coverage: float, risk: float, rho: float, alpha: float) -> float:
    """Probability that the mixture of bets certifies one candidate at the end of the stage.

    Args:
        records: Records in the stage; the planned bet is tuned to them.
        coverage: Expected share of admitted records.
        risk: True harm among them.
        rho: Tolerated harm.
        alpha: Level at which this candidate is tested for harm.

    Example:
        >>> 0.5 < sequential_power(544, 0.4125, 0.04, 0.08, 0.05) < 0.51
        True
    """
    k, weights = _admitted_law(records, coverage)
    bet = float(planned_bet(records * coverage, rho, -math.log(PLANNED_SHARE * alpha)))
    critical = _along(k, lambda some: _sequential_critical(some, rho, alpha, bet))
    return _pass_rate(k, weights, np.floor(critical + 1e-9), risk)


def log_choose(n: Floats, k: Floats) -> Floats:
    """Log binomial coefficients of real arguments.

    Example:
        >>> round(float(log_choose(np.array(4.0), np.array(2.0))), 6)
        1.791759
    """
    return np.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1), dtype=np.float64
    )


def _admitted_law(records: float, coverage: float) -> tuple[Floats, Floats]:
    """Values and probabilities of a binomial admitted count, thinned out evenly where there are very many."""
    mean = records * coverage
    width = _TAIL * math.sqrt(mean * (1.0 - coverage)) + 3.0
    first, last = max(math.floor(mean - width), 0), min(math.ceil(mean + width), math.floor(records))
    step = max((last - first) // _POINTS, 1)
    k = np.arange(first, last + 1, step, dtype=np.float64)
    logs = log_choose(np.full_like(k, float(records)), k)
    logs = logs + special.xlogy(k, coverage) + special.xlog1py(records - k, -coverage)
    weights = np.exp(logs - logs.max())
    return k, weights / weights.sum()


def _pass_rate(k: Floats, weights: Floats, critical: Floats, risk: float) -> float:
    inside = (critical >= 0) & (critical < k)
    count = np.where(inside, critical, 0.0)
    tail = special.betainc(np.where(inside, k - count, 1.0), count + 1.0, 1.0 - risk)
    return float((weights * np.where(inside, tail, np.where(critical >= k, 1.0, 0.0) * (k > 0))).sum())


def _sequential_critical(k: Floats, rho: float, alpha: float, bet: float) -> Floats:
    """Real harmful count at which the evidence equals the threshold; -1 where no count is small enough."""
    level = -math.log(alpha)

    def surplus(harmful: Floats, admitted: Floats) -> Floats:
        return np.asarray(log_sequential_evidence(admitted, harmful, rho, bet), dtype=np.float64) - level

    critical = np.where(surplus(0.0 * k, k) >= 0, 0.0, -1.0)
    # a bet on no harm at all breaks at the first harmful record: look for the crossing beyond that jump
    first = np.minimum(k, 1e-9)
    crossing = (surplus(first, k) > 0) & (k > 0)
    if crossing.any():
        bracket = (first[crossing], (k * rho)[crossing])
        found = elementwise.find_root(surplus, bracket, args=(k[crossing],), tolerances={"xatol": 1e-8})
        critical[crossing] = found.x
    return critical


def _frozen_critical(k: Floats, rho: float, alpha: float) -> Floats:
    """Real harmful count at which the binomial tail equals ``alpha``, for large admitted counts."""

    def surplus(harmful: Floats, admitted: Floats) -> Floats:
        return np.asarray(
            special.betainc(admitted - harmful, harmful + 1.0, 1.0 - rho) - alpha, dtype=np.float64
        )

    start = frozen_critical_count(np.floor(k), rho, alpha)
    bracket = (np.maximum(start - 2.0, 0.0), start + 3.0)
    return np.asarray(elementwise.find_root(surplus, bracket, args=(k,), tolerances={"xatol": 1e-9}).x)


def _along(k: Floats, critical: Callable[[Floats], Floats]) -> Floats:
    """Evaluate a critical count at many admitted counts.

    Away from zero it is smooth in the admitted count, so a few exact values carry a polynomial through all
    of them.
    """
    middle, half = (k[0] + k[-1]) / 2.0, (k[-1] - k[0]) / 2.0
    nodes = np.cos((np.arange(_FITTED) + 0.5) * np.pi / _FITTED)
    exact = critical(middle + half * nodes)
    if k.size <= _FITTED or exact.min() < 1.0:
        return critical(k)
    fit = np.polynomial.chebyshev.Chebyshev.fit(nodes, exact, _FITTED - 1, domain=[-1.0, 1.0])
    return np.asarray(fit((k - middle) / half), dtype=np.float64)
