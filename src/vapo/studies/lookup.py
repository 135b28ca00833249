"""From a number of a finished study back to the rows that it was made of."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vapo.errors import InputError
from vapo.studies.framework import Row, Where, matching
from vapo.studies.runner import MANIFEST, load_rows

__all__ = ["find_cell", "rows_behind"]


def find_cell(out: str | Path, name: str, known: Iterable[str] = ()) -> dict[str, Any]:
    """One cell of a finished study, by its id.

    Args:
        out: The folder that holds the studies' folders.
        name: `STUDY/TABLE/ROW/QUANTITY`; a shorter one must fit a single cell.
        known: Names of all studies there are, to tell one that was not run from a misspelt cell.

    Raises:
        InputError: No cell has this id, or several do, or its study was not run.
    """
    cells = [
        cell
        for path in sorted(Path(out).glob("*/tables/*.json"))
        for cell in json.loads(path.read_bytes())["cells"]
    ]
    if not cells:
        expected = "a folder with finished studies"
        raise InputError(expected, str(out), where="option '--out'")
    wanted = name.strip("/")
    here = sorted({cell["cell"].partition("/")[0] for cell in cells})
    study = wanted.partition("/")[0]
    whole = wanted.count("/") == 3 and not difflib.get_close_matches(study, here)
    if study not in here and (study in known or whole):
        expected = f"a cell of a study that stands finished in {out}: {', '.join(here)}"
        raise InputError(expected, f"{wanted!r}, of {study}, which was not run there", where="cell")
    found = [cell for cell in cells if cell["cell"] == wanted] or [
        cell for cell in cells if f"{cell['cell']}/".startswith(f"{wanted}/") or f"/{wanted}" in cell["cell"]
    ]
    if len(found) != 1:
        near = [cell["cell"] for cell in found] or _nearest(wanted, [cell["cell"] for cell in cells])
        expected = "the id of one cell"
        got = f"{wanted!r}, which {'fits' if found else 'is near'} {', '.join(near[:8])}"
        raise InputError(expected, f"{got}{', ...' if len(near) > 8 else ''}", where="cell")
    cell: dict[str, Any] = found[0]
    return cell


def _nearest(wanted: str, names: Sequence[str]) -> list[str]:
    return difflib.get_close_matches(wanted, names, n=5, cutoff=0.3) or list(names[:5])


def rows_behind(out: str | Path, study: str, where: Where) -> list[Row]:
    """The rows that a cell was made of; of a cell that was read off another study's manifest, what stands there.

    Args:
        out: The folder that holds the studies' folders.
        study: The cell's study.
        where: Its rows.

    Raises:
        InputError: There is no finished study.
        IntegrityError: Rows are not those that the tables were made from.
    """
    if "manifest" not in where:
        return list(matching(load_rows(Path(out, study)), where))
    path = Path(out, where["manifest"], MANIFEST)
    found = json.loads(path.read_bytes()).get(where["field"]) if path.is_file() else None
    return [] if found is None else [{where["field"]: json.dumps(found, sort_keys=True)}]
