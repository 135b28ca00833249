"""What durability and evidence cost, beside what cannot be had for less: `sha256sum`, and an append with one flush.

    python -m benchmarks.ledger --page docs/ledger-cost.md

Everything is a ratio within one run: the two sides take turns, and the median of the rounds counts, so that a machine
which is busy with other things slows both alike. The training update is that of the lean loop on the embedded model.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from vapo.gate import admit
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.ledger.segments import encode

GOAL = 0.01
"""Share of an update that its ledger should stay below."""
PIECE = 8 << 20
LINES = 20_000
MEASURED = (
    *((Ledger, name) for name in ("commit", "put", "put_table", "put_json", "table", "json", "sweep")),
    # What the gate prepares for its ledger outside of it: observations as segments, and trees over rows.
    *((admit, name) for name in ("encode_records", "row_tree")),
)

Found = dict[str, Any]


def clock(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def sha256sum(files: list[Path]) -> None:
    """Hash files as the system's own tool does."""
    subprocess.run(["sha256sum", *map(str, files)], stdout=subprocess.DEVNULL, check=True)


def hashing(folder: Path, rounds: int, size: int) -> Found:
    """Storing and verifying segments, and reading a log, against `sha256sum` on the same bytes."""
    pieces = [os.urandom(PIECE) for _ in range(max(1, size // PIECE))]
    total = sum(map(len, pieces))
    found: Found = {"bytes": total, "append": [], "copy": [], "verify": [], "log": []}
    for number in range(rounds):
        run = folder / f"run{number}"
        with Ledger.write(run) as ledger:
            ledger.commit(EventKind.PROTOCOL, {"n": number})
            refs: list[dict[str, str]] = []

            def store(pieces: list[bytes] = pieces, ledger: Ledger = ledger, refs: Any = refs) -> None:
                refs += [ledger.put(encode(piece, "parquet")) for piece in pieces]

            stored = clock(store)
            ledger.commit(EventKind.FAMILY, {"refs": refs})
        copied = clock(lambda: _copied(pieces, folder / "copy"))
        files = sorted((run / "segments").iterdir())
        # All of it is in the cache by now, for both.
        plain = clock(partial(sha256sum, files))
        found["append"].append(stored / (plain + copied))
        found["copy"].append(total / copied)
        found["plain"] = min(found.get("plain", plain), plain)
        found["verify"].append(clock(partial(verify_run, run)) / plain)
        shutil.rmtree(run)
        shutil.rmtree(folder / "copy")
    found["log"] = _log(folder, rounds)
    return found


def _copied(pieces: list[bytes], folder: Path) -> None:
    """Write the bytes and flush them, each file once, and do nothing else."""
    folder.mkdir()
    for number, piece in enumerate(pieces):
        with (folder / str(number)).open("wb") as stream:
            stream.write(piece)
            stream.flush()
            os.fsync(stream.fileno())


def _log(folder: Path, rounds: int) -> Found:
    """Verifying a long log of small events."""
    from vapo.ledger.log import Event, mark

    events = [Event(0, "0" * 64, EventKind.PROTOCOL, {"n": 0})]
    for number in range(1, LINES):
        kind = EventKind.FAMILY if number == 1 else EventKind.ACTIONS
        body = {"batch": number, "calls": 3, "admitted": 120, "codes": f"{number:064x}", "note": "x" * 300}
        events.append(Event(number, events[-1].digest, kind, body))
    run = folder / "log"
    run.mkdir()
    (run / "log.jsonl").write_bytes(b"".join(event.line + b"\n" for event in events))
    (run / "checkpoint.json").write_bytes(mark(events))
    size = (run / "log.jsonl").stat().st_size
    took = [clock(lambda: verify_run(run)) for _ in range(rounds)]
    plain = [clock(lambda: sha256sum([run / "log.jsonl"])) for _ in range(rounds)]
    best = statistics.median(took)
    return {
        "bytes": size,
        "events": LINES,
        "a second": LINES / best,
        "ratio": best / statistics.median(plain),
    }


def committing(folder: Path, rounds: int, commits: int) -> Found:
    """A durable commit against an append of the same bytes that is flushed once."""
    ratios, mine, bare = [], [], []
    for number in range(rounds):
        run, plain = folder / f"commits{number}", folder / f"plain{number}"
        with Ledger.write(run) as ledger, plain.open("ab", buffering=0) as stream:
            ledger.commit(EventKind.PROTOCOL, {"n": 0})
            ledger.commit(EventKind.FAMILY, {"n": 1})
            for count in range(commits):
                # One after the other, so that a slow moment of the medium meets both.
                mine.append(
                    clock(lambda n=count: ledger.commit(EventKind.ACTIONS, {"n": n, "note": "x" * 300}))
                )
                line = ledger.events[-1].line + b"\n"
                bare.append(clock(lambda data=line: (stream.write(data), os.fsync(stream.fileno()))))
        ratios.append(statistics.median(mine[-commits:]) / statistics.median(bare[-commits:]))
    return {"ratio": ratios, "commit": statistics.median(mine), "bare": statistics.median(bare)}


@contextmanager
def metered() -> Iterator[list[float]]:
    """Add up the time that a ledger takes, what one of its parts spends in another counted once."""
    spent, depth = [0.0], [0]
    before = [(owner, name, getattr(owner, name)) for owner, name in MEASURED]

    def meter(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            depth[0] += 1
            begun = time.perf_counter()
            try:
                return method(*given, **named)
            finally:
                depth[0] -= 1
                if depth[0] == 0:
                    spent[0] += time.perf_counter() - begun

        return wrapped

    try:
        for owner, name, method in before:
            setattr(owner, name, meter(method))
        yield spent
    finally:
        for owner, name, method in before:
            setattr(owner, name, method)


def updating(updates: int) -> Found:
    """What the ledger takes of a training update behind the gate, decided one by one and 25 at once."""
    import torch

    from benchmarks.learner import COMPLETIONS, QUESTIONS, ROWS, SKIPPED, Bench, certified
    from vapo.train.lean import LeanEngine

    torch.set_num_threads(1)
    bench = Bench(max(updates, 25))
    bench.updates = updates
    with certified(bench) as gate, metered() as spent:
        shares, whole, inside = [], [], []
        engine, hook = LeanEngine(bench.model(), bench.settings(reference=True)), gate()
        for update in range(updates):
            questions = bench.prompts[QUESTIONS * update :][:QUESTIONS]
            spent[0], begun = 0.0, time.perf_counter()
            batch = engine.sample([text for text in questions for _ in range(COMPLETIONS)], seed=update)
            reward = bench.judged(batch.texts, update)
            kl = engine.reference_kl(batch)
            admission = hook.admit(bench.window([(update, batch, reward, kl)]))
            engine.update(batch, admission)
            whole.append(time.perf_counter() - begun)
            inside.append(spent[0])
            shares.append(spent[0] / whole[-1])
        hook = gate()
        spent[0] = 0.0
        bench.together(hook)
        together = spent[0] / 25
    return {
        "rows": ROWS,
        "update": statistics.median(whole[SKIPPED:]),
        "inside": statistics.median(inside[SKIPPED:]),
        "share": statistics.median(shares[SKIPPED:]),
        "together": together,
        "shared": together / statistics.median(whole[SKIPPED:]),
    }


def page(found: Found) -> str:
    """The figures as a page."""
    hashed, log, commit, update = found["hashing"], found["hashing"]["log"], found["commit"], found["update"]
    megabytes = hashed["bytes"] / 1e6

    def middle(values: list[float]) -> str:
        return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    lines = [
        "# What the ledger costs",
        "",
        f"Written by `python -m benchmarks.ledger --page docs/ledger-cost.md` on {os.cpu_count()} cores. Ratios are of "
        "two things that take",
        "turns in one run; the median of the rounds, and in brackets the least and the most. What the ledger promises "
        "for it is on",
        "[its page](ledger.md).",
        *_busy(found["load"]),
        "",
        "| what | beside | ratio |",
        "|---|---|---|",
        f"| verifying a run of {megabytes:.0f} MB in segments | `sha256sum` of the same files "
        f"({megabytes / hashed['plain']:.0f} MB/s) | {middle(hashed['verify'])} |",
        f"| storing these segments durably | writing and flushing the same bytes once, and `sha256sum` | "
        f"{middle(hashed['append'])} |",
        f"| verifying a log of {log['events']:,} events, {log['bytes'] / 1e6:.1f} MB ({log['a second']:,.0f} events a "
        f"second) | `sha256sum` of the log | {log['ratio']:.1f} |",
        f"| a durable commit ({1e3 * commit['commit']:.2f} ms) | an append of the same line with one flush "
        f"({1e3 * commit['bare']:.2f} ms) | {middle(commit['ratio'])} |",
        "",
        "A commit flushes the line and the mark beside the log, which replaces the one before: two flushes and a new "
        "file for the one",
        "flush of a bare append, and what is had for them is that a loss of the last events shows. A log costs more "
        "than its hashes, since",
        "every line is read as strict JSON, written again in canonical form and compared.",
    ]
    if update is not None:
        lines += [
            "",
            "## In a training update",
            "",
            f"An update of {update['rows']} completions on the embedded model takes {1e3 * update['update']:.1f} ms, "
            "which is little.",
            f"Goal: under {GOAL:.0%} of an update, with its windows decided as a regime decides them. On this smallest "
            f"of updates it is {'met' if update['shared'] < GOAL else 'not met'};",
            f"it is met by every update that takes more than {update['together'] / GOAL:.2f} s. What is counted is all "
            "time inside the ledger: encoding,",
            "hashing, writing and flushing.",
            "",
            "| windows are decided | inside the ledger, an update | share of this update | under 1 % of an update "
            "that takes more than |",
            "|---|---|---|---|",
            f"| one by one | {1e3 * update['inside']:.2f} ms | {100 * update['share']:.2f} % | "
            f"{update['inside'] / GOAL:.2f} s |",
            f"| 25 at once, as a regime does | {1e3 * update['together']:.2f} ms | {100 * update['shared']:.2f} % | "
            f"{update['together'] / GOAL:.2f} s |",
        ]
    return "\n".join(lines) + "\n"


def _busy(load: float) -> list[str]:
    if load <= 0.5 * (os.cpu_count() or 1):
        return []
    return [
        f"The machine was busy with other work (load {load:.1f}), which makes every time longer: measure again."
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure, and show or write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ledger")
    parser.add_argument("--page", type=Path, help="where to write the page; otherwise it is shown")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--commits", type=int, default=200)
    parser.add_argument("--updates", type=int, default=30, help="0 leaves the learner out")
    given = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=os.environ.get("VAPO_BENCH_FOLDER"), prefix="vapo-bench-") as folder:
        found: Found = {
            "load": load,
            "hashing": hashing(Path(folder), given.rounds, given.megabytes << 20),
            "commit": committing(Path(folder), given.rounds, given.commits),
            "update": updating(given.updates) if given.updates else None,
        }
    told = page(found)
    if given.page:
        given.page.write_text(told, encoding="utf-8")
    else:
        print(told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
