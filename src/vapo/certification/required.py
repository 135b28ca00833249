"""How many records a certificate needs, before anything is labelled."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import special

from vapo.certification.binomial import Floats, check_rate
from vapo.certification.evidence import PLANNED_SHARE, binary_kl, log_sequential_evidence, planned_bet
from vapo.certification.power import frozen_power, log_choose, sequential_power
from vapo.errors import InputError

__all__ = [
    "LARGEST_STAGE",
    "least_admitted",
    "records_for_frozen",
    "records_for_group_bets",
    "records_for_hoeffding",
    "records_for_sequential",
]

LARGEST_STAGE = 10**10
"""Plans that need more records than this come back as None."""


def records_for_frozen(
    rho: float, risk: float, coverage: float, alpha: float, power: float = 0.5
) -> int | None:
    """Smallest stage at which a candidate passes the exact binomial test with the wanted probability.

    Args:
        rho: Tolerated harm.
        risk: Expected harm among admitted records.
        coverage: Expected coverage.
        alpha: Level of the test: ``delta`` over the number of chains.
        power: Wanted probability of a certificate.

    Returns:
        Number of records; None when no stage of any practical size would do.

    Example:
        >>> records_for_frozen(0.08, 0.0697, 0.4125, 0.05)
        4604
    """
    _check(rho, risk, coverage, alpha, power)
    return _smallest(lambda n: frozen_power(n, coverage, risk, rho, alpha), rho, risk, coverage, alpha, power)


def records_for_sequential(
    rho: float, risk: float, coverage: float, alpha: float, power: float = 0.5
) -> int | None:
    """Smallest stage at which the mixture of bets certifies a candidate's harm with the wanted probability.

    Args:
        rho: Tolerated harm.
        risk: Expected harm among admitted records.
        coverage: Expected coverage.
        alpha: Level at which the candidate is tested for harm.
        power: Wanted probability of a certificate.

    Returns:
        Number of records; None when no stage of any practical size would do.

    Example:
        >>> records_for_sequential(0.08, 0.04, 0.4125, 0.05)
        544
    """
    _check(rho, risk, coverage, alpha, power)
    return _smallest(
        lambda n: sequential_power(n, coverage, risk, rho, alpha), rho, risk, coverage, alpha, power
    )


def records_for_hoeffding(
    rho: float,
    risk: float,
    coverage: float,
    delta: float,
    family_size: int,
    power: float = 0.5,
    *,
    design_effect: float = 1.0,
) -> int | None:
    """Records at which the radius fits into the room below zero, with normal fluctuations.

    Args:
        rho: Tolerated harm.
        risk: Expected harm among admitted records.
        coverage: Expected coverage.
        delta: Failure probability of the stage.
        family_size: Candidates that share it.
        power: Wanted probability of a certificate.
        design_effect: Variance of the averages over that of independent records.

    Returns:
        Number of records; None when the expected harm leaves no room.

    Example:
        >>> records_for_hoeffding(0.08, 0.0697, 0.4125, 0.05, 20)
        196381
    """
    _check(rho, risk, coverage, delta, power)
    gap = (rho - risk) * coverage
    if gap <= 0:
        return None
    variance = coverage * (risk * (1 - rho) ** 2 + (1 - risk) * rho**2) - gap**2
    deviation = math.sqrt(design_effect * variance)
    reach = math.sqrt(math.log(3.0 * family_size / delta) / 2.0) + float(special.ndtri(power)) * deviation
    needed = math.ceil((reach / gap) ** 2)
    return needed if needed <= LARGEST_STAGE else None


def records_for_group_bets(
    rho: float,
    risk: float,
    coverage: float,
    alpha: float,
    power: float = 0.5,
    *,
    group_size: int,
    icc: float,
    stake: Callable[[float, float], float],
    log_loss: float = 0.0,
) -> int | None:
    """Records at which a constant bet on whole groups certifies, by the normal law of its log capital.

    Harm inside a group follows a beta-binomial law with correlation ``icc``; each record of a group is
    admitted independently with probability ``coverage``.

    Args:
        rho: Tolerated harm.
        risk: Expected harm among admitted records.
        coverage: Expected coverage.
        alpha: Level of the test.
        power: Wanted probability of a certificate.
        group_size: Records of a group; also the cap by which group values are divided.
        icc: Correlation of harm inside a group.
        stake: The bet as a function of the number of groups and the mean squared share of admitted records.
        log_loss: Log evidence that the mixture costs.

    Returns:
        Number of records; None when no stage of any practical size would do.

    Example:
        >>> def half(groups, square):
        ...     return 0.5
        >>> records_for_group_bets(0.08, 0.04, 0.4, 0.05, group_size=4, icc=0.2, stake=half) > 500
        True
    """
    _check(rho, risk, coverage, alpha, power)
    if risk >= rho:
        return None
    shares, excess, law = _group_law(group_size, coverage, risk, rho, icc)
    square = float((law * shares**2).sum())
    level, z = -math.log(alpha) + log_loss, float(special.ndtri(power))

    def enough(groups: float) -> bool:
        gains = np.log1p(-np.minimum(stake(groups, square) * excess, 1.0 - 1e-12))
        mean = float((law * gains).sum())
        spread = math.sqrt(max(float((law * gains**2).sum()) - mean**2, 0.0))
        return groups * mean - z * math.sqrt(groups) * spread >= level

    groups = _bisect(enough, 1)
    return None if groups is None else groups * group_size


def least_admitted(rho: float, alpha: float, *, sequential: bool = False) -> int:
    """Admitted records below which one candidate cannot pass its test for harm, even if none of them is harmful.

    Args:
        rho: Tolerated harm.
        alpha: Level of the test.
        sequential: Whether the test is the mixture of bets, tuned to just these records; the exact one otherwise.

    Example:
        >>> least_admitted(0.08, 0.05), least_admitted(0.08, 0.05, sequential=True)
        (36, 37)
    """
    check_rate(rho, "rho")
    check_rate(alpha, "level")
    if not sequential:
        return max(math.ceil(math.log(alpha) / math.log1p(-rho) - 1e-9), 1)
    level = -math.log(alpha)

    def enough(admitted: float) -> bool:
        bet = planned_bet(admitted, rho, level - math.log(PLANNED_SHARE))
        return float(np.asarray(log_sequential_evidence(admitted, 0.0, rho, bet))) >= level

    return _bisect(enough, 1) or LARGEST_STAGE


def _group_law(
    size: int, coverage: float, risk: float, rho: float, icc: float
) -> tuple[Floats, Floats, Floats]:
    """Every outcome (admitted, harmful) of one group: share admitted, value of the bet, probability."""
    pairs = np.array([(a, h) for a in range(size + 1) for h in range(a + 1)], dtype=np.float64)
    a, h = pairs[:, 0], pairs[:, 1]
    chosen = np.exp(
        log_choose(np.full_like(a, float(size)), a)
        + special.xlogy(a, coverage)
        + special.xlog1py(size - a, -coverage)
    )
    if icc <= 0:
        harm = np.exp(log_choose(a, h) + special.xlogy(h, risk) + special.xlog1py(a - h, -risk))
    elif icc >= 1 or risk in (0.0, 1.0):
        harm = np.where(a == 0, 1.0, np.where(h == a, risk, np.where(h == 0, 1.0 - risk, 0.0)))
    else:
        strength = 1.0 / icc - 1.0
        first, second = risk * strength, (1.0 - risk) * strength
        harm = np.exp(
            log_choose(a, h) + special.betaln(h + first, a - h + second) - special.betaln(first, second)
        )
    return a / size, (h - rho * a) / size, np.asarray(chosen * harm, dtype=np.float64)


def _smallest(
    power_at: Callable[[int], float], rho: float, risk: float, coverage: float, alpha: float, power: float
) -> int | None:
    if risk >= rho:
        return None
    wanted = float(special.ndtri(power))
    growth = float(binary_kl(risk, rho))
    swing = math.sqrt(risk * (1 - risk)) * (special.logit(rho) - special.logit(risk)) if risk > 0 else 0.0
    # growth * k - wanted * swing * sqrt(k) = log(1 / alpha) is a first guess for the admitted count k
    root = wanted * swing + math.sqrt(max((wanted * swing) ** 2 - 4.0 * growth * math.log(alpha), 0.0))
    guess = (root / (2.0 * growth)) ** 2 / coverage
    return None if guess > LARGEST_STAGE else _cross(power_at, wanted, max(round(guess), 1))


def _cross(power_at: Callable[[int], float], wanted: float, guess: int) -> int | None:
    """Smallest integer whose power is enough; the probit of power is almost linear in the square root."""

    def surplus(n: int) -> float:
        return float(special.ndtri(min(max(power_at(n), 1e-15), 1.0 - 1e-15))) - wanted

    low, low_value, high, high_value = 0, -math.inf, guess, surplus(guess)
    while high_value < 0:
        low, low_value, high = high, high_value, math.ceil(high * 1.08) + 1
        if high > LARGEST_STAGE:
            return None
        high_value = surplus(high)
    step = max(high // 12, 1)
    while low_value == -math.inf and high > 1:
        trial = max(high - step, 1)
        value = surplus(trial)
        if value < 0:
            low, low_value = trial, value
        else:
            high, high_value, step = trial, value, step * 2
        if trial == 1:
            break
    aims = 0
    while high - low > 1:
        trial = (low + high) // 2
        if low > 0 and aims < 12:
            share = low_value / (low_value - high_value)
            aim = (math.sqrt(low) + share * (math.sqrt(high) - math.sqrt(low))) ** 2
            # aim a little past the crossing, on the side that is farther away, so that both ends close in
            slack = max((high - low) / 64.0, 1.0)
            aim += -slack if aim - low > high - aim else slack
            trial = min(max(round(aim), low + 1), high - 1)
            aims += 1
        value = surplus(trial)
        if value < 0:
            low, low_value = trial, value
        else:
            high, high_value = trial, value
    return high


def _bisect(enough: Callable[[float], bool], start: int) -> int | None:
    """Smallest integer that is enough, for a condition that stays true once it is."""
    low, high = 0, start
    while not enough(high):
        low, high = high, high * 2
        if high > LARGEST_STAGE:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _check(rho: float, risk: float, coverage: float, alpha: float, power: float) -> None:
    check_rate(rho, "rho")
    check_rate(alpha, "level")
    check_rate(power, "power")
    if not 0.0 <= risk <= 1.0:
        expected = "a number between 0 and 1"
        raise InputError(expected, repr(risk), where="risk")
    if not 0.0 < coverage <= 1.0:
        expected = "a number in (0, 1]"
        raise InputError(expected, repr(coverage), where="coverage")
