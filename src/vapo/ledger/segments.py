"""Segments: immutable files named by the SHA-256 of their bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from vapo._internal.keyed import sha256_hex
from vapo._internal.strict import strict_json
from vapo.errors import InputError, IntegrityError

__all__ = [
    "Encoded",
    "Ref",
    "TableReader",
    "checked_bytes",
    "encode",
    "encode_table",
    "parquet_bytes",
    "read_json",
    "read_parquet",
    "segment_name",
]


Ref = dict[str, str]
"""How an event refers to a segment: its `sha256` and its `suffix`."""

TableReader = Callable[[bytes, str, list[str] | None], pa.Table]
"""Opens a Parquet segment: given its bytes, their digest, and which columns are wanted."""

_SAMPLE = 2048
_MOST_JSON = 1 << 28
_NAME = re.compile(r"[0-9a-f]{64}\.(parquet|json)")


class Encoded(NamedTuple):
    """A segment that is not stored yet."""

    ref: Ref
    data: bytes | memoryview


def encode(data: bytes | memoryview, suffix: str) -> Encoded:
    """Name some bytes by their digest."""
    return Encoded({"sha256": sha256_hex(data), "suffix": suffix}, data)


def segment_name(ref: Ref) -> str:
    """Where a segment lives.

    Raises:
        IntegrityError: If the reference is not one that a ledger would have written.
    """
    name = f"{ref['sha256']}.{ref['suffix']}"
    if not _NAME.fullmatch(name):
        msg = f"{name[:100]!r} is not the name of a segment"
        raise IntegrityError(msg)
    return f"segments/{name}"


def parquet_bytes(table: pa.Table) -> memoryview:
    """A table as Parquet."""
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(
            table,
            sink,
            compression="zstd",
            use_dictionary=_repetitive(table),
            write_statistics=False,
            data_page_size=1 << 22,
            row_group_size=max(len(table), 1),
        )
    except pa.ArrowException as error:
        expected = "columns that Parquet can hold"
        raise InputError(expected, str(error)) from None
    return memoryview(sink.getvalue())


def _repetitive(table: pa.Table) -> list[str]:
    """The columns that say the same again and again, as far as their first rows show; others need no dictionary."""
    found = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        first, kind = column.slice(0, _SAMPLE), column.type
        repeats = (pa.types.is_string(kind) or pa.types.is_integer(kind)) and (
            2 * pc.count_distinct(first).as_py() <= len(first)
        )
        found += [name] if repeats else []
    return found


def encode_table(table: pa.Table) -> Encoded:
    """A table as a segment that is not stored yet."""
    return encode(parquet_bytes(table), "parquet")


def checked_bytes(data: bytes, digest: str) -> bytes:
    """The bytes of a segment, after comparing them with its digest.

    Raises:
        IntegrityError: If they are other bytes.
    """
    found = sha256_hex(data)
    if found != digest:
        msg = f"segment {digest[:12]}…: its bytes are not the ones that were written (SHA-256 is now {found[:12]}…)"
        raise IntegrityError(msg)
    return data


def read_parquet(data: bytes, digest: str, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet segment after checking its digest."""
    try:
        return pq.read_table(pa.BufferReader(_arrows_own(checked_bytes(data, digest))), columns=columns)
    except (pa.ArrowException, OSError) as error:
        msg = f"segment {digest[:12]}…: not readable as Parquet: {error}"
        raise IntegrityError(msg) from None


def _arrows_own(data: bytes) -> pa.Buffer:
    """A copy in memory that is Arrow's.

    Arrow's threads may let go of a file after the table was returned. To free Python's memory they would need the
    interpreter, and where that is ending already the process is aborted with all its work done.
    """
    buffer = pa.allocate_buffer(len(data))
    memoryview(buffer).cast("B")[:] = data
    return buffer


def read_json(data: bytes, digest: str) -> Any:
    """Read a JSON segment after checking its digest."""
    return strict_json(checked_bytes(data, digest), f"segment {digest[:12]}…", limit=_MOST_JSON)
