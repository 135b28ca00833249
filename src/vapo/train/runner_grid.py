"""Many training runs: arms by conditions by seeds, over worker processes, each run in a folder of its own.

A run that is finished is not done again, one that was interrupted goes on, one that failed is reported and stops nobody
else. Arms that are matched to rc-vapo wait until that run of the same condition and seed is there.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from vapo._internal.workers import worker_pool
from vapo.certification.stage import Progress, silent
from vapo.errors import InputError
from vapo.train.arms import ARMS
from vapo.train.config import TrainConfig

__all__ = ["FOLLOWED", "Job", "Outcome", "plan_jobs", "run_jobs"]

FOLLOWED = "rc-vapo"
"""The arm that others are matched to."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run of a grid."""

    condition: str
    config: TrainConfig
    folder: Path

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{self.condition}/{self.config.arm}/{self.config.seed}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run."""

    job: Job
    result: Mapping[str, Any] | None
    error: str
    """Why there is no result; empty where there is one."""
    seconds: float


def plan_jobs(
    base: TrainConfig,
    out: str | Path,
    *,
    arms: Sequence[str],
    seeds: Sequence[int],
    conditions: Mapping[str, Sequence[str]] | None = None,
) -> list[Job]:
    """The runs of a grid, those that others are matched to first.

    Args:
        base: What all runs have in common.
        out: Where their folders go: OUT/CONDITION/ARM/SEED.
        arms: Which arms.
        seeds: Which seeds; one seed has the same questions and draws in every arm.
        conditions: Overrides of the common configuration, by name; one condition without any by default.

    Example:
        >>> jobs = plan_jobs(TrainConfig(), "grid", arms=["matched-random", "rc-vapo"], seeds=[13])
        >>> [job.name for job in jobs], jobs[1].config.controls.follows
        (['all/rc-vapo/13', 'all/matched-random/13'], 'grid/all/rc-vapo/13')
    """
    unknown = [arm for arm in arms if arm not in ARMS]
    if unknown:
        expected = f"arms among {', '.join(ARMS)}"
        raise InputError(expected, repr(unknown[0]))
    if not arms or not seeds:
        expected = "at least one arm and one seed"
        raise InputError(expected, f"{len(arms)} and {len(seeds)}")
    root = Path(out)
    jobs = []
    strange = [name for name in conditions or () if name in ("", ".", "..") or Path(name).name != name]
    if strange:
        expected = "conditions whose names can be those of folders"
        raise InputError(expected, repr(strange[0]))
    for condition, overrides in (conditions or {"all": ()}).items():
        common = replace(base, arm="static").with_overrides(list(overrides))
        for arm in arms:
            for seed in seeds:
                follows = str(root / condition / FOLLOWED / str(seed)) if ARMS[arm].follows else ""
                config = replace(
                    common, arm=arm, seed=seed, controls=replace(common.controls, follows=follows)
                )
                jobs.append(Job(condition, config, root / condition / arm / str(seed)))
    return sorted(jobs, key=lambda job: (ARMS[job.config.arm].follows, job.config.arm != FOLLOWED))


def run_jobs(
    jobs: Sequence[Job],
    *,
    workers: int = 1,
    progress: Progress = silent,
    tell: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Do the runs of a grid.

    Args:
        jobs: From `plan_jobs`.
        workers: Processes; one does the work in this process.
        progress: Told how many runs are done.
        tell: Told of every outcome as it comes.

    Returns:
        The outcomes in the order of the jobs.
    """
    if workers < 1:
        expected = "at least one worker"
        raise InputError(expected, repr(workers))
    done: dict[str, Outcome] = {}
    for outcome in _outcomes(jobs, workers):
        done[outcome.job.name] = outcome
        progress("runs", len(done), len(jobs))
        tell(outcome)
    return [done[job.name] for job in jobs]


def _outcomes(jobs: Sequence[Job], workers: int) -> Iterator[Outcome]:
    first = [job for job in jobs if not job.config.plan.follows]
    later = [job for job in jobs if job.config.plan.follows]
    if workers == 1:
        yield from (_outcome(job, *_work(job.config.as_dict(), str(job.folder))) for job in (*first, *later))
        return
    for wave in filter(None, (first, later)):
        with worker_pool(workers) as pool:
            pending: dict[Future[tuple[str, str, float]], Job] = {
                pool.submit(_work, job.config.as_dict(), str(job.folder)): job for job in wave
            }
            for future in as_completed(pending):
                try:
                    said = future.result()
                except BrokenProcessPool as error:
                    # A worker was ended from outside, and its pool with it; the same command goes on later.
                    said = "", f"{type(error).__name__}: {error}", 0.0
                yield _outcome(pending[future], *said)


def _work(config: dict[str, Any], folder: str) -> tuple[str, str, float]:
    """One run, in whatever process; result and error as text, so that anything can be sent back."""
    from vapo.train.runner import train

    started = perf_counter()
    try:
        result = json.dumps(train(TrainConfig.from_dict(config), folder))
    except Exception as error:  # one run's failure is not the grid's
        last = traceback.extract_tb(error.__traceback__)[-1]
        return "", f"{type(error).__name__}: {error} ({Path(last.filename).name}:{last.lineno})", 0.0
    return result, "", perf_counter() - started


def _outcome(job: Job, result: str, error: str, seconds: float) -> Outcome:
    return Outcome(job, json.loads(result) if result else None, error, seconds)
