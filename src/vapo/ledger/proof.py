"""Proof files: that an event, and in it a block of rows, is in a run, for a reader who has nothing else.

A proof file is canonical JSON. One kind shows that a run only grew: an earlier checkpoint, a later signed one
and the hashes between them. The other holds a signed checkpoint, one line of the event log with its way up to
the checkpoint's root, and if asked for sixteen rows of a table with their way up to the root that the
event states. What it proves is that whoever signed the checkpoint committed to these bytes at this place;
not that they are true, and without a witness not that nobody was shown another history.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from vapo._internal.keyed import canonical_json
from vapo._internal.strict import base64_text, from_base64, strict_json
from vapo.errors import InputError, IntegrityError
from vapo.ledger.checkpoints import check_growth_from, parse_checkpoint
from vapo.ledger.keys import VerifierKey
from vapo.ledger.merkle import Tree, leaf_hash, verify_consistency, verify_inclusion
from vapo.ledger.note import Checkpoint, Signed, open_checkpoint
from vapo.ledger.rows import ROWS_PER_BLOCK, RowProof

__all__ = [
    "FORMAT",
    "GROWTH",
    "MOST_PROOF",
    "Grown",
    "Proved",
    "check_growth_proof",
    "check_proof",
    "make_growth",
    "make_proof",
]

FORMAT = "audit-first-vapo/proof/v1"
GROWTH = "audit-first-vapo/growth/v1"
MOST_PROOF = 1 << 22
"""Bytes of the longest proof file that is read."""
_MOST_HASHES = 64
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Proved:
    """What a proof file was found to prove."""

    checkpoint: Checkpoint
    signers: tuple[Signed, ...]
    """Trusted keys that signed the checkpoint, witnesses among them; none if a known one was compared."""
    event: Mapping[str, Any]
    """The event as it stands in the log."""
    rows: tuple[Mapping[str, Any], ...]
    """Rows that the event's table holds; none if the proof is of an event only."""
    first_row: int
    """Number of the first of these rows in the table, from 0."""

    def row(self, name: str, *, column: str = "id") -> Mapping[str, Any]:
        """The proved row with an id.

        Raises:
            IntegrityError: If it is not among them.
        """
        for row in self.rows:
            if row.get(column) == name:
                return row
        msg = f"proof: no row whose '{column}' is {name!r} is proved by this file"
        raise IntegrityError(msg)


def make_proof(
    lines: Sequence[bytes],
    index: int,
    checkpoint: bytes,
    *,
    rows: RowProof | None = None,
    at: Sequence[str | int] = (),
) -> bytes:
    """Write a proof file.

    Args:
        lines: The lines of the log, without their newlines.
        index: Which of them to prove.
        checkpoint: The signed note, or only the text of a checkpoint where nothing is signed.
        rows: A block of rows of a table that the event commits to.
        at: The keys that lead, in the event's body, to the root and number of that table's rows.

    Raises:
        InputError: If the checkpoint does not reach to the event, or the event does not state the rows' root.
        IntegrityError: If the log is not the one that the checkpoint is of.
    """
    point = parse_checkpoint(checkpoint)
    if not 0 <= index < min(len(lines), point.size) or len(lines) < point.size:
        expected = f"an event of the first {point.size}, and a log that holds them"
        raise InputError(expected, f"event {index} of {len(lines)}")
    tree = Tree(lines[: point.size])
    if tree.root() != point.root:
        msg = f"checkpoint: the log's first {point.size} events have another root"
        raise IntegrityError(msg)
    proof: dict[str, Any] = {
        "format": FORMAT,
        "checkpoint": checkpoint.decode(),
        "event": {
            "index": index,
            "line": lines[index].decode(),
            "path": [base64_text(value) for value in tree.prove_inclusion(index)],
        },
    }
    if rows is not None:
        event = _event(lines[index].decode(), index)
        if _at(event["body"], at) != {"root": rows.root, "rows": rows.rows}:
            expected = f"an event that states this table's root at {list(at)}"
            raise InputError(expected, f"event {index}")
        proof["rows"] = {
            "at": list(at),
            "index": rows.index,
            "block": rows.block.decode(),
            "path": [base64_text(value) for value in rows.path],
        }
    return canonical_json(proof)


def check_proof(
    data: bytes,
    trusted: Sequence[VerifierKey] | Checkpoint,
    *,
    origin: str | None = None,
    witnesses: Sequence[VerifierKey] = (),
    quorum: int | None = None,
) -> Proved:
    """Check a proof file; nothing else of the run is needed.

    Args:
        data: The proof file.
        trusted: Keys that may sign for the run; or, for a run without keys, a checkpoint had from elsewhere.
        origin: Which run it must be of.
        witnesses: Keys whose cosignature of the checkpoint counts.
        quorum: How many witnesses must have cosigned; all that are named unless told.

    Raises:
        IntegrityError: If anything in it is not as it must be; the message names the first such thing.

    Example:
        >>> from vapo.ledger.keys import SigningKey
        >>> key = SigningKey.from_seed("example.org/runs", bytes(32))
        >>> line = canonical_json({"seq": 0, "prev": "0" * 64, "kind": "example", "body": {}})
        >>> note = Checkpoint("example.org/a-run", 1, Tree([line]).root()).sign(key).data
        >>> check_proof(make_proof([line], 0, note), [key.verifier]).event["kind"]
        'example'
    """
    raw = strict_json(data, "proof", limit=MOST_PROOF)
    if canonical_json(raw) != data:
        _refuse("not canonical JSON")
    parts = _fields(raw, "the file", format=str, checkpoint=str, event=dict, rows=dict)
    if parts["format"] != FORMAT:
        _refuse(f"expected format {FORMAT}")
    note = parts["checkpoint"].encode()
    point, signers = _opened(note, trusted, origin, witnesses, quorum)
    part = _fields(parts["event"], "event", index=int, line=str, path=list)
    path = _path(part["path"], "event")
    verify_inclusion(leaf_hash(part["line"].encode()), part["index"], point.size, path, point.root)
    event = _event(part["line"], part["index"])
    if "rows" not in parts:
        return Proved(point, signers, event, (), 0)
    block = _fields(parts["rows"], "rows", at=list, index=int, block=str, path=list)
    rows = _rows(block, _at(event["body"], block["at"]))
    return Proved(point, signers, event, rows, block["index"] * ROWS_PER_BLOCK)


def _refuse(what: str) -> NoReturn:
    msg = f"proof: {what}"
    raise IntegrityError(msg)


def _opened(
    note: bytes,
    trusted: Sequence[VerifierKey] | Checkpoint,
    origin: str | None,
    witnesses: Sequence[VerifierKey],
    quorum: int | None,
) -> tuple[Checkpoint, tuple[Signed, ...]]:
    """The checkpoint of a proof file, once it is known to be the one that is trusted or to be signed by who is."""
    if not isinstance(trusted, Checkpoint):
        opened = open_checkpoint(note, trusted, origin=origin, witnesses=witnesses, quorum=quorum)
        return opened.checkpoint, opened.log + opened.witnesses
    if witnesses or quorum:
        expected = "keys of the run beside keys of witnesses"
        raise InputError(expected, "a known checkpoint")
    point = parse_checkpoint(note)
    if point != trusted or (origin is not None and point.origin != origin):
        _refuse("of another checkpoint than the known one")
    return point, ()


@dataclass(frozen=True, slots=True)
class Grown:
    """What a proof of growth was found to prove."""

    old: Checkpoint
    """What the run was. Nobody signed this part: compare it with the checkpoint that you kept."""
    checkpoint: Checkpoint
    signers: tuple[Signed, ...]
    """Trusted keys that signed the later checkpoint."""
    note: bytes
    """The later checkpoint as it was signed."""
    path: tuple[bytes, ...]
    """The hashes between the two."""


def make_growth(lines: Sequence[bytes], old: bytes, checkpoint: bytes) -> bytes:
    """Write a proof file that shows that a log only grew between two checkpoints.

    Args:
        lines: The lines of the log, without their newlines.
        old: The earlier checkpoint, signed or not.
        checkpoint: The later one.

    Raises:
        IntegrityError: If the log is not the one that the checkpoints are of.
    """
    before, point = parse_checkpoint(old), parse_checkpoint(checkpoint)
    tree = Tree(lines)
    if point.size > len(tree) or tree.root(point.size) != point.root:
        msg = f"checkpoint: the log's first {point.size} events have another root, or are not there"
        raise IntegrityError(msg)
    check_growth_from(tree, point.origin, before)
    path = tree.prove_consistency(before.size, point.size) if before.size <= point.size else ()
    if before.size > point.size:
        expected = f"an earlier checkpoint than that of {point.size} events"
        raise InputError(expected, f"one of {before.size}")
    return canonical_json(
        {
            "format": GROWTH,
            "old": before.text,
            "checkpoint": checkpoint.decode(),
            "path": [base64_text(value) for value in path],
        }
    )


def check_growth_proof(
    data: bytes,
    trusted: Sequence[VerifierKey] | Checkpoint,
    *,
    origin: str | None = None,
    witnesses: Sequence[VerifierKey] = (),
    quorum: int | None = None,
) -> Grown:
    """Check a proof of growth; arguments as for `check_proof`.

    Raises:
        IntegrityError: If anything in it is not as it must be.

    Example:
        >>> old = Checkpoint("example.org/a-run", 1, Tree([b"a"]).root())
        >>> now = Checkpoint("example.org/a-run", 2, Tree([b"a", b"b"]).root())
        >>> data = make_growth([b"a", b"b"], old.text.encode(), now.text.encode())
        >>> check_growth_proof(data, now).old == old
        True
    """
    raw = strict_json(data, "proof", limit=MOST_PROOF)
    if canonical_json(raw) != data:
        _refuse("not canonical JSON")
    parts = _fields(raw, "the file", format=str, old=str, checkpoint=str, path=list)
    if parts["format"] != GROWTH:
        _refuse(f"expected format {GROWTH}")
    note = parts["checkpoint"].encode()
    point, signers = _opened(note, trusted, origin, witnesses, quorum)
    old, path = Checkpoint.parse(parts["old"]), _path(parts["path"], "growth")
    if old.origin != point.origin:
        _refuse("the two checkpoints are of different runs")
    verify_consistency(old.size, point.size, old.root, point.root, path)
    return Grown(old, point, signers, note, tuple(path))


def _fields(raw: Any, where: str, **kinds: type) -> dict[str, Any]:
    optional = {"rows"}
    if not isinstance(raw, dict) or set(raw) - set(kinds) or set(kinds) - set(raw) - optional:
        _refuse(f"{where}: expected exactly the fields {', '.join(kinds)}")
    for name, value in raw.items():
        if type(value) is not kinds[name]:
            _refuse(f"{where}: '{name}' is not of the right kind")
    return raw


def _path(raw: list[Any], where: str) -> list[bytes]:
    if len(raw) > _MOST_HASHES or not all(isinstance(value, str) for value in raw):
        _refuse(f"{where}: the path is not a list of hashes")
    return [from_base64(value, f"proof: {where}: a hash", size=32) for value in raw]


def _event(line: str, index: int) -> dict[str, Any]:
    event = strict_json(line.encode(), "proof: event", limit=MOST_PROOF)
    _fields(event, "event's line", seq=int, prev=str, kind=str, body=dict)
    if event["seq"] != index:
        _refuse(f"the line of event {index} says that it is event {event['seq']}")
    return dict(event)


def _at(value: Any, keys: Sequence[Any]) -> Any:
    for key in keys:
        named = isinstance(value, dict) and isinstance(key, str) and key in value
        if not named and not (isinstance(value, list) and type(key) is int and 0 <= key < len(value)):
            return None
        value = value[key]
    return value


def _rows(block: Mapping[str, Any], stated: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(stated, dict) or set(stated) != {"root", "rows"}:
        _refuse("rows: the event states no root of rows at this place")
    root, count = stated["root"], stated["rows"]
    if type(count) is not int or not isinstance(root, str) or not _HASH.fullmatch(root):
        _refuse("rows: the event states no root of rows at this place")
    index, text = block["index"], block["block"].encode()
    blocks = -(-count // ROWS_PER_BLOCK)
    verify_inclusion(leaf_hash(text), index, blocks, _path(block["path"], "rows"), bytes.fromhex(root))
    lines = text.split(b"\n")
    if lines.pop() or len(lines) != min(ROWS_PER_BLOCK, count - index * ROWS_PER_BLOCK):
        _refuse("rows: the block does not have as many rows as it must")
    rows = tuple(strict_json(line, f"proof: row {n}") for n, line in enumerate(lines, 1))
    for row, line in zip(rows, lines, strict=True):
        if not isinstance(row, dict) or canonical_json(row) != line:
            _refuse("rows: a row is not an object in canonical JSON")
    return rows
