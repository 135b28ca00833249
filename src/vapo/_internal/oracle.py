"""Finding fields that would tell a controller the answer."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["ORACLE_WORDS", "field_tokens", "is_oracle_name", "oracle_fields", "schema_names", "value_names"]

ORACLE_WORDS: frozenset[tuple[str, ...]] = frozenset(
    tuple(words.split())
    for words in (
        "label", "labels", "labelled", "labeled", "clean", "oracle", "gold", "golden", "goldens", "groundtruth",
        "truth", "truths", "correct", "correctness", "incorrect", "iscorrect", "reward model", "rewardmodel",
        "trigger", "triggers", "triggered", "solution", "solutions", "z", "ground truth", "answer key",
        "annotator", "annotators", "annotation", "annotations",
        "y true", "true answer", "true sign", "reference answer", "expected answer", "is right", "is wrong",
    )
)  # fmt: skip

_TOKEN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_a-zA-Z]+")
_SHOUTED = re.compile(r"([A-Z]{2,})(?=[a-z])")
_NESTED = re.compile(r'\A\s*[\[{"]')
_FORMAT_METADATA = frozenset({b"ARROW:schema", b"PARQUET:field_id"})


def field_tokens(name: str) -> tuple[str, ...]:
    """Split a field name at punctuation and case changes.

    Example:
        >>> field_tokens("meta.goldAnswer_v2")
        ('meta', 'gold', 'answer', 'v', '2')
    """
    return tuple(token.casefold() for token in _TOKEN.findall(unicodedata.normalize("NFKC", name)))


def is_oracle_name(name: str, words: Iterable[tuple[str, ...]] = ORACLE_WORDS) -> bool:
    """Whether a field name holds one of the oracle words as whole tokens.

    Example:
        >>> is_oracle_name("gold_answer"), is_oracle_name("target_kl"), is_oracle_name("final_answer")
        (True, False, False)
    """
    # "GOLDAnswer" ends its capitals at the A, "GOLDanswer" at the D: both readings count.
    capitals = _SHOUTED.sub(r"\1 ", unicodedata.normalize("NFKC", name))
    readings = {field_tokens(name), field_tokens(capitals)}
    return any(
        tokens[start : start + len(phrase)] == phrase
        for phrase in words
        for tokens in readings
        for start in range(len(tokens) - len(phrase) + 1)
    )


def value_names(value: Any, prefix: str) -> Iterator[str]:
    """Yield the path of every key inside a nested value, reading JSON held in strings."""
    open_values: list[tuple[Any, str]] = [(value, prefix)]
    while open_values:
        inner, path = open_values.pop()
        if isinstance(inner, Mapping):
            for key, held in inner.items():
                yield f"{path}.{key}"
                open_values.append((held, f"{path}.{key}"))
        elif isinstance(inner, (list, tuple)):
            open_values += [(held, path) for held in inner]
        elif isinstance(inner, (str, bytes)):
            text = inner if isinstance(inner, str) else inner.decode(errors="replace")
            with suppress(ValueError, RecursionError):
                if _NESTED.match(text):
                    open_values.append((json.loads(text), path))


def schema_names(schema: pa.Schema) -> Iterator[str]:
    """Yield the path of every field and metadata key of an Arrow schema; nested fields are left to `oracle_fields`."""
    for field in schema:
        yield field.name
        yield from _metadata_names(field.metadata, f"{field.name}@")
    yield from _metadata_names(schema.metadata, "@")


def _metadata_names(metadata: Mapping[bytes, bytes] | None, prefix: str) -> Iterator[str]:
    for key, value in (metadata or {}).items():
        if key not in _FORMAT_METADATA:
            path = f"{prefix}{key.decode(errors='replace')}"
            yield path
            yield from value_names(value, path)


def oracle_fields(table: pa.Table, words: Iterable[tuple[str, ...]] = ORACLE_WORDS) -> list[str]:
    """Every field path of a table, at any depth, whose name gives away the answer.

    Struct and map columns are searched through their types and keys, columns of text through the JSON they may hold.
    """
    phrases = tuple(words)
    if not phrases:
        return []
    paths = dict.fromkeys(schema_names(table.schema))
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks or [pa.array([], column.type)]:
            paths |= dict.fromkeys(_array_names(chunk, name))
    return [path for path in paths if is_oracle_name(path, phrases)]


def _array_names(array: pa.Array, path: str) -> Iterator[str]:
    """Paths of all names inside a column: nested fields with their metadata, keys of maps, and keys of JSON texts."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield from _array_names(array.storage, path)
    elif pa.types.is_dictionary(kind):
        yield from _array_names(array.dictionary, path)
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            field = kind.field(index)
            yield f"{path}.{field.name}"
            yield from _metadata_names(field.metadata, f"{path}.{field.name}@")
            yield from _array_names(array.field(index), f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        yield from _map_names(array, path)
    elif _is_list(kind):
        yield from _array_names(array.flatten(), path)
    elif pa.types.is_nested(kind):
        yield from dict.fromkeys(name for value in array.to_pylist() for name in value_names(value, path))
    elif _is_text(kind):
        # Copies of one text are read once.
        texts = pc.unique(array.filter(pc.match_substring_regex(array, _NESTED.pattern))).to_pylist()
        yield from dict.fromkeys(name for text in texts for name in value_names(text, path))


def _map_names(array: pa.MapArray, path: str) -> Iterator[str]:
    keys = array.keys
    for key in pc.unique(keys).to_pylist():
        yield f"{path}.{key}"
        if pa.types.is_nested(array.items.type) or _is_text(array.items.type):
            yield from _array_names(
                array.items.filter(pc.equal(keys, pa.scalar(key, keys.type))), f"{path}.{key}"
            )


def _is_text(kind: pa.DataType) -> bool:
    return any(check(kind) for check in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary))


def _is_list(kind: pa.DataType) -> bool:
    return any(
        check(kind) for check in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )
