"""Finding what is to be proved in a run, and the signed checkpoint to prove it against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from vapo.errors import InputError, VapoError
from vapo.ledger.checkpoints import NOTE, checkpoint_of, parse_checkpoint
from vapo.ledger.log import Event, EventKind
from vapo.ledger.proof import make_growth, make_proof
from vapo.ledger.rows import RowProof, prove_row
from vapo.ledger.run import Ledger

__all__ = ["TABLES", "prove_event", "prove_growth", "prove_record"]

TABLES: Mapping[str, tuple[EventKind, ...]] = {
    "decisions": (EventKind.ISSUED, EventKind.REFUSED, EventKind.ACTIONS),
    "labels": (EventKind.LABELS, EventKind.SPOTCHECK),
}
"""The tables whose rows can be proved one by one, and the events that commit to them."""


class _Rows(NamedTuple):
    event: Event
    refs: list[dict[str, str]]
    tree: str


def _tables(ledger: Ledger, name: str) -> Iterator[_Rows]:
    """Events that commit to tables of this name, the latest first."""
    column = "rows" if name == "decisions" else "labels"
    for event in reversed(ledger.events):
        if event.kind in TABLES[name] and event.body.get(f"{column}_tree") is not None:
            refs = event.body[column]
            yield _Rows(event, refs if isinstance(refs, list) else [refs], f"{column}_tree")


def prove_record(
    ledger: Ledger, name: str, *, table: str = "decisions", checkpoint: bytes | None = None
) -> bytes:
    """Write a proof file of what a run says about one record: the latest decision on it, or its label.

    Args:
        ledger: The run.
        name: The record's id.
        table: One of `TABLES`.
        checkpoint: A signed checkpoint of this run, perhaps cosigned. By default the run's own signed one where it
            reaches far enough, and else an unsigned one of all events.

    Raises:
        InputError: If no table of that name holds the record.
    """
    if table not in TABLES:
        expected = f"one of {', '.join(TABLES)}"
        raise InputError(expected, repr(table), where="table")
    for event, refs, tree in _tables(ledger, table):
        ids = pa.chunked_array(
            [c for ref in refs for c in ledger.table(ref, ["id"]).column("id").chunks], pa.string()
        )
        place = ids.index(pa.scalar(name, pa.string())).as_py()
        if place >= 0:
            whole = pa.concat_tables([ledger.table(ref) for ref in refs])
            return _prove(ledger, event, checkpoint, prove_row(whole, place), (tree,))
    expected = f"a record that the run's {table} hold"
    raise InputError(expected, repr(name), where=str(ledger.path))


def prove_event(ledger: Ledger, number: int, *, checkpoint: bytes | None = None) -> bytes:
    """Write a proof file of one event.

    Raises:
        InputError: If there is no such event.
    """
    if not 0 <= number < len(ledger.events):
        expected = f"an event from 0 to {len(ledger.events) - 1}"
        raise InputError(expected, str(number), where=str(ledger.path))
    return _prove(ledger, ledger.events[number], checkpoint, None, ())


def prove_growth(ledger: Ledger, old: bytes, *, checkpoint: bytes | None = None) -> bytes:
    """Write a proof file that a run only grew since an earlier checkpoint: what a witness asks for.

    Raises:
        IntegrityError: If it did not.
    """
    now = _checkpoint(ledger, checkpoint, parse_checkpoint(old).size)
    return make_growth([event.line for event in ledger.events], old, now)


def _prove(
    ledger: Ledger, event: Event, checkpoint: bytes | None, rows: RowProof | None, at: tuple[str, ...]
) -> bytes:
    lines = [one.line for one in ledger.events]
    return make_proof(lines, event.seq, _checkpoint(ledger, checkpoint, event.seq + 1), rows=rows, at=at)


def _checkpoint(ledger: Ledger, given: bytes | None, size: int) -> bytes:
    if given is not None:
        return given
    if ledger.has_file(NOTE):
        note = ledger.file(NOTE)
        try:
            if parse_checkpoint(note).size >= size:
                return note
        except VapoError:
            pass  # a damaged one is as good as none; verification says what is wrong with it
    return checkpoint_of(ledger.events).text.encode()
