"""The reward function that abstains: None where the hook does, and the baseline of the admitted."""

from __future__ import annotations

import pytest

pytest.importorskip("trl")

from trl import GRPOTrainer

from tests.train import tiny
from tests.train.tiny import GENERATIONS, PROMPTS, ROWS, THEIRS, Picky, save_model, train, verdicts
from vapo.errors import InputError
from vapo.train.batch import advantages
from vapo.train.hook import AcceptAll, Closed
from vapo.train.trl import Observed, reward
from vapo.verifiers import Failure, Outcome

pytestmark = pytest.mark.filterwarnings(THEIRS)
DROPPED = frozenset({0, 3, 5, 6, 9, 13})


class Judge:
    """Gives the canned verdicts, and none for the row that timed out."""

    def __init__(self, timeout=None):
        self.timeout, self.items = timeout, []

    def verify(self, items):
        self.items = list(items)
        texts = [item.question for item in items]
        place = [
            PROMPTS.index(text) * GENERATIONS + texts[:row].count(text) for row, text in enumerate(texts)
        ]
        return [
            Outcome(failure=Failure.TIMEOUT) if row == self.timeout else Outcome(1 if verdicts()[row] else -1)
            for row in place
        ]


def batch():
    prompts = [text for text in PROMPTS for _ in range(GENERATIONS)]
    answers = ["3", "46", "81", "2"]
    return {
        "prompts": prompts,
        "completions": [f" {row % 3}" for row in range(ROWS)],
        "completion_ids": [[5, 1] if row % 2 else [5, 6] for row in range(ROWS)],
        "answer": [answers[PROMPTS.index(text)] for text in prompts],
    }


def test_without_a_hook_it_is_the_verdict_and_none_where_there_is_none():
    judge = Judge(timeout=3)
    found = reward(judge)(**batch())
    assert found == [None if row == 3 else value for row, value in enumerate(verdicts())]
    assert [item.reference for item in judge.items[::GENERATIONS]] == ["3", "46", "81", "2"]


def test_it_abstains_with_none_and_shows_the_hook_advantages_of_all_observed_verdicts():
    hook = Picky(DROPPED)
    function = reward(Judge(), hook, ends=(1,), observed=Observed(name="mine"))
    said = {}
    found = function(
        **batch(),
        log_extra=lambda name, column: said.update({name: column}),
        log_metric=lambda name, value: said.update({name: value}),
    )
    assert found == [None if row in DROPPED else value for row, value in enumerate(verdicts())]
    window, items = hook.seen[0]
    assert window.advantage == pytest.approx(
        advantages(verdicts(), [row // GENERATIONS for row in range(ROWS)])
    )
    assert window.records.id.to_pylist()[0] == items[0].id == "mine-0-0"
    assert set(window.records.signals) == {"consistency", "finished"}
    finished = [row % 2 if y > 0 else 1 - row % 2 for row, y in enumerate(window.records.y)]
    assert window.records.signals["finished"].tolist() == finished
    assert said["vapo/baseline_observed"] == 0.0
    assert said["vapo/windows"] == 1.0
    assert said["admission"][0] == "below_threshold"
    function(**batch())
    assert hook.seen[1][0].records.id.to_pylist()[0] == "mine-1-0"


def test_under_trl_the_baseline_is_that_of_the_admitted(tmp_path):
    class Own(tiny.Canned, GRPOTrainer):
        """Somebody's own trainer."""

    folder = save_model(tmp_path / "m")
    function = reward(Judge(), Picky(DROPPED))
    trainer, _ = train(Own, folder, tmp_path / "o", more={"reward_funcs": function})
    admitted = [float("nan") if row in DROPPED else value for row, value in enumerate(verdicts())]
    wanted = advantages(admitted, [row // GENERATIONS for row in range(ROWS)])
    assert list(trainer._logs["advantages"]) == pytest.approx(wanted, rel=1e-4, abs=1e-6)
    observed = advantages(verdicts(), [row // GENERATIONS for row in range(ROWS)])
    assert list(trainer._logs["advantages"]) != pytest.approx(observed, rel=1e-2)
    logged = trainer.state.log_history[0]
    assert logged["vapo/baseline_observed"] == 0.0
    assert list(trainer._logs["extra"]["admission"]).count("below_threshold") == len(DROPPED)
    assert function.baseline == "admitted"


def test_a_closed_gate_gives_no_reward_at_all():
    assert reward(Judge(), Closed("no certificate"))(**batch()) == [None] * ROWS


def test_its_state_counts_windows_and_refuses_another_mode():
    function = reward(Judge(), AcceptAll())
    function(**batch())
    state = function.state_dict()
    assert state["baseline"] == "admitted"
    again = reward(Judge(), AcceptAll())
    again.load_state_dict(state)
    assert again.state_dict() == state
    with pytest.raises(InputError, match="observed"):
        again.load_state_dict({**state, "baseline": "observed"})
