"""What is called the truth of a stage is the truth: checked record by record against the package's own decisions."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from vapo.certification.claims import Requirements, Tally, evaluate
from vapo.errors import InputError
from vapo.policy import Family, Policy, decide
from vapo.records import Records
from vapo.stats import binomial_rate
from vapo.studies import laws, sequences, validity
from vapo.studies.decisions import Counts, Plan, decide_stages
from vapo.studies.estimates import paper_rate
from vapo.studies.laws import (
    BUDGET,
    CYCLE,
    LEVELS,
    NOISES,
    ORDERS,
    UNIT,
    WINDOW,
    candidates,
    edge_law,
    law_of,
)
from vapo.studies.sequences import simulate
from vapo.studies.validity_constants import constants_rows
from vapo.studies.validity_paper import STRUCTURES, TEST_ITEMS


def _as_records(kind):
    """The bytes of one stage as records that a user could have written."""
    level, negative = kind % LEVELS, (kind // LEVELS) % 2
    agrees, wrong = (kind // (2 * LEVELS)) % 2, (kind // (4 * LEVELS)) % 2
    y = np.where(negative == 1, -1, 1)
    table = pa.table(
        {
            "id": [str(place) for place in range(len(kind))],
            "group": [str(place) for place in range(len(kind))],
            "window": np.arange(len(kind)) // WINDOW,
            "y": y,
            "signal.score": level / LEVELS,
            "y2": np.where(agrees == 1, y, -y),
        }
    )
    return Records.from_arrow(table), wrong.astype(bool)


@pytest.mark.parametrize("budget", [BUDGET, WINDOW, 3])
@pytest.mark.parametrize("order", [ORDERS[0], ORDERS[2]])
def test_counts_are_those_of_the_packages_own_decisions(budget, order):
    law, family = law_of(order=order), candidates(budget)
    source = np.random.default_rng([5]).bit_generator
    kind = sequences._kinds(law, source, 3, 1024)
    found = simulate(law, family, 1024, 3, [5])
    for stage in range(3):
        records, wrong = _as_records(kind[stage])
        actions = decide(family, records, records.signals["score"])
        for g in range(len(family)):
            admitted = actions.admitted(g)
            assert found.admitted[stage, g] == admitted.sum()
            assert found.harmful[stage, g] == (admitted & wrong).sum()
            assert found.appealed[stage, g] == actions.appealed(g).sum()


def test_conditional_means_are_sums_over_types_along_the_path_of_calls_left():
    law, family = law_of("fp-heavy"), candidates(3)
    source = np.random.default_rng([6]).bit_generator
    kind = sequences._kinds(law, source, 1, 512)
    found = simulate(law, family, 512, 1, [6])
    records, _ = _as_records(kind[0])
    actions = decide(family, records, records.signals["score"])
    for g, policy in enumerate(family.policies):
        low, high, budget = laws.levels_of(policy)
        spent = actions.spent_before(g)
        truth = np.zeros(3)
        for place in range(512):
            for level, negative in itertools.product(range(LEVELS), (0, 1)):
                share = law.levels[place % CYCLE, level] / CYCLE * law.sign_shares[negative]
                error = law.wrong[negative, level] / UNIT
                if level >= high:
                    truth += share * np.array([error, 1.0, 0.0])
                elif level >= low and budget and spent[place] < budget:
                    waved = error * law.confirm_wrong / UNIT
                    truth += share * np.array([waved, waved + (1 - error) * law.confirm_right / UNIT, 1.0])
        ours = (found.mean_harmful, found.mean_admitted, found.mean_appealed)
        assert [part[0, g] for part in ours] == pytest.approx(truth / 512, abs=1e-13)


def test_the_frozen_risk_is_bayes_rule_over_what_was_seen():
    law, family = law_of("correlated"), candidates()
    source = np.random.default_rng([7]).bit_generator
    kind = sequences._kinds(law, source, 1, 512)
    found = simulate(law, family, 512, 1, [7])
    records, _ = _as_records(kind[0])
    actions = decide(family, records, records.signals["score"])
    chance = []
    for byte in kind[0].tolist():
        error = law.wrong[(byte // LEVELS) % 2, byte % LEVELS] / UNIT
        agrees = (byte // (2 * LEVELS)) % 2
        if_wrong, if_right = law.confirm_wrong / UNIT, law.confirm_right / UNIT
        both = [
            error * (if_wrong if agrees else 1 - if_wrong),
            (1 - error) * (if_right if agrees else 1 - if_right),
        ]
        chance.append(both[0] / sum(both))
    for g in range(len(family)):
        assert found.frozen_risk[0, g] == pytest.approx(
            np.mean(np.array(chance)[actions.admitted(g)]), abs=1e-13
        )


@pytest.mark.parametrize("noise", NOISES)
def test_counts_average_to_the_known_rates(noise):
    law, family = law_of(noise), candidates()
    found, rates = simulate(law, family, 16_384, 60, [8]), law.rates(family)
    records = 60 * 16_384
    for counts, means, rate in (
        (found.admitted, found.mean_admitted, rates.admitted),
        (found.harmful, found.mean_harmful, rates.harmful),
        (found.appealed, found.mean_appealed, rates.appealed),
    ):
        error = np.sqrt(rate * (1 - rate) / records) + 1e-12
        assert (np.abs(counts.sum(axis=0) / records - rate) < 5 * error).all()
        assert means.mean(axis=0) == pytest.approx(rate, abs=3e-4)


@pytest.mark.parametrize("noise", NOISES)
def test_under_every_noise_the_reference_candidate_has_the_risk_that_the_paper_reports(noise):
    risk, coverage = STRUCTURES[noise]
    admitted = round(TEST_ITEMS * coverage)
    ours = law_of(noise).rates(candidates()).risk[laws.REFERENCE]
    assert abs(ours - risk) < 0.5 * paper_rate(risk, admitted).half_width


def test_the_declared_constants_are_those_of_the_laws_that_are_studied():
    for name, noise in (
        ("declared", "symmetric"),
        ("correlated, declared: 0.22 of what is wrong waved through", "correlated"),
    ):
        (row,) = constants_rows(name, 2, 1)
        rates = law_of(noise).rates(candidates())
        assert row["reference_risk"] == rates.risk[laws.REFERENCE]
        assert row["reference_coverage"] == rates.admitted[laws.REFERENCE]


def test_the_reference_candidate_stands_at_the_papers_operating_point():
    rates = law_of().rates(candidates())
    assert rates.risk[laws.REFERENCE] == pytest.approx(0.0697, abs=5e-5)
    assert rates.admitted[laws.REFERENCE] == pytest.approx(0.4125, abs=1e-4)


@pytest.mark.parametrize("rho", [0.10, 0.08, 0.06])
@pytest.mark.parametrize("budget", [BUDGET, WINDOW])
def test_under_the_boundary_law_no_eligible_candidate_is_safe_and_one_almost_is(rho, budget):
    rates = edge_law(rho, budget=budget).rates(candidates(budget))
    risk = rates.risk[rates.admitted >= 0.25]
    assert rho < risk.min() < rho + 1e-4


@pytest.mark.parametrize("rho", [0.08, 0.10])
@pytest.mark.parametrize(("law", "records"), [(law_of(), 512), (law_of(), 16_384), (edge_law(0.08), 4096)])
def test_many_stages_are_decided_as_evaluate_decides_each_of_them(law, records, rho):
    family, asked = candidates(), Requirements(rho, 0.25, 0.25, 0.05)
    rates = law.rates(family)
    found = simulate(law, family, records, 6, [9])
    counts = Counts(records, found.admitted, found.harmful, found.appealed)
    decided = decide_stages(counts, asked, family.chains, Plan(rates.admitted, rates.appealed))
    for stage in range(6):
        rows = zip(*(part[stage].tolist() for part in counts[1:]), strict=True)
        tallies = [Tally(records, *row) for row in rows]
        verdict = evaluate(tallies, family.chains, asked, rates.admitted, rates.appealed)
        for name, claim in verdict.claims.items():
            assert decided[name].feasible[stage].tolist() == claim.feasible.tolist()
            assert decided[name].selected[stage] == (-1 if claim.selected is None else claim.selected)


@pytest.mark.parametrize("claim", ["frozen", "sequential", "hoeffding"])
def test_a_rule_without_a_margin_is_convicted_by_the_truth_that_acquits_the_claims(claim):
    found, family = simulate(edge_law(0.08), candidates(), 4096, 400, [3]), candidates()
    wrong = validity._wrong(found, 0.08)[claim]
    careless = (found.harmful <= 0.08 * found.admitted) & (found.admitted >= 0.25 * 4096)
    assert binomial_rate(int((careless & wrong).any(axis=1).sum()), 400).low > 0.1
    rates = edge_law(0.08).rates(family)
    counts = Counts(4096, found.admitted, found.harmful, found.appealed)
    plan = Plan(rates.admitted, rates.appealed)
    ours = decide_stages(counts, Requirements(0.08, 0.25, 0.25, 0.05), family.chains, plan)[claim].feasible
    assert binomial_rate(int((ours & wrong).any(axis=1).sum()), 400).low <= 0.05


def test_stages_are_whole_cycles_and_thresholds_shared_by_both_signs():
    with pytest.raises(InputError, match="multiple of 256"):
        simulate(law_of(), candidates(), 100, 1, [1])
    signed = Policy.plain(0.5, 0.75, budget=4)
    assert laws.levels_of(signed) == (8, 12, 4)
    with pytest.raises(InputError, match="one of symmetric"):
        law_of("none")
    assert isinstance(candidates(), Family)
