"""Several processes decide as one: rank 0 about the whole window, the others by what it says."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

import numpy as np
import torch

from tests.train.tiny import apart, save_model

ROOT = Path(__file__).parents[2]


def together(arguments, size):
    """Run the program once as each of so many ranks, over gloo."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared |= {"WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "ACCELERATE_USE_CPU": "true"}
    ranks = [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
    command = [sys.executable, *arguments]
    running = [
        subprocess.Popen(
            command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for env in (ranks if size > 1 else [{**os.environ, "OMP_NUM_THREADS": "1"}])
    ]
    said = [process.communicate(timeout=240)[0] for process in running]
    return [process.returncode for process in running], said


@pytest.mark.slow
def test_two_processes_give_the_decisions_and_gradients_of_one(tmp_path):
    folder = save_model(tmp_path / "model")
    for size in (1, 2):
        codes, said = together(["-m", "tests.train.two", folder, str(tmp_path)], size)
        assert codes == [0] * size, "\n".join(said)
    ranks = [torch.load(tmp_path / f"{name}.pt", weights_only=False) for name in ("1-0", "2-0", "2-1")]
    assert set(ranks[0]) == {"grpo", "dr_grpo", "dapo"}
    for loss in ranks[0]:
        one, first, second = (rank[loss] for rank in ranks)
        for name in ("reasons", "coefficients", "metrics"):
            assert one[name] == first[name] == second[name]
        for name in ("windows", "questions"):
            assert one[name] == first[name]
        assert np.allclose(one["kl"], first["kl"], rtol=1e-9)
        assert len(one["gradients"]) == 2
        for other in (first, second):
            for wanted, found in zip(one["gradients"], other["gradients"], strict=True):
                assert apart(wanted, found) < 1e-9
            assert apart(one["weights"], other["weights"]) < 1e-9


FAILING = """
import torch.distributed as dist
from vapo.train.collective import decide_once
dist.init_process_group("gloo")
rank = dist.get_rank()
decided, mine = decide_once([rank] * (rank + 1), lambda rows: [row * 10 for row in rows])
print(decided, mine)
def fail(rows):
    raise ValueError("the pen is dry")
try:
    decide_once([rank], fail)
except Exception as error:
    print(type(error).__name__, error)
dist.destroy_process_group()
"""


def test_what_stops_the_deciding_rank_stops_the_others_too():
    codes, (first, second) = together(["-W", "error", "-c", FAILING], 2)
    assert codes == [0, 0], first + second
    assert "[0, 10, 10] slice(0, 1, None)" in first
    assert "[0, 10, 10] slice(1, 3, None)" in second
    assert "ValueError the pen is dry" in first
    assert "VapoError rank 1: rank 0 could not decide: ValueError: the pen is dry" in second
