"""Dawid and Skene's latent-class model: the chance that the primary is right, learnt without a label.

The hidden class is the true sign. The primary and every verdict are observers with an error rate for each true sign; a
graded signal is cut into a few levels whose frequency depends on whether the primary is right. Fitting runs over counts
of distinct rows and sums them exactly, and scoring only multiplies, adds and divides, so that the same bits come out on
every machine and for every way of cutting the records into pieces.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.records import Records

__all__ = ["estimate", "fit", "posterior"]

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
_ROUNDS = 500
_CLOSE = 1e-10
_CUTS = (0.25, 0.5, 0.75)
_SMOOTHING = 0.5


def _edges(values: Array) -> list[float]:
    """Where a graded column is cut: at its quartiles, or between all its values if these are few."""
    known = values[~np.isnan(values)]
    levels = np.unique(known)
    if len(levels) <= len(_CUTS) + 1:
        return [float(level) for level in levels[1:]]
    cuts = {float(cut) for cut in np.quantile(known, _CUTS, method="higher")} - {float(levels[0])}
    # Where more than three quarters share the least value, what lies above it is a level of its own.
    return sorted(cuts) or [float(levels[1])]


def _levels(values: Array, edges: list[float]) -> Codes:
    """Level of each value, -1 where there is none."""
    return np.where(np.isnan(values), -1, np.searchsorted(np.asarray(edges), values, "right")).astype(
        np.int64
    )


def _raw(records: Records, name: str) -> tuple[Array, bool]:
    """The observer's own words, and whether they speak of the answer (True) or of the primary's being right (False)."""
    if name in records.signals:
        return records.signals[name], False
    verdict = records.verdicts[name]
    votes = np.where(verdict == 0, np.nan, (verdict > 0).astype(np.float64))
    graded = records.verdict_scores.get(name)
    return (votes if graded is None else np.where(np.isnan(graded), votes, graded)), True


def _patterns(records: Records, inputs: tuple[str, ...], edges: Mapping[str, list[float]]) -> Codes:
    columns = [(records.y > 0).astype(np.int64)]
    columns += [_levels(_raw(records, name)[0], edges[name]) for name in inputs]
    return np.stack(columns, axis=1)


def _likelihood(
    patterns: Codes, tables: list[Array], speaks: list[bool], prior: float
) -> tuple[Array, Array]:
    """Joint weight of each pattern with the answer being right, and with its being wrong."""
    sides = []
    for truth, share in ((1, prior), (0, 1 - prior)):
        primary = patterns[:, 0]
        weight = share * tables[0][truth][primary]
        for column, (table, by_truth) in enumerate(zip(tables[1:], speaks, strict=True), 1):
            level = patterns[:, column]
            side = np.full(len(level), truth) if by_truth else (primary == truth).astype(np.int64)
            weight = weight * np.where(level < 0, 1.0, table[side, np.maximum(level, 0)])
        sides.append(weight)
    return sides[0], sides[1]


def fit(design: Records, inputs: tuple[str, ...], argument: str = "") -> Mapping[str, Any]:
    """Learn prior and observer tables by expectation maximisation, starting from the majority of the votes."""
    del argument
    votes = design.y != 0
    if not votes.any():
        expected = "primary verdicts to fit a latent-class score on"
        raise InputError(expected, "none", where=design.where)
    seen = design.take(np.flatnonzero(votes))
    # A verdict is cut between no and yes, whatever it said on these records.
    plain = [name for name in inputs if name in seen.verdicts and name not in seen.verdict_scores]
    edges = {name: [1.0] if name in plain else _edges(_raw(seen, name)[0]) for name in inputs}
    speaks = [_raw(seen, name)[1] for name in inputs]
    patterns, counts = np.unique(_patterns(seen, inputs, edges), axis=0, return_counts=True)
    sizes = [2, *(len(edges[name]) + 1 for name in inputs)]
    prior, tables = estimate(patterns, counts, _majority(patterns, speaks, sizes), speaks, sizes)
    return {"edges": edges, "prior": prior, "tables": [table.tolist() for table in tables]}


def estimate(
    patterns: Codes, counts: Codes, start: Array, speaks: list[bool], sizes: list[int]
) -> tuple[float, list[Array]]:
    """Expectation maximisation over distinct rows, from a first guess at which of them are right.

    Args:
        patterns: One level an observer (columns; the first is the primary) and distinct row; -1 where one is silent,
            which the first must not be.
        counts: How often each row occurs.
        start: The first guess at the chance that the answer is right, by row.
        speaks: For each observer but the first: whether it speaks of the answer, or of the primary's being right.
        sizes: How many levels each observer has.

    Returns:
        The share of right answers, and for each observer the frequency of its levels by side: wrong first.

    Example:
        >>> patterns = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 1]])
        >>> guess, counts = np.array([0.1, 0.3, 0.9]), np.array([50, 10, 40])
        >>> prior, tables = estimate(patterns, counts, guess, [True] * 3, [1, 2, 2, 2])
        >>> round(prior, 2), tables[3].round(2).tolist()
        (0.4, [[0.83, 0.17], [0.01, 0.99]])
    """
    right, prior, tables = start, 0.5, list[Array]()
    for _ in range(_ROUNDS):
        prior, tables = _maximise(patterns, counts, right, speaks, sizes)
        yes, no = _likelihood(patterns, tables, speaks, prior)
        updated = yes / (yes + no)
        moved = float(np.abs(updated - right).max())
        right = updated
        if moved < _CLOSE:
            break
    return prior, tables


def _majority(patterns: Codes, speaks: list[bool], sizes: list[int]) -> Array:
    """Share of observers, the primary counted among them, that say the answer is right."""
    primary = patterns[:, 0].astype(np.float64)
    total, votes = primary.copy(), np.ones(len(patterns))
    for column, by_truth in enumerate(speaks, 1):
        level = patterns[:, column]
        share = np.where(level < 0, 0.0, level / max(sizes[column] - 1, 1))
        says = share if by_truth else np.where(primary > 0, share, 1 - share)
        total += np.where(level < 0, 0.0, says)
        votes += level >= 0
    return np.clip(total / votes, 0.05, 0.95)


def _maximise(
    patterns: Codes, counts: Codes, right: Array, speaks: list[bool], sizes: list[int]
) -> tuple[float, list[Array]]:
    yes, no = counts * right, counts * (1 - right)
    everyone = math.fsum(counts.tolist())
    prior = min(max(math.fsum(yes.tolist()) / everyone, 1e-6), 1 - 1e-6)
    tables = []
    for column, size in enumerate(sizes):
        level = patterns[:, column]
        by_truth = column == 0 or speaks[column - 1]
        agrees = patterns[:, 0] == 1
        first = yes if by_truth else np.where(agrees, yes, no)
        second = no if by_truth else np.where(agrees, no, yes)
        table = np.empty((2, size))
        for side, weight in ((1, first), (0, second)):
            sums = [math.fsum(weight[level == value].tolist()) + _SMOOTHING for value in range(size)]
            table[side] = np.array(sums) / math.fsum(sums)
        tables.append(table)
    return prior, tables


def posterior(records: Records, inputs: tuple[str, ...], params: Mapping[str, Any]) -> Array:
    """The chance that the primary's verdict is right; 0 where it gave none."""
    speaks = [_raw(records.take(slice(0, 0)), name)[1] for name in inputs]
    patterns = _patterns(records, inputs, params["edges"])
    yes, no = _likelihood(patterns, [np.asarray(t) for t in params["tables"]], speaks, params["prior"])
    chance = np.where(records.y > 0, yes, no) / (yes + no)
    return np.where(records.y == 0, 0.0, chance)
