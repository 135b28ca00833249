"""`vapo train`, as it is called: one run, a grid of runs, and what is wrong with either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.train.small import RECIPE, SMALL

MODEL = {
    "name": "embedded",
    "options": {
        "accuracy": RECIPE.accuracy,
        "rate": RECIPE.rate,
        "shape": {"width": RECIPE.shape.width, "layers": RECIPE.shape.layers, "heads": RECIPE.shape.heads},
    },
}
GRID = {
    "arms": ["static", "matched-random", "rc-vapo"],
    "seeds": [1, 2],
    "conditions": {"noisy": ["primary.rate=0.2"], "sound": ["primary.kind=none"]},
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def config(tmp_path, cache, monkeypatch):
    monkeypatch.setenv("VAPO_CACHE", str(cache))
    file = tmp_path / "small.yaml"
    # JSON is YAML.
    file.write_text(json.dumps({**SMALL, "model": MODEL}), encoding="utf-8")
    return file


@pytest.fixture
def grid(config):
    data = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps({**data, "grid": GRID}), encoding="utf-8")
    return config


def test_a_run_says_what_came_of_it_and_verifies(vapo, config, tmp_path):
    said = vapo("train", config, "seed=3", "--out", tmp_path / "run", "--json")
    assert said.code == 0
    assert said.json["arm"] == "rc-vapo"
    assert said.json["seed"] == 3
    assert "certificates issued" in said.err
    again = vapo("train", config, "seed=3", "--out", tmp_path / "run", "--json")
    assert again.json == said.json
    assert vapo("verify", tmp_path / "run").code == 0
    assert vapo("verify", tmp_path / "run" / "gate").code == 0


def test_verify_names_what_is_wrong_with_a_training_run(vapo, config, tmp_path):
    run = tmp_path / "run"
    assert vapo("train", config, "arm=static", "--out", run).code == 0
    refused = vapo("verify", run, "--exact", "--json")
    assert refused.code == 2
    assert str(run / "gate") in refused.json["error"]["message"]
    metrics = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(metrics.replace(b'"step":1', b'"step":7', 1))
    said = vapo("verify", run, "--json")
    assert said.code == 1
    assert said.json["findings"][0]["where"].startswith("metrics.jsonl")
    assert "FIRST WRONG metrics.jsonl" in said.err


def test_a_grid_compares_its_arms_in_a_table_a_file_and_a_picture(vapo, grid, tmp_path):
    said = vapo("train", grid, "--conditions", "noisy", "--out", tmp_path / "grid", "--json")
    assert said.code == 0
    arms = {row["arm"]: row for row in said.json["arms"]}
    assert set(arms) == set(GRID["arms"])
    assert arms["rc-vapo"]["seeds"] == 2
    assert arms["rc-vapo"]["versus_control"]["low"] <= arms["rc-vapo"]["versus_control"]["estimate"]
    # A narrow terminal folds long names.
    assert "noisy" in said.err
    assert all(name[:6] in said.err for name in GRID["arms"])
    kept = json.loads((tmp_path / "grid" / "summary.json").read_text(encoding="utf-8"))
    assert kept["arms"] == said.json["arms"]
    assert [Path(name).name for name in said.json["pictures"]] == ["accuracy.png", "curves.png"]
    assert all(Path(name).read_bytes().startswith(b"\x89PNG") for name in said.json["pictures"])


def test_a_run_of_a_grid_that_fails_is_named_and_stops_no_other(vapo, grid, tmp_path):
    taken = tmp_path / "grid" / "noisy" / "static" / "1"
    taken.mkdir(parents=True)
    (taken / "mine.txt").write_text("mine", encoding="utf-8")
    said = vapo("train", grid, "--conditions", "noisy", "--seeds", "1", "--out", tmp_path / "grid", "--json")
    assert said.code == 1
    assert list(said.json["failed"]) == ["noisy/static/1"]
    assert said.json["missing"] == ["noisy/static/1"]
    assert {row["arm"] for row in said.json["arms"]} == {"matched-random", "rc-vapo"}
    assert (taken / "mine.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["arm=static"], "arms and seeds of a grid under --arms and --seeds"),
        (["primary.kinds=none"], "kinds"),
        (["--arms", "nobody"], "arms among"),
        (["--seeds", "1,x"], "whole numbers separated by commas"),
        (["--conditions", "rainy"], "conditions among noisy, sound"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_made(vapo, grid, tmp_path, arguments, message):
    said = vapo("train", grid, *arguments, "--out", tmp_path / "out", "--json")
    assert said.code == 2
    assert message in said.json["error"]["message"]
    assert not (tmp_path / "out").exists()


def test_a_configuration_that_is_not_there_is_named(vapo, tmp_path):
    said = vapo("train", tmp_path / "none.toml", "--out", tmp_path / "out", "--json")
    assert said.code == 2
    assert "none.toml" in said.json["error"]["message"]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"grid": {"arms": "static"}}, "a list of arms"),
        ({"grid": {"arms": [3]}}, "a list of arms"),
        ({"grid": {"seeds": [1]}}, "a list of arms"),
        ({"grid": {"arms": ["static"], "seeds": ["a"]}}, "of seeds if wanted"),
        ({"grid": {"arms": ["static"], "seeds": 3}}, "of seeds if wanted"),
        ({"grid": {"arms": ["static"], "conditions": 3}}, "a list of overrides"),
        ({"grid": {"arms": ["static"], "conditions": {"x": "primary.kind=none"}}}, "a list of overrides"),
        ({"grid": {"arms": ["static"], "conditions": {"../x": []}}}, "be those of folders"),
        ({"task": {"name": "arithmetic", "options": {"shares": 3}}}, "a table with a share of each split"),
        ({"task": {"name": "arithmetic", "options": {"shares": {"train": "all"}}}}, "a share of each split"),
        ({"task": {"name": "gsm8k", "options": {"path": 3}}}, "options that task 'gsm8k' takes"),
        (
            {"model": {"name": "embedded", "options": {"accuracy": "high"}}},
            "options that model 'embedded' takes",
        ),
        ({"model": {"name": "embedded", "options": {"shape": 3}}}, "a table with width"),
        (
            {"model": {"name": "embedded", "options": {"shape": {"width": "3"}}}},
            "the shape of the embedded model",
        ),
        ({"learner": {"betas": [2.0, 0.1]}}, "two numbers in [0, 1)"),
    ],
)
def test_a_value_of_another_kind_is_named_and_no_defect(vapo, config, tmp_path, tables, message):
    data = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(data | tables), encoding="utf-8")
    said = vapo("train", config, "--out", tmp_path / "out", "--json")
    assert said.code == 2
    assert message in said.json["error"]["message"]
