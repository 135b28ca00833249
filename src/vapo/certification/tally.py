"""Counting a frozen trace once its labels are there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo.certification.stage import Progress, Stage, silent
from vapo.certification.tables import Tally, Units
from vapo.errors import IntegrityError
from vapo.ledger import Ledger
from vapo.policy import Reason
from vapo.records import Records

__all__ = [
    "WindowCounts",
    "add_tallies",
    "codes_of",
    "codes_table",
    "count_codes",
    "largest_admitted",
    "stored_codes",
    "tally_stage",
    "window_counts",
]

Codes = npt.NDArray[np.uint8]
_REASONS = pa.schema([("reasons", pa.large_binary())])
_BLOCK_BYTES = 64 << 20
_ADMITTED = np.uint8(Reason.CONFIRMED)
_UNIT_FIELDS = ("admitted", "harmful", "appealed", "count")
_SPAN = np.uint8(Reason.SECONDARY_LOST - Reason.CONFIRMED)


def codes_table(codes: Codes) -> pa.Table:
    r"""Reasons as they are recorded: a row a candidate, in it a byte a record.

    Example:
        >>> codes_table(np.array([[Reason.ACCEPTED, Reason.CONFIRMED]], np.uint8)).column("reasons").to_pylist()
        [b'\x01\x02']
    """
    candidates, rows = codes.shape
    ends = pa.py_buffer(np.arange(candidates + 1, dtype=np.int64) * rows)
    data = pa.py_buffer(np.ascontiguousarray(codes))
    reasons = pa.LargeBinaryArray.from_buffers(pa.large_binary(), candidates, [None, ends, data])
    return pa.table([reasons], schema=_REASONS)


def codes_of(table: pa.Table, candidates: int, rows: int) -> Codes:
    """The inverse of `codes_table`.

    Raises:
        IntegrityError: If it is not a table of that many candidates and records.
    """
    reasons = table.column(0).combine_chunks() if table.schema.equals(_REASONS) else pa.array([], pa.binary())
    lengths = pc.binary_length(reasons)
    if len(reasons) != candidates or not pc.all(pc.equal(lengths, rows), skip_nulls=False).as_py():
        msg = f"recorded actions: expected {candidates} candidates with {rows} records each"
        raise IntegrityError(msg)
    return np.frombuffer(reasons.buffers()[2], np.uint8, candidates * rows).reshape(candidates, rows)


def stored_codes(ledger: Ledger, stage: Stage) -> Iterator[tuple[int, Codes]]:
    """Chunks of the recorded reasons: the first row, and candidates by rows."""
    for event in stage.actions(ledger):
        table = ledger.table(event.body["codes"])
        yield int(event.body["first"]), codes_of(table, len(stage.family), int(event.body["rows"]))


def tally_stage(
    ledger: Ledger,
    stage: Stage,
    records: Records,
    bad: npt.NDArray[np.bool_],
    progress: Progress,
    *,
    by_group: bool,
) -> list[Tally]:
    """Count what every candidate admitted, what of it was harmful, and what it appealed.

    Args:
        ledger: The run.
        stage: The stage whose trace is counted.
        records: Its certification records.
        bad: Records that would do harm if admitted.
        progress: Told how many candidates are counted.
        by_group: Whether to keep counts by group, as is needed once a group holds several records.
    """
    total = len(stage.family)
    progress("counting", 0, total)
    if not by_group:
        tallies = _by_record(ledger, stage, records, bad)
    else:
        block = max(1, min(total, _BLOCK_BYTES // max(len(records), 1)))
        tallies = []
        for first in range(0, total, block):
            progress("counting", first, total)
            tallies += _by_group(ledger, stage, records, bad, slice(first, min(first + block, total)))
    progress("counting", total, total)
    return tallies


def count_codes(codes: Codes, bad: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """How many records each candidate admitted, how many of those do harm, and how many it appealed.

    Args:
        codes: Reasons, candidates by records.
        bad: Records that would do harm if admitted.

    Returns:
        Counts, three by candidates.

    Example:
        >>> codes = np.array([[Reason.ACCEPTED, Reason.CONFIRMED, Reason.SECONDARY_MISSING]], np.uint8)
        >>> count_codes(codes, np.array([False, True, True])).tolist()
        [[2], [1], [2]]
    """
    sums = np.zeros((3, len(codes)), np.int64)
    chosen, shifted = np.empty(codes.shape[1:], np.bool_), np.empty(codes.shape[1:], np.uint8)
    for index, row in enumerate(codes):
        np.less_equal(row, _ADMITTED, out=chosen)
        sums[0, index] = np.count_nonzero(chosen)
        np.logical_and(chosen, bad, out=chosen)
        sums[1, index] = np.count_nonzero(chosen)
        np.subtract(row, _ADMITTED, out=shifted)
        np.less_equal(shifted, _SPAN, out=chosen)
        sums[2, index] = np.count_nonzero(chosen)
    return sums


def _by_record(ledger: Ledger, stage: Stage, records: Records, bad: npt.NDArray[np.bool_]) -> list[Tally]:
    sums = np.zeros((3, len(stage.family)), np.int64)
    for first, codes in stored_codes(ledger, stage):
        sums += count_codes(codes, bad[first : first + codes.shape[1]])
    return [
        Tally(len(records), admitted, harmful, appealed) for admitted, harmful, appealed in sums.T.tolist()
    ]


def _by_group(
    ledger: Ledger, stage: Stage, records: Records, bad: npt.NDArray[np.bool_], candidates: slice
) -> list[Tally]:
    whole = np.empty((candidates.stop - candidates.start, len(records)), np.uint8)
    for first, codes in stored_codes(ledger, stage):
        whole[:, first : first + codes.shape[1]] = codes[candidates]
    present, group = np.unique(records.group, return_inverse=True)
    tallies = []
    for row in whole:
        admitted = row <= _ADMITTED
        parts = (admitted, admitted & bad, (row - _ADMITTED) <= _SPAN)
        sums = [int(np.count_nonzero(part)) for part in parts]
        counts = np.stack([np.bincount(group[part], minlength=len(present)) for part in parts], axis=1)
        alike, times = np.unique(counts, axis=0, return_counts=True)
        units = Units(alike[:, 0], alike[:, 1], alike[:, 2], times.astype(np.int64))
        tallies.append(Tally(len(records), sums[0], sums[1], sums[2], units))
    return tallies


def largest_admitted(ledger: Ledger, stage: Stage, records: Records) -> list[int]:
    """The most records of one group that each candidate admits."""
    harmless = np.zeros(len(records), np.bool_)
    tallies = tally_stage(ledger, stage, records, harmless, silent, by_group=True)
    return [0 if tally.units is None else tally.units.largest for tally in tallies]


def add_tallies(left: Tally, right: Tally) -> Tally:
    """The counts of a stage and of the records that extend it, as one; groups stay groups of their own."""
    units = None
    if left.units is not None and right.units is not None:
        parts = (left.units, right.units)
        units = Units(*(np.concatenate([getattr(part, name) for part in parts]) for name in _UNIT_FIELDS))
    return Tally(
        left.records + right.records,
        left.admitted + right.admitted,
        left.harmful + right.harmful,
        left.appealed + right.appealed,
        units,
    )


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What one candidate did in each window of the stage."""

    admitted: npt.NDArray[np.int64]
    harmful: npt.NDArray[np.int64]
    appealed: npt.NDArray[np.int64]
    """Admitted records that came through an appeal."""


def window_counts(codes: Codes, records: Records, bad: npt.NDArray[np.bool_]) -> WindowCounts:
    """Count one candidate's admissions by window."""
    admitted = codes <= _ADMITTED
    window = records.window - (records.window.min() if len(records) else 0)
    windows = int(window.max(initial=-1)) + 1
    parts = (admitted, admitted & bad, codes == _ADMITTED)
    return WindowCounts(*(np.bincount(window[part], minlength=windows).astype(np.int64) for part in parts))
