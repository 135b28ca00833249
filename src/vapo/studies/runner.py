"""Runs studies: rows of each task to disk as soon as it ends, then tables, pictures and a manifest of every file.

    OUT/NAME/rows/DIGEST.jsonl   what one task found; the first line says which task, and of which code
    OUT/NAME/tables/             each table as Markdown, CSV and JSON
    OUT/NAME/figures/            each picture as SVG and PNG
    OUT/NAME/report.md           tables and pictures on one page
    OUT/NAME/manifest.json       scale, seeds, versions, and the SHA-256 of every file above

There is no clock in any of them: the same rows give the same bytes, however many workers made them.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo._internal.workers import RayPool, ray_pool, worker_pool
from vapo.certification.stage import Progress
from vapo.errors import InputError, IntegrityError, VapoError
from vapo.ledger.disk import Disk
from vapo.studies import pages, style
from vapo.studies.framework import Context, Row, Scale, Study, Table, Task

__all__ = ["Finished", "TaskError", "load_rows", "run_studies"]

MANIFEST = "manifest.json"
_ROWS = re.compile(r"rows/[0-9a-f]{1,64}\.jsonl")


class TaskError(VapoError):
    """A task came to nothing; the rows of the others are kept."""


class Finished(NamedTuple):
    """A study that is through."""

    study: Study
    """Which one."""
    tables: list[Table]
    """Its tables."""
    folder: Path
    """Where all of it stands."""
    resumed: int
    """How many of its tasks had been finished before."""
    older: int
    """How many of these were worked by another version of this package's source."""


class _Job(NamedTuple):
    study: Study
    task: Task
    name: str
    """The file of its rows, below the study's folder."""


def _silent(step: str, done: int, total: int) -> None:
    del step, done, total


def run_studies(
    studies: Sequence[Study],
    *,
    out: str | Path,
    scale: Scale = "smoke",
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    ray: str | None = None,
    progress: Progress = _silent,
) -> list[Finished]:
    """Run studies, or go on with them where they were interrupted.

    Args:
        studies: Which ones. They share the workers.
        out: Folder that gets one folder a study.
        scale: How large.
        seeds: Seeds in place of those that the scale names.
        workers: Processes; 1 works in this one.
        ray: Address of a Ray cluster (or `auto`, or `local`) whose processors work instead. They hand what they
            found to this process, which alone writes, so that nothing but it needs the folder.
        progress: Told of every finished task.

    Raises:
        TaskError: A task failed. What others found is on disk, and the same call goes on from there.

    Example:
        >>> import tempfile
        >>> from vapo.studies.framework import Cell, Estimate
        >>> def work(seed): return [{"seed": seed, "square": seed * seed}]
        >>> def tasks(scale, seeds): return [Task("squares", f"seed-{s}", work, {"seed": s}) for s in seeds]
        >>> def tables(rows, context):
        ...     cells = [Cell(f"seed {r['seed']}", "square", Estimate(r["square"]), {"seed": r["seed"]}) for r in rows]
        ...     return [Table("squares", "", "Squares", cells)]
        >>> study = Study("squares", "What is a square?", (), {"smoke": (2, 3)}, tasks, tables)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     done, = run_studies([study], out=folder)
        ...     [cell.ours.value for cell in done.tables[0].cells]
        [4, 9]
    """
    if workers < 1:
        expected = "at least one worker"
        raise InputError(expected, str(workers), where="argument 'workers'")
    style.require()
    out = Path(out)
    chosen = {study.name: tuple(seeds) if seeds else tuple(study.seeds[scale]) for study in studies}
    jobs = {study.name: _plan(study, scale, chosen[study.name]) for study in studies}
    with ExitStack() as stack:
        disks = {study.name: stack.enter_context(Disk(out / study.name)) for study in studies}
        missing = [job for name in jobs for job in jobs[name] if not disks[name].exists(job.name)]
        resumed = {name: len(jobs[name]) - sum(job.study.name == name for job in missing) for name in jobs}
        for done, (job, data) in enumerate(_work(missing, workers, ray, _code()), 1):
            disks[job.study.name].write(job.name, data)
            progress("tasks", done, len(missing))
        finished = []
        for done, study in enumerate(sorted(studies, key=lambda study: study.last), 1):
            # What else stands in the folder must not change the bytes of a study that does not ask for it.
            context = Context(scale, chosen[study.name], _manifests(out, study) if study.last else {})
            tables, codes = _publish(disks[study.name], study, jobs[study.name], context)
            older = sum(count for code, count in codes.items() if code != _code())
            finished.append(Finished(study, tables, out / study.name, resumed[study.name], older))
            progress("tables and pictures", done, len(studies))
    return finished


def load_rows(folder: str | Path) -> list[Row]:
    """All rows of a finished study, in the order of its tasks, each checked against the manifest.

    Args:
        folder: `OUT/NAME`.

    Raises:
        InputError: There is no finished study.
        IntegrityError: A file of rows is not the one that the tables were made from.
    """
    folder = Path(folder)
    manifest = _manifest(folder)
    if manifest is None:
        expected = f"a finished study with its {MANIFEST}"
        raise InputError(expected, "none", where=str(folder))
    rows: list[Row] = []
    for name in manifest["rows"]:
        path = folder / name
        data = path.read_bytes() if path.is_file() else b""
        if sha256_hex(data) != manifest["files"].get(name):
            msg = f"{path}: not the rows that the tables were made from; run the study again"
            raise IntegrityError(msg)
        rows += _parse(data, path)[1]
    return rows


def _plan(study: Study, scale: Scale, seeds: tuple[int, ...]) -> list[_Job]:
    tasks = study.tasks(scale, seeds)
    keys = [task.key for task in tasks]
    if len(set(keys)) != len(keys):
        expected = "each task key once"
        raise InputError(expected, "one twice", where=f"study {study.name!r}")
    return [_Job(study, task, f"rows/{task.digest(study.revision)}.jsonl") for task in tasks]


def _work(jobs: Sequence[_Job], workers: int, ray: str | None, code: str) -> Iterator[tuple[_Job, bytes]]:
    """Each job with the bytes of its file, as they end."""
    if not jobs:
        return
    if ray is None and (workers == 1 or len(jobs) < 2):
        for job in jobs:
            try:
                data = _rows(job.task, job.study.revision, code)
            except Exception as error:
                raise _failed(job, error) from error
            yield job, data
        return
    with worker_pool(min(workers, len(jobs))) if ray is None else ray_pool(ray) as pool:
        size = pool.size if isinstance(pool, RayPool) else workers
        waiting: dict[Future[bytes], _Job] = {}
        rest = iter(jobs)
        while True:
            # No more than are worked on and next in turn, so that an interruption leaves little to throw away.
            for job in islice(rest, 2 * size - len(waiting)):
                waiting[pool.submit(_rows, job.task, job.study.revision, code)] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                job = waiting.pop(future)
                try:
                    data = future.result()
                except Exception as error:
                    raise _failed(job, error) from error
                yield job, data


def _failed(job: _Job, error: BaseException) -> TaskError:
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    msg = f"study {job.study.name}: task {job.task.key} failed: {said}; the rows of finished tasks are kept"
    return TaskError(msg)


def _rows(task: Task, revision: int, code: str) -> bytes:
    """Do a task: the bytes of its file."""
    head = {
        "study": task.study,
        "key": task.key,
        "function": task.reference,
        "arguments": dict(task.arguments),
        "revision": revision,
        "code": code,
    }
    lines = [canonical_json(head)]
    for number, row in enumerate(task.run()):
        flat = all(value is None or isinstance(value, str | int | float) for value in row.values())
        if not flat:
            expected = "numbers, texts, truth values or None in a row"
            raise InputError(expected, repr(dict(row)), where=f"task {task.key}: row {number}")
        lines.append(canonical_json({"task": task.key, **row}))
    return b"\n".join([*lines, b""])


def _parse(data: bytes, path: Path) -> tuple[dict[str, Any], list[Row]]:
    try:
        head, *rows = [json.loads(line) for line in data.splitlines()]
    except (ValueError, RecursionError):
        head, rows = None, []
    if not all(isinstance(row, dict) for row in (head, *rows)):
        msg = f"{path}: not a file of rows; remove it and run the study again"
        raise IntegrityError(msg)
    return head, rows


def _publish(
    disk: Disk, study: Study, jobs: Iterable[_Job], context: Context
) -> tuple[list[Table], Counter[str]]:
    """Tables, pictures, report and manifest from the rows on disk; and how many tasks which code worked."""
    files: dict[str, bytes] = {job.name: disk.read(job.name) for job in jobs}
    parsed = [_parse(data, disk.root / name) for name, data in files.items()]
    rows = [row for _, found in parsed for row in found]
    codes = Counter(head["code"] for head, _ in parsed)
    tables = list(study.tables(rows, context))
    names, captions = list(files), []
    for table in tables:
        files.update(pages.render(study.name, table))
    with style.applied():
        for drawing in study.figures(rows, tables):
            captions.append((drawing.name, drawing.label, drawing.caption))
            files.update(style.render(drawing))
    files["report.md"] = pages.report(study, context, tables, captions)
    for name, data in files.items():
        if name not in names:
            disk.write(name, data)
    for name in disk.names():
        if name.startswith(("tables/", "figures/")) and name not in files:
            disk.remove(name)
    manifest = {
        "study": study.name,
        "revision": study.revision,
        "scale": context.scale,
        "seeds": list(context.seeds),
        "labels": list(study.labels),
        "tasks": len(parsed),
        "row_count": len(rows),
        "arguments": _arguments([head["arguments"] for head, _ in parsed]),
        "cells": sum(len(table.cells) for table in tables),
        "verdicts": pages.count_verdicts(tables),
        "code": sorted(codes),
        "versions": _versions(),
        "rows": names,
        "files": {name: sha256_hex(data) for name, data in sorted(files.items())},
    }
    disk.write(MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode() + b"\n")
    return tables, codes


def _arguments(given: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """By name: what tasks were given, each value once; of long lists only the ends."""
    found: dict[str, dict[bytes, Any]] = {}
    for arguments in given:
        for name, value in arguments.items():
            found.setdefault(name, {})[canonical_json(value)] = value
    values = {name: [seen[key] for key in sorted(seen)] for name, seen in sorted(found.items())}
    return {
        name: seen if len(seen) <= 12 else [*seen[:3], "...", *seen[-3:]] for name, seen in values.items()
    }


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        found: Any = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        return None
    names = found.get("rows")
    # A manifest names files of its own folder and no others.
    fits = isinstance(names, list) and all(isinstance(name, str) and _ROWS.fullmatch(name) for name in names)
    return found if fits else None


def _manifests(out: Path, but: Study) -> dict[str, dict[str, Any]]:
    found = ((path.parent.name, _manifest(path.parent)) for path in sorted(out.glob(f"*/{MANIFEST}")))
    return {name: manifest for name, manifest in found if manifest is not None and name != but.name}


@cache
def _code() -> str:
    """A digest of this package's source, so that rows say by which code they were made."""
    root = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(os.fsencode(path.relative_to(root)) + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _versions() -> dict[str, str]:
    found = {}
    for name in ("audit-first-vapo", "numpy", "scipy", "matplotlib"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
