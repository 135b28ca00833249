"""Rewards under noise: what corrections estimate, whom labels go to, and what a row of the ledger adds up to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.stubs import Stub
from vapo.errors import InputError
from vapo.tasks import open_task
from vapo.train.batch import advantages
from vapo.train.config import Judging, Named
from vapo.train.evaluate import pass_at_k
from vapo.train.noise_correction import ErrorRates, corrected_advantages
from vapo.train.resources import Chain, Lines, Position, read_chain
from vapo.train.sinks import open_sinks
from vapo.train.verdicts import Judge, open_judge, open_verifier
from vapo.verifiers import Item, Outcome
from vapo.verifiers.channels import Channel


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_of_equal_graded_rewards_proposes_nothing_however_its_mean_is_rounded(scale):
    reward, group = (
        [0.1] * 3 + [0.7] * 3 + [0.1, np.nan, 0.1] + [0.1, 0.7],
        [0] * 3 + [1] * 3 + [2] * 3 + [3] * 2,
    )
    found = advantages(reward, group, scale=scale)
    assert not found[:9].any()
    assert found[9] < 0.0 < found[10]


def noisy(seed, low, high, groups=4000, size=4):
    """Clean rewards and what a verifier of given error rates makes of them."""
    chance = np.random.default_rng(seed)
    clean = chance.random((groups, size)) < chance.uniform(0.2, 0.8, (groups, 1))
    wrong = chance.random(clean.shape) < np.where(clean, high, low)
    return clean.ravel(), (clean ^ wrong).ravel(), np.repeat(np.arange(groups), size)


def test_the_backward_reward_has_the_clean_rewards_expectation():
    clean, seen, _ = noisy(0, 0.2, 0.1)
    corrected = (seen - 0.2) / (1 - 0.2 - 0.1)
    assert corrected[clean].mean() == pytest.approx(1.0, abs=0.02)
    assert corrected[~clean].mean() == pytest.approx(0.0, abs=0.02)


def test_forward_weights_cancel_right_answers_and_push_against_wrong_ones():
    clean, seen, _ = noisy(1, 0.2, 0.1)
    weight = np.where(seen, 0.1, 0.1 - 1.0)
    assert weight[clean].mean() == pytest.approx(0.0, abs=0.02)
    assert weight[~clean].mean() == pytest.approx(-(1 - 0.2 - 0.1), abs=0.02)


def test_both_corrections_do_what_their_formulas_say_in_groups_that_differ_and_nothing_elsewhere():
    _, seen, group = noisy(2, 0.2, 0.1, groups=300)
    rates = ErrorRates(wrong=999, approved=199, right=999, rejected=99)
    plain = advantages(seen, group)
    back = corrected_advantages(seen, group, rates, how="backward")
    assert back == pytest.approx(plain / (1 - rates.false_positive - rates.false_negative))
    forth = corrected_advantages(seen, group, rates, how="forward")
    moved = plain != 0
    assert not forth[~moved].any()
    assert (np.sign(forth[moved]) == np.where(seen[moved], 1, -1)).all()
    ratio = -forth[moved & ~seen].mean() / forth[moved & seen].mean()
    assert ratio == pytest.approx((1 - rates.false_negative) / rates.false_negative, rel=0.1)


def test_rates_are_those_of_the_verifier_once_enough_was_asked():
    clean, seen, _ = noisy(3, 0.2, 0.1)
    rates = ErrorRates().seen(np.where(seen, 1, -1), np.where(clean, 1, -1))
    assert rates.false_positive == pytest.approx(0.2, abs=0.02)
    assert rates.false_negative == pytest.approx(0.1, abs=0.02)


def test_rates_about_which_nothing_is_known_change_nothing():
    assert (ErrorRates().false_positive, ErrorRates().false_negative) == (0.0, 0.0)
    assert ErrorRates().seen([1, -1, 0], [0, 0, 1]) == ErrorRates()


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=30), st.integers(0, 30))
def test_rates_do_not_depend_on_how_appeals_are_counted_up(signs, cut):
    y, y2 = np.array(signs), np.array(signs[::-1])
    cut = min(cut, len(y))
    parts = ErrorRates().seen(y[:cut], y2[:cut]).seen(y[cut:], y2[cut:])
    assert parts == ErrorRates().seen(y, y2)


def items(count):
    return [Item(f"i{n}", f"{n}+1", str(n % 3), str(n % 3)) for n in range(count)]


def test_a_channel_without_errors_leaves_the_verifier_and_its_name_alone():
    judge = open_judge(Judging(), open_task("arithmetic"))
    assert judge.source == open_task("arithmetic").oracle.source


def test_persistent_errors_hang_on_the_answer_and_not_on_how_it_is_written():
    task = open_task("arithmetic")
    judge = open_judge(Judging(kind="symmetric", rate=0.5, persistent=True), task, run="r")
    one, two = (
        [Item(f"{m}{n}", "1+1", text.format(n), "2") for n in range(40)]
        for m, text in (("a", "{}"), ("b", "0{} "))
    )
    assert [o.verdict for o in judge.verify(one)] == [o.verdict for o in judge.verify(two)]
    drawn = open_judge(Judging(kind="symmetric", rate=0.5), task, run="r")
    assert [o.verdict for o in drawn.verify(one)] != [o.verdict for o in drawn.verify(two)]


def test_errors_follow_the_policys_confidence_where_the_channel_says_so():
    stub = Stub(lambda item: Outcome(verdict=1))
    judge = Judge(stub, Channel.make("confidence-dependent", 0.5, key="k"), lambda text: text, "0" * 64)
    sure = judge.verify(items(60), confidence=np.ones(60))
    unsure = judge.verify(items(60), confidence=np.zeros(60))
    assert all(outcome.verdict == 1 for outcome in sure)
    assert all(outcome.verdict == -1 for outcome in unsure)


def test_who_is_asked_later_goes_by_the_confidence_that_it_was_told():
    stub = Stub(lambda item: Outcome(verdict=1))
    judge = Judge(stub, Channel.make("confidence-dependent", 0.5), lambda text: text, "0" * 64)
    asked = items(60)
    judge.tell(asked, np.arange(60) < 30)
    assert [outcome.verdict for outcome in judge.verify(asked[20:40])] == [1] * 10 + [-1] * 10


def test_a_cause_is_shared_by_the_verifiers_of_one_run_and_by_no_others():
    task = open_task("arithmetic")
    shared = Judging(kind="correlated", rate=0.3, cause="same lessons", shared=1.0)
    asked = [Item(f"i{n}", "1+1", "2", "2") for n in range(200)]

    def said(run, name):
        return [o.verdict for o in open_judge(shared, task, run=run, name=name).verify(asked)]

    assert said("run 13", "primary") == said("run 13", "secondary")
    assert said("run 13", "primary") != said("run 17", "primary")


def test_copies_of_a_completion_are_judged_once():
    stub = Stub(lambda item: Outcome(verdict=1))
    judge = Judge(stub, Channel.make("none"), lambda text: text, "0" * 64)
    copies = [Item(f"c{n}", "1+1", "2", "2") for n in range(5)]
    assert len(judge.verify(copies)) == 5
    assert stub.asked == ["c0"]


def test_verifiers_are_opened_by_name_and_strangers_refused():
    task = open_task("arithmetic")
    assert open_verifier(Named("numeric"), task).verify([Item("a", "12+34", "12+34", "46")])[0].sign <= 0
    with pytest.raises(InputError, match="a verifier among oracle"):
        open_verifier(Named("clairvoyant"), task)
    with pytest.raises(InputError, match="options"):
        open_verifier(Named("numeric", {"mood": "good"}), task)


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer():
    chance = np.random.default_rng(0)
    draws = [set(chance.choice(8, 3, replace=False)) for _ in range(40_000)]
    simulated = np.mean([bool(draw & {0, 1}) for draw in draws])
    assert pass_at_k([2], 8, 3)[0] == pytest.approx(simulated, abs=0.01)
    with pytest.raises(InputError):
        pass_at_k([1], 4, 5)


def test_a_ledger_goes_on_where_a_checkpoint_left_it(tmp_path):
    chain = Chain(tmp_path / "ledger.jsonl")
    chain.append("one", {"n": 1})
    at = chain.position
    chain.append("two", {"n": 2})
    chain.close()
    again = Chain(tmp_path / "ledger.jsonl", at)
    again.append("three", {"n": 3})
    again.close()
    assert [entry.kind for entry in read_chain(tmp_path / "ledger.jsonl")] == ["one", "three"]


def test_a_ledger_that_lost_lines_of_its_checkpoint_is_refused(tmp_path):
    from vapo.errors import IntegrityError

    (tmp_path / "ledger.jsonl").write_bytes(b"{}\n")
    with pytest.raises(IntegrityError, match="were written up to the checkpoint"):
        Lines(tmp_path / "ledger.jsonl", Position(100, 2, "0" * 64))


@pytest.mark.parametrize("name", ["tensorboard", "trackio", "wandb", "mlflow"])
def test_a_sink_whose_library_is_missing_says_which(name, tmp_path, monkeypatch):
    import importlib

    def missing(module, *rest):
        raise ImportError(module)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(InputError, match=f"pip install {name}"):
        open_sinks([name], tmp_path, "run", {"arm": "static", "seed": 1})
    with pytest.raises(InputError, match="sinks among"):
        open_sinks(["paper"], tmp_path, "run", {})


def test_trackers_get_every_number_under_its_step(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    seen = []
    run = SimpleNamespace(log=lambda numbers, step: seen.append((step, numbers)))
    fake = SimpleNamespace(init=lambda **options: run, finish=lambda: seen.append("finished"))
    monkeypatch.setitem(sys.modules, "wandb", fake)
    (sink,) = open_sinks(["wandb"], tmp_path, "run", {"arm": "static", "seed": 1})
    sink.write(3, {"loss": 0.5})
    sink.close()
    assert seen == [(3, {"loss": 0.5}), "finished"]


def test_what_a_tracker_says_leaves_stdout_to_the_command(tmp_path, monkeypatch, capsys):
    import sys
    from types import SimpleNamespace

    run = SimpleNamespace(log=lambda numbers, step: print("logged"))
    fake = SimpleNamespace(init=lambda **options: print("begun") or run, finish=lambda: print("ended"))
    monkeypatch.setitem(sys.modules, "trackio", fake)
    (sink,) = open_sinks(["trackio"], tmp_path, "run", {"arm": "static", "seed": 1})
    sink.write(3, {"loss": 0.5})
    sink.close()
    said = capsys.readouterr()
    assert (said.out, said.err.split()) == ("", ["begun", "logged", "ended"])


@pytest.mark.parametrize("elsewhere", ["", "http://localhost:5000"])
def test_mlflow_keeps_a_database_beside_the_run_unless_it_was_told_where_to_write(
    tmp_path, monkeypatch, elsewhere
):
    import sys
    from types import SimpleNamespace

    said = []
    names = ("set_tracking_uri", "start_run", "log_params", "log_metrics", "end_run")
    fake = SimpleNamespace(
        **{name: lambda *given, name=name, **more: said.append((name, *given)) for name in names}
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", elsewhere)
    open_sinks(["mlflow"], tmp_path, "run", {"arm": "static", "seed": 1})
    told = [given for name, *given in said if name == "set_tracking_uri"]
    assert told == ([] if elsewhere else [[f"sqlite:///{tmp_path / 'mlflow.db'}"]])


def test_tensorboard_gets_every_number_in_a_folder_of_the_runs_own(tmp_path):
    pytest.importorskip("tensorboard", reason="the sink is tried on the library itself")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("13", "17"):
        (sink,) = open_sinks(["tensorboard"], tmp_path, name, {"arm": "static", "seed": int(name)})
        for step in range(3):
            sink.write(step, {"step/loss": float(name) + step})
        sink.close()
    for name in ("13", "17"):
        there = EventAccumulator(str(tmp_path / "tensorboard" / name)).Reload()
        found = [(event.step, event.value) for event in there.Scalars("step/loss")]
        assert found == [(step, float(name) + step) for step in range(3)]
