"""The event log: one canonical JSON object a line, each carrying the digest of the line before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo._internal.strict import plainly_canonical, strict_json
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.ledger.merkle import Frontier

__all__ = ["GENESIS", "Event", "EventKind", "Place", "check_mark", "mark", "merkle_root", "parse_log"]

_MOST_LINE = 1 << 26
GENESIS = "0" * 64
"""What stands for the line before the first."""


class EventKind(StrEnum):
    """What can happen in a run."""

    PROTOCOL = "protocol.declared"
    FAMILY = "family.frozen"
    REQUESTED = "appeals.requested"
    SETTLED = "appeals.settled"
    ACTIONS = "actions.recorded"
    FROZEN = "trace.frozen"
    LABELS = "labels.joined"
    ISSUED = "certificate.issued"
    REFUSED = "certificate.refused"
    DEPLOY = "deploy.opened"
    SPOTCHECK = "spotcheck.joined"
    ALARM = "alarm"
    CLOSED = "deploy.closed"
    STAGE = "stage.opened"


_K = EventKind
_KINDS = {str(kind): kind for kind in EventKind}
_STAGE_NEXT: dict[EventKind | None, tuple[EventKind, ...]] = {
    None: (_K.PROTOCOL,),
    _K.PROTOCOL: (_K.FAMILY,),
    _K.FAMILY: (_K.REQUESTED, _K.ACTIONS),
    _K.REQUESTED: (_K.SETTLED,),
    _K.SETTLED: (_K.ACTIONS,),
    _K.ACTIONS: (_K.REQUESTED, _K.ACTIONS, _K.FROZEN),
    _K.FROZEN: (_K.LABELS,),
    _K.LABELS: (_K.ISSUED, _K.REFUSED),
    _K.ISSUED: (_K.DEPLOY, _K.STAGE),
    _K.REFUSED: (_K.DEPLOY, _K.STAGE),
    _K.ALARM: (_K.STAGE,),
    _K.CLOSED: (_K.DEPLOY, _K.STAGE),
    _K.STAGE: (_K.FAMILY,),
}
_OPEN = (_K.REQUESTED, _K.ACTIONS, _K.SPOTCHECK, _K.ALARM, _K.CLOSED)
_DEPLOY_NEXT: dict[EventKind | None, tuple[EventKind, ...]] = {
    _K.DEPLOY: _OPEN,
    _K.REQUESTED: (_K.SETTLED,),
    _K.SETTLED: (_K.ACTIONS,),
    _K.ACTIONS: _OPEN,
    _K.SPOTCHECK: _OPEN,
}


@dataclass(frozen=True)
class Event:
    """One line of the log. It keeps its bytes once they were asked for, as trees over a log ask for them again."""

    seq: int
    prev: str
    kind: EventKind
    body: Mapping[str, Any]

    @cached_property
    def line(self) -> bytes:
        """The event as it stands in the log, without the newline."""
        return canonical_json(
            {"seq": self.seq, "prev": self.prev, "kind": str(self.kind), "body": dict(self.body)}
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the line."""
        return sha256_hex(self.line)


@dataclass(frozen=True, slots=True)
class Place:
    """What the legal order of events remembers of those that came before.

    Example:
        >>> Place().then(EventKind.PROTOCOL).then(EventKind.FAMILY).deployed
        False
    """

    previous: EventKind | None = None
    """Kind of the last event; None in an empty run."""
    deployed: bool = False
    """Whether a deployment is open."""

    def then(self, kind: EventKind) -> Place:
        """The place behind one more event.

        Raises:
            ProtocolError: If an event of this kind may not follow.
        """
        allowed = (_DEPLOY_NEXT if self.deployed else _STAGE_NEXT).get(self.previous, ())
        if kind not in allowed:
            after = f"after {self.previous}" if self.previous else "in an empty run"
            msg = f"'{kind}' is not legal {after}; what may come is {', '.join(allowed) or 'nothing'}"
            raise ProtocolError(msg)
        open_now = kind is _K.DEPLOY or (self.deployed and kind not in (_K.ALARM, _K.CLOSED))
        return Place(kind, open_now)


def parse_log(data: bytes) -> tuple[list[Event], int]:
    """Read a log, checking numbers, digests and order.

    Returns:
        The events, and how many bytes behind the last whole line are torn; a line with a hole in it is not whole.

    Raises:
        IntegrityError: Naming the first line that is not what was written.
    """
    events: list[Event] = []
    previous, place = GENESIS, Place()
    whole, newline, torn = data.rpartition(b"\n")
    lines = whole.split(b"\n") if newline else []
    if lines and not torn and b"\0" in lines[-1]:
        # The pages of an append reach the medium in any order, and one that did not is read as zeros.
        torn = lines.pop() + newline
    for number, line in enumerate(lines, 1):
        event = _parse_line(line, number)
        if event.seq != number - 1:
            msg = f"log.jsonl: line {number}: expected event {number - 1}, got {event.seq} (removed, repeated or moved)"
            raise IntegrityError(msg)
        if event.prev != previous:
            msg = f"log.jsonl: line {number}: event {event.seq} does not follow the line before it (digest differs)"
            raise IntegrityError(msg)
        try:
            place = place.then(event.kind)
        except ProtocolError as error:
            msg = f"log.jsonl: line {number}: {error}"
            raise IntegrityError(msg) from None
        events.append(event)
        previous = event.digest
    return events, len(torn)


def _parse_line(line: bytes, number: int) -> Event:
    where = f"log.jsonl: line {number}"
    raw = plainly_canonical(line) if len(line) <= _MOST_LINE else None
    if raw is None:
        raw = strict_json(line, where, limit=_MOST_LINE)
        if not _is_canonical(raw, line):
            msg = f"{where}: not in canonical form"
            raise IntegrityError(msg)
    match raw:
        case {"seq": int(seq), "prev": str(prev), "kind": str(kind), "body": dict(body), **more} if not more:
            if kind in _KINDS and not isinstance(seq, bool):
                event = Event(seq, prev, _KINDS[kind], body)
                # It would be written just so again.
                event.__dict__["line"] = line
                return event
    msg = f"{where}: not an event"
    raise IntegrityError(msg)


def _is_canonical(value: Any, data: bytes) -> bool:
    try:
        return canonical_json(value) == data
    except InputError:
        return False


def mark(events: Sequence[Event]) -> bytes:
    """What is noted beside a log so that a loss of its last events shows: their number and the last one's digest."""
    return canonical_json({"events": len(events), "head": events[-1].digest if events else GENESIS})


def check_mark(data: bytes, events: Sequence[Event]) -> int:
    """Compare a log with the mark beside it.

    Returns:
        How many events the log has beyond the mark: one after a crash between the two writes, else none.

    Raises:
        IntegrityError: If events are gone that the mark knows of, or are not the ones it knew.
    """
    size, head = -1, ""
    with suppress(ValueError, TypeError, KeyError, IntegrityError):
        raw = strict_json(data, "checkpoint.json")
        size, head = int(raw["events"]), str(raw["head"])
    if size < 0 or canonical_json({"events": size, "head": head}) != data:
        msg = "checkpoint.json: not a checkpoint"
        raise IntegrityError(msg)
    if size > len(events):
        msg = f"log.jsonl: the last {size - len(events)} of {size} recorded events are gone"
        raise IntegrityError(msg)
    if head != (events[size - 1].digest if size else GENESIS):
        msg = f"log.jsonl: event {size - 1} is not the one that checkpoint.json recorded"
        raise IntegrityError(msg)
    return len(events) - size


def merkle_root(leaves: Sequence[bytes]) -> str:
    """Root of the RFC 6962 Merkle tree over some leaves, in hexadecimal.

    Example:
        >>> merkle_root([])[:16], merkle_root([b""])[:16]
        ('e3b0c44298fc1c14', '6e340b9cffb37a98')
    """
    tree = Frontier()
    tree.extend(leaves)
    return tree.root().hex()
