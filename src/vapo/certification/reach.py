"""How far a stage certificate reaches: what it says about the law that the stage was drawn from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from vapo.certification.binomial import check_counts, check_rate
from vapo.errors import InputError

__all__ = ["Reach", "design_effect", "population_width", "ratio_width"]


@dataclass(frozen=True, slots=True)
class Reach:
    """What has to be added to a stage limit before it speaks about the population.

    Example:
        >>> Reach("a", 0.0, 1.0, "").extra_width
        0.0
    """

    case: str
    """``a`` to ``d``, or ``stage`` when nothing can be said about the population."""

    extra_width: float
    """To be added to the upper limit of the harm."""

    design_effect: float
    """Variance of the observed harm over that of independent records."""

    note: str
    """What was assumed."""


def design_effect(admitted: npt.ArrayLike, harmful: npt.ArrayLike) -> float:
    """Measure how much clustering inflates the variance of the harm among admitted records.

    Args:
        admitted: Admitted records of each independent unit (group or window).
        harmful: Harmful ones among them.

    Returns:
        Variance of the ratio over units, relative to independent records. Without any harm, or with nothing
        else, the ratio shows no variance; then the value for perfectly dependent units is returned.

    Example:
        >>> design_effect([4, 4, 4, 4], [4, 0, 0, 0]) > 3
        True
    """
    a, h = check_counts(admitted, harmful)
    total, units = float(a.sum()), int(np.count_nonzero(a))
    if total == 0 or units < 2:
        expected = "at least two units with admitted records"
        raise InputError(expected, f"{units}", where="admitted")
    rate = float(h.sum()) / total
    if rate in (0.0, 1.0):
        return float((a**2).sum()) / total
    spread = units / (units - 1.0) * float(((h - rate * a) ** 2).sum())
    return spread / (rate * (1.0 - rate) * total)


def ratio_width(admitted: npt.ArrayLike, appealed: npt.ArrayLike, delta: float) -> float:
    """Width of the share of appeals among admissions over independent windows, measured without labels.

    Args:
        admitted: Admitted records of each window.
        appealed: Those among them that went through an appeal.
        delta: Failure probability.

    Example:
        >>> ratio_width([10, 10, 10], [2, 2, 2], 0.05)
        0.0
    """
    check_rate(delta, "delta")
    a, e = check_counts(admitted, appealed)
    total, units = float(a.sum()), int(np.count_nonzero(a))
    if total == 0 or units < 2:
        expected = "at least two windows with admitted records"
        raise InputError(expected, f"{units}", where="admitted")
    spread = units / (units - 1.0) * float(((e - float(e.sum()) / total * a) ** 2).sum())
    # either direction counts
    return float(-special.ndtri(delta / 2.0)) * math.sqrt(spread) / total


def population_width(
    rho: float,
    delta: float,
    *,
    admitted: npt.ArrayLike,
    harmful: npt.ArrayLike,
    shared_budget: bool,
    largest_group: int,
    group_cap: int | None = None,
    appealed: npt.ArrayLike | None = None,
    independent_records: bool = False,
    risk_gap: float = 1.0,
) -> Reach:
    """Say what a stage limit for harm becomes when it is read as a statement about the population.

    It holds only if the stage's groups (or windows) were drawn independently from the law of deployment and
    the chains come from the design split; nothing in the counts can show that.

    Args:
        rho: Tolerated harm.
        delta: Failure probability used for the extra width.
        admitted: Admitted records of each window.
        harmful: Harmful ones among them.
        shared_budget: Whether records of a window compete for secondary calls.
        largest_group: Largest number of admitted records in one group.
        group_cap: Declared cap on that number.
        appealed: Admitted records of each window that came through an appeal; needed with a shared budget.
        independent_records: Whether single records, and not only windows, are drawn independently.
        risk_gap: Bound for the difference of harm between accepted and appealed records; 1 assumes nothing.

    Example:
        >>> population_width(0.08, 0.05, admitted=[9], harmful=[0], shared_budget=False, largest_group=1).case
        'a'
    """
    check_rate(rho, "rho")
    check_rate(delta, "delta")
    if not shared_budget and largest_group <= 1:
        return Reach(
            "a", 0.0, 1.0, "independent groups with at most one admitted record: the same test holds"
        )
    if not shared_budget and group_cap is not None:
        if largest_group > group_cap:
            expected = f"at most {group_cap} admitted records in every group"
            raise InputError(expected, f"{largest_group}", where="group_cap")
        note = (
            "independent groups: the group test holds with the declared cap and a stake from planned counts"
        )
        return Reach("b", 0.0, 1.0, note)
    if shared_budget and independent_records and largest_group <= 1 and appealed is not None:
        width = risk_gap * ratio_width(admitted, appealed, delta)
        note = "independent records with a budget a window: the share of appeals may differ in the long run"
        return Reach("c", width, 1.0, note)
    a, h = check_counts(admitted, harmful)
    if np.count_nonzero(a) < 2:
        return Reach(
            "stage", 0.0, math.nan, "fewer than two independent windows: nothing follows beyond the stage"
        )
    effect = design_effect(a, h)
    width = (
        max(math.sqrt(effect) - 1.0, 0.0)
        * -float(special.ndtri(delta))
        * math.sqrt(rho * (1.0 - rho) / float(a.sum()))
    )
    return Reach(
        "d",
        width,
        effect,
        "independent windows; the extra width is asymptotic and its design effect measured",
    )
