"""What isolation costs, and that hostile input comes to its outcome in time: the rule verifiers' pool, measured.

    python -m benchmarks.verifier_pool --page docs/verifier-pool.md

Overhead: verifications a second through a pool of one and of two workers, over those of a plain loop in one thread that
calls the same verifier, in one process and on the same items. The three take turns, and the median of the ratios
counts, so that a machine which is busy with other things in between slows all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.verifiers.hostile import Attack, attacks, letter
from vapo.verifiers import Item
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.origin import library_version
from vapo.verifiers.pool import Pool
from vapo.verifiers.rules import Rule

BATCH = 256
GOAL = 0.8
DEADLINE, SLACK = 1.0, 1.0
WORKERS = (1, 2)


class Speed(NamedTuple):
    """One kind of items, through one verifier."""

    name: str
    direct: float
    """Verifications a second in a plain loop, the median."""
    ratios: dict[int, float]
    """By workers: pool over loop, over workers, the median of the rounds."""
    spread: dict[int, tuple[float, float]]
    """The least and the most of those ratios."""
    parent: float
    """Processor time of the calling process with one worker, over that of the loop: what isolation costs by itself."""


def short_answers(count: int, seed: int) -> list[Item]:
    """Answers as a small model gives them, right and wrong."""
    draw = random.Random(seed)
    items = []
    for number in range(count):
        a, b = draw.randrange(10, 1000), draw.randrange(10, 1000)
        said = draw.choice([str(a + b), str(a + b + 1), f"The answer is {a + b}.", f"{a} + {b}"])
        items.append(Item(str(number), f"{a} + {b} = ?", said, str(a + b)))
    return items


def solutions(count: int, seed: int) -> list[Item]:
    """Answers at the end of a page of reasoning in LaTeX."""
    draw = random.Random(seed)
    items = []
    for number in range(count):
        a, b, c = (draw.randrange(2, 100) for _ in range(3))
        steps = [f"We have $x_{k} = {a} \\cdot {k} + {b}$, thus $x_{k} = {a * k + b}$." for k in range(1, 9)]
        answer = draw.choice(
            [rf"\frac{{{a}}}{{{c}}}", rf"\frac{{{2 * a}}}{{{2 * c}}}", rf"\frac{{{a + 1}}}{{{c}}}"]
        )
        text = "\n".join([*steps, f"So the answer is $\\boxed{{{answer}}}$."])
        items.append(Item(str(number), "", text, rf"$\frac{{{a}}}{{{c}}}$"))
    return items


def _seconds(work: Callable[[], object]) -> tuple[float, float]:
    """On the wall, and of this process's own processor time."""
    start, busy = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start, time.process_time() - busy


def speed(name: str, rule: Rule, items: Sequence[Item], rounds: int) -> Speed:
    """Take turns between the loop and the pools, and compare within each turn."""
    rule.prepare()
    batches = [items[start : start + BATCH] for start in range(0, len(items), BATCH)]
    pools = {workers: Pool(rule, workers=workers, deadline=30.0) for workers in WORKERS}

    def loop() -> None:
        for item in items:
            rule.judge(item)

    def through(pool: Pool) -> None:
        for batch in batches:
            pool.verify(batch)

    direct: list[float] = []
    own: list[float] = []
    ratios: dict[int, list[float]] = {workers: [] for workers in WORKERS}
    try:
        for pool in pools.values():
            pool.start()
            through(pool)
        loop()
        for _ in range(rounds):
            took, busy = _seconds(loop)
            direct.append(len(items) / took)
            for workers, pool in pools.items():
                wall, processor = _seconds(lambda pool=pool: through(pool))
                ratios[workers].append(took / wall / workers)
                if workers == 1:
                    own.append(processor / busy)
    finally:
        for pool in pools.values():
            pool.close()
    return Speed(
        name,
        statistics.median(direct),
        {workers: statistics.median(found) for workers, found in ratios.items()},
        {workers: (min(found), max(found)) for workers, found in ratios.items()},
        statistics.median(own),
    )


class Survived(NamedTuple):
    """What a hostile input came to."""

    attack: Attack
    outcome: str
    seconds: float
    """From the question to the outcome, as the caller saw it, by a worker that was ready."""

    @property
    def kept(self) -> bool:
        """Whether it came to a typed outcome of its own in time."""
        return self.outcome in self.attack.allowed and self.seconds <= DEADLINE + SLACK


def survive() -> list[Survived]:
    """Every hostile input alone, one after the other."""
    found = []
    hostile = attacks(str(Path.cwd() / f"canary-{os.getpid()}"))
    for rule in dict.fromkeys(attack.rule for attack in hostile):
        with Pool(rule, workers=1, deadline=DEADLINE, memory=512 << 20) as pool:
            friend = Item("friend", "", "46", "46")
            for attack in hostile:
                if attack.rule != rule:
                    continue
                pool.verify([friend])  # a worker that is being replaced is ready after this
                start = time.perf_counter()
                outcome = pool.verify([attack.item])[0]
                found.append(Survived(attack, letter(outcome), time.perf_counter() - start))
    return found


def measure_speed(rounds: int, batches: int) -> dict[str, Any]:
    """What isolation costs, as plain data."""
    count = BATCH * batches
    cases = [
        speed("math-verify, short answers", MathVerify(), short_answers(count, 1), rounds),
        speed("math-verify, pages of LaTeX", MathVerify(), solutions(count, 2), rounds),
        speed("numeric, short answers", Numeric(), short_answers(count, 1), rounds),
    ]
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"math-verify {library_version('math-verify')}, sympy {library_version('sympy')}",
        "cores": os.cpu_count() or 1,
        "load": os.getloadavg()[0],
        "rounds": rounds,
        "speed": [case._asdict() for case in cases],
    }


def measure_hostile() -> dict[str, Any]:
    """What hostile input came to, as plain data."""
    survived = survive()
    kinds = {
        type(rule).__name__: "".join(one.outcome for one in survived if one.attack.rule == rule)
        for rule in dict.fromkeys(one.attack.rule for one in survived)
    }
    return {
        "hostile": {
            "inputs": len(survived),
            "kept": sum(one.kept for one in survived),
            "slowest": max(one.seconds for one in survived),
            "broken": [(one.attack.name, one.outcome, one.seconds) for one in survived if not one.kept],
            "kinds": kinds,
        }
    }


def page(result: dict[str, Any]) -> str:
    """The page as Markdown."""
    lines = [
        "# The pool, measured",
        "",
        "Written by `python -m benchmarks.verifier_pool --page docs/verifier-pool.md`.",
    ]
    if "speed" in result:
        lines += [
            f"Machine: {result['machine']};",
            f"{result['load']:.1f} processes wanted a core at the end of it, this one included.",
            *_busy(result),
            "",
            "## What isolation costs",
            "",
            "Verifications a second through the pool, over those of a plain loop in one thread, for each worker;",
            f"batches of {BATCH}, median of {result['rounds']} rounds (least to most). The goal for math-verify is",
            f"{GOAL}. Last: the processor time that the calling process spends on a pool of one, over the loop's.",
            "",
            "| items | loop, a second | 1 worker | 2 workers, each | caller |",
            "|---|---|---|---|---|",
        ]
        for case in result["speed"]:
            shown = [f"{case['direct']:,.0f}"]
            for workers in WORKERS:
                # Keys of JSON are text; fresh figures have numbers.
                ratios, spread = (
                    {str(key): value for key, value in case[part].items()} for part in ("ratios", "spread")
                )
                least, most = spread[str(workers)]
                shown.append(f"{ratios[str(workers)]:.2f} ({least:.2f}–{most:.2f})")
            lines.append(f"| {case['name']} | {' | '.join(shown)} | {case['parent']:.2f} |")
        lines += [
            "",
            "A verifier that takes microseconds, as the numeric one does, needs no pool, and loses by one: sending an",
            "item to another process costs as much as judging it.",
        ]
    if "hostile" in result:
        hostile = result["hostile"]
        lines += [
            "",
            "## Hostile input",
            "",
            f"{hostile['inputs']} inputs made to hang, crash, blind, fill or leave the process that judges them,",
            f"each given alone to a worker with a deadline of {DEADLINE:g} s: {hostile['kept']} came to a typed",
            f"outcome of their own within {DEADLINE + SLACK:g} s, the slowest after {hostile['slowest']:.2f} s. What",
            "they are stands in `tests/verifiers/hostile.py`.",
            "",
            "| verifier | inputs | timeout | crash | unparsable | refused | wrong | right |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for kind, letters in hostile["kinds"].items():
            counts = " | ".join(str(letters.count(mark)) for mark in "tcur-+")
            lines.append(f"| {kind} | {len(letters)} | {counts} |")
        lines += ["", *_broken(hostile["broken"])] if hostile["broken"] else []
    return "\n".join(lines) + "\n"


def _busy(result: dict[str, Any]) -> list[str]:
    if result["load"] <= 1.5 * result["cores"]:
        return []
    return [
        "So the machine was busy with other work, and two workers had no two cores to themselves: measure again."
    ]


def _broken(broken: Sequence[tuple[str, str, float]]) -> list[str]:
    return [f"- not kept: {name}: {outcome} after {seconds:.2f} s" for name, outcome, seconds in broken]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, show, and fail where the goal is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verifier_pool")
    parser.add_argument("--page", type=Path, help="where to write the page; otherwise it is shown")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=2, help="batches in a round")
    parser.add_argument("--only", choices=("speed", "hostile"), help="measure one part")
    parser.add_argument(
        "--results", type=Path, help="keep the figures here, and take the other part from here"
    )
    given = parser.parse_args(arguments)
    kept = given.results is not None and given.results.is_file()
    result: dict[str, Any] = json.loads(given.results.read_text(encoding="utf-8")) if kept else {}
    if given.only != "hostile":
        result |= measure_speed(given.rounds, given.batches)
    if given.only != "speed":
        result |= measure_hostile()
    if given.results:
        given.results.write_text(json.dumps(result, indent=1), encoding="utf-8")
    if given.page:
        given.page.write_text(page(result), encoding="utf-8")
    else:
        print(page(result))
    slow = [case["name"] for case in result.get("speed", [])[:2] if min(case["ratios"].values()) < GOAL]
    broken = result.get("hostile", {}).get("broken", [])
    if slow or broken:
        print(f"not met: {', '.join([*slow, *(name for name, *_ in broken)])}", file=sys.stderr)
    return 1 if slow or broken else 0


if __name__ == "__main__":
    sys.exit(main())
