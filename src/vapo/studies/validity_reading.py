"""What the paper's numbers need and what they can mean; how certification sets in; and where a claim would fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vapo.certification.tables import CLAIMS
from vapo.studies.estimates import Z95, exact, rate, said
from vapo.studies.framework import Cell, Estimate, Paper, Row, Table, matching
from vapo.studies.validity_paper import DELTA, LARGE, LONG, REACH, RHOS, SHORT, TARGETS, TEST_ITEMS
from vapo.studies.validity_sums import SHARED, Sums, one

__all__ = ["defects", "needs", "reach", "reading"]

_NO_FALSE = "were violations false certificates, their rate could not exceed this at any number of records (normal law)"

_CERTIFICATES = {
    "hoeffding": "the paper's certificate, 20 candidates",
    "hoeffding alone": "the paper's certificate, one candidate",
    "sequential": "sequential, one of 20",
    "frozen": "frozen, one chain",
}


def needs(rows: Sequence[Row]) -> Table:
    """Records that certificates need at the paper's operating points.

    Args:
        rows: Of the study.
    """
    cells = []
    for rho in RHOS:
        reported = f"R = {TARGETS[rho].risk}, C = {TARGETS[rho].coverage}"
        for claim, name in _CERTIFICATES.items():
            where = {"kind": "plan", "rho": rho, "claim": claim}
            found, row = one(rows, where), f"{rho:.2f}, {name}"
            paper = Paper(SHORT) if claim == "hoeffding" else None
            why = f"at its reported {reported}; its calibration split has {SHORT}" if paper else ""
            cells += [
                Cell(row, "records for even odds", exact(found["even"], how="`even`"), where, paper, why=why),
                Cell(row, "records for 90 %", exact(found["sure"], how="`sure`"), where),
            ]
            if claim == "hoeffding":
                cells += _at_512(rows, rho, row)
    return Table(
        "records-needed",
        "",
        "Records that a certificate needs at the paper's operating points",
        cells,
        "Worked out by the package's planner; the table of stage sizes below checks it by simulation.",
    )


def _at_512(rows: Sequence[Row], rho: float, row: str) -> list[Cell]:
    where = {"kind": "reading", "rho": rho}
    found = one(rows, where)
    never = found["radius"] > found["room"]
    return [
        Cell(row, "radius at 512", exact(found["radius"], how="`radius`"), where),
        Cell(row, "ρ times coverage", exact(found["room"], how="`room`"), where),
        Cell(
            row,
            "feasible at 512",
            said("never" if never else "possible", "whether `radius` exceeds `room`"),
            where,
            Paper("possible"),
            why="without a single harmful record the excess is −ρ times coverage, and the radius is larger than that",
        ),
        Cell(
            row,
            "least records with which it is ever feasible",
            exact(found["least_records"], how="`least_records`"),
            where,
        ),
    ]


def reading(rows: Sequence[Row]) -> Table:
    """What 60, 58 and 54 of 60 can mean.

    Args:
        rows: Of the study.
    """
    cells = []
    for rho in RHOS:
        where = {"kind": "reading", "rho": rho}
        found, row, satisfied = one(rows, where), f"{rho:.2f}", TARGETS[rho].satisfied
        missed = 60 - satisfied
        cells += [
            Cell(
                row,
                "rate behind the paper's violations",
                rate(missed, 60, "stages", "the paper's count"),
                where,
            ),
            Cell(
                row,
                "chance of so many at rate δ",
                exact(found["at_least_as_many"], how="`at_least_as_many`"),
                where,
            ),
            Cell(
                row,
                "chance that the paper's rule certifies at R = ρ",
                exact(found["false_on_boundary"], how="`false_on_boundary`"),
                where,
                Paper(missed / 60) if missed else None,
                why=_NO_FALSE if missed else "",
            ),
        ]
        for records in (SHORT, TEST_ITEMS, 4096):
            expected = 60 * found[f"observed_{records}"]
            spread = Z95 * math.sqrt(expected * (1 - expected / 60))
            cells.append(
                Cell(
                    row,
                    f"of 60 with observed R_sel ≤ ρ on {records:,}",
                    Estimate(
                        expected,
                        max(expected - spread, 0.0),
                        min(expected + spread, 60.0),
                        60,
                        "stages",
                        f"60 times `observed_{records}`",
                    ),
                    where,
                    Paper(satisfied),
                    why="no certificate at all: how often a policy of the reported risk looks fine on so many records",
                )
            )
        cells.append(
            Cell(
                row,
                "records at which that gives the paper's count",
                exact(found["observed_reach"], how="`observed_reach`"),
                where,
            )
        )
    return Table(
        "reading-58-of-60",
        "",
        "What 60, 58 and 54 of 60 can mean",
        cells,
        "Not certificates that held and failed. At 512 records the paper's rule never certifies; at sizes where it "
        "does, a policy whose risk lies exactly on the target passes with a chance below 1e-18, so that none of "
        "the 2 or 6 violations can be a false certificate. The counts fit another reading: on some thousands of "
        "records the *observed* selected risk of a policy with the reported risk stayed below the target in so many "
        "runs. That is sampling noise of an evaluation and says nothing about 1 − δ. Read as a check of validity, 58 "
        "of 60 leaves room for violation rates from .004 to .115.",
    )


def reach(rows: Sequence[Row]) -> Table:
    """How certification of the paper's operating point sets in with the number of records.

    Args:
        rows: Of the study.
    """
    cells = []
    for records in sorted({SHORT, LONG, LARGE, *REACH}):
        for claim in CLAIMS:
            which = {"rho": 0.08, "claim": claim, "records": records}
            many = Sums(rows, {"kind": "block", "law": "operating point", **SHARED, **which})
            cells.append(Cell(f"{records:,} records", claim, many.share("reference"), many.where))
    return Table(
        "stage-sizes",
        "",
        "How often the candidate at R = .0697, C = .4125 is feasible at ρ = 0.08",
        cells,
        "Shared budget, canonical order, 20 candidates in two chains. A chain stops at its first failure, so that the "
        "frozen claim also depends on the more selective members before this one.",
    )


def defects(rows: Sequence[Row]) -> Table:
    """Where a claim would fail: the worst of all laws and sizes.

    Args:
        rows: Of the study.
    """
    names = ("law", "noise", "order", "budget", "rho", "records")
    cells = []
    for claim in CLAIMS:
        where = {"kind": "block", "claim": claim}
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in matching(rows, where):
            groups.setdefault(tuple(row[name] for name in names), []).append(row)
        rates = {key: Sums(found, {}).share("any_false") for key, found in groups.items()}
        worst = max(rates, key=lambda key: (rates[key].low or 0.0, rates[key].value or 0.0))
        above = sum((found.low or 0.0) > DELTA for found in rates.values())
        alone = {"kind": ["sixty", "campaign"], "claim": claim}
        same = [bool(row["same_at_once"]) for row in matching(rows, alone)]
        behind = {**where, **dict(zip(names, worst, strict=True))}
        cells += [
            Cell(
                claim,
                "laws and sizes",
                exact(len(rates), how="different `law`, `noise`, `order`, `budget`, `rho`, `records`"),
                where,
            ),
            Cell(claim, "worst rate of false certificates", rates[worst], behind),
            Cell(
                claim,
                "with a lower limit above δ",
                exact(above, how="those of which the lower limit of `any_false` over `stages` exceeds δ"),
                where,
            ),
            Cell(
                claim,
                "decided alike one by one",
                rate(sum(same), len(same), "stages", "rows with `same_at_once`"),
                alone,
            ),
        ]
    return Table(
        "defects",
        "",
        "Where a claim would fail: the worst of all laws and sizes",
        cells,
        "Every law at every size, at the operating point and on the boundary; any false feasible candidate counts. "
        "Last column: stages that `evaluate` decided one by one, and the tests for many stages in the same way.",
    )
