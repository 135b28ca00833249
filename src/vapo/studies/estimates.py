"""Numbers with their 95 % intervals, from rows: means over seeds, rates of independent events, sampling errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from vapo.stats import binomial_rate
from vapo.studies.framework import Estimate, Paper

__all__ = ["Z95", "exact", "mean", "paper_mean", "paper_rate", "rate", "said"]

Z95 = 1.959963984540054
"""Half-width of a normal 95 % interval, in standard errors."""


def mean(
    values: Sequence[float | None], unit: str = "seeds", how: str = "", *, share: bool = False
) -> Estimate:
    """The mean of independent values with its t interval; undefined when one of them is.

    Args:
        values: One value a unit.
        unit: What a value is of.
        how: Where the values come from.
        share: Whether they are shares, so that the interval ends at 0 and 1.

    Example:
        >>> found = mean([0.1, 0.2, 0.3])
        >>> round(found.value, 6), round(found.low, 4), round(found.high, 4), found.n
        (0.2, -0.0484, 0.4484, 3)
        >>> mean([0.5]).low is None
        True
    """
    if not values or any(value is None for value in values):
        return Estimate(None, n=len(values), unit=unit, how=how)
    numbers = np.array(values, dtype=np.float64)
    centre = math.fsum(numbers.tolist()) / numbers.size
    if numbers.size == 1:
        return Estimate(centre, n=1, unit=unit, how=how)
    spread = math.sqrt(math.fsum(((numbers - centre) ** 2).tolist()) / (numbers.size - 1))
    reach = float(special.stdtrit(numbers.size - 1, 0.975)) * spread / math.sqrt(numbers.size)
    low, high = centre - reach, centre + reach
    if share:
        low, high = max(low, 0.0), min(high, 1.0)
    return Estimate(centre, low, high, int(numbers.size), unit, f"{how}; t interval" if how else "")


def rate(events: int, trials: int, unit: str = "records", how: str = "") -> Estimate:
    """The share of independent events with its Clopper-Pearson interval.

    Args:
        events: How often it happened.
        trials: How often it could have.
        unit: What a trial is.
        how: How both are counted.

    Example:
        >>> found = rate(3, 60, "stages")
        >>> found.value, round(found.low, 4), round(found.high, 4), found.n
        (0.05, 0.0104, 0.1392, 60)
    """
    found = binomial_rate(events, trials)
    return Estimate(
        found.rate, found.low, found.high, trials, unit, f"{how}; Clopper-Pearson interval" if how else ""
    )


def exact(value: float | None, n: int | None = None, unit: str = "", how: str = "") -> Estimate:
    """A number without sampling error.

    Args:
        value: The number.
        n: How many units it is a fact of.
        unit: What they are.
        how: How it follows from the rows.

    Example:
        >>> exact(0.0, 1280, "records", "largest `error`")
        Estimate(value=0.0, low=None, high=None, n=1280, unit='records', how='largest `error`')
    """
    return Estimate(value, None, None, n, unit, how)


def said(text: str, how: str = "") -> Estimate:
    """Words in the place of a number.

    Args:
        text: The words.
        how: How they follow from the rows.

    Example:
        >>> said("pass").value
        'pass'
    """
    return Estimate(text, how=how)


def paper_rate(value: float, n: int, decimals: int | None = 4) -> Paper:
    """A share that the paper prints, with the binomial sampling error at its number of records.

    Args:
        value: The share.
        n: Its denominator.
        decimals: Digits printed; None for a share that is worked out from whole counts.

    Example:
        >>> round(paper_rate(0.1391, 1280).half_width, 4), round(paper_rate(0, 60).half_width, 4)
        (0.0201, 0.0596)
    """
    found = binomial_rate(round(value * n), n)
    # The longer arm of the exact interval: at 0 and 1 the other has no length.
    return Paper(value, max(value - found.low, found.high - value), decimals)


def paper_mean(value: float, deviation: float, n: int, decimals: int | None = 4) -> Paper:
    """A mean that the paper prints, with the sampling error at its number of records.

    Args:
        value: The mean.
        deviation: Standard deviation of one record, here that of our own records.
        n: How many records.
        decimals: Digits printed.

    Example:
        >>> round(paper_mean(0.1421, 0.0610, 1280).half_width, 4)
        0.0033
    """
    return Paper(value, Z95 * deviation / math.sqrt(n), decimals)
