"""Exact binomial tests and the Hoeffding radius: everything that needs no bet."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import special

from vapo.errors import InputError

__all__ = [
    "Floats",
    "binomial_p_value",
    "check_counts",
    "check_rate",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "hoeffding_radius",
    "poisson_binomial_limit",
    "poisson_binomial_rejects",
]

Floats: TypeAlias = npt.NDArray[np.float64]


def check_rate(value: float, name: str) -> float:
    """Return ``value`` as a float strictly between 0 and 1, or say which argument is not.

    Example:
        >>> check_rate(0.05, "delta")
        0.05
    """
    number = float(value)
    if not 0.0 < number < 1.0:
        expected = "a number strictly between 0 and 1"
        raise InputError(expected, repr(value), where=name)
    return number


def check_counts(admitted: npt.ArrayLike, harmful: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return both counts as broadcast float arrays after checking 0 <= harmful <= admitted.

    Example:
        >>> k, h = check_counts([3, 4], 1)
        >>> h.tolist()
        [1.0, 1.0]
    """
    k, h = np.broadcast_arrays(np.asarray(admitted, dtype=np.float64), np.asarray(harmful, dtype=np.float64))
    if not (np.all(np.isfinite(k)) and np.all(np.isfinite(h))):
        expected = "finite counts"
        raise InputError(expected, "nan or infinity", where="admitted, harmful")
    if np.any(h < 0) or np.any(h > k):
        wrong = int(np.flatnonzero((h < 0) | (h > k))[0])
        got = f"admitted {k.flat[wrong]:g}, harmful {h.flat[wrong]:g}"
        expected = "0 <= harmful <= admitted"
        raise InputError(expected, got, where=f"counts of entry {wrong}")
    return k, h


def hoeffding_radius(n: int, family_size: int, delta: float) -> float:
    """Half-width at which three averages of every candidate hold at once.

    Args:
        n: Records in the stage.
        family_size: Number of candidates that share ``delta``.
        delta: Total failure probability of the stage.

    Returns:
        ``sqrt(log(3 * family_size / delta) / (2 * n))``.

    Example:
        >>> round(hoeffding_radius(512, 20, 0.05), 10)
        0.0832099944
    """
    check_rate(delta, "delta")
    if n < 1 or family_size < 1:
        expected = "at least one record and one candidate"
        raise InputError(expected, f"n={n}, family_size={family_size}")
    return math.sqrt(math.log(3.0 * family_size / delta) / (2.0 * n))


def binomial_p_value(admitted: npt.ArrayLike, harmful: npt.ArrayLike, rho: float) -> Any:
    """Probability that a binomial with ``admitted`` trials at rate ``rho`` shows at most ``harmful`` hits.

    Args:
        admitted: Numbers of trials, broadcast against ``harmful``.
        harmful: Numbers of hits.
        rho: Hit rate under the null.

    Returns:
        Lower-tail probabilities, 1 where nothing was admitted.

    Example:
        >>> float(binomial_p_value(2, 0, 0.5))
        0.25
    """
    check_rate(rho, "rho")
    k, h = check_counts(admitted, harmful)
    inside = h < k
    tail = special.betainc(np.where(inside, k - h, 1.0), h + 1.0, 1.0 - rho)
    return np.where(inside, tail, 1.0)[()]


def clopper_pearson_upper(admitted: npt.ArrayLike, harmful: npt.ArrayLike, alpha: float) -> Any:
    """Exact upper confidence limit at level ``1 - alpha`` for a binomial rate.

    Args:
        admitted: Numbers of trials.
        harmful: Numbers of hits.
        alpha: Failure probability of each single limit.

    Returns:
        The largest rate not rejected; 1 where every trial was a hit or there was none.

    Example:
        >>> round(float(clopper_pearson_upper(60, 0, 0.05)), 6)
        0.048703
    """
    check_rate(alpha, "alpha")
    k, h = check_counts(admitted, harmful)
    inside = h < k
    limit = special.betaincinv(h + 1.0, np.where(inside, k - h, 1.0), 1.0 - alpha)
    return np.where(inside, limit, 1.0)[()]


def clopper_pearson_lower(admitted: npt.ArrayLike, harmful: npt.ArrayLike, alpha: float) -> Any:
    """Exact lower confidence limit at level ``1 - alpha`` for a binomial rate.

    Args:
        admitted: Numbers of trials.
        harmful: Numbers of hits.
        alpha: Failure probability of each single limit.

    Returns:
        The smallest rate not rejected; 0 where no trial was a hit.

    Example:
        >>> round(float(clopper_pearson_lower(60, 60, 0.05)), 6)
        0.951297
    """
    k, h = check_counts(admitted, harmful)
    return (1.0 - np.asarray(clopper_pearson_upper(k, k - h, alpha)))[()]


def poisson_binomial_rejects(
    admitted: npt.ArrayLike, harmful: npt.ArrayLike, rho: float, alpha: float
) -> Any:
    """Whether independent trials with unequal rates reject "the mean rate is at least ``rho``".

    The binomial tail bounds the tail of a sum of unequal Bernoulli variables only up to one below the mean
    (Hoeffding 1956), so a rejection asks for ``harmful <= admitted * rho - 1`` beside the p-value. No hit
    at all needs no such condition: a product of unequal survival rates is at most the power of their mean.
    At usual levels the extra condition binds only when ``rho`` is close to 1.

    Example:
        >>> poisson_binomial_rejects([36, 35], 0, 0.08, 0.05).tolist()
        [True, False]
    """
    check_rate(alpha, "alpha")
    k, h = check_counts(admitted, harmful)
    small = np.asarray(binomial_p_value(k, h, rho)) <= alpha
    return (small & ((h == 0) | (h <= k * rho - 1.0)) & (k > 0))[()]


def poisson_binomial_limit(admitted: npt.ArrayLike, harmful: npt.ArrayLike, alpha: float) -> Any:
    """Upper limit for the mean rate of independent trials with unequal rates.

    It inverts `poisson_binomial_rejects`: the Clopper-Pearson limit, but never below ``(harmful + 1) /
    admitted`` once there was a hit.

    Example:
        >>> float(poisson_binomial_limit(2, 2, 0.05))
        1.0
    """
    k, h = check_counts(admitted, harmful)
    exact = np.asarray(clopper_pearson_upper(k, h, alpha))
    floor = np.where(h > 0, (h + 1.0) / np.maximum(k, 1.0), 0.0)
    return np.minimum(np.maximum(exact, floor), 1.0)[()]
