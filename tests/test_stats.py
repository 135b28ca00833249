"""Intervals that cover, pairs that stay together, and ratios that may not exist."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

import vapo.stats
from tests.reference import metrics_reference as reference
from vapo.errors import InputError
from vapo.stats import (
    binomial_rate,
    intraclass_correlation,
    paired_bootstrap,
    verifier_errors,
    violation_rate,
)


@settings(max_examples=300)
@given(trials=st.integers(1, 2000), data=st.data(), level=st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_a_binomial_interval_is_the_clopper_pearson_interval(trials, data, level):
    events = data.draw(st.integers(0, trials))
    found = binomial_rate(events, trials, level=level)
    expected = scipy_stats.binomtest(events, trials).proportion_ci(level, method="exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), rel=1e-9, abs=1e-12)
    assert found.low <= found.rate <= found.high


@pytest.mark.parametrize("probability", [0.01, 0.05, 0.3])
def test_a_binomial_interval_covers_at_its_level_for_every_sample_size(probability):
    for trials in (1, 5, 20, 60):
        intervals = [binomial_rate(events, trials, level=0.9) for events in range(trials + 1)]
        chances = scipy_stats.binom.pmf(np.arange(trials + 1), trials, probability)
        covered = sum(p for p, i in zip(chances, intervals, strict=True) if i.low <= probability <= i.high)
        assert covered >= 0.9


def test_no_trials_leave_the_rate_open():
    found = violation_rate([])
    assert (found.trials, found.rate, found.low, found.high) == (0, None, 0.0, 1.0)


def test_violations_are_counted_over_stages():
    found = violation_rate([0, 1, 0, 1])
    assert (found.events, found.trials, found.rate) == (2, 4, 0.5)


@pytest.mark.parametrize("wrong", [(-1, 3), (4, 3), (1.0, 3), (True, 3)])
def test_counts_that_are_none_are_refused(wrong):
    with pytest.raises(InputError, match="events"):
        binomial_rate(*wrong)


@pytest.mark.parametrize("level", [0.0, 1.0, math.nan, 95])
def test_a_level_that_is_no_confidence_is_refused(level):
    with pytest.raises(InputError, match="level"):
        binomial_rate(1, 2, level=level)


def paired_rows(rng, seeds=3, questions=12):
    rows = []
    for seed in range(seeds):
        for question in range(questions + seed):
            for _ in range(1 + question % 2):
                rows.append((seed, question, *rng.integers(0, 2, 4).astype(float)))
    return rows


def bootstrap(rows, rng, **kwargs):
    seed, question, value, control, weight, control_weight = zip(*rows, strict=True)
    return paired_bootstrap(
        value,
        control,
        seed=seed,
        question=question,
        rng=rng,
        treatment_weight=weight,
        control_weight=control_weight,
        **kwargs,
    )


def test_the_bootstrap_has_the_distribution_of_a_loop_that_draws_seeds_and_then_questions():
    rows = paired_rows(np.random.default_rng(1))
    slow_rng = np.random.default_rng(2)
    slow = [reference.resample(rows, slow_rng) for _ in range(4000)]
    assert None not in slow
    for level in (0.5, 0.8, 0.95):
        fast = bootstrap(rows, np.random.default_rng(3), resamples=20_000, level=level)
        below = np.mean([x < fast.low for x in slow]), np.mean([x <= fast.low for x in slow])
        above = np.mean([x > fast.high for x in slow]), np.mean([x >= fast.high for x in slow])
        tail, slack = (1 - level) / 2, 4 * math.sqrt(0.25 / 4000)
        assert below[0] - slack <= tail <= below[1] + slack
        assert above[0] - slack <= tail <= above[1] + slack


def test_the_bootstrap_repeats_itself_and_ignores_the_order_of_rows():
    rows = paired_rows(np.random.default_rng(4))
    first = bootstrap(rows, np.random.default_rng(5), resamples=500)
    again = bootstrap(rows, np.random.default_rng(5), resamples=500)
    turned = bootstrap(rows[::-1], np.random.default_rng(5), resamples=500)
    assert first == again == turned


def test_pairs_stay_together():
    rng = np.random.default_rng(6)
    control = rng.random(60)
    found = paired_bootstrap(
        control + 0.25,
        control,
        seed=[1] * 60,
        question=range(60),
        rng=np.random.default_rng(7),
        resamples=300,
    )
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


def test_seeds_are_the_outer_unit():
    seed = np.repeat([0, 1], 500)
    value = np.where(seed == 0, 0.0, 1.0)
    found = paired_bootstrap(
        value,
        np.zeros(1000),
        seed=seed,
        question=np.tile(np.arange(500), 2),
        rng=np.random.default_rng(8),
        resamples=400,
    )
    # A quarter of the resamples draws the first seed twice: no number of questions narrows that.
    assert (found.low, found.high) == (0.0, 1.0)
    assert (found.seeds, found.questions, found.per_seed) == (2, 1000, {"0": 0.0, "1": 1.0})


def test_rows_of_one_question_are_drawn_together():
    question = np.repeat(np.arange(10), 50)
    value = np.repeat([0.0, 1.0] * 5, 50)
    found = paired_bootstrap(
        value, np.zeros(500), seed=[1] * 500, question=question, rng=np.random.default_rng(9), resamples=2000
    )
    # Ten questions, not 500 rows: the standard error is .16 and not .02.
    assert found.high - found.low > 0.4


def test_the_bootstrap_interval_covers_a_known_difference():
    rng = np.random.default_rng(10)
    covered = 0
    for _ in range(300):
        both = rng.random(150) < 0.5
        treatment, control = both | (rng.random(150) < 0.2), both
        found = paired_bootstrap(
            treatment, control, seed=[0] * 150, question=range(150), rng=rng, resamples=400
        )
        covered += found.low <= 0.1 <= found.high
    # Six standard deviations below 95 % of 300.
    assert covered >= 262


def test_resamples_without_a_denominator_widen_the_interval_and_never_narrow_it():
    weight = [1.0, 0.0, 0.0, 0.0]
    found = paired_bootstrap(
        [1.0, 0.0, 0.0, 0.0],
        [0.0] * 4,
        seed=[0] * 4,
        question=range(4),
        rng=np.random.default_rng(11),
        treatment_weight=weight,
        resamples=1000,
    )
    # The only weighted question is absent from (3/4)^4 = 32 % of the resamples.
    assert 250 < found.undefined < 390
    assert (found.estimate, found.low, found.high) == (1.0, None, None)


def test_a_difference_without_a_denominator_has_no_value():
    found = paired_bootstrap(
        [0.0],
        [0.0],
        seed=["a"],
        question=["q"],
        rng=np.random.default_rng(0),
        treatment_weight=[0.0],
        resamples=10,
    )
    assert (found.estimate, found.low, found.high, found.undefined, found.per_seed) == (
        None,
        None,
        None,
        10,
        {"a": None},
    )


def test_memory_of_the_bootstrap_is_a_block_and_not_all_resamples(monkeypatch):
    sizes = []

    class Spy:
        def __init__(self, rng):
            self.rng = rng

        def integers(self, high, size):
            sizes.append(math.prod(size))
            return self.rng.integers(high, size=size)

    monkeypatch.setattr(vapo.stats, "_DRAWS", 1000)
    rows = paired_rows(np.random.default_rng(12))
    bootstrap(rows, Spy(np.random.default_rng(13)), resamples=2000)
    assert max(sizes) <= 1000
    assert len(sizes) > 100


def test_a_bootstrap_of_nothing_is_refused():
    with pytest.raises(InputError, match="at least one row"):
        paired_bootstrap([], [], seed=[], question=[], rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="control"):
        paired_bootstrap([1, 2], [1], seed=[1, 1], question=[1, 2], rng=np.random.default_rng(0))


verdicts = st.lists(
    st.tuples(
        st.sampled_from([-1, 0, 1]), st.sampled_from([-1, 0, 1]), st.sampled_from([-1, 1]), st.integers(0, 5)
    ),
    max_size=40,
)


@settings(max_examples=400)
@given(rows=verdicts)
def test_verifier_errors_agree_with_counting_item_by_item(rows):
    first, second, label, group = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [], [], [])
    found = verifier_errors(first, second, label, np.array(group, dtype=int))
    kept = [(int(a != z), int(b != z), z, g) for a, b, z, g in rows if a and b]

    def share(bits):
        return sum(bits) / len(bits) if bits else None

    assert (found.items, found.missing) == (len(kept), len(rows) - len(kept))
    assert found.error_first == share([a for a, *_ in kept])
    assert found.error_second == share([b for _, b, *_ in kept])
    assert found.joint_failures == sum(a * b for a, b, *_ in kept)
    assert found.joint_failure_rate == share([a * b for a, b, *_ in kept])
    for side, word in ((1, "right"), (-1, "wrong")):
        part = [row for row in kept if row[2] == side]
        assert getattr(found, word) == len(part)
        kind = "false_negative" if side == 1 else "false_positive"
        assert getattr(found, f"{kind}_first") == share([a for a, *_ in part])
        assert getattr(found, f"{kind}_second") == share([b for _, b, *_ in part])
        assert getattr(found, f"joint_failure_{word}") == share([a * b for a, b, *_ in part])
        expected = reference.bit_correlation([a for a, *_ in part], [b for _, b, *_ in part])
        assert getattr(found, f"correlation_{word}") == (
            None if expected is None else pytest.approx(expected)
        )
    for name, bits in (
        ("icc_first", [a for a, *_ in kept]),
        ("icc_second", [b for _, b, *_ in kept]),
        ("icc_joint", [a * b for a, b, *_ in kept]),
    ):
        icc = reference.intraclass_correlation(bits, [g for *_, g in kept])
        assert getattr(found, name) == (None if icc is None else pytest.approx(float(icc), abs=1e-12))


def test_verifiers_that_only_share_a_base_rate_are_not_called_dependent():
    rng = np.random.default_rng(14)
    right = rng.random(40_000) < 0.5
    # Both err far more often on wrong items, independently given the label.
    chance = np.where(right, 0.05, 0.45)
    first, second = (
        np.where(rng.random(right.size) < chance, -1, 1) * np.where(right, 1, -1) for _ in range(2)
    )
    found = verifier_errors(first, second, np.where(right, 1, -1))
    pooled = reference.bit_correlation(
        (first != np.where(right, 1, -1)) * 1, (second != np.where(right, 1, -1)) * 1
    )
    assert pooled > 0.15
    assert abs(found.correlation_right) < 0.03
    assert abs(found.correlation_wrong) < 0.03


def test_without_groups_there_is_no_intraclass_correlation():
    found = verifier_errors([1, -1], [1, 1], [1, 1])
    assert (found.icc_first, found.icc_second, found.icc_joint) == (None, None, None)


@settings(max_examples=300)
@given(
    rows=st.lists(st.tuples(st.floats(-100, 100).map(lambda x: round(x, 3)), st.integers(0, 4)), max_size=30)
)
def test_intraclass_correlation_is_the_estimator_for_unequal_groups(rows):
    values, group = (list(c) for c in zip(*rows, strict=True)) if rows else ([], [])
    expected = reference.intraclass_correlation(values, group)
    found = intraclass_correlation(values, np.array(group, dtype=int))
    assert found == (None if expected is None else pytest.approx(float(expected), abs=1e-9))


def test_intraclass_correlation_finds_the_share_of_variance_between_groups():
    rng = np.random.default_rng(15)
    sizes = rng.integers(1, 9, 5000)
    group = np.repeat(np.arange(5000), sizes)
    values = np.repeat(rng.normal(0, math.sqrt(0.3), 5000), sizes) + rng.normal(0, math.sqrt(0.7), group.size)
    assert intraclass_correlation(values, group) == pytest.approx(0.3, abs=0.04)


def test_a_label_of_zero_is_no_label_to_compare_verifiers_with():
    with pytest.raises(InputError, match="label"):
        verifier_errors([1], [1], [0])
