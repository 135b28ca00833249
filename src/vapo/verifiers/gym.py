"""reasoning-gym's own scorers. Some of them evaluate the answer as a program, so they run in sandboxed workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from vapo.errors import InputError
from vapo.verifiers.answers import EXACT_PLACES, Place, check_places, final_text
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.rules import Hazard, Rule, Unreadable, check_unreadable, unreadable_outcome

__all__ = ["ReasoningGym", "gym_reference"]


def gym_reference(entry: Mapping[str, Any]) -> str:
    """A reasoning-gym entry as the reference of an item: what its scorer wants to see again.

    Raises:
        InputError: If the entry holds what JSON cannot.

    Example:
        >>> gym_reference({"question": "1 + 1 = ?", "answer": "2", "metadata": {"source_dataset": "chain_sum"}})
        '{"answer": "2", "metadata": {"source_dataset": "chain_sum"}}'
    """
    try:
        return json.dumps({"answer": entry["answer"], "metadata": entry["metadata"]}, allow_nan=False)
    except (KeyError, TypeError, ValueError) as error:
        expected = "an entry with an answer, and metadata that JSON can hold"
        raise InputError(expected, repr(error), where="reasoning-gym entry") from None


@dataclass(frozen=True)
class ReasoningGym(Rule):
    """Right if the scorer of the question's own dataset gives at least the threshold.

    Some scorers call `eval` on the answer. An answer with a double underscore, the usual way out of there, is refused
    unseen; all others are scored in a sandboxed process of their own.

    Args:
        dataset: The dataset whose scorer judges; by default the one that each reference names.
        threshold: The score from which an answer is right; partial credit below it makes it wrong.
        places: Where an answer may stand in the completion, in this order.
        unreadable: What becomes of a completion without an answer.

    Example:
        >>> ReasoningGym("chain_sum").source.id
        'reasoning-gym'
    """

    name: ClassVar[str] = "reasoning-gym"
    hazard: ClassVar[Hazard] = Hazard.EVALUATES
    code: ClassVar[tuple[str, ...]] = ("vapo.verifiers.answers", "vapo.verifiers.rules")
    libraries: ClassVar[tuple[str, ...]] = ("python", "reasoning-gym", "sympy")

    dataset: str = ""
    threshold: float = 1.0
    places: tuple[Place, ...] = EXACT_PLACES
    unreadable: Unreadable = "failure"

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", check_places(self.places))
        check_unreadable(self.unreadable)
        if not 0.0 < self.threshold <= 1.0:
            expected = "a score in (0, 1]"
            raise InputError(expected, repr(self.threshold), where="argument 'threshold'")

    def prepare(self) -> None:
        """Load the library, and the scorer where there is only one."""
        import reasoning_gym

        if self.dataset:
            _scorer(self.dataset)
        else:
            reasoning_gym.get_score_answer_fn("chain_sum")

    def _judge(self, item: Item) -> Outcome:
        try:
            entry = json.loads(item.reference)
            entry = {"question": item.question, "answer": entry["answer"], "metadata": entry["metadata"]}
            scorer = _scorer(self.dataset or entry["metadata"]["source_dataset"])
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            detail = f"the reference is no reasoning-gym entry: {type(error).__name__}"
            return Outcome(failure=Failure.UNPARSABLE, detail=detail)
        answer = final_text(item.completion, self.places)
        if answer is None:
            return unreadable_outcome(self.unreadable, "no answer")
        if "__" in answer:
            return Outcome(failure=Failure.REFUSED, detail="an answer that looks like a program")
        score = float(scorer(answer, entry))
        if not 0.0 <= score <= 1.0:
            return Outcome(failure=Failure.UNPARSABLE, detail="the score is not in [0, 1]")
        return Outcome(verdict=1 if score >= self.threshold else -1, detail=f"score {score:g}")


@lru_cache(maxsize=256)
def _scorer(dataset: str) -> Callable[[str, dict[str, Any]], float]:
    import reasoning_gym

    score: Callable[[str, dict[str, Any]], float] = reasoning_gym.get_score_answer_fn(dataset)
    return score
