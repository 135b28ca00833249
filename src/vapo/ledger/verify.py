"""Checking a run folder byte by byte, without redoing any of its work and without opening a table.

What is found comes in the order in which a reader would meet it: the log and the marks beside it, then the
files that its events name, the doors for labels, certificates and their signatures, and last what does not
belong there at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from vapo._internal.keyed import sha256_hex
from vapo.errors import IntegrityError, VapoError
from vapo.ledger.checkpoints import NOTE, SIGNER, check_growth, checkpoint_of, last_signed
from vapo.ledger.disk import Disk
from vapo.ledger.envelope import CERTIFICATE_TYPE, IN_TOTO, Envelope, Statement
from vapo.ledger.keys import SIGNS, VerifierKey
from vapo.ledger.log import Event, EventKind, check_mark, mark, merkle_root, parse_log
from vapo.ledger.note import Checkpoint, Note, run_origin
from vapo.ledger.run import CERTIFICATE, CHECKPOINT, LOG, TELEMETRY, referenced
from vapo.ledger.sealed import SEALED_LABELS
from vapo.ledger.segments import segment_name

__all__ = ["Finding", "Report", "carries_root", "verify_run"]

_HISTORY = "what this log says cannot be relied on from there on: go back to a copy, or to who made the run"
_FORGED = "somebody who could write to the run changed it, or it was not made by this software"
_REMOVED = (
    "it was removed, or its writing was interrupted: vapo join (or certify), once more, writes it again"
)
_OUTCOMES = (EventKind.ISSUED, EventKind.REFUSED)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it was written."""

    where: str
    """The file, and the event if there is one."""
    what: str
    """What is wrong."""
    means: str
    """What that means for whoever relies on the run."""


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of a verification."""

    findings: tuple[Finding, ...]
    """What is wrong, in the order in which it is met."""
    events: int
    last: str
    """Kind of the last event."""
    root: str
    """Merkle root of the log."""
    origin: str = ""
    """The name of this log in checkpoints."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """The report as plain data."""
        found = [{"where": f.where, "what": f.what, "means": f.means} for f in self.findings]
        return {
            "ok": self.ok,
            "events": self.events,
            "last": self.last,
            "root": self.root,
            "origin": self.origin,
            "findings": found,
        }


def verify_run(
    path: str | Path,
    *,
    keys: Collection[VerifierKey] = (),
    checkpoint: Checkpoint | None = None,
    exact: bool = False,
) -> Report:
    """Check log, chain, marks, every file, the doors, signatures, and that nothing else is there.

    Args:
        path: The run folder.
        keys: Public keys; the current certificate must carry a signature of one of them.
        checkpoint: What the run was at an earlier time, had from elsewhere; the run must only have grown since.
        exact: Whether it must not even have grown.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     verify_run(folder).findings[0].where
        'log.jsonl'
    """
    disk = Disk(path)
    noted = disk.read(CHECKPOINT) if disk.exists(CHECKPOINT) else None
    if not disk.exists(LOG):
        what = "missing: this is not a run folder, or its log was removed"
        return Report((Finding(LOG, what, "there is nothing to verify"),), 0, "", "")
    try:
        events, torn = parse_log(disk.read(LOG))
        named = [tuple(referenced([event])) for event in events]
    except IntegrityError as error:
        return Report((Finding(LOG, str(error).removeprefix(f"{LOG}: "), _HISTORY),), 0, "", "")
    view = _View(disk, events, named, tuple(keys))
    findings = [*_torn(torn, len(events)), *_marked(noted, events), *_grown(events, checkpoint, exact=exact)]
    for check in (_segments, _doors, _certificates, _current, _note, _strangers):
        try:
            findings += check(view)
        except (KeyError, TypeError, AttributeError, ValueError):
            # A line that chains correctly can still hold a body that no writer of ours would have written.
            findings.append(Finding(LOG, "an event lacks what events of its kind hold", _FORGED))
    origin = run_origin(events[0].digest) if events else ""
    last = str(events[-1].kind) if events else ""
    return Report(tuple(findings), len(events), last, merkle_root([e.line for e in events]), origin)


class _View:
    """A run folder while it is looked at. Tables of any size are only hashed; what is read is kept."""

    def __init__(
        self, disk: Disk, events: list[Event], named: list[tuple[str, ...]], keys: tuple[VerifierKey, ...]
    ) -> None:
        self.disk, self.events, self.named, self.keys = disk, events, named, keys
        self._read: dict[str, bytes | None] = {}

    def bytes(self, name: str) -> bytes | None:
        if name not in self._read:
            self._read[name] = self.disk.read(name) if self.disk.exists(name) else None
        return self._read[name]

    @cached_property
    def outcomes(self) -> list[Event]:
        return [event for event in self.events if event.kind in _OUTCOMES]


def _torn(torn: int, events: int) -> Iterator[Finding]:
    if torn:
        what = f"{torn} bytes of an unfinished event behind event {events - 1}"
        yield Finding(LOG, what, "a crash, if nothing else is wrong: resuming cuts them off, nothing is lost")
    if not events:
        yield Finding(LOG, "no event at all", "nothing was declared yet")


def _marked(noted: bytes | None, events: list[Event]) -> Iterator[Finding]:
    lost = "events that were acknowledged are gone, or were exchanged: the run is not what it was"
    try:
        ahead = check_mark(mark([]) if noted is None else noted, events)
    except IntegrityError as error:
        yield Finding(CHECKPOINT, str(error).removeprefix(f"{CHECKPOINT}: "), lost)
        return
    if noted is None:
        means = "a loss of the last events would not show"
        yield Finding(CHECKPOINT, "missing: it notes how many events the log has", means)
    elif ahead:
        what = f"{ahead} events behind the log"
        yield Finding(CHECKPOINT, what, "an interruption (resuming mends it), or events added by hand")


def _grown(events: list[Event], checkpoint: Checkpoint | None, *, exact: bool) -> Iterator[Finding]:
    if checkpoint is None:
        return
    if exact and len(events) > checkpoint.size:
        what = f"{len(events) - checkpoint.size} events were added behind the {checkpoint.size} of the checkpoint"
        yield Finding(LOG, what, "the run went on, or somebody added to it, after that checkpoint was taken")
    try:
        check_growth(events, checkpoint)
    except VapoError as error:
        yield Finding(LOG, str(error), "the run was not only added to since that checkpoint was taken")


def _segments(view: _View) -> Iterator[Finding]:
    checked: set[str] = set()
    for event, names in zip(view.events, view.named, strict=True):
        for name in names:
            if name in checked:
                continue
            checked.add(name)
            means = f"what event {event.seq} ({event.kind}) rests on cannot be looked at"
            if not view.disk.exists(name):
                yield Finding(name, f"missing, though event {event.seq} ({event.kind}) refers to it", means)
            elif view.disk.digest(name) != Path(name).stem:
                yield Finding(
                    name, f"changed after event {event.seq} ({event.kind}) recorded its digest", means
                )


def carries_root(data: bytes, root: str) -> bool:
    """Whether the footer of a Parquet file carries a trace root, by its bytes: nothing is parsed.

    Example:
        >>> carries_root(b"PAR1", "ab" * 32)
        False
    """
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8] if size <= len(data) - 12 and data[-4:] == b"PAR1" else b""
    pair = b"\x18\x0fvapo.trace_root\x18\x40" + root.encode() + b"\x00"
    return footer.count(pair) == footer.count(b"\x18\x0fvapo.trace_root\x18") == 1


def _doors(view: _View) -> Iterator[Finding]:
    root, means = (
        "",
        "these labels may have been seen before every decision was fixed: nothing is certified by them",
    )
    declared = None
    for event in view.events:
        if event.kind in (EventKind.PROTOCOL, EventKind.STAGE):
            declared = event.body.get(SEALED_LABELS)
        if event.kind is EventKind.FROZEN:
            root = merkle_root([earlier.line for earlier in view.events[: event.seq + 1]])
        if event.kind is not EventKind.LABELS:
            continue
        if event.body.get("trace_root") != root:
            what = "labels were joined to another trace than the one frozen before"
            yield Finding(f"{LOG}: event {event.seq}", what, means)
        if declared not in (None, event.body.get(SEALED_LABELS)):
            what = "labels were joined that did not come out of the sealed file which the stage declared"
            yield Finding(f"{LOG}: event {event.seq}", what, means)
        name = segment_name(event.body["labels"])
        data = view.bytes(name)
        if data is not None and not carries_root(data, root):
            what = "the label file does not carry the root of the trace that was frozen before it"
            yield Finding(name, what, means)


def _certificates(view: _View) -> Iterator[Finding]:
    """What the log says about each certificate, against what stands in its envelope."""
    for event in view.outcomes:
        name = segment_name(event.body["envelope"])
        data = view.bytes(name)
        if data is None or sha256_hex(data) != event.body["envelope"]["sha256"]:
            continue  # found among the files already
        joined = [e for e in view.events[: event.seq] if e.kind is EventKind.LABELS][-1]
        try:
            keys = [] if event.body[SIGNER] is None else [VerifierKey.parse(event.body[SIGNER])]
            envelope = Envelope.parse(data, payload_type=IN_TOTO, where=name)
            statement = Statement.parse(envelope.payload, predicate_type=CERTIFICATE_TYPE, where=name)
            if keys:
                envelope.verify(keys, where=name)
        except VapoError as error:
            yield Finding(name, str(error).removeprefix(f"{name}: "), _FORGED)
            continue
        said, subjects = statement.predicate, statement.subjects
        wanted = {"trace": joined.body["trace_root"], "labels": joined.body["labels"]["sha256"]}
        wrong = []
        # With a signature beside the signer's, a trusted key's would vouch for a log that another key has signed.
        signers = [(key.fingerprint, key.kind) for key in keys]
        if [(one.keyid, SIGNS) for one in envelope.signatures] != signers:
            wrong.append("is not signed by the signer that its event names, and by nobody else")
        if envelope.data != data or statement.payload != envelope.payload:
            wrong.append("is not in canonical form")
        roots = (said.get("trace_root"), said.get("labels_digest"))
        if list(subjects.items()) != list(wanted.items()) or roots != tuple(wanted.values()):
            wrong.append("is about another trace or other labels than those joined before it")
        status = "certified" if event.kind is EventKind.ISSUED else "refused"
        if not said.get("status") == event.body["status"] == status:
            wrong.append(f"does not say '{status}' as its event does")
        if said.get("selected") != event.body["selected"]:
            wrong.append("names another policy than its event")
        if said.get("candidates_segment") != event.body["candidates"]:
            wrong.append("names another table of candidates than its event")
        for what in wrong:
            yield Finding(name, f"the certificate of event {event.seq} {what}", _FORGED)


def _current(view: _View) -> Iterator[Finding]:
    data, means = (
        view.bytes(CERTIFICATE),
        "whoever reads this file reads something that the run did not certify",
    )
    if not view.outcomes:
        if data is not None:
            yield Finding(CERTIFICATE, "there is a certificate, but the log never issued one", means)
        elif view.keys:
            yield Finding(
                CERTIFICATE, "there is no certificate, so no key has signed one", "nothing is certified"
            )
        return
    event = view.outcomes[-1]
    if data is None:
        yield Finding(CERTIFICATE, f"missing, though event {event.seq} issued it", _REMOVED)
        return
    if sha256_hex(data) != event.body["envelope"]["sha256"]:
        yield Finding(CERTIFICATE, f"not the certificate that event {event.seq} recorded", means)
        return
    if view.keys:
        try:
            Envelope.parse(data, where=CERTIFICATE).verify(view.keys, where=CERTIFICATE)
        except VapoError as error:
            what = str(error).removeprefix(f"{CERTIFICATE}: ")
            yield Finding(CERTIFICATE, what, "whoever holds the trusted key did not sign this certificate")


def _note(view: _View) -> Iterator[Finding]:
    data, event = view.bytes(NOTE), last_signed(view.events)
    means = "the run is not what the key's owner signed, or the signature was tampered with"
    if event is None:
        if data is not None:
            yield Finding(
                NOTE, "there is a signed checkpoint, but the log names no key that signed one", means
            )
        return
    if data is None:
        yield Finding(NOTE, f"missing, though the key of event {event.seq} signed it", _REMOVED)
        return
    try:
        key = VerifierKey.parse(event.body[SIGNER])
        note = Note.parse(data)
        note.verify([key])
    except VapoError as error:
        yield Finding(NOTE, str(error).removeprefix("note: "), means)
        return
    if note.text != checkpoint_of(view.events, event.seq + 1).text:
        what = f"signed for another history than the log's first {event.seq + 1} events"
        yield Finding(NOTE, what, means)
    elif len(note.signatures) != 1:
        yield Finding(
            NOTE, "holds other signatures beside the run's own", "keep cosigned checkpoints elsewhere"
        )


def _strangers(view: _View) -> Iterator[Finding]:
    disk, means = view.disk, "it is no part of what was recorded; whoever put it there could write to the run"
    known = {LOG, TELEMETRY, CERTIFICATE, CHECKPOINT, NOTE, *chain.from_iterable(view.named)}
    for name in disk.names():
        if name not in known:
            yield Finding(_shown(name), "does not belong to the run: no event refers to it", means)
        elif (disk.root / name).is_symlink():
            yield Finding(name, "a symbolic link, whose target can change unseen", means)
        elif not disk.exists(name):
            yield Finding(name, "not a file but a pipe or the like", means)
    for path in sorted(disk.root.rglob("*")):
        if path.is_dir() and (
            path.is_symlink() or (path != disk.root / "segments" and not any(path.iterdir()))
        ):
            what = "a symbolic link" if path.is_symlink() else "an empty folder"
            name = _shown(str(path.relative_to(disk.root)))
            yield Finding(name, f"{what} that does not belong to the run", means)


def _shown(name: str) -> str:
    """A file's name as it can be printed: whoever chose it could have a terminal wipe out what was found."""
    return name if name.isprintable() else ascii(name)
