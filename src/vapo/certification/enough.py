"""What a refused stage is told: the sizes at which its nearest candidate would have been certified."""

from __future__ import annotations

import numpy as np

from vapo.certification.plan import Plan, plan
from vapo.certification.tables import Requirements, Tally

__all__ = ["enough_for"]


def enough_for(
    tally: Tally,
    requirements: Requirements,
    *,
    candidates: int,
    chains: int,
    power: float = 0.9,
    weight: float | None = None,
) -> Plan:
    """Say what would have been enough, had the counts of one candidate been its true rates.

    The harm is taken as ``(harmful + 1/2) / (admitted + 1)``, so that no harm in few records is not
    mistaken for none.

    Args:
        tally: Counts of the nearest candidate of a refused stage.
        requirements: What was asked.
        candidates: Candidates of the family.
        chains: Chains of the family.
        power: Wanted probability of a certificate.
        weight: The candidate's share under the sequential claim; an equal one by default.

    Returns:
        A plan at the observed rates; its rows have no records where the observed harm leaves no room.

    Example:
        >>> asked = Requirements(0.08, 0.25, 0.2, 0.05)
        >>> enough_for(Tally(500, 200, 12, 0), asked, candidates=1, chains=1).row("frozen", 0.9).records > 500
        True
    """
    risk, coverage, calls = requirements.split
    heavier = 1.0 if weight is None else weight * candidates
    mean_size = 1 if tally.units is None else max(round(tally.records / tally.units.groups), 1)
    return plan(
        rho=requirements.rho,
        delta=requirements.delta,
        risk=(tally.harmful + 0.5) / (tally.admitted + 1.0),
        coverage=max(tally.admitted, 0.5) / tally.records,
        calls=tally.appealed / tally.records,
        c_min=requirements.c_min,
        b_max=requirements.b_max,
        candidates=candidates,
        chains=chains,
        power=power,
        group_size=mean_size,
        icc=_observed_icc(tally),
        split=(heavier * risk, heavier * coverage, heavier * calls),
    )


def _observed_icc(tally: Tally) -> float:
    """Correlation of harm between two admitted records of one group, from the groups' counts."""
    units = tally.units
    if units is None or not tally.clustered or tally.harmful in (0, tally.admitted):
        return 0.0
    rate = tally.harmful / tally.admitted
    a, h, count = (part.astype(np.float64) for part in (units.admitted, units.harmful, units.count))
    pairs = float((count * a * (a - 1.0)).sum())
    # sum over ordered pairs of (h_i - rate) * (h_j - rate)
    products = float((count * (h * (h - 1.0) - 2.0 * rate * h * (a - 1.0) + rate**2 * a * (a - 1.0))).sum())
    return min(max(products / pairs / (rate * (1.0 - rate)), 0.0), 1.0)
