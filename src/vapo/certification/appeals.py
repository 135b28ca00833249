"""Paying for answers: the request is on disk before the answer is read, and no call is paid for twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo.errors import InputError
from vapo.ledger import Event, EventKind, Ledger
from vapo.policy import Answers, Reason
from vapo.records import Records

__all__ = [
    "AnswerSource",
    "Keyed",
    "appeal",
    "asked_rows",
    "paid_answers",
    "recorded_answers",
    "request_keys",
]

AnswerSource = Callable[[slice, npt.NDArray[np.bool_]], Answers]
"""Given some rows of the stage and which of them are asked for: the secondary's answers."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A secondary that honours idempotency keys: asked again under a key it answers the same and is paid once.

    Wherever a secondary can be given, it can be given in this form. Calls that were in flight when the process died
    are then asked again, under the keys that they had, instead of being lost.

    Example:
        >>> bank = {}
        >>> def ask(records, asked, keys):
        ...     verdict = np.zeros(len(asked), np.int8)
        ...     verdict[asked] = [bank.setdefault(key, 1) for key in keys]
        ...     return Answers(verdict, np.ones(len(asked)), np.zeros(len(asked), np.uint8))
        >>> Keyed(ask).ask(None, np.array([True, False]), ["a key"]).verdict.tolist()
        [1, 0]
    """

    ask: Callable[..., Answers]
    """Called as a plain secondary is, with one more argument: a list of keys, one for each record asked for."""


def request_keys(requested: Event, rows: npt.NDArray[np.int64]) -> list[str]:
    """The idempotency keys of logged requests: SHA-256 of the event's digest, a colon and the record's number.

    The digest stands for everything in the run up to the request. No two requests of a run share a key, and a
    request that is made again has the key that it had.
    """
    return [hashlib.sha256(f"{requested.digest}:{row}".encode()).hexdigest() for row in rows.tolist()]


def appeal(
    ledger: Ledger,
    where: Mapping[str, Any],
    asked: npt.NDArray[np.bool_],
    secondary: Callable[..., Answers] | Keyed,
    question: tuple[Any, ...],
    *,
    repeatable: bool,
) -> Answers:
    """Log the requests of some records, get their answers, and log these.

    When interrupted work is redone, answers that were settled are taken from the log. Requests that were logged
    without an answer may have been paid for: unless asking again is free and gives the same, or the secondary
    honours idempotency keys, they count as lost.

    Args:
        ledger: The run, at the place where the requests belong.
        where: What the events say about place and size; `first` is the number of the first record, 0 if absent.
        asked: Which records are asked for.
        secondary: Gives the answers; asked after the requests are on disk, if at all.
        question: What it is called with.
        repeatable: Whether asking again is free and gives the same answers.
    """
    if not asked.any():
        return Answers.none(len(asked))
    first, place = int(where.get("first", 0)), np.flatnonzero(asked)
    redone = ledger.redoing
    requests = ledger.put_table(asked_rows(asked, first))
    requested = ledger.commit(EventKind.REQUESTED, {**where, "requests": requests, "count": len(place)})
    if ledger.redoing and not repeatable:
        answers = _read(ledger, ledger.events[len(ledger.seen)], len(asked))
    elif isinstance(secondary, Keyed):
        answers = secondary.ask(*question, request_keys(requested, place + first)).only(asked)
    elif repeatable or not redone:
        answers = secondary(*question).only(asked)
    else:
        answers = Answers.none(len(asked))
        answers.failure[place] = Reason.SECONDARY_LOST
    settled = {
        "row": place + first,
        "y2": answers.verdict[place],
        "c2": answers.confidence[place],
        "failure": answers.failure[place],
    }
    ledger.commit(
        EventKind.SETTLED, {**where, "answers": ledger.put_table(pa.table(settled)), "count": len(place)}
    )
    return answers


def asked_rows(asked: npt.NDArray[np.bool_], first: int) -> pa.Table:
    """The numbers of the records that are asked for."""
    return pa.table({"row": np.flatnonzero(asked) + first})


def paid_answers(records: Records, sources: tuple[str, ...] | None) -> AnswerSource:
    """The answers that came with the records, from sources that count."""

    def answers(rows: slice, asked: npt.NDArray[np.bool_]) -> Answers:
        if records.secondary is None:
            expected = "a column 'y2' with the secondary's answers to what the candidates ask"
            raise InputError(expected, f"none, and {np.count_nonzero(asked)} requests", where=records.where)
        if sources is not None and not set(sources) & set(records.secondary_names):
            expected = f"answers in y2 of the declared secondary {', '.join(sources)} (column y2_source)"
            raise InputError(expected, f"only of {', '.join(records.secondary_names)}", where=records.where)
        return Answers.of(records.secondary.take(rows), len(asked), sources)

    return answers


def recorded_answers(ledger: Ledger, event: Event, rows: int) -> Answers:
    """The answers that were settled just before these actions were recorded."""
    before = ledger.events[event.seq - 1]
    return _read(ledger, before, rows) if before.kind is EventKind.SETTLED else Answers.none(rows)


def _read(ledger: Ledger, settled: Event, rows: int) -> Answers:
    answers = Answers.none(rows)
    table = ledger.table(settled.body["answers"])
    place = table.column("row").to_numpy() - int(settled.body.get("first", 0))
    answers.verdict[place] = table.column("y2").to_numpy()
    answers.confidence[place] = table.column("c2").to_numpy()
    answers.failure[place] = table.column("failure").to_numpy()
    return answers
