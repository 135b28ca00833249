"""What the validity study's open constants were inferred from, and how much its numbers hang on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vapo.certification.tables import Requirements
from vapo.studies.decisions import Counts, Plan, decide_stages
from vapo.studies.estimates import exact
from vapo.studies.framework import Cell, Row, Table
from vapo.studies.laws import BUDGET, REFERENCE, UNIT, SequenceLaw, candidates, law_of
from vapo.studies.sequences import simulate
from vapo.studies.validity_paper import B_MAX, C_MIN, DELTA, LONG
from vapo.studies.validity_sums import Sums, one

__all__ = ["VARIANTS", "constants", "constants_rows"]

_RHO = 0.08

VARIANTS: dict[str, tuple[str, dict[str, float]]] = {
    "declared": ("symmetric", {}),
    "errors a tenth more frequent": ("symmetric", {"errors": 1.1}),
    "errors a tenth rarer": ("symmetric", {"errors": 0.9}),
    "secondary confirms 0.53 of what is right, not 0.63": ("symmetric", {"confirm_right": 0.53}),
    "secondary confirms 0.73 of what is right": ("symmetric", {"confirm_right": 0.73}),
    "secondary waves 0.10 of what is wrong through, not 0.146": ("symmetric", {"confirm_wrong": 0.10}),
    "12 calls a window, not 16": ("symmetric", {"calls": 12}),
    "20 calls a window": ("symmetric", {"calls": 20}),
    "correlated, declared: 0.22 of what is wrong waved through": ("correlated", {}),
    "correlated, 0.18": ("correlated", {"confirm_wrong": 0.18}),
    "correlated, 0.26": ("correlated", {"confirm_wrong": 0.26}),
    "correlated, 0.32": ("correlated", {"confirm_wrong": 0.32}),
}
"""Other constants beside the declared ones: the structure of errors, and what is changed in it."""


def _changed(noise: str, errors: float = 1.0, **chances: float) -> SequenceLaw:
    law = law_of(noise)
    wrong = np.minimum(np.rint(law.wrong * errors), UNIT).astype(np.int64)
    whole: dict[str, Any] = {name: round(chance * UNIT) for name, chance in chances.items()}
    return replace(law, wrong=wrong, **whole)


def constants_rows(variant: str, stages: int, seed: int) -> Iterable[dict[str, Any]]:
    """What one choice of constants gives: exact rates of the reference candidate, and what the frozen claim selects.

    Args:
        variant: A name among `VARIANTS`.
        stages: How many are drawn.
        seed: Of the generator.
    """
    noise, changes = VARIANTS[variant]
    calls = int(changes.get("calls", BUDGET))
    law = _changed(noise, **{name: value for name, value in changes.items() if name != "calls"})
    family = candidates(calls)
    rates = law.rates(family)
    drawn = simulate(law, family, LONG, stages, [seed, 4, list(VARIANTS).index(variant)])
    counts = Counts(LONG, drawn.admitted, drawn.harmful, drawn.appealed)
    asked = Requirements(_RHO, C_MIN, B_MAX, DELTA)
    selected = decide_stages(counts, asked, family.chains, Plan(rates.admitted, rates.appealed))[
        "frozen"
    ].selected
    rows = np.flatnonzero(selected >= 0)
    chosen = selected[rows]
    coverage = drawn.admitted[rows, chosen] / LONG
    yield {
        "kind": "constants",
        "variant": variant,
        "reference_risk": float(rates.risk[REFERENCE]),
        "reference_coverage": float(rates.admitted[REFERENCE]),
        "reference_calls": float(rates.appealed[REFERENCE]),
        "stages": stages,
        "certified": len(rows),
        "false": int(np.count_nonzero(drawn.frozen_risk[rows, chosen] > _RHO)),
        "risk": float(rates.risk[chosen].sum()),
        "risk_squared": float((rates.risk[chosen] ** 2).sum()),
        "coverage": float(coverage.sum()),
        "coverage_squared": float((coverage**2).sum()),
    }


def constants(rows: Sequence[Row]) -> Table:
    """How much the numbers depend on what the paper leaves open.

    Args:
        rows: Of the study.
    """
    cells = []
    for variant in VARIANTS:
        where = {"kind": "constants", "variant": variant}
        found, many = one(rows, where), Sums(rows, where)
        for name, paper in (("risk", "0.0697"), ("coverage", "0.4125"), ("calls", "0.1816")):
            key = f"reference_{name}"
            ours = exact(found[key], how=f"`{key}`")
            cells.append(Cell(variant, f"reference {name} ({paper})", ours, where))
        cells += [
            Cell(variant, "certified", many.share("certified"), where),
            Cell(variant, "selected risk", many.mean("risk"), where),
            Cell(variant, "selected coverage", many.mean("coverage"), where),
            Cell(variant, "false", many.share("false"), where),
        ]
    return Table(
        "constants",
        "",
        "How much the validity tables depend on the inferred constants, ρ = 0.08",
        cells,
        "The paper prints no law of its records. Inferred: levels, errors and the secondary's answers so that one "
        "candidate has the reported risk, coverage and call rate (in brackets; the paper's for correlated verifiers "
        "are 0.0791 and 0.3728 in one table, coverage 0.3897 in another); structures of noise so that what is "
        "selected has the reported risks and coverages of tab:noise_structure within their sampling error. The right "
        "half: the frozen claim on 16,384 records. Constants move what is selected and how often; the share of false "
        "certificates is δ's matter under all of them.",
    )
