"""The same words: the final answer is the reference, up to case and white space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vapo.records import normalise_content
from vapo.verifiers.answers import EXACT_PLACES, Place, check_places, final_text
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Rule, Unreadable, check_unreadable, unreadable_outcome

__all__ = ["Exact"]

REFERENCE_PLACES = (Place.HASH, Place.BOXED, Place.WHOLE)


@dataclass(frozen=True)
class Exact(Rule):
    """Right if the final answer is the reference, in the same words.

    Args:
        places: Where an answer may stand, in this order; by default the whole text where no other place is there.
        ignore_case: Whether case and compatibility forms of letters count for nothing.
        unreadable: What becomes of a completion without an answer.

    Example:
        >>> rule = Exact()
        >>> [rule.judge(Item("a", "Capital of France?", text, "Paris")).verdict for text in ("PARIS", "It is Rome")]
        [1, -1]
    """

    name: ClassVar[str] = "exact"
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.answers", "vapo.verifiers.rules")

    places: tuple[Place, ...] = EXACT_PLACES
    ignore_case: bool = True
    unreadable: Unreadable = "failure"

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", check_places(self.places))
        check_unreadable(self.unreadable)

    def _judge(self, item: Item) -> Outcome:
        wanted = final_text(item.reference, REFERENCE_PLACES)
        if wanted is None:
            return Outcome(failure=Failure.UNPARSABLE, detail="the reference is empty")
        found = final_text(item.completion, self.places)
        if found is None:
            return unreadable_outcome(self.unreadable, "no answer")
        return Outcome(verdict=1 if self._same(found, wanted) else -1)

    def _same(self, found: str, wanted: str) -> bool:
        if not self.ignore_case or found == wanted:
            return found == wanted
        # One letter stands for at most 18 in a compatibility form; what is longer than that is not folded at all, so
        # that nobody can make the folding slow.
        if len(found) > 18 * len(wanted) + 18 or len(wanted) > 18 * len(found) + 18:
            return False
        return normalise_content(found) == normalise_content(wanted)
