"""Reading tables from the formats that people keep rollouts in."""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from vapo.errors import InputError

__all__ = ["read_table", "table_format", "unique_keys", "write_table"]

_BLOCK = 50_000
_FORMATS = ".parquet, .jsonl, .csv, .arrow or .feather (.jsonl and .csv also with .gz)"
_UNREADABLE = (
    pa.ArrowException,
    OSError,
    EOFError,
    UnicodeError,
    zlib.error,
    OverflowError,
    RecursionError,
)
_NESTED = {"signals": "signal", "verdicts": "verdict"}


def table_format(path: Path) -> str:
    """Which of the formats a file name asks for."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
    kind = {
        ".parquet": "parquet",
        ".pq": "parquet",
        ".jsonl": "jsonl",
        ".ndjson": "jsonl",
        ".csv": "csv",
        ".arrow": "arrow",
        ".feather": "arrow",
        ".ipc": "arrow",
    }.get(suffixes[-1] if suffixes else "")
    if kind is None:
        expected = f"a file name ending in {_FORMATS}"
        raise InputError(expected, path.name)
    return kind


def read_table(
    path: str | Path, columns: Iterable[str] | None = None, *, names: Collection[str] = ()
) -> pa.Table:
    """Read a table, keeping every column unless told which to keep.

    CSV columns come as text (an empty cell is a null); JSON lines may nest `signals` and `verdicts`.

    Args:
        path: The file.
        columns: What to keep.
        names: Fields that name something, so that JSON lines may hold text and whole numbers in them and no more.
    """
    path = Path(path)
    kind = table_format(path)
    if not path.is_file():
        expected = "an existing file"
        raise InputError(expected, str(path))
    wanted = None if columns is None else list(columns)
    try:
        if kind == "parquet":
            with pq.ParquetFile(path) as file:
                table = file.read()
        elif kind == "arrow":
            table = _read_arrow(path)
        elif kind == "csv":
            table = _read_csv(path)
        else:
            table = _read_jsonl(path, names)
        table.validate(full=True)
    except _UNREADABLE as error:
        expected = f"a readable {kind} file"
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(expected, said, where=str(path)) from error
    duplicated = [name for name in dict.fromkeys(table.column_names) if table.column_names.count(name) > 1]
    if duplicated:
        expected = "each column name once"
        raise InputError(expected, f"{duplicated[0]!r} twice", where=str(path))
    if wanted is not None:
        table = table.select([name for name in wanted if name in table.column_names])
    return table


def _read_arrow(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        try:
            return pa.ipc.open_file(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_stream(source).read_all()


def _read_csv(path: Path) -> pa.Table:
    parse = pa_csv.ParseOptions(newlines_in_values=True)
    with pa.input_stream(str(path), compression="detect") as stream:
        header = pa_csv.open_csv(stream, parse_options=parse).schema.names
    options = pa_csv.ConvertOptions(
        column_types=dict.fromkeys(header, pa.string()), strings_can_be_null=True, null_values=[""]
    )
    with pa.input_stream(str(path), compression="detect") as stream:
        return pa_csv.read_csv(stream, parse_options=parse, convert_options=options)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, after making sure that no key stands in it twice."""
    row = dict(pairs)
    if len(row) != len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        msg = f"key {twice!r} twice in one object"
        raise ValueError(msg)
    return row


def _rows(stream: IO[str], where: str, names: Collection[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(stream, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=unique_keys)
        except (ValueError, RecursionError) as error:
            expected = "one JSON object"
            raise InputError(expected, str(error), where=f"{where}: line {number}") from None
        if not isinstance(row, dict):
            expected = "one JSON object"
            raise InputError(expected, type(row).__name__, where=f"{where}: line {number}")
        for nested, prefix in _NESTED.items():
            inner = row.pop(nested, None)
            if inner is None:
                continue
            if not isinstance(inner, dict):
                expected = "an object"
                raise InputError(
                    expected, type(inner).__name__, where=f"{where}: line {number}: field '{nested}'"
                )
            for name, value in inner.items():
                _put(row, f"{prefix}.{name}", value, f"{where}: line {number}")
        for field in names:
            # Beside text in other rows anything would become text, and NaN or a list a name like any other.
            value = row.get(field)
            if value is not None and type(value) not in (str, int):
                expected = "text or a whole number"
                got = json.dumps(value, ensure_ascii=False)
                raise InputError(expected, got[:60], where=f"{where}: line {number}: field '{field}'")
        yield row


def _put(row: dict[str, Any], field: str, value: Any, where: str) -> None:
    parts = {field: value}
    if field.startswith("verdict.") and isinstance(value, dict):
        unknown = set(value) - {"v", "s"}
        if unknown:
            expected = "keys 'v' and 's' in a verdict"
            raise InputError(expected, repr(min(unknown)), where=f"{where}: field '{field}'")
        parts = {field: value.get("v"), f"{field}.score": value.get("s")}
    for name, part in parts.items():
        if name in row:
            expected = f"field '{name}' once"
            raise InputError(expected, "twice", where=where)
        row[name] = part


def _read_jsonl(path: Path, naming: Collection[str]) -> pa.Table:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    blocks: list[pa.Table] = []
    names: dict[str, None] = {}
    with opener(path, "rt", encoding="utf-8-sig") as stream:
        block: list[dict[str, Any]] = []
        for row in _rows(stream, str(path), naming):
            block.append(row)
            if len(block) == _BLOCK:
                blocks.append(_block_table(block, names))
                block = []
        blocks.append(_block_table(block, names))
    return _concat(blocks, list(names)) if names else pa.table({})


def _concat(blocks: list[pa.Table], names: list[str]) -> pa.Table:
    try:
        return pa.concat_tables(blocks, promote_options="permissive").select(names)
    except pa.ArrowTypeError:
        # A field that is a number here and text there is text everywhere; what reads it will say whether that fits.
        def as_text(block: pa.Table) -> pa.Table:
            columns = {name: block.column(name) for name in block.column_names}
            return pa.table({n: c.cast(pa.string()) if n in clashing else c for n, c in columns.items()})

        kinds = {n: {b.schema.field(n).type for b in blocks if n in b.column_names} for n in names}
        clashing = {n for n, found in kinds.items() if pa.string() in found and len(found - {pa.null()}) > 1}
        clashing |= {n for n, found in kinds.items() if pa.bool_() in found and len(found - {pa.null()}) > 1}
        return pa.concat_tables([as_text(b) for b in blocks], promote_options="permissive").select(names)


def _block_table(block: list[dict[str, Any]], names: dict[str, None]) -> pa.Table:
    for row in block:
        names.update(dict.fromkeys(row))
    return pa.table({name: _array([row.get(name) for row in block]) for name in names})


def _array(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return pa.array(values, pa.int64())
    if kinds == {int, float} or kinds == {float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    if len(kinds) == 1 and kinds <= {bool, str}:
        return pa.array(values)
    if not kinds:
        return pa.nulls(len(values))
    # Mixed or nested values stay what they were, written as JSON text, so that the field can be scanned and named.
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
    return pa.array(texts, pa.string())


def write_table(table: pa.Table, path: str | Path) -> None:
    """Write a table in the format that the file name asks for."""
    path = Path(path)
    kind = table_format(path)
    try:
        _write(table, path, kind)
    except (pa.ArrowException, OSError, ValueError, TypeError) as error:
        expected = f"a {kind} file that can be written and can hold these columns"
        raise InputError(expected, str(error), where=str(path)) from error


def _write(table: pa.Table, path: Path, kind: str) -> None:
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "csv":
        with pa.output_stream(str(path), compression="detect") as stream:
            pa_csv.write_csv(table, stream)
    elif kind == "arrow":
        with pa.ipc.new_file(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        opener = gzip.open if path.suffix.lower() == ".gz" else open
        with opener(path, "wt", encoding="utf-8") as stream:
            for batch in table.to_batches():
                for row in batch.to_pylist():
                    stream.write(json.dumps(row, ensure_ascii=False) + "\n")
