"""A study small enough to see through, in a module that worker processes can open."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vapo.studies import style
from vapo.studies.estimates import mean
from vapo.studies.framework import Cell, Context, Drawing, Paper, Row, Scale, Study, Table, Task

LAST = 39
"""The last seed of the scale small; its task never ends in a process that is there to be killed."""


def work(seed: int, draws: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng([seed, 7])
    return [{"seed": seed, "draw": draw, "square": float(rng.random()) ** 2} for draw in range(draws)]


def patiently(seed: int, draws: int) -> list[dict[str, Any]]:
    """The same work, slow enough to be killed in the middle of it; leaves word of the process that does it."""
    folder = os.environ.get("SQUARES_PIDS")
    if folder:
        Path(folder, str(os.getpid())).touch()
        time.sleep(3600.0 if seed == LAST and "SQUARES_HANG" in os.environ else 0.05)
    return work(seed, draws)


def failing(seed: int, draws: int) -> list[dict[str, Any]]:
    if seed == 3:
        msg = "three is too many"
        raise ValueError(msg)
    return work(seed, draws)


def crooked(seed: int, draws: int) -> list[dict[str, Any]]:
    return [{"seed": seed, "square": float("nan")}]


def nested(seed: int, draws: int) -> list[dict[str, Any]]:
    return [{"seed": seed, "square": [1.0]}]


def tables(rows: Sequence[Row], context: Context) -> list[Table]:
    cells = [
        Cell(
            f"seed {seed}",
            "mean square",
            mean([row["square"] for row in rows if row["seed"] == seed], "draws"),
            {"seed": seed},
            Paper(1 / 3, decimals=3),
            why="the mean of the square of a uniform draw is a third",
        )
        for seed in context.seeds
    ]
    others = ", ".join(sorted(context.manifests))
    return [Table("squares", "tab:squares", "Squares of draws", cells, f"Scale {context.scale}.{others}")]


def figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterator[Drawing]:
    figure, (panel,) = style.canvas()
    panel.plot([row["draw"] for row in rows], [row["square"] for row in rows], "o")
    yield Drawing("squares", "fig:squares", "Squares by draw.", figure)


def study(function: Any = work, *, name: str = "squares", draws: int = 4, **options: Any) -> Study:
    def tasks(scale: Scale, seeds: tuple[int, ...]) -> list[Task]:
        return [Task(name, f"seed-{seed}", function, {"seed": seed, "draws": draws}) for seed in seeds]

    seeds: dict[Scale, tuple[int, ...]] = {"smoke": (1, 2, 3), "small": tuple(range(LAST + 1)), "paper": (1,)}
    return Study(name, "What is a square?", ("tab:squares",), seeds, tasks, tables, figures, **options)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


if __name__ == "__main__":
    import sys

    # By its own name, for a task is known by the module of its function.
    from tests.studies import squares
    from vapo.studies import runner

    # Somebody may work on the package while the test runs.
    runner._code = lambda: "0" * 64
    runner.run_studies(
        [squares.study(squares.patiently)], out=sys.argv[1], scale="small", workers=int(sys.argv[2])
    )
