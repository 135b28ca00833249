"""What the fixture's studies share: tasks, cells over seeds, the error of a single run, printed shares as counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from vapo.studies.estimates import exact, mean, said
from vapo.studies.fixture_cases import attainable
from vapo.studies.framework import Cell, Estimate, Paper, Row, Table, Task, Where, matching

__all__ = [
    "Fact",
    "alternatives",
    "as_paper",
    "column",
    "count_rows",
    "count_table",
    "fixture_tasks",
    "limits",
    "over_seeds",
    "paper_limits",
    "seeds_paper",
    "share_of",
]

_SHARES = ("helpful", "harmful", "abstained", "coverage", "R_sel")
"""How columns begin that hold shares."""


class Fact(NamedTuple):
    """A share that the paper prints."""

    said: str
    """What it is the share of."""
    printed: float
    """As printed."""
    decimals: int = 4
    """Digits printed."""


def fixture_tasks(
    study: str,
    seeds: Sequence[int],
    per_seed: Callable[..., Sequence[Row]],
    choices: tuple[str, Callable[..., Sequence[Row]], Iterable[str]],
    facts: Iterable[Fact],
    denominators: Sequence[int],
) -> list[Task]:
    """One task for each seed, one for each other choice of what was inferred, and one for printed shares as counts.

    Args:
        study: The study's name.
        seeds: Streams.
        per_seed: What is done on one stream.
        choices: What a choice is called, what is done under one on all streams, and the choices' names.
        facts: The printed shares.
        denominators: Numbers of records that they may be shares of.
    """
    kind, under, names = choices
    counted = {"facts": [list(fact) for fact in facts], "denominators": list(denominators)}
    return [
        *(Task(study, f"seed-{seed}", per_seed, {"seed": seed}) for seed in seeds),
        *(Task(study, f"{kind}: {name}", under, {kind: name, "seeds": list(seeds)}) for name in names),
        Task(study, "counts", count_rows, counted),
    ]


def column(rows: Sequence[Row], where: Where, name: str) -> list[float]:
    """The numbers of one column of some rows.

    Args:
        rows: All rows.
        where: Which of them.
        name: The column.

    Example:
        >>> column([{"seed": 1, "U": 0.5}, {"seed": 2, "U": 0.7}], {"seed": 2}, "U")
        [0.7]
    """
    return [row[name] for row in matching(rows, where)]


def over_seeds(
    rows: Sequence[Row],
    where: Where,
    line: str,
    quantity: str,
    name: str,
    paper: Paper | None = None,
    why: str = "",
    *,
    difference: bool = False,
) -> Cell:
    """A cell whose value is the mean of one column over seeds.

    Args:
        rows: All rows.
        where: The rows of the seeds.
        line: The table's line.
        quantity: The table's column.
        name: The rows' column.
        paper: What the paper prints.
        why: What the comparison rests on.
        difference: Whether the column holds differences, which may lie on either side of 0.
    """
    values = column(rows, where, name)
    ours = mean(values, how=f"mean of `{name}`", share=not difference and name.startswith(_SHARES))
    if paper is not None and len(values) < 2 and paper.half_width == 0.0:
        return Cell(line, quantity, ours, where, paper, "not comparable", "one seed shows no spread")
    return Cell(line, quantity, ours, where, paper, why=why)


def share_of(flags: Sequence[float], name: str, unit: str) -> Estimate:
    """The share of rows on which something holds.

    Args:
        flags: A column of truth values.
        name: Its name.
        unit: What a row is of.

    Example:
        >>> share_of([True, True, False, False], "negative", "seeds").value
        0.5
    """
    return exact(sum(flags) / len(flags), len(flags), unit, f"share of rows with `{name}`")


def alternatives(
    rows: Sequence[Row], kind: str, names: Iterable[str], shown: Sequence[tuple[str, str]]
) -> list[Cell]:
    """Cells that show what other choices of the inferred constants would give, one line a choice.

    Args:
        rows: All rows.
        kind: What these rows are, and the column that names the choice.
        names: The choices, the declared one first.
        shown: The table's columns and the rows' columns behind them.
    """
    return [
        over_seeds(rows, {"kind": kind, kind: name}, name, quantity, key)
        for name in names
        for quantity, key in shown
    ]


def as_paper(printed: float, values: Sequence[float], runs: int = 1, decimals: int = 4) -> Paper:
    """What the paper prints from one run or a few, with the spread that our own runs of the same size show.

    Args:
        printed: As printed.
        values: One number a seed of ours.
        runs: Seeds behind the printed number.
        decimals: Digits printed.

    Example:
        >>> round(as_paper(0.5, [0.4, 0.6]).half_width, 4)
        1.7969
    """
    if len(values) < 2:
        return Paper(printed, 0.0, decimals)
    # The spread is itself known from our seeds alone, so it is Student's factor and not the normal one.
    factor = float(special.stdtrit(len(values) - 1, 0.975))
    return Paper(printed, factor * float(np.std(values, ddof=1)) / math.sqrt(runs), decimals)


def seeds_paper(printed: float, low: float, high: float, decimals: int = 4) -> Paper:
    """What the paper prints with an interval of its own.

    Args:
        printed: As printed.
        low: The interval's lower end.
        high: Its upper end.
        decimals: Digits printed.

    Example:
        >>> round(seeds_paper(0.0328, 0.0295, 0.0360).half_width, 5)
        0.00325
    """
    return Paper(printed, (high - low) / 2.0, decimals)


def limits(estimate: Estimate) -> tuple[float, float, float]:
    """Lower limit, value and upper limit as a picture needs them; without an interval the value three times.

    Args:
        estimate: A number of ours.

    Example:
        >>> limits(Estimate(0.5)), limits(Estimate(0.5, 0.4, 0.7))
        ((0.5, 0.5, 0.5), (0.4, 0.5, 0.7))
    """
    value = float(estimate.value or 0.0)
    low, high = estimate.low, estimate.high
    return value if low is None else low, value, value if high is None else high


def paper_limits(cell: Cell) -> tuple[float, float, float] | None:
    """Lower limit, value and upper limit of the paper's number; None where it prints none.

    Args:
        cell: A number of a table.

    Example:
        >>> paper_limits(Cell("a", "b", Estimate(0.5), {}, Paper(0.25, half_width=0.25)))
        (0.0, 0.25, 0.5)
    """
    if cell.paper is None:
        return None
    centre = float(cell.paper.value)
    return centre - cell.paper.half_width, centre, centre + cell.paper.half_width


def count_rows(facts: Iterable[Sequence[object]], denominators: Sequence[int]) -> list[Row]:
    """Which count of records each printed share can be, for each denominator.

    Args:
        facts: Facts, as tuples.
        denominators: Numbers of records.

    Example:
        >>> count_rows([Fact("harmful", 0.2630)], [640])
        [{'kind': 'count', 'said': 'harmful', 'printed': 0.263, 'records': 640, 'count': None}]
    """
    return [
        {
            "kind": "count",
            "said": fact.said,
            "printed": fact.printed,
            "records": records,
            "count": attainable(fact.printed, records, fact.decimals),
        }
        for fact in (Fact._make(fact) for fact in facts)
        for records in denominators
    ]


def count_table(rows: Sequence[Row], name: str, title: str, note: str) -> Table:
    """The printed shares as counts, one column a denominator.

    Args:
        rows: Rows of `count_rows` among others.
        name: The table's name.
        title: The table's title.
        note: What follows from it.
    """
    cells = []
    for row in matching(rows, {"kind": "count"}):
        where = {"kind": "count", "said": row["said"], "records": row["records"]}
        count, how = row["count"], "`count`: records whose share rounds to `printed`"
        found = said("no count gives it", how) if count is None else exact(count, unit="records", how=how)
        line = f"{row['said']} {row['printed']}"
        cells.append(Cell(line, f"of {row['records']:,} records", found, where))
    return Table(name, "", title, cells, note)
