"""Freezing a trace: every candidate decides on every record, and no label exists yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo._internal.ahead import ahead
from vapo.certification.appeals import AnswerSource, Keyed, appeal, paid_answers
from vapo.certification.stage import CHUNK, Progress, Stage, encode_records, silent, trusted_secondaries
from vapo.certification.tally import codes_table, largest_admitted
from vapo.errors import BudgetError, InputError
from vapo.ledger import Event, EventKind, Ledger
from vapo.policy import Actions, Requests, ask, settle
from vapo.records import Records
from vapo.scores import refuse_shared_sources

__all__ = ["FreezeSummary", "check_same_records", "freeze_trace", "pending_requests", "walk"]


@dataclass(frozen=True, slots=True)
class FreezeSummary:
    """What a frozen trace will cost."""

    labels: int
    """Records that some candidate admits: the labels that certification needs."""
    secondary_calls: int
    """Records that some candidate appeals."""
    event: Event
    needed: pa.Array
    """Ids of the records whose labels are needed."""


def pending_requests(ledger: Ledger, certification: Records) -> pa.Table:
    """The records that some candidate asks the secondary for (id and place), before any answer is there."""
    stage = Stage.load(ledger)
    rows = [requests.rows for _, requests in walk(stage, certification.without_secondary())]
    asked = np.flatnonzero(np.concatenate(rows))
    return pa.table({"id": certification.id.take(pa.array(asked)), "row": certification.row[asked]})


def walk(stage: Stage, records: Records) -> Iterator[tuple[slice, Requests]]:
    """Chunks of records with what every candidate requests there, budgets carried from chunk to chunk."""
    spent = np.zeros(len(stage.family), np.int64)
    for rows in records.slices(CHUNK):
        chunk = records.take(rows)
        if rows.start and records.window[rows.start] != records.window[rows.start - 1]:
            spent[:] = 0
        requests = ask(stage.family, chunk, stage.score.apply(chunk), spent=spent)
        yield rows, requests
        calls = requests.calls[requests.key]
        spent = calls[:, -1] + (spent if len(requests.starts) == 1 else 0)


def freeze_trace(
    ledger: Ledger,
    certification: Records,
    *,
    answers: AnswerSource | Keyed | None = None,
    repeatable: bool = False,
    progress: Progress = silent,
) -> FreezeSummary:
    """Let every candidate decide on every record and freeze what they did; no label exists yet.

    Requests for the secondary are on disk before its answers are looked at.

    Args:
        ledger: A run whose family is frozen.
        certification: The stage's records.
        answers: Where the secondary's answers come from; by default they came with the records. A `Keyed` one is
            called with a third argument, the idempotency keys.
        repeatable: Whether asking `answers` again is free and gives the same, so that interrupted calls are not lost.
        progress: Told how many records are decided.
    """
    stage = Stage.load(ledger)
    protocol = stage.protocol
    # Answers may come later than the declaration, from somebody that it could not name.
    refuse_shared_sources(certification, stage.score.inputs, trusted_secondaries(protocol, certification))
    ledger.rewind(ledger.stage_events(EventKind.FAMILY)[0].seq + 1)
    codes = np.empty((len(stage.family), min(CHUNK, len(certification))), np.uint8)
    source = answers or paid_answers(certification, protocol.secondary)
    repeatable = repeatable or answers is None
    needed: list[npt.NDArray[np.int64]] = []
    if protocol.max_secondary_calls is not None:
        _refuse_too_many_calls(stage, certification, protocol.max_secondary_calls)
    calls = 0
    for number, (rows, requests) in enumerate(ahead(walk(stage, certification))):
        progress("deciding", rows.start, len(certification))
        chunk = certification.take(rows)
        where = {"chunk": number, "first": rows.start, "rows": len(chunk)}
        calls += int(np.count_nonzero(requests.rows))
        question = (rows, requests.rows)
        given = appeal(ledger, where, requests.rows, source, question, repeatable=repeatable)
        actions = settle(requests, chunk, given, out=codes)
        ledger.commit(EventKind.ACTIONS, {**where, **_store_actions(ledger, chunk, actions)})
        needed.append(np.flatnonzero(np.minimum.reduce(actions.codes, axis=0) <= 2) + rows.start)
    progress("deciding", len(certification), len(certification))
    wanted = np.concatenate(needed)
    if protocol.max_labels is not None and len(wanted) > protocol.max_labels:
        msg = (
            f"certification would ask for {len(wanted)} labels, more than the declared {protocol.max_labels}"
        )
        raise BudgetError(msg)
    _refuse_beyond_cap(ledger, stage, certification)
    event = ledger.commit(
        EventKind.FROZEN,
        {
            "records": len(certification),
            "needed": ledger.put_table(pa.table({"row": wanted})),
            "bill": {"labels": len(wanted), "secondary_calls": calls},
        },
    )
    return FreezeSummary(len(wanted), calls, event, certification.id.take(pa.array(wanted)))


def _refuse_too_many_calls(stage: Stage, certification: Records, most: int) -> None:
    """What is asked for never depends on an answer, so it can be counted before the first call is paid."""
    calls = sum(int(np.count_nonzero(requests.rows)) for _, requests in walk(stage, certification))
    if calls > most:
        msg = f"certification would ask for {calls} secondary calls, more than the declared {most}"
        raise BudgetError(msg)


def _refuse_beyond_cap(ledger: Ledger, stage: Stage, certification: Records) -> None:
    """Where evidence is read by group, no candidate may admit more of a group than was declared."""
    cap = stage.group_cap
    if cap is None or certification.largest_group <= cap or not stage.needs_cap:
        return
    largest = largest_admitted(ledger, stage, certification)
    worst = int(np.argmax(largest))
    if largest[worst] > cap:
        expected = f"at most {cap} admitted records in every group (declare a larger --group-cap beforehand)"
        raise InputError(
            expected, f"{largest[worst]} that candidate {worst} admits", where=certification.where
        )


def check_same_records(ledger: Ledger, records: Records) -> None:
    """Make sure that these are the certification records that the run declared."""
    stage = Stage.load(ledger)
    declared = stage.opening.body["observations"]["certification"]
    if [segment.ref for segment in encode_records(records)] != declared:
        expected = "the certification records that the run declared"
        raise InputError(expected, "others", where=records.where)


def _store_actions(ledger: Ledger, records: Records, actions: Actions) -> Mapping[str, Any]:
    windows = records.window_names.take(pa.array(actions.window[actions.starts]))
    by_window = pa.FixedSizeListArray.from_arrays(pa.array(actions.calls.T.ravel()), len(actions.calls))
    return {
        "codes": ledger.put_table(codes_table(actions.codes)),
        "calls": ledger.put_table(pa.table({"window": windows, "calls": by_window})),
    }
