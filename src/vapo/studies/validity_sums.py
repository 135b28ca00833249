"""Rows of the validity study, added up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vapo.studies.estimates import Z95, rate
from vapo.studies.framework import Estimate, Row, matching
from vapo.studies.laws import BUDGET, ORDERS, WINDOW

__all__ = ["SHARED", "Sums", "decided_alone", "one", "setting"]

SHARED: dict[str, Any] = {"noise": "symmetric", "order": ORDERS[0], "budget": BUDGET}
"""The columns of rows under a shared budget in the canonical order."""

_SETTINGS: dict[str, dict[str, Any]] = {
    "No shared-budget coupling": {**SHARED, "budget": WINDOW},
    "Shared budget": SHARED,
    "Shared budget + permutation": {**SHARED, "order": list(ORDERS[1:])},
    "Correlated verifiers": {**SHARED, "noise": "correlated"},
}


def setting(name: str) -> dict[str, Any]:
    """The columns of rows that make up one setting of the paper's checks.

    Args:
        name: As the paper calls it.

    Example:
        >>> setting("Correlated verifiers")["noise"]
        'correlated'
    """
    return _SETTINGS[name]


def one(rows: Sequence[Row], where: Mapping[str, Any]) -> Any:
    """The only row that fits.

    Args:
        rows: Any rows.
        where: Its columns.

    Example:
        >>> one([{"a": 1}, {"a": 2}], {"a": 2})
        {'a': 2}
    """
    (found,) = matching(rows, where)
    return found


class Sums:
    """Rows of many stages that fit, added up.

    Example:
        >>> rows = [{"stages": 50, "certified": 4, "risk": 0.2, "risk_squared": 0.01, "seed": s} for s in (1, 2)]
        >>> found = Sums(rows, {"seed": [1, 2]})
        >>> found.share("certified").value, found.mean("risk").value
        (0.08, 0.05)
    """

    def __init__(self, rows: Sequence[Row], where: Mapping[str, Any]) -> None:
        self.where = where
        self.rows: list[Any] = list(matching(rows, where))

    def total(self, name: str) -> float:
        """The sum of a column."""
        return math.fsum(row[name] for row in self.rows)

    def share(self, name: str) -> Estimate:
        """The share of stages that a column counts."""
        if not self.rows:
            return Estimate(None, n=0, unit="stages")
        how = f"sum of `{name}` over sum of `stages`"
        return rate(int(self.total(name)), int(self.total("stages")), "stages", how)

    def kept(self) -> Estimate:
        """The share of stages that got a certificate which is not false."""
        kept = int(self.total("certified") - self.total("false"))
        how = "sum of `certified` less sum of `false`, over sum of `stages`"
        return rate(kept, int(self.total("stages")), "stages", how)

    def mean(self, name: str) -> Estimate:
        """The mean over certified stages, with its normal interval."""
        count = int(self.total("certified"))
        if count == 0:
            return Estimate(None, n=0, unit="certified stages", how="no stage is `certified`")
        centre = self.total(name) / count
        spread = max(self.total(f"{name}_squared") / count - centre**2, 0.0)
        reach = Z95 * math.sqrt(spread / count)
        how = f"sum of `{name}` over sum of `certified`; normal interval from `{name}_squared`"
        return Estimate(centre, centre - reach, centre + reach, count, "certified stages", how)


def decided_alone(
    rows: Sequence[Row], where: Mapping[str, Any], *, violated: bool = False
) -> tuple[Estimate, int]:
    """Of stages that were decided one by one: the share that is certified and true, and how many are certified.

    Args:
        rows: One a stage.
        where: Which ones.
        violated: Whether to give the share that is certified and false.

    Example:
        >>> rows = [{"certified": True, "false": False}, {"certified": False, "false": False}]
        >>> found, certified = decided_alone(rows, {})
        >>> found.value, certified
        (0.5, 1)
    """
    found = list(matching(rows, where))
    certified = [row for row in found if row["certified"]]
    false = sum(bool(row["false"]) for row in certified)
    how = f"rows that are `certified` and {'' if violated else 'not '}`false`, over all rows"
    return rate(false if violated else len(certified) - false, len(found), "stages", how), len(certified)
