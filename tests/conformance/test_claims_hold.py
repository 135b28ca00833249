"""No law may make a claim false more often than delta, and no alarm either."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.conformance import alarms, families, frozen_laws, groups, walks, wrong
from tests.conformance.harness import DELTA, Law, measure, replications
from tests.conformance.lookup import SPLIT, hoeffding_most_harm, sequential_most_harm
from vapo.certification.claims import CLAIMS, Requirements, Tally, Units, evaluate

LAWS = [*walks.laws(), *families.laws(), *groups.laws(), *frozen_laws.laws(), *wrong.right_counterparts()]
pytestmark = pytest.mark.conformance


def _name(law: Law) -> str:
    return f"{law.claim}: {law.name}"


@pytest.mark.parametrize("law", LAWS, ids=_name)
def test_false_certificates_stay_within_delta(law: Law) -> None:
    outcome = measure(law, replications())
    assert not outcome.convicted, str(outcome)


@pytest.mark.parametrize("law", alarms.laws(), ids=_name)
def test_false_alarms_stay_within_delta(law: Law) -> None:
    outcome = measure(law, replications())
    assert not outcome.convicted, str(outcome)


@pytest.mark.parametrize("law", alarms.power(), ids=_name)
def test_the_monitor_notices_broken_promises(law: Law) -> None:
    outcome = measure(law, replications())
    assert outcome.high < law.delta, str(outcome)


def test_every_claim_meets_at_least_ten_laws() -> None:
    assert len({(law.claim, law.name) for law in LAWS}) == len(LAWS)
    assert min(Counter(law.claim for law in LAWS)[claim] for claim in CLAIMS) >= 10


@pytest.mark.parametrize(
    ("claim", "name", "share"),
    [
        ("frozen", "opportunistic stopping on observations", 0.8),
        ("frozen", "one chain, safe start, then the boundary", 0.5),
        ("sequential", "adaptive: stops admitting when certified", 0.4),
    ],
)
def test_the_laws_stand_on_the_boundary(claim: str, name: str, share: float) -> None:
    law = next(law for law in LAWS if (law.claim, law.name) == (claim, name))
    assert measure(law, 2_000).rate > share * DELTA


@pytest.mark.parametrize(
    ("name", "draw", "limits", "claims"), families.DRAWS, ids=[row[0] for row in families.DRAWS]
)
def test_the_tables_decide_as_evaluate_does(name, draw, limits, claims) -> None:
    rng = np.random.default_rng(5)
    for claim in claims:
        asked = Requirements(0.3 if claim == "hoeffding" else 0.08, *limits, DELTA, claim)
        # harm a little below the boundary, so that both answers occur
        stages = draw(rng, 3, asked.rho)
        harmful = (stages.h * np.array([[0.9], [0.6], [0.2]])).astype(np.int64)
        stages = families.Stages(
            stages.n,
            stages.k,
            harmful,
            stages.a,
            stages.wrong,
            stages.planned,
            stages.chains,
            stages.planned_calls,
        )
        fast = families.feasible(claim, stages, asked)
        for row in range(3):
            counts = zip(stages.k[row], harmful[row], stages.a[row], strict=True)
            tallies = [Tally(stages.n, int(k), int(h), int(a)) for k, h, a in counts]
            calls = np.full(len(tallies), stages.planned_calls)
            verdict = evaluate(tallies, stages.chains, asked, stages.planned, calls)
            np.testing.assert_array_equal(verdict.claims[claim].feasible, fast[row])
            chosen = verdict.selected
            assert (chosen is None) == (not fast[row].any())
            assert chosen is None or fast[row, chosen]


def test_the_radius_table_decides_as_evaluate_does() -> None:
    n, rho = 400, 0.5
    table = hoeffding_most_harm(n, rho)
    asked = Requirements(rho, 0.0, 1.0, DELTA, "hoeffding")
    for k in (40, 150, 300, 400):
        for h in range(max(0, int(table[k]) - 2), min(k, int(table[k]) + 3)):
            assert (evaluate([Tally(n, k, h, 0)], [[0]], asked).selected == 0) == (h <= table[k])


def test_the_evidence_table_decides_as_evaluate_does() -> None:
    n, rho, planned = 2000, 0.08, 0.5
    table = sequential_most_harm(n, rho, DELTA * SPLIT[0], n * planned)
    asked = Requirements(rho, 0.0, 1.0, DELTA, "sequential")
    for k in (60, 700, 1000, 2000):
        for h in range(max(0, int(table[k]) - 1), int(table[k]) + 3):
            assert (evaluate([Tally(n, k, h, 0)], [[0]], asked, [planned]).selected == 0) == (h <= table[k])


def test_the_group_evidence_decides_as_evaluate_does() -> None:
    size, groups_in_stage, rho, planned = groups.CAP, 300, groups.RHO, 1.0
    table = sequential_most_harm(groups_in_stage, rho, groups.LEVEL, groups_in_stage * planned)
    asked = Requirements(rho, 0.0, 1.0, DELTA, "sequential", group_cap=size)
    edge = int(table[groups_in_stage])
    for bad in range(edge - 1, edge + 3):
        harmful = np.array([size, 0])
        units = Units(np.full(2, size), harmful, 0 * harmful, np.array([bad, groups_in_stage - bad]))
        tally = Tally(size * groups_in_stage, size * groups_in_stage, size * bad, 0, units)
        assert (evaluate([tally], [[0]], asked, [planned]).selected == 0) == (bad <= edge)


def test_the_mixture_on_groups_is_the_one_that_certifies() -> None:
    from vapo.certification.bounds import log_evidence_at

    eps, shares = groups.bets(400)
    counts = np.array([[3.0, 20.0, 97.0, 280.0]])
    sizes = np.array([2, 8]) / groups.CAP
    rho = groups.RHO
    values = np.concatenate([sizes * (1 - rho), sizes * -rho])[None, :]
    capital = (1.0 - eps[:, None] * values / (1 - rho)) ** counts
    exact = log_evidence_at(values, counts, np.array([400.0]), 1 / (1 - rho), eps[-1:], 0.0)[0]
    assert np.log(shares @ capital.prod(axis=1)) == pytest.approx(exact, abs=1e-6)


def test_many_monitors_at_once_are_the_monitor() -> None:
    rng = np.random.default_rng(3)
    n, probability = 200, 0.5
    admitted, harmful = rng.random((n, 5)) < 0.8, rng.random((n, 5)) < 0.15
    many = alarms.Monitors(5, pi_min=probability)
    for a, h in zip(admitted, harmful, strict=True):
        many.update(a, a & h, probability)
    for row in range(5):
        alarm, steady, fresh = alarms.alone(
            admitted[:, row], (admitted & harmful)[:, row], probability, probability
        )
        assert alarm == many.alarm[row]
        assert steady == pytest.approx(np.log(many.steady[row].sum()), abs=1e-9)
        waiting = 1.0 / (-(-n // alarms.BLOCK) + 1.0)
        assert fresh == pytest.approx(np.log(many.fresh[row].sum() + waiting), abs=1e-9)
