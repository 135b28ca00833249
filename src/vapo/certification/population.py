"""How far a stage's certificate reaches, from what the protocol declares and what the stage looks like."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from vapo.certification.reach import Reach, population_width
from vapo.certification.stage import Stage
from vapo.certification.tables import Tally
from vapo.certification.tally import window_counts
from vapo.records import Records

__all__ = ["stage_reach"]


def stage_reach(
    stage: Stage, records: Records, codes: npt.NDArray[np.uint8], bad: npt.NDArray[np.bool_], tally: Tally
) -> Reach:
    """Say whether one candidate's limits speak of the population, and what has to be added to them for that.

    Args:
        stage: The stage; nothing reaches beyond it unless its protocol declares independent groups.
        records: Its certification records.
        codes: What the candidate did with each, as a `Reason`.
        bad: Records that would do harm if admitted.
        tally: The candidate's counts.
    """
    if stage.protocol.reach == "stage" or not tally.admitted:
        return _stage("says something about this stage's records and about no others")
    counts = window_counts(codes, records, bad)
    if tally.appealed and np.count_nonzero(counts.admitted) < 2:
        return _stage("records share a budget, and there are not two windows to see how much that matters")
    cap = stage.group_cap if stage.needs_cap else None
    reach = population_width(
        stage.protocol.rho,
        stage.delta,
        admitted=counts.admitted,
        harmful=counts.harmful,
        appealed=counts.appealed,
        shared_budget=bool(tally.appealed),
        # No candidate admits more of a group than the cap: that was made sure of before the freeze.
        largest_group=records.largest_group if cap is None else min(records.largest_group, cap),
        group_cap=cap,
        independent_records=records.largest_group == 1,
    )
    if reach.case == "d" and _groups_span_windows(records):
        return _stage("windows share groups, so they are not independent of each other")
    return reach


def _stage(note: str) -> Reach:
    return Reach("stage", 0.0, 1.0, note)


def _groups_span_windows(records: Records) -> bool:
    pairs = np.unique(np.stack([records.group, records.window]), axis=1)
    return len(pairs[0]) > records.groups
