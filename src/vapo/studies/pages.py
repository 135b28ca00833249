"""Tables as people and programs read them: Markdown, CSV and JSON, and one page a study."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vapo.studies.framework import Cell, Context, Estimate, Study, Table

__all__ = ["RULE", "as_data", "count_verdicts", "markdown", "number", "render", "report"]

RULE = (
    "A value of the paper *agrees* when it lies inside our 95 % interval, widened by the paper's own sampling error "
    "where its number of records is known, and by half a unit of its last digit. One cell in twenty differs by chance "
    "where nothing is different."
)

_COLUMNS = (
    "cell", "row", "quantity", "paper", "paper_half_width", "ours", "low", "high", "n", "unit", "how", "verdict",
    "why", "rows",
)  # fmt: skip


def as_data(study: str, table: Table) -> dict[str, Any]:
    """A table as plain data.

    Args:
        study: The study's name, with which cell ids begin.
        table: The table.
    """
    return {
        "study": study,
        "table": table.name,
        "label": table.label,
        "title": table.title,
        "note": table.note,
        "cells": [
            {
                "cell": f"{study}/{table.name}/{cell.id}",
                "row": cell.row,
                "quantity": cell.quantity,
                "paper": None if cell.paper is None else cell.paper.value,
                "paper_half_width": None if cell.paper is None else cell.paper.half_width,
                "ours": cell.ours.value,
                "low": cell.ours.low,
                "high": cell.ours.high,
                "n": cell.ours.n,
                "unit": cell.ours.unit,
                "how": cell.ours.how,
                "verdict": cell.verdict,
                "why": cell.why,
                "rows": dict(cell.rows),
            }
            for cell in table.cells
        ],
    }


def render(study: str, table: Table) -> dict[str, bytes]:
    """The files of a table, by name below the study's folder.

    Args:
        study: The study's name.
        table: The table.
    """
    data = as_data(study, table)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for cell in data["cells"]:
        writer.writerow({**cell, "rows": json.dumps(cell["rows"], sort_keys=True)})
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return {
        f"tables/{table.name}.md": (markdown(table) + "\n").encode(),
        f"tables/{table.name}.csv": stream.getvalue().encode(),
        f"tables/{table.name}.json": text.encode(),
    }


def number(value: float | str | None, decimals: int | None = None) -> str:
    """A value as it is printed.

    Args:
        value: A number, words, or nothing.
        decimals: Digits after the point; four that count where it is None.

    Example:
        >>> number(0.13906, 4), number(0.000123456), number(None), number(1280), number(-0.00001, 3), number(1, 2)
        ('0.1391', '0.0001235', 'undefined', '1,280', '0.000', '1.00')
    """
    if value is None:
        return "undefined"
    if isinstance(value, str):
        return value
    if decimals is None:
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    shown = f"{value:,.{decimals}f}"
    return shown.removeprefix("-") if not shown.strip("-0.,") else shown


def markdown(table: Table, level: int = 3) -> str:
    """A table as a grid, our value above the paper's, and the reasons below it.

    Args:
        table: The table.
        level: Depth of its heading.
    """
    label = f" (`{table.label}`)" if table.label else ""
    decimals = _decimals(table)
    places = {(cell.row, cell.quantity): cell for cell in table.cells}
    lines = [
        f"{'#' * level} {table.title}{label}",
        "",
        "| " + " | ".join(["", *(name.replace("|", "\\|") for name in table.quantities)]) + " |",
        "|" + "---|" + "---:|" * len(table.quantities),
    ]
    for row in table.rows:
        shown = [_show(places.get((row, quantity)), decimals[quantity]) for quantity in table.quantities]
        lines.append("| " + " | ".join([row.replace("|", "\\|"), *shown]) + " |")
    if table.note:
        lines += ["", table.note]
    reasons: dict[str, list[str]] = {}
    for cell in table.cells:
        if cell.why:
            reasons.setdefault(cell.why, []).append(f"{cell.row} {cell.quantity}".strip())
    if reasons:
        lines += ["", *(f"- {_some(cells)}: {why}" for why, cells in reasons.items())]
    return "\n".join(lines) + "\n"


def report(
    study: Study, context: Context, tables: Sequence[Table], captions: Iterable[tuple[str, str, str]]
) -> bytes:
    """One page: what was asked, every table, every picture.

    Args:
        study: The study.
        context: Scale and seeds.
        tables: Its tables.
        captions: Name, label and caption of each picture.
    """
    verdicts = count_verdicts(tables)
    counted = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items()) or "none"
    lines = [
        f"# {study.name}: {study.title}",
        "",
        f"Scale `{context.scale}`, {len(context.seeds)} seed{'s' if len(context.seeds) != 1 else ''}. "
        f"Values of the paper beside ours: {counted}.",
        "",
        RULE,
        "",
    ]
    lines += [f"{markdown(table, 2)}" for table in tables]
    for name, label, caption in captions:
        named = f" (`{label}`)" if label else ""
        lines += [f"## Figure: {name}{named}", "", f"![{caption}](figures/{name}.svg)", "", caption, ""]
    return "\n".join(lines).encode()


def count_verdicts(tables: Iterable[Table]) -> dict[str, int]:
    """How many cells have which verdict; cells without a value of the paper are not counted.

    Args:
        tables: Any tables.
    """
    found: dict[str, int] = {}
    for table in tables:
        for cell in table.cells:
            if cell.verdict is not None:
                found[cell.verdict] = found.get(cell.verdict, 0) + 1
    return dict(sorted(found.items()))


def _decimals(table: Table) -> Mapping[str, int | None]:
    """Digits of each column: those of the paper, so that both can be compared at a glance."""
    found: dict[str, int | None] = dict.fromkeys(table.quantities)
    for cell in table.cells:
        if cell.paper is not None and cell.paper.decimals is not None:
            found[cell.quantity] = max(found[cell.quantity] or 0, cell.paper.decimals)
    return found


def _show(cell: Cell | None, decimals: int | None) -> str:
    if cell is None:
        return ""
    text = number(cell.ours.value, decimals) + _interval(cell.ours, decimals)
    if cell.paper is not None:
        mark = {"agrees": "agrees", "differs": "**differs**", "not comparable": "*not comparable*"}
        text += (
            f"<br>paper {number(cell.paper.value, cell.paper.decimals)}, {mark[cell.verdict or 'differs']}"
        )
    return text.replace("|", "\\|")


def _interval(ours: Estimate, decimals: int | None) -> str:
    if ours.low is None or ours.high is None:
        return ""
    return f" [{number(ours.low, decimals)}, {number(ours.high, decimals)}]"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
