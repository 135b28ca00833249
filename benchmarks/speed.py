"""How fast, and in how much memory: deciding, the whole flow, and peers beside both, measured in one go.

    python -m benchmarks.speed --page docs/speed.md

Every figure comes from a process of its own. A machine that does other work at the same time makes times longer, never
shorter, so the best of a few repetitions stands for each.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed_tasks import BUDGET, WINDOW

Found = dict[str, Any]
_ROOT = Path(__file__).resolve().parents[1]


class Size(NamedTuple):
    """How much to measure."""

    records: int
    scaled: tuple[int, ...]
    repeat: int
    flows: int
    helps: int


FULL = Size(1_000_000, (100_000, 1_000_000, 10_000_000), 5, 3, 10)
QUICK = Size(100_000, (20_000, 100_000), 2, 1, 3)
CANDIDATES = 200
FAMILIES = (10, 20, 50, 100, 200, 400)


def run(task: str, **arguments: Any) -> Found:
    """Do one task in a fresh process."""
    print(f"{task} {arguments}", file=sys.stderr)
    command = [sys.executable, "-m", "benchmarks.speed_tasks", task, json.dumps(arguments)]
    done = subprocess.run(
        command, cwd=_ROOT, env=_environment(), stdout=subprocess.PIPE, check=True, text=True
    )
    return dict(json.loads(done.stdout))


def _environment() -> Mapping[str, str]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**os.environ, **single}


def repeated(times: int, task: str, **arguments: Any) -> Found:
    """Do a task several times, each in a fresh process; the fastest one counts."""
    found = [run(task, **arguments) for _ in range(times)]
    best = min(found, key=lambda one: _wall(one))
    return {**best, "runs": [part for one in found for part in one["runs"]]}


def _wall(found: Found) -> float:
    return float(min(wall for wall, _ in found["runs"]))


def _middle(found: Found) -> float:
    return float(statistics.median(wall for wall, _ in found["runs"]))


def _cpu(found: Found) -> float:
    return float(min(cpu for _, cpu in found["runs"]))


def _extra(found: Found) -> int:
    return int(found["peak"]) - int(found["baseline"])


def measure(size: Size) -> Found:
    """Everything on the page."""
    whole = {"records": size.records, "candidates": CANDIDATES}
    found: Found = {"cores": os.cpu_count(), "size": size._asdict()}
    found["shared"] = run("deciding", **whole, repeat=size.repeat)
    found["distinct"] = run("deciding", **whole, family="distinct", repeat=size.repeat)
    found["memory"] = run("deciding", **whole, whole=True)
    found["loop_appeals"] = run("loop", **whole, appeals=True, repeat=size.repeat)
    found["scaled"] = {
        records: run(
            "deciding",
            records=records,
            candidates=CANDIDATES,
            repeat=size.repeat if records <= 1_000_000 else 1,
        )
        for records in size.scaled
    }
    found["families"] = {
        candidates: {
            family: run(
                "deciding",
                records=size.records // 4,
                candidates=candidates,
                family=family,
                repeat=size.repeat,
            )
            for family in ("shared", "distinct")
        }
        for candidates in FAMILIES
    }
    found["small"] = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("VAPO_BENCH_FOLDER"), prefix="vapo-bench-") as folder:
        run("write_input", **whole, folder=folder)
        found["flow"] = repeated(size.flows, "flow", folder=folder)
        tenth = {**whole, "records": size.records // 10}
        run("write_input", **tenth, folder=folder)
        found["small"]["flow"] = repeated(size.flows, "flow", folder=folder)
    found["loop_plain"] = run("loop", **whole, family="distinct", appeals=False, repeat=size.repeat)
    if importlib.util.find_spec("mapie") is not None:
        found["mapie"] = repeated(size.flows, "mapie", **whole)
        found["small"]["mapie"] = repeated(size.flows, "mapie", **tenth)
    found["first"] = run("first_call", records=min(65_536, size.records), candidates=CANDIDATES)
    found["help"] = [_help_seconds() for _ in range(size.helps)]
    return found


def _help_seconds() -> float:
    script = Path(sys.executable).with_name("vapo")
    command = (
        [str(script)] if script.exists() else [sys.executable, "-c", "from vapo.cli import main; main()"]
    )
    begun = time.perf_counter()
    subprocess.run([*command, "--help"], cwd=_ROOT, env=_environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def exponent(points: Mapping[int, float]) -> float:
    """Slope of log time against log size (least squares): 1 is linear."""
    return statistics.linear_regression(
        [math.log(size) for size in points], [math.log(seconds) for seconds in points.values()]
    ).slope


def goals(found: Found) -> list[tuple[str, bool]]:
    """What is claimed, and whether it was met."""
    records = found["size"]["records"]
    rate = records * CANDIDATES / _cpu(found["shared"])
    bytes_each = _extra(found["memory"]) / records
    by_records = exponent({int(size): _steady(one) for size, one in found["scaled"].items()})
    families = found["families"]
    by_candidates = exponent({int(size): _deciding(one["shared"]) for size, one in families.items()})
    middle = statistics.median(found["help"])
    met = [
        (
            f"{rate:.2g} candidate decisions a second of one core, decided, counted and certified (wanted: 5e8)",
            rate >= 5e8,
        ),
        (f"{bytes_each:.0f} bytes a record beyond the interpreter (wanted: under 300)", bytes_each < 300),
        (
            f"time to decide and count grows with records to the power {by_records:.2f} (wanted: at most 1.1)",
            by_records <= 1.1,
        ),
        (
            f"and with candidates that share thresholds to the power {by_candidates:.2f} (wanted: under 1)",
            by_candidates < 1,
        ),
        (
            f"`vapo --help` answers in {middle:.2f} s, median of {len(found['help'])} (wanted: 0.5)",
            middle < 0.5,
        ),
    ]
    if "mapie" in found:
        best, middle = (reduce(found["mapie"]) / reduce(found["flow"]) for reduce in (_wall, _middle))
        said = f"MAPIE's calibration alone takes {best:.2f} times as long as the whole flow (medians: {middle:.2f})"
        met.insert(4, (f"{said} (wanted: more than 1)", best > 1))
    return met


def _steady(one: Found) -> float:
    return float(one["parts"]["decide"][1] + one["parts"]["count"][1])


def _deciding(one: Found) -> float:
    return float(one["parts"]["decide"][1])


def page(found: Found) -> tuple[str, bool]:
    """The page, and whether every goal on it was met."""
    records, met = found["size"]["records"], goals(found)
    lines = [
        "# How fast is it?",
        "",
        f"Measured on {found['cores']} cores by `python -m benchmarks.speed --page docs/speed.md`. Every figure",
        "comes from a process of its own and is the best of a few repetitions: other work on the machine makes a",
        "time longer, never shorter. Times are clock time unless they say processor time, which a busy machine",
        "disturbs less.",
        "",
        f"Records have a score in [0, 1], windows of {WINDOW} and {BUDGET} secondary calls for each; every record is a",
        "group. All candidates appeal, and half of them want more calls than there are. The `shared` candidates have",
        "20 thresholds between them and differ in how sure the secondary has to be; each of the `distinct` ones has",
        "two thresholds of its own.",
        "",
        "## What is claimed",
        "",
        *(
            [f"- {'yes' if fine else 'NO'}: {said}" for said, fine in met]
            if records >= FULL.records
            else ["Nothing: this is the small size."]
        ),
        "",
        *_deciding_table(found, records),
        *_scaling_tables(found),
        *_flow_table(found, records),
        *_first_table(found),
    ]
    return "\n".join(lines), all(fine for _, fine in met)


def _row(*cells: object) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _deciding_table(found: Found, records: int) -> list[str]:
    loop = found["loop_appeals"]
    lines = [
        f"## Deciding: {records:,} records, {CANDIDATES} candidates, appeals and budgets",
        "",
        "| way | decide | count | certify | all | processor | decisions a processor second | bytes a record |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, one in (("shared", found["shared"]), ("distinct", found["distinct"])):
        parts = [f"{one['parts'][part][0]:.3f} s" for part in ("decide", "count", "certify")]
        rate = f"{records * CANDIDATES / _cpu(one):.2g}"
        lines.append(
            _row(
                name,
                *parts,
                f"{_wall(one):.3f} s",
                f"{_cpu(one):.3f} s",
                rate,
                f"{_extra(one) / records:.0f}",
            )
        )
    rate = f"{records * CANDIDATES / _cpu(loop):.2g}"
    lines.append(
        _row(
            "numpy loop (`shared`)", "", "", "", f"{_wall(loop):.3f} s", f"{_cpu(loop):.3f} s", rate,
            f"{_extra(loop) / records:.0f}",
        )
    )  # fmt: skip
    refused = found["shared"]["refused_by_budget"] / records / CANDIDATES
    ratio = _cpu(loop) / _steady(found["shared"])
    each, imports = _extra(found["memory"]) / records, found["memory"]["baseline"] / 1e6
    lines += [
        "",
        "Here records are made chunk by chunk, which is not timed. Held in memory all at once, as an Arrow table and",
        f"as records, they and the work on them take {each:.0f} bytes a record at the peak, beyond {imports:.0f} MB",
        "for interpreter and imports. Certifying evaluates all three claims for every candidate, in a time that does",
        f"not depend on the number of records. Budgets refuse {refused:.1%} of all decisions. The numpy loop goes",
        "through the candidates with masks and a running count of calls; it counts, keeps no trace, and takes",
        f"{ratio:.1f} times the processor time of deciding and counting here.",
        "",
    ]
    return lines


def _scaling_tables(found: Found) -> list[str]:
    lines = [
        "## Scaling",
        "",
        "| records | decide and count (processor) | ns a candidate decision | peak beyond imports |",
        "|---:|---:|---:|---:|",
    ]
    for size, one in found["scaled"].items():
        each = _steady(one) / int(size) / CANDIDATES * 1e9
        lines.append(
            _row(f"{int(size):,}", f"{_steady(one):.3f} s", f"{each:.2f}", f"{_extra(one) / 1e6:.0f} MB")
        )
    lines += [
        "",
        f"{found['size']['records'] // 4:,} records, processor time to decide:",
        "",
        "| candidates | shared | ns each | distinct | ns each | distinct / shared |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    records = found["size"]["records"] // 4
    for size, both in found["families"].items():
        cells: list[str] = []
        for family in ("shared", "distinct"):
            seconds = _deciding(both[family])
            cells += [f"{seconds * 1e3:.1f} ms", f"{seconds / records / int(size) * 1e9:.2f}"]
        ratio = _deciding(both["distinct"]) / _deciding(both["shared"])
        lines.append(_row(size, *cells, f"{ratio:.2f}"))
    powers = [
        exponent({int(size): _deciding(both[family]) for size, both in found["families"].items()})
        for family in ("shared", "distinct")
    ]
    lines += [
        "",
        f"Powers of the number of candidates: shared {powers[0]:.2f}, distinct {powers[1]:.2f}.",
        "",
    ]
    return lines


def _flow_table(found: Found, records: int) -> list[str]:
    flow = found["flow"]
    lines = [
        f"## The whole flow beside peers: {records:,} records, {CANDIDATES} distinct candidates",
        "",
        "| what | does | seconds | processor | times the flow | memory beyond imports |",
        "|---|---|---:|---:|---:|---:|",
    ]
    rows = [
        ("`vapo.certify`", "read, decide with appeals and budgets, freeze, join, certify; all durable", flow),
        ("MAPIE", "`BinaryClassificationController.calibrate`; no appeals, nothing kept", found.get("mapie")),
        (
            "numpy loop",
            "count at the same thresholds; no appeals, nothing kept or proved",
            found["loop_plain"],
        ),
    ]
    for name, does, one in rows:
        if one is None:
            lines.append(_row(name, "not installed here", "", "", "", ""))
            continue
        ratio = f"{_wall(one) / _wall(flow):.2f}"
        lines.append(
            _row(name, does, f"{_wall(one):.2f}", f"{_cpu(one):.2f}", ratio, f"{_extra(one) / 1e6:,.0f} MB")
        )
    small = found["small"]
    spread = ", ".join(f"{wall:.1f}" for wall, _ in flow["runs"])
    others = (
        ", ".join(f"{wall:.1f}" for wall, _ in found["mapie"]["runs"])
        if "mapie" in found
        else "not installed"
    )
    lines += [
        "",
        f"Repetitions in seconds: the flow {spread}; MAPIE {others}. The flow flushed {flow['flushes']} times",
        f"({flow['flushing']:.2f} s of its time, on this disk) and left {flow['bytes'] / 1e6:.0f} MB.",
        "",
    ]
    if "mapie" in small:
        times = f"{_wall(small['flow']):.2f} s and MAPIE {_wall(small['mapie']):.2f} s"
        lines += [
            f"With {records // 10:,} records the flow takes {times}: what it pays once weighs more there.",
            "",
        ]
    return lines


def _first_table(found: Found) -> list[str]:
    first = found["first"]
    decisions = ", ".join(f"{wall * 1e3:.0f}" for wall, _ in first["decisions"])
    helps = [f"{seconds:.2f}" for seconds in sorted(found["help"])]
    return [
        "## The first call",
        "",
        f"Importing what deciding needs takes {first['import'][0]:.2f} s (`import vapo` alone takes next to nothing). "
        "There is",
        f"nothing to compile: the first three decisions on {first['records']:,} records take {decisions} ms.",
        f"`vapo --help` takes {helps[0]} to {helps[-1]} s, median {statistics.median(found['help']):.2f} s.",
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page; fail when a claim on it is not met."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.speed", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--page", type=Path, help="where to write the page (default: standard output)")
    parser.add_argument(
        "--quick", action="store_true", help="a small size, to see that it works; nothing is judged"
    )
    parser.add_argument("--keep", type=Path, help="also write every number, as JSON")
    parser.add_argument("--from", dest="kept", type=Path, help="make the page from such a JSON file")
    given = parser.parse_args(arguments)
    if given.kept is None:
        found = json.loads(json.dumps(measure(QUICK if given.quick else FULL)))
    else:
        found = json.loads(given.kept.read_text(encoding="utf-8"))
    if given.keep is not None:
        given.keep.write_text(json.dumps(found), encoding="utf-8")
    text, met = page(found)
    if given.page is None:
        print(text)
    else:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(text, encoding="utf-8")
    return 0 if met or given.quick else 1


if __name__ == "__main__":
    sys.exit(main())
