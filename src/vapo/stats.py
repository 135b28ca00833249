"""Uncertainty of reported numbers: paired bootstrap, binomial intervals, and how verifiers err together.

These describe; they certify nothing. Whatever has no value is `None`, with its counts beside it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from vapo._internal.arrays import floats, keys, mask, signs
from vapo.errors import InputError

__all__ = [
    "PairedInterval",
    "Rate",
    "VerifierErrors",
    "binomial_rate",
    "intraclass_correlation",
    "paired_bootstrap",
    "verifier_errors",
    "violation_rate",
]

# Question draws held in memory at once. Fixed, since it also fixes the order in which the stream is read.
_DRAWS = 2_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """A count of events with its exact binomial interval.

    Attributes:
        events: How often it happened.
        trials: How often it could have.
        rate: Their ratio; none without trials.
        low: Lower Clopper-Pearson limit; 0 without trials.
        high: Upper Clopper-Pearson limit; 1 without trials.
        level: Confidence that the interval carries, half of the error on each side.
    """

    events: int
    trials: int
    rate: float | None
    low: float
    high: float
    level: float


def binomial_rate(events: int, trials: int, *, level: float = 0.95) -> Rate:
    """A rate of independent events with its Clopper-Pearson interval.

    Args:
        events: How often it happened.
        trials: How often it could have.
        level: Confidence of the two-sided interval.

    Example:
        >>> found = binomial_rate(3, 60)
        >>> found.rate, round(found.low, 4), round(found.high, 4)
        (0.05, 0.0104, 0.1392)
    """
    whole = all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in (events, trials))
    if not (whole and 0 <= events <= trials):
        expected = "whole numbers 0 <= events <= trials"
        raise InputError(expected, f"{events} of {trials}", where="arguments 'events', 'trials'")
    tail = (1.0 - _level(level)) / 2.0
    low = float(special.betaincinv(events, trials - events + 1, tail)) if events else 0.0
    high = float(special.betainccinv(events + 1, trials - events, tail)) if events < trials else 1.0
    return Rate(int(events), int(trials), events / trials if trials else None, low, high, level)


def violation_rate(violated: npt.ArrayLike, *, level: float = 0.95) -> Rate:
    """How often independent stages broke what they promised.

    The stage is the trial: its records share a budget, and their number says nothing about the interval.

    Args:
        violated: One truth value a stage.
        level: Confidence of the two-sided interval.

    Example:
        >>> violation_rate([False] * 57 + [True] * 3).rate
        0.05
    """
    stages = mask("violated", violated)
    return binomial_rate(int(np.count_nonzero(stages)), stages.size, level=level)


@dataclass(frozen=True, slots=True)
class PairedInterval:
    """The difference between two arms on the same questions.

    Attributes:
        estimate: Treatment minus control on all data; none when either arm's denominator is 0.
        low: Lower percentile limit; none when it falls on resamples without a value.
        high: Upper percentile limit; none when it falls on resamples without a value.
        level: Confidence of the two-sided interval.
        resamples: How many were drawn.
        undefined: How many of them had no value.
        seeds: Distinct seeds, the outer unit.
        questions: Distinct questions within seeds, the inner unit.
        per_seed: The difference within each seed, by seed.
    """

    estimate: float | None
    low: float | None
    high: float | None
    level: float
    resamples: int
    undefined: int
    seeds: int
    questions: int
    per_seed: dict[str, float | None]


def paired_bootstrap(
    treatment: npt.ArrayLike,
    control: npt.ArrayLike,
    *,
    seed: npt.ArrayLike,
    question: npt.ArrayLike,
    rng: np.random.Generator,
    treatment_weight: npt.ArrayLike | None = None,
    control_weight: npt.ArrayLike | None = None,
    resamples: int = 10_000,
    level: float = 0.95,
) -> PairedInterval:
    """Percentile interval for a difference of two arms, over seeds and then questions within them.

    Each resample draws as many seeds as there are, and for each of them as many of its questions as it has,
    both with replacement. A drawn question brings the rows of both arms, which keeps the pairs together. An
    arm's value is the sum of its rows over that of their weights: a mean with weights of 1, a selected risk
    with harm as values and application as weights. A resample in which a weight sums to 0 has no value; it
    counts as below the lower limit and above the upper one, so that leaving it out cannot narrow the
    interval.

    Args:
        treatment: One value a row.
        control: The other arm's value in the same row.
        seed: Which training run the row belongs to.
        question: Which question; rows of one question within one seed are drawn together.
        rng: Source of the resamples.
        treatment_weight: Denominator terms, 0 or more; 1 by default.
        control_weight: Denominator terms of the other arm.
        resamples: How many to draw.
        level: Confidence of the two-sided interval.

    Raises:
        InputError: Columns do not fit each other, or there are no rows.

    Example:
        >>> import numpy as np
        >>> found = paired_bootstrap(
        ...     [1, 1, 0, 1], [0, 1, 0, 0], seed=[13, 13, 17, 17], question=[1, 2, 1, 2],
        ...     rng=np.random.default_rng(0), resamples=2000)
        >>> found.estimate, found.low, found.high, found.per_seed
        (0.5, 0.0, 1.0, {'13': 0.5, '17': 0.5})
    """
    tail = (1.0 - _level(level)) / 2.0
    seeds = keys("seed", seed)
    rows = seeds.size
    columns = [floats("treatment", treatment, length=rows), floats("control", control, length=rows)]
    for name, weight in (("treatment_weight", treatment_weight), ("control_weight", control_weight)):
        columns.append(np.ones(rows) if weight is None else floats(name, weight, length=rows, low=0.0))
    questions = keys("question", question, length=rows)
    if not rows or resamples < 1:
        expected = "at least one row and one resample"
        raise InputError(expected, f"{rows} and {resamples}", where="arguments 'treatment', 'resamples'")

    names, seed_of_row = np.unique(seeds, return_inverse=True)
    _, question_of_row = np.unique(questions, return_inverse=True)
    width = int(question_of_row.max()) + 1
    pairs, unit_of_row = np.unique(
        seed_of_row.astype(np.int64) * width + question_of_row, return_inverse=True
    )
    totals = np.array([np.bincount(unit_of_row, column, pairs.size) for column in columns], dtype=np.float64)
    # Pairs are sorted by seed first: the questions of a seed are one slice.
    edges = np.searchsorted(pairs // width, np.arange(names.size + 1))
    slices = [totals[:, low:high] for low, high in pairwise(edges)]

    per_seed = np.array([part.sum(axis=1) for part in slices])
    drawn = np.concatenate(list(_resampled(slices, resamples, rng)))
    differences = _difference(drawn)
    undefined = np.isnan(differences)
    rank = math.floor(tail * (resamples - 1))
    return PairedInterval(
        estimate=_optional(_difference(totals.sum(axis=1)[None])[0]),
        low=_optional(np.sort(np.where(undefined, -np.inf, differences))[rank]),
        high=_optional(np.sort(np.where(undefined, np.inf, differences))[-1 - rank]),
        level=level,
        resamples=int(resamples),
        undefined=int(np.count_nonzero(undefined)),
        seeds=int(names.size),
        questions=int(pairs.size),
        per_seed={
            str(name): _optional(value) for name, value in zip(names, _difference(per_seed), strict=True)
        },
    )


@dataclass(frozen=True, slots=True)
class VerifierErrors:
    """How two verifiers err on the same items, alone and together.

    A wrong item that a verifier accepts is a false positive; a right one that it rejects, a false negative.

    Attributes:
        items: Items on which both gave a verdict; the rates below are among these.
        missing: Items left out because at least one gave none.
        right: Items whose label is +1.
        wrong: Items whose label is -1.
        error_first: Share of items that the first verifier gets wrong.
        error_second: Share of items that the second verifier gets wrong.
        false_positive_first: Its share among wrong items.
        false_positive_second: The other's share among wrong items.
        false_negative_first: Its share among right items.
        false_negative_second: The other's share among right items.
        joint_failures: Items that both get wrong.
        joint_failure_rate: Their share.
        joint_failure_right: Share of right items that both reject.
        joint_failure_wrong: Share of wrong items that both accept.
        correlation_right: Correlation of the two error bits within right items.
        correlation_wrong: Correlation of the two error bits within wrong items.
        icc_first: Intraclass correlation of the first verifier's errors by group.
        icc_second: The same for the second.
        icc_joint: The same for joint failures.
    """

    items: int
    missing: int
    right: int
    wrong: int
    error_first: float | None
    error_second: float | None
    false_positive_first: float | None
    false_positive_second: float | None
    false_negative_first: float | None
    false_negative_second: float | None
    joint_failures: int
    joint_failure_rate: float | None
    joint_failure_right: float | None
    joint_failure_wrong: float | None
    correlation_right: float | None
    correlation_wrong: float | None
    icc_first: float | None
    icc_second: float | None
    icc_joint: float | None

    def as_dict(self) -> dict[str, Any]:
        """All fields by name, ready for JSON.

        Example:
            >>> verifier_errors([1], [1], [1]).as_dict()["joint_failures"]
            0
        """
        return dataclasses.asdict(self)


def verifier_errors(
    first: npt.ArrayLike, second: npt.ArrayLike, label: npt.ArrayLike, group: npt.ArrayLike | None = None
) -> VerifierErrors:
    """Compare two verifiers' verdicts with the labels.

    A correlation over all items would mix up dependence with a common base rate, hence one for each label.

    Args:
        first: Verdicts in {-1, 0, +1}; 0 for none.
        second: Verdicts of the other verifier.
        label: Clean signs in {-1, +1}.
        group: The question of each item; without it there is no intraclass correlation.

    Example:
        >>> found = verifier_errors([1, 1, -1, 1, 0], [1, -1, -1, 1, 1], [1, 1, 1, -1, 1])
        >>> found.error_first, found.error_second, found.joint_failures, found.missing
        (0.5, 0.75, 2, 1)
        >>> found.correlation_right, found.correlation_wrong
        (0.5, None)
    """
    clean = signs("label", label, zero=False)
    one = signs("first", first, length=clean.size)
    two = signs("second", second, length=clean.size)
    groups = None if group is None else keys("group", group, length=clean.size)
    both = (one != 0) & (two != 0)
    miss_one, miss_two, right = (one != clean)[both], (two != clean)[both], (clean > 0)[both]
    joint = miss_one & miss_two
    icc: list[float | None] = [None, None, None]
    if groups is not None:
        icc = [intraclass_correlation(bits, groups[both]) for bits in (miss_one, miss_two, joint)]
    return VerifierErrors(
        items=int(right.size),
        missing=int(clean.size - right.size),
        right=int(np.count_nonzero(right)),
        wrong=int(np.count_nonzero(~right)),
        error_first=_mean(miss_one),
        error_second=_mean(miss_two),
        false_positive_first=_mean(miss_one[~right]),
        false_positive_second=_mean(miss_two[~right]),
        false_negative_first=_mean(miss_one[right]),
        false_negative_second=_mean(miss_two[right]),
        joint_failures=int(np.count_nonzero(joint)),
        joint_failure_rate=_mean(joint),
        joint_failure_right=_mean(joint[right]),
        joint_failure_wrong=_mean(joint[~right]),
        correlation_right=_bit_correlation(miss_one[right], miss_two[right]),
        correlation_wrong=_bit_correlation(miss_one[~right], miss_two[~right]),
        icc_first=icc[0],
        icc_second=icc[1],
        icc_joint=icc[2],
    )


def intraclass_correlation(values: npt.ArrayLike, group: npt.ArrayLike) -> float | None:
    """How alike the values of a group are: the one-way analysis-of-variance estimator for unequal groups.

    Args:
        values: One number an item.
        group: The group of each item.

    Returns:
        1 when groups differ and their members do not; below 0 when members differ more than groups do. None
        with fewer than two groups, without a group of two, or without any variation.

    Example:
        >>> intraclass_correlation([1, 1, 0, 0, 1, 1], ["a", "a", "b", "b", "c", "c"])
        1.0
        >>> intraclass_correlation([1, 0, 1], ["a", "b", "c"]) is None
        True
    """
    numbers = floats("values", values)
    _, of = np.unique(keys("group", group, length=numbers.size), return_inverse=True)
    sizes = np.bincount(of)
    items, groups = numbers.size, sizes.size
    if groups < 2 or items == groups or numbers.min() == numbers.max():
        return None
    means = np.bincount(of, numbers) / sizes
    between = float(np.sum(sizes * (means - numbers.mean()) ** 2)) / (groups - 1)
    within = float(np.sum((numbers - means[of]) ** 2)) / (items - groups)
    # Stands in for the group size where sizes differ.
    size = (items - float(np.sum(sizes.astype(np.float64) ** 2)) / items) / (groups - 1)
    return (between - within) / (between + (size - 1.0) * within)


def _resampled(
    slices: list[npt.NDArray[np.float64]], resamples: int, rng: np.random.Generator
) -> Iterator[npt.NDArray[np.float64]]:
    """Column sums of resamples, a block at a time."""
    seeds = len(slices)
    block = max(1, _DRAWS // (seeds * max(part.shape[1] for part in slices)))
    for start in range(0, resamples, block):
        drawn_seeds = rng.integers(seeds, size=(min(block, resamples - start), seeds))
        sums = np.zeros((len(drawn_seeds), slices[0].shape[0]))
        for index, part in enumerate(slices):
            times = np.count_nonzero(drawn_seeds == index, axis=1)
            resample = np.repeat(np.arange(len(times)), times)
            # A seed that was drawn twice gets two draws of its questions.
            questions = rng.integers(part.shape[1], size=(resample.size, part.shape[1]))
            for column, values in enumerate(part):
                sums[:, column] += np.bincount(resample, values[questions].sum(axis=1), len(times))
        yield sums


def _difference(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Treatment minus control of each row of sums; NaN where a weight is 0."""
    values, weights = sums[:, :2], sums[:, 2:]
    ratios = np.divide(values, weights, out=np.full_like(values, np.nan), where=weights > 0.0)
    return np.asarray(ratios[:, 0] - ratios[:, 1])


def _bit_correlation(one: npt.NDArray[np.bool_], two: npt.NDArray[np.bool_]) -> float | None:
    """Pearson's correlation of two columns of bits, from exact counts."""
    items, ones, twos = one.size, int(np.count_nonzero(one)), int(np.count_nonzero(two))
    spread = ones * (items - ones) * twos * (items - twos)
    if not spread:
        return None
    return (items * int(np.count_nonzero(one & two)) - ones * twos) / math.sqrt(spread)


def _mean(bits: npt.NDArray[np.bool_]) -> float | None:
    return int(np.count_nonzero(bits)) / bits.size if bits.size else None


def _optional(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _level(level: float) -> float:
    if not 0.0 < level < 1.0:
        expected = "a confidence strictly between 0 and 1"
        raise InputError(expected, repr(level), where="argument 'level'")
    return level
