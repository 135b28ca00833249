"""A stage's calibration: fresh rollouts, decided by every candidate, frozen, and only then labelled.

The buffer is a function of the generating checkpoint and of questions that nobody has asked before. Labels are bought
for what some candidate admits, and for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo.certification.certificate import Certificate
from vapo.certification.flow import prepare
from vapo.certification.freeze import freeze_trace
from vapo.certification.issue import issue, join_labels
from vapo.certification.renewal import spent_delta
from vapo.ledger import EventKind, Ledger
from vapo.policy import Answers
from vapo.protocol import Protocol
from vapo.records import Labels, Records, Source
from vapo.train.batch import Window
from vapo.train.hook import answers
from vapo.verifiers import Item, Verifier

__all__ = ["certify_stage", "proposes", "stage_facts"]


def proposes(window: Window) -> bool:
    """Whether any record of a window has a verdict and a proposal; without one there is nothing to calibrate on.

    Example:
        >>> window = Window.of(ids=["a"], groups=["q"], window="u0", y=[1], advantage=[0.0], signals={"s": [0.5]})
        >>> proposes(window)
        False
    """
    records = window.records
    wanted = records.y != 0 if records.delta_r is None else (records.y != 0) & (records.delta_r > 0)
    return bool(wanted.any())


def certify_stage(
    run: Path,
    protocol: Protocol,
    design: Window,
    certification: Window,
    items: Sequence[Item],
    *,
    oracle: Verifier,
    secondary: Verifier | None = None,
    repeatable: bool = True,
    renew: str = "",
) -> dict[str, Any]:
    """Do a stage from its declaration to its certificate; work that was interrupted is redone and compared.

    Args:
        run: The run folder of the gate.
        protocol: The declared terms, the same for all stages.
        design: Rollouts that the candidates are built on.
        certification: Rollouts that certify.
        items: The certification completions as verifiers read them, in their order.
        oracle: Gives the clean labels, once the trace is frozen.
        secondary: Answers the candidates' appeals; without one no candidate appeals.
        repeatable: Whether asking it again is free and gives the same.
        renew: What changed since the stage before; empty for the first stage.

    Returns:
        What the ledger of the run says about the stage.
    """
    design_records, records = design.records, certification.records
    if secondary is not None:
        design_records = _answering(design_records, secondary.source)
        records = _answering(records, secondary.source)

    def ask(rows: slice, asked: npt.NDArray[np.bool_]) -> Answers:
        assert secondary is not None
        return answers(secondary, items[rows], asked)

    with Ledger.write(run) as ledger:
        prepare(ledger, protocol, design_records, records, renew=renew or None)
        source = None if secondary is None else ask
        summary = freeze_trace(ledger, records, answers=source, repeatable=repeatable)
        labels = _labels(oracle, items, summary.needed)
        join_labels(ledger, labels, records)
        issue(ledger, records)
        return stage_facts(ledger)


def _answering(records: Records, source: Source) -> Records:
    """The same records, with it said who will answer appeals about them."""
    return replace(records, sources={**records.sources, source.id: source})


def _labels(oracle: Verifier, items: Sequence[Item], needed: pa.Array) -> Labels:
    wanted = set(needed.to_pylist())
    some = [item for item in items if item.id in wanted]
    outcomes = oracle.verify(some)
    # What the oracle cannot judge has no label; whether that may be is the protocol's to say.
    known = [(item.id, outcome.sign) for item, outcome in zip(some, outcomes, strict=True) if outcome.sign]
    columns = {
        "id": pa.array([name for name, _ in known], pa.string()),
        "z": pa.array([sign for _, sign in known], pa.int8()),
    }
    return Labels.from_arrow(pa.table(columns))


def stage_facts(ledger: Ledger) -> dict[str, Any]:
    """What the last certificate of a gate's run says, as far as a learner's ledger repeats it."""
    event = ledger.last(EventKind.ISSUED, EventKind.REFUSED)
    assert event is not None
    body = Certificate.of(ledger).body
    kept = ("status", "claim", "rho", "delta", "stage", "selected", "nearest", "counts", "bill", "feasible")
    return {
        **{name: body[name] for name in kept},
        "bounds": body["bounds"][body["claim"]],
        "enough": body["enough"],
        "certificate": event.body["envelope"]["sha256"],
        "delta_spent": spent_delta(ledger),
        "log": {"events": event.seq + 1, "head": event.digest},
    }
