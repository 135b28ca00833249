"""A deployed policy is watched without crying wolf, and is stopped when it has to be."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from vapo.certification.bounds import clopper_pearson_lower
from vapo.certification.monitor import Monitor, is_checked, mirrored_bets
from vapo.errors import InputError, ProtocolError

checks = st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from([0.25, 0.5, 1.0])), max_size=40)


def feed(monitor: Monitor, stream) -> Monitor:
    for admitted, harmful, probability in stream:
        monitor.update(admitted, harmful, probability)
    return monitor


@settings(max_examples=150)
@given(stream=checks, block=st.integers(1, 9))
def test_evidence_check_by_check_is_the_product_over_all_checks(stream, block):
    monitor = feed(Monitor(0.08, 0.01, pi_min=0.25, block=block), stream)
    bets = mirrored_bets(0.08, 0.25)
    x = np.array([a * (float(h) - 0.08) / p for a, h, p in stream])
    gains = np.log1p(np.outer(bets.stakes, x)) if x.size else np.zeros((bets.stakes.size, 0))
    steady = special.logsumexp(bets.log_weights + gains.sum(axis=1))
    assert monitor.log_evidence == pytest.approx(float(steady), abs=1e-9)
    # the restarting form from its definition: one product for each start, the starts to come hold their share
    starts = -(-x.size // block)
    fresh = 1.0 / (starts + 1)
    for w in range(1, starts + 1):
        capital = np.exp(special.logsumexp(bets.log_weights + gains[:, (w - 1) * block :].sum(axis=1)))
        fresh += capital / (w * (w + 1))
    assert monitor.log_fresh_evidence == pytest.approx(math.log(fresh), abs=1e-9)


def alarm_rates(harm, stages, seed, pi=None, block=64):
    """Share of streams that alarm, with the very arithmetic of the monitor over many streams at once."""
    rng = np.random.default_rng(seed)
    n = harm.size
    bets = mirrored_bets(0.08, 1.0 if pi is None else float(pi.min()))
    steady = np.tile(bets.log_weights, (stages, 1))
    fresh = np.full_like(steady, -np.inf)
    alarmed = np.zeros(stages, bool)
    for t in range(n):
        if t % block == 0:
            start = t // block + 1
            fresh = np.logaddexp(fresh, bets.log_weights - math.log(start * (start + 1)))
        x = (rng.random(stages) < harm[t]) - 0.08
        if pi is not None:
            x = x * (rng.random(stages) < pi[t]) / pi[t]
        gains = np.log1p(bets.stakes * x[:, None])
        steady, fresh = steady + gains, fresh + gains
        waiting = -math.log(t // block + 2)
        best = np.maximum(special.logsumexp(steady, 1), np.logaddexp(special.logsumexp(fresh, 1), waiting))
        alarmed |= best >= math.log(2 / 0.05)
    return alarmed.mean()


@pytest.mark.parametrize("weighted", [False, True])
def test_false_alarms_stay_below_delta_at_the_boundary(weighted):
    pi = np.tile([0.3, 1.0], 400) if weighted else None
    rate = alarm_rates(np.full(800, 0.08), 600, 11, pi)
    assert float(clopper_pearson_lower(600, round(600 * rate), 0.001)) <= 0.05


def test_a_real_rise_is_noticed():
    assert alarm_rates(np.full(400, 0.20), 100, 12) > 0.95


def test_after_a_long_good_spell_the_restarting_form_reacts():
    monitor = Monitor(0.08, 0.05, block=32)
    for _ in range(2000):
        monitor.update(admitted=True, harmful=False)
    assert monitor.log_evidence < -3
    stream = np.random.default_rng(1).random(200) < 0.5
    needed = next(i for i, harm in enumerate(stream) if monitor.update(True, bool(harm)))
    assert needed < 80
    assert monitor.log_fresh_evidence >= monitor.log_threshold > monitor.log_evidence


@pytest.mark.parametrize("seed", range(12))
def test_the_alarm_comes_when_either_form_has_earned_its_half_of_delta_and_no_sooner(seed):
    monitor = Monitor(0.08, 0.05, block=8)
    for harm in np.random.default_rng(seed).random(300) < 0.25:
        before = monitor.alarm
        monitor.update(True, bool(harm))
        enough = max(monitor.log_evidence, monitor.log_fresh_evidence) >= math.log(2 / 0.05)
        assert monitor.alarm == (before or enough)
    assert monitor.alarm


def test_an_alarm_stays():
    monitor = feed(Monitor(0.08, 0.05), [(True, True, 1.0)] * 6)
    assert monitor.alarm
    assert monitor.closed
    feed(monitor, [(True, False, 1.0)] * 500)
    assert monitor.alarm
    assert monitor.log_evidence < 0


def test_records_that_were_not_admitted_change_nothing():
    monitor = feed(Monitor(0.08, 0.05), [(False, True, 1.0)] * 50)
    assert monitor.log_evidence == pytest.approx(0.0, abs=1e-12)
    assert monitor.log_fresh_evidence == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=100)
@given(
    stream=st.lists(st.tuples(st.booleans(), st.sampled_from([True, False, None])), max_size=25),
    data=st.data(),
)
def test_labels_count_in_the_order_of_the_draws_whenever_they_come(stream, data):
    ordered = Monitor(0.08, 0.05, block=4)
    for admitted, harmful in stream:
        ordered.update(admitted, harmful)
    late = Monitor(0.08, 0.05, block=4)
    for i, (admitted, _) in enumerate(stream):
        late.draw(str(i), admitted)
    arrivals = data.draw(st.permutations(range(len(stream))))
    for i in arrivals:
        waiting = {row[0] for row in late.state_dict()["queue"]}
        if str(i) in waiting:
            late.settle(str(i), stream[i][1])
    assert late.pending == 0
    assert late.log_evidence == pytest.approx(ordered.log_evidence, abs=1e-9)
    assert late.log_fresh_evidence == pytest.approx(ordered.log_fresh_evidence, abs=1e-9)


def test_a_pending_label_counts_as_harmless_and_holds_no_alarm_back():
    monitor = Monitor(0.08, 0.05)
    monitor.draw("slow", admitted=True)
    for i in range(8):
        monitor.draw(f"q{i}", admitted=True)
        monitor.settle(f"q{i}", harmful=True)
    assert monitor.alarm
    assert monitor.checks == 0
    # the same harm counted as if the slow record had been harmless
    other = feed(Monitor(0.08, 0.05), [(True, False, 1.0)] + [(True, True, 1.0)] * 8)
    assert other.alarm
    with pytest.raises(ProtocolError):
        monitor.update(admitted=True, harmful=False)


def test_a_label_that_never_comes_does_not_grow_the_queue_for_ever():
    monitor = Monitor(0.08, 0.05, max_pending=10)
    for i in range(100):
        monitor.draw(str(i), admitted=True)
    assert monitor.pending == 10
    assert monitor.checks == 90
    with pytest.raises(InputError):
        monitor.settle("0", harmful=True)


def test_records_that_people_pick_have_an_alarm_of_their_own():
    monitor = Monitor(0.08, 0.05)
    for _ in range(10):
        monitor.update_picked(admitted=True, harmful=True)
    assert monitor.picked_alarm
    assert monitor.closed
    assert not monitor.alarm
    assert monitor.log_evidence == pytest.approx(0.0, abs=1e-12)


def test_a_monitor_goes_on_from_its_saved_state():
    stream = [(True, bool(i % 5 == 0), 1.0) for i in range(150)]
    whole = feed(Monitor(0.08, 0.05), stream)
    first = feed(Monitor(0.08, 0.05), stream[:70])
    first.draw("late", admitted=True)
    saved = json.loads(json.dumps(first.state_dict(), allow_nan=False))
    second = Monitor(0.08, 0.05)
    second.load_state_dict(saved)
    assert second.state_dict() == first.state_dict()
    second.settle("late", harmful=stream[70][1])
    feed(second, stream[71:])
    assert second.state_dict() == whole.state_dict()


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"format": 99},
        {"settings": {}},
        {"steady": [0.0]},
        {"queue": [["a", True]]},
        {"checks": "many"},
        {"queue": [["a", True, None, 0.1]]},
    ],
)
def test_a_state_from_elsewhere_is_refused(broken):
    monitor = Monitor(0.08, 0.05)
    state = monitor.state_dict() | broken if broken else {}
    before = monitor.state_dict()
    with pytest.raises(InputError):
        monitor.load_state_dict(state)
    assert monitor.state_dict() == before


def test_a_check_is_drawn_from_key_and_name_alone_at_its_rate():
    key = bytes(range(32))
    drawn = [is_checked(key, f"r{i}", 0.2) for i in range(20_000)]
    assert drawn == [is_checked(key, f"r{i}", 0.2) for i in range(20_000)]
    assert abs(sum(drawn) / 20_000 - 0.2) < 0.012
    # a record checked at a low rate is checked at every higher one
    assert all(is_checked(key, f"r{i}", 0.5) for i in range(2000) if drawn[i])
    other = [is_checked(bytes(32), f"r{i}", 0.2) for i in range(20_000)]
    assert abs(sum(a and b for a, b in zip(drawn, other, strict=True)) / 20_000 - 0.04) < 0.008


@pytest.mark.parametrize(
    "call",
    [
        lambda: Monitor(0.08, 0.0),
        lambda: Monitor(0.0, 0.05),
        lambda: Monitor(0.08, 0.05, pi_min=0.0),
        lambda: Monitor(0.08, 0.05, planned_harm=0.05),
        lambda: Monitor(0.08, 0.05, block=0),
        lambda: Monitor(0.08, 0.05).update(admitted=True, harmful=True, probability=0.5),
        lambda: is_checked(b"short", "a", 0.5),
        lambda: is_checked(bytes(16), "a", 1.5),
    ],
)
def test_a_monitor_that_cannot_keep_its_promise_is_refused(call):
    with pytest.raises(InputError):
        call()
