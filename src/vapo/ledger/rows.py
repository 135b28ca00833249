"""Trees over the rows of a table, so that one row can be shown to be in it without the others.

Each row is one line of canonical JSON (RFC 8785) that ends in a newline; sixteen rows make a block, the
last block may have fewer. The blocks' bytes are the leaves of a Merkle tree. How the table is stored
plays no part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo._internal.ahead import ahead
from vapo._internal.keyed import canonical_json
from vapo._internal.strict import MOST_INTEGER
from vapo.errors import InputError
from vapo.ledger.merkle import Frontier, Tree

__all__ = ["ROWS_PER_BLOCK", "RowProof", "prove_row", "row_blocks", "row_tree", "rows_root"]

ROWS_PER_BLOCK = 16
_SLICE = 1 << 16
_TEXT = pa.large_string()
_ESCAPED = r'["\\\x00-\x1f]'
_MARKS = np.isin(np.arange(256), [*range(0x20), ord('"'), ord("\\")])


@dataclass(frozen=True, slots=True)
class RowProof:
    """A block of rows and its way to the root of all of them."""

    index: int
    """Number of the block, from 0."""
    block: bytes
    path: tuple[bytes, ...]
    rows: int
    """How many rows the whole table has."""
    root: str


def row_blocks(table: pa.Table) -> list[bytes]:
    r"""The rows of a table as canonical text, sixteen to a block.

    Raises:
        InputError: If a column holds what JSON cannot: infinities, NaN, whole numbers beyond 2^53 - 1,
        nested values.

    Example:
        >>> row_blocks(pa.table({"y": [1, None], "id": ["a", "b"]}))
        [b'{"id":"a","y":1}\n{"id":"b","y":null}\n']
    """
    return list(_blocks(table))


def rows_root(table: pa.Table) -> str:
    """Merkle root over the blocks of a table's rows, in hexadecimal.

    Example:
        >>> rows_root(pa.table({"id": pa.array([], pa.string())}))[:16]
        'e3b0c44298fc1c14'
    """
    frontier = Frontier()
    frontier.extend(_blocks(table))
    return frontier.root().hex()


def row_tree(table: pa.Table) -> dict[str, Any]:
    """What an event says of a table so that its rows can be proved: their number and root."""
    return {"root": rows_root(table), "rows": len(table)}


def prove_row(table: pa.Table, row: str | int, *, column: str = "id") -> RowProof:
    r"""Prove that a row is in a table.

    Args:
        table: The whole table.
        row: The row's id, or its number from 0.
        column: Where ids stand.

    Raises:
        InputError: If there is no such row.

    Example:
        >>> prove_row(pa.table({"id": ["a", "b"]}), "b").block
        b'{"id":"a"}\n{"id":"b"}\n'
    """
    number = row if isinstance(row, int) else _find(table, row, column)
    if not 0 <= number < len(table):
        expected = f"a row from 0 to {len(table) - 1}"
        raise InputError(expected, str(number))
    blocks = row_blocks(table)
    tree, index = Tree(blocks), number // ROWS_PER_BLOCK
    return RowProof(index, blocks[index], tree.prove_inclusion(index), len(table), tree.root().hex())


def _find(table: pa.Table, name: str, column: str) -> int:
    number = -1
    if column in table.column_names:
        values = table.column(column)
        number = pc.index(values.cast(pa.string()), pa.scalar(name, pa.string())).as_py()
    if number < 0:
        expected = f"a row whose '{column}' is {name!r}"
        raise InputError(expected, "none")
    return int(number)


def _blocks(table: pa.Table) -> Iterator[bytes]:
    names = sorted(table.column_names, key=lambda name: name.encode("utf-16-be"))
    if not names or len(set(names)) < len(names):
        expected = "a table with columns of different names"
        raise InputError(expected, ", ".join(names) or "none")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        expected = "a sound table"
        raise InputError(expected, str(error).splitlines()[0]) from None
    slices = (_lines(table.slice(start, _SLICE), names, start) for start in range(0, len(table), _SLICE))
    for lines in ahead(slices) if len(table) > _SLICE else slices:
        ends = np.frombuffer(lines.buffers()[1], np.int64)[: len(lines) + 1]
        text = memoryview(lines.buffers()[2])
        cuts = [*ends[:-1:ROWS_PER_BLOCK].tolist(), int(ends[-1])]
        for low, high in pairwise(cuts):
            yield bytes(text[low:high])


def _lines(part: pa.Table, names: list[str], first: int) -> pa.Array:
    pieces: list[Any] = []
    before = "{"
    for name in names:
        column = part.column(name)
        values = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
        text, quoted = _texts(values, f"rows {first + 1} to {first + len(part)}: column '{name}'")
        quote = '"' if quoted else ""
        pieces += [f"{before}{canonical_json(name).decode()}:{quote}", text]
        before = f"{quote},"
    return pc.binary_join_element_wise(
        *_large(pieces), pa.scalar(f"{before[:-1]}}}\n", _TEXT), pa.scalar("", _TEXT)
    )


def _large(pieces: list[Any]) -> list[Any]:
    return [pa.scalar(piece, _TEXT) if isinstance(piece, str) else piece for piece in pieces]


def _texts(values: pa.Array, where: str) -> tuple[pa.Array, bool]:
    """Values as JSON, and whether quotation marks are still to be put round each."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind = values.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind):
        return pa.repeat(pa.scalar("null", _TEXT), len(values)), False
    if pa.types.is_boolean(kind):
        text = values.cast(_TEXT)
    elif pa.types.is_integer(kind):
        text = _whole(values, where)
    elif pa.types.is_floating(kind):
        text = _numbers(values, where)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        text = _escaped(values.cast(_TEXT))
        if not values.null_count:
            return text, True
        mark = pa.scalar('"', _TEXT)
        text = pc.binary_join_element_wise(mark, text, mark, pa.scalar("", _TEXT))
    else:
        expected = "texts, numbers or truth values"
        raise InputError(expected, str(kind), where=where)
    return (text.fill_null("null") if text.null_count else text), False


def _whole(values: pa.Array, where: str) -> pa.Array:
    ends = pc.min_max(values).as_py()
    for end in ends.values():
        if end is not None and abs(end) > MOST_INTEGER:
            expected = "whole numbers within 2^53 - 1 (text holds longer ones)"
            raise InputError(expected, str(end), where=where)
    return values.cast(_TEXT)


def _numbers(values: pa.Array, where: str) -> pa.Array:
    absent = np.asarray(values.is_null())
    numbers = np.where(absent, 0.0, values.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False))
    if not np.isfinite(numbers).all():
        expected = "finite numbers"
        raise InputError(expected, str(numbers[~np.isfinite(numbers)][0]), where=where)
    # Canonical JSON has no negative zero.
    numbers = numbers + 0.0
    text = pa.array(numbers, mask=absent).cast(_TEXT)
    # Arrow turns to powers of ten at 1e10 already, canonical JSON only at 1e21.
    size = np.abs(numbers)
    return _replaced(text, (size >= 1e9) & (size < 1e21), numbers)


def _replaced(text: pa.Array, odd: npt.NDArray[np.bool_], numbers: npt.NDArray[np.float64]) -> pa.Array:
    if not odd.any():
        return text
    spelled = [canonical_json(value).decode() for value in numbers[odd].tolist()]
    return pc.replace_with_mask(text, pa.array(odd), pa.array(spelled, _TEXT))


def _escaped(text: pa.Array) -> pa.Array:
    ends = np.frombuffer(text.buffers()[1], np.int64)
    first, last = ends[text.offset], ends[text.offset + len(text)]
    # Most columns have nothing to escape anywhere, which their bytes tell sooner than their texts.
    if first == last or not _MARKS[np.frombuffer(text.buffers()[2], np.uint8)[first:last]].any():
        return text
    odd = pc.coalesce(pc.match_substring_regex(text, _ESCAPED), pa.scalar(value=False))
    spelled = [canonical_json(value).decode()[1:-1] for value in text.filter(odd).to_pylist()]
    return pc.replace_with_mask(text, odd, pa.array(spelled, _TEXT))
