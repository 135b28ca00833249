"""Form without content: the completion marks its answer as it was told to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vapo.errors import InputError
from vapo.verifiers.base import Item, Outcome
from vapo.verifiers.rules import Rule

__all__ = ["FormatMarker"]


@dataclass(frozen=True)
class FormatMarker(Rule):
    r"""Right if the completion holds something between two marks, right or wrong as that may be.

    It is cheap, and learned by every policy within a few updates: a signal or a control, hardly ever a primary.

    Args:
        opening: The mark before the answer.
        closing: The mark after it.

    Example:
        >>> rule = FormatMarker("<answer>", "</answer>")
        >>> texts = ["<answer> 46 </answer>", "<answer></answer>", "46"]
        >>> [rule.judge(Item("a", "12 + 34 = ?", text)).verdict for text in texts]
        [1, -1, -1]
    """

    name: ClassVar[str] = "format-marker"
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.rules",)

    opening: str = "\\boxed{"
    closing: str = "}"

    def __post_init__(self) -> None:
        if not self.opening or not self.closing:
            expected = "two marks that are not empty"
            raise InputError(expected, repr((self.opening, self.closing)), where="FormatMarker")

    def _judge(self, item: Item) -> Outcome:
        text = item.completion
        end = text.rfind(self.closing)
        start = text.rfind(self.opening, 0, end) if end >= 0 else -1
        return Outcome(verdict=1 if start >= 0 and text[start + len(self.opening) : end].strip() else -1)
