"""The bounds are the numbers they claim to be, at every size."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.reference import bounds_reference as reference
from vapo.certification import bounds
from vapo.errors import InputError

INTEGRALS = [
    (200, 2, 8.8849556101),
    (211, 8, 2.2150543178),
    (1000, 40, 11.4933702806),
    (5000, 348, 1.6440521574),
    (0, 0, 0.0),
    (100, 0, 6.2485489222),
    (50, 50, -3.9318256327),
    (10**7, 690_000, 8584.1266424799),
    (10**9, 69_700_000, 750941.0603331767),
    (10**9, 80_000_000, -8.9147201316),
    (10**9, 0, 83381590.7415138648),
    (10**9, 10**9, -20.7232658379),
]
PLANNED = [
    (60, 0.0108888318),
    (200, 0.0375935762),
    (1939, 0.0653626088),
    (5000, 0.0707790779),
    (10**7, 0.0797900906),
    (10**9, 0.0799790015),
]


@st.composite
def counts(draw, largest=10**9):
    """Admitted and harmful counts at every scale, with the corners drawn often."""
    k = draw(st.one_of(st.integers(0, 12), st.integers(0, 3000), st.sampled_from([0, 1, largest])))
    corner = draw(st.sampled_from(["none", "all", "any", "near"]))
    if corner == "near":
        return k, min(k, max(0, round(k * 0.08) + draw(st.integers(-3, 3))))
    return k, {"none": 0, "all": k, "any": draw(st.integers(0, k))}[corner]


rates = st.sampled_from([0.01, 0.05, 0.08, 0.1, 0.25, 0.5, 0.9])
alphas = st.sampled_from([0.2, 0.05, 0.0025, 1e-6])


@pytest.mark.parametrize(("admitted", "harmful", "value"), INTEGRALS)
def test_the_mixture_of_all_bets_has_its_reference_value(admitted, harmful, value):
    found = float(bounds.log_uniform_mixture(admitted, harmful, 0.08))
    assert abs(found - value) <= max(6e-10, 4e-16 * abs(value))


@pytest.mark.parametrize(("admitted", "rate"), PLANNED)
def test_the_planned_rate_has_its_reference_value(admitted, rate):
    assert abs(0.08 * (1.0 - float(bounds.planned_bet(admitted, 0.08, math.log(20.0)))) - rate) <= 6e-11


@pytest.mark.parametrize(
    ("n", "size", "value"),
    [(512, 1, 0.0632327713), (512, 12, 0.0801564097), (512, 20, 0.0832099944), (10_000, 100, 0.0208560720)],
)
def test_the_radius_has_its_reference_value(n, size, value):
    assert abs(bounds.hoeffding_radius(n, size, 0.05) - value) <= 6e-11


def test_a_plan_too_small_to_certify_stakes_everything_on_no_harm():
    assert float(bounds.planned_bet(35, 0.08, math.log(20.0))) == 1.0
    assert float(bounds.log_bet(35, 1, 0.08, 1.0)) == -math.inf
    assert float(bounds.log_bet(35, 0, 0.08, 1.0)) == pytest.approx(-35 * math.log(0.92), rel=1e-14)


@settings(max_examples=3500)
@given(pair=counts(), rho=rates)
def test_the_mixture_agrees_with_adaptive_quadrature(pair, rho):
    k, h = pair
    slow = reference.log_mixture(k, h, rho)
    fast = float(bounds.log_uniform_mixture(k, h, rho))
    # the slow formula adds numbers as large as k and loses that many digits
    assert fast == pytest.approx(slow, rel=1e-9, abs=1e-8 + 4e-15 * k)


@settings(max_examples=3000)
@given(k=st.integers(0, 60), data=st.data(), rho=rates, alpha=alphas)
def test_binomial_tests_and_limits_agree_with_term_by_term_sums(k, data, rho, alpha):
    h = data.draw(st.one_of(st.integers(0, k), st.sampled_from([0, k])))
    assert float(bounds.binomial_p_value(k, h, rho)) == pytest.approx(
        reference.binomial_tail(k, h, rho), rel=1e-10
    )
    limit = reference.upper_limit(k, h, alpha)
    assert float(bounds.clopper_pearson_upper(k, h, alpha)) == pytest.approx(limit, abs=1e-10)
    assert float(bounds.clopper_pearson_lower(k, k - h, alpha)) == pytest.approx(1.0 - limit, abs=1e-10)
    assert bool(bounds.poisson_binomial_rejects(k, h, rho, alpha)) == reference.frozen_passes(
        k, h, rho, alpha
    )


@settings(max_examples=1500)
@given(k0=st.one_of(st.floats(0.0, 5e4), st.sampled_from([0.0, 1e9])), rho=rates, alpha=alphas)
def test_the_planned_bet_agrees_with_its_definition(k0, rho, alpha):
    level = -math.log(0.9 * alpha)
    slow = reference.bet_size(k0, rho, level)
    assert float(bounds.planned_bet(k0, rho, level)) == pytest.approx(slow, rel=1e-5 if k0 > 1e8 else 1e-9)


@settings(max_examples=60, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # too slow to shrink
@given(
    n=st.integers(1, 12), data=st.data(), alpha=st.sampled_from([0.2, 0.05, 0.001]), eps=st.floats(0.05, 0.95)
)
def test_the_limits_agree_with_a_bisection_of_record_by_record_capital(n, data, alpha, eps):
    k = data.draw(st.integers(0, n))
    h = data.draw(st.integers(0, k))
    rho = data.draw(st.sampled_from([0.08, 0.3]))
    excess = [1.0 - rho] * h + [-rho] * (k - h) + [0.0] * (n - k)
    slow = reference.evidence_limit(excess, 1.0 / (1.0 - rho), eps, alpha, -rho)
    assert float(bounds.excess_upper(k, h, n, rho, alpha, eps)) == pytest.approx(slow, abs=1e-8)
    hits = [1.0] * k + [0.0] * (n - k)
    slow = reference.evidence_limit(hits, 1.0, eps, alpha, 0.0)
    assert float(bounds.mean_upper(k, n, alpha, eps)) == pytest.approx(slow, abs=1e-8)


@settings(max_examples=400)
@given(pair=counts(), more=st.integers(0, 5000), rho=rates, alpha=alphas, eps=st.floats(1e-4, 1.0))
def test_the_limit_is_at_most_zero_exactly_when_the_evidence_certifies(pair, more, rho, alpha, eps):
    k, h = pair
    n = max(k + more, 1)
    certified = float(bounds.log_sequential_evidence(k, h, rho, eps)) >= -math.log(alpha)
    limit = float(bounds.excess_upper(k, h, n, rho, alpha, eps))
    assert (limit <= 0.0) == certified
    assert -rho <= limit <= 1.0 - rho + 1e-12
    assert limit >= (h - rho * k) / n - 1e-12


def test_the_limit_sits_on_the_threshold_of_the_very_same_mixture():
    k, h, n, rho, alpha = 500, 20, 1200, 0.08, 0.01
    limit = float(bounds.excess_upper(k, h, n, rho, alpha, 0.4))
    row = (np.array([[1.0 - rho, -rho]]), np.array([[h, k - h]], float), np.array([float(n)]))
    at = bounds.log_evidence_at(*row, 1.0 / (1.0 - rho), np.array([0.4]), limit)
    assert float(at[0]) == pytest.approx(-math.log(alpha), abs=1e-8)
    at_zero = bounds.log_evidence_at(*row, 1.0 / (1.0 - rho), np.array([0.4]), 0.0)
    assert float(at_zero[0]) == pytest.approx(float(bounds.log_sequential_evidence(k, h, rho, 0.4)), abs=1e-9)


@pytest.mark.parametrize("rho", [0.08, 0.3])
def test_under_the_null_no_evidence_has_an_expectation_above_one(rho):
    # every outcome of twelve independent records at the boundary, each admitted
    for eps in (0.2, 0.7, 1.0):
        total = 0.0
        for h in range(13):
            chance = math.comb(12, h) * rho**h * (1.0 - rho) ** (12 - h)
            total += chance * math.exp(float(bounds.log_sequential_evidence(12, h, rho, eps)))
        assert total == pytest.approx(1.0, abs=1e-9)


@settings(max_examples=60)
@given(p=st.lists(st.floats(0.0, 1.0), min_size=12, max_size=12), alpha=st.sampled_from([0.3, 0.05]))
def test_unequal_rates_do_not_break_the_exact_test(p, alpha):
    law = reference.poisson_binomial(p)
    rho = sum(p) / len(p)
    if not 0.0 < rho < 1.0:
        return
    wrong = sum(q for h, q in enumerate(law) if bounds.poisson_binomial_rejects(12, h, rho, alpha))
    assert wrong <= alpha + 1e-9


def test_the_extra_condition_for_unequal_rates_binds_only_near_one():
    k, h, alpha = 3, 2, 0.2
    assert float(bounds.binomial_p_value(k, h, 0.95)) <= alpha
    assert not bounds.poisson_binomial_rejects(k, h, 0.95, alpha)
    assert float(bounds.poisson_binomial_limit(k, h, alpha)) == 1.0
    for k in range(1, 400):
        hits = np.arange(k + 1)
        small = np.asarray(bounds.binomial_p_value(k, hits, 0.08)) <= 0.05
        assert np.array_equal(small, np.asarray(bounds.poisson_binomial_rejects(k, hits, 0.08, 0.05)))


def test_a_surprise_does_not_ruin_a_plan_of_exactly_none_or_all():
    for plan in (0.0, 1.0):
        bet = bounds.planned_mean_bet(plan, 1000, 6.0)
        assert 0.0 < float(bet) < 1.0
        assert 0.003 < float(bounds.mean_upper(3, 1000, 0.0025, bet)) < 0.04


@pytest.mark.parametrize(
    "call",
    [
        lambda: bounds.binomial_p_value(3, 4, 0.1),
        lambda: bounds.log_bet(-1, 0, 0.1, 0.5),
        lambda: bounds.clopper_pearson_upper(3, 1, 0.0),
        lambda: bounds.planned_bet(float("nan"), 0.1, 3.0),
        lambda: bounds.planned_bet(5.0, 0.1, 0.0),
        lambda: bounds.hoeffding_radius(0, 1, 0.05),
        lambda: bounds.log_uniform_mixture(3, 1, 1.0),
        lambda: bounds.mean_upper(1, 2, 1.0, 0.5),
        lambda: bounds.planned_mean_bet(1.2, 10, 3.0),
    ],
)
def test_counts_and_rates_that_cannot_be_are_refused(call):
    with pytest.raises(InputError):
        call()
