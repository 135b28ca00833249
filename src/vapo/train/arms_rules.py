"""Admission without a certificate: the rules that rc-vapo is compared with, behind the same hook.

All of them see what the gate sees and nothing else. What they go by is fixed before the windows that they decide on:
thresholds by calibration observations, counts by a recorded run, draws by a key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import keyed_fraction
from vapo.actuator import Actuator, Updates
from vapo.errors import InputError
from vapo.metrics import match_magnitude, select_first, select_top
from vapo.policy import ObservedThreshold, Policy, Reason, ask, settle
from vapo.policy.build import planned_rates
from vapo.records import Records
from vapo.scores import FittedScore, fit_score
from vapo.train.batch import Admission, Window
from vapo.train.hook import CountingHook, actuated, answers, eligible
from vapo.verifiers import Item, Verifier

__all__ = [
    "BothAgree",
    "Followed",
    "LabelledOnly",
    "Matched",
    "ObservedGate",
    "RandomAppeal",
    "ThresholdGate",
    "pick_policy",
    "updates_of",
]

Floats = npt.NDArray[np.float64]
Reasons = npt.NDArray[np.uint8]

_SPAN = 0.2
"""How far below its acceptance, in quantile levels, an uncertified policy appeals: as a built family's candidates."""
_SECOND = 0.5


@dataclass(frozen=True, slots=True)
class Followed:
    """What a recorded run did in one update."""

    admitted: int
    accepted: int
    """Admitted without an appeal."""
    appealed: int
    magnitude: float
    """Mean size of an update over all records."""


def updates_of(records: Records) -> Iterator[tuple[str, slice]]:
    """The updates of a window, by name and rows.

    Example:
        >>> window = Window.of(ids=["a", "b"], groups=["q", "r"], window=["u0", "u1"], y=[1, 1], advantage=[0, 0],
        ...                    signals={"s": [1, 1]})
        >>> list(updates_of(window.records))
        [('u0', slice(0, 1, None)), ('u1', slice(1, 2, None))]
    """
    starts = [*records.window_starts().tolist(), len(records)]
    for first, last in pairwise(starts):
        yield str(records.window_names[int(records.window[first])]), slice(first, last)


def _followed(plan: Mapping[str, Followed], update: str) -> Followed:
    if update not in plan:
        expected = f"an update '{update}' in the run that is followed"
        raise InputError(expected, f"{len(plan)} others")
    return plan[update]


class LabelledOnly(CountingHook):
    """Applies what has a verdict and drops what has none: for learners that train on labels alone."""

    def __init__(self, actuator: Actuator) -> None:
        super().__init__()
        self._actuator = actuator

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept whatever has a verdict."""
        del items
        reason = eligible(window)
        reason[reason == Reason.NO_PRIMARY] = Reason.BELOW_THRESHOLD
        return self.count(actuated(self._actuator, window, reason, np.ones(len(window))))


class Matched(CountingHook):
    """As many proposals as a recorded run admitted in the same update, chosen without looking at any signal.

    Args:
        plan: What the recorded run did, by update.
        how: At random, by a stream of its own, or the first by id.
        key: Fixes the stream.
        actuator: How far a proposal moves the learner, before magnitudes are matched.
        magnitude: Whether the mean size of an update is matched too.

    Example:
        >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, -1], advantage=[0.7, -0.7],
        ...                    signals={"confidence": [0.9, 0.2]})
        >>> hook = Matched({"u0": Followed(1, 1, 0, 0.01)}, "first", Actuator("identity"), magnitude=True)
        >>> hook.admit(window).updates.update.round(3).tolist()
        [0.02, 0.0]
    """

    def __init__(
        self,
        plan: Mapping[str, Followed],
        how: Literal["random", "first"],
        actuator: Actuator,
        *,
        key: bytes = b"",
        magnitude: bool = False,
    ) -> None:
        super().__init__()
        self._plan, self._how, self._key = plan, how, key
        self._actuator, self._magnitude = actuator, magnitude

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept the wanted number, or all there are."""
        del items
        reason, ids = eligible(window), window.records.id.to_pylist()
        free = reason == Reason.ACCEPTED
        for name, rows in updates_of(window.records):
            wanted = min(_followed(self._plan, name).admitted, int(np.count_nonzero(free[rows])))
            if self._how == "first":
                chosen = select_first(ids[rows], wanted, eligible=free[rows])
            else:
                draws = [keyed_fraction(self._key, record) for record in ids[rows]]
                chosen = select_top(draws, ids[rows], wanted, eligible=free[rows])
            reason[rows][free[rows] & ~chosen] = Reason.BELOW_THRESHOLD
        admission = actuated(self._actuator, window, reason, np.ones(len(window)))
        return self.count(self._scaled(admission, window) if self._magnitude else admission)

    def _scaled(self, admission: Admission, window: Window) -> Admission:
        """Every update's magnitudes by one factor; where there is nothing to scale, nothing moves."""
        parts = admission.updates
        update = parts.update.copy()
        for name, rows in updates_of(window.records):
            target = _followed(self._plan, name).magnitude
            update[rows] = match_magnitude(parts.update[rows], parts.admitted[rows], target).update
        return replace(admission, updates=Updates(np.abs(update), update, parts.admitted, parts.unit))


class ThresholdGate(CountingHook):
    """A policy that nothing certified: thresholds on a score, with or without appeals.

    Args:
        policy: Its thresholds and its calls an update.
        score: What they are set on.
        actuator: How far an admitted proposal moves the learner.
        secondary: Answers appeals.
    """

    def __init__(
        self, policy: Policy, score: FittedScore, actuator: Actuator, *, secondary: Verifier | None = None
    ) -> None:
        super().__init__()
        self._policy, self._score, self._actuator, self._secondary = policy, score, actuator, secondary

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept, appeal or abstain by the policy."""
        score = self._score.apply(window.records)
        requests = ask(self._policy, window.records, score)
        given = None
        if self._secondary is not None and len(items):
            given = answers(self._secondary, items, requests.rows)
        reason = settle(requests, window.records, given).codes[0]
        calls = int(requests.calls.sum())
        return self.count(actuated(self._actuator, window, reason, score, calls=calls))

    def state_dict(self) -> dict[str, Any]:
        """The number of windows, and the policy."""
        return {**super().state_dict(), "policy": self._policy.as_dict()}


class ObservedGate(CountingHook):
    """The observed-only threshold action: ineligible proposals are nothing, eligible ones are capped.

    Args:
        gate: Its three thresholds.
        score: What trust is read from.
        actuator: How far what is left of a proposal moves the learner.
    """

    def __init__(self, gate: ObservedThreshold, score: FittedScore, actuator: Actuator) -> None:
        super().__init__()
        self._gate, self._score, self._actuator = gate, score, actuator

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept what is trusted enough and near enough to the reference."""
        del items
        score = self._score.apply(window.records)
        fits, delta_r, kl = self._gate.apply(window.records, score)
        reason = eligible(window)
        reason[(reason == Reason.ACCEPTED) & ~fits] = Reason.BELOW_THRESHOLD
        capped = replace(window, records=replace(window.records, delta_r=delta_r, kl=kl))
        return self.count(actuated(self._actuator, capped, reason, score))


class RandomAppeal(CountingHook):
    """As many acceptances and appeals as a recorded run, placed at random.

    Args:
        plan: What the recorded run did, by update.
        score: The score's rule; only the actuator reads it.
        actuator: How far an admitted proposal moves the learner.
        secondary: Answers appeals.
        key: Fixes the draws.
    """

    def __init__(
        self, plan: Mapping[str, Followed], score: str, actuator: Actuator, *, secondary: Verifier, key: bytes
    ) -> None:
        super().__init__()
        self._plan, self._score, self._actuator = plan, score, actuator
        self._secondary, self._key = secondary, key

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept some at random, ask about others at random."""
        records, ids = window.records, window.records.id.to_pylist()
        reason = eligible(window)
        asked = np.zeros(len(window), np.bool_)
        for name, rows in updates_of(records):
            wanted = _followed(self._plan, name)
            free = np.flatnonzero(reason[rows] == Reason.ACCEPTED) + rows.start
            free = free[np.argsort([keyed_fraction(self._key, ids[row]) for row in free], kind="stable")]
            asked[free[wanted.accepted : wanted.accepted + wanted.appealed]] = True
            reason[free[wanted.accepted :]] = Reason.BELOW_THRESHOLD
        _settle_asked(reason, records, asked, self._secondary, items)
        score = fit_score(self._score, records).apply(records)
        calls = int(np.count_nonzero(asked))
        return self.count(actuated(self._actuator, window, reason, score, calls=calls))


class BothAgree(CountingHook):
    """Asks the secondary about every record, and applies the proposals on which it agrees with the primary.

    Args:
        actuator: How far an admitted proposal moves the learner.
        secondary: The secondary verifier.
    """

    def __init__(self, actuator: Actuator, *, secondary: Verifier) -> None:
        super().__init__()
        self._actuator, self._secondary = actuator, secondary

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Ask about everything."""
        reason = eligible(window)
        proposed = reason == Reason.ACCEPTED
        asked = np.ones(len(window), np.bool_)
        told = reason.copy()
        _settle_asked(told, window.records, asked, self._secondary, items)
        reason[proposed] = told[proposed]
        admission = actuated(self._actuator, window, reason, np.ones(len(window)), calls=len(window))
        return self.count(replace(admission, asked=asked))


def _settle_asked(
    reason: Reasons,
    records: Records,
    asked: npt.NDArray[np.bool_],
    secondary: Verifier,
    items: Sequence[Item],
) -> None:
    """Put down what became of the records that the secondary was asked about."""
    given = answers(secondary, items, asked)
    agrees, silent = given.verdict == records.y, given.verdict == 0
    reason[asked] = np.select(
        [silent[asked], agrees[asked]],
        [np.uint8(Reason.SECONDARY_MISSING), np.uint8(Reason.CONFIRMED)],
        np.uint8(Reason.SECONDARY_DISAGREES),
    )


def pick_policy(design: Records, score: Floats, *, coverage: float, budget: int, appeals: bool) -> Policy:
    """The thresholds that come nearest to a coverage on calibration observations; no label is looked at.

    Args:
        design: Calibration records.
        score: Their scores.
        coverage: Share of the records with a proposal that should be admitted.
        budget: Calls an update.
        appeals: Whether scores a little below acceptance are appealed.

    Example:
        >>> window = Window.of(ids=list("abcd"), groups=list("abcd"), window="u0", y=[1, 1, 1, 1], advantage=[1] * 4,
        ...                    signals={"s": [0.1, 0.2, 0.3, 0.4]})
        >>> pick_policy(window.records, window.records.signals["s"], coverage=0.5, budget=0, appeals=False).pos.high
        0.25
    """
    free = design.y != 0 if design.delta_r is None else (design.y != 0) & (design.delta_r > 0)
    if not free.any():
        expected = "calibration records with a verdict and a proposal"
        raise InputError(expected, "none", where=design.where)
    pool = score[free]
    if not (appeals and budget):
        high = float(np.quantile(pool, 1.0 - coverage))
        return Policy.plain(high, high)
    levels = np.linspace(0.0, 1.0, 101)
    cuts = np.quantile(pool, levels), np.quantile(pool, np.maximum(levels - _SPAN, 0.0))
    candidates = [
        Policy.plain(float(low), float(high), _SECOND, budget=budget) for high, low in zip(*cuts, strict=True)
    ]
    planned, _ = planned_rates(candidates, design, score)
    wanted = coverage * float(np.mean(free))
    return candidates[int(np.argmin(np.abs(planned - wanted)))]
