"""Rewards corrected for a verifier's error rates, which are estimated from appeals.

With R~ in {0, 1} the observed reward, rho0 the chance that a wrong answer is approved and rho1 the chance that a right
one is rejected:

- backward: (R~ - rho0) / (1 - rho0 - rho1) has the clean reward's expectation;
- forward: a score-function term is multiplied by rho1 where R~ = 1 and by rho1 - 1 where R~ = 0. In expectation that
  leaves the right answers' terms out and pushes against the wrong ones', the clean gradient up to a positive factor.

Within a group the backward reward is an affine function of the observed one. Advantages that are centred by group and
divided by their own spread would be the uncorrected ones again; they are divided by the spread of the observed rewards,
so that the correction is what it says: a larger step where the verifier is worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.train.batch import Scale, advantages

__all__ = ["ErrorRates", "corrected_advantages"]

Floats = npt.NDArray[np.float64]

LEAST = 0.1
"""Least value of 1 - rho0 - rho1 that is divided by: below it a verifier says next to nothing."""


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """How often the primary was found to err, by asking the secondary about records drawn at random.

    The secondary's answer stands for the truth, so its own errors are in the rates.

    Example:
        >>> rates = ErrorRates().seen([1, 1, -1, -1], [1, -1, -1, 0])
        >>> rates.false_positive, rates.false_negative
        (0.5, 0.25)
    """

    wrong: int = 0
    """Records that the secondary rejected."""
    approved: int = 0
    """Those among them that the primary approved."""
    right: int = 0
    """Records that the secondary approved."""
    rejected: int = 0
    """Those among them that the primary rejected."""

    def seen(self, y: npt.ArrayLike, y2: npt.ArrayLike) -> ErrorRates:
        """The rates with some more appeals counted; an appeal without an answer is none."""
        first, second = np.asarray(y), np.asarray(y2)
        wrong, right = (first != 0) & (second < 0), (first != 0) & (second > 0)
        return ErrorRates(
            self.wrong + int(np.count_nonzero(wrong)),
            self.approved + int(np.count_nonzero(wrong & (first > 0))),
            self.right + int(np.count_nonzero(right)),
            self.rejected + int(np.count_nonzero(right & (first < 0))),
        )

    @property
    def false_positive(self) -> float:
        """Share of wrong answers that are approved, drawn towards one half while little is known."""
        return (self.approved + 0.5) / (self.wrong + 1.0) if self.wrong else 0.5 * bool(self.right)

    @property
    def false_negative(self) -> float:
        """Share of right answers that are rejected, drawn towards one half while little is known."""
        return (self.rejected + 0.5) / (self.right + 1.0) if self.right else 0.5 * bool(self.wrong)

    def as_dict(self) -> dict[str, Any]:
        """Counts as plain data."""
        return {name: getattr(self, name) for name in ("wrong", "approved", "right", "rejected")}


def corrected_advantages(
    reward: npt.ArrayLike,
    group: npt.ArrayLike,
    rates: ErrorRates,
    *,
    how: Literal["backward", "forward"],
    scale: Scale = "group",
) -> Floats:
    """Advantages of rewards that are corrected for a verifier's errors; a group whose verdicts agree proposes nothing.

    Args:
        reward: Observed rewards in {0, 1}, NaN without a verdict.
        group: The group of each completion.
        rates: What is known of the verifier's errors.
        how: Backward or forward.
        scale: What plain advantages are divided by.

    Example:
        >>> rates = ErrorRates(wrong=99, approved=19, right=99, rejected=9)
        >>> corrected_advantages([1.0, 0.0], [0, 0], rates, how="backward").round(3).tolist()
        [0.996, -0.996]
        >>> corrected_advantages([1.0, 0.0], [0, 0], rates, how="forward").round(3).tolist()
        [0.134, -1.28]
    """
    if how not in ("backward", "forward"):
        expected = "backward or forward"
        raise InputError(expected, repr(how), where="argument 'how'")
    value = np.asarray(reward, np.float64)
    plain = advantages(value, group, scale=scale)
    low, high = rates.false_positive, rates.false_negative
    if how == "backward":
        return plain / max(1.0 - low - high, LEAST)
    # What a plain advantage is divided by, taken from the difference that one unit of reward makes in it.
    centred = advantages(value, group, scale="none")
    spread = np.divide(plain, centred, out=np.zeros_like(plain), where=centred != 0)
    return np.where(plain != 0, spread * (np.nan_to_num(value) + high - 1.0), 0.0)
