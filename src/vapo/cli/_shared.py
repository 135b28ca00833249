"""What commands have in common: the options that all take, and how they speak."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from vapo.certification.stage import Progress

__all__ = [
    "BAD_INPUT",
    "DEFECT",
    "INTERRUPTED",
    "NEGATIVE",
    "Json",
    "RecordsFile",
    "RunFolder",
    "console",
    "emit",
    "emit_error",
    "progress",
    "refuse",
    "say",
    "show_table",
]

NEGATIVE, BAD_INPUT, DEFECT, INTERRUPTED = 1, 2, 3, 130

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The run folder, as vapo certify or vapo design made it.")
]
RecordsFile = Annotated[
    Path, typer.Argument(metavar="RECORDS", help="Rollout records: .parquet, .jsonl, .csv or .arrow.")
]


@functools.cache
def console() -> Console:
    """Where prose and progress go: stderr."""
    from rich.console import Console

    class Patient(Console):
        """A console that falls silent when nobody reads it any more; the work itself goes on."""

        def on_broken_pipe(self) -> None:
            self.quiet = True
            _discard(sys.stderr)

    return Patient(stderr=True, highlight=False)


def say(text: str = "") -> None:
    """Say something to a person; lines are broken only where a person sees them."""
    console().print(text, markup=False, soft_wrap=not console().is_terminal)


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """Show a table to a person: text to the left, numbers to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(columns):
        cells = [row[place] for row in rows]
        words = any(cell[:1].isalpha() and cell not in ("never", "none") for cell in cells)
        # What does not fit is wrapped: a name that is cut short may be another one's too.
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)


def emit(data: Mapping[str, Any], *, json_output: bool) -> None:
    """Print the machine-readable answer, if it was asked for."""
    if not json_output:
        return
    text = json.dumps(data, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # A terminal without these letters, or a file name that is no text: escaped they are JSON all the same.
        text = json.dumps(data, allow_nan=False)
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def emit_error(kind: str, message: str, *, json_output: bool) -> None:
    """Say why nothing came of it, to a person and, if that was asked for, to a machine."""
    say(f"error: {message}")
    emit({"error": {"kind": kind, "message": message}}, json_output=json_output)


def refuse(expected: str, got: str = "", *, where: str = "") -> NoReturn:
    """Turn an argument down."""
    from vapo.errors import InputError

    raise InputError(expected, got, where=where)


def _discard(stream: Any) -> None:
    """Send what is still to come to nowhere, so that the interpreter does not complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def progress() -> Iterator[Progress]:
    """A progress bar on stderr, one line a step; silent where stderr is not a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=console(), transient=True, disable=not console().is_terminal) as bars:
        tasks: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in tasks:
                tasks[step] = bars.add_task(step, total=total)
            bars.update(tasks[step], completed=done, total=total)

        yield show
