"""The page about the pool shows what was measured, and a goal that is missed fails the run that measured it."""

from __future__ import annotations

import json

import pytest

from benchmarks import verifier_pool
from benchmarks.verifier_pool import GOAL, WORKERS, Survived, main, page, short_answers, solutions, speed
from tests.verifiers.hostile import attacks
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric


def measured(ratio=0.95, load=1.5):
    case = {
        "name": "math-verify, short answers", "direct": 2345.6, "parent": 0.05,
        "ratios": {1: ratio, 2: 0.9}, "spread": {1: (0.7, 1.0), 2: (0.8, 1.0)},
    }  # fmt: skip
    return {"machine": "two cores", "cores": 2, "load": load, "rounds": 3, "speed": [case, case]}


def survived(outcome="t", seconds=1.01):
    """One hostile input of each verifier, all with one outcome."""
    some = {attack.rule: attack for attack in attacks() if outcome in attack.allowed}
    return [Survived(attack, outcome, seconds) for attack in some.values()]


def test_every_verifier_is_measured_against_its_own_loop():
    found = speed("numeric", Numeric(), short_answers(16, 1), rounds=1)
    assert found.direct > 0
    assert found.parent > 0
    assert set(found.ratios) == set(found.spread) == set(WORKERS)
    assert all(low <= found.ratios[workers] <= high for workers, (low, high) in found.spread.items())


def test_the_texts_are_the_same_in_every_run_and_some_of_each_kind_are_right_and_wrong():
    for make in (short_answers, solutions):
        items = make(40, 3)
        assert items == make(40, 3)
        assert {MathVerify().judge(item).verdict for item in items} == {1, -1}


@pytest.mark.parametrize(
    ("outcome", "seconds", "kept"), [("t", 1.9, True), ("t", 2.1, False), ("?", 0.1, False)]
)
def test_an_outcome_counts_if_it_is_one_of_its_own_and_in_time(outcome, seconds, kept):
    attack = next(attack for attack in attacks() if attack.allowed == "t")
    assert Survived(attack, outcome, seconds).kept is kept


def test_the_parts_are_measured_apart_and_stand_on_one_page(tmp_path, monkeypatch):
    monkeypatch.setattr(verifier_pool, "measure_speed", lambda *sizes: measured())
    monkeypatch.setattr(verifier_pool, "survive", survived)
    kept, target = tmp_path / "figures.json", tmp_path / "page.md"
    options = ["--results", str(kept), "--page", str(target)]
    assert main([*options, "--only", "hostile"]) == 0
    assert "## What isolation costs" not in target.read_text(encoding="utf-8")
    assert main([*options, "--only", "speed"]) == 0
    shown = target.read_text(encoding="utf-8")
    assert "| math-verify, short answers | 2,346 | 0.95 (0.70–1.00) | 0.90 (0.80–1.00) | 0.05 |" in shown
    assert f"{len(survived())} inputs made to" in shown
    assert shown == page(json.loads(kept.read_text(encoding="utf-8")))


def test_a_page_from_a_busy_machine_says_so():
    assert "busy" not in page(measured(load=2.9))
    assert "busy with other work" in page(measured(load=3.1))


def test_a_missed_goal_and_an_outcome_out_of_time_fail_and_are_named(monkeypatch, capsys):
    monkeypatch.setattr(verifier_pool, "measure_speed", lambda *sizes: measured(GOAL - 0.01))
    monkeypatch.setattr(verifier_pool, "survive", lambda: survived(seconds=3.0))
    assert main(["--only", "speed"]) == 1
    assert "not met: math-verify, short answers" in capsys.readouterr().err
    assert main(["--only", "hostile"]) == 1
    out = capsys.readouterr()
    assert "- not kept: " in out.out
    assert survived()[0].attack.name in out.err
