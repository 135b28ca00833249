"""The lean loop: TRL's gradient on one batch, its own path measured, and the same bits after a resume."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from vapo.actuator import Actuator
from vapo.errors import InputError, ProtocolError, VapoError
from vapo.policy import Reason
from vapo.train.batch import Admission, Window, advantages
from vapo.train.engine import Settings, Step, policy_signals
from vapo.train.hook import AcceptAll, Closed
from vapo.train.lean import LeanEngine
from vapo.train.models.embedded import CharacterModel, Shape

PROMPTS = ["1+2=", "1+2=", "1+2=", "12+30=", "12+30=", "12+30="]


def small(seed=1):
    model = CharacterModel(Shape(width=16, layers=1, heads=2), seed=seed)
    model.module.double()
    return model


def engine(**settings):
    return LeanEngine(small(), Settings(max_tokens=5, learning_rate=1e-2, max_grad_norm=0.0, **settings))


def window(reward=(1, 0, 0, 0, 1, 1), name="u0"):
    advantage = advantages(list(reward), PROMPTS)
    y = np.where(np.array(reward) > 0, 1, -1)
    signals = {"confidence": np.full(len(reward), 0.5)}
    ids = [f"{name}-{row}" for row in range(len(reward))]
    return Window.of(ids=ids, groups=PROMPTS, window=name, y=y, advantage=advantage, signals=signals)


def admission(dropped=(), **more):
    """Everything but some rows, as a gate would have it."""
    given = window(**more)
    reason = np.full(len(given), Reason.ACCEPTED, np.uint8)
    reason[list(dropped)] = Reason.BELOW_THRESHOLD
    reason[(given.records.delta_r == 0) & (reason == Reason.ACCEPTED)] = Reason.NO_PROPOSAL
    sign = np.where(reason == Reason.ACCEPTED, given.records.y, 0)
    return Admission(
        reason,
        np.ones(len(given)),
        Actuator("identity").magnitude(np.ones(len(given)), given.records.delta_r, None, sign),
    )


def gradients(engine, batch, decided):
    """What the optimiser is given, one dictionary a step."""
    found = []
    names = {id(weight): name for name, weight in engine.model.module.named_parameters()}

    def keep(optimiser, *rest):
        weights = optimiser.param_groups[0]["params"]
        found.append({names[id(weight)]: weight.grad.clone() for weight in weights})

    handle = engine._optimiser.register_step_pre_hook(keep)
    step = engine.update(batch, decided)
    handle.remove()
    return step, found


def only(batch, rows):
    """The batch in which there never were other rows."""
    columns = {
        name: getattr(batch, name)[rows]
        for name in ("prompts", "prompt_mask", "tokens", "mask", "logp", "finished")
    }
    return replace(batch, **columns, texts=[batch.texts[row] for row in rows])


def part(decided, rows):
    updates = decided.updates
    return Admission(
        decided.reason[rows],
        decided.score[rows],
        replace(
            updates,
            magnitude=updates.magnitude[rows],
            update=updates.update[rows],
            admitted=updates.admitted[rows],
        ),
    )


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_abstaining_is_training_on_the_batch_without_the_rows(loss, beta, level):
    settings = {"loss": loss, "beta": beta, "level": level}
    first = engine(**settings)
    batch = first.sample(PROMPTS, seed=3)
    dropped, kept = [1, 4], [0, 2, 3, 5]
    decided = admission(dropped)
    step, found = gradients(first, batch, decided)
    other, wanted = gradients(engine(**settings), only(batch, kept), part(decided, kept))
    for name, value in wanted[0].items():
        assert torch.allclose(found[0][name], value, rtol=1e-12, atol=1e-15)
    assert step.loss == pytest.approx(other.loss, rel=1e-12, abs=1e-15)
    assert step.rows == 4


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning")
def test_lean_loop_and_trl_give_equal_gradients_on_one_batch(tmp_path, monkeypatch, loss, level):
    pytest.importorskip("trl")
    from tests.train import tiny

    tiny.exact(monkeypatch)
    dropped = {0, 3, 5, 6, 9, 13}
    settings = {"loss_type": loss, "beta": 0.05, "importance_sampling_level": level}
    folder = tiny.save_model(tmp_path / "m")
    trainer, theirs = tiny.train(tiny.Gated, folder, tmp_path / "o", dropped=dropped, **settings)
    given, items = trainer.hook.seen[0]
    decided = tiny.Picky(dropped).admit(given, items)
    # The reference is the saved model, what is trained is a step away from it, as under TRL.
    model = tiny.Small(tiny.load_model(tmp_path / "m"))
    lean = LeanEngine(model, Settings(loss=loss, level=level, beta=0.05, max_tokens=8, max_grad_norm=0.0))
    model.module.load_state_dict(tiny.load_model(tmp_path / "m", shift=0.1).state_dict())
    batch = tiny.canned_batch(model)
    batch = replace(batch, logp=lean.score(batch)[0])
    # What the hook was shown by TRL is what the lean loop measures.
    confidence = (lean.score(batch)[0].exp() * batch.mask).sum(dim=1) / batch.lengths
    shown = given.records.signals["confidence"]
    turned = np.where(given.records.y > 0, confidence.numpy(), 1.0 - confidence.numpy())
    assert np.allclose(shown, turned, atol=1e-9)
    assert np.allclose(given.records.kl, lean.reference_kl(batch), atol=1e-9)
    step, ours = gradients(lean, batch, decided)
    assert tiny.apart(theirs[0], ours[0]) < 1e-9
    logged = trainer.state.log_history[0]
    assert step.loss == pytest.approx(trainer.losses[0], rel=1e-9)
    assert step.kl == pytest.approx(logged["kl"], rel=1e-6)
    assert step.entropy == pytest.approx(logged["entropy"], rel=1e-6)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_with_trls_loss_inside_an_engine_takes_the_same_steps(monkeypatch, loss, level):
    pytest.importorskip("trl")
    from tests.train import tiny
    from vapo.train.trl.engine import TrlEngine

    tiny.exact(monkeypatch)
    settings = {"loss": loss, "level": level, "beta": 0.05, "passes": 2, "minibatches": 2, "rows_at_once": 2}
    settings |= {"max_tokens": 5, "learning_rate": 1e-2, "clip_low": 0.01, "clip_high": 0.02}
    engines = [LeanEngine(small(), Settings(**settings)), TrlEngine(small(), Settings(**settings))]
    steps = []
    for lean in engines:
        batch = lean.sample(PROMPTS, seed=3)
        batch = replace(batch, logp=lean.score(batch)[0])
        steps.append([gradients(lean, batch, admission([1])) for _ in range(2)])
    for (wanted, theirs), (found, ours) in zip(*steps, strict=True):
        for one, other in zip(theirs, ours, strict=True):
            assert tiny.apart(one, other) < 1e-9
        assert found.metrics() == pytest.approx(wanted.metrics(), rel=1e-9)
    # Clips were at work.
    assert steps[0][1][0].clip_fraction > 0.0


def test_with_one_step_a_window_of_fresh_rollouts_the_ratio_is_one_and_no_clip_acts():
    lean = engine(clip_low=0.0, clip_high=0.0)
    batch = lean.sample(PROMPTS, seed=3)
    batch = replace(batch, logp=lean.score(batch)[0])
    step = lean.update(batch, AcceptAll().admit(window()))
    assert step.ratio == 1.0
    assert step.clip_fraction == 0.0
    assert step.kl == 0.0


def test_ratio_clip_fraction_and_kl_are_measured_where_the_policy_has_moved():
    lean = engine(passes=4, minibatches=2, clip_low=0.01, clip_high=0.01)
    batch = lean.sample(PROMPTS, seed=3)
    batch = replace(batch, logp=lean.score(batch)[0])
    step = lean.update(batch, AcceptAll().admit(window()))
    assert step.ratio != 1.0
    assert 0.0 < step.clip_fraction < 1.0
    assert step.tokens == 4 * int(batch.mask.sum())
    assert lean.update(batch, AcceptAll().admit(window())).kl > 0.0
    assert (lean.reference_kl(batch) > 0.0).all()


def test_rows_taken_a_few_at_a_time_give_the_same_gradient():
    whole, pieces = engine(), engine(rows_at_once=2)
    batch = whole.sample(PROMPTS, seed=3)
    _, found = gradients(pieces, batch, admission([1]))
    _, wanted = gradients(whole, batch, admission([1]))
    for name, value in wanted[0].items():
        assert torch.allclose(found[0][name], value, rtol=1e-12, atol=1e-15)


def test_a_minibatch_averages_over_its_own_rows_and_dapo_over_the_windows_tokens():
    rows = np.array([0, 1, 2, 3, 4, 5])
    for loss in ("grpo", "dr_grpo", "dapo"):
        lean = engine(loss=loss, minibatches=2)
        batch = lean.sample(PROMPTS, seed=3)
        lengths = batch.lengths.numpy()
        _, found = gradients(lean, batch, admission())
        share = lengths[:3].sum() / (lengths.sum() / 2) if loss == "dapo" else 1.0
        _, wanted = gradients(engine(loss=loss), only(batch, rows[:3]), part(admission(), rows[:3]))
        for name, value in wanted[0].items():
            assert torch.allclose(found[0][name], share * value, rtol=1e-9, atol=1e-13)


def test_a_closed_gate_moves_nothing_not_even_by_momentum():
    lean = engine(weight_decay=0.1)
    batch = lean.sample(PROMPTS, seed=3)
    lean.update(batch, AcceptAll().admit(window()))
    before = copy.deepcopy(lean.model.module.state_dict())
    assert lean.update(batch, Closed("no certificate").admit(window(name="u1"))) == Step.none()
    assert lean.update(batch, admission(range(6))) == Step.none()
    assert all(torch.equal(before[name], value) for name, value in lean.model.module.state_dict().items())


def test_an_engine_goes_on_bit_for_bit_where_its_state_was_taken():
    lean = engine(passes=2, minibatches=2)

    def go(engine, seed):
        batch = engine.sample(PROMPTS, seed=seed)
        return batch.texts, engine.update(batch, AcceptAll().admit(window()))

    go(lean, 1)
    file = io.BytesIO()
    torch.save(lean.state_dict(), file)
    wanted = [go(lean, seed) for seed in (2, 3)]
    file.seek(0)
    again = engine(passes=2, minibatches=2)
    again.load_state_dict(torch.load(file))
    assert [go(again, seed) for seed in (2, 3)] == wanted
    weights = lean.model.module.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in again.model.module.state_dict().items())
    assert again.state_dict()["updates"] == 3


def test_the_state_of_another_learner_is_refused():
    state = engine().state_dict()
    with pytest.raises(ProtocolError, match="settings"):
        engine(passes=2).load_state_dict(state)
    with pytest.raises(ProtocolError, match="model"):
        LeanEngine(
            small(seed=2), Settings(max_tokens=5, learning_rate=1e-2, max_grad_norm=0.0)
        ).load_state_dict(state)


def test_sampling_hangs_on_its_seed_and_greedy_on_nothing():
    lean = engine()
    torch.manual_seed(5)
    one = lean.sample(PROMPTS, seed=1)
    torch.manual_seed(6)
    assert one.texts == lean.sample(PROMPTS, seed=1).texts != lean.sample(PROMPTS, seed=2).texts
    assert (
        lean.sample(PROMPTS, seed=1, temperature=0).texts == lean.sample(PROMPTS, seed=2, temperature=0).texts
    )


def test_a_gradient_that_is_not_finite_is_an_error_and_no_step():
    lean = engine()
    batch = lean.sample(PROMPTS, seed=3)
    before = copy.deepcopy(lean.model.module.state_dict())
    broken = replace(batch, logp=torch.full_like(batch.logp, float("nan")))
    with pytest.raises(VapoError, match="not finite"):
        lean.update(broken, AcceptAll().admit(window()))
    assert all(torch.equal(before[name], value) for name, value in lean.model.module.state_dict().items())


def test_an_admission_of_another_window_is_refused():
    lean = engine()
    with pytest.raises(InputError, match="6 completions"):
        lean.update(lean.sample(PROMPTS, seed=3), part(admission(), np.arange(4)))


def test_what_cannot_be_read_agrees_with_nothing():
    found = policy_signals(
        y=[1, -1, 1], group=["q"] * 3, answers=[None, None, "7"], finished=[True, False, True]
    )
    assert found["consistency"].tolist() == pytest.approx([0.0, 1.0, 1 / 3])
    assert found["finished"].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    "settings", [{"loss": "bnpo"}, {"passes": True}, {"temperature": 0}, {"beta": 0.1, "reference": False}]
)
def test_settings_outside_their_sets_are_refused_by_name(settings):
    with pytest.raises(InputError, match="argument"):
        Settings(**settings)
