"""What each claim promises about a family, and the mistakes it must not make."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import bounds_reference as reference
from vapo.certification import bounds
from vapo.certification.claims import Requirements, Tally, Units, _choose, evaluate, frozen_skips
from vapo.certification.frozen import frozen_bet, frozen_group_test, frozen_table
from vapo.errors import InputError

ASKED = Requirements(rho=0.08, c_min=0.25, b_max=0.2, delta=0.05)


def groups(*rows: tuple[int, int, int, int]) -> Units:
    return Units(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def grouped_tally(records: int, *rows: tuple[int, int, int, int]) -> Tally:
    units = groups(*rows)
    sums = (int((part * units.count).sum()) for part in (units.admitted, units.harmful, units.appealed))
    return Tally(records, *sums, units)


@st.composite
def families(draw):
    """Small families with many ties, empty candidates and candidates that never appeal."""
    records = draw(st.integers(1, 40))
    size = draw(st.integers(1, 5))
    rows = []
    for _ in range(size):
        k = draw(st.sampled_from([0, records, records // 2, draw(st.integers(0, records))]))
        h = draw(st.sampled_from([0, k, min(k, 1), draw(st.integers(0, k))]))
        rows.append((k, h, draw(st.sampled_from([0, draw(st.integers(0, records))]))))
    members = draw(st.permutations(range(size)))
    cut = draw(st.integers(0, size))
    chains = [chain for chain in (members[:cut], members[cut:]) if chain]
    return records, rows, chains


@settings(max_examples=2000)
@given(
    family=families(),
    rho=st.sampled_from([0.1, 0.2, 0.5]),
    c_min=st.sampled_from([0.0, 0.5]),
    b_max=st.sampled_from([0.2, 1.0]),
    delta=st.sampled_from([0.05, 0.3]),
)
def test_the_frozen_claim_is_a_walk_down_the_chains(family, rho, c_min, b_max, delta):
    records, rows, chains = family
    asked = Requirements(rho, c_min, b_max, delta)
    table = frozen_table([Tally(records, *row) for row in rows], asked, chains)
    passed, best = reference.frozen_selection(rows, records, chains, rho, c_min, b_max, delta)
    assert set(np.flatnonzero(table.feasible)) == passed
    assert all((table.constraint[i] == "") == (i in passed) for i in range(len(rows)))
    assert _choose(table).selected == best


@settings(max_examples=150)
@given(family=families(), claim=st.sampled_from(["frozen", "sequential", "hoeffding"]))
def test_a_verdict_always_has_three_tables_and_agrees_with_the_deciding_one(family, claim):
    records, rows, chains = family
    asked = Requirements(0.2, 0.25, 0.5, 0.1, claim)
    verdict = evaluate([Tally(records, *row) for row in rows], chains, asked)
    assert set(verdict.claims) == {"hoeffding", "sequential", "frozen"}
    deciding = verdict.claims[claim]
    assert (verdict.selected, verdict.nearest) == (deciding.selected, deciding.nearest)
    for table in verdict.claims.values():
        assert (table.selected is None) == (not table.feasible.any())
        assert np.all((table.margin <= 0) == table.feasible)
        assert np.all(table.risk_upper[table.feasible] <= 0.2 + 1e-12)
        assert not any(table.feasible[i] and rows[i][0] == 0 for i in range(len(rows)))
        for name in ("excess_upper", "risk_upper", "coverage_lower", "calls_upper", "radius", "margin"):
            assert np.isfinite(getattr(table, name)).all()


def test_the_hoeffding_claim_is_the_papers():
    rows = [Tally(512, 300, 10, 40), Tally(512, 200, 4, 10)]
    table = evaluate(rows, [[0, 1]], ASKED).claims["hoeffding"]
    r = math.sqrt(math.log(3 * 2 / 0.05) / (2 * 512))
    for i, t in enumerate(rows):
        excess = (t.harmful - 0.08 * t.admitted) / 512 + r
        assert table.excess_upper[i] == pytest.approx(excess)
        assert table.coverage_lower[i] == pytest.approx(t.admitted / 512 - r)
        assert table.calls_upper[i] == pytest.approx(t.appealed / 512 + r)
        assert table.risk_upper[i] == pytest.approx(0.08 + excess / (t.admitted / 512 - r))


def test_hoeffding_cannot_certify_a_family_of_twelve_on_512_records_whatever_the_data():
    perfect = [Tally(512, 512, 0, 0)] * 12
    asked = Requirements(0.08, 0.0, 1.0, 0.05, "hoeffding")
    verdict = evaluate(perfect, [list(range(12))], asked)
    assert verdict.selected is None
    assert set(verdict.claims["hoeffding"].constraint) == {"risk"}
    assert evaluate(perfect[:11], [list(range(11))], asked).claims["hoeffding"].excess_upper[0] < 0.0


def test_the_largest_coverage_is_selected_then_fewer_calls_then_the_lower_index():
    rows = [
        Tally(4000, 2000, 20, 9),
        Tally(4000, 2400, 20, 9),
        Tally(4000, 2400, 20, 3),
        Tally(4000, 2400, 20, 3),
    ]
    for claim in ("frozen", "sequential"):
        asked = Requirements(0.08, 0.25, 0.2, 0.05, claim)
        plan = [0.5] * 4
        assert evaluate(rows, [[0, 1, 2, 3]], asked, plan, [0.01] * 4).selected == 2


def test_every_candidate_gets_its_own_share_of_delta_for_each_of_three_limits():
    rows = [Tally(3000, 1200, 40, 100), Tally(3000, 1500, 60, 50)]
    asked = Requirements(0.08, 0.25, 0.2, 0.05, "sequential", weights=(0.7, 0.2))
    plan, calls = np.array([0.4, 0.5]), np.array([0.03, 0.02])
    table = evaluate(rows, [[0, 1]], asked, plan, calls).claims["sequential"]
    for i, weight in enumerate((0.7, 0.2)):
        t = rows[i]
        risk, coverage, asks = (0.05 * share * weight for share in (0.90, 0.05, 0.05))
        bet = bounds.planned_bet(3000 * plan[i], 0.08, -math.log(0.9 * risk))
        own = bounds.excess_upper(t.admitted, t.harmful, 3000, 0.08, risk, bet)
        assert table.excess_upper[i] == pytest.approx(float(own), abs=1e-12)
        stake = bounds.planned_mean_bet(1 - plan[i], 3000, -math.log(0.9 * coverage))
        assert table.coverage_lower[i] == pytest.approx(
            float(bounds.mean_lower(t.admitted, 3000, coverage, stake))
        )
        stake = bounds.planned_mean_bet(calls[i], 3000, -math.log(0.9 * asks))
        assert table.calls_upper[i] == pytest.approx(float(bounds.mean_upper(t.appealed, 3000, asks, stake)))
        # the whole of delta * weight for each of the three would give narrower limits than were paid for
        reused = bounds.mean_lower(t.admitted, 3000, 0.05 * weight, 0.2)
        assert table.coverage_lower[i] < float(reused)


def test_chains_do_not_exist_for_the_claim_about_a_random_estimand():
    rows = [Tally(3000, 1200, 20, 0), Tally(3000, 1300, 500, 0), Tally(3000, 1400, 20, 0)]
    plan = [0.4, 0.43, 0.47]
    one = evaluate(rows, [[0, 1, 2]], ASKED, plan, [0.0] * 3)
    other = evaluate(rows, [[2], [1], [0]], ASKED, plan, [0.0] * 3)
    assert np.array_equal(one.claims["sequential"].excess_upper, other.claims["sequential"].excess_upper)
    assert one.claims["frozen"].constraint != other.claims["frozen"].constraint


def test_the_planned_bet_never_follows_the_admitted_count_of_the_stage():
    asked = Requirements(0.08, 0.0, 1.0, 0.05, "sequential")
    planned = [0.5]
    few, many = (
        evaluate([Tally(2000, k, k // 40, 0)], [[0]], asked, planned, [0.0]).claims["sequential"]
        for k in (400, 1600)
    )
    bet = bounds.planned_bet(1000.0, 0.08, -math.log(0.9 * 0.05 * 0.9))
    for table, k in ((few, 400), (many, 1600)):
        expected = bounds.excess_upper(k, k // 40, 2000, 0.08, 0.045, bet)
        assert table.excess_upper[0] == pytest.approx(float(expected), abs=1e-12)


def test_a_law_that_stops_at_its_luckiest_moment_fools_a_bet_tuned_afterwards_but_not_ours():
    rng = np.random.default_rng(5)
    n, rho, alpha, stages = 1500, 0.08, 0.05, 1500
    k = np.arange(1, n + 1)
    harmful = np.cumsum(rng.random((stages, n)) < rho, axis=1)
    after = np.asarray(bounds.planned_bet(k, rho, -math.log(0.9 * alpha)))
    fixed = float(bounds.planned_bet(n, rho, -math.log(0.9 * alpha)))
    # critical harmful counts, so that a law that stops admitting once it has crossed can be followed
    possible = np.arange(n // 4)
    limits = {}
    for name, bets in (("afterwards", after), ("before", np.full(n, fixed))):
        best = np.full(n, -1)
        for h in possible:
            tail = k >= h
            evidence = np.asarray(bounds.log_bet(k[tail], h, rho, bets[tail]))
            best[np.flatnonzero(tail)[evidence + math.log(0.9) >= -math.log(alpha)]] = h
        limits[name] = best
    exact = np.array(
        [
            np.flatnonzero(np.asarray(bounds.binomial_p_value(m, possible[: m + 1], rho)) <= alpha).size - 1
            for m in k
        ]
    )
    wrong = {name: float((harmful <= best).any(axis=1).mean()) for name, best in limits.items()}
    assert wrong["afterwards"] > 0.08
    assert wrong["before"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / stages)
    assert float((harmful <= exact).any(axis=1).mean()) > 0.25


def test_harm_that_comes_first_does_not_certify_later_silence():
    rho, n = 0.08, 2000
    early = np.concatenate([np.random.default_rng(1).random(400) < 0.40, np.zeros(1600, bool)])
    # a bet that follows recent data thinks that what comes is like what came
    plugged = 0.0
    for t in range(n):
        recent = early[max(0, t - 200) : t]
        rate = float(recent.mean()) if recent.size else rho
        stake = min(max((rho - rate) / (rho * (1 - rho)), 0.0), 0.99 / (1 - rho))
        plugged += math.log1p(-stake * (float(early[t]) - rho))
    assert plugged > math.log(20)
    # ours sees counts only, so the same harm in any order has the same evidence
    bet = bounds.planned_bet(n, rho, math.log(20 / 0.9))
    chance = 0.0
    for h in range(401):
        if float(bounds.log_sequential_evidence(n, h, rho, bet)) >= math.log(20):
            chance += math.comb(400, h) * 0.4**h * 0.6 ** (400 - h)
    assert chance <= 0.05


def test_eight_completions_that_fail_together_count_as_one():
    rho, alpha, prompts = 0.08, 0.05, 60
    wrong_records = wrong_groups = 0.0
    for bad in range(prompts + 1):
        chance = math.comb(prompts, bad) * rho**bad * (1 - rho) ** (prompts - bad)
        if bounds.poisson_binomial_rejects(8 * prompts, 8 * bad, rho, alpha):
            wrong_records += chance
        tally = grouped_tally(8 * prompts, (8, 8, 0, bad), (8, 0, 0, prompts - bad))
        verdict = evaluate([tally], [[0]], Requirements(rho, 0.0, 1.0, alpha))
        wrong_groups += chance * (verdict.selected is not None)
    assert wrong_records > 0.2
    assert 0.0 < wrong_groups <= alpha


@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=9),
    rates=st.lists(st.floats(0.0, 1.0), min_size=9, max_size=9),
    alpha=st.sampled_from([0.3, 0.1]),
)
def test_no_law_of_independent_groups_is_certified_falsely_too_often(sizes, rates, alpha):
    # whole groups go wrong together; every outcome is gone through
    rates = rates[: len(sizes)]
    rho = sum(s * p for s, p in zip(sizes, rates, strict=True)) / sum(sizes)
    if not 0.0 < rho < 1.0:
        return
    wrong = 0.0
    for outcome in itertools.product((0, 1), repeat=len(sizes)):
        chance = math.prod(p if hit else 1 - p for hit, p in zip(outcome, rates, strict=True))
        units = groups(*((s, s * hit, 0, 1) for s, hit in zip(sizes, outcome, strict=True)))
        evidence, limit = frozen_group_test(units, rho, alpha)
        assert (limit <= rho) == (evidence >= -math.log(alpha))
        wrong += chance * (evidence >= -math.log(alpha))
    assert wrong <= alpha + 1e-9


def test_the_stake_on_groups_is_set_before_the_labels():
    clean, dirty = groups((4, 0, 0, 30), (2, 0, 1, 9)), groups((4, 3, 0, 30), (2, 1, 1, 9))
    assert frozen_bet(clean, 0.08, 0.05) == frozen_bet(dirty, 0.08, 0.05)


def test_skips_are_decided_before_the_labels():
    rows = [(20, 0), (35, 0), (36, 0), (60, 0)]
    clean = [Tally(100, k, 0, 0) for k, _ in rows]
    dirty = [Tally(100, k, k, 0) for k, _ in rows]
    asked = Requirements(0.08, 0.3, 0.2, 0.05)
    skips = frozen_skips(clean, asked, [[0, 1, 2, 3]])
    assert skips == frozen_skips(dirty, asked, [[0, 1, 2, 3]])
    assert [skip.reason for skip in skips] == ["coverage", "skipped: too few admitted", "", ""]


def test_groups_too_few_to_pass_whatever_their_labels_are_skipped_and_do_not_end_the_chain():
    asked = Requirements(0.08, 0.0, 1.0, 0.05)
    few, many = (
        grouped_tally(800, (8, 0, 0, 6), (0, 0, 0, 94)),
        grouped_tally(800, (4, 0, 0, 90), (0, 0, 0, 10)),
    )
    assert few.admitted > math.log(0.05) / math.log1p(-0.08)
    assert frozen_group_test(few.units, 0.08, 0.05)[0] < math.log(20)
    assert evaluate([few, many], [[0, 1]], asked).claims["frozen"].constraint == (
        "skipped: too few admitted",
        "",
    )
    harmful = grouped_tally(800, (8, 8, 0, 6), (0, 0, 0, 94))
    assert frozen_skips([harmful, many], asked, [[0, 1]]) == frozen_skips([few, many], asked, [[0, 1]])


def test_a_skip_is_no_failure_but_a_failure_ends_its_chain():
    rows = [Tally(1000, 300, 2, 500), Tally(1000, 400, 2, 0), Tally(1000, 500, 90, 0), Tally(1000, 600, 1, 0)]
    frozen = evaluate(rows, [[0, 1, 2, 3]], ASKED).claims["frozen"]
    assert frozen.constraint == ("calls", "", "risk", "not tested: chain stopped at 2")
    assert frozen.margin[3] > 0
    unplaced = evaluate(rows, [[0, 1]], ASKED).claims["frozen"]
    assert unplaced.constraint[3] == "not tested: in no chain"


def test_each_chain_is_tested_at_its_share():
    rows = [Tally(1000, 400, 20, 0), Tally(1000, 420, 21, 0)]
    alone = evaluate(rows[:1], [[0]], ASKED)
    assert float(bounds.binomial_p_value(400, 20, 0.08)) < 0.05
    assert float(bounds.binomial_p_value(400, 20, 0.08)) > 0.05 / 5
    assert alone.selected == 0
    chains = [[0], [1], [], [], []]
    assert evaluate(rows, chains, ASKED).selected is None


def test_a_selected_members_own_limit_is_not_what_the_certificate_says():
    rows = [Tally(1000, 300, 12, 0), Tally(1000, 400, 8, 0)]
    table = evaluate(rows, [[0, 1]], ASKED).claims["frozen"]
    limits = [float(bounds.clopper_pearson_upper(t.admitted, t.harmful, 0.05)) for t in rows]
    assert table.selected == 1
    assert limits[1] < limits[0] < 0.08
    assert table.risk_upper[1] == pytest.approx(limits[0])
    assert table.own_limit[1] == pytest.approx(limits[1])


def test_when_a_chain_stopped_its_members_get_no_limit_below_rho():
    rows = [Tally(1000, 400, 8, 0), Tally(1000, 500, 100, 0)]
    table = evaluate(rows, [[0, 1]], ASKED).claims["frozen"]
    assert table.risk_upper.tolist() == [0.08, 1.0]


def test_a_refusal_names_the_candidate_that_came_closest():
    rows = [Tally(1000, 0, 0, 0), Tally(1000, 500, 45, 0), Tally(1000, 500, 41, 0), Tally(1000, 200, 0, 0)]
    verdict = evaluate(rows, [[0], [1], [2], [3]], ASKED, [0.0, 0.5, 0.5, 0.2], [0.0] * 4)
    assert verdict.selected is None
    assert verdict.nearest == 2
    assert verdict.claims["frozen"].constraint[2] == "risk"
    assert 0.0 < verdict.claims["frozen"].margin[2] < verdict.claims["frozen"].margin[1]


def test_bets_on_groups_use_the_declared_cap_and_not_the_largest_group_that_came():
    tally = grouped_tally(2000, (4, 0, 0, 180), (3, 1, 0, 20), (0, 0, 1, 50))
    plan = np.array([0.4])
    asked = Requirements(0.08, 0.2, 0.2, 0.05, "sequential", group_cap=10)
    table = evaluate([tally], [[0]], asked, plan, [0.01]).claims["sequential"]
    assert table.unit == "group"
    bet = np.atleast_1d(bounds.planned_bet(2000 * 0.4 / 10, 0.08, -math.log(0.9 * 0.045)))
    values, times = np.array([[-4 * 0.08 / 10, (1 - 3 * 0.08) / 10]]), np.array([[180.0, 20.0]])
    limit, _ = bounds.unit_excess_upper(values, times, np.array([250.0]), 0.08, 0.045, bet)
    assert table.excess_upper[0] == pytest.approx(limit[0] * 10 * 250 / 2000)
    stake = np.atleast_1d(bounds.planned_mean_bet(1 - 0.4 * 8 / 10, 250, -math.log(0.9 * 0.0025)))
    shares, times = np.array([[4 / 10, 3 / 10, 0.0]]), np.array([[180.0, 20.0, 50.0]])
    lower = bounds.unit_mean_lower(shares, times, np.array([250.0]), 0.0025, stake)
    assert table.coverage_lower[0] == pytest.approx(lower[0] * 10 * 250 / 2000)
    with pytest.raises(InputError, match="group_cap"):
        evaluate([tally], [[0]], Requirements(0.08, 0.2, 0.2, 0.05, group_cap=3), plan, [0.01])


def test_a_statement_about_the_population_bets_with_the_declared_cap_and_the_planned_counts():
    tally = grouped_tally(900, (3, 0, 0, 180), (2, 1, 0, 10), (0, 0, 0, 110))
    asked = Requirements(0.08, 0.2, 0.2, 0.05, group_cap=4, planned_squares=(5.0,))
    table = evaluate([tally], [[0]], asked).claims["frozen"]
    stake = math.sqrt(2 * math.log(20) / (0.08 * 0.92 * 300 * 5.0 / 4**2))
    evidence = 180 * math.log1p(stake * 3 * 0.08 / 4) + 10 * math.log1p(-stake * (1 - 2 * 0.08) / 4)
    mean = -math.expm1((evidence - math.log(20)) / 190) / stake
    assert table.feasible[0] == (evidence >= math.log(20))
    assert table.risk_upper[0] == pytest.approx(0.08 + mean * 190 * 4 / (3 * 180 + 2 * 10))
    # a stage in which less was admitted than planned does not get the stake that would suit it
    realised = evaluate([tally], [[0]], Requirements(0.08, 0.2, 0.2, 0.05, group_cap=4)).claims["frozen"]
    assert realised.risk_upper[0] != pytest.approx(table.risk_upper[0], abs=1e-3)
    with pytest.raises(InputError, match="group_cap"):
        evaluate([tally], [[0]], replace(asked, group_cap=2))


def test_groups_of_one_and_a_cap_of_one_are_records():
    alone = Tally(1000, 400, 9, 50)
    asked = Requirements(0.08, 0.2, 0.2, 0.05, "sequential")
    capped = Requirements(0.08, 0.2, 0.2, 0.05, "sequential", group_cap=1)
    record = evaluate([alone], [[0]], asked, [0.4], [0.05]).claims["sequential"]
    group = evaluate([alone], [[0]], capped, [0.4], [0.05]).claims["sequential"]
    for name in ("excess_upper", "coverage_lower", "calls_upper", "risk_upper"):
        assert getattr(record, name)[0] == pytest.approx(getattr(group, name)[0], abs=1e-9)


def test_group_limits_at_equal_groups_follow_the_capital_group_by_group():
    excess = [(-0.16) / 2] * 9 + [(1 - 0.16) / 2] * 1
    slow = reference.evidence_limit(excess, 1 / 0.92, 0.4, 0.05, -0.08)
    values, times = np.array([[-0.08, 0.42]]), np.array([[9.0, 1.0]])
    limit, evidence = bounds.unit_excess_upper(values, times, np.array([10.0]), 0.08, 0.05, np.array([0.4]))
    assert limit[0] == pytest.approx(slow, abs=1e-7)
    assert evidence[0] == pytest.approx(reference.log_evidence(excess, 0.0, 1 / 0.92, 0.4), abs=1e-8)


def test_evidence_is_integrated_a_few_dozen_times_a_limit_however_many_records_there_are(monkeypatch):
    integrals = []

    def counted(values, *arguments, **options):
        integrals.append(len(values))
        return bounds.log_evidence_at(values, *arguments, **options)

    monkeypatch.setattr("vapo.certification.limits.log_evidence_at", counted)
    k = np.linspace(1000, 600_000, 200).astype(int)
    rows = [Tally(10**6, int(a), int(a * 0.07), int(a) // 5) for a in k]
    verdict = evaluate(rows, [list(range(200))], ASKED, k / 1e6, k / 5e6)
    assert verdict.selected is not None
    assert sum(integrals) < 3 * 200 * 30


@pytest.mark.parametrize(
    "call",
    [
        lambda: Requirements(1.0, 0.2, 0.2, 0.05),
        lambda: Requirements(0.1, 1.2, 0.2, 0.05),
        lambda: Requirements(0.1, 0.2, 0.2, 0.05, "best-of-three"),
        lambda: Requirements(0.1, 0.2, 0.2, 0.05, split=(0.9, 0.9, 0.9)),
        lambda: Requirements(0.1, 0.2, 0.2, 0.05, weights=(0.9, 0.9)),
        lambda: Requirements(0.1, 0.2, 0.2, 0.05, group_cap=0),
        lambda: Tally(10, 11, 0, 0),
        lambda: Tally(10, 4, 5, 0),
        lambda: Tally(10, 4, 1, 0, groups((2, 0, 0, 2))),
        lambda: groups((1, 2, 0, 1)),
        lambda: evaluate([], [], ASKED),
        lambda: evaluate([Tally(10, 1, 0, 0), Tally(11, 1, 0, 0)], [[0]], ASKED),
        lambda: evaluate([Tally(10, 1, 0, 0)], [[1]], ASKED),
        lambda: evaluate([Tally(10, 1, 0, 0)], [[0, 0]], ASKED),
        lambda: evaluate([Tally(10, 1, 0, 0)], [[0]], ASKED, [0.1, 0.2]),
        lambda: evaluate([Tally(10, 1, 0, 0)], [[0]], ASKED, [1.5]),
        lambda: evaluate([Tally(10, 1, 0, 0)], [[0]], Requirements(0.1, 0.2, 0.2, 0.05, weights=(0.5, 0.5))),
    ],
)
def test_what_cannot_be_evaluated_is_refused(call):
    with pytest.raises(InputError):
        call()
