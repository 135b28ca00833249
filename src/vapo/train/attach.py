"""What any trainer is fitted with a hook by: its rows in, a coefficient and a yes or no for each row out.

A trainer hands in the rows of one update, once it has computed advantages from all observed verdicts; then it puts the
coefficients in their place and leaves the rows that are not kept out of its loss. Rows and decision are plain data, so
that they travel between processes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import sha256_hex
from vapo.policy import Reason
from vapo.records import Source
from vapo.train.batch import UNIT, Admission, Window, agreeing
from vapo.train.engine import policy_signals
from vapo.train.hook import AdmissionHook
from vapo.verifiers import Item, Verifier

__all__ = ["Decided", "Observed", "Row", "decide", "question_name", "text_of"]


_NOISE = 1e-2


def _answer(completion: str) -> str | None:
    return " ".join(completion.split()) or None


@dataclass(frozen=True, slots=True)
class Observed:
    """What the hook sees of a trainer's completions, besides verdict and advantage.

    Example:
        >>> Observed(reference="solution").answer("  46 ")
        '46'
    """

    answer: Callable[[str], str | None] = _answer
    """Reads the final answer off a completion, for self-consistency; None where there is none."""
    reference: str = "answer"
    """The data set's column that verifiers may compare with; it never reaches the hook's records."""
    group: str = ""
    """The data set's column that names the question; without one a digest of the prompt does."""
    verifiers: Mapping[str, Verifier] = field(default_factory=dict)
    """Further verifiers, each asked about every completion; their verdicts are signals."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Who produced which column, as the certificate names them."""
    confidence: bool = True
    """Whether the policy's own probabilities are a signal, where a forward pass would have to be spent on them."""
    unit: float = UNIT
    """Ratio change that an advantage of 1 proposes; the actuator's."""
    name: str = "update"
    """First part of every window's and record's name; another one for another run into the same ledger."""


@dataclass(frozen=True, slots=True)
class Row:
    """One completion, as it goes to the rank that decides."""

    question: str
    completion: str
    reference: str
    group: str
    reward: float
    """NaN where the primary verifier gave no verdict."""
    advantage: float
    finished: bool
    confidence: float = math.nan
    kl: float = math.nan


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a whole window."""

    coefficient: list[float]
    """What each completion's score-function term is multiplied with."""
    kept: list[bool]
    admitted: list[bool]
    reason: list[str]
    score: list[float]
    metrics: dict[str, float]
    closed: str

    @classmethod
    def of(cls, admission: Admission, metrics: Mapping[str, float]) -> Decided:
        """An admission in plain data."""
        return cls(
            admission.coefficient.tolist(),
            admission.kept.tolist(),
            admission.updates.admitted.tolist(),
            [Reason(code).text for code in admission.reason.tolist()],
            admission.score.tolist(),
            dict(metrics),
            admission.closed,
        )


def text_of(value: Any) -> str:
    r"""The text of a prompt or completion, whether plain or a conversation.

    Example:
        >>> text_of([{"role": "system", "content": "Add."}, {"role": "user", "content": "1+2="}])
        'Add.\n1+2='
    """
    if isinstance(value, str):
        return value
    parts: list[str] = []
    for message in value:
        content = message.get("content") or ""
        blocks = [content] if isinstance(content, str) else [block.get("text", "") for block in content]
        parts.append("".join(blocks))
    return "\n".join(parts)


def _verdicts(reward: npt.NDArray[np.float64], advantage: npt.NDArray[np.float64]) -> npt.NDArray[np.int8]:
    """The direction in which each completion would be pushed; where it would not be, whether its reward is positive."""
    y = np.where(advantage != 0.0, np.sign(advantage), np.where(reward > 0.0, 1.0, -1.0))
    return np.where(np.isnan(reward), 0.0, y).astype(np.int8)


def decide(rows: Sequence[Row], hook: AdmissionHook, observed: Observed, place: str) -> Decided:
    """Ask the hook about one window.

    Args:
        rows: The completions of all ranks, in their declared order.
        hook: What decides.
        observed: What it is to see.
        place: The window's name within the run.

    Example:
        >>> from vapo.train.hook import AcceptAll
        >>> rows = [Row("1+2=", "3", "3", "q", 1.0, 0.7, True), Row("1+2=", "4", "3", "q", 0.0, -0.7, True)]
        >>> decided = decide(rows, AcceptAll(), Observed(), "0")
        >>> [round(c, 9) for c in decided.coefficient], decided.kept
        ([0.7, -0.7], [True, True])
    """
    window_name = f"{observed.name}-{place}"
    ids = [f"{window_name}-{number}" for number in range(len(rows))]
    items = [
        Item(name, row.question, row.completion, row.reference) for name, row in zip(ids, rows, strict=True)
    ]
    groups = [row.group for row in rows]
    reward, advantage = np.array([row.reward for row in rows]), np.array([row.advantage for row in rows])
    # What a trainer's mean, in single precision, leaves of rewards that are all one.
    noise = np.abs(advantage) <= _NOISE * np.maximum(1.0, np.abs(np.nan_to_num(reward)))
    advantage = np.where(noise & agreeing(reward, groups), 0.0, advantage)
    y = _verdicts(reward, advantage)
    confidence, kl = np.array([row.confidence for row in rows]), np.array([row.kl for row in rows])
    window = Window.of(
        ids=ids,
        groups=groups,
        window=window_name,
        y=y,
        advantage=advantage,
        signals=policy_signals(
            y=y,
            group=groups,
            answers=[observed.answer(row.completion) for row in rows],
            finished=[row.finished for row in rows],
            confidence=None if np.isnan(confidence).any() else confidence,
        ),
        verdicts={
            name: [outcome.sign for outcome in verifier.verify(items)]
            for name, verifier in observed.verifiers.items()
        },
        kl=None if np.isnan(kl).any() else kl,
        content=[row.question for row in rows],
        sources=observed.sources or None,
        unit=observed.unit,
    )
    return Decided.of(hook.admit(window, items), hook.metrics())


def question_name(question: str) -> str:
    """A name for a question that its data set does not name.

    Example:
        >>> len(question_name("1+2="))
        16
    """
    return sha256_hex(question.encode("utf-8", "surrogatepass"))[:16]
