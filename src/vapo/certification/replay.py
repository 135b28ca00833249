"""Doing a run's work again from its observations, and comparing every event with the one on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.keyed import canonical_json
from vapo.certification.appeals import recorded_answers
from vapo.certification.candidates import choose_candidates, freeze_family
from vapo.certification.certificate import Certificate, open_certificate
from vapo.certification.freeze import freeze_trace
from vapo.certification.issue import certificate_body, certified_rows, join_labels
from vapo.certification.opening import declare, open_stage
from vapo.certification.stage import CHUNK, Progress, Stage, declared_protocol, load_records, silent
from vapo.errors import IntegrityError, ProtocolError
from vapo.ledger import EventKind, Ledger
from vapo.ledger.checkpoints import SIGNER
from vapo.ledger.sealed import SEALED_LABELS
from vapo.ledger.segments import TableReader, read_parquet
from vapo.policy import Answers, Family
from vapo.records import Labels, Records

__all__ = ["Replayed", "replay_stages"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What replay redid and found equal."""

    stages: int
    events: int
    """Events of these stages that came out byte for byte."""


def replay_stages(
    path: str | Path, *, progress: Progress = silent, tables: TableReader = read_parquet
) -> Replayed:
    """Recompute score, family, actions, tallies and certificate of every stage.

    Args:
        path: The run folder.
        progress: Told of every step.
        tables: What opens the run's tables; a `LimitedReader` where the run comes from elsewhere.

    Raises:
        IntegrityError: Naming the first event that comes out differently.
    """
    ledger = Ledger.read(path, tables=tables)
    events = 0
    try:
        for number in range(1, ledger.stage + 1):
            events += _replay_stage(ledger, number, progress)
    except ProtocolError as error:
        msg = f"replay: {error}"
        raise IntegrityError(msg) from None
    return Replayed(ledger.stage, events)


def _replay_stage(ledger: Ledger, number: int, progress: Progress) -> int:
    past = ledger.until_stage(number)
    start = past.stage_start()
    opening = past.events[start]
    protocol = declared_protocol(past)
    design = load_records(past, opening.body, "design", protocol)
    records = load_records(past, opening.body, "certification", protocol)
    if records is None:
        msg = f"{past.path}: stage {number} kept no observations"
        raise IntegrityError(msg)
    if number == 1:
        declare(past, protocol, design, records, sealed_labels=opening.body.get(SEALED_LABELS))
    else:
        past.rewind(start)
        open_stage(
            past,
            design,
            records,
            reason=opening.body["reason"],
            extend="extends" in opening.body,
            sealed_labels=opening.body.get(SEALED_LABELS),
        )
    if not past.stage_events(EventKind.FAMILY):
        return 1
    extended = "extends" in opening.body
    chosen = None if extended else choose_candidates(protocol, design, records, _given_family(past))
    freeze_family(past, chosen)
    if past.stage_events(EventKind.FROZEN):
        freeze_trace(past, records, answers=_recorded(past), repeatable=True, progress=progress)
    joined = past.stage_events(EventKind.LABELS)
    if joined:
        table = past.table(joined[0].body["labels"])
        join_labels(
            past,
            Labels.from_arrow(table),
            records,
            ignored_before=int(joined[0].body["ignored_design"]),
            sealed=joined[0].body.get(SEALED_LABELS),
        )
    if past.stage_events(EventKind.ISSUED, EventKind.REFUSED):
        _compare_certificate(past, records, progress)
    return len(past.stage_events())


def _given_family(ledger: Ledger) -> Family | None:
    """The family if it was given by the user; None if it is to be built again."""
    body = ledger.stage_events(EventKind.FAMILY)[0].body
    return Family.from_dict(ledger.json(body["family"])) if body["given"] else None


def _recorded(ledger: Ledger) -> Any:
    events = ledger.stage_events(EventKind.ACTIONS)

    def answers(rows: slice, asked: npt.NDArray[np.bool_]) -> Answers:
        return recorded_answers(ledger, events[rows.start // CHUNK], len(asked))

    return answers


def _compare_certificate(ledger: Ledger, records: Records, progress: Progress) -> None:
    stage = Stage.load(ledger)
    event = ledger.stage_events(EventKind.ISSUED, EventKind.REFUSED)[0]
    body, codes = certificate_body(ledger, stage, records, progress)
    recorded = open_certificate(canonical_json(ledger.json(event.body["envelope"]))).body
    different = [name for name in {**body, **recorded} if body.get(name) != recorded.get(name)]
    if different:
        msg = f"replay: event {event.seq} ({event.kind}): the certificate comes out with another '{different[0]}'"
        raise IntegrityError(msg)
    rows = certified_rows(ledger, stage, records, Certificate(body).policy, codes)
    told = {"selected": body["selected"], "status": body["status"], "candidates": body["candidates_segment"]}
    more = event.body.keys() - {*told, *rows, "envelope", SIGNER}
    if more or any(event.body.get(name) != value for name, value in told.items()):
        msg = f"replay: event {event.seq} ({event.kind}) does not say what its certificate says"
        raise IntegrityError(msg)
    if any(event.body.get(name) != value for name, value in rows.items()):
        msg = f"replay: event {event.seq} ({event.kind}): the selected policy's rows come out differently"
        raise IntegrityError(msg)
