"""The actuator scales and silences; it never turns a direction round."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from tests.reference import metrics_reference as reference
from vapo.actuator import Actuator, Surfaces, Variant
from vapo.errors import InputError

VARIANTS: list[Variant] = ["identity", "static", "trust", "clip-kl", "full"]

unit_interval = st.floats(0.0, 1.0)
records = st.lists(
    st.tuples(unit_interval, st.floats(0.0, 2.0), st.floats(0.0, 2.0), st.sampled_from([-1, 0, 1])),
    max_size=30,
)


def columns(rows):
    return (
        [np.array(column, dtype=float) for column in zip(*rows, strict=True)] if rows else [np.empty(0)] * 4
    )


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=records)
def test_every_record_moves_as_the_written_formula_says(variant, rows):
    found = Actuator(variant).magnitude(*columns(rows))
    expected = [reference.magnitude(variant, *row) for row in rows]
    assert_allclose(found.magnitude, expected, rtol=1e-12, atol=1e-15)
    assert_allclose(
        found.update, [row[3] * m for row, m in zip(rows, expected, strict=True)], rtol=1e-12, atol=1e-15
    )


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=records)
def test_an_update_has_the_final_sign_or_none(variant, rows):
    score, delta_r, kl, sign = columns(rows)
    actuator = Actuator(variant)
    found = actuator.magnitude(score, delta_r, kl, sign)
    assert_array_equal(np.sign(found.update), np.where(found.magnitude > 0, sign, 0))
    assert (found.magnitude >= 0).all()
    assert (found.magnitude <= actuator.magnitude_max).all()
    assert (found.magnitude[sign == 0] == 0).all()


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=records)
def test_no_update_is_a_negative_zero(variant, rows):
    update = Actuator(variant).magnitude(*columns(rows)).update
    assert not np.signbit(update[update == 0]).any()


@pytest.mark.parametrize("variant", VARIANTS)
@given(rows=records, cut=st.integers(0, 30))
def test_the_same_bits_come_out_however_the_records_are_split(variant, rows, cut):
    actuator, all_columns = Actuator(variant), columns(rows)
    whole = actuator.magnitude(*all_columns).update
    parts = [
        actuator.magnitude(*(c[part] for c in all_columns)).update for part in (slice(cut), slice(cut, None))
    ]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


@given(
    score=st.lists(unit_interval, min_size=1), trust_min=unit_interval, low=unit_interval, high=unit_interval
)
def test_surfaces_of_any_score_stay_in_their_intervals_to_the_last_bit(score, trust_min, low, high):
    low, high = sorted((low, high))
    actuator = Actuator(
        "full", trust_min=trust_min, radius_min=low, radius_max=high, kl_price_min=low, kl_price_max=high
    )
    found = actuator.surfaces(score)
    assert (found.trust >= trust_min).all()
    assert (found.trust <= 1).all()
    for surface in (found.radius, found.kl_price):
        assert (surface >= low).all()
        assert (surface <= high).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_named_surfaces_follow_the_score(variant):
    found = Actuator(variant).surfaces([0.0, 1.0])
    assert (found.trust[0] != found.trust[1]) == (variant in ("trust", "full"))
    assert (found.radius[0] != found.radius[1]) == (variant in ("clip-kl", "full"))
    assert (found.kl_price[0] != found.kl_price[1]) == (variant in ("clip-kl", "full"))


@given(rows=records)
def test_the_identity_variant_lets_the_proposal_through_to_the_bit(rows):
    score, delta_r, kl, sign = columns(rows)
    found = Actuator("identity").magnitude(score, delta_r, kl, sign)
    assert_array_equal(found.update, np.where(sign == 0, 0.0, sign * delta_r))
    assert_array_equal(Actuator("identity").magnitude(score, delta_r, None, sign).update, found.update)


def test_an_admitted_record_that_the_kl_price_silences_is_not_an_abstention():
    found = Actuator("static").magnitude([0.5] * 3, [0.1] * 3, [0.0, 50.0, 0.0], [1, -1, 0])
    assert found.update.tolist() == [0.1, 0.0, 0.0]
    assert found.coverage == pytest.approx(2 / 3)
    assert found.applied_rate == pytest.approx(1 / 3)
    assert found.zero_magnitude_rate == pytest.approx(1 / 3)


def test_rates_of_no_records_have_no_value():
    found = Actuator().magnitude([], [], [], [])
    assert (found.coverage, found.applied_rate, found.zero_magnitude_rate) == (None, None, None)


def test_without_a_proposed_change_the_actuator_refuses():
    with pytest.raises(InputError, match="delta_r"):
        Actuator("identity").magnitude([0.5], None, [0.0], [1])
    with pytest.raises(InputError, match="'delta_r': position 1"):
        Actuator("identity").magnitude([0.5, 0.5], [0.1, math.nan], [0.0, 0.0], [1, 0])


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_a_variant_that_prices_kl_refuses_to_guess_it(variant):
    with pytest.raises(InputError, match="'kl'"):
        Actuator(variant).magnitude([0.5], [0.1], None, [1])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("score", [1.1]),
        ("score", [math.nan]),
        ("score", [0.5, 0.5]),
        ("score", [[0.5]]),
        ("delta_r", [-0.1]),
        ("delta_r", [math.inf]),
        ("delta_r", ["many"]),
        ("kl", [-1.0]),
        ("sign", [2]),
        ("sign", [0.5]),
    ],
)
def test_a_column_that_does_not_fit_is_named(field, value):
    good = {"score": [0.5], "delta_r": [0.1], "kl": [0.0], "sign": [1]}
    with pytest.raises(InputError):
        Actuator().magnitude(**(good | {field: value}))


@pytest.mark.parametrize(
    ("surface", "value"),
    [("trust", 0.05), ("trust", 1.01), ("radius", 0.3), ("kl_price", 0.0), ("trust", math.nan)],
)
def test_a_surface_outside_its_interval_is_an_error(surface, value):
    good = {"trust": np.array([0.5]), "radius": np.array([0.1]), "kl_price": np.array([0.1])}
    with pytest.raises(InputError, match=f"surface '{surface}': position 0"):
        Actuator().check(Surfaces(**(good | {surface: np.array([value])})))


@pytest.mark.parametrize(
    "wrong",
    [
        {"variant": "bold"},
        {"variant": ["full"]},
        {"trust_min": 1.5},
        {"trust_min": math.nan},
        {"radius_min": 0.3},
        {"radius_max": math.inf},
        {"kl_price_min": -0.1},
        {"kl_price_max": "0.5"},
        {"unit": 0.0},
        {"unit": True},
    ],
)
def test_parameters_that_cannot_bound_anything_are_refused(wrong):
    with pytest.raises(InputError):
        Actuator(**wrong)


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_actuator_survives_being_written_down(variant):
    actuator = Actuator(variant, trust_min=0.25, unit=0.2)
    assert Actuator.from_state_dict(json.loads(json.dumps(actuator.state_dict()))) == actuator


def test_an_unknown_field_in_a_written_actuator_is_refused():
    with pytest.raises(InputError, match="radius_maximum"):
        Actuator.from_state_dict({"radius_maximum": 0.3})


@given(advantage=st.lists(st.floats(-10, 10), max_size=20), unit=st.floats(0.01, 10))
def test_under_identity_a_learner_gets_its_own_advantages_back(advantage, unit):
    actuator = Actuator("identity", unit=unit)
    advantage = np.array(advantage, dtype=float)
    found = actuator.magnitude(
        np.ones_like(advantage), actuator.proposal(advantage), None, np.sign(advantage)
    )
    assert_allclose(found.coefficient, advantage, rtol=1e-15, atol=1e-300)
