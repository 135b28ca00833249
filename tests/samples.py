"""Rollouts for tests: small tables, and worlds whose truth is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from vapo.records import Records


def tiny(**columns: Any) -> pa.Table:
    """Four sound records, with columns replaced, added, or (None) left out."""
    whole = {
        "id": ["a", "b", "c", "d"],
        "group": ["p", "q", "r", "s"],
        "y": [1, -1, 1, 0],
        "signal.conf": [0.9, 0.4, 0.6, 0.5],
        **columns,
    }
    return pa.table({name: values for name, values in whole.items() if values is not None})


def world(
    n: int,
    *,
    per_group: int = 1,
    seed: int = 0,
    prefix: str = "",
    wrong: float = 0.12,
    window: int | None = 100,
    content: bool = False,
) -> tuple[pa.Table, dict[str, int]]:
    """Records of a primary that is wrong now and then, with a confidence that knows something of it, and the truth."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(n) < 0.6, 1, -1)
    y = np.where(rng.random(n) < wrong, -truth, truth)
    y = np.where(rng.random(n) < 0.03, 0, y)
    confidence = np.clip(np.where(y == truth, 0.75, 0.4) + rng.normal(0, 0.15, n), 0, 1)
    judge = np.where(rng.random(n) < 0.15, -truth, truth)
    second = np.where(rng.random(n) < 0.04, -truth, truth)
    ids = [f"{prefix}r{i}" for i in range(n)]
    columns: dict[str, Any] = {
        "id": ids,
        "group": [f"{prefix}g{i // per_group}" for i in range(n)],
        "y": y,
        "signal.conf": confidence,
        "verdict.judge": judge,
        "y2": np.where(rng.random(n) < 0.05, 0, second),
        "c2": rng.choice([0.4, 0.9, 1.0], n),
    }
    if window is not None:
        columns["window"] = [str(i // window) for i in range(n)]
    if content:
        columns["content"] = [f"{prefix} answer {i}" for i in range(n)]
    return pa.table(columns), dict(zip(ids, truth.tolist(), strict=True))


def without(table: pa.Table, *names: str) -> pa.Table:
    """A table without some columns."""
    return table.drop_columns(list(names))


def replaced(table: pa.Table, **columns: Any) -> pa.Table:
    """A table with some columns replaced or added (`__` in a name stands for a dot)."""
    for name, values in columns.items():
        field = name.replace("__", ".")
        array = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values)
        place = table.schema.get_field_index(field)
        table = table.append_column(field, array) if place < 0 else table.set_column(place, field, array)
    return table


def records(**columns: Any) -> Records:
    """`tiny` as records."""
    return Records.from_arrow(tiny(**columns))


def files_of(folder: Any) -> Mapping[str, bytes]:
    """Every file below a folder by relative name, telemetry aside."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "telemetry.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
