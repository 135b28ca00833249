"""What a file of verdicts says about the verifiers: how often each errs, and how much of it they have in common."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.stats import intraclass_correlation, verifier_errors
from vapo.verifiers.audit_advice import advise
from vapo.verifiers.audit_file import COSTS, Verdicts
from vapo.verifiers.audit_stats import (
    NOTHING,
    Calibration,
    ClusteredRate,
    Estimate,
    auroc,
    calibration,
    clustered_rate,
    correlation,
    overlap,
)
from vapo.verifiers.ensemble_raters import FEWEST, Raters, fit_raters

__all__ = ["ALIKE", "audit"]

ALIKE = 0.5
"""An overlap of errors from which on two verifiers are called alike, and below which distinct."""
_COVERAGES = (1.0, 0.75, 0.5, 0.25)

Bits = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


def audit(verdicts: Verdicts, *, rho: float = 0.08, level: float = 0.95) -> dict[str, Any]:
    """Measure verifiers against labels where there are any, and against each other.

    Args:
        verdicts: What they said; the first verifier is the one in use.
        rho: The share of harm that a gate would be asked to keep to; the advice speaks of it.
        level: Confidence of every two-sided interval; each of them stands for itself.

    Returns:
        Plain data, ready for JSON: `verifiers`, `pairs`, `estimated` (without labels), `gate` and `advice`.

    Example:
        >>> import pyarrow as pa
        >>> from vapo.verifiers.audit_file import verdicts_of
        >>> table = {"y": [1, 1, -1, 1], "verdict.judge": [1, -1, -1, 1], "label": [1, -1, -1, 1]}
        >>> found = audit(verdicts_of(pa.table(table)))
        >>> found["verifiers"]["primary"]["error"]["rate"], found["verifiers"]["judge"]["error"]["rate"]
        (0.25, 0.0)
    """
    group = np.unique(verdicts.group, return_inverse=True)[1]
    raters = fit_raters(verdicts.votes) if len(verdicts.names) >= FEWEST and verdicts.votes.any() else None
    found: dict[str, Any] = {
        "file": verdicts.where,
        "items": len(verdicts),
        "groups": int(group.max()) + 1,
        "labelled": int(np.count_nonzero(verdicts.label)),
        "right": int(np.count_nonzero(verdicts.label > 0)),
        "wrong": int(np.count_nonzero(verdicts.label < 0)),
        "level": level,
        "appealed": verdicts.appealed or None,
        "unused": list(verdicts.unused),
        "verifiers": {
            name: _verifier(verdicts, column, group, raters, level)
            for column, name in enumerate(verdicts.names)
        },
        "pairs": [
            _pair(verdicts, one, two, group, raters, level)
            for one, two in combinations(range(len(verdicts.names)), 2)
        ],
        "estimated": None if raters is None else raters.as_dict(),
        "gate": _gate(verdicts, group, rho, level),
    }
    return {**found, "advice": advise(found)}


def _rate(found: ClusteredRate) -> dict[str, Any]:
    return found._asdict()


def _estimate(found: Estimate) -> dict[str, Any]:
    return found._asdict()


def _verifier(
    verdicts: Verdicts, column: int, group: Ints, raters: Raters | None, level: float
) -> dict[str, Any]:
    said, label, score = verdicts.votes[:, column], verdicts.label, verdicts.scores[:, column]
    judged = (said != 0) & (label != 0)
    wrong = said != label

    def share(among: Bits, bits: Bits = wrong) -> dict[str, Any]:
        return _rate(clustered_rate(bits[among], group[among], level=level))

    graded = ~np.isnan(score) & (label != 0)
    estimated = None
    if raters is not None:
        missed, believed = 1.0 - raters.yes_if_right[column], raters.yes_if_wrong[column]
        error = raters.prior * missed + (1.0 - raters.prior) * believed
        estimated = {"error": error, "false_positive": believed, "false_negative": missed}
    on_wrong, on_right = share(judged & (label < 0)), share(judged & (label > 0))
    return {
        "judged": int(np.count_nonzero(said)),
        "silent": int(np.count_nonzero(said == 0)),
        "says_right": _share(said[said != 0] > 0),
        "error": share(judged),
        "false_positive": on_wrong,
        "false_negative": on_right,
        "informedness": _informedness(on_wrong, on_right),
        "wrong_when_it_says_right": share(judged & (said > 0)),
        "wrong_when_it_says_wrong": share(judged & (said < 0)),
        "icc": intraclass_correlation(wrong[judged], group[judged]) if judged.any() else None,
        "calibration": _calibration(calibration(score[graded], label[graded] > 0, group[graded], level=level))
        if graded.any()
        else None,
        "estimated": estimated,
        "cost": _cost(verdicts, verdicts.names[column]),
    }


def _informedness(on_wrong: dict[str, Any], on_right: dict[str, Any]) -> dict[str, Any]:
    """How much oftener it says right to right answers than to wrong ones; limits from those of both rates."""
    if not on_wrong["trials"] or not on_right["trials"]:
        return _estimate(NOTHING)
    value, high, low = (1.0 - on_wrong[end] - on_right[end] for end in ("rate", "low", "high"))
    return _estimate(Estimate(value, low, high))


def _calibration(found: Calibration) -> dict[str, Any]:
    return {
        "items": found.items,
        "brier": found.brier,
        "auroc": _estimate(found.auroc),
        "bins": [row._asdict() for row in found.bins],
    }


def _cost(verdicts: Verdicts, name: str) -> dict[str, Any] | None:
    kinds = verdicts.costs.get(name, {})
    found = {}
    for kind in COSTS:
        if kind in kinds and not np.isnan(kinds[kind]).all():
            known = kinds[kind][~np.isnan(kinds[kind])]
            found[kind] = {"items": int(known.size), "total": float(known.sum()), "mean": float(known.mean())}
    return found or None


def _pair(
    verdicts: Verdicts, one: int, two: int, group: Ints, raters: Raters | None, level: float
) -> dict[str, Any]:
    first, second, label = verdicts.votes[:, one], verdicts.votes[:, two], verdicts.label
    both = (first != 0) & (second != 0)
    known = both & (label != 0)
    agree = first == second
    miss_one, miss_two = first != label, second != label
    found: dict[str, Any] = {
        "first": verdicts.names[one],
        "second": verdicts.names[two],
        "both_judged": int(np.count_nonzero(both)),
        "agreement": _share(agree[both]),
        "excess_agreement": _excess(raters, one, two, agree[both]),
    }
    errors = verifier_errors(first[label != 0], second[label != 0], label[label != 0], group[label != 0])
    found["errors"] = errors.as_dict()
    sides = {"right": known & (label > 0), "wrong": known & (label < 0)}
    for side, among in sides.items():
        together = correlation(miss_one[among], miss_two[among], group[among], level=level)
        found[f"correlation_{side}"] = _estimate(together)
        found[f"overlap_{side}"] = _estimate(overlap(together, miss_one[among], miss_two[among]))
    joint = miss_one & miss_two
    found["joint_failures"] = _rate(clustered_rate(joint[known], group[known], level=level))
    found["joint_if_independent"] = (
        sum(miss_one[a].mean() * miss_two[a].mean() * a.sum() for a in sides.values() if a.any())
        / known.sum()
        if known.any()
        else None
    )
    found["confirmed_share"] = _share(agree[known])
    confirmed = known & agree
    for name, among in (
        ("wrong_when_confirmed", confirmed),
        ("wrong_when_both_say_right", confirmed & (first > 0)),
        ("wrong_when_both_say_wrong", confirmed & (first < 0)),
    ):
        found[name] = _rate(clustered_rate(joint[among], group[among], level=level))
    found["distinct"] = _distinct(found)
    return found


def _excess(raters: Raters | None, one: int, two: int, agree: Bits) -> float | None:
    """How much more often two verifiers agree than they would if their errors were independent."""
    if raters is None or not agree.size:
        return None
    expected = 0.0
    for share, rates in ((raters.prior, raters.yes_if_right), (1.0 - raters.prior, raters.yes_if_wrong)):
        expected += share * (rates[one] * rates[two] + (1.0 - rates[one]) * (1.0 - rates[two]))
    return float(agree.mean()) - expected


def _distinct(pair: dict[str, Any]) -> str:
    """`copies`, `alike`, `distinct` or `unclear`, from how far errors overlap within right and within wrong items."""
    if pair["agreement"] == 1.0 and pair["both_judged"] > 1:
        return "copies"
    sides = [pair["overlap_right"], pair["overlap_wrong"]]
    known = [side for side in sides if side["low"] is not None]
    if any(side["low"] > ALIKE for side in known):
        return "alike"
    return "distinct" if known and all(side["high"] < ALIKE for side in known) else "unclear"


def _gate(verdicts: Verdicts, group: Ints, rho: float, level: float) -> dict[str, Any]:
    """Whether anything tells the first verifier's right verdicts from its wrong ones."""
    y, label = verdicts.votes[:, 0], verdicts.label
    signals = _signals(verdicts)
    known = (y != 0) & (label != 0)
    right = y == label
    found: dict[str, Any] = {"primary": verdicts.names[0], "rho": rho, "signals": {}, "selection": []}
    # Each of several signals gets its part of the error, so that the best of them may be named.
    each = 1.0 - (1.0 - level) / max(len(signals), 1)
    for name, values in signals.items():
        found["signals"][name] = _estimate(auroc(values[known], right[known], group[known], level=each))
    if signals and known.any():
        mean = np.mean(list(signals.values()), axis=0)
        found["mean"] = _estimate(auroc(mean[known], right[known], group[known], level=level))
        ids = np.array(verdicts.ids)[known]
        order = np.lexsort((ids, -mean[known]))
        for coverage in _COVERAGES:
            taken = order[: round(coverage * order.size)]
            risk = clustered_rate(~right[known][taken], group[known][taken], level=level)
            found["selection"].append({"coverage": coverage, **_rate(risk)})
    return found


def _signals(verdicts: Verdicts) -> dict[str, npt.NDArray[np.float64]]:
    """What speaks for the first verifier's verdict, in [0, 1], as records hold it; answers to appeals do not."""
    y = verdicts.votes[:, 0]
    found = {f"signal.{name}": np.nan_to_num(values) for name, values in verdicts.signals.items()}
    for column, name in enumerate(verdicts.names):
        if name == verdicts.appealed:
            continue
        score = verdicts.scores[:, column]
        agrees = (verdicts.votes[:, column] == y).astype(np.float64)
        if np.isnan(score).all():
            if not column:
                continue
            found[name] = agrees
        else:
            turned = np.where(y < 0, 1.0 - score, score)
            found[name if column else f"{name}.score"] = np.where(
                np.isnan(score), agrees if column else 0.0, turned
            )
    return found


def _share(bits: Bits) -> float | None:
    return float(np.count_nonzero(bits) / bits.size) if bits.size else None
