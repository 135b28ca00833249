"""The observed-only threshold action: trust high enough, KL low enough, and a capped proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.records import Records

__all__ = ["ObservedThreshold"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ObservedThreshold:
    """Three thresholds fitted on observations alone.

    Example:
        >>> gate = ObservedThreshold(trust=0.5, kl=0.05, ratio=0.1)
        >>> import pyarrow as pa
        >>> records = Records.from_arrow(pa.table({"id": ["a", "b"], "group": ["p", "q"], "y": [1, -1],
        ...     "signal.s": [0.7, 0.3], "delta_r": [0.2, 0.2], "kl": [0.01, 0.01]}))
        >>> eligible, delta_r, kl = gate.apply(records, records.signals["s"])
        >>> eligible.tolist(), delta_r.tolist(), kl.tolist()
        ([True, False], [0.1, 0.0], [0.01, 0.0])
    """

    trust: float
    """Least score of an eligible record."""
    kl: float
    """Largest KL of an eligible record."""
    ratio: float
    """Cap on an eligible record's proposal."""

    @classmethod
    def fit(
        cls, records: Records, score: Floats, *, q_trust: float, q_kl: float, q_ratio: float
    ) -> ObservedThreshold:
        """Take each threshold as a quantile (linear rule) of the calibration records."""
        delta_r, kl = _proposal(records)
        return cls(
            float(np.quantile(score, q_trust)),
            float(np.quantile(kl, q_kl)),
            float(np.quantile(delta_r, q_ratio)),
        )

    def apply(self, records: Records, score: Floats) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
        """Which records are eligible, and the proposal (delta_r, kl) that is left of each: (0, 0) when ineligible."""
        delta_r, kl = _proposal(records)
        eligible = (score >= self.trust) & (kl <= self.kl)
        return eligible, np.where(eligible, np.minimum(delta_r, self.ratio), 0.0), np.where(eligible, kl, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The thresholds as plain data."""
        return {"tau_s": self.trust, "tau_k": self.kl, "tau_r": self.ratio}


def _proposal(records: Records) -> tuple[Floats, Floats]:
    if records.delta_r is None or records.kl is None:
        expected = "columns 'delta_r' and 'kl'"
        raise InputError(expected, "records without a proposal", where=records.where)
    return records.delta_r, records.kl
