"""Whose verdicts an arm is rewarded by: the step before admission, in which advantages come about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import keyed_fraction
from vapo.errors import InputError
from vapo.records import Source
from vapo.train.arms import Arm
from vapo.train.batch import Scale, advantages
from vapo.train.noise_correction import ErrorRates, corrected_advantages
from vapo.train.rollouts import Drawn, rows_of
from vapo.train.verdicts import Calls
from vapo.verifiers import Outcome, Verifier

__all__ = ["Rewarded", "Rewarding"]

Bits = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Rewarded:
    """The verdicts that an arm goes by, its advantages, and what they cost beyond the primary's calls."""

    y: Signs
    advantage: Floats
    primary: Source | None
    """Who gave the verdicts, if not the primary verifier."""
    asked: Bits
    """Completions that the secondary was asked about."""
    calls: Mapping[str, Calls]
    """What came of these calls, by update."""
    labelled: Bits
    """Completions whose clean label was spent."""
    rates: ErrorRates
    """What is known of the primary's errors behind the last update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewarding:
    """How an arm comes by its rewards, and whom it may ask for them."""

    arm: Arm
    scale: Scale
    oracle: Verifier
    secondary: Verifier
    budget: int
    """Calls an update that error rates may be estimated with."""
    key: bytes
    """Fixes which completions rates are estimated on."""
    quota: Mapping[str, int] = field(default_factory=dict)
    """Clean labels that an update may spend, by update, for arms that spend a given number."""
    keep_observed: bool = False
    """Whether completions that no label is left for keep the primary's verdict, or have none."""

    def reward(self, drawn: Drawn, rates: ErrorRates) -> Rewarded:
        """Verdicts and advantages of some updates' completions, one update after the other.

        Args:
            drawn: The completions.
            rates: What is known of the primary's errors so far.
        """
        kind, y = self.arm.reward, drawn.y.copy()
        labelled, asked = np.zeros(len(drawn), np.bool_), np.zeros(len(drawn), np.bool_)
        calls: dict[str, Calls] = {}
        primary: Source | None = None
        known: list[tuple[slice, ErrorRates]] = []
        if kind == "clean":
            labelled[:] = True
        elif kind == "labelled":
            labelled = self._labelled(drawn)
            y = y if self.keep_observed else np.zeros_like(y)
        if labelled.any():
            primary = self.oracle.source
            y[labelled] = self._signs(self.oracle, drawn, labelled)
        for update, rows in rows_of(drawn.updates):
            if kind in ("augmented", "backward", "forward"):
                asked[rows] = self._to_ask(drawn, rows)
                told = self._asked(drawn, asked, rows)
                calls[update] = Calls.of(told)
                y2 = np.zeros(len(drawn), np.int8)
                y2[np.flatnonzero(asked[rows]) + rows.start] = [outcome.sign for outcome in told]
                if kind == "augmented":
                    y[(y < 0) & (y2 > 0)] = 1
                else:
                    rates = rates.seen(drawn.y[rows], y2[rows])
            known.append((rows, rates))
        reward = np.where(y == 0, np.nan, (y > 0).astype(np.float64))
        if kind == "backward" or kind == "forward":
            parts = [
                corrected_advantages(reward[rows], drawn.prompts[rows], at, how=kind, scale=self.scale)
                for rows, at in known
            ]
        else:
            parts = [advantages(reward[rows], drawn.prompts[rows], scale=self.scale) for rows, _ in known]
        return Rewarded(y, np.concatenate(parts), primary, asked, calls, labelled, rates)

    def _to_ask(self, drawn: Drawn, rows: slice) -> Bits:
        """What the secondary is asked about: all that was rejected, or as many at random as the budget allows."""
        y = drawn.y[rows]
        if self.arm.reward == "augmented":
            return y < 0
        chosen = np.zeros(len(y), np.bool_)
        draws = [keyed_fraction(self.key, item.id) for item in drawn.items[rows]]
        order = np.argsort(np.where(y == 0, 2.0, draws), kind="stable")
        chosen[order[: min(self.budget, int(np.count_nonzero(y)))]] = True
        return chosen

    def _asked(self, drawn: Drawn, asked: Bits, rows: slice) -> list[Outcome]:
        place = np.flatnonzero(asked[rows]) + rows.start
        return self.secondary.verify([drawn.items[row] for row in place.tolist()]) if len(place) else []

    def _signs(self, verifier: Verifier, drawn: Drawn, wanted: Bits) -> list[int]:
        place = np.flatnonzero(wanted).tolist()
        return [outcome.sign for outcome in verifier.verify([drawn.items[row] for row in place])]

    def _labelled(self, drawn: Drawn) -> Bits:
        """Whole questions, in their order, as long as an update's labels last; what is left over is carried on."""
        labelled, left = np.zeros(len(drawn), np.bool_), 0
        for update, rows in rows_of(drawn.updates):
            if update not in self.quota:
                expected = f"labels for the update '{update}' in the run that is followed"
                raise InputError(expected, f"{len(self.quota)} other updates")
            left += self.quota[update]
            for _, some in groupby(range(rows.start, rows.stop), key=drawn.prompts.__getitem__):
                group = list(some)
                if len(group) > left:
                    break
                labelled[group] = True
                left -= len(group)
        return labelled
