"""Three claims about every candidate, and the selection that the deciding one makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from vapo.certification.averages import hoeffding_table, sequential_table
from vapo.certification.binomial import Floats
from vapo.certification.frozen import frozen_skips, frozen_table
from vapo.certification.tables import CLAIMS, ClaimTable, Requirements, Tally, Units, Verdict, check_tallies
from vapo.errors import InputError

__all__ = [
    "CLAIMS",
    "ClaimTable",
    "Requirements",
    "Tally",
    "Units",
    "Verdict",
    "evaluate",
    "frozen_skips",
]


def evaluate(
    tallies: Sequence[Tally],
    chains: Sequence[Sequence[int]],
    requirements: Requirements,
    planned_coverage: npt.ArrayLike | None = None,
    planned_calls: npt.ArrayLike | None = None,
    *,
    planned_records: int | None = None,
) -> Verdict:
    """Evaluate all three claims and select under the deciding one.

    Under ``hoeffding`` and ``sequential`` the largest lower limit of coverage is selected, then the smaller
    upper limit of calls, then the lower index. Under ``frozen`` coverage and calls are facts and take the
    places of their limits. When nothing is feasible, the nearest candidate is the one that meets the most
    of the three requirements, then the one with the smallest margin, then the larger coverage limit, then
    the lower index.

    Args:
        tallies: Counts of every candidate on one stage.
        chains: The family's chains, most selective member first.
        requirements: Tolerances, failure probability, deciding claim.
        planned_coverage: Coverage of every candidate on the design split. Without a design split the
            declared minimum stands in for it; the coverage of the stage itself never does.
        planned_calls: Rate of secondary calls on the design split; without one, the declared maximum.
        planned_records: Declared number of records; defaults to the size of the stage.

    Returns:
        The verdict with one table for each claim.

    Example:
        >>> rows = [Tally(2000, 600, 12, 0), Tally(2000, 900, 24, 0)]
        >>> asked = Requirements(rho=0.08, c_min=0.25, b_max=0.2, delta=0.05)
        >>> verdict = evaluate(rows, [[0, 1]], asked, [0.3, 0.45], [0.0, 0.0])
        >>> verdict.selected, [name for name in verdict.claims if verdict.claims[name].selected is not None]
        (1, ['sequential', 'frozen'])
    """
    check_tallies(tallies)
    records = tallies[0].records if planned_records is None else planned_records
    if records < 1:
        expected = "at least 1"
        raise InputError(expected, repr(records), where="planned_records")
    coverage = _planned(planned_coverage, requirements.c_min or 0.5, len(tallies), "planned_coverage")
    calls = _planned(planned_calls, requirements.b_max, len(tallies), "planned_calls")
    tables = {
        "hoeffding": hoeffding_table(tallies, requirements),
        "sequential": sequential_table(tallies, requirements, coverage, calls, records),
        "frozen": frozen_table(tallies, requirements, chains),
    }
    chosen = {name: _choose(table) for name, table in tables.items()}
    deciding = chosen[requirements.claim]
    return Verdict(requirements.claim, deciding.selected, deciding.nearest, chosen)


def _planned(values: npt.ArrayLike | None, fallback: float, size: int, name: str) -> Floats:
    plan = np.full(size, fallback) if values is None else np.asarray(values, dtype=np.float64)
    if plan.shape != (size,):
        expected = f"one number a candidate ({size})"
        raise InputError(expected, f"shape {plan.shape}", where=name)
    if not np.all((plan >= 0) & (plan <= 1)):
        expected = "rates between 0 and 1"
        raise InputError(expected, "others", where=name)
    return plan


def _choose(table: ClaimTable) -> ClaimTable:
    order = np.arange(table.feasible.size)
    if table.feasible.any():
        ranked = np.lexsort((order, table.calls_upper, -table.coverage_lower, ~table.feasible))
        return replace(table, selected=int(ranked[0]), nearest=int(ranked[0]))
    ranked = np.lexsort((order, -table.coverage_lower, table.margin, -table.met))
    return replace(table, selected=None, nearest=int(ranked[0]))
