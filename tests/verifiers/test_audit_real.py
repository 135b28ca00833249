"""On real verdicts the audit's numbers are those that a plain count over the rows gives."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest

from tests.verifiers.shared import FILES, rows, verdict_file
from vapo.verifiers.audit import audit
from vapo.verifiers.audit_file import read_verdicts


def said(row, name):
    """A verifier's verdict by the file alone; None for none."""
    verdict = row["primary"] if name == "primary" else row["secondary"][name]["v"]
    return verdict or None


def share(bits):
    bits = list(bits)
    return sum(bits) / len(bits) if bits else None


def phi(pairs):
    """Pearson's correlation of two columns of bits, from the four counts of their table."""
    cells = [[sum(p == (a, b) for p in pairs) for b in (False, True)] for a in (False, True)]
    (none, second), (first, both) = cells
    spread = (none + second) * (first + both) * (none + first) * (second + both)
    return (none * both - first * second) / math.sqrt(spread) if spread else None


def overlap(pairs):
    """The share of the rarer errors that are the other's too, beyond chance; less than chance: the correlation."""
    together = phi(pairs)
    if together is None or together <= 0:
        return together
    rare, common = sorted(share(errors) for errors in zip(*pairs, strict=True))
    return (share(a and b for a, b in pairs) / rare - common) / (1 - common)


def anova_icc(values, groups):
    """One-way random-effects intraclass correlation with the adjusted group size, from sums over groups."""
    members = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        members[group].append(float(value))
    n, k = len(values), len(members)
    grand = sum(map(sum, members.values())) / n
    between = sum(len(m) * (sum(m) / len(m) - grand) ** 2 for m in members.values()) / (k - 1)
    within = sum((v - sum(m) / len(m)) ** 2 for m in members.values() for v in m) / (n - k)
    size = (n - sum(len(m) ** 2 for m in members.values()) / n) / (k - 1)
    return (between - within) / (between + (size - 1) * within)


def same(found, expected):
    if expected is None:
        assert found is None
    else:
        assert found == pytest.approx(expected, abs=1e-12)


@pytest.fixture(scope="module", params=FILES)
def case(request):
    path = verdict_file(request.param)
    return rows(path), audit(read_verdicts(path))


def test_error_rates_are_those_that_a_plain_count_gives(case):
    file, found = case
    assert (found["items"], found["groups"]) == (len(file), len({row["group"] for row in file}))
    names = list(found["verifiers"])
    assert names == ["primary", *file[0]["secondary"]]
    for name in names:
        judged = [(said(row, name), row["label"], row["group"]) for row in file if said(row, name)]
        verifier = found["verifiers"][name]
        assert verifier["judged"] == len(judged) == len(file) - verifier["silent"]
        same(verifier["error"]["rate"], share(v != z for v, z, _ in judged))
        same(verifier["false_positive"]["rate"], share(v > 0 for v, z, _ in judged if z < 0))
        same(verifier["false_negative"]["rate"], share(v < 0 for v, z, _ in judged if z > 0))
        accepted = [share(v > 0 for v, z, _ in judged if z == label) for label in (1, -1)]
        same(verifier["informedness"]["value"], accepted[0] - accepted[1])
        same(verifier["wrong_when_it_says_right"]["rate"], share(z < 0 for v, z, _ in judged if v > 0))
        same(verifier["wrong_when_it_says_wrong"]["rate"], share(z > 0 for v, z, _ in judged if v < 0))
        same(verifier["icc"], anova_icc([v != z for v, z, _ in judged], [g for _, _, g in judged]))
        for rate in ("error", "false_positive", "false_negative"):
            assert verifier[rate]["low"] <= verifier[rate]["rate"] <= verifier[rate]["high"]


def test_joint_failures_and_correlations_are_those_that_a_plain_count_gives(case):
    file, found = case
    pairs = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    assert list(pairs) == list(combinations(found["verifiers"], 2))
    for (one, two), pair in pairs.items():
        both = [
            (said(row, one) != row["label"], said(row, two) != row["label"], row["label"])
            for row in file
            if said(row, one) and said(row, two)
        ]
        assert pair["both_judged"] == pair["errors"]["items"] == len(both)
        same(pair["joint_failures"]["rate"], share(a and b for a, b, _ in both))
        assert pair["errors"]["joint_failures"] == sum(a and b for a, b, _ in both)
        same(pair["agreement"], share(a == b for a, b, _ in both))
        same(pair["wrong_when_confirmed"]["rate"], share(a for a, b, _ in both if a == b))
        for side, label in (("right", 1), ("wrong", -1)):
            expected = phi([(a, b) for a, b, z in both if z == label])
            same(pair["errors"][f"correlation_{side}"], expected)
            same(pair[f"correlation_{side}"]["value"], expected)
            same(pair[f"overlap_{side}"]["value"], overlap([(a, b) for a, b, z in both if z == label]))
        independent = 0.0
        for label in (1, -1):
            those = [(a, b) for a, b, z in both if z == label]
            if those:
                independent += share(a for a, _ in those) * share(b for _, b in those) * len(those)
        same(pair["joint_if_independent"], independent / len(both))


def test_calibration_is_that_of_a_plain_count(case):
    file, found = case
    for name, verifier in found["verifiers"].items():
        graded = [
            (row["primary_score"] if name == "primary" else row["secondary"][name]["s"], row["label"] > 0)
            for row in file
        ]
        graded = [(score, right) for score, right in graded if score is not None]
        if not graded:
            assert verifier["calibration"] is None
            continue
        same(verifier["calibration"]["brier"], share((score - right) ** 2 for score, right in graded))
        assert sum(part["items"] for part in verifier["calibration"]["bins"]) == len(graded)
        for part in verifier["calibration"]["bins"]:
            here = [
                (s, r) for s, r in graded if part["low"] <= s < part["high"] or (s == 1.0 == part["high"])
            ]
            assert (part["items"], part["right"]) == (len(here), pytest.approx(share(r for _, r in here)))
        low = sorted(score for score, right in graded if not right)
        high = [score for score, right in graded if right]
        wins = sum((bisect_left(low, score) + bisect_right(low, score)) / 2 for score in high)
        same(verifier["calibration"]["auroc"]["value"], wins / len(high) / len(low))


def test_estimates_without_labels_do_not_look_at_labels(case):
    _, found = case
    verdicts = read_verdicts(verdict_file(found["file"].rpartition("/")[2]))
    blind = audit(dataclasses.replace(verdicts, label=np.zeros(len(verdicts), np.int8)))
    assert blind["estimated"] == found["estimated"]
    assert blind["labelled"] == 0
    assert all(verifier["error"]["rate"] is None for verifier in blind["verifiers"].values())
    assert {entry["about"] for entry in blind["advice"]} >= {"labels", "primary", "secondary"}


def test_the_advice_names_what_is_known_of_these_files():
    by_name = {name: audit(read_verdicts(verdict_file(name))) for name in FILES}
    advice = {name: {entry["about"]: entry for entry in found["advice"]} for name, found in by_name.items()}
    open_qa, grade_school, hard = (advice[name] for name in FILES)
    # Two models of one house grade alike; the string checkers of the hard pairs are one another's kin.
    alike = {
        name: [f"{pair['first']}+{pair['second']}" for pair in found["pairs"] if pair["distinct"] == "alike"]
        for name, found in by_name.items()
    }
    assert "primary+davinci3" in alike[FILES[0]]
    # What math-verify turns down there though it is right, the stricter ones turn down with it.
    assert alike[FILES[2]] == ["primary+hendrycks", "primary+prm800k", "hendrycks+prm800k"]
    # Sums that are right in between say nothing about the answer, nor does a comparison that never says yes.
    assert grade_school["uninformative"]["choice"] == ["calc"]
    assert hard["uninformative"]["choice"] == ["exact"]
    assert "uninformative" not in open_qa
    # The best single peer beats the vote of three in use, and another peer halves its risk.
    assert grade_school["primary"]["choice"] == "peer_175b_verification"
    assert grade_school["secondary"]["choice"] == "peer_6b_verification"
    # A strict comparison confirms a yes, though it is no use for a no.
    assert open_qa["secondary"]["choice"] is None
    assert open_qa["secondary, right"]["choice"] == "em"
    # A yes of math-verify can be believed there, a no cannot, and nothing tells which no is wrong.
    assert hard["signs"]["choice"] == ["right"]
    assert hard["gate"]["choice"] == "nothing to select on"
