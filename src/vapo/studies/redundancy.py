"""The algebraic audit: in binary views, agreement is a function of consistency, whatever the views say."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from vapo.errors import InputError
from vapo.records import Records, find_redundant
from vapo.scores import check_inputs
from vapo.studies.fixture import agreement, consistency

__all__ = ["audit_patterns", "audit_records"]

_SUMMARIES = ("agreement", "consistency")


def audit_records(records: Records) -> dict[str, Any]:
    """How far agreement is from max(p, 1 - p) on the rows at hand, and whether the data themselves give it away.

    Args:
        records: Observations of the fixture.

    Example:
        >>> from vapo.studies.fixture import Corruption, Part, build
        >>> audit_records(build(13, [Part(Corruption("noise", flip=0.35), 200)]).records)
        {'rows': 200, 'error': 0.0, 'pair': 'agreement from consistency', 'refused': True}
    """
    p = records.signals["consistency"]
    gap = np.abs(records.signals["agreement"] - np.maximum(p, 1.0 - p))
    pair = find_redundant({name: records.signals[name] for name in _SUMMARIES})
    try:
        check_inputs(records, _SUMMARIES)
        refused = False
    except InputError:
        refused = True
    return {
        "rows": len(records),
        "error": float(gap.max()),
        "pair": " from ".join(pair) if pair else "none",
        "refused": refused,
    }


def audit_patterns(views: int) -> dict[str, Any]:
    """The identity on every pattern that so many binary views can show.

    Args:
        views: How many views.

    Example:
        >>> audit_patterns(5)
        {'views': 5, 'patterns': 32, 'error': 0.0}
    """
    patterns = np.array(list(product((1, -1), repeat=views)), dtype=np.int8)
    p = consistency(patterns)
    gap = np.abs(agreement(patterns) - np.maximum(p, 1.0 - p))
    return {"views": views, "patterns": len(patterns), "error": float(gap.max())}
