"""What the speed page measures: each task runs in a process of its own and prints what it found as JSON.

python -m benchmarks.speed_tasks deciding '{"records": 1000000, "family": "shared", "candidates": 200}'
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["BUDGET", "RHO", "TASKS", "WINDOW"]

WINDOW, BUDGET = 256, 51
RHO, C_MIN, B_MAX, DELTA = 0.08, 0.25, 0.2, 0.05
_LEVELS = 20
_WARM = 256
_WIDTHS = (0.1, 0.25)

Found = dict[str, Any]


class Took(NamedTuple):
    """Seconds on the clock and seconds of processor time."""

    wall: float
    cpu: float


class Watch:
    """Adds up the time spent inside `with` blocks."""

    def __init__(self) -> None:
        self.took = Took(0.0, 0.0)

    def __enter__(self) -> None:
        self._begun = Took(time.perf_counter(), time.process_time())

    def __exit__(self, *_: object) -> None:
        wall, cpu = time.perf_counter() - self._begun.wall, time.process_time() - self._begun.cpu
        self.took = Took(self.took.wall + wall, self.took.cpu + cpu)


def peak_memory() -> int:
    """The most memory that this process has held so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def policies(kind: str, candidates: int) -> list[Any]:
    """Candidates that all appeal.

    The `shared` ones have 20 thresholds between them, in pairs of two widths, and differ in the confidence that they
    ask of the secondary; every `distinct` one has two thresholds of its own.
    """
    from vapo.policy import Policy

    if kind == "distinct":
        tops = [0.02 + 0.97 * (index + 0.5) / candidates for index in range(candidates)]
        found = [
            (max(0.0, top - _WIDTHS[index % 2]), top, 0.1 * (index % 3)) for index, top in enumerate(tops)
        ]
    else:
        pairs = [
            (max(0, level - round(width * _LEVELS)) / _LEVELS, level / _LEVELS)
            for level in range(_LEVELS, 0, -1)
            for width in _WIDTHS
        ]
        rounds = -(-candidates // len(pairs))
        found = [(low, high, step / (2 * rounds)) for step in range(rounds) for low, high in pairs][
            :candidates
        ]
    return [Policy.plain(low, high, second, budget=BUDGET) for low, high, second in found]


def columns(records: int, seed: int) -> tuple[dict[str, Any], Any]:
    """Records with a score in [0, 1], a primary that is the more often right the higher it is, and clean signs."""
    import numpy as np

    rng = np.random.default_rng(seed)
    score = rng.random(records)
    y = rng.choice(np.array([-1, 1], np.int8), records)
    z = np.where(rng.random(records) < 0.3 + 0.69 * score, y, -y).astype(np.int8)
    y2 = np.where(rng.random(records) < 0.1, -z, z).astype(np.int8)
    return {"y": y, "signal.confidence": score, "y2": y2, "c2": rng.random(records)}, z


def tables(records: int, seed: int, first: int = 0) -> tuple[Any, Any]:
    """The same as Arrow tables of records and labels; every record is a group, 256 are a window."""
    import numpy as np
    import pyarrow as pa

    place = np.arange(first, first + records)
    ids = pa.array(place).cast(pa.string())
    found, z = columns(records, seed)
    window = pa.array(place // WINDOW).cast(pa.string())
    return pa.table({"id": ids, "group": ids, "window": window, **found}), pa.table({"id": ids, "z": z})


def _chunks(records: int, *, whole: bool) -> Iterator[tuple[Any, Any]]:
    from vapo.certification.stage import CHUNK
    from vapo.records import Records

    if whole:
        table, labels = tables(records, 0)
        taken = Records.from_arrow(table)
        z = labels.column("z").to_numpy()
        del table, labels
        for rows in taken.slices(CHUNK):
            yield taken.take(rows), z[rows]
        return
    for number, first in enumerate(range(0, records, CHUNK)):
        table, labels = tables(min(CHUNK, records - first), number, first)
        yield Records.from_arrow(table), labels.column("z").to_numpy()


def deciding(
    records: int, candidates: int, family: str = "shared", *, whole: bool = False, repeat: int = 1
) -> Found:
    """Decide, count and certify; the records are made chunk by chunk (not timed), or held as a whole."""
    import numpy as np

    from vapo.certification.claims import evaluate
    from vapo.certification.stage import CHUNK
    from vapo.certification.tables import Requirements, Tally
    from vapo.certification.tally import count_codes
    from vapo.policy import Answers, Family, ask, settle

    if records > _WARM:
        deciding(_WARM, candidates, family)
    baseline = peak_memory()
    group = Family.of(policies(family, candidates))
    codes = np.zeros((candidates, min(CHUNK, records)), np.uint8)
    runs: list[Took] = []
    parts: list[dict[str, Took]] = []
    for _ in range(repeat):
        watches = {name: Watch() for name in ("decide", "count", "certify")}
        sums = np.zeros((3, candidates), np.int64)
        refused = 0
        for chunk, z in _chunks(records, whole=whole):
            score = chunk.signals["confidence"]
            bad = chunk.y * z < 0
            with watches["decide"]:
                requests = ask(group, chunk, score)
                actions = settle(requests, chunk, Answers.of(chunk.secondary, len(chunk)), out=codes)
            with watches["count"]:
                sums += count_codes(actions.codes, bad)
            refused += sum(len(requests.exhausted[key]) for key in requests.key)
        with watches["certify"]:
            tallies = [Tally(records, k, harm, calls) for k, harm, calls in sums.T.tolist()]
            asked = Requirements(RHO, C_MIN, B_MAX, DELTA)
            half, most = np.full(candidates, 0.5), np.full(candidates, B_MAX)
            verdict = evaluate(tallies, group.chains, asked, half, most, planned_records=records)
        took = [watch.took for watch in watches.values()]
        runs.append(Took(sum(part.wall for part in took), sum(part.cpu for part in took)))
        parts.append({name: watch.took for name, watch in watches.items()})
    best = min(range(repeat), key=lambda run: runs[run].wall)
    return {
        "runs": runs,
        "parts": parts[best],
        "baseline": baseline,
        "peak": peak_memory(),
        "counts": sums.sum(axis=1).tolist(),
        "refused_by_budget": refused,
        "certified": verdict.selected is not None,
    }


def loop(records: int, candidates: int, family: str = "shared", *, appeals: bool, repeat: int = 1) -> Found:
    """What one would write with numpy: masks, candidate by candidate."""
    import numpy as np

    group = policies(family, candidates)
    baseline = peak_memory()
    found, z = columns(records, 0)
    score, y, y2, c2 = found["signal.confidence"], found["y"], found["y2"], found["c2"]
    bad = y * z < 0
    starts = np.arange(0, records, WINDOW)
    runs = []
    for _ in range(repeat):
        watch = Watch()
        sums = np.zeros(3, np.int64)
        with watch:
            for policy in group:
                admitted, asked = score >= policy.pos.high, None
                if appeals:
                    wanted = (score >= policy.pos.low) & ~admitted
                    before = np.cumsum(wanted) - wanted
                    asked = wanted & (before - np.repeat(before[starts], WINDOW)[:records] < policy.budget)
                    admitted |= asked & (y2 == y) & (c2 >= policy.pos.second)
                harmful = np.count_nonzero(admitted & bad)
                calls = 0 if asked is None else np.count_nonzero(asked)
                sums += np.array([np.count_nonzero(admitted), harmful, calls])
        runs.append(watch.took)
    return {"runs": runs, "baseline": baseline, "peak": peak_memory(), "counts": sums.tolist()}


def write_input(records: int, candidates: int, folder: str, family: str = "distinct") -> Found:
    """Put records, labels and a family into files."""
    import pyarrow.parquet as pq

    from vapo._internal.keyed import canonical_json
    from vapo.policy import Family

    into = Path(folder)
    table, labels = tables(records, 0)
    pq.write_table(table, into / "records.parquet")
    pq.write_table(labels, into / "labels.parquet")
    (into / "family.json").write_bytes(canonical_json(Family.of(policies(family, candidates)).as_dict()))
    return {"bytes": (into / "records.parquet").stat().st_size}


def flow(folder: str) -> Found:
    """Read, decide, freeze, join and certify, all of it durable."""
    from vapo.certification.flow import certify
    from vapo.policy import Family

    with suppress(ImportError):
        import pandas  # noqa: F401  # Arrow imports it sooner or later, if it is there
    baseline = peak_memory()
    source, run = Path(folder), Path(folder) / "run"
    shutil.rmtree(run, ignore_errors=True)
    flushing, flushes, flush = Watch(), 0, os.fsync

    def counted(handle: Any) -> None:
        nonlocal flushes
        flushes += 1
        with flushing:
            flush(handle)

    os.fsync = counted  # type: ignore[assignment]
    watch = Watch()
    with watch:
        certificate = certify(
            source / "records.parquet",
            source / "labels.parquet",
            out=run,
            family=Family.read(source / "family.json"),
            rho=RHO,
            c_min=C_MIN,
            b_max=B_MAX,
            delta=DELTA,
        )
    size = sum(path.stat().st_size for path in run.rglob("*") if path.is_file())
    return {
        "runs": [watch.took],
        "baseline": baseline,
        "peak": peak_memory(),
        "flushes": flushes,
        "flushing": flushing.took.wall,
        "bytes": size,
        "certified": certificate.certified,
    }


def mapie(records: int, candidates: int) -> Found:
    """The peer's calibration at the thresholds of the `distinct` family, on the same scores, without appeals."""
    import numpy as np
    from mapie.risk_control import BinaryClassificationController, precision

    baseline = peak_memory()
    found, z = columns(records, 0)
    score, right = found["signal.confidence"], (found["y"] == z).astype(np.int64)
    controller = BinaryClassificationController(
        lambda values: np.column_stack([1 - values, values]),
        risk=precision,
        target_level=1 - RHO,
        confidence_level=1 - DELTA,
        list_predict_params=np.array([policy.pos.high for policy in policies("distinct", candidates)]),
    )
    watch = Watch()
    with watch:
        controller.calibrate(score, right)
    return {
        "runs": [watch.took],
        "baseline": baseline,
        "peak": peak_memory(),
        "certified": controller.best_predict_param is not None,
    }


def first_call(records: int, candidates: int) -> Found:
    """What a process pays once: imports, and the first decision against the second."""
    importing = Watch()
    with importing:
        import vapo

        _ = vapo.Records, vapo.Family, vapo.decide
    table, _ = tables(records, 0)
    group = vapo.Family.of(policies("shared", candidates))
    taken = vapo.Records.from_arrow(table)
    took = []
    for _ in range(3):
        watch = Watch()
        with watch:
            vapo.decide(group, taken, taken.signals["confidence"])
        took.append(watch.took)
    return {"import": importing.took, "decisions": took, "records": records}


TASKS: dict[str, Callable[..., Found]] = {
    task.__name__: task for task in (deciding, loop, write_input, flow, mapie, first_call)
}


if __name__ == "__main__":
    print(json.dumps(TASKS[sys.argv[1]](**json.loads(sys.argv[2]))))
