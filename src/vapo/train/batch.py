"""What goes from an engine to the admission hook and back: one update's completions, and what becomes of each.

Both engines build a `Window`, hand it to the hook, and turn the `Admission` that comes back into the same loss:

    loss = -sum_i weight_i * sum_t min(ratio_it * c_i, clip(ratio_it) * c_i)

with c_i the coefficient of completion i on its score-function term (signed update / unit; the advantage itself under
the identity actuator) and weight_i what `row_weights` says. The rows that are not kept are out of the loss, of its
denominators and of its KL term: exactly the loss of the batch from which they were dropped after advantages were
computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo.actuator import Updates
from vapo.errors import InputError
from vapo.policy import Reason
from vapo.records import Records, Source

__all__ = ["UNIT", "Admission", "Loss", "Scale", "Window", "advantages", "agreeing", "row_weights", "towards"]

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]
Loss = Literal["grpo", "dr_grpo", "dapo"]
Scale = Literal["group", "batch", "none"]

UNIT = 0.1
"""Ratio change that an advantage of 1 proposes."""
_EPSILON = 1e-4


def advantages(reward: npt.ArrayLike, group: npt.ArrayLike, *, scale: Scale = "group") -> Floats:
    """Advantages from all observed verdicts of a window, before any gate.

    A completion without a verdict (NaN) has no part in its group's baseline, and its own advantage is 0.

    Args:
        reward: Rewards, NaN where the primary verifier gave no verdict.
        group: The group of each completion, by any number or name.
        scale: Divide by the standard deviation of the group, of the batch, or by nothing.

    Example:
        >>> advantages([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1]).round(3).tolist()
        [0.707, -0.707, 0.0, 0.0]
    """
    if scale not in get_args(Scale):
        expected = f"one of {', '.join(get_args(Scale))}"
        raise InputError(expected, repr(scale), where="argument 'scale'")
    value = np.asarray(reward, np.float64)
    _, code = np.unique(np.asarray(group), return_inverse=True)
    if value.ndim != 1 or code.shape != value.shape:
        expected = "one reward and one group for each completion"
        raise InputError(expected, f"{value.shape} and {code.shape}", where="argument 'reward'")
    seen = ~np.isnan(value)
    centred = np.where(seen, value, 0.0)
    count = np.bincount(code, weights=seen)
    mean = np.bincount(code, weights=centred) / np.maximum(count, 1)
    centred = np.where(seen & ~agreeing(value, code), centred - mean[code], 0.0)
    if scale == "none":
        return centred
    if scale == "group":
        squares, spread = np.bincount(code, weights=centred**2), np.maximum(count - 1, 1)
        return np.asarray(centred / (np.sqrt(squares / spread)[code] + _EPSILON))
    deviation = float(np.std(value[seen], ddof=1)) if np.count_nonzero(seen) > 1 else 0.0
    return np.asarray(centred / (deviation + _EPSILON))


def agreeing(reward: npt.ArrayLike, group: npt.ArrayLike) -> Bits:
    """Completions of groups whose rewards are all one: a mean that is off by a rounding error proposes nothing.

    Example:
        >>> agreeing([0.1, 0.1, 0.1, 0.1, 0.7], [0, 0, 0, 1, 1]).tolist()
        [True, True, True, False, False]
    """
    value = np.asarray(reward, np.float64)
    _, code = np.unique(np.asarray(group), return_inverse=True)
    low, high = np.full(len(value), np.inf), np.full(len(value), -np.inf)
    np.fmin.at(low, code, value)
    np.fmax.at(high, code, value)
    return np.asarray(low[code] == high[code])


def row_weights(lengths: npt.ArrayLike, kept: npt.ArrayLike, *, loss: Loss, max_tokens: int) -> Floats:
    """What each completion's summed token losses are multiplied with; 0 for rows that are not kept.

    Args:
        lengths: Tokens of each completion.
        kept: Which rows stay in the batch.
        loss: `grpo` (mean over completions of their token means), `dr_grpo` (constant length) or `dapo` (token mean).
        max_tokens: The length that `dr_grpo` divides by.

    Example:
        >>> row_weights([2, 4, 4], [True, True, False], loss="grpo", max_tokens=8).tolist()
        [0.25, 0.125, 0.0]
        >>> row_weights([2, 4, 4], [True, True, False], loss="dapo", max_tokens=8).round(3).tolist()
        [0.167, 0.167, 0.0]
    """
    if loss not in get_args(Loss):
        expected = f"one of {', '.join(get_args(Loss))}"
        raise InputError(expected, repr(loss), where="argument 'loss'")
    size, stays = np.asarray(lengths, np.float64), np.asarray(kept, np.bool_)
    rows = max(int(np.count_nonzero(stays)), 1)
    if loss == "grpo":
        weight = 1.0 / (rows * np.maximum(size, 1.0))
    elif loss == "dr_grpo":
        weight = np.full(size.shape, 1.0 / (rows * max_tokens))
    else:
        weight = np.full(size.shape, 1.0 / max(float(size[stays].sum()), 1.0))
    return np.where(stays, weight, 0.0)


def towards(y: npt.ArrayLike, favour: npt.ArrayLike) -> Floats:
    """Turn what speaks for an answer into what speaks for its verdict: 1 - x where the verdict is negative.

    Example:
        >>> towards([1, -1, 0], [0.75, 0.75, 0.75]).tolist()
        [0.75, 0.25, 0.5]
    """
    sign, value = np.asarray(y), np.clip(np.asarray(favour, np.float64), 0.0, 1.0)
    return np.where(sign > 0, value, np.where(sign < 0, 1.0 - value, 0.5))


@dataclass(frozen=True, slots=True)
class Window:
    """Completions as the gate may see them, in their declared order: those of one update, or of several in a row."""

    records: Records
    """Id, group (the prompt), verdict y, signals, further verdicts, delta_r = unit * |advantage|, kl."""
    advantage: Floats
    """Computed once from all observed verdicts."""

    def __len__(self) -> int:
        return len(self.records)

    @classmethod
    def of(
        cls,
        *,
        ids: Sequence[str],
        groups: Sequence[str],
        window: str | Sequence[str],
        y: npt.ArrayLike,
        advantage: npt.ArrayLike,
        signals: Mapping[str, npt.ArrayLike],
        verdicts: Mapping[str, npt.ArrayLike] | None = None,
        kl: npt.ArrayLike | None = None,
        content: Sequence[str] | None = None,
        sources: Mapping[str, Source] | None = None,
        unit: float = UNIT,
    ) -> Window:
        """Put an update's columns together.

        Args:
            ids: A name for each completion, never used before in the run.
            groups: The prompt of each completion.
            window: The name of the update, or of the update of each completion, one update behind the other.
            y: Verdicts of the primary verifier, 0 where it gave none.
            advantage: What `advantages` gave for the observed verdicts.
            signals: Trust in each verdict, in [0, 1], oriented towards it (see `towards`).
            verdicts: Further verifiers' verdicts.
            kl: Measured KL of each completion to the reference, 0 or more.
            content: The text by which copies of a prompt are found.
            sources: Who produced which column.
            unit: Ratio change that an advantage of 1 proposes.

        Example:
            >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, -1],
            ...                    advantage=[0.7, -0.7], signals={"confidence": [0.9, 0.2]})
            >>> window.records.delta_r.round(2).tolist()
            [0.07, 0.07]
        """
        advantage = np.asarray(advantage, np.float64)
        names = [window] * len(ids) if isinstance(window, str) else list(window)
        columns: dict[str, Any] = {"id": list(ids), "group": list(groups), "window": names}
        columns |= {"y": np.asarray(y, np.int8), "delta_r": unit * np.abs(advantage)}
        columns |= {f"signal.{name}": np.asarray(value, np.float64) for name, value in signals.items()}
        columns |= {f"verdict.{name}": np.asarray(value, np.int8) for name, value in (verdicts or {}).items()}
        if kl is not None:
            columns["kl"] = np.maximum(np.asarray(kl, np.float64), 0.0)
        if content is not None:
            columns["content"] = list(content)
        where = f"window {names[0]}" if names else "window"
        records = Records.from_arrow(pa.table(columns), where=where, sources=sources)
        if not np.array_equal(records.row, np.arange(len(records))):
            expected = "the completions of each update side by side"
            raise InputError(expected, "those of one between those of another", where=where)
        return cls(records, advantage)


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of every completion of a window."""

    reason: npt.NDArray[np.uint8]
    """Why, as a `vapo.policy.Reason`."""
    score: Floats
    """The trust score that it was decided on."""
    updates: Updates
    """Final sign applied, magnitude and signed update."""
    calls: int = 0
    """Secondary calls that were spent."""
    closed: str = ""
    """Why the gate is closed; empty while it is open."""
    certificate: str = ""
    """Digest of the certificate that was worked under; empty for arms without one."""
    asked: Bits | None = None
    """Completions that a secondary call was spent on, where their reasons do not say so."""

    @property
    def coefficient(self) -> Floats:
        """What each completion's score-function term is multiplied with; 0 where it abstained."""
        return self.updates.coefficient

    @property
    def kept(self) -> Bits:
        """Rows that stay in the loss and its denominators: the admitted, and those that proposed nothing.

        A completion whose group's verdicts all agree has advantage 0 and stays, as in a plain learner; an abstained one
        is dropped. A closed gate drops all.
        """
        silent = (self.reason == Reason.NO_PROPOSAL) | (self.reason == Reason.NO_PRIMARY)
        return np.asarray(self.updates.admitted | (silent & (not self.closed)))

    @property
    def appealed(self) -> Bits:
        """Completions that a secondary call was spent on."""
        if self.asked is not None:
            return self.asked
        return (self.reason >= Reason.CONFIRMED) & (self.reason <= Reason.SECONDARY_LOST)

    @property
    def trains(self) -> bool:
        """Whether there is anything to take an optimiser step with."""
        return bool(self.updates.admitted.any())

    def take(self, rows: slice) -> Admission:
        """The part of some completions, such as those of one update among several."""
        parts = self.updates
        updates = Updates(parts.magnitude[rows], parts.update[rows], parts.admitted[rows], parts.unit)
        calls = int(np.count_nonzero(self.appealed[rows]))
        asked = None if self.asked is None else self.asked[rows]
        return replace(
            self, reason=self.reason[rows], score=self.score[rows], updates=updates, calls=calls, asked=asked
        )
