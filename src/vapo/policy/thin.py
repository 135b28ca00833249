"""Making a built family cheaper: fewer candidates where they would only cost labels, calls or error probability."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from vapo.policy.build import decide_on_design
from vapo.policy.model import Family, Reason
from vapo.records import Records

__all__ = ["thin_family"]

_SLACK = 0.8


def thin_family(
    family: Family,
    design: Records,
    score: npt.NDArray[np.float64],
    *,
    c_min: float = 0.0,
    label_share: float = 1.0,
    call_share: float = 1.0,
) -> Family:
    """Leave out candidates of a built family until its bill on the design split fits.

    Candidates far below the least coverage go first, for they cannot be certified and would only take their share of
    delta. Then appealing candidates are spaced out, and the least selective ones dropped, until what all candidates
    together appeal and admit keeps to the given shares of the records.

    Args:
        family: A family built on these design records.
        design: The design records.
        score: Their trust scores.
        c_min: Least coverage that a certificate needs.
        label_share: Share of records whose labels may be asked for.
        call_share: Share of records that may cost a secondary call.

    Example:
        >>> import pyarrow as pa
        >>> from vapo.policy.build import build_family
        >>> design = Records.from_arrow(pa.table({"id": [str(i) for i in range(100)],
        ...     "group": [str(i) for i in range(100)], "y": [1] * 100, "signal.s": [i / 100 for i in range(100)]}))
        >>> score = design.signals["s"]
        >>> family = build_family(design, score)
        >>> len(family), len(thin_family(family, design, score, c_min=0.5, label_share=0.8))
        (20, 9)
    """
    actions = decide_on_design(family.policies, design, score)
    admitted = actions.codes <= Reason.CONFIRMED
    asked = (actions.codes >= Reason.CONFIRMED) & (actions.codes <= Reason.SECONDARY_LOST)
    reach = (admitted | asked) if design.secondary is None else admitted
    coverage = reach.mean(axis=1)
    kept = [[index for index in chain if coverage[index] >= _SLACK * c_min] for chain in family.chains]
    if not any(kept):
        kept = [list(chain) for chain in family.chains]
    kept = [_spaced(chain, asked, call_share) if asked[chain].any() else chain for chain in kept]
    kept = [chain for chain in kept if chain]
    while len(kept) > 1 and _share(asked, kept) > call_share:
        kept.remove(next(chain for chain in reversed(kept) if asked[chain].any()))
    while sum(map(len, kept)) > 1 and _share(reach, kept) > label_share:
        widest = max(kept, key=lambda chain: coverage[chain[-1]])
        widest.pop()
        kept = [chain for chain in kept if chain]
    members = sorted(index for chain in kept for index in chain)
    place = {index: number for number, index in enumerate(members)}
    return Family.of(
        [family.policies[index] for index in members],
        [[place[index] for index in chain] for chain in kept],
        rule=family.rule,
    )


def _share(hits: npt.NDArray[np.bool_], chains: Sequence[Sequence[int]]) -> float:
    members = [index for chain in chains for index in chain]
    return float(hits[members].any(axis=0).mean()) if members else 0.0


def _spaced(chain: list[int], asked: npt.NDArray[np.bool_], share: float) -> list[int]:
    """Every m-th member, counted from the least selective, for the smallest m that keeps to the share of calls."""
    for step in range(1, len(chain) + 1):
        spaced = chain[::-1][::step][::-1]
        if _share(asked, [spaced]) <= share:
            return spaced
    return []
