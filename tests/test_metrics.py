"""What the metrics count, and what they refuse to count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from tests.reference import metrics_reference as reference
from vapo.actuator import Actuator
from vapo.errors import InputError
from vapo.metrics import (
    alignment,
    alignment_by_sign,
    match_magnitude,
    select_first,
    select_random,
    select_top,
)

decisions = st.lists(
    st.tuples(
        st.sampled_from([-1, 0, 1]),
        st.one_of(st.just(0.0), st.sampled_from([0.1, 0.2]), st.floats(0.0, 1e3)),
        st.sampled_from([-1, 1]),
    ),
    max_size=40,
)


def columns(rows, width=3):
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(width)]


@settings(max_examples=500)
@given(rows=decisions)
def test_every_metric_agrees_with_counting_in_fractions(rows):
    found, expected = alignment(*columns(rows)).as_dict(), reference.alignment(*columns(rows))
    assert set(found) == set(expected) | {"H_mag_bound"}
    for name, value in expected.items():
        if value is None:
            assert found[name] is None, name
        else:
            assert found[name] == pytest.approx(float(value), rel=1e-14, abs=1e-300), name


@settings(max_examples=300)
@given(rows=decisions, data=st.data())
def test_no_metric_depends_on_the_order_of_the_records(rows, data):
    shuffled = data.draw(st.permutations(rows))
    assert alignment(*columns(rows)) == alignment(*columns(shuffled))


@given(rows=decisions.filter(bool))
def test_the_identities_between_metrics_hold(rows):
    found = alignment(*columns(rows))
    assert pytest.approx(found.P - found.H, abs=1e-9) == found.U
    assert pytest.approx(1 - found.Z) == found.C
    assert pytest.approx(found.abstention_rate + found.zero_magnitude_rate) == found.Z
    assert found.H_mag == found.H
    if found.applied:
        assert found.R_all == pytest.approx(found.C * found.R_sel)
        assert found.direction_accuracy == pytest.approx(1 - found.R_sel)
    else:
        assert (found.R_sel, found.R_all, found.direction_accuracy) == (None, 0.0, 0.0)


@settings(max_examples=300)
@given(rows=decisions.filter(bool))
def test_harmful_magnitude_never_exceeds_its_bound_not_even_by_rounding(rows):
    found = alignment(*columns(rows))
    assert found.H_mag <= found.H_mag_bound


def test_the_bound_uses_the_magnitude_that_the_actuator_promised():
    actuator = Actuator("full")
    updates = actuator.magnitude([0.9, 0.9], [0.1, 0.1], [0.0, 0.0], [1, 1])
    found = alignment([1, 1], updates.magnitude, [1, -1], magnitude_max=actuator.magnitude_max)
    assert found.H_mag_bound == pytest.approx(0.2 * 1.0 * 0.5)
    with pytest.raises(InputError, match="magnitude"):
        alignment([1, 1], [0.5, 0.1], [1, -1], magnitude_max=actuator.magnitude_max)


def test_an_actuator_without_a_bound_is_bounded_by_what_occurred():
    found = alignment([1, 1], [0.5, 0.1], [-1, 1], magnitude_max=Actuator("identity").magnitude_max)
    assert found.H_mag_bound == 0.25


def test_selected_risk_of_an_empty_selection_has_no_value():
    found = alignment([0, 0], [0.0, 0.0], [1, -1])
    assert (found.admitted, found.R_sel, found.admitted_risk, found.R) == (0, None, None, 0.0)


def test_selected_risk_says_how_many_were_admitted_when_none_was_applied():
    found = alignment([1, -1], [0.0, 0.0], [1, 1])
    assert (found.admitted, found.applied, found.R_sel) == (2, 0, None)
    assert (found.admitted_risk, found.zero_magnitude_rate, found.abstention_rate) == (0.5, 1.0, 0.0)


def test_an_empty_trace_has_counts_and_no_rates():
    found = alignment([], [], [])
    assert (found.records, found.U, found.R, found.C, found.R_sel, found.H_mag_bound) == (0, *[None] * 5)
    assert found.direction_accuracy == 0.0


def test_a_label_that_is_missing_for_an_admitted_record_is_an_error():
    assert alignment([1, 0], [0.1, 0.0], [1, 0]).records == 2
    with pytest.raises(InputError, match="'label': position 1"):
        alignment([0, 1], [0.0, 0.0], [1, 0])


@pytest.mark.parametrize(
    "wrong",
    [([2], [0.1], [1]), ([1], [-0.1], [1]), ([1], [math.nan], [1]), ([1], [0.1], [3]), ([1], [0.1], [1, 1])],
)
def test_a_column_that_does_not_fit_is_refused(wrong):
    with pytest.raises(InputError):
        alignment(*wrong)


@given(rows=decisions, data=st.data())
def test_the_two_signs_apart_add_up_to_the_whole(rows, data):
    sign, magnitude, label = columns(rows)
    primary = [s or data.draw(st.sampled_from([-1, 0, 1])) for s in sign]
    parts = alignment_by_sign(primary, sign, magnitude, label)
    whole = alignment(sign, magnitude, label)
    for name in ("admitted", "applied", "helpful", "harmful", "admitted_harmful"):
        assert getattr(parts[1], name) + getattr(parts[-1], name) == getattr(whole, name)
    assert parts[1].records + parts[-1].records == len(rows) - primary.count(0)


def test_a_final_sign_that_contradicts_the_primary_is_refused():
    with pytest.raises(InputError, match="'sign': position 0"):
        alignment_by_sign([1], [-1], [0.1], [1])


ranked = st.lists(
    st.tuples(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.integers(-99, 99), st.booleans()),
    max_size=30,
    unique_by=lambda row: row[1],
)


@settings(max_examples=500)
@given(rows=ranked, text=st.booleans(), data=st.data())
def test_a_selection_has_the_exact_count_and_breaks_ties_by_id(rows, text, data):
    score, ids, eligible = columns(rows)
    ids = [f"item {i}" for i in ids] if text else ids
    count = data.draw(st.integers(0, sum(eligible)))
    found = select_top(
        score, np.array(ids, dtype=object if text else np.int64), count, eligible=np.array(eligible, bool)
    )
    assert found.tolist() == reference.select_top(score, ids, count, eligible)


@given(rows=ranked, data=st.data())
def test_no_selection_depends_on_the_order_of_the_file(rows, data):
    count = data.draw(st.integers(0, len(rows)))
    order = data.draw(st.permutations(range(len(rows))))
    score, ids, _ = (np.array(column) for column in columns(rows))
    for select in (
        lambda rows: select_top(score[rows], ids[rows], count),
        lambda rows: select_first(ids[rows], count),
        lambda rows: select_random(ids[rows], count, np.random.default_rng(5)),
    ):
        if rows:
            assert_array_equal(select(np.array(order)), select(np.arange(len(rows)))[order])


def test_the_first_items_are_those_with_the_smallest_ids():
    assert select_first(["c", "a", "b"], 1, eligible=[True, False, True]).tolist() == [False, False, True]


def test_a_random_selection_takes_every_item_equally_often():
    rng = np.random.default_rng(3)
    counts = sum(select_random(range(10), 3, rng).astype(int) for _ in range(5000))
    # Six standard deviations of a binomial(5000, .3) count.
    assert np.abs(counts - 1500).max() < 195


@pytest.mark.parametrize("count", [-1, 4, 1.5, True])
def test_a_count_that_cannot_be_met_is_refused(count):
    with pytest.raises(InputError, match="count"):
        select_top([0.1, 0.2, 0.3], [1, 2, 3], count)


def test_tied_items_that_share_an_id_are_refused():
    with pytest.raises(InputError, match="distinct ids"):
        select_top([0.5, 0.5], ["a", "a"], 1)


@given(
    rows=st.lists(
        st.tuples(st.floats(-10, 10).filter(lambda u: u == 0 or abs(u) > 1e-6), st.booleans()), max_size=30
    ),
    target=st.floats(0.0, 10.0),
)
def test_a_matched_selection_has_the_wanted_mean_magnitude_over_all_records(rows, target):
    update, selected = columns(rows, 2)
    found = match_magnitude(update, np.array(selected, dtype=bool), target)
    size = math.fsum(abs(u) for u, s in rows if s)
    if size == 0.0:
        assert found.alpha is None
        assert found.failure.startswith("zero denominator")
        assert not found.update.any()
    else:
        assert found.failure == ""
        assert found.alpha == pytest.approx(target * len(rows) / size)
        assert found.achieved == pytest.approx(target)
        assert found.update.tolist() == pytest.approx([found.alpha * u if s else 0.0 for u, s in rows])


def test_updates_too_small_to_be_scaled_are_a_recorded_failure_as_well():
    found = match_magnitude([5e-324, 0.0], [True, True], 1.0)
    assert (found.alpha, found.achieved, found.coverage) == (None, 0.0, 1.0)
    assert "too small" in found.failure


@pytest.mark.parametrize("target", [-0.1, math.nan, math.inf])
def test_a_target_that_is_no_magnitude_is_refused(target):
    with pytest.raises(InputError, match="target"):
        match_magnitude([0.1], [True], target)


def test_a_mask_that_is_not_one_is_refused():
    with pytest.raises(InputError, match="selected"):
        match_magnitude([0.1], [0.5], 0.1)
