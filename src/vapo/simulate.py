"""Rollouts that look like real ones: several verifiers whose errors share causes and cluster by question."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Simulated", "simulate"]

Floats = npt.NDArray[np.float64]


class Simulated(NamedTuple):
    """A file of rollouts and, apart from it, the truth."""

    records: pa.Table
    """What a controller may see."""
    labels: pa.Table
    """The clean signs, by id."""


def simulate(
    questions: int,
    completions: int = 4,
    *,
    seed: int = 0,
    prefix: str = "",
    traps: float = 0.2,
    window: int = 256,
) -> Simulated:
    """Draw rollouts of a model on questions of varying difficulty, judged by imperfect verifiers.

    Some questions are traps: their wording or format misleads the primary rule verifier, and often the
    judge with it, so that errors come in clusters and two verifiers fail together. Beside the primary's
    verdict each record has the policy's own confidence and its self-consistency within the question, both
    turned round where the verdict is negative, and a judge's graded verdict. A strict secondary, seldom
    misled, has answered already and is paid for only where it is asked.

    Args:
        questions: How many questions (groups).
        completions: Rollouts of each.
        seed: Everything is a function of it.
        prefix: Put before ids, so that two files do not share any.
        traps: Share of questions that mislead.
        window: Records in one learner update.

    Example:
        >>> rollouts = simulate(50, 4, seed=1)
        >>> rollouts.records.num_rows, rollouts.labels.column_names
        (200, ['id', 'z'])
    """
    rng = np.random.default_rng(seed)
    n = questions * completions
    group = np.repeat(np.arange(questions), completions)
    ability = rng.beta(1.6, 1.1, questions)[group]
    trap = (rng.random(questions) < traps)[group]
    right = rng.random(n) < ability
    truth = np.where(right, 1, -1)

    def verdict(false_positive: float, false_negative: float, misled: Floats) -> npt.NDArray[np.int64]:
        rate = np.where(right, false_negative, false_positive)
        wrong = rng.random(n) < np.where(trap, np.maximum(misled, rate), rate)
        return np.where(wrong, -truth, truth)

    # One draw for each question decides how far its trap reaches; primary and judge share it.
    reach = rng.beta(2.0, 1.5, questions)[group]
    primary = verdict(0.06, 0.05, 0.9 * reach)
    judge = verdict(0.12, 0.10, 0.6 * reach)
    strict = verdict(0.02, 0.03, np.full(n, 0.06))
    graded = np.clip(np.where(judge > 0, 0.8, 0.2) + rng.normal(0, 0.12, n), 0, 1)
    # On a trap the policy is as sure of wrong answers as of right ones, and its wrong answers agree.
    felt = np.where(trap, rng.random(n) < 0.6, right)
    same = np.bincount(group, weights=right, minlength=questions)[group]
    astray = np.maximum(1, (completions - same) * np.where(trap, 1.0, 0.6))
    alike = np.where(right, same, astray) / completions

    # What speaks for an answer speaks against a verdict that rejects it.
    def towards(verdict: npt.NDArray[np.int64], favour: Floats) -> Floats:
        return np.clip(np.where(verdict > 0, favour, 1 - favour), 0, 1)

    confidence = towards(primary, 0.30 + 0.25 * ability + 0.15 * felt + rng.normal(0, 0.18, n))
    consistency = towards(primary, alike + rng.normal(0, 0.03, n))
    ids = [f"{prefix}q{question}-{number}" for question in range(questions) for number in range(completions)]
    records = {
        "id": ids,
        "group": [f"{prefix}q{question}" for question in group],
        "window": [f"{prefix}u{row // window}" for row in range(n)],
        "y": primary,
        "signal.confidence": confidence,
        "signal.consistency": consistency,
        "verdict.judge": judge,
        "verdict.judge.score": graded,
        "y2": strict,
        "c2": np.clip(rng.normal(0.85, 0.1, n), 0, 1),
        "y2_source": ["strict-checker"] * n,
        "delta_r": rng.uniform(0.02, 0.30, n),
        "kl": rng.uniform(0.001, 0.08, n),
    }
    return Simulated(pa.table(records), pa.table({"id": ids, "z": truth}))
