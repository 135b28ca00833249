"""Checkpoints of a run: which log it is, how many events it has and their Merkle root, in three lines.

Beside the log lie two small files, which are two things. `checkpoint.json` is the writer's own mark: it is
rewritten with every event, so that a loss of the last ones shows, and it proves nothing to others.
`checkpoint.note` is there if a key signed the certificate: the checkpoint of all events up to that
certificate, as a signed note. It is what an outsider keeps, and what a later run is held against.
"""

from __future__ import annotations

from collections.abc import Sequence

from vapo.errors import InputError, IntegrityError
from vapo.ledger.log import Event, EventKind
from vapo.ledger.merkle import Frontier, Tree
from vapo.ledger.note import Checkpoint, Note, run_origin

__all__ = [
    "NOTE",
    "SIGNER",
    "check_growth",
    "check_growth_from",
    "checkpoint_of",
    "last_signed",
    "parse_checkpoint",
]

NOTE = "checkpoint.note"
SIGNER = "signer"
"""Where the event of a certificate names the public key that signed it; null if none did."""


def checkpoint_of(events: Sequence[Event], size: int | None = None) -> Checkpoint:
    """The checkpoint of a run's first events, all of them by default.

    Raises:
        InputError: If there are not so many events, or none.

    Example:
        >>> event = Event(0, "0" * 64, EventKind.PROTOCOL, {})
        >>> checkpoint_of([event]).size
        1
    """
    size = len(events) if size is None else size
    if not 0 < size <= len(events):
        expected = f"a number of events from 1 to {len(events)}"
        raise InputError(expected, str(size))
    tree = Frontier()
    tree.extend(event.line for event in events[:size])
    return Checkpoint(run_origin(events[0].digest), size, tree.root())


def last_signed(events: Sequence[Event]) -> Event | None:
    """The latest event of a certificate that a key signed."""
    kinds = (EventKind.ISSUED, EventKind.REFUSED)
    return next((e for e in reversed(events) if e.kind in kinds and e.body.get(SIGNER)), None)


def parse_checkpoint(data: bytes) -> Checkpoint:
    """Read a checkpoint, signed or bare, without looking at its signatures.

    Raises:
        IntegrityError: If it is not of the exact form.

    Example:
        >>> parse_checkpoint(checkpoint_of([Event(0, "0" * 64, EventKind.PROTOCOL, {})]).text.encode()).size
        1
    """
    if b"\n\n" in data:
        return Checkpoint.parse(Note.parse(data).text)
    try:
        return Checkpoint.parse(data.decode("utf-8"))
    except UnicodeDecodeError:
        msg = "checkpoint: not UTF-8"
        raise IntegrityError(msg) from None


def check_growth(events: Sequence[Event], old: Checkpoint) -> None:
    """Make sure that a run is what it was at an earlier checkpoint, with events added behind.

    Raises:
        IntegrityError: If it is another run, or events that the checkpoint counted are gone or changed.

    Example:
        >>> events = [Event(0, "0" * 64, EventKind.PROTOCOL, {})]
        >>> check_growth(events, checkpoint_of(events))
    """
    origin = run_origin(events[0].digest) if events else "an empty log"
    check_growth_from(Tree(event.line for event in events), origin, old)


def check_growth_from(tree: Tree, origin: str, old: Checkpoint) -> None:
    """Make sure that an earlier checkpoint is of this log's beginning.

    Raises:
        IntegrityError: If it is of another one.
    """
    if old.origin != origin:
        msg = f"the checkpoint is of {old.origin}, and this is {origin}: another run, or its first event was changed"
        raise IntegrityError(msg)
    if old.size > len(tree):
        msg = f"the checkpoint counted {old.size} events and the log has {len(tree)}: its last events were removed"
        raise IntegrityError(msg)
    if tree.root(old.size) != old.root:
        msg = f"the first {old.size} events are not those that the checkpoint counted: history was rewritten"
        raise IntegrityError(msg)
