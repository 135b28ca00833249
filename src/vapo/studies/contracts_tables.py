"""The paper's contract tables, filled in from what audit runs left behind and from manifests of other studies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vapo.studies.contracts_manifests import (
    LEARNERS,
    config,
    experiments,
    from_manifest,
    learner,
    metadata,
    protocol,
)
from vapo.studies.contracts_paper import READINESS
from vapo.studies.estimates import exact, said
from vapo.studies.framework import Cell, Context, Paper, Row, Table, Verdict, matching

__all__ = ["tables"]


def tables(rows: Sequence[Row], context: Context) -> list[Table]:
    """All tables.

    Args:
        rows: Of the audit runs.
        context: With the manifests of what stands in the same folder.
    """
    found = (
        _splits(rows),
        _metrics(rows, context),
        protocol(context),
        config(rows, context),
        _readiness(rows, context),
        experiments(context),
        _quantities(rows),
        metadata(context),
        _promises(rows),
    )
    return [table for table in found if table.cells]


class _Held:
    """Whether a promise was kept, with the rows that say so."""

    def __init__(self, rows: Sequence[Row], where: Mapping[str, Any], column: str) -> None:
        found = list(matching(rows, where))
        self.where = where
        self.how = f"whether all are `{column}`"
        self.kept = bool(found) and all(bool(row[column]) for row in found)


def _check(rows: Sequence[Row], name: str) -> _Held:
    return _Held(rows, {"kind": "check", "check": name}, "passed")


def _refused(rows: Sequence[Row], name: str) -> _Held:
    return _Held(rows, {"kind": "refusal", "refusal": name}, "refused")


def _word(row: str, quantity: str, words: str, held: _Held, why: str) -> Cell:
    """A promise of the paper in words: ours says the same if it was kept."""
    ours = words if held.kept else f"not kept: {words}"
    return Cell(row, quantity, said(ours, held.how), held.where, Paper(words), why=why)


def _total(rows: Sequence[Row], where: Mapping[str, Any], column: str) -> int:
    return sum(row[column] for row in matching(rows, where))


def _splits(rows: Sequence[Row]) -> Table:
    promises = {
        "Calibration": (
            "observed views and proposal statistics",
            "clean labels remain outside the fit",
            _check(rows, "no label column among the observations"),
            "what was declared with the design split has no column of labels, and the fit gets nothing else",
        ),
        "Train": (
            "observed views and frozen proposal",
            "apply the learner update with the frozen calibration state",
            _check(rows, "the certificate comes before deployment"),
            "no learner is trained here: decisions on this split come after the certificate, from a frozen policy",
        ),
        "Held-out subset": (
            "observed views and frozen controller",
            "serialize actions before joining labels",
            _check(rows, "deployed actions are recorded and no label after them"),
            "the log holds the actions on this split, and no event of labels after them",
        ),
        "Test": (
            "observed views and frozen controller",
            "keep labels sealed during selection",
            _refused(rows, "labels of other splits among those joined"),
            "labels of this split, handed over with those of certification, are refused",
        ),
    }
    members = {
        "Calibration": ["design", "certification"],
        "Train": ["train"],
        "Held-out subset": ["held-out"],
        "Test": ["test"],
    }
    cells = []
    for stage, (inputs, words, held, why) in promises.items():
        where: dict[str, Any] = {"kind": "split", "split": members[stage]}
        cells += [
            Cell(stage, "records", exact(_total(rows, where, "rows"), how="sum of `rows`"), where),
            Cell(stage, "questions", exact(_total(rows, where, "groups"), how="sum of `groups`"), where),
        ]
        pairs = sorted({row["pair"] for row in matching(rows, {"kind": "overlap"})})
        mine = [pair for pair in pairs if set(pair.split(" ")[0].split("/")) & set(members[stage])]
        where = {"kind": "overlap", "pair": mine}
        seen = _Held(rows, {"kind": "inputs", "split": members[stage]}, "observed_only")
        cells += [
            _word(
                stage, "online inputs", inputs, seen, "no column that a controller gets is or holds a label"
            ),
            Cell(
                stage,
                "shared with another split",
                exact(_total(rows, where, "shared"), how="sum of `shared`"),
                where,
            ),
            _word(stage, "audit", words, held, why),
        ]
    return Table(
        "split-contract",
        "tab:split-contract",
        "Splits and what is known in each",
        cells,
        "Counts over all audit runs. Shared: ids, questions and normalised contents that two splits have in common. "
        "Calibration is two splits here: design, which needs no labels, and certification.",
    )


def _metrics(rows: Sequence[Row], context: Context) -> Table:
    where = {"kind": "metrics"}
    found = list(matching(rows, where))
    apart = max((abs(row["R"] - row["C"] * row["R_sel"]) for row in found), default=1.0)
    parts = max((abs(row["U"] - (row["P"] - row["H"])) for row in found), default=1.0)
    over = sum(row["H_mag"] > row["H_mag_bound"] + 1e-12 for row in found)
    resamples = {"kind": "constant", "constant": "bootstrap resamples"}
    (drawn,) = matching(rows, resamples)
    turned, above = (_total(rows, where, name) for name in ("turned", "above_bound"))
    study, manifest = learner(context) or (LEARNERS[0], None)
    kept = None if manifest is None else manifest["row_count"]
    risk, update = "Risk / coverage", "Update"
    promised = (
        (
            risk,
            "R − C·R_sel",
            "largest `R` - `C` * `R_sel`",
            apart,
            1e-12,
            "R over all proposals, R_sel over applied",
        ),
        (risk, "U − (P − H)", "largest `U` - (`P` - `H`)", parts, 1e-12, "aligned response, split by sign"),
        (
            risk,
            "H_mag above its bound",
            "rows with `H_mag` above `H_mag_bound`",
            over,
            0.0,
            "H_mag ≤ m_max·C·R_sel",
        ),
        (update, "directions turned by the magnitude", "sum of `turned`", turned, 0.0, "m ≥ 0"),
        (update, "magnitudes above ε_max", "sum of `above_bound`", above, 0.0, "the actuator's bound"),
    )
    cells = [
        from_manifest(row, "rows kept", study, "row_count", kept, words)
        for row, words in (
            ("Loss / update", "learner loss and signed update statistic retained per policy-seed pair"),
            ("Accuracy / return", "evaluation split and return scale specified by the run manifest"),
        )
    ]
    cells += [
        Cell(row, name, exact(ours, how=how), where, Paper(0, room), why=why)
        for row, name, how, ours, room, why in promised
    ]
    why = "paired over seed, then question"
    count = exact(drawn["value"], how="`value`")
    cells.append(Cell("Cost / uncertainty", "bootstrap resamples", count, resamples, Paper(10_000), why=why))
    return Table(
        "metric-contract",
        "tab:metric-contract",
        "What the metrics mean, as identities that hold on every audit run",
        cells,
        "The paper leaves denominators of its learner ledgers to run metadata; here they are fixed for every study: R "
        "and coverage over all proposals, R_sel over applied ones, return 100 × mean reward clipped to [0, 1].",
    )


def _readiness(rows: Sequence[Row], context: Context) -> Table:
    trained = learner(context)
    promises: dict[str, list[_Held]] = {
        "Split manifest": [_refused(rows, "two splits that share a question")],
        "Independent verifiers": [
            _refused(rows, "a secondary that is the primary"),
            _refused(rows, "two signals with one digest"),
        ],
        "Online trace": [
            _check(rows, "no label column among the observations"),
            _refused(rows, "an oracle field in a nested column"),
        ],
        "Oracle trace": [
            _check(rows, "labels joined after the trace was frozen"),
            _check(rows, "labels carry the frozen trace's root"),
            _refused(rows, "labels joined before the freeze"),
        ],
        "Scheduler/run records": [
            _check(rows, "every file verifies"),
            _check(rows, "replay gives the same bytes"),
            _refused(rows, "an event changed in the log"),
        ],
    }
    cells = []
    verdict: Verdict | None
    for artifact, paper in READINESS.items():
        held = promises.get(artifact)
        if held is None:
            status = None if trained is None else "PASS" if trained[1]["row_count"] else "FAIL"
            study = trained[0] if trained else LEARNERS[0]
            cells.append(from_manifest(artifact, "status", study, "row_count", status, paper))
            continue
        where = held[0].where if len(held) == 1 else {"kind": ["check", "refusal"]}
        names = "; ".join(str(each.where.get("check", each.where.get("refusal"))) for each in held)
        kept = all(each.kept for each in held)
        if artifact == "Independent verifiers":
            # Identity is all that is looked at here; whether two verifiers err independently needs verifiers of a task.
            status, verdict = "SOURCES ONLY" if kept else "FAIL", "not comparable"
            why = "ids and digests are told apart, no verifier of a task is judged; the paper's are two format parsers"
        else:
            status, verdict = "PASS" if kept else "FAIL", None
            why = "checked on every audit run, and what must not be possible was tried"
        ours = said(status, f"whether all of these are `passed` or `refused`: {names}")
        cells.append(Cell(artifact, "status", ours, where, Paper(paper), verdict, why))
    return Table(
        "learner-readiness",
        "tab:learner-readiness",
        "Readiness of the machinery around a learner",
        cells,
        "PASS here is the outcome of a check, not of a reading. See the promises below for each.",
    )


def _quantities(rows: Sequence[Row]) -> Table:
    events = [row for row in matching(rows, {"kind": "event"}) if row["event"] != "certificate.issued"]
    lines = (
        ("v, c: observed views and confidence", "before control", "signal.confidence"),
        ("s: trust summary", "before control", "family.frozen"),
        ("Δr, k: frozen proposal", "before control", "delta_r"),
        ("b: application bit of every candidate", "decision trace", "one byte a candidate"),
        ("w, ε, β, m, ũ: worked out from the deployed sign and score", "decision trace", "budget_before"),
        ("z: clean sign", "post-freeze join", "z"),
    )
    cells = []
    for quantity, paper, column in lines:
        first = _first(events, column)
        where = {"kind": "event", "event": first}
        cells += [
            Cell(
                quantity,
                "availability",
                said(_stage(events, first), f"the first `event` whose `columns` name {column}"),
                where,
                Paper(paper),
                why=f"first in {first}",
            ),
        ]
    return Table(
        "replay-quantities",
        "",
        "Replay quantities and when each becomes available",
        cells,
        "The event of a run's log that is the first to name a table with the quantity. The order of events is fixed by "
        "the log; what a certificate writes out again is left out, for it is a function of the frozen trace.",
    )


def _first(events: Sequence[Row], column: str) -> str:
    return next(
        (row["event"] for row in events if column in row["columns"].split(", ") or row["event"] == column),
        "nowhere",
    )


def _stage(events: Sequence[Row], event: str) -> str:
    kinds = [row["event"] for row in events]
    if event not in kinds:
        return "nowhere"
    if kinds.index(event) < kinds.index("appeals.requested"):
        return "before control"
    return "post-freeze join" if event == "labels.joined" else "decision trace"


def _promises(rows: Sequence[Row]) -> Table:
    cells = []
    for name in dict.fromkeys(row["check"] for row in matching(rows, {"kind": "check"})):
        held = _check(rows, name)
        cells.append(Cell(name, "kept", said("yes" if held.kept else "NO", held.how), held.where))
    for row in matching(rows, {"kind": "refusal"}):
        where = {"kind": "refusal", "refusal": row["refusal"]}
        cells.append(Cell(f"refused: {row['refusal']}", "kept", said(row["error"] or "NO", "`error`"), where))
    return Table("promises", "", "What was checked, and what was tried and refused", cells)
