"""Real verifiers' verdicts go through the whole flow; nothing that gives the answer away goes with them."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import real_data, real_verdicts, verdict_files
from vapo import Gate, Labels, Records, certify, decide
from vapo.errors import InputError
from vapo.ledger import verify_run

ROWS = [
    {
        "id": f"a{number}",
        "group": f"q{number // 2}",
        "primary": (1, -1, 0)[number % 3],
        "secondary": {"judge": {"v": 1, "s": 0.75}, "match": {"v": None, "s": None}},
        "label": 1 if number % 4 else -1,
        "meta": {"question": f"What is {number // 2}?", "gold": ["42"], "annotators": ["Yes"]},
    }
    for number in range(12)
]


@pytest.fixture(scope="module")
def shared():
    """The folder of verdict files, in the environment or beside the checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    named = os.environ.get(verdict_files.ENVIRONMENT) or (str(beside) if beside.is_dir() else "")
    if not named:
        pytest.skip(
            f"no real verdicts here: no folder in {verdict_files.ENVIRONMENT}, and none beside the checkout"
        )
    try:
        folder = verdict_files.find_verdicts(named)
    except InputError as error:
        pytest.skip(str(error))
    missing = {setup.file for setup in real_verdicts.SETUPS.values()} - {
        path.name for path in folder.iterdir()
    }
    if missing:
        pytest.skip(f"real verdicts are not here: {folder} has no {min(missing)}")
    return real_verdicts.load(folder)


def test_a_converted_file_carries_neither_labels_nor_anything_else_that_knows_the_answer():
    tables = verdict_files.convert(ROWS)
    assert set(tables.records.column_names) == {
        "id", "group", "y", "verdict.judge", "verdict.judge.score", "verdict.match", "content",
    }  # fmt: skip
    assert Records.from_arrow(tables.records).waived == ()
    assert tables.labels.column_names == ["id", "z"]
    assert tables.labels["z"].to_pylist() == [row["label"] for row in ROWS]


def test_a_verdict_that_was_not_given_is_zero_and_its_record_is_kept():
    records = verdict_files.convert(ROWS).records
    assert set(records["verdict.match"].to_pylist()) == {0}
    assert records["y"].to_pylist().count(0) == 4
    assert len(records) == len(ROWS)


def test_leaving_out_what_the_primary_did_not_judge_has_to_be_asked_for():
    tables = verdict_files.convert(ROWS, only_judged=True)
    assert len(tables.records) == len(tables.labels) == 8
    assert 0 not in tables.records["y"].to_pylist()


def test_a_secondary_is_as_sure_as_its_score_says_on_the_side_it_took():
    rows = [
        {**ROWS[0], "secondary": {"judge": {"v": v, "s": 0.2}, "match": {"v": 1, "s": None}}} for v in (1, -1)
    ]
    tables = verdict_files.convert(rows, y2="judge")
    assert tables.records["c2"].to_pylist() == [0.2, 0.8]
    assert tables.records["y2_source"].to_pylist() == ["judge", "judge"]
    assert "verdict.judge" not in tables.records.column_names


@pytest.mark.parametrize(
    "names", [{"primary": "judge", "y2": "judge"}, {"y2": "judge", "signals": ["judge"]}]
)
def test_one_verifier_cannot_play_two_parts(names):
    with pytest.raises(InputError, match="different verifiers"):
        verdict_files.convert(ROWS, **names)


def test_an_unknown_verifier_is_named():
    with pytest.raises(InputError, match="'oracle'"):
        verdict_files.convert(ROWS, y2="oracle")


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_the_command_writes_files_that_the_flow_reads_and_keeps_the_question_back(tmp_path, suffix):
    text = "\n".join(json.dumps(row) for row in ROWS)
    path = tmp_path / f"verdicts{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    assert verdict_files.main([str(path), "--y2", "judge", "--out", str(tmp_path / "out")]) == 0
    records = Records.read(tmp_path / "out" / "records.parquet")
    assert records.secondary is not None
    assert records.trust_names == ("match",)
    assert b"What is" not in (tmp_path / "out" / "records.parquet").read_bytes()
    assert len(Labels.read(tmp_path / "out" / "labels.parquet")) == len(ROWS)


def test_what_is_missing_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(verdict_files.ENVIRONMENT, raising=False)
    with pytest.raises(InputError, match=verdict_files.ENVIRONMENT):
        verdict_files.find_verdicts()
    with pytest.raises(InputError, match="none there"):
        verdict_files.find_verdicts(tmp_path)
    (tmp_path / "verdicts").mkdir()
    (tmp_path / "verdicts" / "other.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"openqa_eval\.jsonl|gsm8k_solutions"):
        real_verdicts.load(verdict_files.find_verdicts(tmp_path))
    assert verdict_files.main([str(tmp_path / "verdicts" / "other.jsonl"), "--out", str(tmp_path)]) == 2
    assert "line 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "terms", "certified"),
    [
        ("openqa", {"score": "signal:bem", "signs": "plain", "rho": 0.15, "c_min": 0.25}, True),
        ("openqa", {"score": "mean", "signs": "plain", "rho": 0.05, "c_min": 0.25}, False),
        ("gsm8k-peer", {"score": "mean", "signs": "specific", "rho": 0.08, "c_min": 0.25}, True),
        ("gsm8k-majority", {"score": "signal:calc", "signs": "specific", "rho": 0.05, "c_min": 0.10}, False),
    ],
)
def test_real_verdicts_certify_where_there_is_something_to_certify(shared, tmp_path, name, terms, certified):
    setup, tables = real_verdicts.SETUPS[name], shared[name]
    found = real_data.one_run(setup, tables, tmp_path / "run", **terms)
    body = found.certificate.body
    assert found.certificate.certified is certified
    assert verify_run(tmp_path / "run").ok
    assert body["labels"]["suspected_leaks"] == []
    assert body["waived"] == []
    if certified:
        assert body["bounds"]["frozen"]["risk_upper"] <= terms["rho"]
        assert body["counts"]["admitted"] >= terms["c_min"] * body["counts"]["n"]
    else:
        assert found.policies["frozen"] is None


def test_what_a_claim_selects_does_not_depend_on_which_claim_decides(shared, tmp_path):
    setup, tables = real_verdicts.SETUPS["gsm8k-peer"], shared["gsm8k-peer"]
    terms = {"score": "mean", "signs": "specific", "rho": 0.10, "c_min": 0.25}
    read = real_data.one_run(setup, tables, tmp_path / "frozen", **terms)
    for claim in ("sequential", "hoeffding"):
        run = tmp_path / claim
        decided = certify(
            *tables, out=run, claim=claim, group_cap=setup.group_cap, delta=real_data.DELTA, **terms
        )
        assert decided.policy == read.policies[claim]
        assert decided.policy is not None


def test_the_gate_decides_on_fresh_groups_as_the_measurement_does(shared, tmp_path):
    setup, tables = real_verdicts.SETUPS["gsm8k-peer"], shared["gsm8k-peer"]
    design, stage, fresh = real_verdicts.deal_groups(tables, np.random.default_rng(0))
    terms = {"score": "mean", "signs": "plain", "rho": 0.10, "c_min": 0.25}
    found = real_data.one_run(setup, stage, tmp_path / "run", design=design.records, **terms)
    policy = found.policies["frozen"]
    assert policy is not None
    records = Records.from_arrow(fresh.records)
    admitted = decide(policy, records, found.score.apply(records)).admitted()
    with Gate.open(tmp_path / "run") as gate:
        assert gate.overlap(fresh.records) == {"ids": 0, "groups": 0}
        decided = gate.decide(fresh.records).table
    assert (decided["sign"].to_numpy() != 0).tolist() == admitted.tolist()
    n, k, h = real_data.deployed(setup, fresh, policy, found.score)
    assert (n, k) == (len(records), admitted.sum())
    assert h / k < terms["rho"]


def test_the_promise_is_counted_over_splits(shared, tmp_path):
    trial = real_data.Trial("gsm8k-peer", "mean", "plain", 0.10, 0.25)
    for drawn in (False, True):
        found = real_data.promise(trial, shared["gsm8k-peer"], tmp_path, splits=2, drawn=drawn)
        assert found["claims"]["frozen"]["certified"] == 2
        assert found["claims"]["frozen"]["above"] == 0
