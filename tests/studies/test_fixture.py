"""The five-view fixture is what its contract says: keyed draws, stated ranges, known corruption, no oracle in sight."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from vapo._internal.keyed import keyed_fraction
from vapo.errors import InputError
from vapo.policy.observed import ObservedThreshold
from vapo.studies.controllers import CONTROLLERS, measure, respond, trace_digest, trust
from vapo.studies.fixture import (
    SOURCES,
    VIEWS,
    Corruption,
    Part,
    agreement,
    build,
    check_contract,
    consistency,
)
from vapo.studies.fixture_cases import (
    FRONTIER,
    PARSER,
    PRIMES,
    REPLAY,
    SEVERITY,
    Reading,
    attainable,
    parts,
    spread,
)
from vapo.studies.redundancy import audit_patterns, audit_records

NOISE = Corruption("noise", trigger=0.6, flip=0.3)


def views_of(fixture):
    return np.stack(
        [fixture.records.extra.column(f"view_{j + 1}").to_numpy() for j in range(VIEWS)], axis=1
    ).astype(int)


def columns_of(fixture):
    records = fixture.records
    return [
        fixture.clean, records.y, records.delta_r, records.kl, *records.signals.values(), *views_of(fixture).T,
    ]  # fmt: skip


def test_a_record_does_not_depend_on_which_others_are_drawn():
    whole = build(17, [Part(NOISE, 30), Part(REPLAY, 20)])
    again = build(17, [Part(REPLAY, 12, first=4)])
    assert whole.records.id.to_pylist()[34:46] == again.records.id.to_pylist()
    for some, all_of_them in zip(columns_of(again), columns_of(whole), strict=True):
        assert some.tolist() == all_of_them[34:46].tolist()


def test_view_j_is_corrupted_by_the_stream_s_plus_1000003_j():
    everyone = Corruption("everyone", flip=0.4)
    found = build(29, [Part(everyone, 200)])
    turned = views_of(found) != found.clean[:, None]
    for j in range(VIEWS):
        key = str(29 + 1_000_003 * (j + 1)).encode()
        draws = [keyed_fraction(key, f"{name}/corruption") for name in found.records.id.to_pylist()]
        assert turned[:, j].tolist() == [draw < 0.4 for draw in draws]


def test_another_seed_is_another_stream():
    one, other = (build(seed, [Part(NOISE, 50)]) for seed in (13, 17))
    assert not np.array_equal(one.records.kl, other.records.kl)
    assert not np.array_equal(views_of(one), views_of(other))


def test_proposals_and_confidence_fill_their_stated_ranges_and_no_more():
    records = build(13, [Part(REPLAY, 5000)]).records
    for values, low, high in (
        (records.delta_r, 0.02, 0.30),
        (records.kl, 0.001, 0.08),
        (records.signals["confidence"], 0.5, 1.0),
    ):
        assert low <= values.min() < low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) < values.max() <= high
        # A uniform mean has a standard error of (high - low) / sqrt(12 n); four of them are allowed.
        assert abs(values.mean() - (low + high) / 2) < 4 * (high - low) / math.sqrt(12 * 5000)


def test_a_proposal_outside_the_contract_is_refused_before_a_controller_acts():
    records = build(13, [Part(REPLAY, 10)]).records
    for change, words in (
        ({"delta_r": np.full(10, 0.31)}, r"'delta_r' in \[0.02, 0.3\], got 0.31"),
        ({"kl": np.full(10, 0.0)}, r"'kl' in \[0.001, 0.08\], got 0"),
        ({"kl": None}, r"'kl' in \[0.001, 0.08\], got none"),
    ):
        broken = dataclasses.replace(records, **change)
        with pytest.raises(InputError, match=words):
            check_contract(broken)
        with pytest.raises(InputError, match=words):
            respond(broken, CONTROLLERS["combined"])


def test_the_primary_verdict_is_the_first_view_and_nothing_clean_is_among_the_columns():
    found = build(13, [Part(NOISE, 40)])
    assert found.records.y.tolist() == views_of(found)[:, 0].tolist()
    assert found.records.extra.column_names == [f"view_{j + 1}" for j in range(VIEWS)]
    assert set(found.records.signals) == {"confidence", "agreement", "consistency"}


CASES = [REPLAY, PARSER, NOISE, *FRONTIER.cases(), *SEVERITY.cases()[2:4]]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.name}-{case.flip:g}")
def test_the_primary_errs_as_often_as_its_corruption_says(case):
    found = build(31, [Part(case, 4000)])
    wrong = int(np.count_nonzero(found.records.y != found.clean))
    spread_ = math.sqrt(4000 * case.error * (1 - case.error))
    assert abs(wrong - 4000 * case.error) <= 4 * spread_


def test_one_sided_corruption_touches_its_side_alone():
    for side, sign in (("wrong", -1), ("right", 1)):
        found = build(13, [Part(Corruption("side", side=side, flip=0.6), 500)])
        turned = (views_of(found) != found.clean[:, None]).any(axis=1)
        assert turned.any()
        assert set(found.clean[turned].tolist()) == {sign}


@pytest.mark.parametrize("wanted", [0.0, 0.25, 0.6])
def test_flips_of_two_views_are_correlated_as_declared(wanted):
    found = build(37, [Part(Corruption("alike", flip=0.35, correlation=wanted), 4000)])
    turned = views_of(found) != found.clean[:, None]
    pairs = [np.corrcoef(turned[:, i], turned[:, j])[0, 1] for i, j in combinations(range(VIEWS), 2)]
    assert abs(np.mean(pairs) - wanted) < 4 / math.sqrt(4000)


def test_both_sources_of_draws_follow_one_law_and_differ():
    draws = {name: source(13, [f"r{i}" for i in range(4000)], "kl") for name, source in SOURCES.items()}
    assert not np.array_equal(draws["sha256"], draws["pcg64"])
    for values in draws.values():
        assert values.min() >= 0.0
        assert values.max() < 1.0
        assert abs(values.mean() - 0.5) < 4 / math.sqrt(12 * 4000)


@pytest.mark.parametrize("field", ["trigger", "flip", "correlation"])
def test_a_chance_outside_0_and_1_is_refused(field):
    with pytest.raises(InputError, match=f"'{field}'"):
        Corruption("odd", **{field: 1.2})


def test_agreement_and_consistency_are_what_they_are_counted_to_be():
    for pattern in product((1, -1), repeat=VIEWS):
        views = np.array([pattern], dtype=np.int8)
        ups = pattern.count(1)
        assert agreement(views)[0] == max(ups, VIEWS - ups) / VIEWS
        assert consistency(views)[0] == pattern.count(pattern[0]) / VIEWS


def test_agreement_is_a_function_of_consistency_on_every_pattern_and_never_of_confidence():
    for views in range(1, 10):
        found = audit_patterns(views)
        assert found["patterns"] == 2**views
        assert found["error"] <= 2e-16
    records = build(13, [Part(REPLAY, 400)]).records
    found = audit_records(records)
    assert found["error"] == 0.0
    assert found["refused"]
    distinct = dataclasses.replace(
        records, signals={**records.signals, "agreement": records.signals["confidence"]}
    )
    assert not audit_records(distinct)["refused"]
    assert audit_records(distinct)["error"] > 0.1


def by_hand(name, record):
    """The appendix, one record at a time."""
    c, a, p, delta_r, kl, y = record
    weights = {
        "without confidence": (0, 1, 1),
        "without agreement": (1, 0, 1),
        "without consistency": (1, 1, 0),
    }
    lc, la, lp = weights.get(name, (1, 1, 1))
    s = (lc * c + la * a + lp * p) / (lc + la + lp)
    chi_w, chi_r = {"static": (0, 0), "trust": (1, 0), "clip-kl": (0, 1)}.get(name, (1, 1))
    w = 1 - chi_w * (1 - 0.10) * (1 - s)
    epsilon = 0.20 - chi_r * (0.20 - 0.02) * (1 - s)
    beta = 0.01 + chi_r * (0.50 - 0.01) * (1 - s)
    return y * max(0.0, w * min(delta_r, epsilon) - beta * kl)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_every_controller_responds_as_the_appendix_defines(name):
    records = build(41, [Part(NOISE, 300)]).records
    frozen = respond(records, CONTROLLERS[name])
    rows = zip(*records.signals.values(), records.delta_r, records.kl, records.y, strict=True)
    order = list(records.signals)
    assert order == ["confidence", "agreement", "consistency"]
    expected = [by_hand(name, row) for row in rows]
    np.testing.assert_allclose(frozen.sign * frozen.magnitude, expected, rtol=0, atol=1e-15)


def test_no_controller_turns_a_direction_round():
    found = build(43, [Part(NOISE, 300)])
    for controller in CONTROLLERS.values():
        frozen = respond(found.records, controller)
        assert frozen.sign.tolist() == found.records.y.tolist()
        assert frozen.magnitude.min() >= 0.0


def test_a_trace_is_the_same_in_pieces_and_another_one_once_a_bit_of_it_changes():
    controller = CONTROLLERS["combined"]
    whole = respond(build(13, [Part(NOISE, 30)]).records, controller)
    pieces = [respond(build(13, [Part(NOISE, 10, first)]).records, controller) for first in (0, 10, 20)]
    assert trace_digest([whole]) == trace_digest(pieces)
    for field in ("score", "magnitude", "sign"):
        changed = getattr(whole, field).copy()
        changed[7] = np.nextafter(changed[7], 2) if field != "sign" else -changed[7]
        assert trace_digest([whole._replace(**{field: changed})]) != trace_digest([whole])
    assert trace_digest([whole._replace(names=("x", *whole.names[1:]))]) != trace_digest([whole])


def test_the_threshold_action_leaves_nothing_of_an_ineligible_proposal_and_caps_the_others():
    records = build(13, [Part(NOISE, 400)]).records
    controller = CONTROLLERS["static"]
    score = trust(records, controller)
    gate = ObservedThreshold.fit(records, score, q_trust=0.6, q_kl=0.75, q_ratio=0.3)
    frozen = respond(records, controller, gate)
    eligible = (score >= gate.trust) & (records.kl <= gate.kl)
    assert 0 < eligible.sum() < 400
    assert frozen.magnitude[~eligible].max() == 0.0
    assert frozen.sign[~eligible].tolist() == [0] * int((~eligible).sum())
    assert frozen.magnitude[eligible].max() <= gate.ratio
    assert frozen.magnitude[eligible].min() > 0.0


def test_shares_of_a_row_add_up():
    found = build(47, [Part(NOISE, 500)])
    for controller in CONTROLLERS.values():
        row = measure(respond(found.records, controller), found.clean)
        assert row["helpful"] + row["harmful"] + row["abstained"] == pytest.approx(1.0)
        assert row["harmful"] == pytest.approx(row["coverage"] * row["R_sel"])
        assert abs(row["U"]) <= row["mean_u"]


def test_a_printed_share_is_traced_to_the_one_count_that_rounds_to_it():
    for records in (7, 128, 640):
        shares = [Fraction(count, records) for count in range(records + 1)]
        for digits in range(0, 10_001, 7):
            share = Fraction(digits, 10_000)
            near = [count for count, exact in enumerate(shares) if abs(exact - share) <= Fraction(1, 20_000)]
            found = attainable(float(share), records)
            assert found in near if near else found is None


def test_calibration_records_are_spread_over_all_cases():
    cases = Reading().cases()
    for total in (6, 7, 128):
        sizes = [part.size for part in spread(cases, total)]
        assert sum(sizes) == total
        assert max(sizes) - min(sizes) <= 1
    assert {part.first for part in parts(cases, 5, first=9)} == {9}


def test_seeds_are_distinct_primes_from_the_papers_own_on():
    assert len(set(PRIMES)) == len(PRIMES)
    assert all(n % d for n in PRIMES for d in range(2, math.isqrt(n) + 1))
    assert {13, 17, 23, 73, 79, 83} <= set(PRIMES)
