"""Sealed labels: handed over early, opened only by the join of a frozen trace.

Labels are encrypted for the recipient whose key the join holds. `open_labels` takes the run's events and
opens nothing until the current stage's trace is frozen; and if the stage declared the digest of its
sealed labels when it was opened, it opens that file only.

What this keeps: nothing in this library reads a label before the freeze, by mistake or in any order of
calls; a label file that lies about on disks and in backups is unreadable without the key; and with the
digest declared beforehand, the log proves that the labels were chosen before the trace. What it does not:
whoever holds the private key can decrypt the file with any age tool at any time, and nobody will see it.
Against that the key must be where the people and programs that make the trace cannot read it: with
another party, or in a store that only the join's job can open.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vapo._internal.keyed import sha256_hex
from vapo._internal.strict import strict_json
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.ledger.age import MOST_SEALED, Identity, Recipient, decrypt, encrypt
from vapo.ledger.keys import read_private, read_public, write_pair
from vapo.ledger.log import Event, EventKind
from vapo.ledger.rows import row_blocks

__all__ = [
    "SEALED_LABELS",
    "LabelKey",
    "Recipient",
    "is_sealed",
    "label_lines",
    "load_label_key",
    "load_recipient",
    "new_label_key",
    "open_labels",
    "parse_labels",
    "seal_labels",
]

_MARK = b"age-encryption.org/"
SEALED_LABELS = "sealed_labels"
"""Where the event that opens a stage may declare the SHA-256 of the stage's sealed labels."""


class LabelKey:
    """A key that opens sealed labels, and only through `open_labels`."""

    __slots__ = ("_identity",)

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    @property
    def recipient(self) -> Recipient:
        """For whom labels are sealed so that this key opens them."""
        return self._identity.recipient


def new_label_key(path: str | Path) -> Recipient:
    """Make a key for sealed labels: the private half at `path`, the recipient in `path.pub`.

    Raises:
        InputError: If one of the files is there already.
    """
    private = X25519PrivateKey.generate()
    recipient = Identity(private).recipient
    write_pair(path, private, recipient.text)
    return recipient


def load_label_key(path: str | Path) -> LabelKey:
    """Read a label key.

    Raises:
        InputError: If there is none, or it is open to others.
    """
    private = read_private(path)
    if not isinstance(private, X25519PrivateKey):
        expected = "a label key (X25519)"
        raise InputError(expected, "a signing key (Ed25519)", where=str(path))
    return LabelKey(Identity(private))


def load_recipient(path: str | Path) -> Recipient:
    """Read the recipient from a `.pub` file.

    Raises:
        InputError: If there is none in it.
    """
    lines = [line for _, line in read_public(path)]
    if len(lines) != 1:
        expected = "one recipient: age1..."
        raise InputError(expected, f"{len(lines)} lines", where=str(path))
    return Recipient.parse(lines[0], where=str(path))


def label_lines(ids: pa.Array, signs: npt.NDArray[np.int8]) -> bytes:
    r"""Labels as they stand inside a sealed file: one line of canonical JSON each.

    Example:
        >>> label_lines(pa.array(["a"]), np.array([1], np.int8))
        b'{"id":"a","z":1}\n'
    """
    return b"".join(row_blocks(pa.table({"id": ids, "z": signs})))


def parse_labels(data: bytes) -> pa.Table:
    """The inverse of `label_lines`, as a table with the columns id and z.

    Raises:
        IntegrityError: If a line is anything else than an id and a sign.
    """
    *lines, rest = data.split(b"\n")
    if rest:
        msg = f"sealed labels: line {len(lines) + 1}: does not end in a newline"
        raise IntegrityError(msg)
    ids, signs = [], []
    for number, line in enumerate(lines, 1):
        where = f"sealed labels: line {number}"
        row = strict_json(line, where)
        if not isinstance(row, dict) or set(row) != {"id", "z"} or not isinstance(row["id"], str):
            msg = f"{where}: expected one object with an id and a sign z"
            raise IntegrityError(msg)
        if type(row["z"]) is not int or row["z"] not in (-1, 1):
            msg = f"{where}: expected a sign z of -1 or 1"
            raise IntegrityError(msg)
        ids.append(row["id"])
        signs.append(row["z"])
    return pa.table({"id": pa.array(ids, pa.string()), "z": pa.array(signs, pa.int8())})


def is_sealed(data: bytes) -> bool:
    """Whether some bytes begin like a sealed file.

    Example:
        >>> is_sealed(b"id,z")
        False
    """
    return data.startswith(_MARK)


def seal_labels(data: bytes, *recipients: Recipient) -> bytes:
    """Encrypt a label file; the bytes differ each time.

    Example:
        >>> key = LabelKey(Identity.from_bytes(bytes(range(32))))
        >>> seal_labels(b"id,z", key.recipient)[:21]
        b'age-encryption.org/v1'
    """
    sealed = encrypt(data, recipients)
    if len(sealed) > MOST_SEALED:
        expected = f"labels that take at most {MOST_SEALED} bytes sealed"
        raise InputError(expected, str(len(sealed)))
    return sealed


def open_labels(data: bytes, key: LabelKey, events: Sequence[Event]) -> bytes:
    """Open a sealed label file for the join of a frozen trace.

    Args:
        data: The sealed file.
        key: The key it was sealed for.
        events: All events of the run so far.

    Returns:
        The label file as it was before it was sealed.

    Raises:
        ProtocolError: If the trace of the current stage is not frozen.
        IntegrityError: If the file is not the one declared, not for this key, or was changed.

    Example:
        >>> key = LabelKey(Identity.from_bytes(bytes(range(32))))
        >>> kinds = (EventKind.PROTOCOL, EventKind.FAMILY, EventKind.ACTIONS, EventKind.FROZEN)
        >>> events = [Event(seq, "", kind, {}) for seq, kind in enumerate(kinds)]
        >>> open_labels(seal_labels(b"id,z", key.recipient), key, events)
        b'id,z'
    """
    openings = [e.seq for e in events if e.kind in (EventKind.PROTOCOL, EventKind.STAGE)]
    stage = events[openings[-1] :] if openings else ()
    if not any(event.kind is EventKind.FROZEN for event in stage):
        msg = "sealed labels stay sealed until the trace is frozen; freeze it first"
        raise ProtocolError(msg)
    declared = stage[0].body.get(SEALED_LABELS)
    if declared is not None and declared != sha256_hex(data):
        msg = f"sealed labels: not the file that event {stage[0].seq} declared when the stage was opened"
        raise IntegrityError(msg)
    return decrypt(data, key._identity)
