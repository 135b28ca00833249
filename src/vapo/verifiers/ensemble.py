"""Verifiers made of verifiers: the majority, the most likely verdict given how often each errs, cheap ones first."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vapo.errors import InputError
from vapo.records import Source
from vapo.verifiers.base import Cost, Failure, Item, Outcome, Verifier, terms_of
from vapo.verifiers.ensemble_raters import FEWEST, Raters, fit_raters
from vapo.verifiers.origin import source_of

__all__ = ["Cascade", "DawidSkene", "Majority", "Stage"]

_CODE = ("vapo.verifiers.ensemble", "vapo.verifiers.ensemble_raters")


class _Ensemble:
    """What ensembles have in common: a digest over those of their members, and the sum of their costs."""

    def __init__(
        self, name: str, members: Sequence[Verifier], config: dict[str, Any], *, fewest: int
    ) -> None:
        self.members = tuple(members)
        """The verifiers that it asks."""
        digests = [member.source.digest for member in members]
        if len(members) < fewest or len(set(digests)) < len(digests):
            expected = f"at least {fewest} verifiers with different digests"
            got = ", ".join(member.source.id for member in members) or "none"
            raise InputError(expected, got, where=f"ensemble '{name}'")
        ids = "+".join(member.source.id for member in members)
        self._source = source_of(f"{name}({ids})", {**config, "members": digests}, modules=_CODE)

    @property
    def source(self) -> Source:
        """Its id, and a digest over its members' digests and how they are combined."""
        return self._source

    @property
    def by_id(self) -> bool:
        """Whether verdicts depend on the record's id."""
        return any(terms_of(member).by_id for member in self.members)

    @property
    def honours_keys(self) -> bool:
        """Whether asking again is paid once, as it is where every member says so."""
        return all(terms_of(member).honours_keys for member in self.members)

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost."""
        return sum(terms_of(member).most_calls for member in self.members)


def _ask_all(members: Sequence[Verifier], items: Sequence[Item]) -> list[list[Outcome]]:
    """The outcomes of every member, who work at the same time; one list an item."""
    with ThreadPoolExecutor(len(members), thread_name_prefix="vapo ensemble") as pool:
        found = list(pool.map(lambda member: member.verify(items), members))
    return [list(row) for row in zip(*found, strict=True)]


def _cost(outcomes: Sequence[Outcome]) -> Cost:
    calls, tokens_in, tokens_out, seconds = (
        sum(parts) for parts in zip(*(o.cost for o in outcomes), strict=True)
    )
    return Cost(int(calls), int(tokens_in), int(tokens_out), float(seconds))


def _silent(outcomes: Sequence[Outcome], detail: str) -> Outcome:
    """No verdict: the first member's failure says why, or else they did not agree."""
    failure = next((o.failure for o in outcomes if o.failure is not None), Failure.REFUSED)
    return Outcome(failure=failure, cost=_cost(outcomes), detail=detail)


class Majority(_Ensemble):
    """The verdict that more members give than the other; a tie is none.

    Its confidence is the share of all members that gave it, so members that failed lower it.

    Args:
        members: Verifiers with different sources, asked at the same time.
        quorum: How many verdicts there must be.

    Example:
        >>> class Says:
        ...     def __init__(self, name, verdict):
        ...         self.source, self.verdict = Source(name, name * 64), verdict
        ...     def verify(self, items):
        ...         return [Outcome(verdict=self.verdict) for _ in items]
        >>> outcome, = Majority([Says("a", 1), Says("b", -1), Says("c", 1)]).verify([Item("x", "1 + 1 = ?", "2")])
        >>> outcome.verdict, round(outcome.confidence, 3)
        (1, 0.667)
    """

    def __init__(self, members: Sequence[Verifier], *, quorum: int = 1) -> None:
        if not 1 <= quorum <= len(members):
            expected = f"a quorum from 1 to {len(members)}"
            raise InputError(expected, str(quorum), where="argument 'quorum'")
        super().__init__("majority", members, {"quorum": quorum}, fewest=2)
        self._quorum = quorum

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Ask every member about every item."""
        return [self._decide(outcomes) for outcomes in _ask_all(self.members, items)]

    def _decide(self, outcomes: list[Outcome]) -> Outcome:
        yes, no = (sum(outcome.verdict == sign for outcome in outcomes) for sign in (1, -1))
        told = f"{yes} say right, {no} say wrong, {len(outcomes) - yes - no} say nothing"
        if yes + no < self._quorum:
            return _silent(outcomes, told)
        if yes == no:
            return Outcome(failure=Failure.REFUSED, cost=_cost(outcomes), detail=told)
        share = max(yes, no) / len(outcomes)
        return Outcome(1 if yes > no else -1, share, cost=_cost(outcomes), detail=told)


class DawidSkene(_Ensemble):
    """The more likely verdict, given how often each member accepts right and wrong answers.

    Its confidence is the posterior of that verdict under independent errors: too sure where members err together.

    Args:
        members: Verifiers with different sources, asked at the same time.
        raters: What is believed of them, in their order; `DawidSkene.fit` learns it without labels.

    Example:
        >>> class Says:
        ...     def __init__(self, name, verdict):
        ...         self.source, self.verdict = Source(name, name * 64), verdict
        ...     def verify(self, items):
        ...         return [Outcome(verdict=self.verdict) for _ in items]
        >>> raters = Raters(0.5, (0.9, 0.6, 0.6), (0.1, 0.4, 0.4))
        >>> ensemble = DawidSkene([Says("a", 1), Says("b", -1), Says("c", -1)], raters)
        >>> outcome, = ensemble.verify([Item("x", "1 + 1 = ?", "2")])
        >>> outcome.verdict, round(outcome.confidence, 3)
        (1, 0.8)
    """

    def __init__(self, members: Sequence[Verifier], raters: Raters) -> None:
        super().__init__("dawid-skene", members, {"raters": raters.as_dict()}, fewest=2)
        if len(raters.yes_if_right) != len(members):
            expected = f"rates of {len(members)} verifiers"
            raise InputError(expected, str(len(raters.yes_if_right)), where="argument 'raters'")
        self.raters = raters
        """What is believed of the members."""

    @classmethod
    def fit(cls, members: Sequence[Verifier], items: Sequence[Item]) -> DawidSkene:
        """Ask the members about items that have no labels, and learn from their verdicts how often each errs."""
        if len(members) < FEWEST:
            expected = f"at least {FEWEST} verifiers to learn error rates from"
            raise InputError(expected, str(len(members)), where="argument 'members'")
        votes = [[outcome.sign for outcome in row] for row in _ask_all(members, items)]
        return cls(members, fit_raters(np.array(votes, np.int8).reshape(-1, len(members))))

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Ask every member about every item."""
        rows = _ask_all(self.members, items)
        votes = np.array([[outcome.sign for outcome in row] for row in rows], np.int8)
        chances = self.raters.posterior(votes.reshape(-1, len(self.members))).tolist()
        return [self._decide(row, chance) for row, chance in zip(rows, chances, strict=True)]

    def _decide(self, outcomes: list[Outcome], chance: float) -> Outcome:
        told = f"right with chance {chance:.4f}"
        if chance == 0.5 or all(outcome.verdict is None for outcome in outcomes):
            return _silent(outcomes, told)
        verdict = 1 if chance > 0.5 else -1
        return Outcome(verdict, max(chance, 1 - chance), cost=_cost(outcomes), detail=told)


@dataclass(frozen=True, slots=True)
class Stage:
    """One verifier of a cascade, and when it has the last word."""

    verifier: Verifier
    believes: tuple[int, ...] = (1, -1)
    """The verdicts that end the cascade: `(1,)` where only a yes is believed, as of a strict comparison."""
    confidence: float = 0.0
    """How sure it must be."""


class Cascade(_Ensemble):
    """Asks one verifier after the other, each about what the ones before left open: cheap first.

    The outcome is that of the stage which had the last word; its cost, that of all stages that were asked. Where the
    last stage is not believed either, there is no verdict.

    Args:
        stages: Verifiers, or stages with what is believed of them.

    Example:
        >>> class Says:
        ...     def __init__(self, name, verdict):
        ...         self.source, self.verdict, self.asked = Source(name, name * 64), verdict, 0
        ...     def verify(self, items):
        ...         self.asked += len(items)
        ...         return [Outcome(verdict=self.verdict) for _ in items]
        >>> strict, judge = Says("a", -1), Says("b", 1)
        >>> cascade = Cascade([Stage(strict, believes=(1,)), judge])
        >>> cascade.verify([Item("x", "1 + 1 = ?", "two")])[0].verdict, judge.asked
        (1, 1)
    """

    def __init__(self, stages: Sequence[Verifier | Stage]) -> None:
        self._stages = [stage if isinstance(stage, Stage) else Stage(stage) for stage in stages]
        for stage in self._stages:
            if not set(stage.believes) <= {1, -1} or not stage.believes or not 0.0 <= stage.confidence <= 1.0:
                expected = "verdicts among +1 and -1 to believe, and a confidence in [0, 1]"
                got = f"{stage.believes}, {stage.confidence}"
                raise InputError(expected, got, where=f"stage '{stage.verifier.source.id}'")
        config = {"stages": [[sorted(stage.believes), stage.confidence] for stage in self._stages]}
        super().__init__("cascade", [stage.verifier for stage in self._stages], config, fewest=2)

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Ask the first stage about every item, and each further one about what is open."""
        found: list[list[Outcome]] = [[] for _ in items]
        final: dict[int, Outcome] = {}
        for stage in self._stages:
            rest = [number for number in range(len(items)) if number not in final]
            if not rest:
                break
            outcomes = stage.verifier.verify([items[number] for number in rest])
            for number, outcome in zip(rest, outcomes, strict=True):
                found[number].append(outcome)
                if outcome.verdict in stage.believes and outcome.confidence >= stage.confidence:
                    final[number] = outcome
        return [
            replace(final.get(number) or _silent(outcomes[-1:], "left open"), cost=_cost(outcomes))
            for number, outcomes in enumerate(found)
        ]
