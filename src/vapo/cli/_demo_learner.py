"""The learner's part of `vapo demo`: a plain and a certified arm on a verifier with a fault of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vapo.cli import _shared as shared
from vapo.cli._learner_pictures import curve, draw_curves

if TYPE_CHECKING:
    from vapo.train.config import TrainConfig

__all__ = ["ARMS", "FOLDER", "NEEDS", "PICTURE", "learners"]

FOLDER, PICTURE = "learners", "learners.png"
ARMS = ("static", "rc-vapo", "oracle")
_CALLED = {"static": "apply all", "rc-vapo": "certified gate", "oracle": "clean labels"}

NEEDS = {"torch": "train", "math_verify": "verifiers"}
"""What it takes, and the extra that brings it."""

SETTINGS: dict[str, Any] = {
    "updates": 50,
    "task": {
        "name": "arithmetic",
        "options": {
            "shares": {"pretrain": 0.2, "train": 0.2, "calibration": 0.45, "held-out": 0.05, "test": 0.1}
        },
    },
    # One lesson in three copies the question: a habit that the primary verifier rewards.
    "model": {"name": "embedded", "options": {"accuracy": 0.5, "copies": 0.3}},
    "learner": {"learning_rate": 1e-4},
    "regime": {"updates": 25},
    "rollouts": {"questions": 8, "completions": 8, "rows_at_once": 512, "max_tokens": 6},
    "primary": {"verifier": {"name": "math-verify", "options": {"workers": 1}}},
    "secondary": {"verifier": {"name": "numeric"}, "budget": 12},
    "certificate": {"rho": 0.04, "score": "weighted:confidence=1,consistency=1"},
    "calibration": {"windows": 56, "design_windows": 8},
    "evaluation": {"every": 5, "held_out": 0, "samples": 0},
}


def settings(arm: str, seed: int, updates: int) -> TrainConfig:
    """The configuration of one arm."""
    from vapo.train.config import TrainConfig

    return TrainConfig.from_dict({**SETTINGS, "arm": arm, "seed": seed, "updates": updates})


def learners(folder: Path, seed: int, updates: int) -> dict[str, Any]:
    """Train every arm and say what came of it.

    Args:
        folder: Where runs and picture go.
        seed: Of all arms.
        updates: Of each arm.

    Returns:
        One set of facts an arm, and whether its run verifies.
    """
    from vapo.train.runner import train
    from vapo.train.runner_table import run_row
    from vapo.train.runner_verify import verify_training

    facts: dict[str, Any] = {}
    for arm in ARMS:
        run = folder / FOLDER / arm
        with shared.progress() as progress:
            train(settings(arm, seed, updates), run, progress=progress)
        facts[arm] = {**run_row(run), "curve": curve(run), "verified": verify_training(run).ok}
    show(facts)
    title = "A verifier that approves copies (one seed)"
    facts["picture"] = draw_curves(
        {title: {_CALLED[arm]: [facts[arm]["curve"]] for arm in ARMS}}, folder / PICTURE
    )
    return facts


def show(facts: dict[str, Any]) -> None:
    """The table, and how to read it."""
    rows = []
    for arm in ARMS:
        row = facts[arm]
        harm = row["admitted_risk"]
        stages = row["certified"] + row["refused"]
        rows.append(
            (
                _CALLED[arm],
                "none" if row["coverage"] is None else f"{row['coverage']:.0%}",
                "none" if harm is None else f"{harm:.1%}",
                f"{row['labels']:,}",
                f"{row['certified']} of {stages}" if stages else "none",
                f"{row['curve'][-1][1]:.1%}",
                f"{row['accuracy']:.1%}",
            )
        )
    shared.show_table(("", "kept", "harmful", "labels", "certified", "held-out", "test"), rows)
    before, questions = facts[ARMS[0]]["curve"][0][1], facts[ARMS[0]]["questions"]
    shared.say(
        "kept: updates that enter the learner; harmful: of those, by clean labels that no arm but the last one sees. "
        f"Accuracy began at {before:.1%}; on {questions} test questions, and with one seed, a few points are noise. "
        "docs/training.md has five seeds, and also where a gate helps little."
    )
