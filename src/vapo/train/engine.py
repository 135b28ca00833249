"""What a learner's engine does: sample, measure, and take the steps that an admitted window allows.

One interface, so that the loop around it does not know which engine runs. The lean loop is in `vapo.train.lean`; on one
batch it gives the gradient of TRL's trainer in `vapo.train.trl`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.train.batch import Admission, Loss, towards

if TYPE_CHECKING:
    import torch

    from vapo.train.models.base import LanguageModel, Sampled

__all__ = ["Engine", "Level", "Settings", "Step", "policy_signals", "takes_step"]

Floats = npt.NDArray[np.float64]
Level = Literal["token", "sequence"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How an engine learns from a window.

    Example:
        >>> Settings(loss="grpo", learning_rate=3e-4).clip_high
        0.2
        >>> Settings(passes=0)
        Traceback (most recent call last):
            ...
        vapo.errors.InputError: argument 'passes': expected a whole number of at least 1, got 0
    """

    loss: Loss = "dapo"
    """`grpo`, `dr_grpo` or `dapo`: what the completions' token losses are divided by."""
    max_tokens: int = 256
    """The cap on a completion, by which `dr_grpo` divides."""
    temperature: float = 1.0
    """What completions are sampled with, and scored with."""
    learning_rate: float = 1e-4
    """Of AdamW, constant."""
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = 1.0
    """The gradient is scaled down to this norm where it is longer; 0 leaves it alone."""
    clip_low: float = 0.2
    """Ratios are clipped at 1 - clip_low. With one step a window of fresh rollouts the ratio is 1: no clip acts."""
    clip_high: float = 0.2
    beta: float = 0.0
    """Price of a token's KL to the reference in the loss; apart from the actuator's own price."""
    level: Level = "token"
    """Whether ratios belong to tokens or to whole completions."""
    passes: int = 1
    """Times that a window is gone through."""
    minibatches: int = 1
    """Optimiser steps a pass; rows are dealt out in their declared order."""
    rows_at_once: int = 0
    """Rows in one forward pass, for memory; 0 for all."""
    reference: bool = True
    """Keep the first weights, so that KL to them can be measured."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        for name, choices in (("loss", get_args(Loss)), ("level", get_args(Level))):
            if getattr(self, name) not in choices:
                expected = f"one of {', '.join(choices)}"
                raise InputError(expected, repr(getattr(self, name)), where=f"argument '{name}'")
        for name, least in (("max_tokens", 1), ("passes", 1), ("minibatches", 1), ("rows_at_once", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                expected = f"a whole number of at least {least}"
                raise InputError(expected, repr(value), where=f"argument '{name}'")
        names = (
            "learning_rate",
            "weight_decay",
            "max_grad_norm",
            "clip_low",
            "clip_high",
            "beta",
            "temperature",
        )
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                expected = "a finite number of at least 0"
                raise InputError(expected, repr(value), where=f"argument '{name}'")
        if len(self.betas) != 2 or not all(isinstance(b, int | float) and 0 <= b < 1 for b in self.betas):
            expected = "two numbers in [0, 1)"
            raise InputError(expected, repr(self.betas), where="argument 'betas'")
        if not self.temperature > 0.0:
            expected = "a positive temperature: a greedy law has no gradient"
            raise InputError(expected, repr(self.temperature), where="argument 'temperature'")
        if self.beta and not self.reference:
            expected = "a reference to measure KL to, where it has a price in the loss"
            raise InputError(expected, "reference=False", where="argument 'beta'")

    def state_dict(self) -> dict[str, Any]:
        """Every field, ready for JSON.

        Example:
            >>> Settings(**Settings(passes=2).state_dict()) == Settings(passes=2)
            True
        """
        return {**dataclasses.asdict(self), "betas": list(self.betas)}


@dataclass(frozen=True, slots=True)
class Step:
    """What an update did, measured on the learner's own path: over the tokens of the rows that stayed."""

    taken: bool
    """Whether the optimiser moved at all."""
    loss: float
    """Of the first pass over the window."""
    signed_update: float
    """Mean signed update of the window's records, abstained ones counting 0."""
    ratio: float
    """Mean probability ratio to the sampling policy, over all passes."""
    clip_fraction: float
    """Share of tokens at which the clip stopped the gradient, over all passes."""
    kl: float | None
    """Mean token KL to the reference in the first pass; none without a reference."""
    entropy: float
    """Mean token entropy in the first pass."""
    grad_norm: float
    """Of the last step, before it was scaled down."""
    tokens: int
    """Completion tokens that the gradient was taken over, counted once a pass."""
    rows: int
    """Completions that stayed."""

    @classmethod
    def none(cls) -> Step:
        """Nothing was learned from."""
        return cls(
            taken=False,
            loss=0.0,
            signed_update=0.0,
            ratio=1.0,
            clip_fraction=0.0,
            kl=None,
            entropy=0.0,
            grad_norm=0.0,
            tokens=0,
            rows=0,
        )

    def metrics(self) -> dict[str, float]:
        """The fields as numbers for a curve; those that are undefined are left out.

        Example:
            >>> Step.none().metrics()["taken"], "kl" in Step.none().metrics()
            (0.0, False)
        """
        return {name: float(value) for name, value in dataclasses.asdict(self).items() if value is not None}


class Engine(Protocol):
    """Holds a language model and its optimiser; draws chance from the seeds it is given, and from nowhere else."""

    model: LanguageModel
    settings: Settings

    def sample(
        self, prompts: Sequence[str], *, seed: int, max_tokens: int = 0, temperature: float | None = None
    ) -> Sampled:
        """One completion of each prompt; repeat a prompt for a group.

        Args:
            prompts: As the model reads them.
            seed: The same seed, prompts and weights give the same completions.
            max_tokens: The cap; 0 for the settings'.
            temperature: 0 takes the most likely token (evaluation); none for the settings'.
        """
        ...

    def score(self, batch: Sampled) -> tuple[torch.Tensor, torch.Tensor]:
        """Log probability of each completion token under the present weights, and the entropy of its law."""
        ...

    def reference_kl(self, batch: Sampled) -> Floats:
        """KL of each completion to the reference: the mean over its tokens, never negative."""
        ...

    def update(self, batch: Sampled, admission: Admission) -> Step:
        """Learn from the rows that stay; `batch.logp` is the sampling policy's."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser and count of updates, for `torch.save`."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on bit for bit where `state_dict` was taken; the reference stays what the engine was made with."""
        ...


def takes_step(admission: Admission) -> bool:
    """Whether a learner may move on a window.

    With every row kept this is the plain learner, which moves whatever its advantages are. Once rows were dropped,
    something admitted must be left: momentum and weight decay would otherwise move weights that no verdict speaks for.

    Example:
        >>> from vapo.train.batch import Window
        >>> from vapo.train.hook import AcceptAll, Closed
        >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, 1], advantage=[0.0, 0.0],
        ...                    signals={"confidence": [0.9, 0.2]})
        >>> takes_step(AcceptAll().admit(window)), takes_step(Closed("no certificate").admit(window))
        (True, False)
    """
    return bool(admission.updates.admitted.any() or (admission.kept.size and admission.kept.all()))


def policy_signals(
    *,
    y: npt.ArrayLike,
    group: Sequence[str],
    answers: Sequence[str | None],
    finished: npt.ArrayLike,
    confidence: npt.ArrayLike | None = None,
) -> dict[str, Floats]:
    """The signals that every learner offers, turned towards the verdicts.

    Args:
        y: Verdicts of the primary verifier.
        group: The prompt of each completion.
        answers: Final answers; none where there is none to be read.
        finished: Whether the completion ended before the cap.
        confidence: The policy's mean probability of the completion's tokens.

    Returns:
        `consistency` (share of the group with the same final answer), `finished`, and `confidence` where it is known.

    Example:
        >>> found = policy_signals(y=[1, 1, -1], group=["q", "q", "q"], answers=["7", "7", "9"], finished=[True] * 3)
        >>> found["consistency"].round(3).tolist()
        [0.667, 0.667, 0.667]
    """
    counts: dict[tuple[str, str | None], int] = {}
    sizes: dict[str, int] = {}
    for name, answer in zip(group, answers, strict=True):
        sizes[name] = sizes.get(name, 0) + 1
        counts[name, answer] = counts.get((name, answer), 0) + 1
    # What cannot be read agrees with nothing, not with everything else that cannot be read.
    shares = [
        0.0 if answer is None else counts[name, answer] / sizes[name]
        for name, answer in zip(group, answers, strict=True)
    ]
    found = {"consistency": towards(y, shares), "finished": towards(y, np.asarray(finished, np.float64))}
    if confidence is not None:
        found["confidence"] = towards(y, confidence)
    return found
