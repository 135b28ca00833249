"""The ledger of a training run: what every update used and did, one line each, chained by digests.

It stands beside the gate's own run folder and says what that does not: tokens, calls, labels, and what the learner
measured on its own path. It has no clock; seconds and memory go to `telemetry.jsonl`. Lines since the last checkpoint
can be lost in a crash and come out the same when the work is done again, so they are flushed to the medium only there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo._internal.strict import strict_json
from vapo.errors import InputError, IntegrityError

__all__ = ["GENESIS", "Chain", "Entry", "Lines", "Position", "read_chain"]

GENESIS = "0" * 64
_MOST_LINE = 1 << 24


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the ledger."""

    seq: int
    prev: str
    kind: str
    body: Mapping[str, Any]

    @property
    def line(self) -> bytes:
        """The entry as it stands in the file, without the newline."""
        return canonical_json(
            {"seq": self.seq, "prev": self.prev, "kind": self.kind, "body": dict(self.body)}
        )

    @property
    def line_digest(self) -> str:
        """SHA-256 of the line, which the next entry carries."""
        return sha256_hex(self.line)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a file of lines was written when a checkpoint was taken."""

    size: int = 0
    """Bytes."""
    seq: int = 0
    """Lines."""
    head: str = GENESIS
    """Digest of the last line."""

    def as_dict(self) -> dict[str, Any]:
        """The position as plain data."""
        return {"size": self.size, "seq": self.seq, "head": self.head}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Position:
        """The inverse of `as_dict`."""
        return cls(int(data["size"]), int(data["seq"]), str(data["head"]))


class Lines:
    """A file that lines are added to; it is cut back to where a checkpoint left it.

    Args:
        path: The file.
        at: Where to go on.

    Raises:
        IntegrityError: The file is shorter than the checkpoint says.
    """

    def __init__(self, path: Path, at: Position | None = None) -> None:
        self._at = at or Position()
        there = path.stat().st_size if path.exists() else 0
        if there < self._at.size:
            msg = f"{path}: {self._at.size} bytes were written up to the checkpoint, and {there} are there"
            raise IntegrityError(msg)
        self._file = path.open("ab")
        if there > self._at.size:
            self._file.truncate(self._at.size)

    @property
    def position(self) -> Position:
        """Where the file ends now."""
        return self._at

    def add(self, line: bytes) -> None:
        """Add a line, without a newline in it."""
        self._file.write(line + b"\n")
        self._file.flush()
        self._at = Position(self._at.size + len(line) + 1, self._at.seq + 1, sha256_hex(line))

    def sync(self) -> None:
        """Make sure that all lines are on the medium."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Chain(Lines):
    """The ledger itself: every entry carries the digest of the one before it.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     chain = Chain(Path(folder) / "ledger.jsonl")
        ...     entry = chain.append("run.declared", {"seed": 13})
        ...     chain.close()
        ...     [entry.kind for entry in read_chain(Path(folder) / "ledger.jsonl")]
        ['run.declared']
    """

    def append(self, kind: str, body: Mapping[str, Any]) -> Entry:
        """Add an entry."""
        entry = Entry(self.position.seq, self.position.head, kind, body)
        self.add(entry.line)
        return entry


def read_chain(path: Path) -> list[Entry]:
    """Read a ledger and check that every line follows the one before it.

    Raises:
        InputError: There is no such file.
        IntegrityError: Naming the first line that is not what was written.
    """
    if not path.is_file():
        expected = "a training run (a folder that holds ledger.jsonl)"
        raise InputError(expected, str(path.parent))
    found: list[Entry] = []
    previous = GENESIS
    whole, _, torn = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(whole.split(b"\n") if whole else [], 1):
        where = f"{path.name}: line {number}"
        raw = strict_json(line, where, limit=_MOST_LINE)
        if not isinstance(raw, dict) or set(raw) != {"seq", "prev", "kind", "body"}:
            msg = f"{where}: not an entry"
            raise IntegrityError(msg)
        entry = Entry(raw["seq"], raw["prev"], raw["kind"], raw["body"])
        if entry.seq != number - 1 or entry.prev != previous:
            msg = f"{where}: does not follow the line before it (changed, removed, repeated or moved)"
            raise IntegrityError(msg)
        if entry.line != line:
            msg = f"{where}: not in canonical form"
            raise IntegrityError(msg)
        found.append(entry)
        previous = sha256_hex(line)
    if torn:
        msg = f"{path.name}: {len(torn)} bytes of an unfinished line behind line {len(found)}; resuming cuts them off"
        raise IntegrityError(msg)
    return found
