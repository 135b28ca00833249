"""The public bounds: exact binomial tests, the Hoeffding radius, evidence and the limits that invert it."""

from __future__ import annotations

from vapo.certification.binomial import (
    binomial_p_value,
    clopper_pearson_lower,
    clopper_pearson_upper,
    hoeffding_radius,
    poisson_binomial_limit,
    poisson_binomial_rejects,
)
from vapo.certification.evidence import (
    entropy_gap,
    log_bet,
    log_evidence_at,
    log_sequential_evidence,
    log_uniform_mixture,
    planned_bet,
)
from vapo.certification.limits import (
    excess_upper,
    mean_lower,
    mean_upper,
    planned_mean_bet,
    unit_excess_upper,
    unit_mean_lower,
)

__all__ = [
    "binomial_p_value",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "entropy_gap",
    "excess_upper",
    "hoeffding_radius",
    "log_bet",
    "log_evidence_at",
    "log_sequential_evidence",
    "log_uniform_mixture",
    "mean_lower",
    "mean_upper",
    "planned_bet",
    "planned_mean_bet",
    "poisson_binomial_limit",
    "poisson_binomial_rejects",
    "unit_excess_upper",
    "unit_mean_lower",
]
