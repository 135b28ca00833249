"""Files of verdicts, in whatever shape they come: recorded verdicts, rollout records, or plain columns."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo._internal.files import read_table
from vapo.errors import InputError
from vapo.records import Labels

__all__ = ["COSTS", "Verdicts", "read_verdicts"]

COSTS = ("calls", "tokens_in", "tokens_out", "seconds")
_LABELS = ("label", "z")
_ASIDE = ("id", "group", *_LABELS, "meta", "order", "window", "delta_r", "kl", "content", "y2_source")
"""Columns that need not be called unused: those of every record, and notes."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What several verifiers said about the same answers."""

    ids: tuple[str, ...]
    group: npt.NDArray[np.str_]
    """The question of each answer."""
    names: tuple[str, ...]
    """The verifiers; the first is the one in use."""
    votes: npt.NDArray[np.int8]
    """Verdicts, answers by verifiers; 0 for none."""
    scores: npt.NDArray[np.float64]
    """How right each verifier finds each answer, in [0, 1]; NaN where it does not say."""
    label: npt.NDArray[np.int8]
    """The truth; 0 where nobody knows it."""
    signals: Mapping[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    """What else speaks for the first verifier's verdict."""
    costs: Mapping[str, Mapping[str, npt.NDArray[np.float64]]] = field(default_factory=dict)
    """What each verifier cost, by verifier and kind; NaN where it is not known."""
    appealed: str = ""
    """The verifier that only answers appeals: neither a signal nor a primary; empty where none is set apart."""
    unused: tuple[str, ...] = ()
    """Columns that are no verdict, score, signal, cost or label."""
    where: str = "verdicts"

    def __len__(self) -> int:
        return len(self.ids)

    def with_primary(self, name: str) -> Verdicts:
        """The same verdicts, another verifier being in use; what speaks for the first one's verdicts is left out."""
        if name not in self.names:
            expected = f"a verifier among {', '.join(self.names)}"
            raise InputError(expected, repr(name), where=self.where)
        place = self.names.index(name)
        if not place:
            return self
        order = [place, *(column for column in range(len(self.names)) if column != place)]
        names = tuple(self.names[column] for column in order)
        appealed = "" if self.appealed == name else self.appealed
        return replace(
            self,
            names=names,
            votes=self.votes[:, order],
            scores=self.scores[:, order],
            signals={},
            appealed=appealed,
        )

    def with_labels(self, labels: Labels) -> Verdicts:
        """The same verdicts with labels from a file of their own, beside those that they have already."""
        known = dict(zip(labels.id.to_pylist(), labels.z.tolist(), strict=True))
        foreign = set(known) - set(self.ids)
        if foreign:
            expected = "labels of answers that are in the file of verdicts"
            raise InputError(expected, repr(min(foreign)), where=labels.where)
        given = np.array([known.get(name, 0) for name in self.ids], np.int8)
        differ = np.flatnonzero(given * self.label < 0)
        if differ.size:
            expected = f"labels that do not contradict those in {self.where}"
            raise InputError(expected, f"another one of {self.ids[differ[0]]!r}", where=labels.where)
        return replace(self, label=np.where(given != 0, given, self.label))


def read_verdicts(path: str | Path, labels: str | Path | None = None) -> Verdicts:
    """Read verdicts from Parquet, JSON lines, CSV or Arrow.

    Two shapes are known. Recorded verdicts: `primary` (+1, -1; 0 or null for none), `primary_score`, and `secondary`,
    an object {name: {`v`: verdict, `s`: score, and the costs `calls`, `tokens_in`, `tokens_out`, `seconds`}}. Records:
    `y`, `verdict.NAME`, `verdict.NAME.score`, `signal.NAME`, `y2` (which answers appeals) with its confidence `c2`, and
    costs as `cost.NAME.calls` and so on. In both `id`, `group` and a `label` (or `z`) may be there or not.

    Args:
        path: The file.
        labels: A file with `id` and `z`, where the labels are not in the file itself.

    Raises:
        InputError: Naming the row and the field that does not fit.
    """
    found = verdicts_of(read_table(path), str(path))
    return found if labels is None else found.with_labels(Labels.read(labels))


def verdicts_of(table: pa.Table, where: str = "verdicts") -> Verdicts:
    """Verdicts from a table; see `read_verdicts`.

    Example:
        >>> found = verdicts_of(pa.table({"y": [1, -1], "verdict.judge": [1, 1], "z": [1, None]}))
        >>> found.names, found.votes.tolist(), found.label.tolist()
        (('primary', 'judge'), [[1, 1], [-1, 1]], [1, 0])
    """
    rows = table.num_rows
    columns = {name: table.column(name).to_pylist() for name in table.column_names if name != "meta"}
    reader = _Reader(rows, where)
    if "secondary" in columns:
        reader.recorded(columns)
    else:
        reader.records(columns)
    if not reader.votes or not rows:
        expected = "rows with 'primary' and 'secondary', or with 'y' or 'verdict.NAME'"
        raise InputError(
            expected, f"{rows} rows of {', '.join(table.column_names) or 'nothing'}", where=where
        )
    reader.check()
    ids = reader.texts(columns, "id", range(rows))
    if len(set(ids)) < rows:
        twice = Counter(ids).most_common(1)[0][0]
        expected = "each id once"
        raise InputError(expected, f"{twice!r} twice", where=f"{where}: field 'id'")
    names = tuple(reader.votes)
    return Verdicts(
        tuple(ids),
        np.array(reader.texts(columns, "group", ids)),
        names,
        np.column_stack(list(reader.votes.values())),
        np.column_stack([reader.scores.get(name, np.full(rows, np.nan)) for name in names]),
        reader.labels(columns),
        reader.signals,
        reader.costs,
        "y2" if "y2" in columns and "secondary" not in columns else "",
        tuple(name for name in columns if name not in reader.used),
        where,
    )


class _Reader:
    """Collects the columns of a file of verdicts, whatever they are called there."""

    def __init__(self, rows: int, where: str) -> None:
        self.rows, self.where = rows, where
        self.votes: dict[str, npt.NDArray[np.int8]] = {}
        self.scores: dict[str, npt.NDArray[np.float64]] = {}
        self.signals: dict[str, npt.NDArray[np.float64]] = {}
        self.costs: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
        self.used = set(_ASIDE)

    def recorded(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """`primary` and `secondary`."""
        self.used |= {"primary", "primary_score", "secondary"}
        if "primary" in columns:
            self.votes["primary"] = self.signs(columns["primary"], "primary")
            if any(value is not None for value in columns.get("primary_score", ())):
                self.scores["primary"] = self.fractions(columns["primary_score"], "primary_score")
        parts = [self._object(value, row) for row, value in enumerate(columns["secondary"])]
        for name in dict.fromkeys(name for part in parts for name in part):
            if name in self.votes:
                self._refuse("verifiers of different names", repr(name), "secondary")
            self._take(name, [{} if part.get(name) is None else part[name] for part in parts])

    def _take(self, name: str, given: list[Any]) -> None:
        field_ = f"secondary.{name}"
        for row, part in enumerate(given):
            unknown = set(part) - {"v", "s", *COSTS} if isinstance(part, dict) else {"no object"}
            if unknown:
                self._refuse(f"an object of 'v', 's', {', '.join(COSTS)}", repr(min(unknown)), field_, row)
        self.votes[name] = self.signs([part.get("v") for part in given], f"{field_}.v")
        if any(part.get("s") is not None for part in given):
            self.scores[name] = self.fractions([part.get("s") for part in given], f"{field_}.s")
        for kind in COSTS:
            if any(part.get(kind) is not None for part in given):
                self.cost(name, kind, [part.get(kind) for part in given])

    def records(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """`y`, `verdict.*`, `signal.*`, `y2` and `cost.*`."""
        if "y" in columns:
            self.votes["primary"] = self.signs(columns["y"], "y")
        for name, values in columns.items():
            kind, _, rest = name.partition(".")
            if kind in ("verdict", "signal", "cost"):
                self.used.add(name)
            if kind == "verdict" and rest.endswith(".score"):
                self.scores[rest.removesuffix(".score")] = self.fractions(values, name)
            elif kind == "verdict":
                if rest in self.votes or (rest == "y2" and "y2" in columns):
                    self._refuse("verifiers of different names", repr(rest), name)
                self.votes[rest] = self.signs(values, name)
            elif kind == "signal":
                self.signals[rest] = self.fractions(values, name)
            elif kind == "cost":
                verifier, _, what = rest.rpartition(".")
                if what not in COSTS or not verifier:
                    self._refuse(f"a column 'cost.NAME.' and one of {', '.join(COSTS)}", repr(name), name)
                self.cost(verifier, what, values)
        self.used |= {"y", "y2", "c2"} if "y2" in columns else {"y"}
        if "y2" in columns:
            vote = self.signs(columns["y2"], "y2")
            sure = self.fractions(columns.get("c2", [None] * self.rows), "c2")
            self.votes["y2"] = vote
            if not np.isnan(sure).all():
                self.scores["y2"] = np.select([vote > 0, vote < 0], [sure, 1.0 - sure], np.nan)

    def check(self) -> None:
        """Scores and costs are those of verifiers that are here."""
        for name in self.scores.keys() - self.votes.keys():
            self._refuse(f"a column 'verdict.{name}' beside it", "none", f"verdict.{name}.score")
        for name in self.costs.keys() - self.votes.keys():
            kind = next(iter(self.costs[name]))
            self._refuse(f"a cost of {' or '.join(self.votes)}", repr(name), f"cost.{name}.{kind}")

    def texts(self, columns: Mapping[str, Sequence[Any]], name: str, default: Sequence[Any]) -> list[str]:
        """A column of names; where it is there at all, every row has one."""
        values = columns.get(name, default)
        for row, value in enumerate(values):
            if value is None or value == "":
                self._refuse("a text", repr(value), name, row)
        return [str(value) for value in values]

    def labels(self, columns: Mapping[str, Sequence[Any]]) -> npt.NDArray[np.int8]:
        """The labels in the file itself, if there are any."""
        found = np.zeros(self.rows, np.int8)
        for name in _LABELS:
            if name in columns:
                given = self.signs(columns[name], name)
                differ = np.flatnonzero(given * found < 0)
                if differ.size:
                    self._refuse(f"the same as '{_LABELS[0]}'", str(given[differ[0]]), name, int(differ[0]))
                found = np.where(found != 0, found, given)
        return found

    def signs(self, values: Sequence[Any], name: str) -> npt.NDArray[np.int8]:
        """A column of signs; null and empty mean none."""
        found = np.zeros(self.rows, np.int8)
        for row, value in enumerate(values):
            number = self._number(value, name, row)
            if number not in (None, -1.0, 0.0, 1.0):
                self._refuse("a sign in {-1, 0, +1}", repr(value), name, row)
            found[row] = int(number or 0)
        return found

    def fractions(self, values: Sequence[Any], name: str) -> npt.NDArray[np.float64]:
        """A column of numbers in [0, 1]; NaN where there is none."""
        found = np.full(self.rows, np.nan)
        for row, value in enumerate(values):
            number = self._number(value, name, row)
            if number is not None and not 0.0 <= number <= 1.0:
                self._refuse("a number in [0, 1]", repr(value), name, row)
            found[row] = np.nan if number is None else number
        return found

    def cost(self, verifier: str, kind: str, values: Sequence[Any]) -> None:
        """A column of costs."""
        name, found = f"cost.{verifier}.{kind}", np.full(self.rows, np.nan)
        for row, value in enumerate(values):
            number = self._number(value, name, row)
            if number is not None and not 0.0 <= number < np.inf:
                self._refuse("a cost of 0 or more", repr(value), name, row)
            found[row] = np.nan if number is None else number
        self.costs.setdefault(verifier, {})[kind] = found

    def _number(self, value: Any, name: str, row: int) -> float | None:
        if value is None or value == "":
            return None
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if isinstance(value, bool) or np.isnan(number):
            self._refuse("a number", repr(value), name, row)
        return number

    def _object(self, value: Any, row: int) -> dict[str, Any]:
        try:
            found = json.loads(value) if isinstance(value, str) else value
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            self._refuse("an object {name: {'v': verdict, 's': score}}", repr(value)[:80], "secondary", row)
        return found

    def _refuse(self, expected: str, got: str, name: str, row: int | None = None) -> NoReturn:
        place = "" if row is None else f": row {row + 1}"
        raise InputError(expected, got, where=f"{self.where}{place}: field '{name}'")
