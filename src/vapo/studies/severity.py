"""The disjoint-severity follow-up: controllers frozen on some records, judged on others that are corrupted far more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vapo.policy.observed import ObservedThreshold
from vapo.splits import make_manifest
from vapo.studies import style
from vapo.studies.controllers import CONTROLLERS, Response, measure, respond, trust
from vapo.studies.fixture import build
from vapo.studies.fixture_cases import FRONTIER, PRIMES, SEVERITY, Reading, parts, spread
from vapo.studies.fixture_tables import (
    Fact,
    alternatives,
    as_paper,
    column,
    count_table,
    fixture_tasks,
    limits,
    over_seeds,
)
from vapo.studies.framework import Context, Drawing, Row, Scale, Study, Table, Task

__all__ = ["QUANTILES", "STUDY"]

RECORDS = 128
QUANTILES = {"q_trust": 0.60, "q_kl": 0.75, "q_ratio": 0.75}
"""The observed-only gate of the follow-up, as the paper states it."""

PRINTED = {
    "static": ("static", 0.0675, 0.0112, 0.1237),
    "trust weight": ("trust", 0.0607, 0.0080, 0.1135),
    "clip + KL": ("clip-kl", 0.0622, 0.0086, 0.1158),
    "trust + clip + KL": ("combined", 0.0564, 0.0063, 0.1065),
}
"""Controller, aligned mean and the ends of its interval over cases; the harmful share is 0.2630 in every line."""
HARMFUL = 0.2630
THRESHOLDS = {"trust": 0.8721, "kl": 0.0610, "ratio": 0.2280}

READINGS = {
    "declared": SEVERITY,
    "the frontier's: one-sided errors twice as often": FRONTIER,
    "five cases, as listed": Reading(one_sided=0.5, clean=False),
    "symmetric: each view turned": Reading("turned", 0.5),
    "symmetric: half as often, view by view": Reading("view", 0.5),
    "shortcut on wrong answers only": Reading(one_sided=0.5, shortcut="wrong"),
    "views correlated by 0.25": Reading(one_sided=0.5, correlation=0.25),
    "all literal": Reading("turned", 1.0),
}
"""Other readings of the same case names."""

_FACTS = (Fact("harmful, all controllers", HARMFUL),)


def _tasks(scale: Scale, seeds: tuple[int, ...]) -> list[Task]:
    del scale
    choices = ("reading", reading_rows, READINGS)
    return fixture_tasks("severity", seeds, severity_rows, choices, _FACTS, (128, 640, 768))


def severity_rows(seed: int, reading: str = "declared") -> list[dict[str, Any]]:
    """The follow-up on one seed: a row for each case and controller, one for each controller, one for the gate.

    Args:
        seed: The stream.
        reading: What the case names mean: a name among `READINGS`.

    Example:
        >>> rows = severity_rows(13)
        >>> [row["kind"] for row in rows].count("case"), rows[-1]["kind"], rows[-1]["overlap"]
        (24, 'gate', 0)
    """
    cases = READINGS[reading].cases()
    # Numbers start anew behind those of the calibration records, so that no record is in both.
    calibration = build(seed, spread(cases, RECORDS)).records
    evaluation = build(seed, parts(cases, RECORDS, first=RECORDS))
    manifest = make_manifest({"calibration": calibration, "evaluation": evaluation.records})
    gate = ObservedThreshold.fit(calibration, trust(calibration, CONTROLLERS["combined"]), **QUANTILES)
    rows: list[dict[str, Any]] = []
    for line, (name, *_) in PRINTED.items():
        frozen = respond(evaluation.records, CONTROLLERS[name])
        found = []
        for place, case in enumerate(cases):
            here = slice(place * RECORDS, (place + 1) * RECORDS)
            found.append(measure(_cut(frozen, here), evaluation.clean[here]))
            rows.append({"kind": "case", "seed": seed, "controller": line, "case": case.name, **found[-1]})
        aligned = [row["U"] for row in found]
        reach = 1.96 * float(np.std(aligned, ddof=1)) / math.sqrt(len(cases))
        centre = math.fsum(aligned) / len(cases)
        rows.append(
            {
                "kind": "controller",
                "seed": seed,
                "controller": line,
                "aligned": centre,
                "low": centre - reach,
                "high": centre + reach,
                "harmful": sum(row["harmful_count"] for row in found) / len(evaluation.clean),
            }
        )
    by = {row["controller"]: row for row in rows if row["kind"] == "controller"}
    static = by["static"]
    # Beside the static row, so that one row holds the whole paired comparison of a seed.
    static |= {f"minus_static {line}": by[line]["aligned"] - static["aligned"] for line in list(PRINTED)[1:]}
    gated = measure(respond(evaluation.records, CONTROLLERS["combined"], gate), evaluation.clean)
    said = {"trust": gate.trust, "kl": gate.kl, "ratio": gate.ratio}
    return [
        *rows,
        {"kind": "gate", "seed": seed, "overlap": sum(manifest.overlaps.values()), **said, **gated},
    ]


def reading_rows(reading: str, seeds: Sequence[int]) -> list[Row]:
    """What the follow-up's numbers would be under another reading of its cases.

    Args:
        reading: A name among `READINGS`.
        seeds: Streams.
    """
    rows: list[Row] = []
    for seed in seeds:
        found = severity_rows(seed, reading)
        by = {row["controller"]: row for row in found if row["kind"] == "controller"}
        static, full = by["static"], by["trust + clip + KL"]
        rows.append(
            {
                "kind": "reading",
                "reading": reading,
                "seed": seed,
                "harmful": static["harmful"],
                "static": static["aligned"],
                "reach": (static["high"] - static["low"]) / 2,
                "full": full["aligned"],
                "full_minus_static": full["aligned"] - static["aligned"],
                "trust": found[-1]["trust"],
            }
        )
    return rows


def _cut(response: Response, rows: slice) -> Response:
    return Response(response.names[rows], response.score[rows], response.sign[rows], response.magnitude[rows])


def _tables(rows: Sequence[Row], context: Context) -> list[Table]:
    del context
    return [
        _follow_up(rows),
        _paired_table(rows),
        _gate_table(rows),
        _case_table(rows),
        _reading_table(rows),
        count_table(
            rows,
            "printed-counts",
            "Which count of records the printed harmful rate can be",
            "The paper lists five cases (symmetric 55 % and 70 %, false positives and false negatives 60 %, "
            "shortcut 70 %) of 128 records and gives intervals over six case means. No count of 128 and none "
            "of five times 128 records rounds to 0.2630, but 202 of six times 128 do: there was a sixth case "
            "that the text does not name.",
        ),
    ]


def _follow_up(rows: Sequence[Row]) -> Table:
    cells = []
    for line, (_, aligned, low, high) in PRINTED.items():
        where = {"kind": "controller", "controller": line}
        shown = (
            ("aligned", "aligned", aligned, "one run of 768 records; the cases' errors are inferred from this row"),
            ("CI95 low", "low", low, "the spread of the cases, not an error of sampling: the text says descriptive"),
            ("CI95 high", "high", high, "the spread of the cases, not an error of sampling: the text says descriptive"),
            ("harmful", "harmful", HARMFUL, "inferred: one-sided errors half as frequent as their severity"),
        )  # fmt: skip
        for quantity, key, printed, why in shown:
            paper = as_paper(printed, column(rows, where, key))
            cells.append(over_seeds(rows, where, line, quantity, key, paper, why))
    note = (
        "Mean over seeds, each with 128 calibration records and 128 evaluation records in each of six cases; "
        "the paper's error is the spread of our own single seeds. Not printed and inferred: at severity s a "
        "symmetric case corrupts a share s of records, whose views are then coins; a one-sided case turns a "
        "view of a wrong (right) answer with chance s/2; the shortcut turns every view with chance s; a "
        "sixth case is clean. The table of readings shows the others. The interval mixes cases that differ "
        "by design, so it says nothing about how well the mean is known."
    )
    return Table(
        "unseen-severity", "tab:unseen-severity", "Disjoint severities, evaluation split", cells, note
    )


def _paired_table(rows: Sequence[Row]) -> Table:
    where = {"kind": "controller", "controller": "static"}
    cells = []
    for line, (_, aligned, *_) in list(PRINTED.items())[1:]:
        key = f"minus_static {line}"
        paper = as_paper(aligned - PRINTED["static"][1], column(rows, where, key))
        why = "worked out from the printed means; on one stream the difference is known far better than the means"
        cells.append(over_seeds(rows, where, f"{line} minus static", "aligned", key, paper, why))
    note = "What each surface costs on the same proposals: the sharpest comparison that the paper's table allows."
    return Table("paired", "", "Controllers minus static control on the same records", cells, note)


def _gate_table(rows: Sequence[Row]) -> Table:
    where = {"kind": "gate"}
    why = "quantiles of 128 records under the stated ranges"
    lines = {
        "trust": ("trust threshold", "not used to choose the reading of the cases"),
        "kl": ("KL threshold", why),
        "ratio": ("ratio threshold", why),
    }
    cells = [
        over_seeds(
            rows, where, line, "value", key, as_paper(THRESHOLDS[key], column(rows, where, key)), reason
        )
        for key, (line, reason) in lines.items()
    ]
    others = (
        ("coverage", "coverage"),
        ("harmful R", "harmful"),
        ("selected risk", "R_sel"),
        ("aligned U", "U"),
    )
    cells += [over_seeds(rows, where, f"gated, {line}", "value", key) for line, key in others]
    cells.append(over_seeds(rows, where, "records in both splits", "value", "overlap"))
    note = "Quantiles 0.60, 0.75 and 0.75 of trust, KL and ratio on the calibration records, then frozen."
    return Table(
        "thresholds", "", "The observed-only gate and what it does on the evaluation split", cells, note
    )


def _case_table(rows: Sequence[Row]) -> Table:
    cells = []
    for case in SEVERITY.cases():
        for line, short in (("static", "static"), ("trust + clip + KL", "full")):
            where = {"kind": "case", "case": case.name, "controller": line}
            cells.append(over_seeds(rows, where, case.name, f"aligned U, {short}", "U"))
            cells.append(over_seeds(rows, where, case.name, f"harmful R, {short}", "harmful"))
    return Table("cases", "", "The six cases one by one", cells)


def _reading_table(rows: Sequence[Row]) -> Table:
    shown = (
        (f"harmful ({HARMFUL:.4f})", "harmful"),
        ("static aligned (0.0675)", "static"),
        ("half interval over cases (0.0563)", "reach"),
        ("full minus static (-0.0111)", "full_minus_static"),
        ("trust threshold (0.8721)", "trust"),
    )
    cells = alternatives(rows, "reading", READINGS, shown)
    note = (
        "The paper's values stand in brackets; the declared reading was chosen by all of them but the last. "
        "A single seed's harmful rate has a standard error of about 0.015. The frontier's static row (0.3183 "
        "over twelve seeds) needs the second line, this table the first: if both studies used one family of "
        "cases, their static rates of 0.2630 and 0.3183 are more than three standard errors apart."
    )
    return Table("readings", "", "How much the follow-up depends on what its case names mean", cells, note)


def _figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterator[Drawing]:
    del rows
    cells = {(cell.row, cell.quantity): cell for cell in tables[3].cells}
    overall = {(cell.row, cell.quantity): cell for cell in tables[0].cells}
    cases = [case.name for case in SEVERITY.cases()]
    lines = ("static", "trust + clip + KL")
    figure, panels = style.canvas(2, height=3.1, sharey=True, width_ratios=[1.4, 1.0])
    # One place is left free above the means, which are of another kind than the cases.
    places = [len(cases) + 1 - place for place in range(len(cases))] + [0]
    for place, name in zip(places, [*cases, "mean"], strict=True):
        for number, (line, short) in enumerate(zip(lines, ("static", "full"), strict=True)):
            if name == "mean":
                shown = [overall[line, quantity] for quantity in ("aligned", "harmful")]
            else:
                shown = [cells[name, f"{quantity}, {short}"] for quantity in ("aligned U", "harmful R")]
            for panel, cell in zip(panels, shown, strict=True):
                label = ("static control", "trust + clip + KL")[number] if name == cases[0] else None
                style.interval(panel, place + 0.16 - 0.32 * number, limits(cell.ours), number, label)
                if cell.paper is not None:
                    panel.plot(
                        float(cell.paper.value), place + 0.16 - 0.32 * number, "x", color=style.BLACK, markersize=5,
                        linestyle="none", label="paper" if not number else None, zorder=4,
                    )  # fmt: skip
    for panel, (title, unit) in zip(
        panels, (("aligned U", "a proposal"), ("harmful R", "share")), strict=True
    ):
        panel.axvline(0.0, color=style.BLACK, linewidth=0.6)
        panel.axhline(1.0, color="#BBBBBB", linewidth=0.6)
        panel.set_title(title)
        panel.set_xlabel(unit)
    panels[0].set_yticks(places, [*(_spoken(name) for name in cases), "mean of the six"])
    style.legend(figure, panels[0], columns=3)
    caption = (
        "Six corruption cases under frozen controllers; bars are 95 % intervals over seeds. The full controller moves "
        "every case towards 0: it loses where static control gains and saves a little where that loses (left), and "
        "turns no update round, so both do as much harm (right). The paper prints only means."
    )
    yield Drawing("severity", "tab:unseen-severity", caption, figure)


def _spoken(name: str) -> str:
    kind, _, severity = name.rpartition("-")
    return f"{kind.replace('-', ' ')}, {severity} %" if kind else "no corruption"


STUDY = Study(
    "severity",
    "What do frozen controllers do where verifiers are corrupted far more than on their calibration records?",
    ("tab:unseen-severity",),
    {"smoke": PRIMES[:3], "small": PRIMES[:20], "paper": PRIMES},
    _tasks,
    _tables,
    _figures,
)
