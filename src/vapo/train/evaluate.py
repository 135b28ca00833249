"""Examining a learner: accuracy, return and pass@k, with everything that went wrong kept in the denominator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.tasks.base import Question, Task
from vapo.train.engine import Engine
from vapo.train.models.base import Sampled
from vapo.train.rollouts import derive_seed, join
from vapo.verifiers import Item

__all__ = ["Examined", "examine", "pass_at_k"]


@dataclass(frozen=True, slots=True)
class Examined:
    """What came of some questions, one value each."""

    ids: list[str]
    right: npt.NDArray[np.bool_]
    """Whether the most likely answer is right."""
    unparsable: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    passed: npt.NDArray[np.int64]
    """Sampled answers that are right."""
    samples: int
    """Sampled answers a question."""
    tokens: int

    def facts(self, k: Sequence[int] = ()) -> dict[str, Any]:
        """The shares over all questions; unparsable and truncated answers are wrong ones among them.

        Args:
            k: For which k pass@k is wanted.
        """
        found: dict[str, Any] = {
            "questions": len(self.ids),
            "accuracy": float(np.mean(self.right)),
            "right": int(np.count_nonzero(self.right)),
            "unparsable": int(np.count_nonzero(self.unparsable)),
            "truncated": int(np.count_nonzero(self.truncated)),
            "tokens": self.tokens,
        }
        if self.samples:
            found["samples"] = self.samples
            # Rewards are 0 or 1 a completion, so clipping them to [0, 1] changes nothing.
            found["return"] = 100.0 * float(np.mean(self.passed / self.samples))
            found["pass"] = {str(n): float(np.mean(pass_at_k(self.passed, self.samples, n))) for n in k}
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One row a question, ready for JSON."""
        columns = zip(self.ids, self.right, self.unparsable, self.truncated, self.passed, strict=True)
        return [
            {
                "question": name,
                "right": bool(r),
                "unparsable": bool(u),
                "truncated": bool(t),
                "passed": int(p),
            }
            for name, r, u, t, p in columns
        ]


def pass_at_k(passed: npt.ArrayLike, samples: int, k: int) -> npt.NDArray[np.float64]:
    """Chance that at least one of k answers is right, without bias from n samples of each question.

    Args:
        passed: Right answers among the samples of each question.
        samples: n.
        k: How many answers may be given.

    Example:
        >>> pass_at_k([0, 1, 4], 4, 2).round(3).tolist()
        [0.0, 0.5, 1.0]
    """
    if not 1 <= k <= samples:
        expected = f"k from 1 to the {samples} samples"
        raise InputError(expected, repr(k), where="argument 'k'")
    whole = math.comb(samples, k)
    missed = [math.comb(samples - int(c), k) / whole for c in np.asarray(passed)]
    return 1.0 - np.array(missed, np.float64)


def examine(
    engine: Engine,
    task: Task,
    questions: Sequence[Question],
    *,
    samples: int = 0,
    seed: int = 0,
    rows_at_once: int = 512,
) -> Examined:
    """Ask some questions: once for the most likely answer, and some times at the sampling temperature.

    Args:
        engine: Whose present weights answer.
        task: Judges the answers.
        questions: What is asked.
        samples: Sampled answers a question.
        seed: Fixes the samples.
        rows_at_once: Completions sampled together.
    """
    if not questions:
        expected = "at least one question"
        raise InputError(expected, "none", where="evaluation")
    prompts = [engine.model.render(question.prompt) for question in questions]
    likely = _answered(engine, prompts, rows_at_once, temperature=0.0, seed=derive_seed(seed, "likely"))
    right = _right(task, questions, likely.texts)
    passed = np.zeros(len(questions), np.int64)
    tokens = int(likely.lengths.sum())
    if samples:
        several = [prompt for prompt in prompts for _ in range(samples)]
        drawn = _answered(engine, several, rows_at_once, temperature=None, seed=derive_seed(seed, "samples"))
        asked = [question for question in questions for _ in range(samples)]
        passed = _right(task, asked, drawn.texts).reshape(len(questions), samples).sum(axis=1)
        tokens += int(drawn.lengths.sum())
    return Examined(
        ids=[question.id for question in questions],
        right=right,
        unparsable=np.array([task.answer(text) is None for text in likely.texts], np.bool_),
        truncated=~likely.finished.cpu().numpy(),
        passed=passed,
        samples=samples,
        tokens=tokens,
    )


def _answered(
    engine: Engine, prompts: Sequence[str], at_once: int, *, temperature: float | None, seed: int
) -> Sampled:
    lots = [
        engine.sample(
            prompts[first : first + at_once],
            seed=derive_seed(seed, first),
            temperature=temperature,
        )
        for first in range(0, len(prompts), at_once)
    ]
    return join(lots, engine.model.pad)


def _right(task: Task, questions: Sequence[Question], texts: Sequence[str]) -> npt.NDArray[np.bool_]:
    items = [
        Item(question.id, question.text, text, question.reference)
        for question, text in zip(questions, texts, strict=True)
    ]
    return np.array([outcome.sign > 0 for outcome in task.oracle.verify(items)], np.bool_)
