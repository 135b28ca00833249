"""The customs house: every check that a table passes before it becomes records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from vapo._internal.columns import Column
from vapo._internal.keyed import sha256_hex
from vapo._internal.oracle import oracle_fields
from vapo.errors import InputError
from vapo.records.model import DIGESTED, SIGN, Records, Secondary, Source, normalise_content, unique_ids

__all__ = ["name_sources", "refuse_oracles", "take_in"]

T = TypeVar("T", bound=Records)
_UNIT = "a finite number in [0, 1]"
_PLAIN = frozenset(
    {"id", "group", "order", "window", "y", "delta_r", "kl", "content", "y2", "c2", "y2_source"}
)
_WHOLE = 2**62
_SHA256 = 64
_COLUMNS = ("signal.", "verdict.")
_KEPT_BY_PARQUET = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
)


def take_in(
    cls: type[T],
    table: pa.Table,
    where: str,
    sources: Mapping[str, Source],
    waivers: tuple[str, ...],
    null_signals: dict[str, float],
    oracle_words: Iterable[tuple[str, ...]],
    *,
    in_sequence: bool = False,
) -> T:
    """Build records from a table; see `Records.from_arrow`."""
    table, names = _plain_types(table), table.column_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        expected = "each column name once"
        raise InputError(expected, f"{twice!r} twice", where=where)
    waived = refuse_oracles(table, where, waivers, oracle_words)
    for name in ("id", "group", "y"):
        if name not in names:
            expected = f"a column '{name}'"
            raise InputError(expected, f"only {', '.join(names)}" if names else "none", where=where)
    signals, verdicts, graded = _trust_columns(names, where)
    if not table.num_rows:
        expected = "at least one record"
        raise InputError(expected, "none", where=where)

    ids = unique_ids(Column(table, "id", where))
    y = Column(table, "y", where).whole(
        SIGN, low=-1, high=1, null_hint=" (write 0 where the primary gave no verdict)"
    )
    content = _content(table, where) if "content" in names else None
    named = Column(table, "group", where).text("a group")
    nameless = pc.index(named, pa.scalar("", pa.string())).as_py()
    if nameless >= 0:
        raise Column(table, "group", where).error(nameless, "a group", "an empty one")
    # Often every record is a group of its own, and ids are known to differ.
    encoded = (np.arange(len(ids)), ids) if named.equals(ids) else _encoded(named)
    group, group_names = _joined_groups(*encoded, content)
    order = _order(table, where)
    window, window_names, place = _sequence(table, where, order, in_sequence=in_sequence)

    def signal(name: str) -> npt.NDArray[np.float64]:
        hint = f" (the protocol may declare what it counts as: null_signals.{name} = 0.0)"
        column = Column(table, f"signal.{name}", where)
        return column.between(0, 1, _UNIT, null=null_signals.get(name), null_hint=hint)[place]

    def verdict(name: str) -> npt.NDArray[np.int8]:
        return (
            Column(table, f"verdict.{name}", where).whole(SIGN, low=-1, high=1, null=0).astype(np.int8)[place]
        )

    def score(name: str) -> npt.NDArray[np.float64]:
        return Column(table, f"verdict.{name}.score", where).between(0, 1, _UNIT, null=float("nan"))[place]

    def amount(name: str) -> npt.NDArray[np.float64] | None:
        if name not in names:
            return None
        return Column(table, name, where).between(0, np.finfo(float).max, "a finite number >= 0")[place]

    for name, value in null_signals.items():
        if name not in signals or not 0 <= value <= 1:
            expected = "null_signals to name a signal and a value in [0, 1]"
            raise InputError(expected, f"{name} = {value}", where=where)
    known = _PLAIN | {f"signal.{n}" for n in signals} | {f"verdict.{n}" for n in verdicts}
    known |= {f"verdict.{n}.score" for n in graded}
    index = pa.array(place)
    secondary = _secondary(table, where)
    columns = ["primary", *(f"signal.{n}" for n in signals), *(f"verdict.{n}" for n in verdicts)]
    if secondary is not None:
        columns += _secondary_names(secondary, where)
    return cls(
        id=ids.take(index),
        group=group[place],
        group_names=group_names,
        group_named=named.take(index) if len(group_names) < len(encoded[1]) else None,
        window=window,
        window_names=window_names,
        order=order[place],
        y=y.astype(np.int8)[place],
        signals={name: signal(name) for name in signals},
        verdicts={name: verdict(name) for name in verdicts},
        verdict_scores={name: score(name) for name in graded},
        delta_r=amount("delta_r"),
        kl=amount("kl"),
        content=None if content is None else content.take(index),
        secondary=None if secondary is None else secondary.take(place),
        sources=name_sources(columns, sources, where),
        extra=_stored_form(table.select([n for n in names if n not in known]), where).take(index),
        row=place,
        windowed="window" in names,
        where=where,
        waived=waived,
        null_signals=null_signals,
    )


def _plain_types(table: pa.Table) -> pa.Table:
    """The table without encodings that say nothing about the values: dictionaries and views become plain columns.

    A type that some library added to Arrow becomes what it is stored as.
    """
    for index, field in enumerate(table.schema):
        kind = field.type
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_string_view(kind):
            kind = pa.string()
        if pa.types.is_binary_view(kind):
            kind = pa.binary()
        if kind != field.type:
            table = table.set_column(index, field.with_type(kind), table.column(index).cast(kind))
    return table


def _stored_form(table: pa.Table, where: str) -> pa.Table:
    """The table as a Parquet file gives it back, so that storing it changes nothing: some types come back as others."""
    changing = [f.name for f in table.schema if not any(kept(f.type) for kept in _KEPT_BY_PARQUET)]
    if not changing:
        return table
    sink = pa.BufferOutputStream()
    try:
        pq.write_table(table.select(changing), sink)
        stored = pq.read_table(pa.BufferReader(sink.getvalue()))
    except pa.ArrowException as error:
        expected = f"columns that Parquet can hold in {', '.join(changing)}"
        raise InputError(expected, str(error), where=where) from None
    for name in changing:
        table = table.set_column(table.schema.get_field_index(name), name, stored.column(name))
    return table


def refuse_oracles(
    table: pa.Table, where: str, waivers: tuple[str, ...], words: Iterable[tuple[str, ...]]
) -> tuple[str, ...]:
    """Refuse fields that give the answer away, and say which were waived."""
    found = oracle_fields(table, words)
    refused = [name for name in found if name not in waivers]
    if refused:
        more = f" and {len(refused) - 1} more" if len(refused) > 1 else ""
        expected = (
            "no field that could give the answer away (drop it, rename it, or declare that it does not: --waive FIELD, "
            "or waivers in the protocol)"
        )
        raise InputError(
            expected,
            f"'{refused[0]}'{more}",
            where=where,
        )
    return tuple(name for name in found if name in waivers)


def _trust_columns(names: list[str], where: str) -> tuple[list[str], list[str], list[str]]:
    signals = [name.removeprefix("signal.") for name in names if name.startswith("signal.")]
    voices = [name.removeprefix("verdict.") for name in names if name.startswith("verdict.")]
    graded = [name.removesuffix(".score") for name in voices if name.endswith(".score")]
    verdicts = [name for name in voices if not name.endswith(".score")]
    for name in graded:
        if name not in verdicts:
            expected = f"a column 'verdict.{name}' beside 'verdict.{name}.score'"
            raise InputError(expected, "none", where=where)
    if not signals and not verdicts:
        expected = "at least one column 'signal.*' or 'verdict.*'"
        raise InputError(expected, ", ".join(names), where=where)
    if "" in signals or "" in verdicts:
        expected = "a name behind 'signal.' or 'verdict.'"
        raise InputError(expected, "none", where=where)
    both = next((name for name in signals if name in verdicts), None)
    if both is not None:
        expected = "different names for signals and verdicts"
        raise InputError(expected, f"{both!r} as both", where=where)
    return signals, verdicts, graded


def _content(table: pa.Table, where: str) -> pa.Array:
    texts = Column(table, "content", where).text("text", null_ok=True)
    if table.schema.field("content").metadata == DIGESTED:
        return texts
    encoded = pc.dictionary_encode(texts)
    digests = [
        sha256_hex(normalise_content(text).encode("utf-8", "surrogatepass"))
        for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(digests, pa.string()).take(encoded.indices)


def _encoded(texts: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Array]:
    encoded = texts.dictionary_encode()
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _joined_groups(
    codes: npt.NDArray[np.int64], names: pa.Array, content: pa.Array | None
) -> tuple[npt.NDArray[np.int32], pa.Array]:
    """Number the groups, groups that share a content being one, named by the first of their names in sorted order."""
    if content is None or content.null_count == len(content):
        return codes.astype(np.int32), names
    shared = pc.dictionary_encode(content)
    has = np.asarray(pc.is_valid(content).to_numpy(zero_copy_only=False))
    nodes = len(names)
    left = codes[has]
    right = shared.indices.filter(pc.is_valid(content)).to_numpy(zero_copy_only=False) + nodes
    size = nodes + len(shared.dictionary)
    graph = coo_matrix((np.ones(len(left), np.int8), (left, right)), shape=(size, size))
    component = connected_components(graph, directed=False)[1][:nodes]
    by_name = np.asarray(pc.sort_indices(names).to_numpy())
    _, first = np.unique(component[by_name], return_index=True)
    leader = np.empty(component.max() + 1, np.int64)
    leader[component[by_name[first]]] = by_name[first]
    leaders = leader[component][codes]
    kept, joined = np.unique(leaders, return_inverse=True)
    return joined.astype(np.int32), names.take(pa.array(kept))


def _order(table: pa.Table, where: str) -> npt.NDArray[np.int64]:
    if "order" not in table.column_names:
        return np.arange(table.num_rows, dtype=np.int64)
    column = Column(table, "order", where)
    order = column.whole("a whole number between -2^62 and 2^62", low=-_WHOLE, high=_WHOLE)
    ranked = np.argsort(order, kind="stable")
    same = np.flatnonzero(order[ranked][1:] == order[ranked][:-1])
    if len(same):
        row, twin = int(ranked[same[0] + 1]), int(ranked[same[0]])
        raise column.error(row, "each order once", f"{order[row]} as in row {twin + 1}")
    return order


def _sequence(
    table: pa.Table, where: str, order: npt.NDArray[np.int64], *, in_sequence: bool
) -> tuple[npt.NDArray[np.int32], pa.Array, npt.NDArray[np.int64]]:
    """Sort the rows by window, windows by their first record, and records by order, unless they come sorted."""
    if in_sequence:
        encoded = Column(table, "window", where).text("a window").dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int32)
        return codes, encoded.dictionary, np.arange(len(order))
    if "window" not in table.column_names:
        return np.zeros(len(order), np.int32), pa.array(["0"]), np.argsort(order, kind="stable")
    encoded = Column(table, "window", where).text("a window").dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    begins = np.full(len(encoded.dictionary), np.iinfo(np.int64).max)
    np.minimum.at(begins, codes, order)
    by_begin = np.argsort(begins, kind="stable")
    rank = np.empty(len(begins), np.int32)
    rank[by_begin] = np.arange(len(begins), dtype=np.int32)
    place = np.lexsort((order, rank[codes]))
    return rank[codes][place], encoded.dictionary.take(pa.array(by_begin)), place


def _secondary(table: pa.Table, where: str) -> Secondary | None:
    names = table.column_names
    if "y2" not in names:
        for name in ("c2", "y2_source"):
            if name in names:
                expected = f"a column 'y2' beside '{name}'"
                raise InputError(expected, "none", where=where)
        return None
    verdict = Column(table, "y2", where).whole(SIGN, low=-1, high=1, null=0).astype(np.int8)
    confidence = np.ones(len(verdict))
    if "c2" in names:
        confidence = Column(table, "c2", where).between(0, 1, _UNIT, null=1.0)
    source = (
        Column(table, "y2_source", where).text("a source id", null_ok=True) if "y2_source" in names else None
    )
    if source is not None and source.null_count:
        nameless = np.asarray(pc.is_null(source).to_numpy(zero_copy_only=False)) & (verdict != 0)
        if nameless.any():
            raise Column(table, "y2_source", where).error(
                int(np.argmax(nameless)), "the id of the source that gave the answer in y2", None
            )
    return Secondary(verdict, confidence, source)


def _secondary_names(secondary: Secondary, where: str) -> list[str]:
    """The ids of the secondary verifiers that answered; those of columns speak of a verifier that is a signal too."""
    if secondary.source is None:
        return ["y2"]
    names: list[str] = pc.unique(secondary.source.drop_null()).to_pylist()
    taken = next((name for name in names if name.startswith(_COLUMNS)), None)
    if taken is not None:
        expected = "the id of a secondary verifier that is not also a signal"
        raise InputError(expected, repr(taken), where=f"{where}: field 'y2_source'")
    return names or ["y2"]


def name_sources(columns: list[str], declared: Mapping[str, Source], where: str) -> dict[str, Source]:
    """Say who produced each column, making sure that they are distinct where they must be."""
    for name, source in declared.items():
        if len(source.digest) != _SHA256 or set(source.digest) - set("0123456789abcdef"):
            expected = f"a SHA-256 digest in hexadecimal for source '{name}'"
            raise InputError(expected, source.digest, where=where)
    found = {name: declared.get(name) or Source.undeclared(name) for name in columns}
    trusted = [name for name in columns if name.startswith(_COLUMNS)]
    by_digest: dict[str, str] = {}
    for name in trusted:
        twin = by_digest.setdefault(found[name].digest, name)
        if twin != name:
            expected = "source-distinct signals"
            raise InputError(expected, f"one digest for '{twin}' and '{name}'", where=where)
    primary = found["primary"]
    for name in columns[1 + len(trusted) :]:
        if found[name].id == primary.id or found[name].digest == primary.digest:
            expected = "a secondary verifier other than the primary"
            raise InputError(expected, f"'{name}'", where=where)
    return found
