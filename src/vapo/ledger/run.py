"""One run folder, open for reading or for writing."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError, IntegrityError, ProtocolError, StorageError
from vapo.ledger.disk import Disk
from vapo.ledger.log import GENESIS, Event, EventKind, Place, check_mark, mark, merkle_root, parse_log
from vapo.ledger.segments import (
    Encoded,
    Ref,
    TableReader,
    encode,
    encode_table,
    read_json,
    read_parquet,
    segment_name,
)

__all__ = ["CERTIFICATE", "CHECKPOINT", "LOG", "TELEMETRY", "Ledger", "referenced"]

_LOGGER = logging.getLogger(__name__)
LOG = "log.jsonl"
CHECKPOINT = "checkpoint.json"
CERTIFICATE = "certificate.json"
TELEMETRY = "telemetry.jsonl"
SEGMENTS = "segments"


class Ledger:
    """The run folder as its one writer, or any number of readers, see it.

    Work is resumed by doing it again: `rewind` goes back to an event, and each `commit` from there on is compared with
    the event that is already logged before anything new is appended. Work that would differ is refused. A run that is
    open for reading can be redone the same way, as replay does; nothing is stored then, only compared.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Ledger.write(folder) as ledger:
        ...     event = ledger.commit(EventKind.PROTOCOL, {"protocol": {}})
        ...     len(ledger.events)
        1
    """

    def __init__(self, disk: Disk, *, writable: bool, tables: TableReader = read_parquet) -> None:
        """Use `Ledger.read` or `Ledger.write`."""
        self._disk = disk
        self._tables = tables
        self._writable = writable
        self.torn = 0
        """Bytes of an unfinished event that were found behind the last whole one."""
        self.events: list[Event] = []
        if writable:
            # What an earlier process wrote is seen here, flushed or not; it is flushed before anything rests on it.
            disk.settle(*(name for name in (LOG, SEGMENTS, ".") if (disk.root / name).exists()))
        # The mark is read first, so that a writer who adds events meanwhile does no harm.
        noted = disk.read(CHECKPOINT) if disk.exists(CHECKPOINT) else mark([])
        data = disk.read(LOG) if disk.exists(LOG) else b""
        self.events, self.torn = parse_log(data)
        self._size = len(data) - self.torn
        ahead = check_mark(noted, self.events)
        if writable and ahead > 1 and not disk.exists(CHECKPOINT):
            msg = f"{CHECKPOINT}: missing, and the log has {ahead} events"
            raise IntegrityError(msg)
        if writable and self.torn:
            disk.truncate(LOG, self._size)
            _LOGGER.warning(
                "%s: cut off %d bytes of an event that a crash left unfinished; what was acknowledged is there",
                disk.root / LOG,
                self.torn,
            )
        if writable and ahead:
            disk.write(CHECKPOINT, mark(self.events))
        self._cursor = len(self.events)
        self._place = _place(self.events)
        self._unsure = False
        self._loose: set[str] = set()

    @classmethod
    def read(cls, path: str | Path, *, tables: TableReader = read_parquet) -> Ledger:
        """Open an existing run to look at it.

        Args:
            path: The run folder.
            tables: What opens its tables; a `LimitedReader` where the run comes from elsewhere.
        """
        disk = Disk(path)
        if not disk.exists(LOG):
            expected = "a run folder (one that holds log.jsonl)"
            raise InputError(expected, str(path))
        return cls(disk, writable=False, tables=tables)

    @classmethod
    def write(cls, path: str | Path, *, disk: Disk | None = None) -> Ledger:
        """Open a run, new or not, as its only writer."""
        disk = disk or Disk(path)
        root = disk.root
        if (
            root.is_dir()
            and not disk.exists(LOG)
            and any(not n.startswith("segments/") for n in disk.names())
        ):
            expected = "a new, empty or run folder"
            raise InputError(expected, f"{root} with other files in it")
        disk.lock()
        try:
            return cls(disk, writable=True)
        except BaseException:
            disk.unlock()
            raise

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._disk.root

    def close(self) -> None:
        """Let others write."""
        self._disk.unlock()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Events

    @property
    def head(self) -> str:
        """Digest of the last event."""
        return self.events[-1].digest if self.events else GENESIS

    def root(self, size: int | None = None) -> str:
        """Merkle root over the first events, all of them by default."""
        return merkle_root([event.line for event in self.events[:size]])

    def rewind(self, size: int) -> None:
        """Go back behind the first `size` events: what follows is compared before anything is appended."""
        self._cursor = min(size, len(self.events))

    @property
    def seen(self) -> list[Event]:
        """The events before the place that `rewind` went back to."""
        return self.events[: self._cursor]

    @property
    def redoing(self) -> bool:
        """Whether the next event is in the log already."""
        return self._cursor < len(self.events)

    def commit(self, kind: EventKind, body: Mapping[str, Any]) -> Event:
        """Append an event, durably, or find it already there.

        Raises:
            ProtocolError: If the event may not come now, or if the run holds another one in its place.
            StorageError: If it could not be written, or an event before it only in part.
        """
        before = self.events[self._cursor - 1].digest if self._cursor else GENESIS
        event = Event(self._cursor, before, kind, body)
        if self._cursor < len(self.events):
            logged = self.events[self._cursor]
            if logged.line != event.line:
                self._forget(event)
                msg = (
                    f"{self.path}: event {logged.seq} is '{logged.kind}' and differs from what is being done now "
                    f"('{kind}'{_difference(logged, event)}); use a new run folder, or the inputs it began with"
                )
                raise ProtocolError(msg)
            self._settle()
            self._loose -= set(referenced([logged]))
            self._cursor += 1
            return logged
        if not self._writable:
            msg = f"{self.path} is open for reading only"
            raise ProtocolError(msg)
        if self._unsure or self._disk.unsure:
            msg = f"{self.path}: an earlier event was written only in part; close the run and open it again"
            raise StorageError(msg)
        try:
            place = self._place.then(kind)
        except ProtocolError:
            self._forget(event)
            raise
        line = event.line + b"\n"
        self._settle()
        self._disk.append(LOG, line, at=self._size)
        # From here on the event is there, acknowledged or not; only who reads the log again knows where it stands.
        self._unsure = True
        self._size += len(line)
        self.events.append(event)
        self._place = place
        self._cursor += 1
        # Any earlier mark is true as well. That there is one has to last, so the first one's name is flushed too.
        self._disk.write(CHECKPOINT, mark(self.events), flush=len(self.events) == 1)
        self._unsure = False
        self._loose -= set(referenced([event]))
        return event

    def _settle(self) -> None:
        """Flush the folder of the segments that were stored since, once for all that an event names."""
        if self._loose:
            self._disk.settle(SEGMENTS)

    def _forget(self, event: Event) -> None:
        """Remove what was stored for an event that is refused, or for later ones: a refusal leaves no trace."""
        if self._writable:
            known = set(referenced(self.events))
            for name in (self._loose | set(referenced([event]))) - known:
                self._disk.remove(name)
            self._loose.clear()

    @property
    def deployed(self) -> bool:
        """Whether a deployment is open."""
        return self._place.deployed

    def last(self, *kinds: EventKind) -> Event | None:
        """The latest event of some kinds."""
        return next((event for event in reversed(self.events) if event.kind in kinds), None)

    def stage_start(self, stage: int | None = None) -> int:
        """Number of the event that opened a stage, the latest by default."""
        openings = [e.seq for e in self.events if e.kind in (EventKind.PROTOCOL, EventKind.STAGE)]
        if not openings:
            msg = f"{self.path}: no protocol has been declared"
            raise ProtocolError(msg)
        return openings[-1 if stage is None else stage - 1]

    @property
    def stage(self) -> int:
        """Number of the current stage, from 1."""
        return sum(event.kind in (EventKind.PROTOCOL, EventKind.STAGE) for event in self.events)

    def until_stage(self, stage: int) -> Ledger:
        """The run, for reading, as it stood when a stage and its deployment had ended."""
        return self.until(self.stage_start(stage + 1)) if stage < self.stage else self.until(len(self.events))

    def until(self, size: int) -> Ledger:
        """The run, for reading, as it stood after its first `size` events."""
        past = copy.copy(self)
        past._disk, past._writable = Disk(self.path), False
        past.events = self.events[:size]
        past._place = _place(past.events)
        past.rewind(size)
        return past

    def stage_events(self, *kinds: EventKind, stage: int | None = None) -> list[Event]:
        """The certification events of a stage (up to its certificate), of some kinds or all."""
        found: list[Event] = []
        for event in self.events[self.stage_start(stage) :]:
            if event.kind is EventKind.DEPLOY or (found and event.kind is EventKind.STAGE):
                break
            found.append(event)
        return [event for event in found if not kinds or event.kind in kinds]

    # Files

    def put_table(self, table: pa.Table) -> Ref:
        """Store a table and return the reference by which events name it."""
        return self.put(encode_table(table))

    def put_json(self, value: Any) -> Ref:
        """Store plain data and return the reference by which events name it."""
        return self.put(encode(canonical_json(value), "json"))

    def put(self, segment: Encoded) -> Ref:
        """Store what was encoded before and return the reference by which events name it.

        It is durable from the event on that names it.
        """
        ref = segment.ref
        if not self._writable:
            return ref
        name = segment_name(ref)
        if not (self._disk.exists(name) and sha256_hex(self._disk.read(name)) == ref["sha256"]):
            self._disk.write(name, segment.data, flush=False)
            self._loose.add(name)
        return ref

    def table(self, ref: Ref, columns: list[str] | None = None) -> pa.Table:
        """A stored table, its digest checked."""
        return self._tables(self._bytes(ref), ref["sha256"], columns)

    def json(self, ref: Ref) -> Any:
        """Stored plain data, its digest checked."""
        return read_json(self._bytes(ref), ref["sha256"])

    def _bytes(self, ref: Ref) -> bytes:
        name = segment_name(ref)
        if not self._disk.exists(name):
            msg = f"{name} is missing"
            raise IntegrityError(msg)
        return self._disk.read(name)

    def put_file(self, name: str, data: bytes) -> None:
        """Write a file with a name of its own."""
        if self._writable and not (self._disk.exists(name) and self._disk.read(name) == data):
            self._disk.write(name, data)

    def file(self, name: str) -> bytes:
        """The bytes of a file with a name of its own."""
        return self._disk.read(name)

    def has_file(self, name: str) -> bool:
        """Whether a file is there."""
        return self._disk.exists(name)

    def files(self) -> list[str]:
        """Every file of the run."""
        return self._disk.names()

    def sweep(self) -> None:
        """Remove segments that no event refers to: leftovers of work that was interrupted and done again."""
        if not self._writable:
            return
        known = set(referenced(self.events))
        for name in self.files():
            if name.startswith("segments/") and name not in known:
                self._disk.remove(name)

    def telemetry(self, **facts: Any) -> None:
        """Note times, memory and the like, outside every digest."""
        self._disk.note(TELEMETRY, canonical_json(facts) + b"\n")


def referenced(events: list[Event]) -> Iterator[str]:
    """Names of the segments that events refer to."""

    def walk(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if set(value) == {"sha256", "suffix"}:
                yield segment_name(value)
            else:
                for inner in value.values():
                    yield from walk(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from walk(inner)

    for event in events:
        yield from walk(dict(event.body))


def _place(events: list[Event]) -> Place:
    place = Place()
    for event in events:
        place = place.then(event.kind)
    return place


def _difference(logged: Event, event: Event) -> str:
    if logged.kind != event.kind:
        return ""
    keys = [key for key in {**logged.body, **event.body} if logged.body.get(key) != event.body.get(key)]
    return f", in {', '.join(repr(key) for key in keys[:3])}" if keys else ""
