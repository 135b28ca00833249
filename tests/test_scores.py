"""Scores without labels: what they compute, that cutting changes no bit, and how well the latent one learns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import records, tiny, without, world
from vapo.errors import InputError
from vapo.records import Records, Source
from vapo.scores import (
    FittedScore,
    ScoreRule,
    check_inputs,
    fit_score,
    register_score,
    score_names,
    score_needs_fit,
)

BUILT_IN = ["signal:conf", "mean", "weighted:conf=2,judge=1", "rank-mean", "dawid-skene"]


@pytest.mark.parametrize("spec", BUILT_IN)
def test_a_score_gives_the_same_bits_however_the_records_are_cut(spec):
    design = Records.from_arrow(world(500, prefix="d")[0])
    fresh = Records.from_arrow(world(501, seed=1)[0])
    fitted = FittedScore.from_dict(fit_score(spec, design).as_dict())
    whole = fitted.apply(fresh)
    assert ((whole >= 0) & (whole <= 1)).all()
    for size in (1, 7, 64, 500):
        pieces = [fitted.apply(fresh.take(rows)) for rows in fresh.slices(size)]
        assert np.array_equal(np.concatenate(pieces), whole)


@pytest.mark.parametrize("spec", BUILT_IN)
def test_a_score_survives_being_written_down(spec):
    from vapo._internal.keyed import canonical_json

    design = Records.from_arrow(world(300)[0])
    fitted = fit_score(spec, design)
    import json

    again = FittedScore.from_dict(json.loads(canonical_json(fitted.as_dict())))
    assert np.array_equal(again.apply(design), fitted.apply(design))


def test_no_score_sees_the_secondary():
    table, _ = world(300)
    seeing, blind = Records.from_arrow(table), Records.from_arrow(without(table, "y2", "c2"))
    for spec in BUILT_IN:
        assert np.array_equal(fit_score(spec, seeing).apply(seeing), fit_score(spec, blind).apply(blind))


def test_the_mean_is_of_distinct_signals_and_weights_are_relative():
    table = tiny(**{"signal.other": [0.1, 0.2, 0.3, 0.4], "verdict.v": [1, 1, -1, 1]})
    some = Records.from_arrow(table)
    assert fit_score("mean", some).apply(some).round(12).tolist() == [0.666666666667, 0.2, 0.3, 0.3]
    one = fit_score("weighted:conf=3,other=1", some).apply(some)
    assert one.round(12).tolist() == [0.7, 0.35, 0.525, 0.475]
    assert fit_score("signal:v", some).apply(some).tolist() == [1.0, 0.0, 0.0, 0.0]


def test_the_rank_mean_only_looks_at_ranks():
    table, _ = world(400)
    plain = Records.from_arrow(table)
    squeezed = pa.array(np.asarray(table.column("signal.conf")) ** 3)
    bent = Records.from_arrow(table.set_column(3, "signal.conf", squeezed))
    ranks = fit_score("rank-mean", plain).apply(plain)
    assert np.allclose(ranks, fit_score("rank-mean", bent).apply(bent))
    conf = plain.signals["conf"]
    alone = without(table, "verdict.judge")
    only = Records.from_arrow(alone)
    order = fit_score("rank-mean", only).apply(only)
    assert np.array_equal(np.argsort(order, kind="stable"), np.argsort(conf, kind="stable"))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nonsense", "a score among"),
        ("signal", "signal:NAME"),
        ("signal:none", "one of the signals"),
        ("weighted:conf", "NAME=WEIGHT"),
        ("weighted:conf=x", "NAME=WEIGHT"),
        ("weighted:conf=nan", "weights >= 0"),
        ("weighted:conf=inf", "weights >= 0"),
        ("weighted:conf=-1", "weights >= 0"),
        ("weighted:conf=0", "weights >= 0"),
        ("weighted:conf=1,conf=2", "twice"),
        ("weighted:none=1", "one of the signals"),
    ],
)
def test_a_score_that_cannot_be_is_refused(spec, said):
    with pytest.raises(InputError, match=said):
        fit_score(spec, records())


def test_which_scores_learn_from_the_design_split_is_known():
    assert {spec: score_needs_fit(spec) for spec in BUILT_IN} == {
        "signal:conf": False,
        "mean": False,
        "weighted:conf=2,judge=1": False,
        "rank-mean": True,
        "dawid-skene": True,
    }


@pytest.mark.parametrize("value", [np.nan, 1.5, -0.1, np.inf])
def test_a_score_of_ones_own_that_leaves_the_unit_interval_is_refused(value):
    register_score("stray", ScoreRule(fit=lambda *_: {}, apply=lambda r, *_: np.full(len(r), value)))
    with pytest.raises(InputError, match=r"'stray' to give a number in \[0, 1\]"):
        fit_score("stray", records()).apply(records())
    register_score("short", ScoreRule(fit=lambda *_: {}, apply=lambda r, *_: np.zeros(1)))
    with pytest.raises(InputError, match="1 scores for 4 records"):
        fit_score("short", records()).apply(records())
    assert "stray" in score_names()
    with pytest.raises(InputError, match="colon"):
        register_score("a:b", ScoreRule(fit=lambda *_: {}, apply=lambda r, *_: np.zeros(len(r))))


# What stands behind a score

FIVE_VIEWS = {
    "id": [str(i) for i in range(12)],
    "group": [str(i) for i in range(12)],
    "y": [1] * 12,
    "signal.consistency": [0.2, 0.4, 0.6, 0.8, 1.0, 0.2, 0.4, 0.6, 0.8, 1.0, 0.2, 0.4],
    "signal.agreement": [0.8, 0.6, 0.6, 0.8, 1.0, 0.8, 0.6, 0.6, 0.8, 1.0, 0.8, 0.6],
}


def test_a_signal_that_is_a_function_of_another_is_refused_unless_waived():
    some = Records.from_arrow(pa.table(FIVE_VIEWS))
    inputs = ("consistency", "agreement")
    with pytest.raises(InputError, match="'agreement' is a function of 'consistency'"):
        check_inputs(some, inputs)
    assert check_inputs(some, inputs, waive_redundancy=True) == [
        "'agreement' is a function of 'consistency' on these records"
    ]
    assert check_inputs(some, ("agreement",)) == []
    same = Records.from_arrow(pa.table(FIVE_VIEWS | {"signal.agreement": [1.0] * 12}))
    with pytest.raises(InputError, match=r"'agreement' is a function of 'consistency' .*: it never changes"):
        check_inputs(same, inputs)


@pytest.mark.parametrize(
    "declared",
    [
        {},
        {"verdict.judge": Source("m", "1" * 64), "judge": Source("m", "2" * 64)},
        {"verdict.judge": Source("m", "1" * 64), "judge": Source("n", "1" * 64)},
    ],
)
def test_a_verifier_may_not_be_signal_and_secondary_at_once(declared):
    table = tiny(**{"verdict.judge": [1, -1, 1, 1], "y2": [1] * 4, "y2_source": ["judge"] * 4})
    some = Records.from_arrow(table, sources=declared)
    with pytest.raises(InputError, match="not also a signal"):
        check_inputs(some, ("conf", "judge"))
    assert check_inputs(some, ("conf",)) == []


def test_a_signal_that_the_records_lack_is_named():
    with pytest.raises(InputError, match="one of the signals conf"):
        check_inputs(records(), ("conf", "gone"))
    with pytest.raises(InputError, match="one of the signals"):
        fit_score("mean", Records.from_arrow(tiny(**{"verdict.v": [1] * 4}))).apply(records())


# The latent class


def panel(n, rates, *, share=0.6, seed=0, missing=0.0):
    """A primary and further verdicts with given error rates (on wrong, on right answers), independent given truth."""
    rng = np.random.default_rng(seed)
    truth = rng.random(n) < share
    columns = {"id": [str(i) for i in range(n)], "group": [str(i) for i in range(n)]}
    for number, (false_yes, false_no) in enumerate(rates):
        says = np.where(truth, rng.random(n) >= false_no, rng.random(n) < false_yes)
        votes = np.where(says, 1, -1)
        if number:
            votes = np.where(rng.random(n) < missing, 0, votes)
        columns["y" if not number else f"verdict.v{number}"] = votes
    return Records.from_arrow(pa.table(columns)), truth


RATES = [(0.20, 0.08), (0.30, 0.10), (0.05, 0.25), (0.15, 0.15)]


def fitted_rates(params):
    return [(table[0][1], table[1][0]) for table in params["tables"]]


@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_latent_class_finds_the_error_rates_of_every_verifier(missing):
    some, _ = panel(40_000, RATES, seed=3, missing=missing)
    params = fit_score("dawid-skene", some).params
    assert params["prior"] == pytest.approx(0.6, abs=0.02)
    assert np.allclose(fitted_rates(params), RATES, atol=0.025 if not missing else 0.05)


def test_the_latent_posterior_is_a_calibrated_chance_that_the_primary_is_right():
    design, _ = panel(20_000, RATES, seed=4)
    some, truth = panel(20_000, RATES, seed=5)
    chance = fit_score("dawid-skene", design).apply(some)
    right = (some.y > 0) == truth
    for low in np.arange(0, 1, 0.2):
        cell = (chance >= low) & (chance < low + 0.2)
        if cell.sum() > 300:
            assert right[cell].mean() == pytest.approx(chance[cell].mean(), abs=0.1)
    mean = fit_score("mean", design).apply(some)
    best = np.argsort(-chance, kind="stable")[:10_000]
    usual = np.argsort(-mean, kind="stable")[:10_000]
    assert right[best].mean() >= right[usual].mean()


def test_a_verifier_that_rarely_says_yes_is_still_heard():
    some, _ = panel(40_000, [(0.05, 0.2), (0.02, 0.3), (0.1, 0.1)], share=0.06, seed=6)
    params = fit_score("dawid-skene", some).params
    assert np.allclose(fitted_rates(params), [(0.05, 0.2), (0.02, 0.3), (0.1, 0.1)], atol=0.08)


def test_a_verifier_that_always_said_yes_on_design_can_say_no_later():
    table, _ = world(300)
    always = Records.from_arrow(table.set_column(4, "verdict.judge", pa.array([1] * 300)))
    score = fit_score("dawid-skene", always)
    never = Records.from_arrow(table.set_column(4, "verdict.judge", pa.array([-1] * 300)))
    seen, unseen = score.apply(always), score.apply(never)
    assert np.isfinite(unseen).all()
    assert not np.array_equal(seen, unseen)


def test_a_graded_signal_with_most_of_its_mass_on_one_value_still_counts():
    rng = np.random.default_rng(7)
    some, truth = panel(5000, RATES[:2], seed=8)
    right = (some.y > 0) == truth
    spike = np.where(right & (rng.random(5000) < 0.2), rng.uniform(0.5, 1, 5000), 0.0)
    table = some.to_arrow().append_column("signal.spike", pa.array(spike))
    fitted = fit_score("dawid-skene", Records.from_arrow(table))
    assert len(fitted.params["edges"]["spike"]) >= 1


def test_without_a_primary_verdict_the_score_is_nothing_and_nothing_is_learnt_from_it():
    some, _ = panel(2000, RATES, seed=9)
    silent = Records.from_arrow(
        pa.concat_tables(
            [
                some.to_arrow(),
                Records.from_arrow(
                    pa.table(
                        {
                            "id": ["s"],
                            "group": ["s"],
                            "y": [0],
                            **{f"verdict.v{i}": [1] for i in (1, 2, 3)},
                            "window": ["0"],
                            "order": [9999],
                        }
                    )
                )
                .to_arrow()
                .select(some.to_arrow().column_names),
            ]
        )
    )
    fitted = fit_score("dawid-skene", silent)
    assert fitted.apply(silent)[-1] == 0.0
    assert fitted.params == fit_score("dawid-skene", some).params
    with pytest.raises(InputError, match="primary verdicts"):
        fit_score("dawid-skene", records(y=[0, 0, 0, 0]))


@settings(max_examples=40)
@given(st.integers(1, 40), st.integers(0, 10_000))
def test_the_latent_class_gives_chances_on_any_small_data(n, seed):
    rng = np.random.default_rng(seed)
    columns = {
        "id": [str(i) for i in range(n)],
        "group": [str(i) for i in range(n)],
        "y": rng.choice([-1, 1], n),
        "signal.s": rng.choice([0.0, 0.5, 1.0], n),
        "verdict.v": rng.choice([-1, 0, 1], n),
        "verdict.w": rng.choice([-1, 0, 1], n),
        "verdict.w.score": pa.array(rng.choice([0.0, 0.3, 1.0, np.nan], n), from_pandas=True),
    }
    some = Records.from_arrow(pa.table(columns))
    chance = fit_score("dawid-skene", some).apply(some)
    assert np.isfinite(chance).all()
    assert ((chance >= 0) & (chance <= 1)).all()


@pytest.mark.filterwarnings("ignore")  # the peer trips over its own dependencies' deprecations
def test_the_latent_class_agrees_with_crowd_kit_where_that_is_installed():
    crowdkit = pytest.importorskip("crowdkit.aggregation", reason="needs the extra `crowdkit`")
    import pandas as pd

    some, truth = panel(4000, RATES, seed=10)
    votes = {"primary": some.y, **{name: values for name, values in some.verdicts.items()}}
    frame = pd.concat(
        pd.DataFrame({"worker": name, "task": np.arange(len(some)), "label": values > 0})
        for name, values in votes.items()
    )
    model = crowdkit.DawidSkene(n_iter=500, tol=1e-10)
    theirs = model.fit_predict_proba(frame)[True].to_numpy()
    ours = fit_score("dawid-skene", some).apply(some)
    yes = np.where(some.y > 0, ours, 1 - ours)
    assert np.corrcoef(theirs, yes)[0, 1] > 0.999
    assert np.abs(theirs - yes).max() < 0.02
    assert ((theirs > 0.5) == (yes > 0.5)).mean() > 0.995
    assert ((yes > 0.5) == truth).mean() >= ((theirs > 0.5) == truth).mean() - 0.005
