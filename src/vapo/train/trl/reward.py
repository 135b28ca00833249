"""A reward function for TRL's trainers: the verdict of a verifier, and None where it abstains.

For people who keep their own trainer. What it returns None for has no part in TRL's baseline and no advantage, but
stays in TRL's denominators and KL term, and no actuator scales what is admitted. The trainer that keeps the whole
promise is `VapoGRPOTrainer`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from vapo.errors import InputError
from vapo.train.attach import Decided, Observed, Row, decide, question_name, text_of
from vapo.train.batch import Scale, advantages
from vapo.train.collective import decide_once
from vapo.train.hook import AdmissionHook
from vapo.verifiers import Item, Verifier

__all__ = ["reward"]


def reward(
    verifier: Verifier,
    hook: AdmissionHook | None = None,
    *,
    observed: Observed | None = None,
    ends: Sequence[int] = (),
    scale: Scale = "group",
) -> Callable[..., list[float | None]]:
    """A reward function: 1 for right, 0 for wrong, None for no verdict, and None for what the hook abstains from.

    Without a hook it is the primary verifier of a `VapoGRPOTrainer`. With one the baseline is that of the admitted; use
    it for training alone, since it cannot tell an evaluation from a window.

    Args:
        verifier: The primary verifier.
        hook: Decides on each call's completions, those of all ranks together, as one window. Rank 0's alone is asked.
        observed: What the hook sees of a completion; a reward function knows no probabilities and no KL.
        ends: Tokens that end a completion; without them none counts as cut off.
        scale: How proposals are scaled, as `scale_rewards` of the trainer is set.

    Example:
        >>> from vapo.train.hook import Closed
        >>> from vapo.verifiers import Outcome
        >>> class Sums:
        ...     def verify(self, items):
        ...         return [Outcome(1 if item.completion == item.reference else -1) for item in items]
        >>> batch = {"prompts": ["1+2=", "1+2="], "completions": ["3", "4"], "completion_ids": [[5], [6]],
        ...          "answer": ["3", "3"]}
        >>> reward(Sums())(**batch)
        [1.0, 0.0]
        >>> reward(Sums(), Closed("no certificate"))(**batch)
        [None, None]
    """
    return _Reward(verifier, hook, observed or Observed(), tuple(ends), scale)


class _Reward:
    """The reward function, with the name under which TRL logs it."""

    baseline = "admitted"
    """With a hook, advantages are computed by the trainer, from what was admitted."""

    def __init__(
        self,
        verifier: Verifier,
        hook: AdmissionHook | None,
        observed: Observed,
        ends: tuple[int, ...],
        scale: Scale,
    ) -> None:
        self.__name__ = "vapo_reward"
        self.hook = hook
        self._verifier = verifier
        self._observed = observed
        self._ends = frozenset(ends)
        self._scale: Scale = scale
        self._windows = 0

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        **columns: Any,
    ) -> list[float | None]:
        observed = self._observed
        questions = [text_of(prompt) for prompt in prompts]
        references = columns.get(observed.reference) or [""] * len(questions)
        names = columns[observed.group] if observed.group else [question_name(text) for text in questions]
        texts = [text_of(completion) for completion in completions]
        items = [
            Item(str(number), question, text, str(reference))
            for number, (question, text, reference) in enumerate(
                zip(questions, texts, references, strict=True)
            )
        ]
        found = [outcome.verdict for outcome in self._verifier.verify(items)]
        values = [None if verdict is None else float(verdict > 0) for verdict in found]
        if self.hook is None:
            return values
        rows = [
            Row(
                question=item.question,
                completion=item.completion,
                reference=item.reference,
                group=str(name),
                reward=float("nan") if value is None else value,
                advantage=0.0,
                finished=not self._ends or (bool(ids) and ids[-1] in self._ends),
            )
            for item, name, value, ids in zip(items, names, values, completion_ids, strict=True)
        ]
        decided, mine = decide_once(rows, self._decide)
        self._windows += 1
        self._report(decided, mine, columns)
        return [value if kept else None for value, kept in zip(values, decided.kept[mine], strict=True)]

    def _decide(self, rows: list[Row]) -> Decided:
        if self.hook is None:
            expected = "an admission hook on the rank that decides"
            raise InputError(expected, "None", where="argument 'hook'")
        # Completions of a prompt stand side by side; the same prompt drawn again is another group.
        names = [row.group for row in rows]
        turns = np.cumsum([0, *(a != b for a, b in itertools.pairwise(names))])
        proposed = advantages([row.reward for row in rows], turns, scale=self._scale)
        rows = [replace(row, advantage=value) for row, value in zip(rows, proposed.tolist(), strict=True)]
        return decide(rows, self.hook, self._observed, str(self._windows))

    def _report(self, decided: Decided, mine: slice, columns: dict[str, Any]) -> None:
        """Through the two doors that TRL gives its reward functions."""
        if log_extra := columns.get("log_extra"):
            log_extra("admission", decided.reason[mine])
            log_extra("trust", decided.score[mine])
        if log_metric := columns.get("log_metric"):
            log_metric("vapo/baseline_observed", 0.0)
            for name, value in decided.metrics.items():
                log_metric(f"vapo/{name}", value)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep, ready for JSON."""
        hook = None if self.hook is None else self.hook.state_dict()
        return {"baseline": self.baseline, "windows": self._windows, "hook": hook}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        windows = state.get("windows")
        if (
            state.get("baseline") != self.baseline
            or isinstance(windows, bool)
            or not isinstance(windows, int)
        ):
            expected = "the state of a reward function and its number of windows"
            raise InputError(expected, f"{state.get('baseline')!r}, {windows!r}", where="argument 'state'")
        self._windows = windows
        if self.hook is not None:
            self.hook.load_state_dict(state["hook"])
