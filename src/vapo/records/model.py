"""Records, labels and sources as values."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo._internal.columns import Column
from vapo._internal.files import read_table
from vapo._internal.keyed import sha256_hex
from vapo._internal.oracle import ORACLE_WORDS
from vapo.errors import InputError

__all__ = ["SIGN", "Labels", "Records", "Secondary", "Source", "normalise_content", "unique_ids"]

SIGN = "a sign in {-1, 0, +1}"
"""What a verdict may be, as messages say it."""
DIGESTED = {b"vapo": b"sha256"}
"""Marks a content column that holds digests already."""
_NAMES = ("id", "group", "window", "content", "y2_source")


@dataclass(frozen=True, slots=True)
class Source:
    """What produced a column: an id and the SHA-256 digest of model, prompt, code and version."""

    id: str
    digest: str
    declared: bool = True

    @staticmethod
    def undeclared(column: str) -> Source:
        """The stand-in for a column whose producer nobody named."""
        return Source(column, sha256_hex(f"undeclared:{column}".encode()), declared=False)


@dataclass(frozen=True, slots=True)
class Secondary:
    """Answers of the secondary verifier that were already paid for, kept apart until they are asked for."""

    verdict: npt.NDArray[np.int8]
    """The secondary's sign; 0 where it gave none."""
    confidence: npt.NDArray[np.float64]
    """How sure it was, in [0, 1]."""
    source: pa.Array | None = None
    """Which verifier answered, by source id."""

    def take(self, rows: npt.NDArray[Any] | slice) -> Secondary:
        """The answers of some rows."""
        source = None
        if self.source is not None:
            source = self.source[rows] if isinstance(rows, slice) else self.source.take(pa.array(rows))
        return Secondary(self.verdict[rows], self.confidence[rows], source)


@dataclass(frozen=True, slots=True)
class Records:
    """Rollout records in their declared order, as columns.

    Rows are sorted by window (in the order in which windows begin) and by `order` inside a window; `row` keeps the
    place that each had in the file it came from.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"id": ["a", "b"], "group": ["q1", "q2"], "y": [1, -1], "signal.conf": [0.9, 0.4]})
        >>> records = Records.from_arrow(table)
        >>> len(records), list(records.signals)
        (2, ['conf'])
    """

    id: pa.Array
    group: npt.NDArray[np.int32]
    """A number for each group, groups that share content being one."""
    group_names: pa.Array
    group_named: pa.Array | None
    """The group of each record as its file names it, where some groups were joined."""
    window: npt.NDArray[np.int32]
    """A number for each window, rising along the rows."""
    window_names: pa.Array
    order: npt.NDArray[np.int64]
    y: npt.NDArray[np.int8]
    signals: Mapping[str, npt.NDArray[np.float64]]
    verdicts: Mapping[str, npt.NDArray[np.int8]]
    verdict_scores: Mapping[str, npt.NDArray[np.float64]]
    """Graded scores of verifiers, NaN where one gave none."""
    delta_r: npt.NDArray[np.float64] | None
    kl: npt.NDArray[np.float64] | None
    content: pa.Array | None
    """SHA-256 of the normalised content; null where a record has none."""
    secondary: Secondary | None
    sources: Mapping[str, Source]
    extra: pa.Table
    row: npt.NDArray[np.int64]
    windowed: bool = True
    """Whether windows were given; without any, all records share one."""
    where: str = "records"
    waived: tuple[str, ...] = ()
    """Oracle fields that were let through by name."""
    null_signals: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    @classmethod
    def read(cls, path: str | Path, **options: Any) -> Records:
        """Read records from Parquet, JSON lines, CSV or Arrow; options as for `from_arrow`."""
        return cls.from_arrow(read_table(path, names=_NAMES), where=str(path), **options)

    @classmethod
    def from_pandas(cls, frame: Any, **options: Any) -> Records:
        """Take records from a pandas data frame; options as for `from_arrow`."""
        return cls.from_arrow(_frame(frame, "records"), **options)

    @classmethod
    def from_arrow(
        cls,
        table: pa.Table,
        *,
        where: str = "records",
        sources: Mapping[str, Source] | None = None,
        waivers: Iterable[str] = (),
        null_signals: Mapping[str, float] | None = None,
        oracle_words: Iterable[tuple[str, ...]] = ORACLE_WORDS,
    ) -> Records:
        """Check a table and take it in.

        Args:
            table: One row a record: `id`, `group`, `y`, at least one `signal.*` or `verdict.*`, and optionally
                `verdict.*.score`, `order`, `window`, `delta_r`, `kl`, `content`, `y2`, `c2`, `y2_source`.
            where: What to call the table in messages.
            sources: Who produced which column (`primary`, `signal.NAME`, `verdict.NAME`, or a value of `y2_source`).
            waivers: Fields that the oracle scan lets through, by full name.
            null_signals: The value that a null takes, by signal name; without one a null is an error.
            oracle_words: What the oracle scan looks for, as tuples of tokens.

        Raises:
            InputError: Naming row and field of the first thing that does not fit.
        """
        from vapo.records.intake import take_in

        return take_in(
            cls, table, where, sources or {}, tuple(waivers), dict(null_signals or {}), oracle_words
        )

    @classmethod
    def restore(
        cls, table: pa.Table, *, where: str = "records", sources: Mapping[str, Source] | None = None
    ) -> Records:
        """Take in what `to_arrow` gave, which was searched for oracle fields and put into its order before.

        The records may be some of those that were ordered together: they keep the order that they had among all.
        """
        from vapo.records.intake import take_in

        return take_in(cls, table, where, sources or {}, (), {}, (), in_sequence=True)

    def with_sources(self, declared: Mapping[str, Source]) -> Records:
        """The same records, their undeclared sources declared."""
        from vapo.records.intake import name_sources

        known = {name: source for name, source in self.sources.items() if source.declared}
        return replace(self, sources=name_sources(list(self.sources), {**declared, **known}, self.where))

    @property
    def secondary_names(self) -> tuple[str, ...]:
        """The ids of the secondary verifiers that answered; `y2` where none was named."""
        return tuple(n for n in self.sources if n != "primary" and not n.startswith(("signal.", "verdict.")))

    @property
    def declared_groups(self) -> pa.Array:
        """The group of each record as its file names it."""
        return self.group_names.take(pa.array(self.group)) if self.group_named is None else self.group_named

    def take(self, rows: npt.NDArray[Any] | slice) -> Records:
        """The records at some rows (ascending), as a view where that is possible."""
        index = None if isinstance(rows, slice) else pa.array(rows)

        def cut(column: Any) -> Any:
            if column is None:
                return None
            return column[rows] if index is None else column.take(index)

        return replace(
            self,
            id=cut(self.id),
            group=self.group[rows],
            group_named=cut(self.group_named),
            window=self.window[rows],
            order=self.order[rows],
            y=self.y[rows],
            signals={name: values[rows] for name, values in self.signals.items()},
            verdicts={name: values[rows] for name, values in self.verdicts.items()},
            verdict_scores={name: values[rows] for name, values in self.verdict_scores.items()},
            delta_r=None if self.delta_r is None else self.delta_r[rows],
            kl=None if self.kl is None else self.kl[rows],
            content=cut(self.content),
            secondary=None if self.secondary is None else self.secondary.take(rows),
            extra=cut(self.extra),
            row=self.row[rows],
        )

    def without_secondary(self) -> Records:
        """The same records with the secondary's answers taken away."""
        return replace(self, secondary=None)

    def trust(self, name: str) -> npt.NDArray[np.float64]:
        """One trust signal by name: a signal column, or how far a verifier agrees with the primary.

        Example:
            >>> import pyarrow as pa
            >>> records = Records.from_arrow(pa.table(
            ...     {"id": ["a", "b"], "group": ["q", "r"], "y": [1, -1], "verdict.judge": [1, 1]}))
            >>> records.trust("judge").tolist()
            [1.0, 0.0]
        """
        if name in self.signals:
            return self.signals[name]
        if name not in self.verdicts:
            expected = f"one of the signals {', '.join(self.trust_names)}"
            raise InputError(expected, repr(name), where=self.where)
        agrees: npt.NDArray[np.float64] = np.equal(self.verdicts[name], self.y).astype(np.float64)
        graded = self.verdict_scores.get(name)
        if graded is None:
            return agrees
        turned = np.where(self.y < 0, 1.0 - graded, graded)
        return np.asarray(np.where(np.isnan(graded), agrees, turned), dtype=np.float64)

    @property
    def trust_names(self) -> tuple[str, ...]:
        """Every name that `trust` knows, signals first."""
        return (*self.signals, *(name for name in self.verdicts if name not in self.signals))

    def trust_column(self, name: str) -> str:
        """The full column name behind a trust signal."""
        return f"signal.{name}" if name in self.signals else f"verdict.{name}"

    @property
    def groups(self) -> int:
        """How many groups the records hold."""
        return int(np.count_nonzero(np.bincount(self.group)))

    @property
    def largest_group(self) -> int:
        """How many records the largest group holds."""
        return int(np.bincount(self.group).max(initial=0)) if len(self) else 0

    def window_starts(self) -> npt.NDArray[np.int64]:
        """The row at which each window begins."""
        if not len(self):
            return np.zeros(0, np.int64)
        return np.concatenate([[0], np.flatnonzero(np.diff(self.window)) + 1]).astype(np.int64)

    def slices(self, rows: int) -> Iterator[slice]:
        """Cut the rows into consecutive pieces of at most so many."""
        for start in range(0, len(self), rows):
            yield slice(start, min(start + rows, len(self)))

    def to_arrow(self, *, secondary: bool = False) -> pa.Table:
        """The records as a table that `from_arrow` would take in again (content as its digest)."""
        columns: dict[str, Any] = {
            "id": self.id,
            "group": self.declared_groups,
            "window": self.window_names.take(pa.array(self.window)),
            "order": self.order,
            "y": self.y,
        }
        columns |= {f"signal.{name}": values for name, values in self.signals.items()}
        columns |= {f"verdict.{name}": values for name, values in self.verdicts.items()}
        columns |= {
            f"verdict.{n}.score": pa.array(v, from_pandas=True) for n, v in self.verdict_scores.items()
        }
        optional = {"delta_r": self.delta_r, "kl": self.kl, "content": self.content}
        columns |= {name: values for name, values in optional.items() if values is not None}
        columns |= {name: self.extra.column(name) for name in self.extra.column_names}
        if secondary and self.secondary is not None:
            columns |= {"y2": self.secondary.verdict, "c2": self.secondary.confidence}
            if self.secondary.source is not None:
                columns["y2_source"] = self.secondary.source
        table = pa.table(columns)
        if self.content is not None:
            place = table.schema.get_field_index("content")
            table = table.set_column(place, pa.field("content", pa.string(), metadata=DIGESTED), self.content)
        return table


@dataclass(frozen=True, slots=True)
class Labels:
    """Clean signs by record id: the one thing that stays outside until a trace is frozen.

    Example:
        >>> len(Labels.from_mapping({"a": 1, "b": -1}))
        2
    """

    id: pa.Array
    z: npt.NDArray[np.int8]
    where: str = "labels"

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def read(cls, path: str | Path) -> Labels:
        """Read a file with the columns `id` and `z`."""
        return cls.from_arrow(read_table(path, names=_NAMES), where=str(path))

    @classmethod
    def from_pandas(cls, frame: Any) -> Labels:
        """Take labels from a pandas data frame with the columns `id` and `z`."""
        return cls.from_arrow(_frame(frame, "labels"))

    @classmethod
    def from_mapping(cls, labels: Mapping[str, int]) -> Labels:
        """Take labels from a mapping of id to sign."""
        try:
            table = pa.table({"id": list(labels), "z": list(labels.values())})
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            expected = "ids of one kind with signs"
            raise InputError(expected, str(error), where="labels") from None
        return cls.from_arrow(table)

    @classmethod
    def from_arrow(cls, table: pa.Table, *, where: str = "labels") -> Labels:
        """Check a table with the columns `id` and `z` and take it in."""
        for name in ("id", "z"):
            if table.column_names.count(name) != 1:
                expected = f"one column '{name}'"
                raise InputError(expected, ", ".join(table.column_names) or "no columns", where=where)
        column = Column(table, "z", where)
        z = column.whole("a clean sign in {-1, +1}", low=-1, high=1)
        if (z == 0).any():
            raise column.error(int(np.argmin(z != 0)), "a clean sign in {-1, +1}", 0)
        return cls(unique_ids(Column(table, "id", where)), z.astype(np.int8), where)

    @staticmethod
    def read_ids(path: str | Path) -> pa.Array:
        """Only the ids of a label file, for splitting before any label may be seen."""
        table = read_table(path, columns=["id"], names=_NAMES)
        if not table.column_names:
            expected = "a column 'id'"
            raise InputError(expected, "none", where=str(path))
        return unique_ids(Column(table, "id", str(path)))


def _frame(frame: Any, what: str) -> pa.Table:
    """A data frame as an Arrow table."""
    if not hasattr(frame, "columns") and not hasattr(frame, "__arrow_c_stream__"):
        expected = "a path, a data frame or an Arrow table"
        raise InputError(expected, type(frame).__name__, where=what)
    try:
        if not hasattr(frame, "iloc"):
            return pa.table(frame)
        # An index with a name is a column that somebody moved; one without is only a numbering of rows.
        named = [name for name in frame.index.names if name is not None and name not in frame.columns]
        if named:
            frame = frame.reset_index(level=named)
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        expected = "a path, a data frame or an Arrow table, each column of one kind"
        raise InputError(expected, f"{type(frame).__name__}: {error}", where=what) from None


def unique_ids(column: Column) -> pa.Array:
    """The ids of a column, after making sure that each stands there once and none is empty."""
    ids = column.text("an id (text or a whole number)")
    empty = pc.index(ids, pa.scalar("", pa.string())).as_py()
    if empty >= 0:
        raise column.error(empty, "an id", "an empty one")
    if len(pc.unique(ids)) != len(ids):
        first: dict[str, int] = {}
        for row, text in enumerate(ids.to_pylist()):
            if text in first:
                raise column.error(row, "each id once", f"{text!r} as in row {first[text] + 1}")
            first[text] = row
    return ids


def normalise_content(text: str) -> str:
    r"""Fold a text so that copies which differ in form or white space become equal.

    Example:
        >>> normalise_content("  Two\u00a0 plus\nTWO ")
        'two plus two'
    """
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
