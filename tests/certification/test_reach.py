"""What a stage limit says beyond its stage, and what has to be added."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vapo.certification.reach import design_effect, population_width, ratio_width
from vapo.errors import InputError


def test_independent_records_have_a_design_effect_of_one_and_copies_their_number():
    rng = np.random.default_rng(2)
    a = np.full(20_000, 8)
    assert design_effect(a, rng.binomial(8, 0.1, a.size)) == pytest.approx(1.0, abs=0.05)
    assert design_effect(a, 8 * (rng.random(a.size) < 0.1)) == pytest.approx(8.0, abs=0.2)


def test_the_design_effect_of_few_units_is_that_of_a_ratio_with_one_degree_less():
    # rate 2 / 8; deviations -1/2, 1/2 and 0; three units
    assert design_effect([2, 2, 4], [0, 1, 1]) == pytest.approx(3 / 2 * (1 / 4 + 1 / 4) / (1 / 4 * 3 / 4 * 8))


def test_without_any_harm_the_worst_dependence_is_assumed():
    assert design_effect([8, 8, 4], [0, 0, 0]) == pytest.approx((64 + 64 + 16) / 20)


def test_single_records_without_a_budget_need_no_extra_width():
    reach = population_width(0.08, 0.05, admitted=[50], harmful=[2], shared_budget=False, largest_group=1)
    assert (reach.case, reach.extra_width) == ("a", 0.0)


def test_groups_need_a_declared_cap_to_reach_the_population_without_extra_width():
    capped = population_width(
        0.08, 0.05, admitted=[4, 4], harmful=[0, 1], shared_budget=False, largest_group=4, group_cap=8
    )
    assert (capped.case, capped.extra_width) == ("b", 0.0)
    free = population_width(0.08, 0.05, admitted=[4, 4], harmful=[0, 4], shared_budget=False, largest_group=4)
    assert free.case == "d"
    assert free.extra_width > 0.0
    with pytest.raises(InputError, match="group_cap"):
        population_width(
            0.08, 0.05, admitted=[4], harmful=[0], shared_budget=False, largest_group=4, group_cap=3
        )


def test_a_budget_adds_what_the_share_of_appeals_may_still_move():
    arguments = {"admitted": [50, 40, 60], "harmful": [2, 1, 3], "shared_budget": True, "largest_group": 1}
    reach = population_width(0.08, 0.05, appealed=[10, 12, 9], independent_records=True, **arguments)
    assert reach.case == "c"
    assert reach.extra_width == pytest.approx(ratio_width([50, 40, 60], [10, 12, 9], 0.05))
    half = population_width(
        0.08, 0.05, appealed=[10, 12, 9], independent_records=True, risk_gap=0.5, **arguments
    )
    assert half.extra_width == pytest.approx(reach.extra_width / 2)


def test_the_width_of_the_share_of_appeals_covers():
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(400):
        a = rng.integers(20, 60, 80)
        appealed = np.minimum(rng.poisson(9, 80), a)
        missed += abs(appealed.sum() / a.sum() - 9 / 39.5) > ratio_width(a, appealed, 0.05)
    assert missed / 400 < 0.09


def test_windows_with_anything_inside_pay_for_their_design_effect():
    a, h = np.full(30, 20), np.array([20, 0, 0] * 10)
    reach = population_width(0.08, 0.05, admitted=a, harmful=h, shared_budget=True, largest_group=1)
    expected = (math.sqrt(design_effect(a, h)) - 1) * 1.6448536 * math.sqrt(0.08 * 0.92 / 600)
    assert (reach.case, reach.extra_width) == ("d", pytest.approx(expected))


def test_one_window_says_nothing_about_the_population():
    reach = population_width(0.08, 0.05, admitted=[600], harmful=[3], shared_budget=True, largest_group=1)
    assert reach.case == "stage"
    with pytest.raises(InputError):
        design_effect([5], [1])
    with pytest.raises(InputError):
        ratio_width([5, 0], [1, 0], 0.05)
