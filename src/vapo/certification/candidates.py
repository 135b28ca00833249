"""Fixing the score and the candidates of a stage, from design observations alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vapo.certification.stage import has_secondary, trusted_secondaries
from vapo.errors import InputError
from vapo.ledger import Event, EventKind, Ledger
from vapo.policy import Family, build_family
from vapo.policy.build import planned_rates, planned_squares
from vapo.policy.thin import thin_family
from vapo.protocol import Protocol
from vapo.records import Records
from vapo.scores import FittedScore, check_inputs, fit_score, score_needs_fit

__all__ = ["Candidates", "choose_candidates", "default_budget", "freeze_family"]


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is fixed about a stage before any of its records is decided on."""

    score: FittedScore
    redundant: list[str]
    """What a waiver let through, in words."""
    family: Family
    given: bool
    """Whether the user gave the family; it was built on the design split otherwise."""
    coverage: npt.NDArray[np.float64]
    """Planned share of admitted records, by candidate."""
    calls: npt.NDArray[np.float64]
    """Planned share of records that cost a secondary call, by candidate."""
    squares: list[float] | None
    """Mean square of admitted records a group on the design split, by candidate."""
    group_cap: int | None


def choose_candidates(
    protocol: Protocol, design: Records | None, certification: Records, family: Family | None = None
) -> Candidates:
    """Fit the score and choose the candidates; refuses whatever the terms do not allow, and writes nothing.

    Args:
        protocol: The declared terms.
        design: The design records; None only with a given family and a score that learns nothing.
        certification: The certification records: their windows set the default budget, their columns are
            checked.
        family: Candidates given by the user; built on the design split otherwise.
    """
    given = family is not None
    if design is None and family is None:
        expected = "design records to build a family on"
        raise InputError(expected, "none")
    if design is None and score_needs_fit(protocol.score):
        expected = "design records (--design) to fit the score on"
        raise InputError(expected, f"score '{protocol.score}' and none")
    score = fit_score(protocol.score, certification if design is None else design)
    redundant = check_inputs(
        certification,
        score.inputs,
        secondaries=trusted_secondaries(protocol, certification),
        waive_redundancy=protocol.waive_redundancy,
    )
    cap = _group_cap(protocol, design, certification)
    if design is None:
        assert family is not None
        coverage = np.full(len(family), protocol.c_min or 0.5)
        calls = np.full(len(family), protocol.b_max)
        return Candidates(score, redundant, family, given, coverage, calls, None, cap)
    fitted = score.apply(design)
    budget = default_budget(protocol, certification) if has_secondary(protocol, design, certification) else 0
    family = family or thin_family(
        build_family(design, fitted, budget=budget, signs=protocol.signs),
        design,
        fitted,
        c_min=protocol.c_min,
        label_share=_share(protocol.max_labels, certification),
        call_share=_share(protocol.max_secondary_calls, certification),
    )
    coverage, calls = planned_rates(family.policies, design, fitted)
    squares = planned_squares(family.policies, design, fitted).tolist()
    return Candidates(score, redundant, family, given, coverage, calls, squares, cap)


def freeze_family(ledger: Ledger, candidates: Candidates | None) -> Event:
    """Put the score and the candidates of the stage that was just opened down for good.

    Args:
        ledger: A run whose stage has been opened.
        candidates: What was chosen; None for a stage that extends another, whose candidates it has.
    """
    opening = ledger.events[ledger.stage_start()]
    ledger.rewind(opening.seq + 1)
    if candidates is None:
        earlier = ledger.stage_events(EventKind.FAMILY, stage=opening.body["extends"])[0]
        return ledger.commit(EventKind.FAMILY, dict(earlier.body))
    family, planned = (
        candidates.family,
        {
            "coverage": candidates.coverage.tolist(),
            "calls": candidates.calls.tolist(),
            "squares": candidates.squares,
        },
    )
    body = {
        "family": ledger.put_json(family.as_dict()),
        "family_digest": family.digest,
        "candidates": len(family),
        "score": ledger.put_json(candidates.score.as_dict()),
        "planned": ledger.put_json(planned),
        "group_cap": candidates.group_cap,
        "redundant": candidates.redundant,
        "given": candidates.given,
    }
    return ledger.commit(EventKind.FAMILY, body)


def _share(cap: int | None, records: Records) -> float:
    """The share of records that a cap allows, less some room for the stage to differ from the design split."""
    return 1.0 if cap is None else 0.95 * cap / len(records)


def default_budget(protocol: Protocol, records: Records) -> int:
    """Calls a window: as declared, or as many as keep all windows together within the largest call rate."""
    if protocol.budget is not None:
        return protocol.budget
    # What is a whole number but for rounding (0.29 x 100) counts as one.
    return int(np.floor(protocol.b_max * len(records) / max(len(records.window_starts()), 1) + 1e-9))


def _group_cap(protocol: Protocol, design: Records | None, certification: Records) -> int | None:
    """The most records of a group that may be admitted; None where records are the units.

    Under `sequential` the cap must not depend on the stage's own records: it is the declared one, or else comes from
    the design split.
    """
    if protocol.group_cap is not None:
        return protocol.group_cap
    cap, largest = None if design is None else _design_cap(design), certification.largest_group
    if protocol.claim != "sequential":
        return cap if cap is not None and largest <= cap else None
    if cap is None and largest > 1 and protocol.reach == "population":
        expected = "a declared --group-cap, the most records of one group that may be admitted"
        raise InputError(expected, f"none, and groups of up to {largest} records", where=certification.where)
    return cap


def _design_cap(design: Records) -> int:
    """The largest group of the design split, and half as much again where its groups differ in size."""
    sizes = np.bincount(design.group)
    largest = design.largest_group
    return largest if bool((sizes[sizes > 0] == largest).all()) else -(-3 * largest // 2)
