"""Whatever a completion holds, it comes to its own typed outcome, and nothing and nobody else notices."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

from tests.verifiers.hostile import attacks, letter
from tests.verifiers.processes import eventually, workers_of
from vapo.verifiers import Item
from vapo.verifiers.exact import Exact
from vapo.verifiers.gym import ReasoningGym, gym_reference
from vapo.verifiers.marker import FormatMarker
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.pool import Pool
from vapo.verifiers.python_tests import PythonTests
from vapo.verifiers.regex import Regex
from vapo.verifiers.rules import Hazard

ENTRY = {"answer": "4", "metadata": {"source_dataset": "chain_sum"}}
FRIENDS = {
    MathVerify(): Item("friend", "", "46", "46"),
    Regex(): Item("friend", "", "46", "4[0-9]"),
    PythonTests(): Item("friend", "", "def f(x): return x + 1", "assert f(1) == 2"),
    ReasoningGym(): Item("friend", "", "4", gym_reference(ENTRY)),
    Numeric(): Item("friend", "", "46", "46"),
    Exact(): Item("friend", "", "46", "46"),
    FormatMarker("#", "#"): Item("friend", "", "#46#"),
}


def test_the_corpus_is_large_and_names_each_input_once():
    named = [(attack.rule, attack.name) for attack in attacks()]
    assert len(named) >= 60
    assert len(set(named)) == len(named)
    assert {attack.rule for attack in attacks()} == set(FRIENDS)


@pytest.mark.slow
@pytest.mark.parametrize("rule", FRIENDS, ids=lambda rule: type(rule).__name__)
def test_every_hostile_input_comes_to_its_own_typed_outcome_and_harms_nobody(rule):
    # Not below the usual folders for temporary files: the sandbox covers those, and what it covers proves nothing.
    canary = Path.cwd() / f"canary-{os.getpid()}-{type(rule).__name__}"
    hostile = [attack for attack in attacks(str(canary)) if attack.rule == rule]
    friend = FRIENDS[rule]
    batch = [item for attack in hostile for item in (attack.item, friend)]
    handler, threads, here = signal.getsignal(signal.SIGALRM), threading.active_count(), Path.cwd()
    with Pool(rule, workers=2, deadline=1.5, memory=512 << 20) as pool:
        outcomes = pool.verify(batch)
        if rule.hazard is Hazard.EVALUATES and "no isolation here" in outcomes[0].detail:
            pytest.skip(outcomes[0].detail)
    wrong = {
        attack.name: (attack.allowed, outcome)
        for attack, outcome in zip(hostile, outcomes[::2], strict=True)
        if letter(outcome) not in attack.allowed
    }
    assert wrong == {}
    assert {letter(outcome) for outcome in outcomes[1::2]} == {"+"}
    assert not canary.exists()
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert threading.active_count() == threads
    assert Path.cwd() == here
    assert eventually(lambda: not workers_of())
