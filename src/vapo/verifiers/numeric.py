"""The same number: the final answer is read as an exact fraction and compared with the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from vapo.errors import InputError
from vapo.verifiers.answers import Place, check_places, final_number
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Rule, Unreadable, check_unreadable, unreadable_outcome

__all__ = ["STRICT_PLACES", "Numeric"]

STRICT_PLACES = (Place.HASH, Place.BOXED, Place.PHRASE, Place.WHOLE)
"""Places that hold one number or none; the last number of a text, which may be any number, is not among them."""
REFERENCE_PLACES = (Place.HASH, Place.BOXED, Place.WHOLE)


@dataclass(frozen=True)
class Numeric(Rule):
    r"""Right if the final answer is the reference's number. An expression that nobody worked out is no number.

    Args:
        places: Where an answer may stand, in this order.
        tolerance: How far from the reference an answer may be; 0 compares exactly.
        percent: Whether `50%` means one half; otherwise the sign is read like a unit.
        unreadable: What becomes of a completion in which no number can be read.

    Example:
        >>> rule = Numeric()
        >>> texts = ["46", r"so \boxed{46.0}", "#### 47", "12 + 34"]
        >>> [rule.judge(Item("a", "12 + 34 = ?", text, "46")).verdict for text in texts]
        [1, 1, -1, None]
        >>> Numeric(unreadable="wrong").judge(Item("a", "12 + 34 = ?", "12 + 34", "46")).verdict
        -1
    """

    name: ClassVar[str] = "numeric"
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.answers", "vapo.verifiers.rules")

    places: tuple[Place, ...] = STRICT_PLACES
    tolerance: float = 0.0
    percent: bool = False
    unreadable: Unreadable = "failure"

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", check_places(self.places))
        check_unreadable(self.unreadable)
        if not (math.isfinite(self.tolerance) and self.tolerance >= 0):
            expected = "a finite tolerance of at least 0"
            raise InputError(expected, repr(self.tolerance), where="argument 'tolerance'")

    def _judge(self, item: Item) -> Outcome:
        wanted = final_number(item.reference, REFERENCE_PLACES, percent=self.percent)
        if wanted is None:
            return Outcome(failure=Failure.UNPARSABLE, detail="the reference is no number")
        found = final_number(item.completion, self.places, percent=self.percent)
        if found is None:
            return unreadable_outcome(self.unreadable, "no number")
        return Outcome(verdict=1 if abs(found - wanted) <= Fraction(self.tolerance) else -1)
