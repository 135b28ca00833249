"""Contract tables are filled in from checks: they say so when a promise is not kept."""

from __future__ import annotations

import json

import pytest

from vapo.studies import contracts, contracts_tables
from vapo.studies.contracts import STUDY
from vapo.studies.framework import Context
from vapo.studies.runner import run_studies


@pytest.fixture(scope="module")
def rows():
    return [row for task in STUDY.tasks("smoke", (13,)) for row in task.run()]


def _cells(rows, manifests=None):
    tables = contracts_tables.tables(rows, Context("smoke", (13,), manifests or {}))
    return {(table.name, cell.row, cell.quantity): cell for table in tables for cell in table.cells}


def test_every_promise_is_kept_and_every_forbidden_thing_refused(rows):
    checks = {row["check"]: row["passed"] for row in rows if row["kind"] == "check"}
    refusals = {row["refusal"]: row["refused"] for row in rows if row["kind"] == "refusal"}
    assert len(checks) == 9
    assert all(checks.values()), checks
    assert len(refusals) == 8
    assert all(refusals.values()), refusals


def test_an_audit_gives_the_same_rows_each_time(rows):
    again = list(contracts._audit(13))
    assert [
        row for row in rows if row["kind"] in {"split", "inputs", "overlap", "event", "metrics", "check"}
    ] == again


@pytest.mark.parametrize(
    ("kind", "name", "column", "table", "row", "quantity"),
    [
        (
            "check",
            "deployed actions are recorded and no label after them",
            "passed",
            "split-contract",
            "Held-out subset",
            "audit",
        ),
        ("check", "every file verifies", "passed", "learner-readiness", "Scheduler/run records", "status"),
        (
            "refusal",
            "two splits that share a question",
            "refused",
            "learner-readiness",
            "Split manifest",
            "status",
        ),
    ],
)
def test_a_promise_that_is_not_kept_shows(rows, kind, name, column, table, row, quantity):
    assert _cells(rows)[table, row, quantity].verdict == "agrees"
    broken = [{**each, column: False} if each.get(kind) == name else each for each in rows]
    assert _cells(broken)[table, row, quantity].verdict == "differs"


def test_a_quantity_that_comes_too_early_or_too_late_shows(rows):
    late = [
        {**row, "columns": "z" if row["event"] == "protocol.declared" else row["columns"]}
        if row["kind"] == "event"
        else row
        for row in rows
    ]
    assert _cells(rows)["replay-quantities", "z: clean sign", "availability"].verdict == "agrees"
    assert _cells(late)["replay-quantities", "z: clean sign", "availability"].verdict == "differs"


def test_what_does_not_stand_in_the_folder_is_not_compared(rows):
    cells = _cells(rows)
    assert cells["future-protocol", "Matched random", "seeds"].verdict == "not comparable"
    assert cells["current-experiments", "SVAMP transfer", "status"].verdict == "not comparable"


def test_what_stands_in_the_folder_is_read_off_its_manifest(rows):
    manifest = {
        "scale": "small",
        "seeds": [13, 17, 23],
        "tasks": 2,
        "row_count": 40,
        "verdicts": {"agrees": 3},
        "code": ["ab" * 32],
        "rows": ["rows/a.jsonl", "rows/b.jsonl"],
        "files": {"rows/a.jsonl": "0", "rows/b.jsonl": "1", "report.md": "2"},
        "arguments": {"model": ["tiny"]},
    }
    cells = _cells(rows, {"matched": manifest})
    seeds = cells["future-protocol", "Matched random", "seeds"]
    assert (seeds.ours.value, seeds.verdict) == ("13, 17, 23", "agrees")
    assert cells["additional-config", "Base learner", "specification"].ours.value == "tiny"
    assert cells["run-metadata", "matched", "per-seed result artifact"].verdict == "agrees"
    assert cells["current-experiments", "Matched learner outcome ledgers", "status"].verdict == "agrees"


def test_the_manifest_lists_what_tasks_were_given(tmp_path):
    run_studies([STUDY], out=tmp_path)
    manifest = json.loads((tmp_path / "contracts" / "manifest.json").read_bytes())
    assert manifest["arguments"] == {"seed": [13]}
    assert {"figures/vapo-algorithm.png", "figures/sequential-certification.svg"} <= manifest["files"].keys()
