"""Families: exactly the file, chains from the most selective down, and thresholds from the design split."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import world
from vapo.errors import InputError, VapoError
from vapo.policy import Family, ObservedThreshold, Policy, Reason, build_family, decide
from vapo.policy.model import ABOVE_ALL
from vapo.records import Records


def design(n=400, **options):
    table, _ = world(n, **options)
    records = Records.from_arrow(table)
    return records, records.signals["conf"]


def read(tmp_path, data, **options):
    path = tmp_path / "family.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return Family.read(path, **options)


def test_a_family_given_by_file_is_exactly_the_file(tmp_path):
    both = {"tau_low": 0.2, "tau_high": 0.9, "tau_2": 0.6}
    data = {
        "candidates": [
            {"tau_low": 0.5, "tau_high": 0.8, "tau_2": 0.6},
            {"tau_low": 0.5, "tau_high": 0.8, "tau_2": 0.6},
            {"pos": both, "neg": {"tau_low": 0.7, "tau_high": 0.7}},
            {"tau_low": 0.1, "tau_high": 0.1, "budget": 3},
        ],
        "budget": 40,
        "chains": [[3, 0], [2]],
    }
    family = read(tmp_path, data)
    assert [policy.as_dict() for policy in family.policies] == [
        {**both, "tau_low": 0.5, "tau_high": 0.8, "budget": 40},
        {**both, "tau_low": 0.5, "tau_high": 0.8, "budget": 40},
        {"pos": both, "neg": {"tau_low": 0.7, "tau_high": 0.7, "tau_2": 0.0}, "budget": 40},
        {"tau_low": 0.1, "tau_high": 0.1, "tau_2": 0.0, "budget": 3},
    ]
    assert family.chains == ((3, 0), (2,))
    assert Family.from_dict(family.as_dict()).digest == family.digest


def test_without_chains_there_is_one_that_begins_with_the_most_selective(tmp_path):
    triples = [(0.1, 0.5, 0.2), (0.5, 0.5, 0.0), (0.3, 0.9, 0.1), (0.3, 0.9, 0.7), (0.9, 0.9, 0.0)]
    data = {"candidates": [dict(zip(("tau_low", "tau_high", "tau_2"), t, strict=True)) for t in triples]}
    family = read(tmp_path, data)
    assert family.chains == ((4, 3, 2, 1, 0),)


def test_weights_are_kept_and_belong_to_what_the_digest_covers(tmp_path):
    data = {"candidates": [{"tau_low": 0.1, "tau_high": 0.9}, {"tau_low": 0.5, "tau_high": 0.5}]}
    plain, weighted = read(tmp_path, data), read(tmp_path, {**data, "weights": [0.75, 0.2]})
    assert plain.shares == (0.5, 0.5)
    assert weighted.shares == (0.75, 0.2)
    assert plain.digest != weighted.digest
    assert "weights" not in plain.as_dict()
    assert Family.from_dict(weighted.as_dict()) == weighted
    assert Family.of(weighted.policies, weights=np.array([0.75, 0.2])).digest == weighted.digest


def test_a_budget_stands_in_only_where_the_file_names_none(tmp_path):
    data = {"candidates": [{"tau_low": 0.1, "tau_high": 0.9}, {"tau_low": 0.1, "tau_high": 0.9, "budget": 0}]}
    assert [p.budget for p in read(tmp_path, data, budget=7).policies] == [7, 0]
    assert [p.budget for p in read(tmp_path, {**data, "budget": 2}, budget=7).policies] == [2, 0]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ("", "family.json"),
        ("[1]", "dictionary"),
        ('{"candidates": []', "family.json"),
        ('{"candidates": [], "candidates": []}', "twice"),
        ({"candidates": []}, "at least one candidate"),
        ({"candidates": [{}]}, "candidate 0"),
        (
            {"candidates": [{"tau_low": 0.1, "tau_high": 0.5}, {"tau_low": 0.9, "tau_high": 0.5}]},
            "candidate 1",
        ),
        ({"candidates": [{"tau_low": True, "tau_high": True}]}, r"candidates\.0\.tau_low"),
        ({"candidates": [{"tau_low": "0.1", "tau_high": 0.5}]}, r"candidates\.0\.tau_low"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "chains": [["0"]]}, "chains"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "chains": [[False]]}, "chains"),
        ({"candidates": [{"tau_low": "x", "tau_high": 0.5}]}, r"candidates\.0\.tau_low"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5, "tau2": 0.5}]}, r"candidates\.0\.tau2"),
        ('{"candidates": [{"tau_low": NaN, "tau_high": 0.5}]}', r"candidates\.0\.tau_low"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 7}]}, "candidate 0"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5, "budget": -1}]}, "budget"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "budget": 2**31}, "budget"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "chains": [[0, 0]]}, "chains"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "chains": [[1]]}, "chains"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "chains": []}, "chains"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "weights": [1.001]}, "weights"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "weights": [0.5, 0.5]}, "weights"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "weights": []}, "weights"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}] * 2, "weights": [1.0, 0.0]}, "weights"),
        ({"candidates": [{"tau_low": 0.1, "tau_high": 0.5}] * 2, "weights": [1.5, -0.5]}, "weights"),
        ('{"candidates": [{"tau_low": 0.1, "tau_high": 0.5}], "weights": [NaN]}', "weights"),
        ({"candidates": [{"pos": {"tau_low": 0.1, "tau_high": 0.5}}]}, "candidate 0"),
        (
            {
                "candidates": [
                    {
                        "pos": {"tau_low": 0, "tau_high": 1},
                        "neg": {"tau_low": 0, "tau_high": 1},
                        "tau_2": 0.9,
                    }
                ]
            },
            "candidate 0",
        ),
        ('{"candidates": ' + "[" * 5000, "family.json"),
    ],
)
def test_a_broken_family_file_is_refused_with_the_place_named(tmp_path, data, named):
    with pytest.raises(InputError, match=named):
        read(tmp_path, data)


def test_a_missing_family_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="candidates"):
        Family.read(tmp_path / "none.json")


plain_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=60)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "candidates": plain_data
            | st.lists(
                st.dictionaries(
                    st.sampled_from(["tau_low", "tau_high", "tau_2", "pos", "budget"]), plain_data
                ),
                max_size=3,
            ),
            "chains": plain_data,
            "budget": plain_data,
            "rule": plain_data,
        },
    )
)
def test_no_family_data_leads_to_anything_but_a_family_or_our_own_error(data):
    try:
        family = Family.from_dict(data)
    except VapoError:
        return
    assert len(family) == len(data["candidates"])


def test_a_built_family_always_holds_candidates_without_appeals():
    records, score = design()
    family = build_family(records, score, budget=20)
    assert any(not p.pos.appeals and not p.neg.appeals for p in family.policies)
    assert any(p.pos.appeals for p in family.policies)
    assert not build_family(records, score, budget=0).appeals


def test_thresholds_are_linear_quantiles_of_the_design_scores():
    records, score = design()
    family = build_family(records, score)
    eligible = score[records.y != 0]
    levels = [round(1 - step / 20, 2) for step in range(1, 21)]
    wanted = {float(np.quantile(eligible, level)) for level in levels}
    assert {policy.pos.high for policy in family.policies} <= wanted
    assert "linear" in family.rule


def test_a_built_chain_runs_from_the_least_to_the_largest_coverage_on_design():
    records, score = design()
    family = build_family(records, score, budget=20, signs="both")
    listed = sorted(index for chain in family.chains for index in chain)
    assert listed == list(range(len(family)))
    actions = decide(family, records, score)
    for chain in family.chains:
        coverage = [np.count_nonzero(actions.admitted(index)) for index in chain]
        assert coverage == sorted(coverage)


def test_a_sign_specific_family_can_shut_one_sign_out():
    records, score = design()
    family = build_family(records, score, signs="specific")
    shut = [policy for policy in family.policies if policy.neg.low == ABOVE_ALL]
    assert shut
    codes = decide(shut[0], records, score).codes[0]
    assert not (codes[records.y < 0] <= Reason.CONFIRMED).any()
    assert (codes[records.y > 0] <= Reason.CONFIRMED).any()


def test_the_family_of_a_split_does_not_depend_on_its_secondary_where_there_is_no_appeal():
    records, score = design()
    assert build_family(records, score).digest == build_family(records.without_secondary(), score).digest


def test_a_family_cannot_be_built_where_nothing_can_be_admitted():
    records = Records.from_arrow(pa.table({"id": ["a"], "group": ["g"], "y": [0], "signal.s": [0.5]}))
    with pytest.raises(InputError, match="primary verdict"):
        build_family(records, records.signals["s"])


@pytest.mark.parametrize("budget", [-1, 2**31, 1.5, True])
def test_a_budget_is_a_count(budget):
    with pytest.raises(InputError, match="budget"):
        Policy.plain(0.1, 0.2, budget=budget)


def test_the_observed_threshold_action_caps_the_eligible_and_silences_the_rest():
    columns = {
        "id": list("abcd"),
        "group": list("abcd"),
        "y": [1, 1, -1, 1],
        "signal.s": [0.9, 0.8, 0.7, 0.1],
        "delta_r": [0.5, 0.05, 0.2, 0.3],
        "kl": [0.01, 0.9, 0.02, 0.0],
    }
    records = Records.from_arrow(pa.table(columns))
    gate = ObservedThreshold(trust=0.7, kl=0.02, ratio=0.1)
    eligible, delta_r, kl = gate.apply(records, records.signals["s"])
    assert eligible.tolist() == [True, False, True, False]
    assert delta_r.tolist() == [0.1, 0.0, 0.1, 0.0]
    assert kl.tolist() == [0.01, 0.0, 0.02, 0.0]
    fitted = ObservedThreshold.fit(records, records.signals["s"], q_trust=0.5, q_kl=1.0, q_ratio=0.0)
    assert fitted == ObservedThreshold(trust=0.75, kl=0.9, ratio=0.05)
    with pytest.raises(InputError, match="delta_r"):
        gate.apply(Records.from_arrow(pa.table(columns).drop_columns(["kl"])), records.signals["s"])
