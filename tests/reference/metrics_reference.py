"""The metrics once more, one record at a time and in exact fractions: slow and hard to get wrong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any


def surfaces(variant: str, score: float) -> tuple[float, float, float]:
    """Trust weight, clip radius and KL price at the default parameters."""
    if variant == "identity":
        return 1.0, float("inf"), 0.0
    chi_w = 1 if variant in ("trust", "full") else 0
    chi_r = 1 if variant in ("clip-kl", "full") else 0
    w = 1 - chi_w * (1 - 0.10) * (1 - score)
    radius = 0.20 - chi_r * (0.20 - 0.02) * (1 - score)
    price = 0.01 + chi_r * (0.50 - 0.01) * (1 - score)
    return w, radius, price


def magnitude(variant: str, score: float, delta_r: float, kl: float, sign: int) -> float:
    if sign == 0:
        return 0.0
    w, radius, price = surfaces(variant, score)
    return max(0.0, w * min(delta_r, radius) - price * kl)


def alignment(sign: Sequence[int], magnitude: Sequence[float], label: Sequence[int]) -> dict[str, Any]:
    n = len(sign)
    g = [Fraction(m) * s * z if s else Fraction(0) for s, m, z in zip(sign, magnitude, label, strict=True)]
    bad = sum(1 for x in g if x < 0)
    good = sum(1 for x in g if x > 0)
    applied = sum(1 for x in g if x != 0)
    admitted = sum(1 for s in sign if s != 0)
    wrong = sum(1 for s, z in zip(sign, label, strict=True) if s * z < 0)
    harm = sum((m * 1 for m, x in zip(map(Fraction, magnitude), g, strict=True) if x < 0), Fraction(0))
    nothing = sum(1 for s, x in zip(sign, g, strict=True) if s != 0 and x == 0)

    def share(part: Fraction | int, whole: int) -> Fraction | None:
        return Fraction(part) / whole if whole else None

    return {
        "records": n,
        "admitted": admitted,
        "applied": applied,
        "helpful": good,
        "harmful": bad,
        "admitted_harmful": wrong,
        "U": share(sum(g, Fraction(0)), n),
        "P": share(sum((max(x, Fraction(0)) for x in g), Fraction(0)), n),
        "H": share(sum((max(-x, Fraction(0)) for x in g), Fraction(0)), n),
        "R": share(bad, n),
        "Z": share(sum(1 for x in g if x == 0), n),
        "C": share(applied, n),
        "coverage": share(admitted, n),
        "abstention_rate": share(n - admitted, n),
        "zero_magnitude_rate": share(nothing, n),
        "direction_accuracy": share(good, applied) or Fraction(0),
        "R_sel": share(bad, applied),
        "R_all": share(bad, n),
        "admitted_risk": share(wrong, admitted),
        "H_mag": share(harm, n),
    }


def select_top(
    score: Sequence[float], ids: Sequence[Any], count: int, eligible: Sequence[bool]
) -> list[bool]:
    ranked = sorted((i for i in range(len(ids)) if eligible[i]), key=lambda i: (-score[i], ids[i]))
    return [i in set(ranked[:count]) for i in range(len(ids))]


def intraclass_correlation(values: Sequence[float], group: Sequence[Any]) -> Fraction | None:
    members: dict[Any, list[Fraction]] = defaultdict(list)
    for value, name in zip(values, group, strict=True):
        members[name].append(Fraction(value))
    n, k = len(values), len(members)
    if k < 2 or n == k:
        return None
    grand = sum(map(Fraction, values), Fraction(0)) / n
    between = within = Fraction(0)
    for part in members.values():
        mean = sum(part, Fraction(0)) / len(part)
        between += len(part) * (mean - grand) ** 2
        within += sum(((x - mean) ** 2 for x in part), Fraction(0))
    between /= k - 1
    within /= n - k
    size = (n - Fraction(sum(len(part) ** 2 for part in members.values()), n)) / (k - 1)
    whole = between + (size - 1) * within
    return (between - within) / whole if whole else None


def bit_correlation(one: Sequence[int], two: Sequence[int]) -> float | None:
    n = len(one)
    if n == 0:
        return None
    a, b = Fraction(sum(one), n), Fraction(sum(two), n)
    covariance = sum(((x - a) * (y - b) for x, y in zip(one, two, strict=True)), Fraction(0)) / n
    spread = a * (1 - a) * b * (1 - b)
    return float(covariance) / float(spread) ** 0.5 if spread else None


def resample(rows: Sequence[tuple[Any, Any, float, float, float, float]], rng: Any) -> float | None:
    """One hierarchical resample of (seed, question, value, control, weight, control weight) rows."""
    nested: dict[Any, dict[Any, list[tuple[float, float, float, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for seed, question, *numbers in rows:
        nested[seed][question].append(tuple(numbers))
    seeds = list(nested)
    totals = [0.0, 0.0, 0.0, 0.0]
    for _ in seeds:
        questions = list(nested[seeds[rng.integers(len(seeds))]].values())
        for _ in questions:
            for row in questions[rng.integers(len(questions))]:
                totals = [x + y for x, y in zip(totals, row, strict=True)]
    if totals[2] == 0 or totals[3] == 0:
        return None
    return totals[0] / totals[2] - totals[1] / totals[3]
