"""Rollout dumps of trainers, read as records: what TRL, verl and OpenRLHF write down, and plain JSON lines.

| from | files | prompt, completion | reward | update, advantage |
|---|---|---|---|---|
| `trl` | parquet of `log_completions` | `prompt`, `completion` | a column a reward function | `step`, `advantage` |
| `verl` | JSON lines of `rollout_data_dir` | `input`, `output` | `score` | `step` |
| `openrlhf` | JSON lines of `batch_inference` | `input`, `output` | `reward` | |
| `jsonl` | any | `prompt`, `completion` | `reward` | `step`, `advantage` if they are there |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo._internal.columns import Column
from vapo._internal.files import read_table
from vapo._internal.keyed import sha256_hex
from vapo.errors import InputError
from vapo.records import Records
from vapo.tasks import Reading
from vapo.train.batch import UNIT, advantages, towards
from vapo.train.engine import policy_signals

__all__ = ["LAYOUTS", "Imported", "Layout", "RewardScale", "read_dump"]

Floats = npt.NDArray[np.float64]

_NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class Layout:
    """Which field holds what in a dump; an empty name means that the dump has no such field."""

    prompt: str = "prompt"
    completion: str = "completion"
    reward: str = "reward"
    """Empty where every reward function has a column of its own, one of which must be named."""
    step: str = "step"
    """The learner's update, if the dump has it."""
    advantage: str = "advantage"
    """The advantage, if the dump has it."""
    finished: str = ""
    """Whether the completion ended by itself; 0 or 1."""


LAYOUTS: Mapping[str, Layout] = {
    "trl": Layout(reward=""),
    "verl": Layout("input", "output", "score", advantage=""),
    "openrlhf": Layout("input", "output", step="", advantage=""),
    "jsonl": Layout(),
}
"""The layouts that are known by name."""


@dataclass(frozen=True, slots=True)
class RewardScale:
    """What a reward can be, and from where on it says that the answer is right.

    Example:
        >>> RewardScale().signs([1.0, 0.0, 0.7, float("nan")]).tolist(), RewardScale(-1, 1).threshold
        ([1, -1, 1, 0], 0.0)
    """

    low: float = 0.0
    high: float = 1.0
    at: float | None = None
    """From here on it is right; by default from the middle on."""

    def __post_init__(self) -> None:
        if not self.low < self.threshold <= self.high:
            expected = "low < threshold <= high"
            raise InputError(
                expected, f"{self.low:g}, {self.threshold:g}, {self.high:g}", where="scale of rewards"
            )

    @property
    def threshold(self) -> float:
        """From here on a reward says that the answer is right."""
        return (self.low + self.high) / 2 if self.at is None else self.at

    def signs(self, reward: npt.ArrayLike) -> npt.NDArray[np.int8]:
        """The verdicts; 0 where there is no reward."""
        value = np.asarray(reward, np.float64)
        return np.where(np.isnan(value), 0, np.where(value >= self.threshold, 1, -1)).astype(np.int8)

    def margin(self, reward: npt.ArrayLike) -> Floats:
        """How far a reward stands from where the verdict turns round, in [0, 1]; 0 where there is none.

        Example:
            >>> RewardScale().margin([1.0, 0.75, 0.5, 0.25, 0.0]).tolist()
            [1.0, 0.5, 0.0, 0.5, 1.0]
        """
        value = np.asarray(reward, np.float64)
        room = self.high - self.threshold
        above = (value - self.threshold) / room if room else np.ones(value.shape)
        below = (self.threshold - value) / (self.threshold - self.low)
        return np.asarray(np.nan_to_num(np.clip(np.where(value >= self.threshold, above, below), 0.0, 1.0)))


@dataclass(frozen=True, slots=True)
class Imported:
    """Records made of a dump, and what became of its fields."""

    table: pa.Table
    """What `vapo certify` and the other commands read."""
    reward: str
    """The field that the primary verdict comes from."""
    graded: bool
    """Whether rewards lie between the two ends; then `signal.margin` says how clear each was."""
    advantage: str
    """The field that proposals come from; empty where they were computed from the rewards."""
    against: int
    """Records whose advantage pushes against their verdict, as those of graded or several rewards may."""
    left_out: tuple[str, ...]
    """Fields that did not go into the records: gold answers among them, texts, and whatever was not named."""
    files: tuple[str, ...]
    """The files that were read, in their order."""


def read_dump(
    path: str | Path,
    layout: Layout | str = "jsonl",
    *,
    reward: str = "",
    scale: RewardScale | None = None,
    verdicts: Mapping[str, str] | None = None,
    signals: Mapping[str, str] | None = None,
    reading: Reading | str = Reading.NUMBER,
    unit: float = UNIT,
) -> Imported:
    """Read a rollout dump as records.

    The group of a record is its prompt, its window the learner's update, its proposal the advantage: the dump's own
    where it has one, else what `advantages` makes of the rewards. Self-consistency is counted on the final answers.
    Gold answers and all other fields stay behind, and are listed.

    Args:
        path: A file, or a folder with one file an update.
        layout: Which field holds what: a `Layout`, or the name of one.
        reward: The field with the primary verifier's reward, where the layout does not say or where another is wanted.
        scale: What rewards can be.
        verdicts: Further reward fields, by the name of their verifier.
        signals: Fields in [0, 1] that speak for the answer, by the name of the signal; turned towards the verdict.
        reading: How final answers are read.
        unit: Ratio change that an advantage of 1 proposes.

    Raises:
        InputError: Naming file, row and field of the first thing that does not fit.
    """
    if isinstance(layout, str):
        if layout not in LAYOUTS:
            expected = f"one of {', '.join(LAYOUTS)}"
            raise InputError(expected, repr(layout), where="argument 'layout'")
        layout = LAYOUTS[layout]
    scale = scale or RewardScale()
    files, table = _read(Path(path))
    where = str(path)
    named = reward or layout.reward or _only_reward(table, layout, where)
    found = _Fields(table, layout, named, where)
    prompt, completion = found.texts(layout.prompt), found.texts(layout.completion)
    value = found.rewards(named, scale)
    y = scale.signs(value)
    step = found.steps()
    group = [f"q-{sha256_hex(text.encode('utf-8', 'surrogatepass'))[:16]}" for text in prompt]
    together = [f"{number} {name}" for number, name in zip(step or [""] * len(group), group, strict=True)]
    columns: dict[str, Any] = {"id": _ids(step or ["0"] * len(group)), "group": group}
    if step is not None:
        columns["window"] = step
    columns |= {"y": y, "content": prompt}
    finished = found.numbers(layout.finished, 0.0, 1.0) if layout.finished else np.zeros(len(y))
    answers = [Reading(reading).answer(text) for text in completion]
    own = policy_signals(y=y, group=together, answers=answers, finished=finished)
    columns["signal.consistency"] = own["consistency"]
    if layout.finished:
        columns["signal.finished"] = own["finished"]
    graded = bool((~np.isnan(value) & (value != scale.low) & (value != scale.high)).any())
    if graded:
        columns["signal.margin"] = scale.margin(value)
    for name, source in (signals or {}).items():
        columns[f"signal.{name}"] = towards(y, found.numbers(source, 0.0, 1.0))
    for name, source in (verdicts or {}).items():
        columns[f"verdict.{name}"] = scale.signs(found.rewards(source, scale))
    advantage = found.advantages(value, together)
    columns["delta_r"] = unit * np.abs(advantage)
    made = pa.table(columns)
    Records.from_arrow(made, where=where)
    used = {layout.prompt, layout.completion, layout.step, layout.advantage, layout.finished, named}
    used |= {*(signals or {}).values(), *(verdicts or {}).values()}
    left = tuple(name for name in table.column_names if name not in used or name == layout.completion)
    given = layout.advantage if layout.advantage in table.column_names else ""
    against = int(np.count_nonzero(y * advantage < 0))
    return Imported(made, named, graded, given, against, left, tuple(str(file) for file in files))


def _read(path: Path) -> tuple[list[Path], pa.Table]:
    """The files of a dump in the order of their numbers, as one table."""
    files = [path]
    if path.is_dir():
        kinds = {".parquet", ".jsonl", ".csv", ".arrow", ".gz"}
        files = sorted((file for file in path.iterdir() if file.suffix in kinds), key=_natural)
        if not files:
            expected = "a folder with .parquet or .jsonl files, one an update"
            raise InputError(expected, "none in it", where=str(path))
    tables = [read_table(file) for file in files]
    names = [name for table in tables for name in table.column_names]
    for file, table in zip(files, tables, strict=True):
        missing = sorted(set(names) - set(table.column_names))
        if missing:
            expected = "the same fields in every file of a dump"
            raise InputError(expected, f"no field {missing[0]!r}", where=str(file))
    try:
        return files, pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        expected = "files whose fields hold the same kind of thing"
        raise InputError(expected, str(error).split("\n")[0], where=str(path)) from None


def _natural(file: Path) -> list[tuple[int, str]]:
    """Files by the numbers in their names: 2 before 10."""
    parts = re.split(r"([0-9]+)", file.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _only_reward(table: pa.Table, layout: Layout, where: str) -> str:
    """The one numeric column that nothing else explains."""
    known = {layout.prompt, layout.completion, layout.step, layout.advantage}
    kinds = {name: table.schema.field(name).type for name in table.column_names if name not in known}
    numeric = [n for n, k in kinds.items() if pa.types.is_floating(k) or pa.types.is_integer(k)]
    if len(numeric) != 1:
        expected = "the name of the reward field (--reward NAME)"
        raise InputError(expected, f"{len(numeric)} that may be one: {', '.join(numeric)}", where=where)
    return str(numeric[0])


def _ids(step: Sequence[str]) -> list[str]:
    """A name for each row: its update, and its place in it."""
    seen: dict[str, int] = {}
    names = []
    for update in step:
        seen[update] = seen.get(update, -1) + 1
        names.append(f"{update}-{seen[update]}")
    return names


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields of a dump, looked at before they are used."""

    table: pa.Table
    layout: Layout
    reward: str
    where: str

    def _column(self, name: str) -> Column:
        if name not in self.table.column_names:
            expected = f"a field '{name}'"
            raise InputError(expected, ", ".join(self.table.column_names) or "no fields", where=self.where)
        return Column(self.table, name, self.where)

    def texts(self, name: str) -> list[str]:
        """Prompts or completions; of a conversation, what was said in it."""
        column = self._column(name)
        made = []
        for row, value in enumerate(column.values.to_pylist()):
            said = _said(value)
            if said is None:
                raise column.error(row, "text, or a list of messages", value)
            made.append(said)
        return made

    def numbers(self, name: str, low: float, high: float, *, null: float | None = None) -> Floats:
        """Numbers in a range; a null, or a NaN, is what it is said to be."""
        column = self._column(name)
        expected = f"{_NUMBER} in [{low:g}, {high:g}]"
        if pa.types.is_boolean(column.values.type):
            column.values = column.values.cast(pa.int8())
        value = column.numbers(expected, null=null)
        missing = np.isnan(value)
        bad = np.flatnonzero(~missing & ((value < low) | (value > high)) | (missing & (null is None)))
        if len(bad):
            raise column.error(int(bad[0]), expected, float(value[bad[0]]))
        return value

    def rewards(self, name: str, scale: RewardScale) -> Floats:
        """Rewards; NaN where there is none."""
        return self.numbers(name, scale.low, scale.high, null=float("nan"))

    def steps(self) -> list[str] | None:
        """The update of each row, where the dump tells."""
        if self.layout.step not in self.table.column_names:
            return None
        return [
            str(value) for value in self._column(self.layout.step).text("the number of an update").to_pylist()
        ]

    def advantages(self, reward: Floats, group: Sequence[str]) -> Floats:
        """The dump's own advantages, or those of its rewards."""
        if self.layout.advantage not in self.table.column_names:
            return advantages(reward, group)
        value = self._column(self.layout.advantage).numbers(_NUMBER, null=0.0)
        return np.where(np.isnan(value), 0.0, value)


def _said(value: Any) -> str | None:
    """The text of a prompt or a completion: as it is, or message by message."""
    if isinstance(value, str):
        # Reading JSON lines has turned conversations into text; what is no conversation was text before.
        return _messages(_parsed(value)) or value
    return _messages(value)


def _parsed(text: str) -> Any:
    if not text.startswith("[{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _messages(value: Any) -> str | None:
    """What was said in a conversation; None if it is none."""
    if not isinstance(value, list) or not value or not all(isinstance(message, dict) for message in value):
        return None
    parts = [message.get("content") for message in value]
    return "\n\n".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None
