"""The bounds once more, slowly and obviously: loops, sums over all outcomes, adaptive quadrature."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from scipy import integrate, optimize


def binomial_tail(k: int, h: int, rho: float) -> float:
    """Chance of at most ``h`` hits in ``k`` trials, term by term."""
    return math.fsum(math.comb(k, j) * rho**j * (1.0 - rho) ** (k - j) for j in range(h + 1))


def poisson_binomial(rates: Sequence[float]) -> list[float]:
    """Law of the number of hits, by going through every one of the 2**n outcomes."""
    law = [0.0] * (len(rates) + 1)
    for outcome in itertools.product((0, 1), repeat=len(rates)):
        chance = math.prod(rate if hit else 1.0 - rate for hit, rate in zip(outcome, rates, strict=True))
        law[sum(outcome)] += chance
    return law


def upper_limit(k: int, h: int, alpha: float) -> float:
    """Rate at which the lower tail falls to ``alpha``."""
    if h == k:
        return 1.0
    return float(optimize.brentq(lambda rate: binomial_tail(k, h, rate) - alpha, 0.0, 1.0, xtol=1e-14))


def bet_size(k0: float, rho: float, log_level: float) -> float:
    """The planned bet from its definition with relative entropies."""
    if -k0 * math.log(1.0 - rho) <= log_level:
        return 1.0

    def surplus(p: float) -> float:
        return k0 * (p * math.log(p / rho) + (1.0 - p) * math.log((1.0 - p) / (1.0 - rho))) - log_level

    return 1.0 - float(optimize.brentq(surplus, 1e-300, rho * (1.0 - 1e-9), xtol=1e-16)) / rho


def capital(excess: Sequence[float], stake: float, mean: float = 0.0) -> float:
    """Log capital of one constant bet, record by record."""
    total = 0.0
    for value in excess:
        factor = 1.0 - stake * value
        if factor <= 0:
            return -math.inf
        total += math.log(factor) - math.log(1.0 - stake * mean)
    return total


def log_integral(height: Callable[[float], float]) -> float:
    """Log of the integral of ``exp(height)`` over [0, 1] for a function with a single peak."""
    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = 0.0, 1.0
    for _ in range(200):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if height(left) < height(right):
            low = left
        else:
            high = right
    peak = max((0.0, (low + high) / 2.0, 1.0), key=height)
    top = height(peak)
    total = 0.0
    for end in (0.0, 1.0):
        # pieces that double in length away from the peak: some of them always have the width of the peak
        near = 0.0
        for power in range(-48, 1):
            far = 2.0**power
            a, b = peak + (end - peak) * near, peak + (end - peak) * far
            if a != b:
                # full_output keeps rounding noise at the last digits from becoming a warning
                piece = integrate.quad(
                    lambda eps: math.exp(min(height(eps) - top, 50.0)),
                    a,
                    b,
                    epsabs=1e-300,
                    epsrel=1e-10,
                    full_output=1,
                )[0]
                total += abs(piece)
            near = far
            if height(b) - top < -60.0:
                break
    return top + math.log(total)


def log_mixture(k: int, h: int, rho: float) -> float:
    """All bets with equal stakes."""

    def height(eps: float) -> float:
        lost = h * math.log1p(-eps) if h and eps < 1.0 else (-1e300 if h else 0.0)
        return lost + (k - h) * math.log1p(rho * eps / (1.0 - rho))

    return log_integral(height)


def log_evidence(excess: Sequence[float], mean: float, scale: float, eps_star: float) -> float:
    """The planned bet with 0.9 of the stake and all bets with 0.1, record by record, against ``mean``."""

    def height(eps: float) -> float:
        return max(capital(excess, scale * eps, mean), -1e300)

    parts = math.log(0.9) + height(eps_star), math.log(0.1) + log_integral(height)
    top = max(parts)
    return top + math.log(sum(math.exp(part - top) for part in parts))


def evidence_limit(
    excess: Sequence[float], scale: float, eps_star: float, alpha: float, floor: float
) -> float:
    """Bisect for the mean at which the evidence reaches ``1 / alpha``."""
    low, high = floor, (1.0 - 1e-9) / scale
    if log_evidence(excess, high, scale, eps_star) < -math.log(alpha):
        return 1.0 / scale
    for _ in range(45):
        middle = (low + high) / 2.0
        if log_evidence(excess, middle, scale, eps_star) < -math.log(alpha):
            low = middle
        else:
            high = middle
    return high


def frozen_passes(k: int, h: int, rho: float, alpha: float) -> bool:
    """One exact test of a frozen candidate with one admitted record a group."""
    return k > 0 and binomial_tail(k, h, rho) <= alpha and (h == 0 or h <= k * rho - 1.0)


def frozen_selection(
    counts: Sequence[tuple[int, int, int]],
    records: int,
    chains: Sequence[Sequence[int]],
    rho: float,
    c_min: float,
    b_max: float,
    delta: float,
) -> tuple[set[int], int | None]:
    """Walk down every chain; counts are (admitted, harmful, appealed)."""
    alpha = delta / len(chains)
    passed: set[int] = set()
    for chain in chains:
        for index in chain:
            k, h, a = counts[index]
            if k / records < c_min or a / records > b_max or (1.0 - rho) ** k > alpha:
                continue
            if not frozen_passes(k, h, rho, alpha):
                break
            passed.add(index)
    best: int | None = None
    for index in sorted(passed):
        if best is None or (-counts[index][0], counts[index][2]) < (-counts[best][0], counts[best][2]):
            best = index
    return passed, best
