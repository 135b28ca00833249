"""Integer arithmetic whose difficulty is set by the ranges of its operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from vapo.errors import InputError
from vapo.tasks.base import Oracle, Prompt, Question, Reading, Task, divide

__all__ = ["PRETRAINED_SHARES", "Arithmetic", "Operator", "Style"]

Operator = Literal["+", "-", "*"]
Style = Literal["plain", "chat"]

PRETRAINED_SHARES: Mapping[str, float] = {
    "pretrain": 0.2,
    "train": 0.25,
    "calibration": 0.4,
    "held-out": 0.05,
    "test": 0.1,
}
"""For a model that is taught part of the task first: no pair that it was taught is asked about later."""
_RESULT: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
_MOST = 250_000


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Questions about every pair of operands in two ranges.

    A pair and its reverse are one group, so that neither `a+b` nor `b+a` can be held out while the other is taught.

    Example:
        >>> task = Arithmetic("*", (2, 9), (11, 19), style="chat").open()
        >>> question = task.split("train")[0]
        >>> question.prompt.prefill.endswith("= "), len(question.id.split("*"))
        (True, 2)
    """

    operator: Operator = "+"
    left: tuple[int, int] = (10, 99)
    """Smallest and largest left operand."""
    right: tuple[int, int] = (10, 99)
    style: Style = "plain"
    """`plain` asks as `12+34=` and reads the whole completion; `chat` asks in words and begins the answer."""
    both_orders: bool = True
    """Whether the operands also come the other way round (where that makes another question)."""
    shares: Mapping[str, float] | None = None
    """Shares of the splits; the default keeps pairs for pre-training in the plain style, and none in the other."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, choices in (("operator", get_args(Operator)), ("style", get_args(Style))):
            if getattr(self, name) not in choices:
                expected = f"one of {' '.join(choices)}"
                raise InputError(expected, repr(getattr(self, name)), where=f"arithmetic: '{name}'")
        for name in ("left", "right"):
            given = tuple(getattr(self, name))
            if len(given) != 2 or not all(isinstance(n, int) for n in given) or not 0 <= given[0] <= given[1]:
                expected = "two whole numbers, the smaller first, none negative"
                raise InputError(expected, repr(given), where=f"arithmetic: '{name}'")
            object.__setattr__(self, name, given)
        count = (self.left[1] - self.left[0] + 1) * (self.right[1] - self.right[0] + 1)
        if count > _MOST:
            expected = f"at most {_MOST:,} pairs"
            raise InputError(expected, f"{count:,}", where="arithmetic")

    def questions(self) -> list[Question]:
        """Every question, the smaller left operand first."""
        pairs = [(a, b) for a in _all(self.left) for b in _all(self.right)]
        if self.both_orders:
            pairs += [(b, a) for a, b in pairs]
        return [self._question(a, b) for a, b in dict.fromkeys(pairs)]

    def _question(self, a: int, b: int) -> Question:
        operator = self.operator
        small, large = sorted((a, b))
        text, answer = f"{a}{operator}{b}", str(_RESULT[operator](a, b))
        if self.style == "plain":
            prompt = Prompt(f"{text}=")
        else:
            prompt = Prompt(f"What is {a} {operator} {b}?", prefill=f"{a} {operator} {b} = ")
        return Question(text, text, answer, f"{small}{operator}{large}", prompt)

    def open(self) -> Task:
        """The task."""
        shares = self.shares
        if shares is None and self.style == "plain":
            shares = PRETRAINED_SHARES
        questions = self.questions()
        longest = max(len(question.reference) for question in questions)
        splits = divide(questions, shares, seed=self.seed)
        # One more, for the end token, or for a model that is not at the end to show that it is not.
        return Task("arithmetic", splits, Oracle(Reading.BARE), max_tokens=longest + 1)


def _all(ends: tuple[int, int]) -> range:
    return range(ends[0], ends[1] + 1)
