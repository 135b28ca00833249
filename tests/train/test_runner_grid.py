"""A grid is the same runs however many processes do them, and whatever becomes of one of the processes."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from tests.train.small import RECIPE, SMALL
from vapo.train import runner_grid
from vapo.train.config import TrainConfig
from vapo.train.runner_grid import plan_jobs, run_jobs

RECORD = ("config.json", "ledger.jsonl", "metrics.jsonl", "result.json", "test.jsonl")


def base():
    shape = {"width": RECIPE.shape.width, "layers": RECIPE.shape.layers, "heads": RECIPE.shape.heads}
    model = {"accuracy": RECIPE.accuracy, "rate": RECIPE.rate, "shape": shape}
    return TrainConfig.from_dict({**SMALL, "updates": 2, "model": {"name": "embedded", "options": model}})


@pytest.mark.slow
def test_two_workers_leave_the_bytes_of_one(tmp_path, monkeypatch):
    monkeypatch.setenv("VAPO_CACHE", str(tmp_path / "cache"))
    grids = {}
    for workers in (1, 2):
        jobs = plan_jobs(base(), tmp_path / str(workers), arms=["matched-random", "rc-vapo"], seeds=[13])
        outcomes = run_jobs(jobs, workers=workers)
        assert [outcome.error for outcome in outcomes] == ["", ""]
        assert [outcome.job.name for outcome in outcomes] == ["all/rc-vapo/13", "all/matched-random/13"]
        grids[workers] = [(job.folder / name).read_bytes() for job in jobs for name in RECORD[1:]]
    assert grids[1] == grids[2]


def test_a_worker_that_is_killed_fails_its_runs_and_ends_no_grid(tmp_path, monkeypatch):
    def submit(work, config, folder):
        future = Future()
        if config["seed"] == 13:
            future.set_exception(BrokenProcessPool("killed"))
        else:
            future.set_result(("{}", "", 1.0))
        return future

    @contextmanager
    def pool(workers):
        yield SimpleNamespace(submit=submit)

    monkeypatch.setattr(runner_grid, "worker_pool", pool)
    jobs = plan_jobs(base(), tmp_path, arms=["static", "matched-random"], seeds=[13, 17])
    errors = {outcome.job.name: outcome.error for outcome in run_jobs(jobs, workers=2)}
    killed = "BrokenProcessPool: killed"
    assert errors == {
        "all/static/13": killed,
        "all/static/17": "",
        "all/matched-random/13": killed,
        "all/matched-random/17": "",
    }
