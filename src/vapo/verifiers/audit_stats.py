"""Statistics that an audit needs beside those of `vapo.stats`: intervals that know of groups, AUROC, calibration.

Items of one question go right and wrong together. An interval that took them for independent would be too narrow, so
every interval here is as wide as the spread between groups asks for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import stats as scipy_stats

from vapo._internal.arrays import floats, keys, mask
from vapo.certification.binomial import clopper_pearson_lower, clopper_pearson_upper

__all__ = [
    "Bin",
    "Calibration",
    "ClusteredRate",
    "Estimate",
    "auroc",
    "calibration",
    "clustered_rate",
    "correlation",
    "overlap",
]

Floats = npt.NDArray[np.float64]


class ClusteredRate(NamedTuple):
    """A share of items with an interval that knows of their groups."""

    events: int
    trials: int
    rate: float | None
    low: float
    high: float
    groups: int
    design_effect: float
    """How many times more items this interval needs than one over independent items would."""


class Estimate(NamedTuple):
    """A number with its interval; all three are none where it has no value."""

    value: float | None
    low: float | None
    high: float | None


FEWEST_GROUPS = 5
"""A correlation of errors has an interval if each verifier errs, and does not, in so many groups."""

NOTHING = Estimate(None, None, None)


class Bin(NamedTuple):
    """One row of a reliability table."""

    low: float
    high: float
    items: int
    said: float
    """Mean score."""
    right: float
    """Share of right answers."""


class Calibration(NamedTuple):
    """Whether a graded score means what it says."""

    items: int
    brier: float | None
    """Mean squared distance to the truth: 0 at best, a quarter for a constant one half."""
    auroc: Estimate
    bins: tuple[Bin, ...]


def clustered_rate(bits: npt.ArrayLike, group: npt.ArrayLike, *, level: float = 0.95) -> ClusteredRate:
    """A share with a Clopper-Pearson interval over as many items as it is worth, given how groups differ.

    The items are divided by the design effect: how much more the share varies over groups than it would over
    independent items. Where no variation is seen (no event, or nothing else), a group counts as one item.

    Args:
        bits: Whether it happened, one an item.
        group: The group of each item.
        level: Confidence of the two-sided interval.

    Example:
        >>> found = clustered_rate([1, 1, 0, 0, 0, 0, 0, 0], list("aabbccdd"))
        >>> found.rate, round(found.design_effect, 2), round(found.high, 3)
        (0.25, 2.67, 0.868)
    """
    happened = mask("bits", bits)
    _, of = np.unique(keys("group", group, length=happened.size), return_inverse=True)
    items, events = happened.size, int(np.count_nonzero(happened))
    if not items:
        return ClusteredRate(0, 0, None, 0.0, 1.0, 0, 1.0)
    sizes, share = np.bincount(of), events / items
    groups = sizes.size
    if 0 < events < items and groups > 1:
        between = np.bincount(of, happened) - share * sizes
        variance = groups / (groups - 1) * math.fsum((between**2).tolist())
        effect = max(1.0, variance / (items * share * (1.0 - share)))
    else:
        effect = items / groups
    worth, tail = items / effect, (1.0 - level) / 2.0
    low = float(clopper_pearson_lower(worth, share * worth, tail))
    high = float(clopper_pearson_upper(worth, share * worth, tail))
    return ClusteredRate(events, items, share, low, high, groups, effect)


def _spread(influence: Floats, group: npt.NDArray[np.int_]) -> float:
    """Standard error of an estimate, from what each item adds to it, summed by group."""
    sums = np.bincount(group, influence)
    return math.sqrt(sums.size / (sums.size - 1) * math.fsum((sums**2).tolist()))


def _limits(value: float, error: float, worth: int, level: float) -> tuple[float, float]:
    """Limits around an AUROC or a correlation, laid out on (-1, 1).

    On the scale of Fisher's z, where they cannot leave their range, and with Student's quantile for as many groups as
    there are on the rarer side: normal limits around the value itself miss up to 25 % of the time where these are few.
    """
    if abs(value) >= 1.0:
        return value, value
    half = float(scipy_stats.t.ppf((1.0 + level) / 2.0, max(1, worth - 1))) * error / (1.0 - value**2)
    return math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)


def _groups(of: npt.NDArray[np.int_], items: npt.NDArray[np.bool_]) -> int:
    """In how many groups some items are."""
    return int(np.unique(of[items]).size)


def auroc(
    score: npt.ArrayLike, positive: npt.ArrayLike, group: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """How often a positive item scores above a negative one, ties counting half; the interval knows of groups.

    Args:
        score: One number an item.
        positive: Which items should score high.
        group: The group of each item.
        level: Confidence of the two-sided interval (DeLong's components summed by group).

    Example:
        >>> auroc([0.9, 0.8, 0.4, 0.2], [True, False, True, False], list("abcd")).value
        0.75
        >>> auroc([0.9, 0.8], [True, True], list("ab")).value is None
        True
    """
    numbers = floats("score", score)
    wanted = mask("positive", positive, length=numbers.size)
    _, of = np.unique(keys("group", group, length=numbers.size), return_inverse=True)
    high, low = np.sort(numbers[wanted]), np.sort(numbers[~wanted])
    if not high.size or not low.size:
        return NOTHING
    # The share of the other side that each item beats, or is beaten by.
    above = (np.searchsorted(low, numbers, "left") + np.searchsorted(low, numbers, "right")) / (2 * low.size)
    below = 1.0 - (np.searchsorted(high, numbers, "left") + np.searchsorted(high, numbers, "right")) / (
        2 * high.size
    )
    value = math.fsum(above[wanted].tolist()) / high.size
    influence = np.where(wanted, (above - value) / high.size, (below - value) / low.size)
    groups = int(of.max()) + 1
    if groups < 2:
        return Estimate(value, None, None)
    if value in (0.0, 1.0):
        # A score that separates a few items without a fault leaves no spread to judge by. So many pairs of a positive
        # and a negative item from different groups are there, and this is what it says that all were won, or lost.
        pairs = min(_groups(of, wanted), _groups(of, ~wanted), groups // 2)
        limit = float(clopper_pearson_lower(pairs, pairs, (1.0 - level) / 2.0))
        return Estimate(value, limit, 1.0) if value else Estimate(value, 0.0, 1.0 - limit)
    rarer = min(_groups(of, wanted), _groups(of, ~wanted))
    least, most = _limits(2.0 * value - 1.0, 2.0 * _spread(influence, of), rarer, level)
    return Estimate(value, (1.0 + least) / 2.0, (1.0 + most) / 2.0)


def correlation(
    one: npt.ArrayLike, two: npt.ArrayLike, group: npt.ArrayLike, *, level: float = 0.95
) -> Estimate:
    """Pearson's correlation of two columns of bits; the interval knows of groups.

    There is no interval where one of the columns hardly varies: from one or two events it would be narrow and mean
    nothing.

    Args:
        one: Truth values.
        two: Truth values of the same items.
        group: The group of each item.
        level: Confidence of the two-sided interval (from the estimate's influence function).

    Example:
        >>> correlation([1, 1, 0, 0], [1, 0, 0, 0], list("abcd")).value.__round__(3)
        0.577
        >>> correlation([1, 1], [1, 0], list("ab")).value is None
        True
    """
    first = mask("one", one).astype(np.float64)
    second = mask("two", two, length=first.size).astype(np.float64)
    _, of = np.unique(keys("group", group, length=first.size), return_inverse=True)
    if not first.size or first.min() == first.max() or second.min() == second.max():
        return NOTHING
    x = (first - first.mean()) / first.std()
    y = (second - second.mean()) / second.std()
    value = max(-1.0, min(1.0, math.fsum((x * y).tolist()) / first.size))
    sides = [side for bits in (first > 0, second > 0) for side in (bits, ~bits)]
    rarer = min(_groups(of, side) for side in sides)
    if rarer < FEWEST_GROUPS:
        return Estimate(value, None, None)
    influence = (x * y - value * (x**2 + y**2) / 2.0) / first.size
    low, high = _limits(value, _spread(influence, of), rarer, level)
    # Where no event is joint, or each of the rarer kind, the spread says nothing about how near that is to chance.
    events = min(_groups(of, first > 0), _groups(of, second > 0))
    all_joint = float(clopper_pearson_lower(events, events, (1.0 - level) / 2.0))
    rates = sorted((float(first.mean()), float(second.mean())))
    joint = float((first * second).mean())
    if joint == 0.0:
        high = max(high, _phi(1.0 - all_joint, *rates))
    if joint == rates[0]:
        low = min(low, _phi(all_joint, *rates))
    return Estimate(value, low, high)


def overlap(found: Estimate, one: npt.ArrayLike, two: npt.ArrayLike) -> Estimate:
    """A correlation of bits as a share of the largest one that their rates allow.

    It says how many events of the rarer kind are also of the other: 0 for as many as by chance, 1 for all of them. A
    correlation cannot say so, since that of a rare and a frequent event is small even where one implies the other.

    Args:
        found: The correlation of both columns. What is negative in it stays as it is.
        one: Truth values.
        two: Truth values of the same items.

    Example:
        >>> one, two = [1, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]
        >>> together = correlation(one, two, range(8))
        >>> round(together.value, 3), round(overlap(together, one, two).value, 3)
        (0.378, 1.0)
    """
    if found.value is None:
        return NOTHING
    rare, common = sorted((float(mask("one", one).mean()), float(mask("two", two).mean())))
    most = _phi(1.0, rare, common)

    def scaled(value: float | None) -> float | None:
        return value if value is None or value <= 0.0 else min(1.0, value / most)

    return Estimate(scaled(found.value), scaled(found.low), scaled(found.high))


def _phi(share: float, rare: float, common: float) -> float:
    """The correlation of two events if so large a share of the rarer one's is joint."""
    spread = math.sqrt(rare * (1.0 - rare) * common * (1.0 - common))
    return min(1.0, rare * (share - common) / spread)


def calibration(
    score: npt.ArrayLike, right: npt.ArrayLike, group: npt.ArrayLike, *, bins: int = 10, level: float = 0.95
) -> Calibration:
    """Brier score, AUROC and reliability table of a score in [0, 1] that says how likely an answer is right.

    Args:
        score: One number an item.
        right: Whether the answer is right.
        group: The group of each item.
        bins: Equal parts of [0, 1]; those without items are left out.
        level: Confidence of the interval of the AUROC.

    Example:
        >>> found = calibration([0.9, 0.8, 0.2, 0.25], [True, True, False, True], list("abcd"), bins=2)
        >>> round(found.brier, 4), [(bin.items, round(bin.said, 3), bin.right) for bin in found.bins]
        (0.1631, [(2, 0.225, 0.5), (2, 0.85, 1.0)])
    """
    numbers = floats("score", score, low=0.0, high=1.0)
    truth = mask("right", right, length=numbers.size)
    if not numbers.size:
        return Calibration(0, None, NOTHING, ())
    place = np.minimum((numbers * bins).astype(np.int64), bins - 1)
    table = []
    for number in np.unique(place).tolist():
        here = place == number
        said, share = float(numbers[here].mean()), float(truth[here].mean())
        table.append(Bin(number / bins, (number + 1) / bins, int(here.sum()), said, share))
    brier = math.fsum(((numbers - truth) ** 2).tolist()) / numbers.size
    return Calibration(numbers.size, brier, auroc(numbers, truth, group, level=level), tuple(table))
