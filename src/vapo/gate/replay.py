"""Replaying a whole run: its stages, and every batch that its gate decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vapo.certification.appeals import asked_rows, recorded_answers
from vapo.certification.certificate import Certificate
from vapo.certification.replay import replay_stages
from vapo.certification.stage import Progress, Stage, named_sources, silent, source_facts
from vapo.errors import IntegrityError, VapoError
from vapo.gate.batch import (
    NOTHING,
    Decisions,
    add_calls,
    batch_facts,
    check_key,
    decide_batch,
    foreign_source,
    overdue,
    request_batch,
    window_keys,
)
from vapo.gate.watch import alarm_facts, deploy_facts, watch
from vapo.ledger import Event, EventKind, Ledger
from vapo.ledger.rows import row_tree
from vapo.ledger.segments import TableReader, read_parquet
from vapo.records import Records

__all__ = ["Replay", "replay_run"]

_MALFORMED = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    pa.ArrowException,
)


@dataclass(frozen=True, slots=True)
class Replay:
    """What came out the same when it was done again."""

    stages: int
    events: int
    """Events of the stages, from protocol to certificate."""
    batches: int
    """Batches of the gate."""


def replay_run(
    path: str | Path, *, progress: Progress = silent, tables: TableReader = read_parquet
) -> Replay:
    """Redo score, family, actions, tallies, certificates and every batch of the gate, and compare with the log.

    Args:
        path: The run folder.
        progress: Told of every step.
        tables: What opens the run's tables; a `LimitedReader` where the run comes from elsewhere.

    Raises:
        IntegrityError: Naming the first event that comes out differently.
    """
    try:
        stages = replay_stages(path, progress=progress, tables=tables)
        ledger = Ledger.read(path, tables=tables)
        batches = 0
        for number in range(1, ledger.stage + 1):
            batches += _replay_deployments(ledger.until_stage(number), progress)
    except VapoError:
        raise
    except _MALFORMED as error:
        # A log that chains correctly can hold bodies that no writer of ours would have written.
        msg = f"replay: an event or a segment lacks what one of its kind holds ({type(error).__name__}: {error})"
        raise IntegrityError(msg) from error
    return Replay(stages.stages, stages.events, batches)


def _replay_deployments(ledger: Ledger, progress: Progress) -> int:
    if not ledger.stage_events(EventKind.ISSUED, EventKind.REFUSED):
        return 0
    stage, certificate = Stage.load(ledger), Certificate.of(ledger)
    done, opened, number, spent = 0, -1, 0, dict[str, int]()
    decided: set[str] = set()
    labelled: set[tuple[bool, str]] = set()
    events = ledger.events[ledger.stage_start() :]
    for at, event in enumerate(events):
        if event.kind is EventKind.DEPLOY:
            opened, number, spent = event.seq, 0, {}
            _same(event, deploy_facts(ledger, stage.protocol))
        if opened < 0:
            continue
        if event.kind is EventKind.ACTIONS:
            progress("replaying batches", at, len(events))
            decided |= _replay_batch(ledger, stage, certificate, event, number, opened, spent)
            number += 1
            done += 1
        following = events[at + 1] if at + 1 < len(events) else None
        if event.kind is EventKind.SPOTCHECK:
            _replay_labels(ledger, event, decided, labelled)
            if following is None or following.kind is not EventKind.SPOTCHECK:
                _replay_watch(ledger, event, following)
    return done


def _same(event: Event, body: Mapping[str, Any]) -> None:
    """Make sure that an event says what comes out when it is made again."""
    different = [name for name in {**body, **event.body} if event.body.get(name, ...) != body.get(name, ...)]
    if different:
        msg = f"replay: event {event.seq} ({event.kind}) comes out with another '{different[0]}'"
        raise IntegrityError(msg)


def _replay_labels(ledger: Ledger, event: Event, decided: set[str], labelled: set[tuple[bool, str]]) -> None:
    """Labels of spot checks are of records that were decided, and each comes once."""
    table, picked = ledger.table(event.body["labels"]), event.body["picked"] is True
    ids = table.column("id").to_pylist()
    fresh = {(picked, name) for name in ids}
    if not decided.issuperset(ids) or len(fresh) < len(ids) or fresh & labelled:
        msg = (
            f"replay: event {event.seq} ({event.kind}): labels of records that were not decided, or once more"
        )
        raise IntegrityError(msg)
    labelled |= fresh
    tree = {"labels": event.body["labels"], "labels_tree": row_tree(table)}
    _same(event, {**tree, "count": len(ids), "picked": picked})


def _replay_batch(
    ledger: Ledger,
    stage: Stage,
    certificate: Certificate,
    event: Event,
    number: int,
    opened: int,
    spent: dict[str, int],
) -> set[str]:
    """Decide on a batch again; returns the ids of its records."""
    batch = _batch(ledger, event)
    keys = window_keys(batch, number)
    carried = np.array([spent.get(name, 0) for name in keys], np.int64)
    closed = "the certificate was refused"
    if certificate.policy:
        closed = foreign_source(stage, batch) or overdue(stage, spent, keys)
    policy = NOTHING if closed or certificate.policy is None else certificate.policy
    asked = np.zeros(len(batch), np.bool_) if closed else request_batch(stage, policy, batch, carried).rows
    answers = recorded_answers(ledger, event, len(batch))
    table = decide_batch(stage, policy, batch, answers, carried, closed, check_key(ledger, opened))
    facts = batch_facts(ledger, batch, Decisions(table, closed, number))
    where = {name: event.body[name] for name in ("batch", "observations", "windowed")}
    facts |= {**where, "batch": number, "sources": source_facts(batch)}
    different = [n for n in {**facts, **event.body} if event.body.get(n, ...) != facts.get(n, ...)]
    if asked.any() != (ledger.events[event.seq - 1].kind is EventKind.SETTLED):
        different.append("requests")
    elif asked.any():
        count = int(np.count_nonzero(asked))
        _same(
            ledger.events[event.seq - 2],
            {**where, "requests": ledger.put_table(asked_rows(asked, 0)), "count": count},
        )
        settled = ledger.events[event.seq - 1]
        _same(settled, {**where, "answers": settled.body["answers"], "count": count})
    if different:
        msg = f"replay: event {event.seq} ({event.kind}): batch {number} comes out with another '{different[0]}'"
        raise IntegrityError(msg)
    add_calls(spent, ledger.table(event.body["windows"]))
    return set(table.column("id").to_pylist())


def _replay_watch(ledger: Ledger, event: Event, following: Event | None) -> None:
    """An alarm is in the log exactly where the labels before it raise one."""
    state = watch(ledger.until(event.seq + 1))
    raised = following is not None and following.kind is EventKind.ALARM
    if state.monitor.closed and (following is None or following.kind is EventKind.CLOSED):
        return  # interrupted between the labels and the alarm, and not decided on anything since
    if state.monitor.closed != raised or (following and raised and following.body != alarm_facts(state)):
        msg = f"replay: event {event.seq} ({event.kind}): the alarm behind it is not what its labels raise"
        raise IntegrityError(msg)


def _batch(ledger: Ledger, event: Event) -> Records:
    table = pa.concat_tables([ledger.table(ref) for ref in event.body["observations"]])
    batch = Records.restore(table, where=f"batch {event.body['batch']}")
    return replace(batch, windowed=event.body["windowed"], sources=named_sources(event.body["sources"]))
