"""What a user does wrong next: each ends with exit 2, one line that names what to do, and nothing changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import World, labels_of, rows

DESIGN, CERTIFY = ("design", "--rho", "0.1"), ("certify", "--rho", "0.1")


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def certify(world: World, *more: Any, **other: Any) -> list[Any]:
    """A certify command that is right but for what is said otherwise."""
    given = {"records": world.rollouts, "labels": world.labels, "out": world.folder / "new"} | other
    return [*CERTIFY, given["records"], "--labels", given["labels"], "--out", given["out"], *more]


def write(world: World, name: str, text: str) -> Path:
    """A file of the user's own."""
    path = world.folder / name
    path.write_text(text, encoding="utf-8")
    return path


HEAD = "id,group,y,signal.s\n"

MISTAKES: dict[str, tuple[Callable[[World], list[Any]], str]] = {
    "wrong path": (lambda w: certify(w, records=w.folder / "rollout.parquet"), "did you mean"),
    "wrong folder": (lambda w: certify(w, records=w.folder / "no" / "such.csv"), "nor a folder"),
    "folder instead of a file": (lambda w: certify(w, records=w.folder), "got a folder"),
    "run folder as records": (lambda w: certify(w, records=w.certified), "got a run folder"),
    "unknown kind of file": (lambda w: certify(w, records=write(w, "r.txt", "x")), ".parquet"),
    "labels that are not there": (lambda w: certify(w, labels=w.folder / "label.csv"), "did you mean"),
    "labels without z": (lambda w: certify(w, labels=write(w, "l.csv", "id,label\nq0-0,1\n")), "'z'"),
    "labels of unknown records": (
        lambda w: certify(w, labels=write(w, "l.csv", "id,z\nnobody,1\n")),
        "nobody",
    ),
    "labels that are rewards": (lambda w: certify(w, labels=write(w, "l.csv", "id,z\nq0-0,0\n")), "{-1, +1}"),
    "empty labels": (lambda w: certify(w, labels=write(w, "l.csv", "")), "l.csv"),
    "records without y": (
        lambda w: certify(w, records=write(w, "r.csv", "id,group,signal.s\na,g,0.5\n")),
        "'y'",
    ),
    "records without signals": (
        lambda w: certify(w, records=write(w, "r.csv", "id,group,y\na,g,1\n")),
        "signal",
    ),
    "records with the answer": (
        lambda w: certify(w, records=write(w, "r.csv", "id,group,y,signal.s,gold\na,g,1,0.5,4\n")),
        "'gold'",
    ),
    "a signal above 1": (lambda w: certify(w, records=write(w, "r.csv", HEAD + "a,g,1,7\n")), "'signal.s'"),
    "an id twice": (lambda w: certify(w, records=write(w, "r.csv", HEAD + "a,g,1,1\na,g,1,0\n")), "row 2"),
    "broken json lines": (lambda w: certify(w, records=write(w, "r.jsonl", '{"id": 1,\n')), "line 1"),
    "not a parquet file": (lambda w: certify(w, records=write(w, "r.parquet", "hello")), "parquet"),
    "no rho": (lambda w: ["certify", w.rollouts, "--labels", w.labels, "--out", w.folder / "n"], "--rho"),
    "rho out of range": (lambda w: certify(w, "--rho", "8"), "(0, 1)"),
    "a claim that does not exist": (lambda w: certify(w, "--claim", "bayes"), "frozen"),
    "a reach that does not exist": (lambda w: certify(w, "--reach", "all"), "population"),
    "signs that do not exist": (lambda w: certify(w, "--signs", "neg"), "specific"),
    "a missing-label that does not exist": (lambda w: certify(w, "--missing-label", "drop"), "harmful"),
    "a score that does not exist": (lambda w: certify(w, "--score", "best"), "dawid-skene"),
    "a signal that does not exist": (lambda w: certify(w, "--score", "signal:entropy"), "consistency"),
    "stages that are no count": (lambda w: certify(w, "--stages", "many"), "open"),
    "an option that does not exist": (lambda w: certify(w, "--alpha", "0.05"), "--alpha"),
    "an option without its value": (lambda w: [*certify(w), "--seed"], "--seed"),
    "terms with an unknown field": (
        lambda w: certify(w, "--protocol", write(w, "t.toml", "c_mn = 0.1\n")),
        "did you mean 'c_min'",
    ),
    "terms that are not toml": (lambda w: certify(w, "--protocol", write(w, "t.toml", "rho: 0.1")), "TOML"),
    "a broken family": (lambda w: certify(w, "--family", write(w, "f.json", '{"candidates": [')), "JSON"),
    "a family that is a list": (lambda w: certify(w, "--family", write(w, "f.json", "[]")), "candidates"),
    "a family without thresholds": (
        lambda w: certify(w, "--family", write(w, "f.json", '{"candidates": [{"tau": 0.5}]}')),
        "tau",
    ),
    "a fitted score for a family without design": (
        lambda w: certify(
            w,
            "--score=dawid-skene",
            "--family",
            write(w, "f.json", '{"candidates": [{"tau_low": 0.5, "tau_high": 0.8}]}'),
        ),
        "--design",
    ),
    "design twice": (lambda w: certify(w, "--design", w.fresh, "--design-fraction", "0.2"), "either"),
    "other terms for the same run": (lambda w: certify(w, "--c-min", "0.3", out=w.certified), "c_min = 0.25"),
    "other records for the same run": (lambda w: certify(w, "--design", w.fresh, out=w.certified), "new run"),
    "a folder of one's own as run": (lambda w: certify(w, out=w.folder), "empty"),
    "a file as run": (lambda w: certify(w, out=w.labels), "a file"),
    "a key that is none": (lambda w: certify(w, "--key", w.labels), "private key"),
    "terms in a renewal": (lambda w: certify(w, "--renew", "drift", out=w.certified), "--rho"),
    "extending a certified run": (
        lambda w: ["certify", w.fresh, "--labels", w.freshlabels, "--out", w.certified, "--extend"],
        "refused",
    ),
    "renewing more often than declared": (
        lambda w: ["certify", w.fresh, "--labels", w.freshlabels, "--out", w.certified, "--renew", "why"],
        "stage 2",
    ),
    "design on another run's folder": (
        lambda w: ["design", w.rollouts, "--rho", "0.2", "--out", w.designed],
        "rho = 0.1",
    ),
    "freeze of no run": (lambda w: ["freeze", w.folder / "nowhere", w.rollouts], "nothing of that name"),
    "freeze of a folder": (lambda w: ["freeze", w.folder, w.rollouts], "log.jsonl"),
    "freeze of a file": (lambda w: ["freeze", w.labels, w.rollouts], "a file"),
    "freeze with other records": (lambda w: ["freeze", w.designed, w.fresh], "missing"),
    "freeze with requests and needs": (
        lambda w: [
            "freeze",
            w.designed,
            w.rollouts,
            "--requests",
            w.folder / "a.csv",
            "--needs",
            w.folder / "b.csv",
        ],
        "both",
    ),
    "join before freeze": (lambda w: ["join", w.designed, w.labels], "vapo freeze"),
    "join without labels": (lambda w: ["join", w.frozen], "LABELS"),
    "gate before certificate": (
        lambda w: ["gate", w.frozen, w.fresh, "--out", w.folder / "d.csv"],
        "vapo join",
    ),
    "gate before anything": (
        lambda w: ["gate", w.designed, w.fresh, "--out", w.folder / "d.csv"],
        "vapo freeze",
    ),
    "gate without out": (lambda w: ["gate", w.certified, w.fresh], "--out"),
    "gate into an unknown kind of file": (
        lambda w: ["gate", w.certified, w.fresh, "--out", w.folder / "d.xlsx"],
        "got d.xlsx",
    ),
    "gate into a folder": (lambda w: ["gate", w.certified, w.fresh, "--out", w.folder], "a folder"),
    "gate into a folder that is not there": (
        lambda w: ["gate", w.certified, w.fresh, "--out", w.folder / "no" / "d.csv"],
        "folder",
    ),
    "gate into the run": (
        lambda w: ["gate", w.certified, w.fresh, "--out", w.certified / "d.csv"],
        "got one in it",
    ),
    "gate over its input": (lambda w: ["gate", w.certified, w.fresh, "--out", w.fresh], "another file"),
    "gate with records that lack a signal": (
        lambda w: [
            "gate",
            w.certified,
            write(w, "r.csv", HEAD + "a,g,1,0.5\n"),
            "--out",
            w.folder / "d.csv",
        ],
        "signal",
    ),
    "monitor before gate": (lambda w: ["monitor", w.certified], "vapo gate"),
    "monitor with labels of others": (lambda w: ["monitor", w.deployed, w.labels], "decided on"),
    "monitor with records that were not drawn": (lambda w: ["monitor", w.deployed, w.freshlabels], "drawn"),
    "picked without labels": (lambda w: ["monitor", w.deployed, "--picked"], "LABELS"),
    "verify of a folder": (lambda w: ["verify", w.folder], "log.jsonl"),
    "verify of nothing": (lambda w: ["verify", w.folder / "no"], "nothing of that name"),
    "replay of a file": (lambda w: ["replay", w.labels], "a file"),
    "plan without risk": (lambda _: ["plan", "--rho", "0.1"], "--risk"),
    "plan with a rate above 1": (
        lambda _: ["plan", "--rho", "0.1", "--risk", "5"],
        "less than or equal to 1",
    ),
    "plan with rho above 1": (lambda _: ["plan", "--rho", "8", "--risk", "0.1"], "rho"),
    "doctor of no folder": (lambda w: ["doctor", "--folder", w.folder / "no"], "exists"),
    "demo into a folder of one's own": (lambda w: ["demo", "--out", w.certified], "new or empty"),
    "no such command": (lambda _: ["certfy"], "certify"),
}


@pytest.fixture
def half(vapo, world, stop_after) -> Path:
    """A certify that was interrupted before it had frozen anything."""
    with stop_after(2):
        vapo(*certify(world, out=world.folder / "half"))
    return world.folder / "half"


def test_the_gate_of_an_interrupted_certify_says_how_to_go_on(vapo, world, half):
    said = vapo("gate", half, world.fresh, "--out", world.folder / "d.csv", "--json")
    assert said.code == 2
    assert f"vapo freeze {half}" in said.json["error"]["message"]
    assert not (world.folder / "d.csv").exists()


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_ends_with_exit_2_and_a_line_that_helps(vapo, world, monkeypatch, mistake):
    monkeypatch.chdir(world.folder)
    make, hint = MISTAKES[mistake]
    arguments = make(world)
    before = {
        name: bytes_of(getattr(world, name)) for name in ("designed", "frozen", "certified", "deployed")
    }
    said = vapo(*arguments, "--json")
    assert said.code == 2, said.err
    assert said.json.keys() == {"error"}
    assert said.json["error"].keys() == {"kind", "message"}
    assert hint in said.json["error"]["message"]
    assert said.err == f"error: {said.json['error']['message']}\n"
    after = {name: bytes_of(getattr(world, name)) for name in before}
    assert after == before


def test_a_place_that_cannot_be_written_is_found_before_the_run_is_changed(vapo, world):
    locked = Path("/proc/self")
    if not locked.is_dir():
        pytest.skip("there is no place that nobody can write to")
    before = bytes_of(world.certified)
    said = vapo("gate", world.certified, world.fresh, "--out", locked / "d.csv", "--json")
    assert said.code == 2
    assert "that can be written" in said.json["error"]["message"]
    assert bytes_of(world.certified) == before


def test_a_needed_label_that_is_missing_is_named_with_both_ways_out(vapo, world):
    known = rows(world.labels).column("id").to_pylist()
    some = labels_of(world.labels, known[::2], world.folder / "some.csv")
    said = vapo("join", world.frozen, some, "--json")
    assert said.code == 2
    assert "missing_label" in said.json["error"]["message"]
    assert vapo("join", world.frozen, world.labels).code == 0


def test_csv_with_whole_numbers_is_as_good_as_any(vapo, world):
    lines = [f"{i},{i // 2},{1 if i % 3 else -1},{i % 2}" for i in range(400)]
    records = write(world, "ints.csv", HEAD + "\n".join(lines) + "\n")
    labels = write(
        world, "z.csv", "id,z\n" + "\n".join(f"{i},{1 if i % 3 else -1}" for i in range(400)) + "\n"
    )
    said = vapo(*certify(world, "--json", records=records, labels=labels))
    assert said.code == 0, said.err
    assert said.json["counts"]["harmful"] == 0
