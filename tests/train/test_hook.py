"""What a trainer asks before it learns: decisions on disk first, nothing without a certificate, states that hold."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from tests.samples import world
from tests.verifiers.stubs import Stub
from vapo.actuator import Actuator
from vapo.certification.flow import certify
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.gate import Gate
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.policy import Family, Policy, Reason
from vapo.records import Records, Source
from vapo.train.attach import Observed, Row, decide
from vapo.train.batch import Window, advantages
from vapo.train.hook import AcceptAll, Closed, GateHook
from vapo.verifiers import Item, Outcome
from vapo.verifiers.base import Failure

TERMS = {"rho": 0.15, "c_min": 0.2, "b_max": 0.2, "score": "signal:conf"}
APPEALING = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=3)])


@pytest.fixture(scope="module")
def certified_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("hooked") / "run"
    table, labels = world(900)
    assert certify(table, labels, out=run, family=APPEALING, **TERMS).certified
    return run


@pytest.fixture
def run(certified_run, tmp_path):
    return shutil.copytree(certified_run, tmp_path / "run")


def window(names="u0", n=12, sources=None, **columns):
    rng = np.random.default_rng(3)
    y = np.where(np.arange(n) % 3 == 0, -1, 1)
    groups = [f"g{row // 4}" for row in range(n)]
    advantage = advantages(y > 0, groups)
    prefix = names if isinstance(names, str) else "several"
    given = {
        "ids": [f"{prefix}-{row}" for row in range(n)],
        "groups": groups,
        "window": names,
        "y": y,
        "advantage": advantage,
        "signals": {"conf": rng.uniform(0.1, 1.0, n)},
        "verdicts": {"judge": y},
        "kl": np.full(n, 0.01),
        "sources": sources,
    }
    return Window.of(**(given | columns))


def items(window):
    return [Item(name, "?", f"answer of {name}") for name in window.records.id.to_pylist()]


def yes(item):
    return Outcome(verdict=1)


def test_accepting_all_gives_a_plain_learners_advantages():
    given = window()
    admission = AcceptAll().admit(given)
    assert admission.coefficient.tolist() == pytest.approx(given.advantage.tolist(), abs=1e-15)
    assert admission.kept.all()


def test_what_a_trainers_mean_leaves_of_equal_graded_rewards_is_no_proposal():
    # In single precision the mean of eight times 0.9 may come out 6e-8 higher; the deviation is nothing, and so TRL
    # divides by 1e-4.
    rows = [Row("1+2=", "3", "3", "q", 0.9, -6e-4, finished=True)] * 8
    # Two rewards that add up to the same, each centred and scaled apart, do propose something.
    rows += [Row("4+5=", "9", "9", "r", 1.0, value, finished=True) for value in (0.4, -0.4)]
    decided = decide(rows, AcceptAll(), Observed(), "0")
    assert decided.reason == ["no_proposal"] * 8 + ["accepted"] * 2
    assert decided.coefficient == pytest.approx([0.0] * 8 + [0.4, -0.4])


def test_an_agreeing_group_stays_in_the_batch_and_moves_nothing():
    given = window(y=np.ones(12, int), advantage=np.zeros(12))
    admission = AcceptAll().admit(given)
    assert set(admission.reason.tolist()) == {Reason.NO_PROPOSAL}
    assert admission.kept.all()
    assert not admission.trains


def test_a_closed_hook_keeps_no_row_at_all_and_says_why():
    admission = Closed("nothing was certified").admit(window())
    assert admission.closed == "nothing was certified"
    assert not admission.kept.any()
    assert not admission.coefficient.any()


def test_the_gate_hook_does_what_the_gate_does(run, tmp_path):
    given = window()
    with Gate.open(shutil.copytree(run, tmp_path / "other")) as gate:
        wanted = gate.decide(given.records).table
    with GateHook.open(run, Actuator("identity")) as hook:
        admission = hook.admit(given)
    assert [Reason(code).text for code in admission.reason] == wanted.column("reason").to_pylist()
    signs = np.array(wanted.column("sign").to_pylist())
    assert np.sign(admission.coefficient).tolist() == np.where(given.advantage == 0, 0, signs).tolist()


def test_decisions_are_in_the_ledger_when_they_come_back_and_name_their_certificate(run):
    with GateHook.open(run) as hook:
        admission = hook.admit(window())
        seen = Ledger.read(run)
    assert seen.events[-1].kind is EventKind.ACTIONS
    assert admission.certificate == seen.last(EventKind.ISSUED).body["envelope"]["sha256"]
    assert verify_run(run).ok


def test_appeals_are_about_the_records_that_were_asked_for_and_within_the_budget(run):
    given = window()
    secondary = Stub(yes)
    with GateHook.open(run, secondary=secondary) as hook:
        admission = hook.admit(given, items(given))
    appealed = [n for n, a in zip(given.records.id.to_pylist(), admission.appealed, strict=True) if a]
    assert secondary.asked == appealed
    assert 0 < admission.calls == len(appealed) <= 3


def test_the_budget_is_per_update_when_several_updates_are_decided_at_once(run):
    names = [f"u{row // 4}" for row in range(12)]
    given = window(names)
    with GateHook.open(run, secondary=Stub(yes)) as hook:
        admission = hook.admit(given, items(given))
    by_update = [admission.take(slice(first, first + 4)) for first in (0, 4, 8)]
    assert all(part.calls <= 3 for part in by_update)
    assert sum(part.calls for part in by_update) == admission.calls > 3
    assert np.concatenate([p.coefficient for p in by_update]).tolist() == admission.coefficient.tolist()


def test_a_failing_secondary_never_counts_as_a_no_or_a_yes(run):
    given = window()
    with GateHook.open(run, secondary=Stub(lambda item: Outcome(failure=Failure.TIMEOUT))) as hook:
        admission = hook.admit(given, items(given))
    assert set(admission.reason[admission.appealed].tolist()) == {Reason.SECONDARY_MISSING}
    assert not admission.updates.admitted[admission.appealed].any()


def test_a_window_that_was_decided_comes_back_as_it_was_without_another_call(run):
    given, secondary = window(), Stub(yes)
    with GateHook.open(run, secondary=secondary) as hook:
        first = hook.admit(given, items(given))
    asked = len(secondary.asked)
    with GateHook.open(run, secondary=secondary) as hook:
        again = hook.admit(given, items(given))
    assert len(secondary.asked) == asked
    assert again.reason.tolist() == first.reason.tolist()
    assert again.calls == first.calls


def test_records_of_another_verifier_than_the_certified_one_are_abstained_from(run):
    other = {"primary": Source("another", "a" * 64)}
    with GateHook.open(run) as hook:
        admission = hook.admit(window(sources=other))
    assert "not the one that was certified" in admission.closed
    assert not admission.kept.any()


def test_another_secondary_than_the_certified_one_closes_the_gate(tmp_path):
    table, labels = world(900)
    records = Records.from_arrow(table, sources={"y2": Source("judge", "b" * 64)})
    run = tmp_path / "run"
    assert certify(records, labels, out=run, family=APPEALING, **TERMS).certified
    given = window()
    with GateHook.open(run, secondary=Stub(yes, "another judge")) as hook:
        admission = hook.admit(given, items(given))
    assert "'another judge' is not the one" in admission.closed
    assert not admission.trains


def test_a_refused_certificate_trains_nothing_and_says_so(tmp_path):
    table, labels = world(120)
    run = tmp_path / "run"
    assert not certify(table, labels, out=run, **TERMS | {"rho": 0.01}).certified
    with GateHook.open(run) as hook:
        admission = hook.admit(window())
        assert hook.metrics()["closed"] == 1.0
    assert admission.closed == "the certificate was refused"
    assert not admission.trains


def test_a_verdict_against_its_advantage_is_refused():
    given = window(advantage=-window().advantage)
    with pytest.raises(InputError, match="sign that the advantage pushes in"):
        AcceptAll().admit(given)


def test_completions_of_one_update_between_those_of_another_are_refused():
    with pytest.raises(InputError, match="side by side"):
        window(["u0", "u1"] * 6)


def test_as_many_items_as_records_are_wanted(run):
    given = window()
    with GateHook.open(run) as hook, pytest.raises(InputError, match="12 items"):
        hook.admit(given, items(given)[:3])


def test_a_state_is_taken_back_only_by_the_hook_and_the_run_that_wrote_it(run):
    with GateHook.open(run) as hook:
        hook.admit(window())
        state = hook.state_dict()
    with GateHook.open(run) as hook:
        hook.load_state_dict(state)
        assert hook.state_dict() == state
        with pytest.raises(IntegrityError, match="does not hold the place"):
            hook.load_state_dict(state | {"head": "0" * 64})
    with (
        GateHook.open(run, Actuator("trust")) as hook,
        pytest.raises(ProtocolError, match="another actuator"),
    ):
        hook.load_state_dict(state)
    with pytest.raises(InputError, match="the state of a AcceptAll"):
        AcceptAll().load_state_dict(state)


def test_metrics_are_those_of_the_last_window():
    hook = AcceptAll()
    assert hook.metrics() == {}
    hook.admit(window())
    assert hook.metrics()["coverage"] == 1.0
    hook.admit(window("u1", y=np.ones(12, int), advantage=np.zeros(12)))
    assert hook.metrics()["coverage"] == 0.0
    assert hook.metrics()["kept"] == 12.0
