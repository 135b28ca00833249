"""What the trainer relies on in TRL, what it shows its hook, what it logs, saves and refuses."""

from __future__ import annotations

import inspect
import json

import pytest

pytest.importorskip("trl")

import pyarrow.parquet as pq
from trl import GRPOTrainer

from tests.train import tiny
from tests.train.tiny import (
    GENERATIONS,
    PROMPTS,
    ROWS,
    THEIRS,
    Gated,
    Picky,
    Plain,
    dataset,
    save_model,
    train,
    verdicts,
)
from vapo.errors import InputError, ProtocolError
from vapo.records import Source
from vapo.train.batch import advantages
from vapo.train.trl import Observed
from vapo.train.trl import trainer as room
from vapo.verifiers import Outcome

pytestmark = pytest.mark.filterwarnings(THEIRS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("name", sorted(room._OVERRIDDEN))
def test_the_overridden_methods_have_the_arguments_that_we_give_them(name):
    parameters = list(inspect.signature(getattr(GRPOTrainer, name)).parameters.values())
    assert [parameter.name for parameter in parameters] == ["self", *room._OVERRIDDEN[name]]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_another_version_of_trl_is_refused_by_the_method_that_changed(monkeypatch, folder, tmp_path):
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", lambda self, model, inputs, extra: None)
    with pytest.raises(ProtocolError, match=r"GRPOTrainer\._compute_loss\(model, inputs\), got .*extra"):
        train(Gated, folder, tmp_path)


def test_a_version_of_trl_without_something_that_we_read_is_refused_by_its_name(
    monkeypatch, folder, tmp_path
):
    monkeypatch.setattr(room, "_READ", (*room._READ, "_what_later_versions_have"))
    with pytest.raises(ProtocolError, match=r"TRL .*: expected GRPOTrainer\._what_later_versions_have"):
        train(Gated, folder, tmp_path)


def test_trl_hands_on_what_we_read_and_counts_what_we_recount(folder, tmp_path):
    seen = {}

    class Seen(Plain):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            seen.update(output, logged=list(self._logs["advantages"]), step=self._step)
            output["advantages"] *= 0.0
            return output

        def _compute_loss(self, model, inputs):
            seen["parts"] = len(self._buffered_inputs)
            seen["is_part"] = inputs is self._buffered_inputs[self._step % self.args.steps_per_generation]
            return super()._compute_loss(model, inputs)

    settings = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 4}
    theirs, _ = train(Seen, folder, tmp_path, num_iterations=1, **settings)
    assert seen["completion_mask"].shape[0] == ROWS == len(seen["advantages"])
    assert "tool_mask" not in seen
    assert int(seen["num_items_in_batch"]) == int(seen["completion_mask"].sum())
    assert seen["parts"] == 4
    assert seen["is_part"]
    # The trap: what is logged was there before a subclass could edit it.
    assert any(seen["logged"])
    assert theirs.loss_is_scaled_for_ga


def test_advantages_are_what_trl_computes_from_all_observed_verdicts(folder, tmp_path):
    ours, _ = train(Gated, folder, tmp_path, dropped={0, 5})
    window, _ = ours.hook.seen[0]
    wanted = advantages(verdicts(), [row // GENERATIONS for row in range(ROWS)])
    assert window.advantage == pytest.approx(wanted, rel=1e-5, abs=1e-7)
    assert list(ours._logs["advantages"]) == pytest.approx(wanted, rel=1e-5, abs=1e-7)


def test_the_hook_sees_one_window_in_the_declared_order(folder, tmp_path):
    class Yes:
        source = Source("yes", "a" * 64)

        def verify(self, items):
            return [Outcome(1 if item.reference == "46" else -1) for item in items]

    hook = Picky()
    observed = Observed(verifiers={"yes": Yes()}, sources={"verdict.yes": Yes.source}, name="first")

    ours, _ = train(Gated, folder, tmp_path, hook=hook, more={"observed": observed}, beta=0.05, max_steps=2)
    assert len(hook.seen) == 2
    window, items = hook.seen[0]
    records = window.records
    assert [item.question for item in items] == [text for text in PROMPTS for _ in range(GENERATIONS)]
    assert [item.reference for item in items[::GENERATIONS]] == ["3", "46", "81", "2"]
    assert records.id.to_pylist() == [item.id for item in items] == [f"first-0-{row}" for row in range(ROWS)]
    assert hook.seen[1][0].records.id.to_pylist()[0] == "first-1-0"
    assert set(records.signals) == {"confidence", "consistency", "finished"}
    assert records.y.tolist() == [1 if value else -1 for value in verdicts()]
    assert records.verdicts["yes"].tolist() == [1 if item.reference == "46" else -1 for item in items]
    assert records.kl.min() >= 0.0
    assert len(set(records.group.tolist())) == len(PROMPTS)
    assert set(ours._logs["extra"]) == {"coefficient", "admission", "trust"}
    assert len(ours._logs["extra"]["coefficient"]) == len(ours._logs["prompt"]) == ROWS
    logged = ours.state.log_history[0]
    assert logged["vapo/windows"] == 1.0
    assert logged["vapo/baseline_observed"] == 1.0


def test_a_verdict_that_is_missing_is_no_proposal_and_no_verdict(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "verdicts", lambda: [None, *verdicts()[1:]])
    ours, _ = train(Gated, folder, tmp_path)
    window, _ = ours.hook.seen[0]
    assert window.records.y[0] == 0
    assert window.records.delta_r[0] == 0.0
    assert set(window.records.y[1:].tolist()) == {-1, 1}


def test_an_evaluation_asks_no_hook(folder, tmp_path):
    ours, _ = train(Gated, folder, tmp_path, per_device_eval_batch_size=ROWS)
    assert ours.hook.windows == 1
    ours.evaluate(eval_dataset=ours.train_dataset)
    assert ours.hook.windows == 1


def test_the_completions_table_has_what_was_decided_and_nothing_for_evaluations(folder, tmp_path):
    settings = {"per_device_eval_batch_size": ROWS, "eval_strategy": "steps", "eval_steps": 1}
    settings |= {"log_completions": True, "max_steps": 2, "num_completions_to_print": 1}
    train(Gated, folder, tmp_path, dropped={0, 5}, more={"eval_dataset": dataset()}, **settings)
    table = pq.read_table(tmp_path / "completions" / "completions_00001.parquet").to_pydict()
    assert {"advantage", "coefficient", "admission", "trust"} <= set(table)
    assert table["admission"] == [None] * ROWS
    hook = Picky({0, 5})
    train(Gated, folder, tmp_path / "b", hook=hook, log_completions=True, num_completions_to_print=1)
    table = pq.read_table(tmp_path / "b" / "completions" / "completions_00001.parquet").to_pydict()
    assert [row for row, word in enumerate(table["admission"]) if word == "below_threshold"] == [0, 5]
    assert table["coefficient"][0] == 0.0
    assert table["advantage"][0] != 0.0


def test_a_checkpoint_holds_the_hooks_state_and_a_resume_goes_on_with_it(folder, tmp_path):
    settings = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    train(Gated, folder, tmp_path / "a", **settings)
    kept = json.loads((tmp_path / "a" / "checkpoint-1" / "vapo.json").read_text())
    assert kept == {"baseline": "observed", "hook": {"windows": 1}}
    hook = Picky()
    resumed = {**settings, "resume": str(tmp_path / "a" / "checkpoint-1")}
    train(Gated, folder, tmp_path / "b", hook=hook, **resumed)
    assert hook.windows == 2
    assert [window.records.id.to_pylist()[0] for window, _ in hook.seen] == ["update-1-0"]
    (tmp_path / "a" / "checkpoint-1" / "vapo.json").unlink()
    with pytest.raises(ProtocolError, match="holds no state"):
        train(Gated, folder, tmp_path / "c", **resumed)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"loss_type": "bnpo"}, "loss_type"),
        (
            {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "steps_per_generation": 2},
            "window",
        ),
        ({"entropy_coef": 0.1}, "entropy_coef"),
    ],
)
def test_settings_under_which_abstaining_would_not_be_exact_are_refused(folder, tmp_path, settings, named):
    with pytest.raises(InputError, match=named):
        train(Gated, folder, tmp_path, **settings)


def test_a_rank_that_decides_needs_a_hook(folder, tmp_path):
    with pytest.raises(InputError, match="hook"):
        train(Gated, folder, tmp_path, more={"hook": None})
