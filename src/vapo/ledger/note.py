"""Signed notes and log checkpoints, as C2SP signed-note, tlog-checkpoint and tlog-cosignature define them.

A checkpoint says in three lines which log it is, how many events it holds and what their Merkle root is.
Below an empty line stand signatures: the log's own, and those of witnesses. A witness cosigns a
checkpoint after it has seen proof that the log only grew since the one it cosigned before; a log alone
can sign two histories, a log with an independent witness cannot. The time of a cosignature stands in its
own line, is given by the caller, and enters no digest of the run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from vapo._internal.strict import base64_text, from_base64
from vapo.errors import InputError, IntegrityError
from vapo.ledger.keys import COSIGNS, SIGNS, SigningKey, VerifierKey, verify_ed25519
from vapo.ledger.merkle import EMPTY_ROOT, MOST_LEAVES, verify_consistency

__all__ = [
    "MOST_NOTE",
    "Checkpoint",
    "Note",
    "NoteSignature",
    "Signed",
    "SignedCheckpoint",
    "cosign",
    "open_checkpoint",
    "run_origin",
]

MOST_NOTE = 1 << 18
"""Bytes of the longest note that is read."""
_MOST_SIGNATURES = 100
_DASH = "\N{EM DASH} "
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_LINE_END = re.compile(r"[\x00-\x1f]")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f]")


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """A signature line of a note."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        """The line as it stands in the note, without the newline."""
        return f"{_DASH}{self.name} {base64_text(self.key_id + self.signature)}"

    @classmethod
    def parse(cls, line: str) -> Self:
        """Read a signature line."""
        name, _, encoded = line.removeprefix(_DASH).partition(" ")
        fits = name and "+" not in name and not any(character.isspace() for character in name)
        if not fits or not line.startswith(_DASH):
            msg = "note: a signature line is not of the form '— name base64'"
            raise IntegrityError(msg)
        data = from_base64(encoded, "note: a signature")
        if len(data) < 5:
            msg = "note: a signature is too short"
            raise IntegrityError(msg)
        return cls(name, data[:4], data[4:])


@dataclass(frozen=True, slots=True)
class Signed:
    """A good signature."""

    key: VerifierKey
    time: int | None
    """Seconds since 1970 that a witness put beside its signature."""


@dataclass(frozen=True, slots=True)
class Note:
    r"""A text and the signatures below it.

    Example:
        >>> key = SigningKey.from_seed("example.org/run", bytes(32))
        >>> note = Note("hello\n").sign(key)
        >>> [signed.key.name for signed in Note.parse(note.data).verify([key.verifier])]
        ['example.org/run']
    """

    text: str
    """Ends in a newline."""
    signatures: tuple[NoteSignature, ...] = ()

    def __post_init__(self) -> None:
        try:
            encodable = bool(self.text.encode())
        except UnicodeEncodeError:
            encodable = False
        if not encodable or not self.text.endswith("\n") or _CONTROL.search(self.text):
            expected = "a text that ends in a newline and holds no other control character"
            raise InputError(expected, repr(self.text[:60]), where="note")

    @property
    def data(self) -> bytes:
        """The note as it is stored."""
        lines = "".join(f"{signature.line}\n" for signature in self.signatures)
        return f"{self.text}\n{lines}".encode()

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read a note, without trusting it.

        Raises:
            IntegrityError: If it is not of the exact form.
        """
        if len(data) > MOST_NOTE:
            msg = f"note: {len(data)} bytes, at most {MOST_NOTE} are read"
            raise IntegrityError(msg)
        try:
            whole = data.decode("utf-8")
        except UnicodeDecodeError:
            msg = "note: not UTF-8"
            raise IntegrityError(msg) from None
        if _CONTROL.search(whole):
            msg = "note: holds a control character"
            raise IntegrityError(msg)
        text, blank, lines = whole.rpartition("\n\n")
        if not blank or not lines.endswith("\n"):
            msg = "note: not a text, an empty line and signature lines that each end in a newline"
            raise IntegrityError(msg)
        if lines.count("\n") > _MOST_SIGNATURES:
            msg = f"note: more than {_MOST_SIGNATURES} signatures"
            raise IntegrityError(msg)
        signatures = tuple(NoteSignature.parse(line) for line in lines[:-1].split("\n"))
        return cls(f"{text}\n", signatures)

    def sign(self, key: SigningKey) -> Note:
        """The note with one more signature, unless the key has signed it already."""
        line = NoteSignature(key.name, key.verifier.key_id, key.sign(self.text.encode()))
        return self if line in self.signatures else replace(self, signatures=(*self.signatures, line))

    def verify(self, keys: Sequence[VerifierKey]) -> tuple[Signed, ...]:
        """Check the signatures of known keys; those of unknown keys are passed over.

        Returns:
            Each known key that signed, once, in the order of the note.

        Raises:
            IntegrityError: If a signature by a known key is not good, or there is none by any.
        """
        known: dict[tuple[str, bytes], list[VerifierKey]] = {}
        for key in keys:
            known.setdefault((key.name, key.key_id), []).append(key)
        found: dict[VerifierKey, Signed] = {}
        for line in self.signatures:
            candidates = known.get((line.name, line.key_id), ())
            good = [signed for key in candidates if (signed := _check(self.text, line, key)) is not None]
            if candidates and not good:
                msg = f"note: the signature by {line.name} is not good: the text or the signature was changed"
                raise IntegrityError(msg)
            for signed in good:
                found.setdefault(signed.key, signed)
        if not found:
            names = ", ".join(sorted({key.name for key in keys})) or "any key, for none is trusted"
            msg = f"note: not signed by {names}"
            raise IntegrityError(msg)
        return tuple(found.values())


def _timed(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def _check(text: str, line: NoteSignature, key: VerifierKey) -> Signed | None:
    if key.kind != COSIGNS:
        return Signed(key, None) if verify_ed25519(key.public, line.signature, text.encode()) else None
    time = int.from_bytes(line.signature[:8])
    if time >= 2**63 or not verify_ed25519(key.public, line.signature[8:], _timed(text, time)):
        return None
    return Signed(key, time)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a log was at one time.

    Example:
        >>> print(Checkpoint("example.org/run", 0, EMPTY_ROOT).text, end="")
        example.org/run
        0
        47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=
    """

    origin: str
    """Which log it is."""
    size: int
    """How many leaves it has."""
    root: bytes
    """Their Merkle root."""
    extensions: tuple[str, ...] = ()
    """Further lines, which say nothing here."""

    def __post_init__(self) -> None:
        fits = self.origin and self.origin.isprintable()
        fits = fits and all(line and not _LINE_END.search(line) for line in self.extensions)
        fits = fits and 0 <= self.size <= MOST_LEAVES and len(self.root) == 32
        if not fits or (self.size == 0) != (self.root == EMPTY_ROOT):
            expected = "an origin in one line, a size, and the root of 32 bytes that belongs to it"
            raise InputError(expected, f"{self.origin[:60]!r}, {self.size}, {self.root.hex()[:64]}")

    @property
    def text(self) -> str:
        """The text that is signed."""
        lines = (self.origin, str(self.size), base64_text(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of a checkpoint.

        Raises:
            IntegrityError: If it is not of the exact form.
        """
        lines = text.split("\n")
        if len(lines) < 4 or lines.pop() or not all(lines) or not _NUMBER.fullmatch(lines[1]):
            msg = "checkpoint: not an origin, a size and a root in lines of their own"
            raise IntegrityError(msg)
        root = from_base64(lines[2], "checkpoint: the root", size=32)
        try:
            return cls(lines[0], int(lines[1]), root, tuple(lines[3:]))
        except InputError as error:
            msg = f"checkpoint: {error}"
            raise IntegrityError(msg) from None

    def sign(self, key: SigningKey) -> Note:
        """The checkpoint as a note with the log's signature."""
        return Note(self.text).sign(key)


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint that was found good, and who stands for it."""

    checkpoint: Checkpoint
    log: tuple[Signed, ...]
    witnesses: tuple[Signed, ...]


def run_origin(first_event_digest: str) -> str:
    """The origin line of a run: named by its first event, which no later event can change.

    Example:
        >>> run_origin("ab" * 32)[:29]
        'audit-first-vapo/run/abababab'
    """
    if not re.fullmatch(r"[0-9a-f]{64}", first_event_digest):
        expected = "a SHA-256 in hexadecimal"
        raise InputError(expected, repr(first_event_digest[:80]))
    return f"audit-first-vapo/run/{first_event_digest}"


def open_checkpoint(
    data: bytes,
    keys: Sequence[VerifierKey],
    *,
    origin: str | None = None,
    witnesses: Sequence[VerifierKey] = (),
    quorum: int | None = None,
) -> SignedCheckpoint:
    """Read a checkpoint and check who signed it.

    Args:
        data: The signed note.
        keys: Keys that may sign for the log; one of them must have.
        origin: Which log it must be.
        witnesses: Keys whose cosignature counts, as long as they are not the log's own.
        quorum: How many of the witnesses must have signed; all of them unless told.

    Raises:
        IntegrityError: If the form, the origin or a signature is not right, or signatures are missing.

    Example:
        >>> key = SigningKey.from_seed("example.org/runs", bytes(32))
        >>> data = Checkpoint("example.org/a-run", 0, EMPTY_ROOT).sign(key).data
        >>> open_checkpoint(data, [key.verifier]).checkpoint.size
        0
    """
    note = Note.parse(data)
    checkpoint = Checkpoint.parse(note.text)
    if origin is not None and checkpoint.origin != origin:
        msg = f"checkpoint: of {checkpoint.origin}, expected {origin}"
        raise IntegrityError(msg)
    own = {key.public for key in keys}
    signed = note.verify([*keys, *witnesses])
    log = tuple(entry for entry in signed if entry.key in keys and entry.key.kind == SIGNS)
    if not log:
        msg = "checkpoint: not signed by the log's own key"
        raise IntegrityError(msg)
    others = {e.key.public: e for e in signed if e.key in witnesses and e.key.public not in own}
    needed = len({key.public for key in witnesses}) if quorum is None else quorum
    if len(others) < needed:
        msg = f"checkpoint: {len(others)} of {needed} independent witnesses have signed"
        raise IntegrityError(msg)
    return SignedCheckpoint(checkpoint, log, tuple(others.values()))


def cosign(
    data: bytes,
    key: SigningKey,
    *,
    log_keys: Sequence[VerifierKey],
    time: int,
    previous: Checkpoint | None,
    proof: Sequence[bytes] = (),
) -> bytes:
    """Add a witness's signature to a checkpoint, if the log only grew since the one it signed before.

    A witness keeps the last checkpoint that it signed for each origin, and gives it here: this function
    keeps nothing.

    Args:
        data: The signed checkpoint.
        key: The witness's key, which must not be the log's.
        log_keys: Keys that may sign for the log.
        time: Seconds since 1970, from the witness's clock.
        previous: The last checkpoint of this log that this witness signed; None for the first.
        proof: The consistency proof from there to here; empty if there was none, or the size is the same.

    Returns:
        The checkpoint with one more signature line.

    Raises:
        IntegrityError: If the checkpoint is not good, or not a continuation of the previous one.
    """
    if not 0 <= time < 2**63:
        expected = "a time in seconds since 1970"
        raise InputError(expected, str(time))
    if any(key.verifier.public == other.public for other in log_keys):
        expected = "a witness's own key"
        raise InputError(expected, "a key of the log, which cannot be its own witness", where=key.name)
    opened = open_checkpoint(data, log_keys, origin=None if previous is None else previous.origin)
    now = opened.checkpoint
    if previous is not None and previous.size:
        if now.size < previous.size:
            msg = f"checkpoint: the log had {previous.size} events and has {now.size} now"
            raise IntegrityError(msg)
        verify_consistency(previous.size, now.size, previous.root, now.root, proof)
    note = Note.parse(data)
    signature = time.to_bytes(8) + key.sign(_timed(note.text, time))
    line = NoteSignature(key.name, key.witness.key_id, signature)
    return replace(note, signatures=(*note.signatures, line)).data
