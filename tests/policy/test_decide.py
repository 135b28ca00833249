"""The one decision function against a loop, and what it promises whatever comes in."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference.policy_reference import Rollout, Side, walk
from tests.samples import records as sample
from vapo.errors import InputError
from vapo.policy import ABOVE_ALL, Action, Answers, Family, Policy, Reason, Thresholds, ask, decide, settle
from vapo.records import Records

LEVELS = [0.0, 0.1, 0.25, 0.3, 0.5, 0.7, 0.9, 1.0]
"""Few values, so that scores and thresholds are often equal."""
numbers = st.sampled_from(LEVELS)


@st.composite
def sides(draw: st.DrawFn) -> Side:
    thresholds = st.sampled_from([*LEVELS, ABOVE_ALL])
    low, high = sorted([draw(thresholds), draw(thresholds)])
    return Side(low, high, draw(numbers))


policies = st.tuples(sides(), sides(), st.integers(0, 4), st.booleans())


@st.composite
def rollouts(draw: st.DrawFn, most: int = 30) -> list[Rollout]:
    filtered, named = draw(st.booleans()), draw(st.booleans())
    found = []
    for window in range(draw(st.integers(1, 4))):
        for _ in range(draw(st.integers(0, most // 4))):
            y2 = draw(st.sampled_from([-1, 0, 1]))
            found.append(
                Rollout(
                    window,
                    draw(st.sampled_from([-1, 0, 1])),
                    draw(numbers),
                    y2,
                    draw(numbers),
                    draw(st.sampled_from(["s", "t"])) if named else None,
                    draw(st.sampled_from([0.0, 0.5])) if filtered else None,
                )
            )
    return found or [Rollout(0, 1, 0.5, 1, 1.0, "s" if named else None, 0.5 if filtered else None)]


def build(pairs: list[tuple[Side, Side, int, bool]]) -> Family:
    policies = []
    for pos, neg, budget, plain in pairs:
        both = (Thresholds(*pos), Thresholds(*(pos if plain else neg)))
        policies.append(Policy(*both, budget))
    return Family.of(policies)


def take_in(found: list[Rollout]) -> Records:
    names = [str(i) for i in range(len(found))]
    columns = {
        "id": names,
        "group": names,
        "window": [f"w{r.window}" for r in found],
        "y": [r.y for r in found],
        "signal.s": [r.score for r in found],
        "y2": [r.y2 for r in found],
        "c2": [r.c2 for r in found],
    }
    if found[0].source is not None:
        columns["y2_source"] = [r.source for r in found]
    if found[0].delta_r is not None:
        columns["delta_r"] = [r.delta_r for r in found]
    return Records.from_arrow(pa.table(columns))


@settings(max_examples=200)
@given(
    rollouts(),
    st.lists(policies, min_size=1, max_size=12),
    st.sampled_from([None, ("s",), ("s", "t"), ("y2",), ()]),
    st.integers(0, 3),
)
def test_every_candidate_does_what_a_plain_loop_does(found, pairs, trusted, spent):
    family, records = build(pairs), take_in(found)
    carried = np.full(len(family), spent)
    actions = decide(family, records, records.signals["s"], spent=carried, sources=trusted)
    for index, policy in enumerate(family.policies):
        pos, neg = (Side(t.low, t.high, t.second) for t in (policy.pos, policy.neg))
        wanted = walk(found, pos, neg, policy.budget, trusted, spent)
        reasons = [Reason(code) for code in actions.codes[index]]
        assert [(r.action.value, r.text) for r in reasons] == [w[:2] for w in wanted]
        before = policy.budget - actions.spent_before(index, spent)
        assert before.tolist() == [w[2] for w in wanted]
        assert (before - actions.appealed(index)).tolist() == [w[3] for w in wanted]
        assert actions.calls[index].sum() == sum(w[0] == "appeal" for w in wanted)


@given(rollouts(), st.lists(policies, min_size=1, max_size=6), st.lists(st.integers(1, 29), max_size=4))
def test_decisions_are_the_same_however_the_records_are_cut(found, pairs, cuts):
    family, records = build(pairs), take_in(found)
    whole = decide(family, records, records.signals["s"]).codes
    edges = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    parts, spent = [], np.zeros(len(family), np.int64)
    for first, end in pairwise(edges):
        if first and records.window[first] != records.window[first - 1]:
            spent[:] = 0
        part = records.take(slice(first, end))
        actions = decide(family, part, part.signals["s"], spent=spent)
        parts.append(actions.codes)
        spent = actions.calls[:, -1] + (spent if len(actions.starts) == 1 else 0)
    assert np.array_equal(np.concatenate(parts, axis=1), whole)


@given(rollouts(), policies)
def test_asking_never_looks_at_an_answer(found, pair):
    family, records = build([pair]), take_in(found)
    blind = ask(family, records.without_secondary(), records.signals["s"])
    seeing = ask(family, records, records.signals["s"])
    assert np.array_equal(blind.rows, seeing.rows)
    settled = settle(blind, records, Answers.of(records.secondary, len(records)))
    assert np.array_equal(settled.appealed(0), blind.rows)


@given(rollouts(), policies)
def test_a_record_without_a_primary_verdict_is_never_admitted(found, pair):
    family, records = build([pair]), take_in([r._replace(y=0) for r in found])
    yes = Answers(np.ones(len(records), np.int8), np.ones(len(records)), np.zeros(len(records), np.uint8))
    actions = settle(ask(family, records, records.signals["s"]), records, yes)
    assert not actions.admitted(0).any()
    assert not actions.sign(records.y).any()


def answered(verdict, confidence=1.0, failure=0):
    records = sample()
    requests = ask(Policy.plain(0.0, ABOVE_ALL, 0.5, budget=9), records, records.signals["conf"])
    one = Answers(
        np.full(4, verdict, np.int8), np.full(4, confidence, np.float64), np.full(4, failure, np.uint8)
    )
    return Reason(settle(requests, records, one).codes[0][0])


@pytest.mark.parametrize("confidence", [np.nan, np.inf, -0.5, 1.5])
def test_a_confidence_that_is_no_probability_never_confirms(confidence):
    assert answered(1, confidence) is Reason.SECONDARY_INVALID


@pytest.mark.parametrize(
    ("verdict", "failure"), [(2, 0), (-7, 0), (1, 99), (1, int(Reason.CONFIRMED)), (1, 1)]
)
def test_an_answer_outside_its_set_never_confirms(verdict, failure):
    assert answered(verdict, 1.0, failure) is Reason.SECONDARY_INVALID


def test_a_lost_call_is_spent_and_abstained_on():
    reason = answered(1, 1.0, int(Reason.SECONDARY_LOST))
    assert reason is Reason.SECONDARY_LOST
    assert reason.action is Action.APPEAL


@pytest.mark.parametrize("score", [np.nan, np.inf, -np.inf, 1.0000001, -0.1])
def test_a_score_outside_the_unit_interval_is_refused_and_never_accepted(score):
    records = sample()
    with pytest.raises(InputError, match=r"row 3.*a score in \[0, 1\]"):
        ask(Policy.plain(0.5, 0.5), records, np.array([0.1, 0.2, score, 0.3]))


def test_scores_and_answers_of_other_records_are_refused():
    records = sample()
    policy = Policy.plain(0.2, 0.9, budget=3)
    with pytest.raises(InputError, match="4 scores"):
        ask(policy, records, np.array([0.5]))
    requests = ask(policy, records, records.signals["conf"])
    with pytest.raises(InputError, match="4 records"):
        settle(requests, records, Answers.none(3))
    with pytest.raises(InputError, match="2 records"):
        settle(requests, records.take(slice(0, 2)))
    with pytest.raises(InputError, match="spent"):
        ask(policy, records, records.signals["conf"], spent=np.array([1, 2]))


def test_a_budget_is_spent_in_order_when_it_is_asked_for_whatever_comes_back():
    table = {
        "id": list("abcd"),
        "group": list("pqrs"),
        "y": [1, 1, 1, 1],
        "order": [4, 3, 2, 1],
        "signal.s": [0.5] * 4,
        "y2": [1, 1, 0, -1],
    }
    records = Records.from_arrow(pa.table(table))
    assert records.id.to_pylist() == ["d", "c", "b", "a"]
    reasons = decide(Policy.plain(0.2, 0.9, budget=2), records, records.signals["s"]).codes[0]
    assert [Reason(code).text for code in reasons] == [
        "secondary_disagrees",
        "secondary_missing",
        "budget_exhausted",
        "budget_exhausted",
    ]
