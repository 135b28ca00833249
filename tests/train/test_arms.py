"""Every arm trains on one loop, does what its line says, and leaves a run that verifies."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.train.small import small
from vapo.errors import InputError
from vapo.ledger import EventKind, Ledger
from vapo.train.arms import ARMS
from vapo.train.resources import read_chain
from vapo.train.runner import train
from vapo.train.runner_follow import read_recorded
from vapo.train.runner_verify import verify_training

CERTIFIED = [name for name, arm in ARMS.items() if arm.certified]


@pytest.fixture(scope="module")
def followed(tmp_path_factory, open_small):
    folder = tmp_path_factory.mktemp("followed") / "run"
    train(small(arm="rc-vapo"), folder, open_with=open_small)
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory, followed, open_small):
    """Every arm, trained once."""
    root = tmp_path_factory.mktemp("arms")
    for name, arm in ARMS.items():
        controls = {"follows": str(followed)} if arm.follows else {}
        train(small(arm=name, controls=controls), root / name, open_with=open_small)
    return root


def updates(folder):
    return [entry.body for entry in read_chain(folder / "ledger.jsonl") if entry.kind == "update.done"]


def regimes(folder):
    return [entry.body for entry in read_chain(folder / "ledger.jsonl") if entry.kind == "regime.opened"]


@pytest.mark.parametrize("name", ARMS)
def test_every_arm_trains_to_the_end_and_its_run_verifies(runs, name):
    report = verify_training(runs / name)
    assert report.findings == ()
    assert report.last == "run.closed"
    assert len(updates(runs / name)) == 4


@pytest.mark.parametrize("name", ARMS)
def test_every_update_says_what_it_used_and_did(runs, name):
    for body in updates(runs / name):
        assert {
            "generator",
            "age",
            "tokens",
            "primary",
            "secondary",
            "labels",
            "step",
            "decided",
            "risk",
        } <= set(body)
        if body["decided"]["records"]:
            assert {"coverage", "applied_rate", "appeal_rate", "zero_magnitude_rate"} <= set(body["decided"])
            assert {"response_length", "parsed", "finished", "window"} <= set(body)


def test_all_arms_of_a_seed_begin_with_the_same_completions_and_verdicts(runs):
    asked = [
        name
        for name, arm in ARMS.items()
        if arm.reward == "observed" and updates(runs / name)[0]["tokens"]["fresh"]
    ]
    first = {name: updates(runs / name)[0] for name in asked}
    assert len({body["generator"] for body in first.values()}) == 1
    assert (
        len(
            {
                (body["tokens"]["fresh"], body["clean_reward"], body["observed_reward"])
                for body in first.values()
            }
        )
        == 1
    )


def test_the_plain_learner_drops_nothing_and_the_oracle_is_never_wrong(runs):
    for body in updates(runs / "static"):
        assert body["decided"]["kept"] == body["decided"]["records"] == 16
    assert sum(body["risk"]["admitted_harmful"] for body in updates(runs / "static")) > 0
    assert sum(body["risk"]["admitted_harmful"] for body in updates(runs / "oracle")) == 0
    assert all(body["labels"] == 16 for body in updates(runs / "oracle"))


@pytest.mark.parametrize("name", ["matched-random", "matched-static"])
def test_matched_arms_admit_as_many_as_the_run_that_they_follow(runs, followed, name):
    for body, other in zip(updates(runs / name), updates(followed), strict=True):
        ours, theirs = body["decided"], other["decided"]
        free = ours["records"] - ours["reasons"].get("no_proposal", 0) - ours["reasons"].get("no_primary", 0)
        assert ours["admitted"] == min(theirs["admitted"], free)
        if ours["admitted"] and theirs["magnitude"]:
            assert ours["magnitude"] == pytest.approx(theirs["magnitude"])


def test_a_random_appeal_costs_what_the_followed_run_paid(runs, followed):
    for body, other in zip(updates(runs / "random-appeal"), updates(followed), strict=True):
        assert body["decided"]["accepted"] <= other["decided"]["accepted"]
        assert body["decided"]["appealed"] <= other["decided"]["appealed"]
        assert body["secondary"]["reserved"] == body["decided"]["appealed"]
    assert (
        updates(runs / "random-appeal")[0]["decided"]["appealed"]
        == updates(followed)[0]["decided"]["appealed"]
    )


def test_label_matched_spends_no_more_labels_than_the_certificates_did(runs, followed):
    spent = sum(body["labels"] for body in updates(runs / "label-matched"))
    cost = sum(body["stage"]["bill"]["labels"] for body in regimes(followed))
    assert 0 < spent <= cost
    for body in updates(runs / "label-matched"):
        assert body["risk"]["admitted_harmful"] == 0
        assert body["decided"]["kept"] == body["labels"]


def test_label_matched_spends_its_labels_on_the_windows_that_there_are(tmp_path, open_small):
    # A frozen cache: one window a regime, gone through twice.
    frozen = {"updates": 2, "windows": 1}
    train(small(regime=frozen), tmp_path / "followed", open_with=open_small)
    spent = [body["stage"]["bill"]["labels"] for body in regimes(tmp_path / "followed")]
    config = small(arm="label-matched", regime=frozen, controls={"follows": str(tmp_path / "followed")})
    quota = read_recorded(tmp_path / "followed", config).quota
    assert [quota[body["window"]] for body in updates(tmp_path / "followed")[::2]] == spent
    train(config, tmp_path / "run", open_with=open_small)
    # Whole questions of four completions, sixteen at the most.
    mine = [min(labels, 16) // 4 * 4 for labels in spent]
    assert [body["labels"] for body in updates(tmp_path / "run")] == [mine[0], 0, mine[1], 0]


def test_always_secondary_asks_about_every_completion_and_augmentation_about_every_rejection(runs):
    for body in updates(runs / "always-secondary"):
        assert body["secondary"]["reserved"] == body["decided"]["records"]
        assert body["risk"]["admitted_harmful"] == 0  # its secondary is the oracle
    for body in updates(runs / "verifier-augmentation"):
        assert body["secondary"]["reserved"] > 0
        # What is still rejected was rejected by both; what is approved by the primary alone may be wrong.
        assert body["risk"]["negative"]["admitted_harmful"] == 0


@pytest.mark.parametrize("name", ["noise-corrected-backward", "noise-corrected-forward"])
def test_noise_correction_estimates_its_rates_with_the_declared_calls(runs, name):
    assert all(body["secondary"]["reserved"] == 3 for body in updates(runs / name))


@pytest.mark.parametrize("name", CERTIFIED)
def test_certified_arms_name_their_certificate_and_open_a_stage_for_each_regime(runs, name):
    stages = regimes(runs / name)
    assert [body["stage"]["stage"] for body in stages] == [1, 2]
    assert {body["stage"]["status"] for body in stages} == {"certified"}
    for body in updates(runs / name):
        assert body["decided"]["certificate"] == stages[body["regime"]]["stage"]["certificate"]
    assert stages[-1]["stage"]["delta_spent"] == pytest.approx(0.3)


@pytest.mark.parametrize("name", ["rc-threshold", "certificate-only", "certificate-actuator"])
def test_arms_without_appeals_never_ask_the_secondary(runs, name):
    assert all(body["stage"]["bill"]["secondary_calls"] == 0 for body in regimes(runs / name))
    assert all(body["secondary"]["reserved"] == 0 for body in updates(runs / name))


@pytest.mark.parametrize("name", [name for name, arm in ARMS.items() if arm.appeals])
def test_appeals_stay_within_the_declared_budget_of_every_update(runs, name):
    assert all(body["secondary"]["reserved"] <= 3 for body in updates(runs / name))


def test_candidates_with_appeals_are_certified_on_answers_that_were_paid_for(runs, tmp_path, open_small):
    assert all(body["stage"]["bill"]["secondary_calls"] > 0 for body in regimes(runs / "rc-vapo"))
    # A score without ties: with them the threshold of acceptance and that of appeals may be one.
    config = small(arm="no-certificate", certificate={"score": "signal:confidence"})
    train(config, tmp_path / "run", open_with=open_small)
    assert sum(body["secondary"]["reserved"] for body in updates(tmp_path / "run")) > 0


@pytest.mark.parametrize(
    "name", ["confidence", "majority", "trust", "single-signal", "observation-threshold"]
)
def test_uncertified_controls_fix_their_thresholds_without_labels(runs, name):
    for body in regimes(runs / name):
        assert "policy" in body["stage"] or "thresholds" in body["stage"]
        assert "bill" not in body["stage"]
        assert body["stage"]["buffer"]["windows"] == 2
    assert json.loads((runs / name / "result.json").read_bytes())["totals"]["labels"] == 0


def test_uncertified_controls_have_a_buffer_of_their_own_in_every_regime_renewed_or_not(tmp_path, open_small):
    # 523 calibration questions of different groups: one buffer of 66 windows of four, and no second one.
    config = small(arm="trust", regime={"renew": False}, calibration={"design_windows": 66})
    with pytest.raises(InputError, match="528 calibration questions of different groups, 264 for each stage"):
        train(config, tmp_path / "run", open_with=open_small)


def test_the_gate_decides_a_whole_regime_before_its_first_update(runs):
    ledger = Ledger.read(runs / "rc-vapo" / "gate")
    batches = [event for event in ledger.events if event.kind is EventKind.ACTIONS and "batch" in event.body]
    assert len(batches) == 2
    for body, event in zip(regimes(runs / "rc-vapo"), batches, strict=True):
        rows = ledger.table(event.body["rows"])
        assert len(rows) == 32
        admitted = sum(sign != 0 for sign in rows.column("sign").to_pylist())
        mine = [b["decided"]["admitted"] for b in updates(runs / "rc-vapo") if b["regime"] == body["regime"]]
        assert sum(mine) == admitted


def test_the_surfaces_of_an_arm_are_its_variants_and_nothing_else(runs):
    plain, static = updates(runs / "static")[0], updates(runs / "static-surfaces")[0]
    assert plain["decided"]["admitted"] == static["decided"]["admitted"]
    assert static["decided"]["magnitude"] <= plain["decided"]["magnitude"]
    certified = {
        name: updates(runs / name)[0]["decided"] for name in ("certificate-appeal", "rc-vapo", "trust-only")
    }
    assert len({row["admitted"] for row in certified.values()}) == 1
    assert certified["rc-vapo"]["magnitude"] < certified["certificate-appeal"]["magnitude"]


def test_matched_arms_need_a_run_of_the_same_seed_and_configuration(followed, tmp_path, open_small):
    with pytest.raises(InputError, match=r"controls\.follows"):
        small(arm="matched-random")
    other = small(arm="matched-random", seed=14, controls={"follows": str(followed)})
    with pytest.raises(InputError, match="the same 'seed'"):
        train(other, tmp_path / "run", open_with=open_small)
    longer = small(arm="label-matched", controls={"follows": str(followed)})
    longer = replace(longer, primary=replace(longer.primary, rate=0.2))
    with pytest.raises(InputError, match="the same 'primary'"):
        train(longer, tmp_path / "run2", open_with=open_small)
