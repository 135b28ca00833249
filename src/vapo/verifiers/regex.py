"""A regular expression. The backtracking kind can take longer than the universe: it runs where it can be killed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from vapo.errors import InputError
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Hazard, Rule

__all__ = ["Regex"]


@dataclass(frozen=True)
class Regex(Rule):
    r"""Right if the completion matches.

    Args:
        pattern: A regular expression in Python's own syntax; flags stand in it, as in `(?i)`. Without one, each item's
            reference is its pattern.
        whole: Whether the whole completion must match, rather than any part of it.

    Example:
        >>> rule = Regex(r"\b4[0-9]\b")
        >>> [rule.judge(Item("a", "12 + 34 = ?", text)).verdict for text in ("It is 46.", "It is 146.")]
        [1, -1]
    """

    name: ClassVar[str] = "regex"
    hazard: ClassVar[Hazard] = Hazard.HANGS
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.rules",)
    libraries: ClassVar[tuple[str, ...]] = ("python",)

    pattern: str = ""
    whole: bool = False

    def __post_init__(self) -> None:
        try:
            _compiled(self.pattern)
        except _UNREADABLE as error:
            expected = "a regular expression"
            raise InputError(expected, str(error), where="argument 'pattern'") from None

    def _judge(self, item: Item) -> Outcome:
        try:
            pattern = _compiled(self.pattern or item.reference)
        except _UNREADABLE as error:
            return Outcome(
                failure=Failure.UNPARSABLE, detail=f"the reference is no regular expression: {error}"
            )
        found = pattern.fullmatch(item.completion) if self.whole else pattern.search(item.completion)
        return Outcome(verdict=1 if found else -1)


_UNREADABLE = (re.error, OverflowError, RecursionError)


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
