"""`vapo study`: run the paper's studies, and show the rows behind a number."""

from __future__ import annotations

import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vapo.studies.framework import Row
    from vapo.studies.runner import Finished

EXAMPLES = (
    "vapo study all --scale smoke --out studies",
    "vapo study validity --scale small --workers 2 --out studies --json",
    "vapo study show validity/records-needed/0.08-frozen-one-chain/records-for-90 --out studies",
)

_SHOWN_ROWS, _SHOWN_COLUMNS, _SHOWN_DIFFERENCES = 20, 8, 12
_APART = (
    "seed",
    "case",
    "reading",
    "noise",
    "order",
    "rho",
    "records",
    "stage",
    "check",
    "refusal",
    "split",
)
"""Columns that tell rows apart, shown beside those that a number was made of."""


class Size(enum.StrEnum):
    """How large a study is run."""

    smoke = "smoke"
    small = "small"
    paper = "paper"


def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study, all of them (all), or show.")],
    out: Annotated[Path, typer.Option("--out", help="Folder that gets one folder a study.")],
    cell: Annotated[
        str | None,
        typer.Argument(metavar="[CELL]", help="With show: STUDY/TABLE/ROW/QUANTITY, or a part of it."),
    ] = None,
    scale: Annotated[
        Size, typer.Option("--scale", help="How large: seconds, minutes, or as in the paper.")
    ] = Size.smoke,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="Seeds in place of the study's own, separated by commas.")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes; the files are the same.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", help="Work on a Ray cluster instead: its address, auto or local.", metavar="ADDRESS"
        ),
    ] = None,
    json_output: shared.Json = False,
) -> None:
    """Run a study of the paper: every table and figure with the paper's values beside ours.

    Writes rows of each seed first, then tables, pictures and a report. Run again, it goes on where it was interrupted.

    With show, prints one number of a finished study and the rows from which it was computed.
    """
    if name == "show":
        if cell is None:
            shared.refuse("the id of a cell", "none", where="vapo study show")
        _show(cell, out, json_output=json_output)
        return
    if cell is not None:
        shared.refuse("no cell unless the first word is show", repr(cell), where="vapo study")
    from vapo.studies import ROOMS, load
    from vapo.studies.runner import run_studies

    chosen = [load(room) for room in (ROOMS if name == "all" else [name])]
    with shared.progress() as progress:
        done = run_studies(
            chosen,
            out=out,
            scale=scale.value,
            seeds=_seeds(seeds),
            workers=workers,
            ray=ray,
            progress=progress,
        )
    _tell(done)
    shared.emit({"scale": scale.value, "studies": [_as_data(each) for each in done]}, json_output=json_output)


def _seeds(text: str | None) -> list[int] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        shared.refuse("whole numbers separated by commas", repr(text), where="option '--seeds'")
    return [int(word) for word in words]


def _as_data(done: Finished) -> dict[str, Any]:
    from vapo.studies.pages import count_verdicts

    return {
        "study": done.study.name,
        "report": str(done.folder / "report.md"),
        "tables": [table.name for table in done.tables],
        "cells": sum(len(table.cells) for table in done.tables),
        "verdicts": count_verdicts(done.tables),
        "resumed": done.resumed,
        "older": done.older,
    }


def _tell(done: list[Finished]) -> None:
    verdicts = ("agrees", "differs", "not comparable")
    rows = []
    for each in done:
        data = _as_data(each)
        rows.append(
            [
                each.study.name,
                str(data["cells"]),
                *(str(data["verdicts"].get(word, 0)) for word in verdicts),
                data["report"],
            ]
        )
    shared.show_table(["study", "cells", *verdicts, "report"], rows)
    for each in done:
        if each.resumed:
            older = f", {each.older} of them by another version of the code" if each.older else ""
            shared.say(f"{each.study.name}: {each.resumed} tasks had been finished before{older}.")
    apart = [
        (f"{each.study.name}/{table.name}/{cell.id}", cell)
        for each in done
        for table in each.tables
        for cell in table.cells
        if cell.verdict == "differs"
    ]
    for identity, cell in apart[:_SHOWN_DIFFERENCES]:
        shared.say(f"differs: {identity}{f': {cell.why}' if cell.why else ''}")
    if len(apart) > _SHOWN_DIFFERENCES:
        shared.say(f"... and {len(apart) - _SHOWN_DIFFERENCES} more; the reports list them all.")


def _show(cell: str, out: Path, *, json_output: bool) -> None:
    from vapo.studies import ROOMS
    from vapo.studies.lookup import find_cell, rows_behind
    from vapo.studies.pages import number

    found = find_cell(out, cell, ROOMS)
    rows = rows_behind(out, found["cell"].partition("/")[0], found["rows"])
    interval = "" if found["low"] is None else f" [{number(found['low'])}, {number(found['high'])}]"
    shared.say(f"{found['cell']}: {number(found['ours'])}{interval}")
    if found["how"]:
        shared.say(f"how: {found['how']}")
    if found["verdict"] is not None:
        spread = (
            f" ± {number(found['paper_half_width'])} (its sampling error)"
            if found["paper_half_width"]
            else ""
        )
        shared.say(f"paper: {number(found['paper'])}{spread}, {found['verdict']}")
    if found["why"]:
        shared.say(f"why: {found['why']}")
    which = ", ".join(f"{name} = {_listed(value)}" for name, value in found["rows"].items()) or "any value"
    shared.say(f"{len(rows)} {'row' if len(rows) == 1 else 'rows'} with {which}{':' if rows else ''}")
    known = [name for name, value in found["rows"].items() if not isinstance(value, list)]
    _show_rows(rows, known, re.findall(r"`([^`]+)`", found["how"]))
    shared.emit({**found, "behind": rows}, json_output=json_output)


def _listed(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list) else str(value)


def _show_rows(rows: Sequence[Row], said: Sequence[str], used: Sequence[str]) -> None:
    """The columns that the number was made of, and what tells the rows apart; all columns where that is not known."""
    columns = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in said]
    made_of = [name for name in dict.fromkeys(used) if name in columns]
    if made_of:
        apart = [name for name in _APART if name in columns and name not in made_of]
        columns = (apart or [name for name in columns if name == "task"]) + made_of
    texts = {name: [_text(row.get(name)) for row in rows] for name in columns}
    alike = [name for name in columns if len(rows) > 1 and len(set(texts[name])) == 1]
    if alike:
        shared.say("In all of them: " + ", ".join(f"{name} = {texts[name][0]}" for name in alike) + ".")
    rest = [name for name in columns if name not in alike]
    shown = range(min(len(rows), _SHOWN_ROWS))
    if rest and len(rest) <= _SHOWN_COLUMNS:
        shared.show_table(rest, [[texts[name][n] for name in rest] for n in shown])
    else:
        for n in shown:
            shared.say("- " + ", ".join(f"{name} = {texts[name][n]}" for name in rest if texts[name][n]))
    if len(rows) > _SHOWN_ROWS:
        shared.say(f"... and {len(rows) - _SHOWN_ROWS} more.")
    if rows:
        shared.say("--json prints every column of every row, with all digits.")


def _text(value: Any) -> str:
    from vapo.studies.pages import number

    if value is None:
        return ""
    return ("no", "yes")[value] if isinstance(value, bool) else number(value)
