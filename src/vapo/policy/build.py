"""Building a family from the design split's scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.policy.decide import Actions, Answers, ask, settle
from vapo.policy.model import NEVER, Family, Policy, Reason, Thresholds
from vapo.records import Records

__all__ = ["Signs", "build_family", "decide_on_design", "planned_rates", "planned_squares"]

Floats = npt.NDArray[np.float64]
Signs = Literal["plain", "specific", "both"]

_LEVELS = tuple(round(1 - step / 20, 2) for step in range(1, 21))
_SPANS = (0.2,)
_SECOND = 0.5


def build_family(
    design: Records,
    score: Floats,
    *,
    budget: int = 0,
    signs: Signs = "plain",
    levels: Sequence[float] = _LEVELS,
    spans: Sequence[float] = _SPANS,
    seconds: Sequence[float] = (_SECOND,),
) -> Family:
    """Cut the design scores at quantiles and arrange the candidates in chains from most to least selective.

    There is a chain of pure thresholds and, where a budget allows appeals, one chain for every width of the appeal
    region and every confidence threshold of the secondary. With `signs="specific"` there is such a set for positive
    verdicts alone, for negative ones alone, and for both with quantiles of their own; `"both"` adds the plain set.

    Args:
        design: Design records; no label is needed and the secondary's answers are used only to order chains.
        score: Their trust scores.
        budget: Secondary calls a window.
        signs: Whether positive and negative verdicts share thresholds.
        levels: Quantile levels (linear rule) at which to accept.
        spans: How far below, in quantile levels, the appeal region reaches.
        seconds: Confidence thresholds of the secondary.
    """
    if signs not in ("plain", "specific", "both"):
        expected = "signs plain, specific or both"
        raise InputError(expected, repr(signs))
    eligible = design.y != 0 if design.delta_r is None else (design.y != 0) & (design.delta_r > 0)
    if not eligible.any():
        expected = "design records with a primary verdict and a proposal"
        raise InputError(expected, "none", where=design.where)
    sides = {"all": eligible, "pos": eligible & (design.y > 0), "neg": eligible & (design.y < 0)}
    pools = {name: np.sort(score[mask]) for name, mask in sides.items()}
    shapes = [(0.0, 0.0), *((span, second) for span in spans for second in seconds if budget)]
    kinds = {"plain": ["all"], "specific": ["pos", "neg", "each"], "both": ["all", "pos", "neg", "each"]}[
        signs
    ]

    candidates: list[Policy] = []
    chains: list[list[int]] = []
    known: dict[tuple[object, ...], int] = {}
    for span, second in shapes:
        for kind in kinds:
            chain = []
            for policy in _chain(pools, kind, levels, span, second, budget):
                # Thresholds between the same two neighbouring scores are one candidate.
                seen = (*(_cell(pools, side, policy) for side in ("pos", "neg")), second, policy.budget)
                if seen not in known:
                    known[seen] = len(candidates)
                    chain.append(len(candidates))
                    candidates.append(policy)
            if chain:
                chains.append(chain)
    coverage, _ = planned_rates(candidates, design, score)
    chains = [sorted(chain, key=lambda index: (coverage[index], index)) for chain in chains]
    shown = ", ".join(f"{level:g}" for level in levels)
    return Family.of(candidates, chains, rule=f"design quantiles (linear) {shown}; signs {signs}")


def _chain(
    pools: dict[str, Floats], kind: str, levels: Iterable[float], span: float, second: float, budget: int
) -> list[Policy]:
    def side(pool: Floats, level: float) -> Thresholds | None:
        if not len(pool):
            return None
        high = float(np.quantile(pool, level))
        if not span:
            return Thresholds(high, high)
        low = 0.0 if span >= 1 else float(np.quantile(pool, max(level - span, 0.0)))
        return Thresholds(low, high, second) if low < high else None

    policies = []
    for level in levels:
        if kind == "all":
            pos = neg = side(pools["all"], level)
        else:
            pos = side(pools["pos"], level) if kind != "neg" else NEVER
            neg = side(pools["neg"], level) if kind != "pos" else NEVER
        if pos is not None and neg is not None:
            policies.append(Policy(pos, neg, budget))
    return policies


def _cell(pools: dict[str, Floats], side: str, policy: Policy) -> tuple[int, int]:
    thresholds = policy.pos if side == "pos" else policy.neg
    low, high = np.searchsorted(pools[side], [thresholds.low, thresholds.high], "left")
    return int(low), int(high)


def decide_on_design(candidates: Sequence[Policy], design: Records, score: Floats) -> Actions:
    """What candidates do with the design records, with whatever secondary answers these already have."""
    requests = ask(Family.of(list(candidates)), design, score)
    return settle(requests, design, Answers.of(design.secondary, len(design)))


def planned_rates(candidates: Sequence[Policy], design: Records, score: Floats) -> tuple[Floats, Floats]:
    """Coverage and call rate that each candidate has on the design records.

    Where the secondary was never asked there, half of the appeals are counted as confirmed; the figures steer the
    order of chains and the planned bets, and no promise rests on them.
    """
    actions = decide_on_design(candidates, design, score)
    calls = np.asarray(actions.calls.sum(axis=1) / len(design), np.float64)
    coverage = np.array([np.count_nonzero(row <= Reason.CONFIRMED) for row in actions.codes]) / len(design)
    if design.secondary is None:
        coverage = coverage + calls / 2
    return coverage, calls


def planned_squares(candidates: Sequence[Policy], design: Records, score: Floats) -> Floats:
    """Mean over design groups of the squared number of records that each candidate admits of them."""
    actions = decide_on_design(candidates, design, score)
    _, group = np.unique(design.group, return_inverse=True)
    counts = [np.bincount(group[row <= Reason.CONFIRMED], minlength=group.max() + 1) for row in actions.codes]
    return np.array([float(np.mean(count**2)) for count in counts])
