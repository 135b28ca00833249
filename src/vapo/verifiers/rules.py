"""What every rule verifier is: a small value that judges one item at a time, and says what it may do to its process."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from functools import lru_cache
from typing import ClassVar, Literal

from vapo.errors import InputError
from vapo.records import Source
from vapo.verifiers.base import Failure, Item, Outcome
from vapo.verifiers.origin import source_of

__all__ = ["Hazard", "Rule", "Unreadable", "check_unreadable", "grant", "unreadable_outcome"]

Unreadable = Literal["failure", "wrong"]
"""What becomes of a completion in which no answer can be read: no verdict, or the verdict that it is wrong."""


class Hazard(IntEnum):
    """The worst that an item can make a verifier do; it decides where the verifier may run."""

    NONE = 0
    """It ends soon on every input: it may run anywhere."""
    HANGS = 1
    """It may hang, crash or fill the memory: it runs in the workers of a pool, which can be killed."""
    EVALUATES = 2
    """It may run what it is given as a program: it runs in sandboxed workers only."""


_granted = Hazard.NONE


def grant(hazard: Hazard) -> None:
    """Say what this process can bear. Workers do so for themselves; nobody else should."""
    global _granted
    _granted = hazard


@dataclass(frozen=True)
class Rule(ABC):
    """Judges a completion by fixed code. Two rules with equal settings are one source."""

    name: ClassVar[str]
    """The id of its source."""
    hazard: ClassVar[Hazard] = Hazard.NONE
    """The worst that an item can make it do."""
    code: ClassVar[tuple[str, ...]] = ()
    """Modules of this package, beside its own, whose code decides."""
    honours_keys: ClassVar[bool] = True
    """Asking a rule again costs nothing."""
    most_calls: ClassVar[int] = 0
    """It makes no calls."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Installed distributions that decide, and `python` where its own behaviour does."""

    @property
    def source(self) -> Source:
        """Its id, and a digest over its settings, its code and the libraries that it uses."""
        return _source(self)

    def prepare(self) -> None:  # noqa: B027 - most rules have nothing to load
        """Load what judging needs, so that no item pays for it."""

    @abstractmethod
    def _judge(self, item: Item) -> Outcome: ...

    def judge(self, item: Item) -> Outcome:
        """Judge one item in this process, whatever it does to it; only a rule that evaluates refuses to."""
        if self.hazard is Hazard.EVALUATES:
            self._check()
        return self._judge(item)

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """One outcome for each item, in their order.

        Raises:
            InputError: If this rule can harm the process that it is called in. Put it in a `Pool`.
        """
        self._check()
        return [self._judge(item) for item in items]

    def _check(self) -> None:
        if self.hazard > _granted:
            kind = type(self).__name__
            expected = f"a pool around a verifier that can hang, crash or run programs: Pool({kind}(...))"
            raise InputError(expected, "a call in the calling process", where=kind)


@lru_cache(maxsize=256)
def _source(rule: Rule) -> Source:
    kind = type(rule)
    config = json.loads(json.dumps(asdict(rule)))
    return source_of(kind.name, config, modules=[kind.__module__, *kind.code], libraries=kind.libraries)


def unreadable_outcome(unreadable: Unreadable, detail: str) -> Outcome:
    """What a rule says about a completion that it found no answer in.

    Example:
        >>> unreadable_outcome("wrong", "no number").verdict, unreadable_outcome("failure", "no number").verdict
        (-1, None)
    """
    if unreadable == "wrong":
        return Outcome(verdict=-1, detail=detail)
    return Outcome(failure=Failure.UNPARSABLE, detail=detail)


def check_unreadable(value: str) -> None:
    """Refuse what is neither of the two ways."""
    if value not in ("failure", "wrong"):
        expected = "'failure' or 'wrong'"
        raise InputError(expected, repr(value), where="argument 'unreadable'")
