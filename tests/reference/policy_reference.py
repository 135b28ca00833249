"""Deciding once more, slowly and obviously: one record after the other, and nothing but ifs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Rollout(NamedTuple):
    """One record as the table of actions looks at it."""

    window: int
    y: int
    score: float
    y2: int
    c2: float
    source: str | None
    delta_r: float | None


class Side(NamedTuple):
    """Thresholds for one sign."""

    low: float
    high: float
    second: float


def walk(
    rollouts: Sequence[Rollout],
    pos: Side,
    neg: Side,
    budget: int,
    trusted: Sequence[str] | None,
    spent: int = 0,
) -> list[tuple[str, str, int, int]]:
    """Action, reason, and budget before and after, for each record; `spent` is what the first window has used."""
    decided = []
    used: dict[int, int] = {}
    if rollouts:
        used[rollouts[0].window] = spent
    for record in rollouts:
        before = used.get(record.window, 0)
        action, reason = _one(record, pos if record.y > 0 else neg, budget - before, trusted)
        if action == "appeal":
            used[record.window] = before + 1
        decided.append((action, reason, budget - before, budget - used.get(record.window, 0)))
    return decided


def _one(record: Rollout, side: Side, left: int, trusted: Sequence[str] | None) -> tuple[str, str]:
    if record.y == 0:
        return "abstain", "no_primary"
    if record.delta_r is not None and record.delta_r == 0:
        return "abstain", "no_proposal"
    if record.score >= side.high:
        return "accept", "accepted"
    if record.score < side.low:
        return "abstain", "below_threshold"
    if left <= 0:
        return "abstain", "budget_exhausted"
    if record.y2 == 0:
        return "appeal", "secondary_missing"
    if trusted is not None and (record.source or "y2") not in trusted:
        return "appeal", "secondary_provenance"
    if record.y2 != record.y:
        return "appeal", "secondary_disagrees"
    if record.c2 < side.second:
        return "appeal", "secondary_low_confidence"
    return "appeal", "confirmed"
