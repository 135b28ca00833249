"""Cells: small numbers that compare with thresholds exactly as the scores do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vapo.policy import cells
from vapo.policy.cells import Cuts

EDGES = st.one_of(
    st.floats(0, 1),
    st.sampled_from([0.0, 0.25, 0.5, 1.0, 0.1, 0.3]),
    st.integers(0, 4096).map(lambda step: step / 4096),
    st.integers(0, 4095).map(lambda step: float(np.nextafter(step / 4096, 2.0))),
)


@given(st.lists(st.tuples(EDGES, EDGES), min_size=1, max_size=40), st.lists(EDGES, min_size=1, max_size=60))
def test_a_cell_reaches_a_threshold_exactly_when_its_score_does(pairs, scores):
    cuts = Cuts.of(pairs)
    values = np.array(scores)
    y = np.where(np.arange(len(values)) % 2 == 0, 1, -1).astype(np.int8)
    found = cuts.cells(y, values)
    for pos, neg in pairs:
        below = found.below(cuts.place(pos, neg))
        assert below.tolist() == np.where(y > 0, values < pos, values < neg).tolist()


def test_more_thresholds_than_a_byte_can_count_are_told_apart():
    levels = [(level, level) for level in np.linspace(0, 1, 700).tolist()]
    cuts, values = Cuts.of(levels), np.random.default_rng(0).random(5000)
    found = cuts.cells(np.ones(5000, np.int8), values)
    for level, same in levels[::50]:
        assert (found.below(cuts.place(level, same)) == (values < level)).all()


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
@pytest.mark.parametrize("signed", [False, True])
def test_counts_of_windows_are_the_same_however_windows_are_blocked(monkeypatch, block, signed):
    monkeypatch.setattr(cells, "_GRID", block)
    rng = np.random.default_rng(1)
    levels = np.sort(rng.random(8))
    pairs = [(float(low), float(low) / 2 if signed else float(low)) for low in levels]
    cuts = Cuts.of(pairs)
    y, values = rng.choice(np.array([-1, 1], np.int8), 500), rng.random(500)
    found = cuts.cells(y, values)
    starts = np.array([0, 1, 7, 100, 499])
    low = np.array([cuts.place(*pairs[index]) for index in (0, 2, 3)])
    high = np.array([cuts.place(*pairs[index]) for index in (4, 2, 7)])
    counts = found.count_between(low, high, starts)
    for row, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        wanted = found.between(tuple(a), tuple(b))
        assert counts[row].tolist() == [int(part.sum()) for part in np.split(wanted, starts[1:])]
    union = np.logical_or.reduce(
        [found.between(tuple(a), tuple(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    )
    assert (found.in_any(low, high) == union).all()
