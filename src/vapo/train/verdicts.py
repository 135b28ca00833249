"""The verifiers of a run: opened by name, made to err as configured, and their calls counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError
from vapo.records import Source
from vapo.tasks.base import Task
from vapo.train.config import Judging, Named
from vapo.verifiers import Item, Outcome, Verifier
from vapo.verifiers.channels import Channel, Kind

__all__ = ["Calls", "Judge", "open_judge", "open_verifier"]


@dataclass(frozen=True, slots=True)
class Calls:
    """What was asked of a verifier, and what came of it.

    Example:
        >>> Calls(reserved=2, settled=1, failed=1) + Calls(reserved=1, lost=1)
        Calls(reserved=3, settled=1, failed=1, lost=1, cache_hits=0, tokens_in=0, tokens_out=0)
    """

    reserved: int = 0
    """Calls that the budget was charged with."""
    settled: int = 0
    """Those that brought a verdict."""
    failed: int = 0
    """Those that brought none."""
    lost: int = 0
    """Those that were in flight when the process died."""
    cache_hits: int = 0
    """Verdicts that were there already, and cost nothing."""
    tokens_in: int = 0
    tokens_out: int = 0

    def __add__(self, other: Calls) -> Calls:
        return Calls(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Calls:
        """Calls whose outcomes are these."""
        settled = sum(outcome.verdict is not None for outcome in outcomes)
        return cls(
            reserved=len(outcomes),
            settled=settled,
            failed=len(outcomes) - settled,
            tokens_in=sum(outcome.cost.tokens_in for outcome in outcomes),
            tokens_out=sum(outcome.cost.tokens_out for outcome in outcomes),
        )

    def as_dict(self) -> dict[str, int]:
        """The counts by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


class Judge:
    """A verifier and its error channel, as one verifier.

    Persistent errors hang on the question and the final answer, so that all wordings of one answer share them.

    Args:
        verifier: The one behind the channel.
        channel: The way to err.
        answer: Reads the final answer out of a completion.
        reading: Digest of how it does so.
    """

    def __init__(
        self, verifier: Verifier, channel: Channel, answer: Callable[[str], str | None], reading: str
    ) -> None:
        self._verifier, self._answer = verifier, answer
        self._sure: dict[str, float] = {}
        self.channel = channel
        behind = verifier.source
        self.source = behind
        """Who judges: the verifier itself where no channel is in the way."""
        if channel.kind is not Kind.NONE:
            parts = {"verifier": behind.digest, "channel": channel.as_dict(), "reading": reading}
            self.source = Source(f"{behind.id}+{channel.kind}", sha256_hex(canonical_json(parts)))

    def verify(self, items: Sequence[Item], confidence: npt.ArrayLike | None = None) -> list[Outcome]:
        """The outcomes, some verdicts turned round.

        Args:
            items: What is judged.
            confidence: What a confidence-dependent channel goes by; by default what it was told last, or else the
                verifier's own.
        """
        outcomes = self._outcomes(items)
        if self.channel.kind is Kind.NONE or not outcomes:
            return outcomes
        if confidence is None:
            pairs = zip(items, outcomes, strict=True)
            confidence = [self._sure.get(item.id, outcome.confidence) for item, outcome in pairs]
        said = self.channel.apply(
            [outcome.sign for outcome in outcomes],
            ids=[item.id for item in items],
            contents=[self._content(item) for item in items],
            answers=[item.completion for item in items],
            confidence=np.clip(np.asarray(confidence, np.float64), 0.0, 1.0),
        )
        return [
            outcome if outcome.verdict is None else replace(outcome, verdict=int(sign))
            for outcome, sign in zip(outcomes, said, strict=True)
        ]

    def tell(self, items: Sequence[Item], confidence: npt.ArrayLike) -> None:
        """Say how sure the policy was of completions that it may be asked about later."""
        known = np.asarray(confidence, np.float64).tolist()
        self._sure = {item.id: sure for item, sure in zip(items, known, strict=True)}

    def _outcomes(self, items: Sequence[Item]) -> list[Outcome]:
        """The sound outcomes; copies of one completion, of which a small model writes many, are judged once."""
        if getattr(self._verifier, "by_id", False):
            return self._verifier.verify(items)
        first: dict[tuple[str, str, str], int] = {}
        place = [first.setdefault((i.question, i.completion, i.reference), len(first)) for i in items]
        once: list[Item] = []
        for item, number in zip(items, place, strict=True):
            if number == len(once):
                once.append(item)
        outcomes = self._verifier.verify(once)
        return [outcomes[number] for number in place]

    def _content(self, item: Item) -> str:
        answer = self._answer(item.completion)
        return f"{item.question}\n{item.completion if answer is None else answer}"

    def close(self) -> None:
        """Stop the processes or connections that the verifier holds, if it holds any."""
        with suppress(AttributeError):
            self._verifier.close()  # type: ignore[attr-defined]


def open_judge(judging: Judging, task: Task, *, run: str = "", name: str = "") -> Judge:
    """The verifier that a configuration names, behind its channel.

    Args:
        judging: What is configured.
        task: Whose answers are judged.
        run: Fixes the channel's draws, with its cause those that it shares with other verifiers of the run.
        name: Fixes, with the run, those that are its own.

    Example:
        >>> from vapo.tasks import open_task
        >>> judge = open_judge(Judging(kind="symmetric", rate=1.0), open_task("arithmetic"), run="run 7")
        >>> judge.source.id, judge.verify([Item("a", "12+34", "46", "46")])[0].verdict
        ('oracle+symmetric', -1)
    """
    verifier = open_verifier(judging.verifier, task)
    return Judge(verifier, judging.channel(run, name), task.answer, task.oracle.source.digest)


def open_verifier(named: Named, task: Task) -> Verifier:
    """A verifier by name: the task's oracle, a rule, or math-verify in killable processes.

    Args:
        named: Its name and what it is opened with.
        task: Whose answers are judged.

    Raises:
        InputError: There is no verifier of that name, or it does not know an option.
    """
    if named.name not in _OPENERS:
        expected = f"a verifier among {', '.join(_OPENERS)}"
        raise InputError(expected, repr(named.name))
    try:
        return _OPENERS[named.name](task, dict(named.options))
    except TypeError as error:
        expected = f"options of the verifier '{named.name}'"
        raise InputError(expected, str(error)) from None


def _oracle(task: Task, options: dict[str, Any]) -> Verifier:
    if options:
        expected = "no options"
        raise InputError(expected, ", ".join(options), where="verifier 'oracle'")
    return task.oracle


def _numeric(task: Task, options: dict[str, Any]) -> Verifier:
    from vapo.verifiers.numeric import Numeric

    return Numeric(**({"places": task.oracle.reading.places, "unreadable": "wrong"} | options))


def _exact(task: Task, options: dict[str, Any]) -> Verifier:
    from vapo.verifiers.exact import Exact

    return Exact(**({"places": task.oracle.reading.places, "unreadable": "wrong"} | options))


def _math_verify(task: Task, options: dict[str, Any]) -> Verifier:
    from vapo.verifiers.mathverify import MathVerify
    from vapo.verifiers.pool import Pool

    pool = {name: options.pop(name) for name in ("workers", "deadline") if name in options}
    return Pool(MathVerify(**options), **pool)


_OPENERS: Mapping[str, Callable[[Task, dict[str, Any]], Verifier]] = {
    "oracle": _oracle,
    "numeric": _numeric,
    "exact": _exact,
    "math-verify": _math_verify,
}
