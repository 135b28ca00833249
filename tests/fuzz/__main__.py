"""Fuzz the readers of files from outside: `python -m tests.fuzz --inputs 10000 [--target NAME]`.

Inputs come from a keyed generator and are the same each time. With `--atheris` they come from a coverage-guided fuzzer
(the `fuzz` extra) instead, each target in a process of its own; what it finds worth keeping stays in the corpus.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

GUIDED = ("vapo", "check_run", "tomllib", "yaml")
"""The packages whose coverage guides."""
_TOLD = "outcome: "
OWN_WAY = 0.5
"""Share of the inputs that come from damage that knows formats; the fuzzer makes the rest byte by byte."""


def atheris(name: str, inputs: int, corpus: Path) -> None:
    """Feed a target in this process, guided by what it covers; the process ends with it."""
    import atheris as engine

    # What is imported in here reports where it goes, so nothing of it may have been imported before.
    with engine.instrument_imports(include=list(GUIDED)):
        from tests.fuzz import targets as fuzzed
        from tests.fuzz.drive import MEMORY, SECONDS, Outcome, one, taken
        from tests.fuzz.mutate import MOST, generator, mutate

        target = fuzzed.targets()[name]
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)

    outcome, begun = Outcome(name), time.perf_counter()

    def feed(data: bytes) -> None:
        started = time.perf_counter()
        read, wrong = one(target, data)
        outcome.add(time.perf_counter() - started, read=read, wrong=bool(wrong))
        if wrong or outcome.inputs == inputs:
            # The fuzzer ends the process and asks nobody.
            outcome.close(time.perf_counter() - begun)
            print(f"{_TOLD}{outcome}", file=sys.stderr, flush=True)
            fuzzed.clean()
        if wrong:
            raise AssertionError(wrong)

    def change(data: bytes, most: int, seed: int) -> bytes:
        chance = generator(name, seed)
        if chance.random() >= OWN_WAY:
            return bytes(engine.Mutate(data, most))
        return mutate(chance, (data, data, *target.seeds))[:most]

    most = (taken() + MEMORY) >> 20
    limits = [f"-runs={inputs}", f"-timeout={SECONDS:g}", f"-rss_limit_mb={most}", f"-max_len={MOST}"]
    files = [f"-artifact_prefix={corpus}-", "-len_control=0", str(corpus)]
    engine.Setup([sys.argv[0], *limits, *files], feed, custom_mutator=change)
    engine.Fuzz()


def guided(names: Sequence[tuple[str, int]], corpus: Path) -> int:
    """Feed targets one after the other in processes of their own; says how many ended badly."""
    found = 0
    for name, inputs in names:
        arguments = ["--atheris", "--target", name, "--inputs", str(inputs), "--corpus", str(corpus)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.fuzz", *arguments, "--full"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
        said = done.stderr.decode("utf-8", "replace")
        told = re.findall(rf"{_TOLD}(.*)", said)
        covered = re.findall(r"cov: (\d+)", said)
        places = f", {covered[-1]} places covered" if covered else ""
        print(f"{told[-1] if told else f'{name}: ended early'}{places}, exit {done.returncode}", flush=True)
        if done.returncode:
            found += 1
            print(said[-3000:], flush=True)
    return found


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument(
        "--target", action="append", help="a reader (may be repeated); all of them by default"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="slow targets get as many inputs as the others")
    parser.add_argument("--atheris", action="store_true", help="let coverage guide")
    parser.add_argument(
        "--corpus", type=Path, default=Path("fuzz-corpus"), help="where --atheris keeps inputs"
    )
    given = parser.parse_args()
    if given.atheris and given.full and len(given.target or ()) == 1:
        atheris(given.target[0], given.inputs, given.corpus / given.target[0])
        return 0
    from tests.fuzz import targets as fuzzed
    from tests.fuzz.drive import drive

    known = fuzzed.targets()
    names = given.target or list(known)
    if set(names) - set(known):
        parser.error(f"--target is one of {', '.join(known)}")
    shared = [
        (name, given.inputs if given.full else max(1, round(given.inputs * known[name].share)))
        for name in names
    ]
    try:
        if given.atheris:
            return 1 if guided(shared, given.corpus) else 0
        found = 0
        for name, inputs in shared:
            outcome = drive(name, known[name], inputs, seed=given.seed)
            print(outcome, flush=True)
            found += len(outcome.findings)
        return 1 if found else 0
    finally:
        fuzzed.clean()


if __name__ == "__main__":
    sys.exit(main())
