"""The controllers that the fixture compares, their frozen responses, and what these were worth."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import canonical_texts
from vapo.actuator import Actuator, Variant
from vapo.metrics import alignment
from vapo.policy.observed import ObservedThreshold
from vapo.records import Records
from vapo.scores import fit_score
from vapo.studies.fixture import check_contract

__all__ = ["CONTROLLERS", "Controller", "Response", "measure", "respond", "trace_digest", "trust"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Controller:
    """Which signals make the trust score, and which surfaces follow it.

    Example:
        >>> CONTROLLERS["without agreement"].score
        'weighted:confidence=1,agreement=0,consistency=1'
    """

    variant: Variant = "full"
    """The actuator's variant."""
    confidence: int = 1
    """Weight of the confidence proxy."""
    agreement: int = 1
    """Weight of the views' agreement."""
    consistency: int = 1
    """Weight of the views' consistency with the first."""

    @property
    def score(self) -> str:
        """The trust score, as a rule."""
        return (
            f"weighted:confidence={self.confidence},agreement={self.agreement},consistency={self.consistency}"
        )


CONTROLLERS: Mapping[str, Controller] = {
    "static": Controller("static"),
    "trust": Controller("trust"),
    "clip-kl": Controller("clip-kl"),
    "without confidence": Controller(confidence=0),
    "without agreement": Controller(agreement=0),
    "without consistency": Controller(consistency=0),
    "combined": Controller(),
}
"""Every variant by the paper's name."""


class Response(NamedTuple):
    """What a controller did with each record, fixed before any label is seen."""

    names: tuple[str, ...]
    """Which records."""
    score: Floats
    """The trust score."""
    sign: npt.NDArray[np.int8]
    """The final sign; 0 where the gate found the record ineligible."""
    magnitude: Floats
    """The size of the update."""


def trust(records: Records, controller: Controller) -> Floats:
    """The controller's trust score of each record.

    Args:
        records: Observations of the fixture.
        controller: Which weights.
    """
    return fit_score(controller.score, records).apply(records)


def respond(records: Records, controller: Controller, gate: ObservedThreshold | None = None) -> Response:
    """Decide on observations alone.

    Args:
        records: Observations of the fixture.
        controller: The controller.
        gate: The observed-only threshold action before it; without one every proposal is admitted.

    Example:
        >>> from vapo.studies.fixture import Corruption, Part, build
        >>> seen = build(13, [Part(Corruption("none"), 2)]).records
        >>> respond(seen, CONTROLLERS["static"]).magnitude.round(3).tolist()
        [0.2, 0.094]
    """
    check_contract(records)
    score = trust(records, controller)
    sign, delta_r, kl = records.y, records.delta_r, records.kl
    if gate is not None:
        eligible, delta_r, kl = gate.apply(records, score)
        sign = np.where(eligible, sign, 0).astype(np.int8)
    updates = Actuator(controller.variant).magnitude(score, delta_r, kl, sign)
    return Response(tuple(records.id.to_pylist()), score, sign, updates.magnitude)


def trace_digest(responses: Iterable[Response]) -> str:
    """SHA-256 over names, scores, signs and magnitudes, the same however the records were cut into pieces.

    Args:
        responses: Pieces of one trace, in order.
    """
    pieces = list(responses)
    whole = hashlib.sha256(canonical_texts([name for piece in pieces for name in piece.names]))
    for field in ("score", "sign", "magnitude"):
        whole.update(np.concatenate([getattr(piece, field) for piece in pieces]).tobytes())
    return whole.hexdigest()


def measure(response: Response, clean: npt.NDArray[np.int8]) -> dict[str, Any]:
    """Join the labels to a frozen response: one row of results.

    Args:
        response: What was decided.
        clean: The clean signs, in the same order.

    Example:
        >>> import numpy as np
        >>> up = np.array([1, 1], np.int8)
        >>> row = measure(Response(("a", "b"), np.ones(2), up, np.array([0.2, 0.1])), np.array([1, -1]))
        >>> row["U"], row["harmful"], round(row["mean_u"], 6)
        (0.05, 0.5, 0.15)
    """
    found = alignment(response.sign, response.magnitude, clean)
    aligned = clean * response.sign * response.magnitude
    return {
        "records": found.records,
        "U": found.U,
        "helpful": found.helpful / found.records,
        "harmful": found.R,
        "harmful_count": found.harmful,
        "abstained": found.Z,
        "coverage": found.C,
        "applied_count": found.applied,
        "R_sel": found.R_sel,
        "mean_u": _mean(np.abs(response.magnitude)),
        "sd_aligned": _deviation(aligned),
        "sd_u": _deviation(response.magnitude),
    }


def _mean(values: Floats) -> float:
    return math.fsum(values.tolist()) / values.size


def _deviation(values: Floats) -> float:
    centre = _mean(values)
    return math.sqrt(math.fsum(((values - centre) ** 2).tolist()) / values.size)
