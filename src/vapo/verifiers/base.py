"""The one shape that every verifier has: a batch of items in, a batch of outcomes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from vapo.errors import InputError
from vapo.records import Source

__all__ = ["FREE", "Cost", "Failure", "Item", "Outcome", "Terms", "Verifier", "terms_of"]


@dataclass(frozen=True, slots=True)
class Item:
    """One completion to be judged."""

    id: str
    """Name of the record that it belongs to."""
    question: str
    """What was asked."""
    completion: str
    """What the model answered, whole."""
    reference: str = ""
    """What the verifier may compare with: a reference answer, tests, or nothing."""


class Failure(StrEnum):
    """Why there is no verdict. A failure never means that the answer is wrong."""

    TIMEOUT = "timeout"
    """The deadline passed."""
    CRASH = "crash"
    """The verifier, or the process that ran it, died."""
    UNPARSABLE = "unparsable"
    """What it was given, or what it answered, could not be read."""
    REFUSED = "refused"
    """It declined to judge."""
    OVER_BUDGET = "over_budget"
    """No call was left to ask it with."""
    LOST = "lost"
    """A paid call was in flight when the process died, and nobody can tell what came of it."""


class Cost(NamedTuple):
    """What a verdict cost."""

    calls: int = 0
    """Requests to a paid or remote verifier."""
    tokens_in: int = 0
    """Tokens that were sent."""
    tokens_out: int = 0
    """Tokens that came back."""
    seconds: float = 0.0
    """Time of the work itself; outside every digest."""


_MOST = (1 << 63) - 1
FREE = Cost()
"""What costs nothing."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict, or the reason why there is none.

    Example:
        >>> Outcome(verdict=1, confidence=0.9).sign
        1
        >>> Outcome(failure=Failure.TIMEOUT).sign
        0
    """

    verdict: int | None = None
    """+1 right, -1 wrong; None where there is no verdict."""
    confidence: float = 1.0
    """How sure the verifier is of its verdict, in [0, 1]."""
    failure: Failure | None = None
    """Why there is no verdict; None where there is one."""
    cost: Cost = FREE
    """What it cost, whatever came of it."""
    detail: str = ""
    """What a person would want to know about it."""

    def __post_init__(self) -> None:
        if (self.verdict is None) is (self.failure is None):
            expected = "either a verdict or a failure"
            raise InputError(expected, f"verdict={self.verdict!r}, failure={self.failure!r}", where="outcome")
        if self.verdict not in (None, 1, -1):
            expected = "a verdict in {-1, +1}"
            raise InputError(expected, repr(self.verdict), where="outcome")
        if not 0.0 <= self.confidence <= 1.0:
            expected = "a confidence in [0, 1]"
            raise InputError(expected, repr(self.confidence), where="outcome")
        *counts, seconds = self.cost
        if not all(isinstance(n, int) and 0 <= n <= _MOST for n in counts) or not 0.0 <= seconds < float(
            "inf"
        ):
            expected = "a cost of whole numbers and finite seconds, none below 0"
            raise InputError(expected, repr(self.cost), where="outcome")
        if not isinstance(self.detail, str):
            expected = "a text as detail"
            raise InputError(expected, repr(self.detail), where="outcome")
        # Numbers of other libraries compare like these, but cannot be stored or sent.
        if self.verdict is not None:
            object.__setattr__(self, "verdict", int(self.verdict))
        object.__setattr__(self, "confidence", float(self.confidence))

    @property
    def sign(self) -> int:
        """The verdict as records hold it: 0 where there is none."""
        return self.verdict or 0


class Verifier(Protocol):
    """Judges completions."""

    @property
    def source(self) -> Source:
        """Its id, and a digest of everything that its verdicts depend on."""
        ...

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """One outcome for each item, in their order; it raises for misuse only, never for an item."""
        ...


class Terms(NamedTuple):
    """On which terms a verifier is asked. It may say so by attributes of these names; these are what silence means."""

    by_id: bool = False
    """Whether its verdicts depend on the record's id, so that an answer about one record says nothing of a copy."""
    honours_keys: bool = False
    """Whether asking again about the same item is paid once, or free in any case."""
    most_calls: int = 1
    """The most calls that an item can cost."""


def terms_of(verifier: Verifier) -> Terms:
    """The terms of a verifier, as it says or as silence means.

    Example:
        >>> class Silent:
        ...     def verify(self, items):
        ...         return []
        >>> terms_of(Silent())
        Terms(by_id=False, honours_keys=False, most_calls=1)
    """
    silent = Terms()
    return Terms(
        bool(getattr(verifier, "by_id", silent.by_id)),
        bool(getattr(verifier, "honours_keys", silent.honours_keys)),
        int(getattr(verifier, "most_calls", silent.most_calls)),
    )
