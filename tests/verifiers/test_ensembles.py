"""Ensembles decide as they say, cost what their members cost, and are as distinct as their members."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verifiers.stubs import Stub, items, matches_reference
from vapo._internal.keyed import keyed_fraction
from vapo.errors import InputError
from vapo.verifiers import Cost, Failure, Outcome
from vapo.verifiers.channels import Channel, NoisyVerifier
from vapo.verifiers.ensemble import Cascade, DawidSkene, Majority, Stage
from vapo.verifiers.ensemble_raters import Raters, fit_raters
from vapo.verifiers.exact import Exact
from vapo.verifiers.marker import FormatMarker
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.pool import Pool

ASKED = items(1)
FAILS = Outcome(failure=Failure.TIMEOUT, cost=Cost(1, 5, 0, 0.5))


def says(name, verdict, confidence=1.0):
    return Stub(lambda item: Outcome(verdict, confidence, cost=Cost(1, 10, 2, 0.25)), name)


def fails(name):
    return Stub(lambda item: FAILS, name)


@pytest.mark.parametrize(
    ("verdicts", "quorum", "verdict", "confidence"),
    [
        ((1, 1, -1), 1, 1, 2 / 3),
        ((-1, -1, -1), 3, -1, 1.0),
        ((1, 0, 0), 1, 1, 1 / 3),
        ((1, -1, 0), 1, None, None),
        ((1, 1, 0), 3, None, None),
        ((0, 0, 0), 1, None, None),
    ],
)
def test_a_majority_needs_more_on_one_side_and_its_quorum(verdicts, quorum, verdict, confidence):
    members = [says(str(n), v) if v else fails(str(n)) for n, v in enumerate(verdicts)]
    (outcome,) = Majority(members, quorum=quorum).verify(ASKED)
    assert outcome.verdict == verdict
    if verdict is not None:
        assert outcome.confidence == pytest.approx(confidence)
    else:
        assert outcome.failure is (Failure.REFUSED if 0 not in verdicts else outcome.failure)


def test_a_failed_member_names_the_failure_of_a_majority_without_verdicts():
    assert Majority([fails("a"), fails("b")]).verify(ASKED)[0].failure is Failure.TIMEOUT


def test_an_ensemble_costs_what_its_members_cost_and_no_more_calls_than_it_announces():
    three = Majority([says("a", 1), fails("b"), says("c", 1)])
    (outcome,) = three.verify(ASKED)
    assert outcome.cost == Cost(3, 25, 4, 1.0)
    assert three.most_calls == outcome.cost.calls  # who says nothing may cost a call
    (left,) = Cascade([says("a", 1, 0.4), Stage(fails("b"))]).verify(ASKED)  # the first is believed
    assert left.cost == Cost(1, 10, 2, 0.25)
    (open_,) = Cascade([Stage(says("a", 1, 0.4), confidence=0.5), fails("b")]).verify(ASKED)
    assert (open_.failure, open_.cost) == (Failure.TIMEOUT, Cost(2, 15, 2, 0.75))


def test_rules_cost_an_ensemble_no_call_and_are_free_to_be_asked_again():
    paid = says("a", 1)
    first = Cascade([Exact(), Pool(Numeric()), NoisyVerifier(FormatMarker(), Channel.make("none")), paid])
    assert (first.most_calls, first.honours_keys) == (1, False)
    paid.honours_keys, paid.most_calls = True, 3
    assert (first.most_calls, first.honours_keys) == (3, True)


def test_the_digest_of_an_ensemble_changes_with_a_member_the_order_and_the_rule():
    a, b, c = (says(name, 1) for name in "abc")
    rates = Raters(0.5, (0.9, 0.8), (0.1, 0.2))
    sources = [
        Majority([a, b]),
        Majority([b, a]),
        Majority([a, c]),
        Majority([a, b], quorum=2),
        Cascade([a, b]),
        Cascade([Stage(a, (1,)), b]),
        Cascade([Stage(a, (1,), 0.5), b]),
        DawidSkene([a, b], rates),
        DawidSkene([a, b], Raters(0.5, (0.9, 0.8), (0.1, 0.3))),
    ]
    assert len({ensemble.source.digest for ensemble in sources}) == len(sources)
    assert Majority([a, b]).source == Majority([a, b]).source


def test_one_verifier_twice_is_no_ensemble():
    for make in (Majority, Cascade, lambda members: DawidSkene(members, Raters(0.5, (0.9, 0.9), (0.1, 0.1)))):
        with pytest.raises(InputError, match="different digests"):
            make([says("a", 1), says("a", 1)])


def test_a_cascade_asks_the_dear_stage_only_about_what_the_cheap_one_left_open():
    cheap = Stub(matches_reference, "cheap")
    dear = Stub(lambda item: Outcome(verdict=1, confidence=0.9), "dear")
    batch = items(6, right=4)
    outcomes = Cascade([Stage(cheap, believes=(1,)), dear]).verify(batch)
    assert dear.asked == ["i4", "i5"]
    assert [outcome.verdict for outcome in outcomes] == [1] * 6
    assert [outcome.confidence for outcome in outcomes] == [1.0] * 4 + [0.9] * 2


def test_members_errors_are_drawn_by_record_for_the_ensemble_too():
    noisy = NoisyVerifier(says("a", 1), Channel.make("symmetric", 0.5))
    assert Majority([noisy, says("b", 1)]).by_id
    assert not Majority([says("a", 1), says("b", 1)]).by_id


def draws(rates, count, share, seed):
    """Verdicts of verifiers that err independently, and the truth, from keyed draws."""

    def draw(*what):
        return keyed_fraction(b"raters", f"{seed} {what}")

    truth = np.array([1 if draw("z", n) < share else -1 for n in range(count)])
    votes = np.array(
        [[1 if draw(k, n) < (right if truth[n] > 0 else wrong) else -1 for k, (right, wrong) in enumerate(rates)]
         for n in range(count)]
    )  # fmt: skip
    return votes, truth


def test_rates_are_found_without_labels_where_errors_are_independent():
    rates = [(0.95, 0.2), (0.8, 0.1), (0.7, 0.3), (0.9, 0.4)]
    votes, truth = draws(rates, 6000, 0.6, seed=1)
    votes[np.arange(6000) % 5 == 0, 3] = 0  # one of them is often silent
    found = fit_raters(votes)
    assert found.prior == pytest.approx((truth > 0).mean(), abs=0.04)
    for column in range(4):
        seen = votes[:, column] != 0
        assert found.yes_if_right[column] == pytest.approx(
            (votes[seen & (truth > 0), column] > 0).mean(), abs=0.04
        )
        assert found.yes_if_wrong[column] == pytest.approx(
            (votes[seen & (truth < 0), column] > 0).mean(), abs=0.04
        )


def test_the_posterior_is_bayes_rule_and_calibrated_where_its_rates_are_true():
    rates = [(0.95, 0.2), (0.8, 0.1), (0.7, 0.3)]
    votes, truth = draws(rates, 6000, 0.6, seed=2)
    chance = Raters(0.6, *zip(*rates, strict=True)).posterior(votes)
    by_hand = 0.6 * 0.95 * 0.2 * 0.7 / (0.6 * 0.95 * 0.2 * 0.7 + 0.4 * 0.2 * 0.9 * 0.3)
    assert chance[(votes == (1, -1, 1)).all(axis=1)][0] == pytest.approx(by_hand)
    assert chance.mean() == pytest.approx((truth > 0).mean(), abs=0.03)
    beats = ((chance > 0.5) == (truth > 0)).mean()
    assert all(beats >= (votes[:, column] == truth).mean() for column in range(3))


def test_an_ensemble_fitted_on_unlabelled_items_outvotes_two_poor_members():
    batch = items(900, right=450)
    key = iter("abc")
    members = [
        NoisyVerifier(Stub(matches_reference, f"m{rate}"), Channel.make("symmetric", rate, key=next(key)))
        for rate in (0.02, 0.35, 0.35)
    ]
    ensemble = DawidSkene.fit(members, batch)
    right = [
        (outcome.verdict == 1) is (number < 450) for number, outcome in enumerate(ensemble.verify(batch))
    ]
    majority = [
        (o.verdict == 1) is (number < 450) for number, o in enumerate(Majority(members).verify(batch))
    ]
    assert sum(right) > sum(majority) + 50
    with pytest.raises(InputError, match="at least 3"):
        DawidSkene.fit(members[:2], batch)


def test_an_empty_batch_has_no_outcomes():
    members = [says("a", 1), says("b", 1), says("c", 1)]
    for ensemble in (
        Majority(members), Cascade(members), DawidSkene(members, Raters(0.5, (0.9,) * 3, (0.1,) * 3))
    ):  # fmt: skip
        assert ensemble.verify([]) == []
