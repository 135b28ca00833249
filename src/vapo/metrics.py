"""What frozen decisions were worth once labels are joined: alignment, risk, coverage, and matched selections.

A rate without a denominator has no value: it is `None`, with its counts beside it. Only direction accuracy
keeps the 0 of its published definition. Sums are rounded once, at the end, so they depend neither on the
order of the records nor on how these were split up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.arrays import floats, keys, mask, signs
from vapo.errors import InputError

__all__ = [
    "Alignment",
    "MatchedMagnitude",
    "alignment",
    "alignment_by_sign",
    "match_magnitude",
    "select_first",
    "select_random",
    "select_top",
]

_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Alignment:
    """Metrics of g = z * u over all records of a trace, applied or not.

    `admitted` counts final signs that are not 0, `applied` counts updates that are not 0. An admitted record
    of magnitude 0 is in the first and not in the second.

    Attributes:
        records: N, the denominator of every all-record rate.
        admitted: Records with a final sign.
        applied: Records with an update.
        helpful: Applied records that move in the label's direction.
        harmful: Applied records that move against it.
        admitted_harmful: Admitted records whose final sign contradicts the label, applied or not.
        U: Mean of g.
        P: Mean of its positive part.
        H: Mean of its negative part.
        R: Share of harmful updates among all records.
        Z: Share of records without an update.
        C: 1 - Z, the applied rate.
        coverage: Share of admitted records.
        abstention_rate: Share of records that were not admitted.
        zero_magnitude_rate: Share of records that were admitted and move nothing.
        direction_accuracy: Helpful among applied; 0 when nothing was applied.
        R_sel: Harmful among applied; none when nothing was applied.
        R_all: C * R_sel; 0 when nothing was applied.
        admitted_risk: Harmful among admitted, the risk that certificates bound; none without admitted.
        H_mag: Mean harmful magnitude.
        H_mag_bound: Largest magnitude * C * R_sel, which H_mag cannot exceed.
    """

    records: int
    admitted: int
    applied: int
    helpful: int
    harmful: int
    admitted_harmful: int
    U: float | None
    P: float | None
    H: float | None
    R: float | None
    Z: float | None
    C: float | None
    coverage: float | None
    abstention_rate: float | None
    zero_magnitude_rate: float | None
    direction_accuracy: float
    R_sel: float | None
    R_all: float | None
    admitted_risk: float | None
    H_mag: float | None
    H_mag_bound: float | None

    def as_dict(self) -> dict[str, Any]:
        """All fields by name, ready for JSON.

        Example:
            >>> alignment([1], [0.2], [1]).as_dict()["U"]
            0.2
        """
        return dataclasses.asdict(self)


def alignment(
    sign: npt.ArrayLike, magnitude: npt.ArrayLike, label: npt.ArrayLike, *, magnitude_max: float | None = None
) -> Alignment:
    """Score decided records against their labels.

    Args:
        sign: Final signs after the gate, 0 where it abstained.
        magnitude: Magnitudes, 0 or more; those of abstained records count as 0.
        label: Clean signs; 0 stands for an unopened label and is allowed where nothing was admitted.
        magnitude_max: The largest magnitude that the actuator promised, if it promised one.

    Raises:
        InputError: A column does not fit, a label is missing, or a magnitude is above the promised one.

    Example:
        >>> found = alignment(sign=[1, -1, 0, 1], magnitude=[0.2, 0.1, 0.0, 0.0], label=[1, 1, 1, -1])
        >>> found.U, found.R, found.C, found.R_sel
        (0.025, 0.25, 0.5, 0.5)
        >>> found.coverage, found.zero_magnitude_rate, found.admitted_harmful
        (0.75, 0.25, 2)
    """
    final = signs("sign", sign)
    size = floats("magnitude", magnitude, length=final.size, low=0.0)
    clean = signs("label", label, length=final.size)
    unlabelled = (final != 0) & (clean == 0)
    if unlabelled.any():
        expected = "a label in {-1, +1} for every admitted record"
        raise InputError(expected, "none", where=f"argument 'label': position {int(np.argmax(unlabelled))}")
    size = np.where(final == 0, 0.0, size)
    largest = float(size.max(initial=0.0))
    if magnitude_max is None or magnitude_max == math.inf:
        magnitude_max = largest
    elif not largest <= magnitude_max:
        expected = f"magnitudes of at most {magnitude_max:g}"
        raise InputError(expected, f"{largest:g}", where="argument 'magnitude'")

    direction = clean * final
    applied_here = size > 0.0
    harmful_here = applied_here & (direction < 0)
    records = int(final.size)
    admitted = int(np.count_nonzero(final))
    applied = int(np.count_nonzero(applied_here))
    harmful = int(np.count_nonzero(harmful_here))
    helpful = applied - harmful
    admitted_harmful = int(np.count_nonzero(direction < 0))
    # Among applied records the negative part of g is the harmful magnitude, the positive part is the rest.
    harm = _exact_sum(size[harmful_here])
    help_ = _exact_sum(size[applied_here & ~harmful_here])
    net = _exact_sum(direction * size)
    R = _share(harmful, records)
    return Alignment(
        records=records,
        admitted=admitted,
        applied=applied,
        helpful=helpful,
        harmful=harmful,
        admitted_harmful=admitted_harmful,
        U=_share(net, records),
        P=_share(help_, records),
        H=_share(harm, records),
        R=R,
        Z=_share(records - applied, records),
        C=_share(applied, records),
        coverage=_share(admitted, records),
        abstention_rate=_share(records - admitted, records),
        zero_magnitude_rate=_share(admitted - applied, records),
        direction_accuracy=helpful / applied if applied else 0.0,
        R_sel=_share(harmful, applied),
        R_all=R,
        admitted_risk=_share(admitted_harmful, admitted),
        H_mag=_share(harm, records),
        # In this order the bound is rounded like the sum that it bounds, and holds to the last bit.
        H_mag_bound=_share(magnitude_max * harmful, records),
    )


def alignment_by_sign(
    primary: npt.ArrayLike,
    sign: npt.ArrayLike,
    magnitude: npt.ArrayLike,
    label: npt.ArrayLike,
    *,
    magnitude_max: float | None = None,
) -> dict[int, Alignment]:
    """Score the proposals that the primary verifier approved and those that it rejected apart.

    Its false positives and its false negatives have different causes, and a mean over both hides which one a
    gate removes. Records without a primary verdict are in neither part.

    Args:
        primary: The primary verifier's signs.
        sign: Final signs after the gate.
        magnitude: Magnitudes.
        label: Clean signs.
        magnitude_max: As for `alignment`.

    Example:
        >>> parts = alignment_by_sign([1, 1, -1], [1, 0, -1], [0.1, 0.0, 0.1], [1, -1, 1])
        >>> parts[+1].R_sel, parts[-1].R_sel
        (0.0, 1.0)
    """
    verdict = signs("primary", primary)
    final = signs("sign", sign, length=verdict.size)
    size = floats("magnitude", magnitude, length=verdict.size, low=0.0)
    clean = signs("label", label, length=verdict.size)
    turned = (final != 0) & (final != verdict)
    if turned.any():
        expected = "a final sign that is the primary's or 0"
        raise InputError(expected, "another one", where=f"argument 'sign': position {int(np.argmax(turned))}")
    return {
        side: alignment(final[part], size[part], clean[part], magnitude_max=magnitude_max)
        for side in (+1, -1)
        for part in (verdict == side,)
    }


def select_top(
    score: npt.ArrayLike, ids: npt.ArrayLike, count: int, *, eligible: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Mark exactly `count` records with the largest scores; ties go to the smaller ids.

    Args:
        score: What to rank by.
        ids: Item ids, distinct; text is ordered by code points, whole numbers by value.
        count: How many.
        eligible: Which records may be selected; all by default.

    Raises:
        InputError: `count` is more than there is to choose from, or tied items share an id.

    Example:
        >>> select_top([0.9, 0.5, 0.5, 0.1], ["d", "c", "b", "a"], 2).tolist()
        [True, False, True, False]
    """
    names = keys("ids", ids)
    rank = floats("score", score, length=names.size)
    among = _eligible(eligible, names.size, count)
    chosen = np.zeros(names.size, dtype=np.bool_)
    if count == 0:
        return chosen
    pool = rank[among]
    edge = np.partition(pool, pool.size - count)[pool.size - count]
    chosen[among[pool > edge]] = True
    tied = among[pool == edge]
    order = np.argsort(names[tied], kind="stable")
    sorted_names = names[tied][order]
    if (sorted_names[1:] == sorted_names[:-1]).any():
        expected = "distinct ids, which settle ties"
        raise InputError(expected, "a repeated one among tied records", where="argument 'ids'")
    chosen[tied[order][: count - int(np.count_nonzero(chosen))]] = True
    return chosen


def select_first(
    ids: npt.ArrayLike, count: int, *, eligible: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Mark exactly `count` records with the smallest ids.

    Args:
        ids: Item ids, distinct.
        count: How many.
        eligible: Which records may be selected; all by default.

    Example:
        >>> select_first([30, 10, 20], 2).tolist()
        [False, True, True]
    """
    names = keys("ids", ids)
    return select_top(np.zeros(names.size), names, count, eligible=eligible)


def select_random(
    ids: npt.ArrayLike, count: int, rng: np.random.Generator, *, eligible: npt.ArrayLike | None = None
) -> npt.NDArray[np.bool_]:
    """Mark exactly `count` records at random.

    Items draw in the order of their ids, so that one stream picks the same items however the file is sorted.

    Args:
        ids: Item ids, distinct.
        count: How many.
        rng: The arm's own stream.
        eligible: Which records may be selected; all by default.

    Example:
        >>> import numpy as np
        >>> int(select_random(["a", "b", "c", "d"], 3, np.random.default_rng(7)).sum())
        3
    """
    names = keys("ids", ids)
    drawn = np.empty(names.size)
    drawn[np.argsort(names, kind="stable")] = rng.random(names.size)
    return select_top(drawn, names, count, eligible=eligible)


@dataclass(frozen=True, slots=True)
class MatchedMagnitude:
    """A selection scaled to a wanted mean magnitude, or the reason why it cannot be.

    Attributes:
        update: Scaled signed updates; all 0 after a failure.
        alpha: The common factor; none after a failure.
        failure: Why there is no factor; empty when there is one.
        target: Mean absolute update over all records that was asked for.
        achieved: Mean absolute update over all records that came out.
        coverage: Share of selected records; none without records.
    """

    update: npt.NDArray[np.float64]
    alpha: float | None
    failure: str
    target: float
    achieved: float
    coverage: float | None


def match_magnitude(update: npt.ArrayLike, selected: npt.ArrayLike, target: float) -> MatchedMagnitude:
    """Scale the selected updates by one factor so that their mean over all records has the wanted size.

    Args:
        update: Signed updates of all records before scaling.
        selected: Which of them are selected.
        target: Wanted mean absolute update over all records.

    Returns:
        The scaled updates. A selection that moves nothing cannot be scaled, and `failure` says so.

    Example:
        >>> match_magnitude([0.1, -0.3, 0.2], [True, True, False], 0.2).update.round(6).tolist()
        [0.15, -0.45, 0.0]
        >>> match_magnitude([0.0, 0.2], [True, False], 0.1).failure
        'zero denominator: the selected updates sum to 0 in size'
    """
    moves = floats("update", update)
    here = mask("selected", selected, length=moves.size)
    if not (math.isfinite(target) and target >= 0.0):
        expected = "a finite mean magnitude, 0 or more"
        raise InputError(expected, repr(target), where="argument 'target'")
    coverage = _share(int(np.count_nonzero(here)), moves.size)
    denominator = _exact_sum(np.abs(moves[here]))
    failure, alpha = "", 0.0
    if denominator == 0.0:
        failure = "zero denominator: the selected updates sum to 0 in size"
    else:
        alpha = target * moves.size / denominator
        if not math.isfinite(alpha):
            failure = "zero denominator: the selected updates are too small to be scaled"
    if failure:
        return MatchedMagnitude(np.zeros_like(moves), None, failure, target, 0.0, coverage)
    scaled = np.where(here, alpha * moves, 0.0) + 0.0
    return MatchedMagnitude(scaled, alpha, "", target, _exact_sum(np.abs(scaled)) / moves.size, coverage)


def _eligible(eligible: npt.ArrayLike | None, records: int, count: int) -> npt.NDArray[np.intp]:
    among = (
        np.arange(records) if eligible is None else np.flatnonzero(mask("eligible", eligible, length=records))
    )
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or not 0 <= count <= among.size:
        expected = f"a count between 0 and {among.size}, the number of eligible records"
        raise InputError(expected, repr(count), where="argument 'count'")
    return among


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None


def _exact_sum(values: npt.NDArray[np.float64]) -> float:
    """The sum, rounded once at the end."""
    parts: Iterable[list[float]] = (values[i : i + _CHUNK].tolist() for i in range(0, values.size, _CHUNK))
    return math.fsum(chain.from_iterable(parts))
