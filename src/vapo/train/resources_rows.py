"""What the ledger says of one update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import sha256_hex
from vapo.metrics import Alignment, alignment, alignment_by_sign
from vapo.policy import Reason
from vapo.train.batch import Admission
from vapo.train.engine import Step
from vapo.train.verdicts import Calls

__all__ = ["appeal_calls", "decision_facts", "flat", "risk_facts", "step_facts"]

Signs = npt.NDArray[np.int8]

_SETTLED = (Reason.CONFIRMED, Reason.SECONDARY_DISAGREES, Reason.SECONDARY_LOW_CONFIDENCE)


def appeal_calls(admission: Admission) -> Calls:
    """What came of the calls that a window's admission spent, by the reasons that it gives."""
    appealed, reason = admission.appealed, admission.reason
    lost = int(np.count_nonzero(appealed & (reason == Reason.SECONDARY_LOST)))
    spent = int(np.count_nonzero(appealed))
    if admission.asked is not None:
        # Where everything is asked, records without a proposal were asked too, and their reason says only that.
        failed = int(np.count_nonzero(appealed & (reason == Reason.SECONDARY_MISSING)))
        return Calls(reserved=spent, settled=spent - failed - lost, failed=failed, lost=lost)
    settled = int(np.count_nonzero(appealed & np.isin(reason, _SETTLED)))
    return Calls(reserved=spent, settled=settled, failed=spent - settled - lost, lost=lost)


def decision_facts(admission: Admission) -> dict[str, Any]:
    """What was decided about a window: rates by two names, counts by reason, and a digest of every decision."""
    updates, reason = admission.updates, admission.reason
    said, counts = np.unique(reason, return_counts=True)
    decided = reason.tobytes() + np.ascontiguousarray(updates.update, "<f8").tobytes()
    return {
        "records": len(reason),
        "admitted": int(np.count_nonzero(updates.admitted)),
        "accepted": int(np.count_nonzero(reason == Reason.ACCEPTED)),
        "appealed": int(np.count_nonzero(admission.appealed)),
        "kept": int(np.count_nonzero(admission.kept)),
        "coverage": updates.coverage,
        "applied_rate": updates.applied_rate,
        "appeal_rate": float(np.mean(admission.appealed)) if len(reason) else None,
        "zero_magnitude_rate": updates.zero_magnitude_rate,
        "magnitude": float(np.mean(updates.magnitude)) if len(reason) else None,
        "reasons": {Reason(code).text: int(count) for code, count in zip(said, counts, strict=True)},
        "decisions": sha256_hex(decided),
        "certificate": admission.certificate,
        "closed": admission.closed,
    }


def risk_facts(y: Signs, admission: Admission, z: Signs) -> dict[str, Any] | None:
    """How harmful a window's updates were, both signs together and apart; None where labels are unknown.

    Args:
        y: The verdicts that the arm went by.
        admission: What it did.
        z: Clean signs. They were looked up for this row, and no decision has seen them.
    """
    updates = admission.updates
    sign = np.where(updates.admitted, y, 0).astype(np.int8)
    if (z[updates.admitted] == 0).any():
        return None
    parts = alignment_by_sign(y, sign, updates.magnitude, z)
    return {
        **_risks(alignment(sign, updates.magnitude, z)),
        "positive": _risks(parts[1]),
        "negative": _risks(parts[-1]),
    }


def _risks(found: Alignment) -> dict[str, Any]:
    names = (
        "R_all",
        "R_sel",
        "admitted_risk",
        "admitted",
        "admitted_harmful",
        "applied",
        "harmful",
        "U",
        "records",
    )
    return {name: getattr(found, name) for name in names}


def step_facts(step: Step) -> dict[str, Any]:
    """What the learner measured on its own path; what no step was taken for is undefined."""
    if not step.taken:
        return {"taken": False}
    names = (
        "loss",
        "signed_update",
        "ratio",
        "kl",
        "clip_fraction",
        "entropy",
        "grad_norm",
        "tokens",
        "rows",
    )
    return {"taken": True} | {name: getattr(step, name) for name in names}


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested row, by their paths.

    Example:
        >>> flat({"step": {"loss": 0.5, "taken": True}, "closed": ""})
        {'step/loss': 0.5, 'step/taken': 1.0}
    """
    found: dict[str, float] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}/")
        elif isinstance(value, bool | int | float):
            found[f"{prefix}{name}"] = float(value)
    return found
