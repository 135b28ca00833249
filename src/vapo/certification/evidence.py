"""Evidence against "the admitted records do too much harm": constant bets and mixtures of them, in logs.

A bet of relative size ``eps`` in [0, 1] multiplies its capital by ``1 - eps`` on a harmful admitted record
and by ``1 + rho * eps / (1 - rho)`` on a harmless one. In the likelihood-ratio form it compares the rate
``rho * (1 - eps)`` with ``rho``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from vapo.certification.binomial import Floats, check_counts, check_rate
from vapo.errors import InputError

__all__ = [
    "MIXED_SHARE",
    "PLANNED_SHARE",
    "entropy_gap",
    "log_bet",
    "log_evidence_at",
    "log_sequential_evidence",
    "log_uniform_mixture",
    "planned_bet",
]

PLANNED_SHARE = 0.9
"""Weight of the bet that the plan chose; the rest is spread evenly over all bets."""

MIXED_SHARE = 0.1

_DROP = 46.0  # the integrand is cut where it has fallen to exp(-46) = 1e-20 of its peak
_OCTAVES, _HALVINGS = 64.0, 9  # windows are found to an eighth of an octave, down to 2**-64 of the room
_SERIES = tuple(2.0 / j for j in range(3, 23, 2))
_UNIT_NODES, _UNIT_WEIGHTS = np.polynomial.legendre.leggauss(200)
NODES: Floats = (_UNIT_NODES + 1.0) / 2.0
_FEW_UNIT_NODES, _FEW_UNIT_WEIGHTS = np.polynomial.legendre.leggauss(24)
_FEW_NODES: Floats = (_FEW_UNIT_NODES + 1.0) / 2.0
_FEW_LOG_WEIGHTS: Floats = np.log(_FEW_UNIT_WEIGHTS / 2.0)
LOG_WEIGHTS: Floats = np.log(_UNIT_WEIGHTS / 2.0)


def entropy_gap(x: npt.ArrayLike) -> Any:
    """Evaluate ``(1 + x) * log1p(x) - x`` without cancellation near zero.

    Args:
        x: Numbers of at least -1.

    Example:
        >>> float(entropy_gap(-1.0)), round(float(entropy_gap(1e-9)) * 1e18, 6)
        (1.0, 0.5)
    """
    value = np.asarray(x, dtype=np.float64)
    small = np.abs(value) < 0.25
    near = np.where(small, value, 0.0)
    # log1p(x) = 2 * atanh(x / (2 + x)); its first term takes the rest of the formula with it
    part = near / (2.0 + near)
    square = part * part
    series = np.zeros_like(value)
    for coefficient in reversed(_SERIES):
        series = series * square + coefficient
    series = near * part + (1.0 + near) * part * square * series
    far = np.where(small, 1.0, value)
    direct = special.xlog1py(1.0 + far, np.maximum(far, -1.0)) - far
    return np.where(small, series, direct)[()]


def binary_kl(first: npt.ArrayLike, second: npt.ArrayLike) -> Any:
    """Relative entropy between two coins, accurate when they almost agree.

    Args:
        first: Rates of the true coin.
        second: Rates of the other, strictly between 0 and 1.

    Example:
        >>> round(float(binary_kl(0.0, 0.5)), 6)
        0.693147
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return b * entropy_gap((a - b) / b) + (1.0 - b) * entropy_gap((b - a) / (1.0 - b))


def planned_bet(planned_admitted: npt.ArrayLike, rho: float, log_level: npt.ArrayLike) -> Any:
    """Size of the constant bet that certifies the highest harm at a planned number of admitted records.

    The number must come from the plan (declared records times the coverage seen on the design split). A bet
    tuned to the admitted count that the stage itself produced is not a bet placed beforehand.

    Args:
        planned_admitted: Expected admitted records.
        rho: Tolerated harm among admitted records.
        log_level: Log evidence that the planned bet alone has to reach.

    Returns:
        The relative size ``eps``; 1 (stake everything on no harm at all) where the plan is too small to
        certify.

    Example:
        >>> round(0.08 * (1 - float(planned_bet(200, 0.08, 2.995732273553991))), 10)
        0.0375935762
    """
    check_rate(rho, "rho")
    k0, level = np.broadcast_arrays(
        np.asarray(planned_admitted, dtype=np.float64), np.asarray(log_level, dtype=np.float64)
    )
    if not np.all(np.isfinite(k0)) or np.any(k0 < 0):
        expected = "finite numbers of at least 0"
        raise InputError(expected, "others", where="planned_admitted")
    if not np.all(level > 0):
        expected = "positive logarithms"
        raise InputError(expected, "others", where="log_level")
    hopeless = -k0 * math.log1p(-rho) <= level
    low, high = np.zeros_like(k0), np.ones_like(k0)
    for _ in range(110):
        middle = (low + high) / 2.0
        # p_hat is rho * (1 - eps) itself here, so this is k0 * kl(p, rho) in terms of eps
        gain = rho * np.asarray(entropy_gap(-middle))
        gain = gain + (1.0 - rho) * np.asarray(entropy_gap(rho * middle / (1.0 - rho)))
        short = k0 * gain < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(hopeless, 1.0, high)[()]


def log_bet(admitted: npt.ArrayLike, harmful: npt.ArrayLike, rho: float, eps: npt.ArrayLike) -> Any:
    """Log capital of one constant bet.

    Args:
        admitted: Admitted records.
        harmful: Harmful ones among them.
        rho: Tolerated harm.
        eps: Relative size of the bet in [0, 1].

    Example:
        >>> round(float(log_bet(1, 0, 0.2, 1.0)), 6), float(log_bet(1, 1, 0.2, 1.0))
        (0.223144, -inf)
    """
    k, h = check_counts(admitted, harmful)
    size = np.asarray(eps, dtype=np.float64)
    return (special.xlog1py(h, -size) + special.xlog1py(k - h, rho * size / (1.0 - rho)))[()]


def log_uniform_mixture(admitted: npt.ArrayLike, harmful: npt.ArrayLike, rho: float) -> Any:
    """Log of the capital of all bets ``eps`` in [0, 1] with equal stakes.

    Gauss-Legendre with 200 points on each side of the peak, between the places where the integrand is
    negligible. The integrand is measured from its peak through relative entropies, so nothing cancels at a
    billion records.

    Args:
        admitted: Admitted records.
        harmful: Harmful ones among them.
        rho: Tolerated harm.

    Example:
        >>> round(float(log_uniform_mixture(1000, 40, 0.08)), 10)
        11.4933702806
    """
    check_rate(rho, "rho")
    shape = np.broadcast(np.asarray(admitted), np.asarray(harmful)).shape
    k, h = (part.reshape(-1) for part in check_counts(admitted, harmful))
    out = np.zeros(k.size)
    inside = h < k * rho
    if np.any(inside):
        out[inside] = _inner_peak(k[inside], h[inside], rho)
    edge = ~inside & (k > 0)
    if np.any(edge):
        out[edge] = _edge_peak(k[edge], h[edge], rho)
    return out.reshape(shape)[()]


def log_sequential_evidence(
    admitted: npt.ArrayLike, harmful: npt.ArrayLike, rho: float, eps_star: npt.ArrayLike
) -> Any:
    """Log evidence of the sequential claim: the planned bet with most of the stake, all bets with the rest.

    Args:
        admitted: Admitted records so far.
        harmful: Harmful ones among them.
        rho: Tolerated harm.
        eps_star: The planned bet, fixed before the stage (`planned_bet`).

    Example:
        >>> round(float(log_sequential_evidence(0, 0, 0.08, 0.5)), 12) + 0.0
        0.0
    """
    planned = np.asarray(log_bet(admitted, harmful, rho, eps_star))
    spread = np.asarray(log_uniform_mixture(admitted, harmful, rho))
    return np.logaddexp(math.log(PLANNED_SHARE) + planned, math.log(MIXED_SHARE) + spread)[()]


def _inner_peak(k: Floats, h: Floats, rho: float) -> Floats:
    """Integrate where the peak lies strictly inside, at the observed rate ``h / k`` below ``rho``."""
    rate = h / k
    peak = k * np.asarray(binary_kl(rate, rho))
    parts = []
    for sign, room in ((1.0, rho - rate), (-1.0, rate)):
        width = _window(partial(_fall_beside, k, rate, sign), room)
        at = rate[:, None] + sign * width[:, None] * NODES
        exponent = -_fall(k[:, None], rate[:, None], at)
        with np.errstate(divide="ignore"):
            parts.append(special.logsumexp(exponent + LOG_WEIGHTS, axis=1) + np.log(width / rho))
    return np.asarray(peak + np.logaddexp(parts[0], parts[1]), dtype=np.float64)


def _window(fall: Callable[[Floats], Floats], room: Floats) -> Floats:
    """Distance from the peak beyond which the integrand is negligible, at most ``room``."""
    near, far = np.full_like(room, _OCTAVES), np.zeros_like(room)
    for _ in range(_HALVINGS):
        middle = (near + far) / 2.0
        deep = fall(room * np.exp2(-middle)) > _DROP
        near, far = np.where(deep, near, middle), np.where(deep, middle, far)
    return np.asarray(room * np.exp2(-far), dtype=np.float64)


def _fall(k: Floats, rate: Floats, at: Floats) -> Floats:
    """How far the log integrand at ``at`` lies below its peak at ``rate``."""
    safe = np.where(at > 0, at, 0.5)
    fall = k * np.asarray(binary_kl(rate, safe))
    return np.where(at > 0, fall, np.where(rate > 0, np.inf, 0.0))


def _fall_beside(k: Floats, rate: Floats, sign: float, distance: Floats) -> Floats:
    return _fall(k, rate, rate + sign * distance)


def _edge_peak(k: Floats, h: Floats, rho: float) -> Floats:
    """Integrate where the observed rate is at least ``rho``: the smallest bet is the best one."""
    width = _window(lambda eps: -np.asarray(log_bet(k, h, rho, eps)), np.ones_like(k))
    exponent = np.asarray(log_bet(k[:, None], h[:, None], rho, width[:, None] * NODES))
    return np.asarray(special.logsumexp(exponent + LOG_WEIGHTS, axis=1) + np.log(width), dtype=np.float64)


def log_evidence_at(
    values: Floats,
    counts: Floats,
    total: Floats,
    scale: float,
    eps_star: Floats,
    mean: npt.ArrayLike,
    *,
    rough: bool = False,
) -> Floats:
    """Log evidence that the running mean of bounded variables lies below ``mean``, one row a candidate.

    The capital of a bet is the product of ``1 - scale * eps * value`` over all variables, divided by
    ``(1 - scale * eps * mean)`` once for each of them. As a function of ``eps`` it has one peak whatever
    ``mean`` is: in the coordinate ``eps / (1 - scale * eps * mean)`` its logarithm is concave.

    Args:
        values: Distinct non-zero values, ``(candidates, m)``; at most ``1 / scale``.
        counts: How often each occurs, same shape; 0 pads.
        total: Number of variables, zeros included.
        scale: Largest stake per unit of value.
        eps_star: Planned bets.
        mean: Hypothetical means, strictly below ``1 / scale``.
        rough: Whether a few digits are enough, for a first guess at a fifth of the price.

    Example:
        >>> one, zero = np.ones(1), np.zeros((1, 1))
        >>> round(float(log_evidence_at(zero, zero, one, 1.0, one / 2, 0.0)[0]), 12) + 0.0
        0.0
    """
    shift = np.broadcast_to(np.asarray(mean, dtype=np.float64), total.shape)

    def height(eps: Floats) -> Floats:
        sized = scale * eps
        gains = special.xlog1py(counts[:, None, :], -sized[:, :, None] * values[:, None, :]).sum(axis=2)
        return np.asarray(gains - total[:, None] * np.log1p(-sized * shift[:, None]), dtype=np.float64)

    low, high = np.zeros_like(total), np.ones_like(total)
    for _ in range(
        20 if rough else 50
    ):  # one halving more and the peak could round to the bet that loses everything
        middle = (low + high) / 2.0
        sized = scale * middle
        pull = (counts * values / (1.0 - sized[:, None] * values)).sum(axis=1)
        rising = total * shift / (1.0 - sized * shift) > pull
        low, high = np.where(rising, middle, low), np.where(rising, high, middle)
    peak = low
    top = height(peak[:, None])[:, 0]

    def below_top(sign: float, distance: Floats) -> Floats:
        return top - height((peak + sign * distance)[:, None])[:, 0]

    parts = []
    nodes, log_weights = (_FEW_NODES, _FEW_LOG_WEIGHTS) if rough else (NODES, LOG_WEIGHTS)
    for sign, room in ((-1.0, peak), (1.0, 1.0 - peak)):
        width = _window(partial(below_top, sign), room)
        # squared nodes crowd at the peak: a few records against a high mean leave it narrow, with heavy tails
        exponent = height(peak[:, None] + sign * width[:, None] * nodes**2) - top[:, None]
        with np.errstate(divide="ignore"):
            parts.append(
                special.logsumexp(exponent + log_weights + np.log(2.0 * nodes), axis=1) + np.log(width)
            )
    spread = top + np.logaddexp(parts[0], parts[1])
    planned = height(eps_star[:, None])[:, 0]
    return np.asarray(
        np.logaddexp(math.log(PLANNED_SHARE) + planned, math.log(MIXED_SHARE) + spread), dtype=np.float64
    )
