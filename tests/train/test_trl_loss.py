"""The gate before TRL's loss: the same learner where everything is accepted, TRL without the row where it abstains."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("trl")

import torch

from tests.train.tiny import THEIRS, Dropped, Gated, Picky, Plain, apart, exact, save_model, train
from vapo.actuator import Actuator

pytestmark = pytest.mark.filterwarnings(THEIRS)
LOSSES = ["grpo", "dr_grpo", "dapo"]
DROPPED = frozenset({0, 3, 5, 6, 9, 13})
EXACT = 1e-9


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def compare(folder, tmp_path, monkeypatch):
    """Loss and first gradient of two trainers, compared in float64."""
    exact(monkeypatch)

    def run(reference, *, dropped=(), other=None, **settings):
        ours, found = train(Gated, folder, tmp_path / "a", dropped=dropped, **settings)
        theirs, wanted = train(
            reference, folder, tmp_path / "b", dropped=dropped, **{**settings, **(other or {})}
        )
        assert max(float(value.abs().max()) for value in wanted[0].values()) > 1e-4
        return ours, theirs, max(map(apart, wanted, found))

    return run


def weights(trainer):
    return {name: weight.detach() for name, weight in trainer.model.named_parameters()}


@pytest.mark.parametrize("loss", LOSSES)
def test_with_everything_accepted_the_gradient_is_trls_bit_for_bit(folder, tmp_path, loss):
    # With TRL's own float32 kernel, and with the KL term.
    settings = {"loss_type": loss, "beta": 0.05}
    ours, found = train(Gated, folder, tmp_path / "a", **settings)
    theirs, wanted = train(Plain, folder, tmp_path / "b", **settings)
    assert all(torch.equal(found[0][name], value) for name, value in wanted[0].items())
    assert ours.losses == theirs.losses


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("beta", [0.0, 0.05])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_abstaining_gives_the_gradient_of_the_batch_without_the_rows(compare, loss, beta, level):
    settings = {"loss_type": loss, "beta": beta, "importance_sampling_level": level}
    ours, theirs, difference = compare(Dropped, dropped=DROPPED, **settings)
    assert difference < EXACT
    assert ours.losses == pytest.approx(theirs.losses, rel=EXACT)


@pytest.mark.parametrize("loss", ["cispo", "sapo", "luspo", "vespo"])
def test_the_further_loss_types_abstain_exactly_too(compare, loss):
    assert compare(Dropped, dropped=DROPPED, loss_type=loss, beta=0.05)[2] < EXACT


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_dropped_from_micro_batches_leave_the_mean_of_the_whole_step(compare, loss):
    accumulated = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    whole = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1}
    settings = {"loss_type": loss, "beta": 0.05}
    ours, theirs, difference = compare(Dropped, dropped=DROPPED, **settings, **accumulated, other=whole)
    assert difference < EXACT
    assert sum(ours.losses) == pytest.approx(sum(theirs.losses), rel=EXACT)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_window_used_several_times_stays_dropped_while_ratios_move(compare, loss):
    settings = {"loss_type": loss, "beta": 0.05, "num_iterations": 3, "epsilon": 0.05}
    ours, theirs, difference = compare(Dropped, dropped=DROPPED, **settings)
    assert difference < EXACT
    assert apart(weights(theirs), weights(ours)) < EXACT
    assert ours.losses == pytest.approx(theirs.losses, rel=EXACT)
    clipped = [row["clip_ratio/region_mean"] for row in ours.state.log_history if "loss" in row]
    assert clipped[0] == 0.0
    assert clipped[-1] > 0.0


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo"])
def test_each_of_several_steps_a_window_averages_over_its_own_rows(folder, tmp_path, monkeypatch, loss):
    exact(monkeypatch)
    # Rows are dealt out in their order, so that the reference can be given the first half as a window of its own.
    monkeypatch.setattr(torch, "randperm", lambda rows, **more: torch.arange(rows))
    halves = {"per_device_train_batch_size": 8, "steps_per_generation": 2, "max_steps": 2}
    ours, found = train(Gated, folder, tmp_path / "a", dropped=DROPPED, loss_type=loss, **halves)
    _, wanted = train(Dropped, folder, tmp_path / "b", dropped=DROPPED | set(range(8, 16)), loss_type=loss)
    assert apart(wanted[0], found[0]) < EXACT
    assert [int((part["standing"] > 0).sum()) for part in ours._buffered_inputs] == [4, 6]


def test_zeroing_the_advantage_instead_would_not_be_abstaining(folder, tmp_path, monkeypatch):
    exact(monkeypatch)

    class Zeroed(Plain):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            output["advantages"][sorted(DROPPED)] = 0.0
            return output

    _, zeroed = train(Zeroed, folder, tmp_path / "a", loss_type="grpo", beta=0.05)
    _, dropped = train(Dropped, folder, tmp_path / "b", dropped=DROPPED, loss_type="grpo", beta=0.05)
    assert apart(dropped[0], zeroed[0]) > 0.05


def test_the_actuator_scales_what_is_admitted(folder, tmp_path, monkeypatch):
    exact(monkeypatch)
    hook = Picky(actuator=Actuator("trust"))
    ours, _ = train(Gated, folder, tmp_path / "a", hook=hook, beta=0.05)
    window, _ = hook.seen[0]
    score = np.linspace(0.0, 1.0, len(window))
    trust = 1.0 - 0.9 * (1.0 - score)
    kl = window.records.kl
    wanted = np.maximum(0.0, trust * np.minimum(0.1 * np.abs(window.advantage), 0.2) - 0.01 * kl) / 0.1
    wanted *= np.where(window.advantage == 0.0, 0.0, np.sign(window.advantage))
    assert np.allclose(list(ours._logs["extra"]["coefficient"]), wanted, atol=1e-12)
    assert kl.max() > 0.0


def test_momentum_does_not_move_what_was_abstained_from_altogether(folder, tmp_path):
    class Late(Picky):
        """Accepts the first window, abstains from the second."""

        def admit(self, window, items=()):
            self.dropped = frozenset(range(16) if self.windows else ())
            return super().admit(window, items)

    def adam(parameters):
        return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)

    one, _ = train(Gated, folder, tmp_path / "a", hook=Late(), optimiser=adam, max_steps=1)
    two, gradients = train(Gated, folder, tmp_path / "b", hook=Late(), optimiser=adam, max_steps=2)
    assert len(gradients) == 2
    assert all(torch.equal(weights(two)[name], value) for name, value in weights(one).items())
    plain, _ = train(Plain, folder, tmp_path / "c", optimiser=adam, max_steps=2)
    assert not all(torch.equal(weights(plain)[name], value) for name, value in weights(one).items())
