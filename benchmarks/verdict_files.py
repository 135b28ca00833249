"""Turn a file of recorded verifier verdicts into RECORDS and LABELS that `vapo certify` takes.

    python -m benchmarks.verdict_files openqa_eval.jsonl --y2 davinci3 --out DIR

A line of such a file is one judged answer: `id`, `group`, `primary` (+1, -1, or 0 for none), `secondary` (a
verdict `v` and a score `s`, or null, by verifier), `label` (+1 or -1) and `meta`. Of these only what a
controller may see goes into the records; `label` goes into LABELS, and `meta` stays where it is, except that
the digest of the question may serve to find questions that stand in the file twice.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from vapo import Records
from vapo._internal.files import write_table
from vapo.errors import InputError, VapoError

__all__ = ["ENVIRONMENT", "Tables", "convert", "find_verdicts", "read_rows"]

ENVIRONMENT = "VAPO_SHARED_DATA"
"""Names the folder that holds `verdicts/`."""

Row = Mapping[str, Any]


class Tables(NamedTuple):
    """What a verdict file becomes."""

    records: pa.Table
    """id, group, y, a `verdict.NAME` (and `.score`) for each verifier, and y2 where one was named."""
    labels: pa.Table
    """id and z."""


def find_verdicts(given: str | Path | None = None) -> Path:
    """The folder with the verdict files: as given, else from the environment.

    Args:
        given: The folder itself, or the one that holds it as `verdicts`.

    Raises:
        InputError: Saying what is missing.
    """
    named = given or os.environ.get(ENVIRONMENT)
    if not named:
        expected = f"a folder of verdict files (--data, or the environment variable {ENVIRONMENT})"
        raise InputError(expected, "none named")
    for folder in (Path(named) / "verdicts", Path(named)):
        if any(folder.glob("*.jsonl*")):
            return folder
    expected = "a folder with verdict files (*.jsonl or *.jsonl.gz), or with a subfolder 'verdicts' of them"
    raise InputError(expected, "none there", where=str(named))


def read_rows(path: str | Path) -> list[Row]:
    """Read the lines of a verdict file, packed or not.

    Raises:
        InputError: If there is no such file, or a line is not one judged answer.
    """
    path = Path(path)
    if not path.is_file():
        expected = "an existing verdict file"
        raise InputError(expected, "none", where=str(path))
    rows: list[Row] = []
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as lines
    ):
        for number, line in enumerate(lines, 1):
            where = f"{path}: line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                expected = "one JSON object"
                raise InputError(expected, str(error), where=where) from None
            missing = {"id", "group", "primary", "secondary", "label"} - set(row)
            if missing:
                expected = f"a field '{min(missing)}'"
                raise InputError(expected, ", ".join(row), where=where)
            rows.append(row)
    return rows


def convert(
    rows: Sequence[Row],
    *,
    primary: str | None = None,
    signals: Sequence[str] | None = None,
    y2: str | None = None,
    only_judged: bool = False,
    content: bool = True,
) -> Tables:
    """Make records and labels.

    Args:
        rows: Lines of a verdict file.
        primary: The verifier whose verdict is y; None for the file's own primary.
        signals: The verifiers that may be used as signals; None for all that are neither y nor y2.
        y2: The verifier that stands by for appeals.
        only_judged: Leave out what the primary gave no verdict on, such as a model's own answers when that
            model is the primary.
        content: Pass the question on, so that groups which share one become one group.

    Returns:
        The tables. The file's `meta` and `label` are in neither's records.

    Example:
        >>> rows = [{"id": "a", "group": "q", "primary": 1, "label": -1,
        ...          "secondary": {"judge": {"v": -1, "s": 0.2}, "match": {"v": None, "s": None}}}]
        >>> convert(rows).records.to_pylist()[0]
        {'id': 'a', 'group': 'q', 'y': 1, 'verdict.judge': -1, 'verdict.judge.score': 0.2, 'verdict.match': 0}
    """
    names = list(dict.fromkeys(name for row in rows for name in row["secondary"]))
    chosen = [n for n in names if n not in (primary, y2)] if signals is None else list(signals)
    for name in [*chosen, *(n for n in (primary, y2) if n)]:
        if name not in names:
            expected = f"a verifier among {', '.join(names)}"
            raise InputError(expected, repr(name))
    taken = [name for name in (primary, y2) if name]
    if len({*chosen, *taken}) < len(chosen) + len(taken):
        expected = "different verifiers as primary, signals and y2"
        raise InputError(expected, ", ".join([*taken, *chosen]))

    def verdict(row: Row, name: str | None) -> int:
        return int((row["primary"] if name is None else row["secondary"].get(name, {}).get("v")) or 0)

    def score(row: Row, name: str) -> float | None:
        value: float | None = row["secondary"].get(name, {}).get("s")
        return value

    kept = [row for row in rows if not only_judged or verdict(row, primary)]
    columns: dict[str, Any] = {
        "id": [row["id"] for row in kept],
        "group": [row["group"] for row in kept],
        "y": pa.array([verdict(row, primary) for row in kept], pa.int8()),
    }
    for name in chosen:
        columns[f"verdict.{name}"] = pa.array([verdict(row, name) for row in kept], pa.int8())
        graded = [score(row, name) for row in kept]
        if any(value is not None for value in graded):
            columns[f"verdict.{name}.score"] = pa.array(graded, pa.float64())
    if y2 is not None:
        columns["y2"] = pa.array([verdict(row, y2) for row in kept], pa.int8())
        sure = [score(row, y2) for row in kept]
        if any(value is not None for value in sure):
            turned = [
                v if v is None or verdict(r, y2) >= 0 else 1 - v for r, v in zip(kept, sure, strict=True)
            ]
            columns["c2"] = pa.array(turned, pa.float64())
        columns["y2_source"] = [y2] * len(kept)
    questions = [row.get("meta", {}).get("question") for row in kept]
    if content and any(questions):
        columns["content"] = pa.array(questions, pa.string())
    labels = {"id": columns["id"], "z": pa.array([row["label"] for row in kept], pa.int8())}
    return Tables(pa.table(columns), pa.table(labels))


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert one file from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.verdict_files", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("file", type=Path, help="a verdict file (*.jsonl or *.jsonl.gz)")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for records.parquet and labels.parquet"
    )
    parser.add_argument("--primary", help="the verifier whose verdict is y (default: the file's primary)")
    parser.add_argument("--signals", help="verifiers to use as signals, with commas (default: all others)")
    parser.add_argument("--y2", help="the verifier that stands by for appeals")
    parser.add_argument(
        "--only-judged", action="store_true", help="leave out what the primary gave no verdict on"
    )
    parser.add_argument(
        "--no-content", action="store_true", help="do not pass the question on for overlap checks"
    )
    given = parser.parse_args(arguments)
    try:
        tables = convert(
            read_rows(given.file),
            primary=given.primary,
            signals=given.signals.split(",") if given.signals else None,
            y2=given.y2,
            only_judged=given.only_judged,
            content=not given.no_content,
        )
        # The question itself need not leave the source file: its digest does the same service.
        table = Records.from_arrow(tables.records).to_arrow(secondary=True)
    except VapoError as error:
        print(error, file=sys.stderr)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    write_table(table, given.out / "records.parquet")
    write_table(tables.labels, given.out / "labels.parquet")
    print(f"{table.num_rows} records and labels in {given.out}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
