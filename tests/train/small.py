"""A training run in a second: sums of two small numbers, and a small model that knows some of them."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace

from vapo.tasks import open_task
from vapo.train.config import TrainConfig
from vapo.train.lean import LeanEngine
from vapo.train.models.embedded import Shape
from vapo.train.models.pretrain import Recipe, pretrained

TASK = {
    "left": [10, 59],
    "right": [10, 59],
    "shares": {"pretrain": 0.4, "train": 0.15, "calibration": 0.41, "held-out": 0.02, "test": 0.02},
}
RECIPE = Recipe(accuracy=0.3, shape=Shape(width=96, layers=2, heads=4), rate=3e-3)

SMALL = {
    "updates": 4,
    "task": {"name": "arithmetic", "options": TASK},
    "regime": {"updates": 2},
    "rollouts": {"questions": 4, "completions": 4},
    "primary": {"kind": "symmetric", "rate": 0.1},
    "secondary": {"budget": 3},
    "learner": {"learning_rate": 1e-4},
    # Generous enough to be certified on a handful of records: what is tested is the loop, not the claim.
    "certificate": {"rho": 0.6, "c_min": 0.02, "b_max": 0.5, "delta": 0.3, "score": "signal:consistency"},
    "calibration": {"windows": 5, "design_windows": 2},
    "evaluation": {"every": 2, "samples": 2, "k": [1, 2]},
    "checkpoint_every": 1,
}


@functools.cache
def _pretrained(folder):
    return pretrained(open_task("arithmetic", **TASK), RECIPE, cache=folder)


def opener(folder):
    """Opens the engine of a run on a copy of the one small model."""

    def open_with(config, task):
        model = copy.copy(_pretrained(folder))
        model.module = copy.deepcopy(model.module)
        return LeanEngine(model, replace(config.learner, max_tokens=task.max_tokens))

    return open_with


def small(**changes):
    """The small configuration, some of its tables changed."""
    data = {name: dict(value) if isinstance(value, dict) else value for name, value in SMALL.items()}
    for name, value in changes.items():
        if isinstance(value, dict) and isinstance(data.get(name), dict):
            data[name] = data[name] | value
        else:
            data[name] = value
    return TrainConfig.from_dict(data)
