"""How a failure probability is spread over stages that follow each other."""

from __future__ import annotations

import math

from vapo.certification.binomial import check_rate
from vapo.errors import InputError, ProtocolError
from vapo.ledger import EventKind, Ledger

__all__ = ["equal_delta", "open_ended_delta", "spent_delta", "stage_delta"]


def equal_delta(delta: float, stage: int, stages: int) -> float:
    """Share of one stage when the number of stages is declared.

    Args:
        delta: Failure probability of all stages together.
        stage: Which stage, counted from 1.
        stages: Declared number of stages.

    Example:
        >>> equal_delta(0.05, 2, 5)
        0.01
    """
    check_rate(delta, "delta")
    _check_stage(stage)
    if stages < 1:
        expected = "at least 1"
        raise InputError(expected, repr(stages), where="stages")
    if stage > stages:
        msg = f"stage {stage} was not declared: the protocol spreads delta over {stages}"
        raise ProtocolError(msg)
    return delta / stages


def open_ended_delta(delta: float, stage: int) -> float:
    """Share of one stage when nobody knows how many will follow; all shares together make ``delta``.

    Args:
        delta: Failure probability of all stages together.
        stage: Which stage, counted from 1.

    Example:
        >>> round(open_ended_delta(0.05, 1), 6), round(open_ended_delta(0.05, 2), 6)
        (0.030396, 0.007599)
    """
    check_rate(delta, "delta")
    _check_stage(stage)
    return delta * 6.0 / (math.pi * stage) ** 2


def stage_delta(delta: float, stage: int, stages: int | None) -> float:
    """Share of one stage under either schedule: equal for a declared number of stages, open-ended for None.

    Example:
        >>> stage_delta(0.05, 1, 1)
        0.05
    """
    return open_ended_delta(delta, stage) if stages is None else equal_delta(delta, stage, stages)


def spent_delta(ledger: Ledger) -> float:
    """How much of the protocol's delta the stages have spent whose labels were joined, read from the log.

    A refused stage has spent its share like any other; one that extends another spends none of its own.
    """
    stages = [
        ledger.events[ledger.stage_start(number)]
        for number in range(1, ledger.stage + 1)
        if ledger.stage_events(EventKind.LABELS, stage=number)
    ]
    return float(sum(event.body["delta"] for event in stages if "extends" not in event.body))


def _check_stage(stage: int) -> None:
    if stage < 1:
        expected = "a stage counted from 1"
        raise InputError(expected, repr(stage), where="stage")
