"""An audit reads what it is given, refuses what does not fit, and its intervals cover what they say."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pytest

from vapo._internal.files import write_table
from vapo.cli import run
from vapo.errors import InputError
from vapo.stats import binomial_rate
from vapo.verifiers.audit import audit
from vapo.verifiers.audit_file import Verdicts, read_verdicts, verdicts_of
from vapo.verifiers.audit_stats import auroc, calibration, clustered_rate, correlation


def recorded(**more):
    """Rows of recorded verdicts, as a file of them would hold."""
    rows = [
        {
            "id": f"a{n}",
            "group": f"q{n // 2}",
            "primary": (1, -1, None)[n % 3],
            "secondary": {
                "judge": {"v": 1, "s": 0.75, "calls": 1, "tokens_in": 10},
                "match": {"v": None, "s": None},
            },
            "label": 1 if n % 4 else -1,
            "meta": {"gold": n},
        }
        for n in range(12)
    ]
    rows[0] |= more
    return rows


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


# Reading


def test_recorded_verdicts_and_records_are_read_alike(tmp_path):
    one = read_verdicts(write(tmp_path / "recorded.jsonl", recorded()))
    columns = {
        "id": one.ids, "group": one.group, "y": one.votes[:, 0], "verdict.judge": one.votes[:, 1],
        "verdict.judge.score": [0.75] * 12, "verdict.match": one.votes[:, 2], "cost.judge.calls": [1] * 12,
        "cost.judge.tokens_in": [10] * 12,
    }  # fmt: skip
    write_table(pa.table(columns), tmp_path / "records.parquet")
    write_table(pa.table({"id": one.ids, "z": one.label}), tmp_path / "labels.csv")
    two = read_verdicts(tmp_path / "records.parquet", tmp_path / "labels.csv")
    assert one.names == two.names == ("primary", "judge", "match")
    found = [audit(dataclasses.replace(given, where="")) for given in (one, two)]
    assert found[0] == found[1]
    assert found[0]["verifiers"]["judge"]["cost"]["tokens_in"] == {"items": 12, "total": 120.0, "mean": 10.0}
    assert found[0]["verifiers"]["match"]["judged"] == 0


def test_an_answer_of_a_secondary_is_as_right_as_it_is_sure_on_its_side():
    found = verdicts_of(pa.table({"y": [1, 1, 1], "y2": [1, -1, 0], "c2": [0.75, 0.75, 0.5]}))
    assert found.names == ("primary", "y2")
    assert found.scores[:, 1].tolist()[:2] == [0.75, 0.25]
    assert np.isnan(found.scores[2, 1])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"primary": 2}, "row 1: field 'primary'"),
        ({"primary": True}, "field 'primary'"),
        ({"label": "yes"}, "row 1: field 'label'"),
        ({"secondary": {"judge": {"v": 3}}}, "row 1: field 'secondary.judge.v'"),
        ({"secondary": {"judge": {"v": 1, "s": 1.5}}}, "field 'secondary.judge.s'"),
        ({"secondary": {"judge": {"v": 1, "gold": 1}}}, "field 'secondary.judge'"),
        ({"secondary": {"judge": [1]}}, "field 'secondary.judge'"),
        ({"secondary": {"judge": 0}}, "row 1: field 'secondary.judge'"),
        ({"secondary": {"judge": {"v": 1, "calls": -1}}}, "field 'cost.judge.calls'"),
        ({"secondary": {"primary": {"v": 1}}}, "field 'secondary'"),
        ({"secondary": 7}, "row 1: field 'secondary'"),
        ({"id": "a1"}, "field 'id'"),
        ({"id": None}, "row 1: field 'id'"),
        ({"group": None}, "row 1: field 'group'"),
        ({"z": -1, "label": 1}, "row 1: field 'z'"),
    ],
)
def test_what_does_not_fit_is_named_by_row_and_field(change, named, tmp_path):
    with pytest.raises(InputError) as refused:
        audit(read_verdicts(write(tmp_path / "v.jsonl", recorded(**change))))
    assert named in str(refused.value)


@pytest.mark.parametrize(
    "columns",
    [{"id": ["a"]}, {"y": pa.array([], pa.int8())}, {"y": [1], "signal.s": [2.0]}, {"y": [1], "cost.judge": [1]},
     {"y": [1], "verdict.j.score": ["x"], "verdict.j": [1]}, {"y": [1], "cost.j.calls": ["inf"]},
     {"y": [1], "verdict.j.score": [0.5]}, {"y": [1], "cost.j.calls": [1]}, {"y": [1], "verdict.primary": [-1]},
     {"y": [1], "verdict.y2": [1], "y2": [-1]}],
)  # fmt: skip
def test_a_table_without_verdicts_or_with_nonsense_is_refused(columns):
    with pytest.raises(InputError):
        verdicts_of(pa.table(columns))


def test_labels_of_answers_that_are_not_there_are_refused(tmp_path):
    path = write(tmp_path / "v.jsonl", recorded())
    write_table(pa.table({"id": ["elsewhere"], "z": [1]}), tmp_path / "l.csv")
    with pytest.raises(InputError, match="elsewhere"):
        read_verdicts(path, tmp_path / "l.csv")


def test_labels_from_two_places_add_up_and_never_contradict_each_other(tmp_path):
    path = write(
        tmp_path / "v.jsonl",
        [row | {"label": row["label"] if n else None} for n, row in enumerate(recorded())],
    )
    write_table(pa.table({"id": ["a0", "a1"], "z": [-1, 1]}), tmp_path / "more.csv")
    found = read_verdicts(path, tmp_path / "more.csv")
    assert found.label.tolist() == [-1, *(row["label"] for row in recorded()[1:])]
    write_table(pa.table({"id": ["a1"], "z": [-1]}), tmp_path / "other.csv")
    with pytest.raises(InputError, match="'a1'"):
        read_verdicts(path, tmp_path / "other.csv")


def test_a_column_that_is_not_used_is_named_so_that_a_misspelt_one_is_seen(tmp_path, capsys):
    table = pa.table({"id": ["a"], "y": [1], "verdicts.j": [1], "window": [0], "c2": [0.5], "label": [1]})
    assert audit(verdicts_of(table))["unused"] == ["verdicts.j", "c2"]
    assert audit(verdicts_of(pa.table({"id": ["a"], "y": [1], "y2": [1], "c2": [0.5]})))["unused"] == []
    write_table(table, tmp_path / "v.parquet")
    assert run(["verifiers", "audit", str(tmp_path / "v.parquet")]) == 0
    assert "verdicts.j, c2" in capsys.readouterr().err


def test_another_verifier_can_be_looked_at_as_the_one_in_use():
    found = verdicts_of(
        pa.table({"y": [1, -1], "verdict.judge": [1, 1], "signal.s": [0.5, 0.6], "label": [1, 1]})
    )
    turned = found.with_primary("judge")
    assert (turned.names, turned.votes.tolist(), turned.signals) == (
        ("judge", "primary"),
        [[1, 1], [1, -1]],
        {},
    )
    assert found.with_primary("primary") is found
    with pytest.raises(InputError, match="a verifier among"):
        found.with_primary("nobody")


# What it finds


def sample(rng, items=600, per_group=3, share=0.6, rates=((0.1, 0.2), (0.1, 0.2)), together=0.0):
    """Verdicts whose errors are drawn by hand: (on right, on wrong) by verifier, some of them shared."""
    truth = np.where(rng.random(items) < share, 1, -1)
    common = rng.random(items)
    shared = rng.random(items) < together
    votes = []
    for on_right, on_wrong in rates:
        draw = np.where(shared, common, rng.random(items))
        votes.append(np.where(draw < np.where(truth > 0, on_right, on_wrong), -truth, truth))
    return Verdicts(
        tuple(str(n) for n in range(items)),
        np.array([str(n // per_group) for n in range(items)]),
        tuple(f"v{n}" for n in range(len(votes))),
        np.column_stack(votes).astype(np.int8),
        np.full((items, len(votes)), np.nan),
        truth.astype(np.int8),
    )


def advice(found):
    return {entry["about"]: entry["choice"] for entry in found["advice"]}


def test_verifiers_with_a_common_cause_are_alike_and_others_are_distinct():
    rng = np.random.default_rng(3)
    apart = audit(sample(rng, 3000))["pairs"][0]
    together = audit(sample(rng, 3000, together=0.9))["pairs"][0]
    assert (apart["distinct"], together["distinct"]) == ("distinct", "alike")
    assert audit(sample(rng, 12))["pairs"][0]["distinct"] == "unclear"
    copies = audit(sample(rng, 300, together=1.0))
    assert copies["pairs"][0]["distinct"] == "copies"
    assert advice(copies)["secondary"] is None


def test_a_verifier_whose_every_error_is_another_ones_too_is_alike_however_small_their_correlation():
    rng = np.random.default_rng(10)
    drawn = sample(rng, 4000, rates=((0.1, 0.1), (0.1, 0.1)))
    votes = drawn.votes.copy()
    lazy = rng.random(4000) < 0.6  # errs wherever the first does, and often beside that
    votes[:, 1] = np.where(lazy | (votes[:, 0] != drawn.label), -drawn.label, drawn.label)
    nested = audit(dataclasses.replace(drawn, votes=votes))["pairs"][0]
    assert nested["correlation_right"]["high"] < 0.5
    assert nested["overlap_right"]["value"] == pytest.approx(1.0)
    assert nested["distinct"] == "alike"
    votes[:, 1] = np.where(lazy, -drawn.label, drawn.label)
    assert audit(dataclasses.replace(drawn, votes=votes))["pairs"][0]["distinct"] == "distinct"


def test_what_errs_with_the_primary_is_no_secondary_even_where_it_lowers_the_risk():
    drawn = sample(np.random.default_rng(11), 4000, rates=((0.2, 0.2), (0.2, 0.2)), together=0.7)
    found = audit(drawn)
    alone, both = found["verifiers"]["v0"]["error"], found["pairs"][0]["wrong_when_confirmed"]
    assert both["high"] < alone["low"]
    assert advice(found)["secondary"] is None
    assert "go together" in next(entry["says"] for entry in found["advice"] if entry["about"] == "secondary")


def test_the_better_verifier_goes_first_unless_it_is_dearer_and_not_measurably_better():
    rng = np.random.default_rng(4)
    clear = sample(rng, 3000, rates=((0.3, 0.3), (0.1, 0.1), (0.1, 0.1)))
    assert advice(audit(clear))["primary"] in ("v1", "v2")
    cheap = dataclasses.replace(
        clear,
        costs={f"v{n}": {"tokens_in": np.full(3000, tokens)} for n, tokens in enumerate((1.0, 900.0, 20.0))},
    )
    assert advice(audit(cheap))["primary"] == "v2"
    even = sample(rng, 300, rates=((0.1, 0.1), (0.1, 0.1)))
    assert advice(audit(even))["primary"] == "v0"  # in use, and the other is not measurably better


def test_a_rarely_heard_verifier_is_not_proposed_as_primary():
    clear = sample(np.random.default_rng(5), 3000, rates=((0.2, 0.2), (0.0, 0.0)))
    votes = clear.votes.copy()
    votes[1000:, 1] = 0
    assert advice(audit(dataclasses.replace(clear, votes=votes)))["primary"] == "v0"


def hearing_half(easy, hard, other):
    """Two verifiers of which the second judges the easy half only, with error rates on both halves."""
    rng = np.random.default_rng(12)
    drawn = sample(rng, 1200, rates=((easy, easy), (other, other)))
    votes = drawn.votes.copy()
    votes[600:, 1] = 0
    votes[600:, 0] = np.where(rng.random(600) < hard, -drawn.label[600:], drawn.label[600:])
    return audit(dataclasses.replace(drawn, votes=votes))


def test_a_verifier_that_judges_the_easy_answers_only_is_compared_on_those():
    found = hearing_half(easy=0.05, hard=0.40, other=0.10)
    errors = {name: verifier["error"] for name, verifier in found["verifiers"].items()}
    assert errors["v1"]["high"] < errors["v0"]["low"]  # and yet it is the worse one
    assert advice(found)["primary"] == "v0"
    says = next(entry["says"] for entry in found["advice"] if entry["about"] == "primary")
    assert "errs no less on what both judge" in says
    better = hearing_half(easy=0.10, hard=0.40, other=0.05)
    says = next(entry["says"] for entry in better["advice"] if entry["about"] == "primary")
    assert advice(better)["primary"] == "v1"
    assert "On what both judge, v1 errs on" in says


def test_a_secondary_must_lower_the_risk_of_the_answers_that_it_judges():
    found = hearing_half(easy=0.10, hard=0.40, other=0.47)
    pair, alone = found["pairs"][0], found["verifiers"]["v0"]["error"]
    assert pair["errors"]["error_first"] < pair["wrong_when_confirmed"]["high"] < alone["low"]
    assert advice(found)["secondary"] is None
    assert not {"secondary, right", "secondary, wrong"} & set(advice(found))


@pytest.mark.parametrize("says", [1, -1])
def test_a_verifier_that_always_says_the_same_is_named_and_never_proposed(says):
    drawn = sample(np.random.default_rng(9), 3000, share=0.9, rates=((0.2, 0.2), (0.0, 0.0), (0.25, 0.25)))
    votes = drawn.votes.copy()
    votes[:, 1] = says
    found = audit(dataclasses.replace(drawn, votes=votes))
    given = advice(found)
    assert given["uninformative"] == ["v1"]
    # Nine of ten answers are right, so that the one that always says so errs least of all.
    assert says < 0 or found["verifiers"]["v1"]["error"]["high"] < found["verifiers"]["v0"]["error"]["low"]
    assert given["primary"] == "v0"
    assert given["secondary"] == "v2"
    assert given["distinct"] == ["v0+v2"]
    assert "uninformative" not in advice(audit(dataclasses.replace(first_four(drawn), votes=votes[:4])))


def first_four(drawn):
    """The first four answers only: too few to say of anybody that he tells nothing."""
    return dataclasses.replace(
        drawn, ids=drawn.ids[:4], group=drawn.group[:4], scores=drawn.scores[:4], label=drawn.label[:4]
    )


def test_a_gate_needs_something_that_tells_right_verdicts_from_wrong_ones():
    rng = np.random.default_rng(6)
    telling = audit(sample(rng, 3000, rates=((0.2, 0.2), (0.05, 0.05))))
    assert advice(telling)["gate"] == "v1"
    noise = dataclasses.replace(sample(rng, 3000, rates=((0.2, 0.2),)), signals={"noise": rng.random(3000)})
    assert advice(audit(noise))["gate"] == "nothing to select on"
    assert advice(audit(sample(rng, 3000, rates=((0.01, 0.01), (0.2, 0.2)))))["gate"] == "none needed"
    risks = [row["rate"] for row in telling["gate"]["selection"]]
    assert risks[0] > 0.15 > 0.05 > max(risks[1:])


def test_what_answers_appeals_is_neither_a_signal_nor_a_primary():
    drawn = sample(np.random.default_rng(8), 2000, rates=((0.2, 0.2), (0.25, 0.25), (0.01, 0.01)))
    columns = {
        "y": drawn.votes[:, 0],
        "verdict.judge": drawn.votes[:, 1],
        "y2": drawn.votes[:, 2],
        "z": drawn.label,
    }
    found = audit(verdicts_of(pa.table(columns)))
    assert set(found["gate"]["signals"]) == {"judge"}
    assert (advice(found)["primary"], advice(found)["secondary"]) == ("primary", "y2")
    blind = audit(verdicts_of(pa.table({name: values for name, values in columns.items() if name != "z"})))
    assert advice(blind)["primary"] == "primary"
    assert verdicts_of(pa.table(columns)).with_primary("y2").appealed == ""


def test_without_labels_rates_are_estimated_and_called_estimates():
    truth = sample(np.random.default_rng(7), 6000, rates=((0.1, 0.2), (0.2, 0.1), (0.3, 0.3)))
    blind = audit(dataclasses.replace(truth, label=np.zeros(6000, np.int8)))
    seen = audit(truth)
    for name in truth.names:
        estimated = blind["verifiers"][name]["estimated"]
        assert estimated["error"] == pytest.approx(seen["verifiers"][name]["error"]["rate"], abs=0.04)
        assert estimated["false_positive"] == pytest.approx(
            seen["verifiers"][name]["false_positive"]["rate"], abs=0.05
        )
    assert advice(blind)["primary"] in ("v0", "v1")
    assert all(abs(pair["excess_agreement"]) < 0.03 for pair in blind["pairs"])
    two = dataclasses.replace(
        truth, names=truth.names[:2], votes=truth.votes[:, :2], scores=truth.scores[:, :2],
        label=np.zeros(6000, np.int8),
    )  # fmt: skip
    assert audit(two)["estimated"] is None
    assert set(advice(audit(two))) == {"labels"}


def test_a_vote_of_the_others_looks_faultless_without_labels_and_the_advice_warns_of_it():
    drawn = sample(np.random.default_rng(17), 3000, rates=((0.2, 0.2), (0.2, 0.2), (0.2, 0.2)))
    vote = np.sign(drawn.votes.sum(axis=1, dtype=np.int64))[:, None].astype(np.int8)
    blind = dataclasses.replace(
        drawn, names=("vote", *drawn.names), votes=np.hstack([vote, drawn.votes]),
        scores=np.full((3000, 4), np.nan), label=np.zeros(3000, np.int8),
    )  # fmt: skip
    entry = next(entry for entry in audit(blind)["advice"] if entry["about"] == "primary")
    assert entry["choice"] == "vote"
    assert "a warning" in entry["says"]
    honest = audit(dataclasses.replace(drawn, label=np.zeros(3000, np.int8)))
    assert not any("a warning" in entry["says"] for entry in honest["advice"])


def test_an_audit_is_plain_data_whatever_is_missing():
    for columns in (
        {"y": [1]},
        {"y": [0, 0], "verdict.a": [0, 0], "verdict.b": [0, 0]},
        {"y": [1, -1], "label": [1, None]},
        {"y": [0, 0], "label": [1, -1], "verdict.a": [1, 0]},
        {"verdict.a": [1], "verdict.b": [1], "verdict.c": [-1]},
        {
            "y": [1, 1],
            "label": [1, 1],
            "primary_score": [0.5, 0.5],
            "secondary": ["{}", "{}"],
            "primary": [1, 1],
        },
    ):
        json.dumps(audit(verdicts_of(pa.table(columns))), allow_nan=False)


# Statistics


def test_an_interval_over_groups_of_one_is_clopper_and_pearsons():
    bits = [True] * 7 + [False] * 53
    found, exact = clustered_rate(bits, range(60)), binomial_rate(7, 60)
    assert found.design_effect == pytest.approx(60 / 59)
    wider = clustered_rate(bits, range(60)).low, clustered_rate(bits, range(60)).high
    assert (wider[0] <= exact.low, wider[1] >= exact.high) == (True, True)
    assert wider == pytest.approx((exact.low, exact.high), abs=2e-3)


def test_a_group_in_which_all_is_alike_counts_as_one_item():
    bits = np.repeat([True] * 7 + [False] * 53, 5)
    found, exact = clustered_rate(bits, np.repeat(np.arange(60), 5)), binomial_rate(7, 60)
    assert found.design_effect == pytest.approx(5 * 60 / 59)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=2e-3)
    none = clustered_rate([False] * 20, np.repeat(np.arange(4), 5))
    assert none.high == pytest.approx(binomial_rate(0, 4).high)
    assert clustered_rate([], []).rate is None


def clustered_bits(rng, groups, size, rate, icc):
    """Bits whose groups differ: the rate of a group is beta with this intraclass correlation."""
    spread = (1 - icc) / icc
    return (rng.random((groups, size)) < rng.beta(rate * spread, (1 - rate) * spread, (groups, 1))).ravel()


@pytest.mark.conformance
def test_intervals_over_groups_cover_what_they_say_and_those_that_ignore_groups_do_not(full_size):
    rng, reps = np.random.default_rng(11), 4000 if full_size else 600
    groups, size, rate = 80, 6, 0.15
    of = np.repeat(np.arange(groups), size)
    covered = ignoring = 0
    for _ in range(reps):
        bits = clustered_bits(rng, groups, size, rate, icc=0.3)
        found, naive = clustered_rate(bits, of), binomial_rate(int(bits.sum()), bits.size)
        covered += found.low <= rate <= found.high
        ignoring += naive.low <= rate <= naive.high
    print(f"rates: {covered / reps:.1%} of {reps}; ignoring groups: {ignoring / reps:.1%}")
    assert binomial_rate(covered, reps, level=0.999).high >= 0.95
    assert binomial_rate(ignoring, reps, level=0.999).high < 0.9


@pytest.mark.conformance
def test_intervals_of_auroc_and_correlation_cover_what_they_say(full_size):
    rng, reps = np.random.default_rng(12), 2000 if full_size else 400
    of = np.repeat(np.arange(100), 4)
    hits = {"auroc": 0, "correlation": 0}
    for _ in range(reps):
        positive = rng.random(400) < 0.4
        shift = np.repeat(rng.normal(0, 0.3, 100), 4)
        score = 1 / (1 + np.exp(-(rng.normal(0, 1, 400) + shift + positive)))
        # Both sides share the spread of groups, so a difference is normal with mean 1 and variance 2 (1 + 0.09).
        true = 0.5 * (1 + math.erf(1 / np.sqrt(2 * 1.09) / np.sqrt(2)))
        found = auroc(score, positive, of)
        hits["auroc"] += found.low <= true <= found.high
        one = rng.random(400) < 0.3
        two = np.where(rng.random(400) < 0.6, one, rng.random(400) < 0.3)
        both = correlation(one, two, of)
        hits["correlation"] += both.low <= 0.6 <= both.high
    print(f"of {reps}: {hits}")
    for name, count in hits.items():
        assert binomial_rate(count, reps, level=0.999).high >= 0.93, name


@pytest.mark.conformance
@pytest.mark.parametrize(("few", "many", "apart"), [(6, 6, 2.8), (7, 73, 2.3), (7, 73, 0.0), (15, 85, 2.0)])
def test_an_auroc_of_few_errors_covers_what_it_says(few, many, apart, full_size):
    rng, reps = np.random.default_rng(15), 4000 if full_size else 600
    positive, true = np.arange(few + many) < few, 0.5 * (1 + math.erf(apart / 2))
    covered = 0
    for _ in range(reps):
        found = auroc(rng.normal(0, 1, few + many) + positive * apart, positive, range(few + many))
        covered += found.low <= true <= found.high
    print(f"AUROC {true:.3f}, {few} and {many}: {covered / reps:.1%} of {reps}")
    assert binomial_rate(covered, reps, level=0.999).high >= 0.93


@pytest.mark.conformance
@pytest.mark.parametrize(("rate", "together"), [(0.05, 0.0), (0.05, 0.5), (0.03, 0.3), (0.2, 0.0)])
def test_a_correlation_of_few_errors_covers_what_it_says(rate, together, full_size):
    rng, reps = np.random.default_rng(16), 4000 if full_size else 600
    covered = known = 0
    for _ in range(reps):
        one = rng.random(400) < rate
        two = np.where(rng.random(400) < together, one, rng.random(400) < rate)
        found = correlation(one, two, range(400))
        known += found.low is not None
        covered += found.low is not None and found.low <= together <= found.high
    print(f"correlation {together} at errors of {rate:.0%}: {covered / known:.1%} of {known}")
    assert known > reps / 2
    assert binomial_rate(covered, known, level=0.999).high >= 0.93


def test_a_correlation_of_bits_is_pearsons_and_has_none_without_variation():
    rng = np.random.default_rng(13)
    one, two = rng.random((2, 200)) < 0.4
    assert correlation(one, two, range(200)).value == pytest.approx(np.corrcoef(one, two)[0, 1])
    assert correlation([True] * 5, one[:5], range(5)) == (None, None, None)
    same = correlation(one, one, range(200))
    assert (same.value, same.high) == pytest.approx((1.0, 1.0))
    assert 0.9 < same.low < 0.99  # 200 items cannot show that two verifiers never differ
    assert correlation(one, two, [0] * 200).low is None


def test_auroc_counts_ties_half_and_needs_both_sides():
    assert auroc([1, 1, 0], [True, False, False], list("abc")).value == 0.75
    assert auroc([0.5] * 4, [True, False, True, False], list("abcd")).value == 0.5
    assert auroc([0.5], [True], ["a"]) == (None, None, None)
    assert calibration([], [], []).brier is None


def test_two_items_show_nothing_about_a_score_however_well_it_separates_them():
    found = auroc([0.9, 0.1], [True, False], ["a", "b"])
    assert found == (1.0, pytest.approx(0.025), 1.0)
    assert auroc([0.1, 0.9], [True, False], ["a", "b"]) == (0.0, 0.0, pytest.approx(0.975))
    many = np.arange(200)
    assert auroc(many, many >= 100, many).low == pytest.approx(0.025**0.01)
    # Items of few groups are worth no more than these.
    assert auroc(many, many >= 100, many // 50).low == pytest.approx(0.025**0.5)


def test_a_handful_of_errors_shows_neither_a_common_cause_nor_its_absence():
    one, two = np.zeros((2, 1000), np.bool_)
    one[:4] = two[2:900] = True
    assert correlation(one, two, range(1000))[1:] == (None, None)
    one[:5] = True
    assert correlation(one, two, range(1000)).low is not None
    votes = np.ones((1000, 2), np.int8)
    votes[0, 0] = votes[1, 1] = -1  # one error each, and no more to go by
    truth = np.ones(1000, np.int8)
    names = tuple(str(n) for n in range(1000))
    given = Verdicts(names, np.array(names), ("a", "b"), votes, np.full((1000, 2), np.nan), truth)
    assert audit(given)["pairs"][0]["distinct"] == "unclear"


# On the command line


def test_the_command_prints_the_audit_and_its_advice(tmp_path, capsys):
    path = write(tmp_path / "v.jsonl", recorded())
    assert run(["verifiers", "audit", str(path), "--json"]) == 0
    out = capsys.readouterr()
    found = json.loads(out.out)
    assert found == audit(read_verdicts(path))
    assert all(entry["says"] in " ".join(out.err.split()) for entry in found["advice"])
    assert "Reliability" in out.err
    assert run(["verifiers", "audit", str(path), "--primary", "judge", "--rho", "0.5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gate"]["primary"] == "judge"


def test_the_list_names_judges_ensembles_and_templates(capsys):
    assert run(["verifiers", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = {entry["name"] for entry in found["verifiers"]}
    assert names >= {"Judge", "Majority", "DawidSkene", "Cascade", "Appeals", "NoisyVerifier"}
    assert "Verifier" not in names
    assert all(entry["about"] for entry in found["verifiers"])
    assert {form["name"] for form in found["templates"]} == {"equivalence", "correctness", "reasoned"}


@pytest.mark.parametrize(
    "words",
    [["audit"], ["list", "FILE"], ["audit", "nothing.jsonl"], ["audit", "FILE", "--primary", "nobody"],
     ["audit", "FILE", "--labels", "nothing.csv"], ["audit", "FILE", "--rho", "2"], ["other"]],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_bad_usage(words, tmp_path, capsys):
    path = write(tmp_path / "v.jsonl", recorded())
    assert run(["verifiers", *(str(path) if word == "FILE" else word for word in words)]) == 2
    assert "error:" in capsys.readouterr().err
