"""A training run is the same bytes however often it is killed, and trains nothing without a valid certificate."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.train.small import small
from tests.verifiers.stubs import Stub
from vapo.errors import InputError, ProtocolError
from vapo.ledger import EventKind, Ledger
from vapo.train import runner, runner_make, verdicts
from vapo.train.hook import GateHook
from vapo.train.resources import read_chain
from vapo.train.runner import train
from vapo.train.runner_table import run_row
from vapo.train.runner_verify import verify_training
from vapo.train.verdicts import Calls, open_judge
from vapo.verifiers import Failure, Outcome
from vapo.verifiers.base import Cost

RECORD = ("ledger.jsonl", "metrics.jsonl", "test.jsonl", "result.json", "config.json")
KILLS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory, open_small):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(small(), folder, open_with=open_small)
    return folder


def record(folder):
    """Every byte that a run is judged by: its ledger, its metrics, and the gate's whole run."""
    files = {name: (folder / name).read_bytes() for name in RECORD}
    gate = sorted(path for path in (folder / "gate").rglob("*") if path.is_file())
    return files | {
        str(path.relative_to(folder)): path.read_bytes() for path in gate if path.name != "telemetry.jsonl"
    }


def entries(folder, kind):
    return [entry.body for entry in read_chain(folder / "ledger.jsonl") if entry.kind == kind]


def test_one_seed_gives_the_same_bytes_again_and_another_seed_gives_others(whole, tmp_path, open_small):
    train(small(), tmp_path / "again", open_with=open_small)
    assert record(tmp_path / "again") == record(whole)
    train(small(seed=14), tmp_path / "other", open_with=open_small)
    assert (tmp_path / "other" / "ledger.jsonl").read_bytes() != (whole / "ledger.jsonl").read_bytes()


@pytest.mark.slow
# Later versions of Python warn of it; a child that hangs on somebody's lock is killed like any other.
@pytest.mark.filterwarnings("ignore:.*is multi-threaded, use of fork:DeprecationWarning")
def test_a_run_that_is_killed_at_random_moments_ends_with_the_bytes_of_one_that_was_not(
    whole, tmp_path, open_small
):
    wanted, chance = record(whole), np.random.default_rng(7)
    kills, number = 0, 0
    while kills < KILLS:
        folder = tmp_path / f"run-{number}"
        number += 1
        for _ in range(200):
            child = os.fork()
            if not child:
                torch.set_num_threads(1)
                try:
                    train(small(), folder, open_with=open_small)
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            time.sleep(float(chance.uniform(0.02, 0.6)))
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                kills += 1
                continue
            assert os.WEXITSTATUS(status) == 0
            break
        train(small(), folder, open_with=open_small)
        assert record(folder) == wanted
        assert verify_training(folder).ok
        shutil.rmtree(folder)
    assert kills >= KILLS


@pytest.mark.parametrize("arm", ["rc-vapo", "noise-corrected-backward"])
@pytest.mark.parametrize("update", [0, 1, 2, 3])
def test_a_run_goes_on_from_any_update(tmp_path, open_small, monkeypatch, update, arm):
    config = small(arm=arm, checkpoint_every=2, regime={"windows": 1})
    train(config, tmp_path / "whole", open_with=open_small)

    def dying(run, regime, age):
        if run.update == update:
            raise KeyboardInterrupt
        return learn(run, regime, age)

    learn = runner._Run._learn
    with monkeypatch.context() as patch:
        patch.setattr(runner._Run, "_learn", dying)
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path / "killed", open_with=open_small)
    train(config, tmp_path / "killed", open_with=open_small)
    for name in RECORD:
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_a_finished_run_gives_its_result_back_without_doing_anything(whole, open_small):
    before = record(whole)

    def unwanted(config, task):
        raise AssertionError

    assert train(small(), whole, open_with=unwanted)["updates"] == 4
    assert record(whole) == before


def test_a_folder_of_another_run_or_of_something_else_is_refused(whole, tmp_path, open_small):
    with pytest.raises(ProtocolError, match="another configuration"):
        train(small(seed=15), whole, open_with=open_small)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"'notes\.txt' in it"):
        train(small(), tmp_path, open_with=open_small)


def test_a_refused_certificate_trains_nothing_and_says_so(tmp_path, open_small):
    config = small(certificate={"rho": 0.01, "delta": 0.001})
    result = train(config, tmp_path / "run", open_with=open_small)
    assert result["totals"]["refused"] == 2
    assert result["totals"]["steps"] == result["totals"]["tokens"] == 0
    assert result["totals"]["certificate_labels"] > 0
    for body in entries(tmp_path / "run", "update.done"):
        assert body["decided"]["closed"] == "the certificate was refused"
        assert body["step"] == {"taken": False}
    looks = {body["accuracy"] for body in entries(tmp_path / "run", "evaluation.done")}
    assert len(looks) == 1
    for body in entries(tmp_path / "run", "regime.opened"):
        assert body["stage"]["enough"], "a refusal says what would have been enough"
    assert verify_training(tmp_path / "run").ok


def test_a_refresh_without_a_renewed_certificate_closes_the_gate(tmp_path, open_small):
    result = train(small(regime={"renew": False}), tmp_path / "run", open_with=open_small)
    first, second = entries(tmp_path / "run", "update.done")[:2], entries(tmp_path / "run", "update.done")[2:]
    assert all(not body["decided"]["closed"] for body in first)
    for body in second:
        assert "not the one that was certified" in body["decided"]["closed"]
        assert not body["step"]["taken"]
    assert result["totals"]["certified"] == 1
    stages = [e for e in Ledger.read(tmp_path / "run" / "gate").events if e.kind is EventKind.STAGE]
    assert not stages
    assert verify_training(tmp_path / "run").ok


@pytest.mark.parametrize("which", ["primary", "secondary"])
def test_a_verifier_that_changes_behind_the_certificate_closes_the_gate(
    tmp_path, open_small, monkeypatch, which
):
    windows = runner_make.Maker._windows

    def swapped(maker, number, roster, facts, hook, rates):
        changed = replace(maker.config.primary, rate=0.3)
        other = open_judge(changed, maker.task, run="other")
        if which == "primary":
            return windows(maker, number, replace(roster, primary=other), facts, hook, rates)
        hook.close()
        with GateHook.open(maker.gate, secondary=other, repeatable=True) as hook:
            return windows(maker, number, roster, facts, hook, rates)

    monkeypatch.setattr(runner_make.Maker, "_windows", swapped)
    result = train(small(updates=2), tmp_path / "run", open_with=open_small)
    assert result["totals"]["certified"] == 1
    assert result["totals"]["steps"] == 0
    for body in entries(tmp_path / "run", "update.done"):
        assert "not the one that was certified" in body["decided"]["closed"]


def test_training_calibration_and_test_share_no_question(whole):
    declared = entries(whole, "run.declared")[0]
    assert set(declared["task"]["splits"]["overlaps"].values()) == {0}
    gate = Ledger.read(whole / "gate")
    groups = []
    for event in gate.events:
        if event.kind in (EventKind.PROTOCOL, EventKind.STAGE):
            refs = event.body["observations"]
            groups.append(
                {
                    n
                    for ref in refs["design"] + refs["certification"]
                    for n in gate.table(ref).column("group").to_pylist()
                }
            )
    assert not groups[0] & groups[1]


def test_the_test_set_is_opened_once_for_the_checkpoint_that_the_rule_selects(tmp_path, open_small):
    config = small(
        arm="static", evaluation={"select": "held-out", "every": 1}, learner={"learning_rate": 0.01}
    )
    result = train(config, tmp_path / "run", open_with=open_small)
    looks = {body["update"]: body["accuracy"] for body in entries(tmp_path / "run", "evaluation.done")}
    opened = entries(tmp_path / "run", "test.opened")
    assert len(opened) == 1
    best = max(looks.values())
    assert opened[0]["selected"] == min(update for update, value in looks.items() if value == best)
    assert result["test"]["questions"] == len((tmp_path / "run" / "test.jsonl").read_bytes().splitlines())


def test_a_frozen_cache_generates_one_window_and_pays_for_it_once(tmp_path, open_small):
    train(small(arm="static", regime={"windows": 1}), tmp_path / "run", open_with=open_small)
    rows = entries(tmp_path / "run", "update.done")
    assert [body["tokens"]["fresh"] > 0 for body in rows] == [True, False, True, False]
    assert rows[1]["primary"]["cache_hits"] == 16
    assert rows[0]["window"] == rows[1]["window"] != rows[2]["window"]
    assert rows[1]["age"] == 1


def test_calibration_questions_that_run_out_are_refused_before_anything_is_done(tmp_path, open_small):
    with pytest.raises(InputError, match="calibration questions of different groups"):
        train(small(calibration={"windows": 500}), tmp_path / "run", open_with=open_small)
    # So the folder is free for a configuration that fits.
    assert train(small(updates=1, arm="static"), tmp_path / "run", open_with=open_small)["updates"] == 1


def test_the_trl_engine_runs_the_same_loop(tmp_path, open_small):
    pytest.importorskip("trl", reason="the TRL engine needs the trl extra")
    from vapo.train.trl.engine import TrlEngine

    def open_with(config, task):
        lean = open_small(config, task)
        return TrlEngine(lean.model, lean.settings)

    result = train(small(updates=2, engine="trl"), tmp_path / "run", open_with=open_with)
    assert result["totals"]["steps"] == 2
    assert verify_training(tmp_path / "run").ok


def test_telemetry_is_no_part_of_the_record(whole):
    notes = [json.loads(line) for line in (whole / "telemetry.jsonl").read_bytes().splitlines()]
    assert {note["what"] for note in notes} == {"update", "regime"}
    for note in notes:
        assert {"seconds", "tokens_per_second", "peak_kib"} <= set(note)
        tokens = note["tokens_per_second"] * note["seconds"]
        if note["what"] == "update":
            step = entries(whole, "update.done")[note["update"]]["step"]
            assert tokens == pytest.approx(step.get("tokens", 0))
        else:
            used = [
                b["tokens"]["fresh"] for b in entries(whole, "update.done") if b["regime"] == note["regime"]
            ]
            buffer = entries(whole, "regime.opened")[note["regime"]]["stage"]["buffer"]["tokens"]
            assert tokens == pytest.approx(buffer + sum(used))
    (whole / "telemetry.jsonl").write_bytes(b"anything")
    assert verify_training(whole).ok


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("ledger.jsonl", "ledger.jsonl"),
        ("metrics.jsonl", "metrics.jsonl"),
        ("test.jsonl", "test.jsonl"),
        ("config.json", "config.json"),
        ("result.json", "result.json"),
        ("gate/log.jsonl", "gate/log.jsonl"),
        ("gate/certificate.json", "gate/certificate.json"),
    ],
)
def test_a_changed_byte_of_the_record_is_found(whole, tmp_path, name, where):
    run = shutil.copytree(whole, tmp_path / "run")
    data = bytearray((run / name).read_bytes())
    place = next(place for place in range(len(data) // 2, len(data)) if chr(data[place]) in "12345678")
    data[place] += 1
    (run / name).write_bytes(data)
    assert any(finding.where.startswith(where) for finding in verify_training(run).findings)


def test_a_removed_update_and_a_foreign_file_are_found(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    lines = (run / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    (run / "ledger.jsonl").write_bytes(b"".join(lines[:4] + lines[5:]))
    assert "does not follow" in verify_training(run).findings[0].what
    other = shutil.copytree(whole, tmp_path / "other")
    (other / "notes.txt").write_text("mine")
    assert verify_training(other).findings[0].where == "notes.txt"
    shutil.rmtree(other / "gate")
    assert any(finding.where == "gate" for finding in verify_training(other).findings)


def test_calls_of_every_verifier_are_counted_by_what_came_of_them(tmp_path, open_small, monkeypatch):
    def timing_out(item):
        spent = Cost(tokens_in=3, tokens_out=1)
        if item.completion.startswith("6"):
            return Outcome(failure=Failure.TIMEOUT, cost=spent)
        return Outcome(1 if item.completion == item.reference else -1, cost=spent)

    monkeypatch.setattr(
        verdicts, "_OPENERS", {**verdicts._OPENERS, "timing-out": lambda task, options: Stub(timing_out)}
    )
    config = small(
        arm="trust",
        primary={"verifier": {"name": "timing-out"}},
        further={"second": {"kind": "symmetric", "rate": 0.2}},
    )
    result = train(config, tmp_path / "run", open_with=open_small)
    rows = entries(tmp_path / "run", "update.done")
    for body in rows:
        without = body["decided"]["reasons"].get("no_primary", 0)
        assert body["primary"]["reserved"] == body["primary"]["settled"] + body["primary"]["failed"] == 16
        assert body["primary"]["failed"] == without
        assert (body["primary"]["tokens_in"], body["primary"]["tokens_out"]) == (48, 16)
        assert body["further"] == Calls(reserved=16, settled=16).as_dict()
    assert sum(body["primary"]["failed"] for body in rows) > 0
    buffer = entries(tmp_path / "run", "regime.opened")[0]["stage"]["buffer"]
    assert buffer["primary"]["reserved"] == buffer["further"]["reserved"] == buffer["completions"] == 2 * 16
    totals = result["totals"]
    assert totals["primary"]["reserved"] == totals["further"]["reserved"] == 64
    assert totals["buffer_primary"]["reserved"] == totals["buffer_further"]["reserved"] == 4 * 16
    assert run_row(tmp_path / "run")["verifier_tokens"] == 4 * (64 + 4 * 16)
    assert verify_training(tmp_path / "run").ok


def test_a_secondary_may_err_by_the_policys_confidence_too(tmp_path, open_small):
    config = small(
        arm="always-secondary",
        primary={"kind": "none"},
        secondary={"kind": "confidence-dependent", "rate": 0.5},
    )
    train(config, tmp_path / "run", open_with=open_small)
    rows = entries(tmp_path / "run", "update.done")
    assert sum(body["decided"]["reasons"].get("secondary_disagrees", 0) for body in rows) > 0
