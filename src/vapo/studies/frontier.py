"""The risk-coverage frontier: observed-only gates of four strengths on twelve seeds, under constraints named before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from vapo.policy.observed import ObservedThreshold
from vapo.splits import make_manifest
from vapo.studies import style
from vapo.studies.controllers import CONTROLLERS, measure, respond, trust
from vapo.studies.estimates import said
from vapo.studies.fixture import build
from vapo.studies.fixture_cases import FRONTIER, PRIMES, SEVERITY, Reading, parts
from vapo.studies.fixture_tables import (
    Fact,
    alternatives,
    as_paper,
    column,
    count_table,
    fixture_tasks,
    limits,
    over_seeds,
    paper_limits,
    seeds_paper,
)
from vapo.studies.framework import Cell, Context, Drawing, Paper, Row, Scale, Study, Table, Task

__all__ = ["STUDY"]

RECORDS = 128
MOST_RISK, LEAST_COVERAGE = 0.05, 0.25
"""The constraints, declared beforehand."""

TRUST = {"q50": 0.50, "q60": 0.60, "q75": 0.75, "q90": 0.90}
STATED_KL = 0.75
"""The one KL quantile that the paper states anywhere, for q60 in the follow-up."""
KL = {"q50": 0.65, "q60": 0.85, "q75": 0.95, "q90": 0.85}
"""KL quantiles inferred, to the nearest 0.05, from the printed coverages."""
RATIO = 0.75

PRINTED: dict[str, tuple[tuple[float, float, float], tuple[float, float, float], float, str]] = {
    "q50": ((0.0397, 0.0349, 0.0446), (0.3309, 0.3177, 0.3442), 0.0315, "pass"),
    "q60": ((0.0328, 0.0295, 0.0360), (0.3360, 0.3252, 0.3469), 0.0349, "pass"),
    "q75": ((0.0230, 0.0203, 0.0257), (0.2376, 0.2317, 0.2435), 0.0257, "fail: coverage"),
    "q90": ((0.0084, 0.0066, 0.0101), (0.0910, 0.0845, 0.0976), 0.0103, "fail: coverage"),
    "static": ((0.3183, 0.3092, 0.3273), (1.0, 1.0, 1.0), 0.0525, "fail: risk"),
}
"""Harmful risk and coverage with their intervals, aligned update, and the verdict on the constraints."""
DELTAS = {
    "aligned": (0.003397, 0.002406, 0.004387),
    "coverage": (0.005100, -0.007979, 0.018179),
    "harmful": (-0.006944, -0.010757, -0.003131),
}
"""q60 minus q50, paired by seed."""

READINGS: dict[str, tuple[Reading, int]] = {
    "declared": (FRONTIER, RECORDS),
    "the follow-up's: one-sided errors half as often": (SEVERITY, RECORDS),
    "five cases, none clean": (Reading(clean=False), RECORDS),
    "symmetric: each view turned": (Reading("turned"), RECORDS),
    "symmetric: half as often, view by view": (Reading("view"), RECORDS),
    "shortcut on wrong answers only": (Reading(shortcut="wrong"), RECORDS),
    "views correlated by 0.25": (Reading(correlation=0.25), RECORDS),
    "thresholds from a sixth of the records": (FRONTIER, RECORDS // 6),
}
"""Other readings of the cases, and how many calibration records of each."""

_FACTS = (
    *(Fact(f"harmful, {name}", harmful[0]) for name, (harmful, *_) in PRINTED.items()),
    *(Fact(f"coverage, {name}", coverage[0]) for name, (_, coverage, *_) in list(PRINTED.items())[:4]),
    Fact("q60 minus q50, coverage", 0.005100, 6),
    Fact("q50 minus q60, harmful", 0.006944, 6),
)


def _tasks(scale: Scale, seeds: tuple[int, ...]) -> list[Task]:
    del scale
    choices = ("reading", reading_rows, READINGS)
    return fixture_tasks("frontier", seeds, frontier_rows, choices, _FACTS, (7680, 9216))


def frontier_rows(seed: int, reading: str = "declared") -> list[dict[str, Any]]:
    """Every candidate on one seed: thresholds from calibration observations, labels joined at the end.

    Args:
        seed: The stream.
        reading: What the case names mean: a name among `READINGS`.

    Example:
        >>> rows = frontier_rows(13)
        >>> [row["candidate"] for row in rows if row["kind"] == "candidate"]
        ['q50', 'q60', 'q75', 'q90', 'static']
    """
    cases, size = READINGS[reading][0].cases(), READINGS[reading][1]
    calibration = build(seed, parts(cases, size)).records
    evaluation = build(seed, parts(cases, RECORDS, first=RECORDS))
    make_manifest({"calibration": calibration, "evaluation": evaluation.records})
    full = CONTROLLERS["combined"]
    rows: list[dict[str, Any]] = []
    score = trust(calibration, full)
    for kind, levels in (("candidate", KL), ("stated", dict.fromkeys(TRUST, STATED_KL))):
        for name, q_trust in TRUST.items():
            gate = ObservedThreshold.fit(
                calibration, score, q_trust=q_trust, q_kl=levels[name], q_ratio=RATIO
            )
            frozen = respond(evaluation.records, full, gate)
            fitted = {"trust": gate.trust, "kl": gate.kl, "ratio": gate.ratio}
            rows.append(
                {"kind": kind, "seed": seed, "candidate": name, **fitted, **measure(frozen, evaluation.clean)}
            )
    static = measure(respond(evaluation.records, CONTROLLERS["static"]), evaluation.clean)
    rows.append({"kind": "candidate", "seed": seed, "candidate": "static", **static})
    for row in rows:
        row["feasible"] = row["harmful"] <= MOST_RISK and row["coverage"] >= LEAST_COVERAGE
    by = {row["candidate"]: row for row in rows if row["kind"] == "candidate"}
    names = {"aligned": "U", "coverage": "coverage", "harmful": "harmful"}
    paired = {name: by["q60"][key] - by["q50"][key] for name, key in names.items()}
    return [*rows, {"kind": "paired", "seed": seed, **paired}]


def reading_rows(reading: str, seeds: Sequence[int]) -> list[Row]:
    """What the frontier would be under another reading of its cases.

    Args:
        reading: A name among `READINGS`.
        seeds: Streams.
    """
    rows: list[Row] = []
    for seed in seeds:
        by = {row["candidate"]: row for row in frontier_rows(seed, reading) if row["kind"] == "candidate"}
        found = {f"R_sel {name}": by[name]["R_sel"] for name in TRUST}
        rows.append(
            {
                "kind": "reading",
                "reading": reading,
                "seed": seed,
                "harmful_static": by["static"]["harmful"],
                "trust_q60": by["q60"]["trust"],
                "coverage_q60": by["q60"]["coverage"],
                **found,
            }
        )
    return rows


def _tables(rows: Sequence[Row], context: Context) -> list[Table]:
    del context
    return [
        _frontier_table(rows),
        _paired_table(rows),
        _check_table(rows),
        _kl_table(rows),
        _reading_table(rows),
        count_table(
            rows,
            "printed-counts",
            "Which counts the printed shares can be",
            "Every printed share is a count of 12 x 768 records; with five cases of 128 (12 x 640 records) "
            "the paired differences, printed to six digits, are not. So the frontier too was measured on six "
            "cases a seed.",
        ),
    ]


def _frontier_table(rows: Sequence[Row]) -> Table:
    cells = []
    for name, (harmful, coverage, aligned, constraint) in PRINTED.items():
        where = {"kind": "candidate", "candidate": name}
        gated = name != "static"
        risk = over_seeds(
            rows, where, name, "harmful risk", "harmful", seeds_paper(*harmful),
            "no constant was set by it; the reading of the cases was chosen with it in view" if gated
            else "the cases' errors are inferred from this",
        )  # fmt: skip
        covered = over_seeds(
            rows, where, name, "coverage", "coverage", seeds_paper(*coverage),
            "the KL quantile is inferred from it, to the nearest 0.05" if gated else "every proposal moves the learner",
        )  # fmt: skip
        paper = as_paper(aligned, column(rows, where, "U"), runs=12)
        why = "follows from the cases and the full controller's surfaces; the paper's error is our spread over seeds"
        cells += [risk, covered, over_seeds(rows, where, name, "aligned", "U", paper, why)]
        verdict = _constraint(risk.ours.value, covered.ours.value)
        why = "R <= 0.05 and C >= 0.25 of the means"
        how = f"mean of `harmful` <= {MOST_RISK} and mean of `coverage` >= {LEAST_COVERAGE}"
        cells.append(Cell(name, "point constraints", said(verdict, how), where, Paper(constraint), why=why))
        feasible = column(rows, where, "feasible")
        counted = said(f"{sum(feasible)} of {len(feasible)}", "rows that are `feasible`")
        cells.append(Cell(name, "seeds that satisfy both", counted, where))
    note = (
        "Each seed: six cases of 128 calibration and 128 evaluation records; thresholds from calibration "
        "observations, labels joined after freezing. Not printed and inferred: at severity s a symmetric "
        "case corrupts a share s of records, whose views are then coins; false positives (negatives) turn "
        "each view of a wrong (right) answer with chance s; the shortcut turns every view with chance s; a "
        "sixth case is clean; views err independently. KL quantiles are 0.65, 0.85, 0.95 and 0.85, since one "
        "quantile for all cannot give the printed coverages."
    )  # fmt: skip
    return Table("risk-coverage", "tab:risk-coverage", "Risk-coverage frontier", cells, note)


def _constraint(risk: Any, coverage: Any) -> str:
    broken = [
        word for word, fails in (("risk", risk > MOST_RISK), ("coverage", coverage < LEAST_COVERAGE)) if fails
    ]
    return f"fail: {', '.join(broken)}" if broken else "pass"


def _paired_table(rows: Sequence[Row]) -> Table:
    where = {"kind": "paired"}
    why = {
        "aligned": "the same records under two gates",
        "coverage": "rests on the inferred KL quantiles: 0.05 of such a quantile is 0.02 of coverage",
        "harmful": "the same records under two gates",
    }
    cells = [
        over_seeds(
            rows,
            where,
            "q60 minus q50",
            name,
            name,
            seeds_paper(*printed, decimals=6),
            why[name],
            difference=True,
        )
        for name, printed in DELTAS.items()
    ]
    gain = cells[1].ours
    crosses = None if gain.low is None or gain.high is None else gain.low <= 0.0 <= gain.high
    cells.append(
        Cell(
            "q60 minus q50", "coverage interval crosses 0",
            said({True: "yes", False: "no", None: "one seed has no interval"}[crosses], "t interval of `coverage`"),
            where, Paper("yes"), None if crosses is not None else "not comparable",
            "the paper's claim; the KL quantiles are inferred to 0.05 only, and half of that moves the gain across 0",
        )
    )  # fmt: skip
    note = "Paired by seed. The operating point q60 costs no aligned update against q50 and takes fewer harmful ones."
    return Table("paired", "tab:risk-coverage", "q60 against q50 on the same seeds", cells, note)


def _check_table(rows: Sequence[Row]) -> Table:
    cells = []
    for name in TRUST:
        where = {"kind": "candidate", "candidate": name}
        (risk, low, high), (coverage, *_), *_ = PRINTED[name]
        paper = Paper(risk / coverage, (high - low) / 2.0 / coverage, 4)
        cells.append(
            over_seeds(
                rows, where, name, "selected risk", "R_sel", paper,
                "printed risk over printed coverage; no KL quantile moves it, so it rests on the reading of the cases",
            )
        )  # fmt: skip
        cells.append(over_seeds(rows, where, name, "trust threshold", "trust"))
    note = (
        "KL says nothing about who is right, so the selected risk rests on the cases alone. The reading of "
        "the cases was chosen, among those in the table of readings, by the static risk and these four. It "
        "falls from q50 to q60, where the gate comes to admit only records all five of whose views agree, "
        "and hardly from there on: a higher threshold asks for more of a confidence that is drawn at random. "
        "Left are records whose views all err."
    )
    return Table("checks", "", "Selected risk, which the KL quantiles do not move", cells, note)


def _kl_table(rows: Sequence[Row]) -> Table:
    cells = []
    for name in TRUST:
        _, (coverage, *_), *_ = PRINTED[name]
        where = {"kind": "stated", "candidate": name}
        found = over_seeds(rows, where, name, f"coverage at {STATED_KL}", "coverage")
        cells += [found, over_seeds(rows, where, name, f"harmful at {STATED_KL}", "harmful")]
        at_one = float(found.ours.value or 0.0) / STATED_KL
        how = f"{coverage} over the mean of `coverage` / {STATED_KL}"
        needed = said(f"{coverage / at_one:.3f}" if at_one else "undefined", how)
        cells.append(Cell(name, "KL quantile that the printed coverage asks for", needed, where))
        cells.append(
            Cell(
                name,
                "KL quantile used",
                said(f"{KL[name]:.2f}", "declared; `kl` is its threshold on each seed"),
                {"kind": "candidate", "candidate": name},
            )
        )
    note = (
        "With one KL quantile for all, q60 admits a part of what q50 admits, so its coverage could not be "
        "the larger; the paper prints 0.3360 against 0.3309. With the stated 0.75, coverage would be that of "
        "the first column. The last but one column divides the printed coverage by the share of records "
        "above the trust threshold; for q90 the paper's own interval leaves it open by 0.06 to either side."
    )
    return Table("kl-quantiles", "", "Which KL quantiles the printed coverages ask for", cells, note)


def _reading_table(rows: Sequence[Row]) -> Table:
    shown = [("static risk (0.3183)", "harmful_static"), ("trust threshold q60 (0.8721)", "trust_q60")]
    for name in TRUST:
        (risk, *_), (coverage, *_), *_ = PRINTED[name]
        shown.append((f"selected risk {name} ({risk / coverage:.4f})", f"R_sel {name}"))
    shown.append(("coverage q60 (0.3360)", "coverage_q60"))
    cells = alternatives(rows, "reading", READINGS, shown)
    note = (
        "The paper's values stand in brackets; the trust threshold is the follow-up's, the only one that it "
        "prints. Only the declared reading gives the static risk, all four selected risks and the threshold "
        "together."
    )
    return Table("readings", "", "How much the frontier depends on what its case names mean", cells, note)


def _figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterator[Drawing]:
    del rows
    cells = {(cell.row, cell.quantity): cell for cell in tables[0].cells}
    figure, (frontier, aligned) = style.canvas(2, height=2.8, width_ratios=[1.5, 1.0])
    frontier.axvspan(
        LEAST_COVERAGE, 1.0, ymax=MOST_RISK / 0.058, color=style.COLOURS[2], alpha=0.12, linewidth=0
    )
    frontier.axhline(MOST_RISK, color=style.BLACK, linestyle="--", linewidth=0.8)
    frontier.axvline(LEAST_COVERAGE, color=style.BLACK, linestyle="--", linewidth=0.8)
    for number, whose in enumerate((_ours, paper_limits)):
        colour, marker = style.COLOURS[number], style.MARKERS[number]
        fill = "white" if number else colour
        for place, name in enumerate((*TRUST, "static")):
            where = whose(cells[name, "aligned"])
            assert where is not None
            style.interval(aligned, place - 0.15 + 0.3 * number, where, number)
            across, up = whose(cells[name, "coverage"]), whose(cells[name, "harmful risk"])
            if name == "static" or across is None or up is None:
                continue
            frontier.plot([across[0], across[2]], [up[1], up[1]], color=colour, linewidth=1.1, alpha=0.7)
            frontier.plot([across[1], across[1]], [up[0], up[2]], color=colour, linewidth=1.1, alpha=0.7)
            frontier.plot(
                across[1], up[1], marker, color=colour, markerfacecolor=fill, linestyle="none",
                label=("ours", "paper")[number] if not place else None, zorder=3,
            )  # fmt: skip
    offsets = {"q50": (7, 4), "q60": (7, -10), "q75": (7, -10), "q90": (8, -3)}
    for name, offset in offsets.items():
        x, y = (limits(cells[name, axis].ours)[1] for axis in ("coverage", "harmful risk"))
        frontier.annotate(name, (x, y), offset, textcoords="offset points", fontsize=7, color=style.BLACK)
    frontier.text(0.415, 0.0015, "R ≤ 0.05\nC ≥ 0.25", fontsize=6.5, ha="right", va="bottom")
    frontier.set_xlim(0.05, 0.425)
    frontier.set_ylim(0.0, 0.058)
    frontier.set_xlabel("coverage C, share of proposals")
    frontier.set_title("harmful risk R, share")
    aligned.set_yticks(range(5), [*TRUST, "static"])
    aligned.invert_yaxis()
    aligned.set_title("aligned U")
    aligned.set_xlabel("a proposal")
    aligned.set_xlim(0.0, None)
    style.legend(figure, frontier)
    caption = (
        "Gates of four strengths; bars are 95 % intervals, over seeds where they are ours. q50 and q60 lie inside the "
        "declared limits (shaded), q75 and q90 admit too little. Static control, outside the left panel with risk 0.32 "
        "at coverage 1, moves further in the right direction all the same (right)."
    )
    yield Drawing("risk-coverage", "fig:risk-coverage", caption, figure)


def _ours(cell: Cell) -> tuple[float, float, float]:
    return limits(cell.ours)


STUDY = Study(
    "frontier",
    "Which gate strengths keep the declared limits on risk and coverage, and by how much?",
    ("tab:risk-coverage", "fig:risk-coverage"),
    {"smoke": PRIMES[:4], "small": PRIMES[:12], "paper": PRIMES[:12]},
    _tasks,
    _tables,
    _figures,
)
