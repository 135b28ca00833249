"""Scores as small numbers: how many of a family's thresholds each one reaches.

A family has few distinct thresholds, so whether a score reaches one is a comparison of two small whole numbers, which
a processor does for dozens of records at a time, and how many records of a window lie between two of them is a
difference of two running counts, whatever the number of candidates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Cells", "Cut", "Cuts"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Small = npt.NDArray[np.unsignedinteger]

Cut = tuple[int, int]
"""A pair of thresholds, one for either sign, as places in the sorted lists of all of them (counted from 1)."""

_BUCKETS = 4096
_GRID = 1 << 20


@dataclass(frozen=True, slots=True)
class _Scale:
    """Sorted thresholds with a table that finds a score's place among them without searching."""

    cuts: Floats
    table: npt.NDArray[np.int16]
    """By the score's leading bits: its cell, or -1 where a threshold lies between scores with the same bits."""

    @classmethod
    def of(cls, thresholds: Iterable[float]) -> _Scale:
        cuts = np.unique(np.array(list(thresholds), np.float64))
        edges = np.arange(_BUCKETS + 2) / _BUCKETS
        cells = np.searchsorted(cuts, edges[:-1], "right")
        split = np.searchsorted(cuts, edges[1:], "left") > cells
        split[-1] = False
        return cls(cuts, np.where(split, -1, cells).astype(np.int16))

    @property
    def beyond(self) -> int:
        """A cell above every threshold, which no score has."""
        return len(self.cuts) + 1

    def cells(self, values: Floats) -> Small:
        """How many thresholds each value reaches (none, if it is not a number)."""
        small = np.uint8 if self.beyond <= np.iinfo(np.uint8).max else np.uint16
        if not ((values >= 0) & (values <= 1)).all() or self.beyond > np.iinfo(np.int16).max:
            found = np.searchsorted(self.cuts, values, "right")
            found[np.isnan(values)] = 0
            return found.astype(small if self.beyond <= np.iinfo(np.uint16).max else np.uint32)
        # A product with a power of two is exact, so that the table's edges are the scores' own.
        place = self.table.take((values * _BUCKETS).astype(np.intp))
        cells: Small = place.astype(small)
        rest = np.flatnonzero(place < 0)
        cells[rest] = np.searchsorted(self.cuts, values[rest], "right")
        return cells

    def place(self, threshold: float) -> int:
        """The cell that begins at a threshold."""
        return int(np.searchsorted(self.cuts, threshold, "right"))


@dataclass(frozen=True, slots=True)
class Cells:
    """Where each record's score lies among the thresholds for either sign."""

    pos: Small
    neg: Small | None
    """Without it both signs share their thresholds; with it each column is beyond all of them at the other sign."""

    def __getitem__(self, rows: slice) -> Cells:
        return Cells(self.pos[rows], None if self.neg is None else self.neg[rows])

    def below(self, cut: Cut) -> Flags:
        """Records whose score does not reach the threshold for their sign."""
        under: Flags = self.pos < self.pos.dtype.type(cut[0])
        if self.neg is not None:
            under |= self.neg < self.neg.dtype.type(cut[1])
        return under

    def between(self, low: Cut, high: Cut) -> Flags:
        """Records that reach one threshold and not the other, which is at least as high."""
        return np.not_equal(self.below(low), self.below(high))

    def count_between(self, low: Ints, high: Ints, starts: Ints) -> Ints:
        """How many records of each window lie between two thresholds, for many pairs (rows of `low` and `high`)."""
        counts = np.zeros((len(low), len(starts)), np.int64)
        sizes = np.diff([*starts.tolist(), len(self.pos)])
        for side, column in enumerate((self.pos, self.neg)):
            if column is None:
                continue
            width = int(max(high[:, side].max(initial=0), column.max(initial=0))) + 1
            step = max(1, _GRID // width)
            for first in range(0, len(starts), step):
                here = sizes[first : first + step]
                rows = slice(int(starts[first]), int(starts[first] + here.sum()))
                window = np.repeat(np.arange(0, len(here) * width, width), here)
                found = np.bincount(window + column[rows], minlength=len(here) * width)
                reached = np.cumsum(found.reshape(-1, width), axis=1)
                counts[:, first : first + step] += (
                    reached[:, high[:, side] - 1] - reached[:, low[:, side] - 1]
                ).T
        return counts

    def in_any(self, low: Ints, high: Ints) -> Flags:
        """Records that lie between the thresholds of at least one pair."""
        found = np.zeros(len(self.pos), np.bool_)
        for side, column in enumerate((self.pos, self.neg)):
            if column is None:
                continue
            size = int(max(high[:, side].max(initial=0), column.max(initial=0))) + 1
            begins = np.bincount(low[:, side], minlength=size)
            ends = np.bincount(high[:, side], minlength=size)
            found |= (np.cumsum(begins - ends) > 0).take(column)
        return found


@dataclass(frozen=True, slots=True)
class Cuts:
    """All thresholds of a kind in a family, for either sign."""

    pos: _Scale
    neg: _Scale | None

    @classmethod
    def of(cls, pairs: list[tuple[float, float]]) -> Cuts:
        """Collect the thresholds for positive and for negative verdicts, given in pairs."""
        signed = any(pos != neg for pos, neg in pairs)
        pos = _Scale.of(pos for pos, _ in pairs)
        return cls(pos, _Scale.of(neg for _, neg in pairs) if signed else None)

    def place(self, pos: float, neg: float) -> Cut:
        """Where a pair of thresholds stands."""
        place = self.pos.place(pos)
        return place, place if self.neg is None else self.neg.place(neg)

    def cells(self, y: npt.NDArray[np.int8], values: Floats) -> Cells:
        """The cells of some scores."""
        pos = self.pos.cells(values)
        if self.neg is None:
            return Cells(pos, None)
        neg = self.neg.cells(values)
        np.copyto(pos, pos.dtype.type(self.pos.beyond), where=y < 0)
        np.copyto(neg, neg.dtype.type(self.neg.beyond), where=y > 0)
        return Cells(pos, neg)

    def put_below(self, cells: Cells, rows: Flags) -> None:
        """Let some records reach no threshold."""
        for column in (cells.pos, cells.neg):
            if column is not None:
                column[rows] = 0

    def put_beyond(self, cells: Cells, rows: Flags) -> None:
        """Let some records reach every threshold."""
        cells.pos[rows] = self.pos.beyond
        if cells.neg is not None and self.neg is not None:
            cells.neg[rows] = self.neg.beyond
