"""Label-free trust scores: how far the primary verdict of a record deserves belief."""

from vapo.scores.rules import (
    FittedScore,
    ScoreRule,
    check_inputs,
    fit_score,
    refuse_shared_sources,
    register_score,
    score_names,
    score_needs_fit,
)

__all__ = [
    "FittedScore",
    "ScoreRule",
    "check_inputs",
    "fit_score",
    "refuse_shared_sources",
    "register_score",
    "score_names",
    "score_needs_fit",
]
