"""What a study is: rows first, then tables in which the paper's values stand beside ours, then pictures.

To add one, write a room `vapo/studies/NAME.py` that ends in `STUDY = Study(...)`, and name it in `vapo.studies.ROOMS`.

    def _tasks(scale, seeds): return [Task("replay", f"seed-{s}", _work, {"seed": s, "records": 128}) for s in seeds]
    def _work(seed, records): return [{"seed": seed, "controller": "static", "U": 0.1, "records": records}, ...]
    def _tables(rows, context): return [Table("fixed-replay", "tab:fixed-replay", "Fixed replay", [cell, ...])]
    def _figures(rows, tables): yield Drawing("diagnostics", "fig:diagnostics", "What it shows.", figure)

- A **task** is independent of every other: a function that a module defines at its top, and plain arguments (what JSON
  can say). It reads no clock, no global random state and no other task's rows, draws from
  `numpy.random.default_rng([seed, ...])`, and returns rows: flat mappings of names to numbers, texts, truth values or
  None. Non-finite numbers are refused: what is undefined is None. A learner sets its threads to 1 inside the task.
- The runner (`vapo.studies.runner`) writes the rows of each finished task at once, whole and flushed, to
  `OUT/NAME/rows/DIGEST.jsonl`. DIGEST covers study, revision, function and arguments: a task whose file is there is not
  run again, which is how an interrupted run goes on. Raise `revision` when rows change their meaning.
- `tables` and `figures` are pure functions of the rows, so that one worker and many give the same bytes.
- A **cell** is one number of a table with its paper's value, interval and verdict. `rows` names the rows that it was
  computed from, by the values of their columns, and `Estimate.how` what was done with them: `vapo study show
  STUDY/TABLE/ROW/QUANTITY --out OUT` prints both, so that a reader can do it again.

One rule gives every verdict (`judge`): the paper's value *agrees* when it lies inside our interval, widened by the
paper's own sampling error at its number of records (the two half-widths added in quadrature) and by half a unit of
its last printed digit; otherwise it *differs*. *Not comparable* is only for quantities whose meaning or conditions
differ, and the reason says how. With intervals of 95 % one cell in twenty differs by chance where nothing is different.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "SCALES",
    "Cell",
    "Context",
    "Drawing",
    "Estimate",
    "Paper",
    "Row",
    "Scale",
    "Study",
    "Table",
    "Task",
    "Verdict",
    "judge",
    "matching",
    "slug",
]

Scale = Literal["smoke", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

Verdict = Literal["agrees", "differs", "not comparable"]

Row: TypeAlias = Mapping[str, Any]
"""One row of results: a flat mapping of names to numbers, texts, truth values or None."""

Where: TypeAlias = Mapping[str, Any]
"""Which rows: those whose columns have these values, or one of these values."""


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work that needs nothing of any other.

    Example:
        >>> task = Task("example", "seed-3", slug, {"text": "A b"})
        >>> task.run(), task.digest(1) == task.digest(1), task.digest(1) == task.digest(2)
        ('a-b', True, False)
    """

    study: str
    """The study's name."""
    key: str
    """What a person calls it; unique within the study."""
    function: Callable[..., Any]
    """A function at the top of a module; it returns rows."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Its arguments by name, plain data."""

    @property
    def reference(self) -> str:
        """Module and name of the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def digest(self, revision: int) -> str:
        """The name of the task's rows on disk: a digest of all that they are a function of."""
        said = [self.study, revision, self.reference, dict(self.arguments)]
        return sha256_hex(canonical_json(said))

    def run(self) -> Any:
        """Do the work."""
        return self.function(**self.arguments)


class Paper(NamedTuple):
    """A value as the paper prints it."""

    value: float | str
    """The number, or the words."""
    half_width: float = 0.0
    """Half of its own 95 % sampling interval at the number of records or seeds that it rests on; 0 if unknown."""
    decimals: int | None = None
    """Digits printed after the point; none where they do not say how it was rounded."""


class Estimate(NamedTuple):
    """A value as our rows give it."""

    value: float | str | None
    """The number; None where it is undefined."""
    low: float | None = None
    """Lower limit at 95 %."""
    high: float | None = None
    """Upper limit at 95 %."""
    n: int | None = None
    """How many independent units (seeds, stages, records) the interval rests on."""
    unit: str = ""
    """What n counts."""
    how: str = ""
    """What was done with the rows behind it; columns stand between backticks."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One number of a table, ours beside the paper's, and the rows behind it."""

    row: str
    """The line of the table."""
    quantity: str
    """The column of the table."""
    ours: Estimate
    """What our rows give."""
    rows: Where
    """The rows behind it."""
    paper: Paper | None = None
    """What the paper prints, if it prints this."""
    verdict: Verdict | None = None
    """None without a value of the paper. Left out, `judge` decides."""
    why: str = ""
    """One line: the cause of a difference, or what the comparison rests on."""

    def __post_init__(self) -> None:
        if self.verdict is None and self.paper is not None:
            object.__setattr__(self, "verdict", judge(self.paper, self.ours))

    @property
    def id(self) -> str:
        """The cell's name within its table."""
        return f"{slug(self.row)}/{slug(self.quantity)}"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells that are read together."""

    name: str
    """Its name in files and cell ids."""
    label: str
    """The paper's label, such as `tab:fixed-replay`; empty for a table of our own."""
    title: str
    """One line that says what it shows."""
    cells: Sequence[Cell]
    """All cells, in reading order."""
    note: str = ""
    """What a reader must know: declared inferences, the plain reading of the result."""

    def __post_init__(self) -> None:
        ids = [cell.id for cell in self.cells]
        if len(set(ids)) != len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            expected = "each cell once"
            raise InputError(expected, f"{twice!r} twice", where=f"table {self.name!r}")

    @property
    def rows(self) -> list[str]:
        """The lines, in reading order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def quantities(self) -> list[str]:
        """The columns, in reading order."""
        return list(dict.fromkeys(cell.quantity for cell in self.cells))


class Drawing(NamedTuple):
    """A picture, drawn but not saved."""

    name: str
    """Its file name, without ending."""
    label: str
    """The paper's label, such as `fig:diagnostics`; empty for a picture of our own."""
    caption: str
    """What a reader sees in it."""
    figure: Figure
    """As `vapo.studies.style.canvas` made it."""


@dataclass(frozen=True, slots=True)
class Context:
    """What tables may know besides their rows."""

    scale: Scale
    """How large the run was."""
    seeds: tuple[int, ...]
    """Its seeds."""
    manifests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For a study that comes `last`: manifests of the other studies that stand finished in its folder, by name."""


def _no_figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterable[Drawing]:
    del rows, tables
    return ()


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that makes one study: a handful of pure functions."""

    name: str
    """Its name on the command line."""
    title: str
    """What it asks, in one line."""
    labels: tuple[str, ...]
    """The paper's tables and figures that it stands beside."""
    seeds: Mapping[Scale, tuple[int, ...]]
    """The seeds of each scale, where none are given."""
    tasks: Callable[[Scale, tuple[int, ...]], Sequence[Task]]
    """The work at this scale and for these seeds."""
    tables: Callable[[Sequence[Row], Context], Sequence[Table]]
    """The tables, from all rows in the order of their tasks."""
    figures: Callable[[Sequence[Row], Sequence[Table]], Iterable[Drawing]] = _no_figures
    """The pictures, from the same rows."""
    revision: int = 1
    """Raised whenever rows change their meaning."""
    last: bool = False
    """Whether it reads the manifests of others and so comes after them."""


def judge(paper: Paper, ours: Estimate) -> Verdict:
    """Whether the paper's value agrees with ours: the one rule behind every verdict.

    Args:
        paper: As printed.
        ours: As measured.

    Example:
        >>> judge(Paper(0.1391, half_width=0.019, decimals=4), Estimate(0.150, 0.140, 0.160, 10))
        'agrees'
        >>> judge(Paper(0.1391, decimals=4), Estimate(0.150, 0.140, 0.160, 10))
        'differs'
        >>> judge(Paper("fail"), Estimate("pass"))
        'differs'
    """
    if isinstance(paper.value, str) or isinstance(ours.value, str) or ours.value is None:
        return "agrees" if paper.value == ours.value else "differs"
    gap = paper.value - ours.value
    limit = ours.high if gap > 0 else ours.low
    reach = abs(limit - ours.value) if limit is not None else 0.0
    rounding = 0.0 if paper.decimals is None else 0.5 * 10.0**-paper.decimals
    # The last term lets equal numbers be equal although one of them was printed and read again.
    room = math.hypot(reach, paper.half_width) + rounding + 1e-12
    return "agrees" if abs(gap) <= room else "differs"


@functools.cache
def slug(text: str) -> str:
    """A text as part of a cell's id: small letters, digits, and hyphens between.

    Example:
        >>> slug("clip + KL (55 %)")
        'clip-kl-55'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower()).strip("-")


def matching(rows: Iterable[Row], where: Where) -> Iterator[Row]:
    """The rows whose columns have the wanted values.

    Args:
        rows: Any rows.
        where: For each column a value, or several of which one must match.

    Example:
        >>> list(matching([{"seed": 1}, {"seed": 2}, {"seed": 3}], {"seed": [1, 3]}))
        [{'seed': 1}, {'seed': 3}]
    """
    sets = {
        name: {value} if isinstance(value, str) or not isinstance(value, Sequence) else set(value)
        for name, value in where.items()
    }
    return (row for row in rows if all(row.get(name) in wanted for name, wanted in sets.items()))
