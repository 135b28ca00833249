"""The gate: the certified policy applied to new records, each batch on disk before it is acted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo.certification.appeals import Keyed, appeal
from vapo.certification.certificate import Certificate
from vapo.certification.flow import as_records
from vapo.certification.stage import Stage, encode_records, source_facts
from vapo.errors import InputError
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
    window_calls,
    window_keys,
)
from vapo.gate.watch import deploy_facts, raise_alarm
from vapo.ledger import EventKind, Ledger
from vapo.policy import Answers, Policy
from vapo.records import Records, Source

__all__ = ["AskSecondary", "Gate"]

AskSecondary = Callable[[Records, npt.NDArray[np.bool_]], Answers]
"""Given a batch and which of its records are asked for: the secondary's answers to those."""


class Gate:
    """The certified policy of a run, deciding on new records.

    It is closed, and abstains from everything, when there is no valid certificate, after an alarm, and for records
    whose sources are not those that were certified.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> from vapo.certification.flow import certify
        >>> table = pa.table({"id": [str(i) for i in range(400)], "group": [str(i) for i in range(400)],
        ...                   "y": [1] * 400, "signal.s": [i / 400 for i in range(400)]})
        >>> truth = {str(i): 1 if i > 100 else -1 for i in range(400)}
        >>> fresh = pa.table({"id": ["n1", "n2"], "group": ["h1", "h2"], "y": [1, -1], "signal.s": [0.99, 0.01]})
        >>> with tempfile.TemporaryDirectory() as run:
        ...     certificate = certify(table, truth, out=run, rho=0.08, c_min=0.25)
        ...     with Gate.open(run) as gate:
        ...         gate.decide(fresh).table.column("action").to_pylist()
        ['accept', 'abstain']
    """

    def __init__(self, ledger: Ledger) -> None:
        """Use `Gate.open`."""
        self._ledger = ledger
        if ledger.events and ledger.events[-1].kind is EventKind.SPOTCHECK:
            # A crash can come between the labels and the alarm that they raise.
            raise_alarm(ledger)
        self.closed = ""
        """Why the gate is closed; empty while it is open."""
        self._policy = NOTHING
        self._stage = Stage.load(ledger, self._certified_stage())
        declared = {name: source for name, source in self._stage.sources.items() if source.declared}
        self._protocol = replace(self._stage.protocol, sources=declared)
        certificate = Certificate.of(ledger)
        self.certificate = certificate
        """The certificate that the gate works under."""
        last = ledger.events[-1].kind
        # What closes a deployment is a renewal; one that was interrupted right behind it is under way all the same.
        if ledger.stage != self._stage.number or last is EventKind.CLOSED:
            self.closed = "a new stage awaits its certificate"
        elif last is EventKind.ALARM:
            self.closed = "an alarm was raised"
        elif certificate.policy is None:
            self.closed = "the certificate was refused"
        else:
            self._policy = certificate.policy
        self._opened = len(ledger.events)
        if ledger.deployed or last in (EventKind.ALARM, EventKind.CLOSED):
            opened = ledger.last(EventKind.DEPLOY)
            assert opened is not None
            self._opened = opened.seq
        self._batches = [e for e in ledger.events[self._opened :] if e.kind is EventKind.ACTIONS]
        self._decided = {_digests(event.body["observations"]): event for event in self._batches}
        ledger.sweep()

    def _certified_stage(self) -> int:
        event = self._ledger.last(EventKind.ISSUED, EventKind.REFUSED)
        if event is None:
            expected = "a run with a certificate"
            raise InputError(expected, "none yet", where=str(self._ledger.path))
        openings = (EventKind.PROTOCOL, EventKind.STAGE)
        return sum(earlier.kind in openings for earlier in self._ledger.events[: event.seq])

    @property
    def _recording(self) -> bool:
        """Whether batches may be written down: not after an alarm, and not between a new stage and its certificate."""
        return not self.closed or self.closed == "the certificate was refused"

    @classmethod
    def open(cls, run: str | Path) -> Gate:
        """Open the gate of a run folder, as its one writer."""
        ledger = Ledger.write(run)
        try:
            return cls(ledger)
        except BaseException:
            ledger.close()
            raise

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to the run; deployment goes on when the gate is opened again."""
        self._ledger.close()

    @property
    def ledger(self) -> Ledger:
        """The run that decisions are put down in."""
        return self._ledger

    @property
    def sources(self) -> Mapping[str, Source]:
        """Who produced what was certified: `primary`, signals, verdicts, and secondary verifiers by their ids."""
        return self._stage.sources

    @property
    def policy(self) -> Policy:
        """What the gate does: the certified policy, or abstaining from everything."""
        return self._policy

    def requests(self, records: Any) -> npt.NDArray[np.bool_]:
        """Which records of a batch the policy would ask the secondary for; nothing is recorded or spent."""
        batch = as_records(records, self._protocol, keep_sources=True)
        if self._why_closed(batch):
            return np.zeros(len(batch), np.bool_)
        return request_batch(self._stage, self._policy, batch, self._carried(batch)).rows

    def decide(
        self, records: Any, *, secondary: AskSecondary | Keyed | None = None, repeatable: bool = False
    ) -> Decisions:
        """Decide on a batch and record it; what was recorded before is returned as it was.

        Args:
            records: New records, as anything that `vapo.certify` takes.
            secondary: Asks the secondary verifier. By default its answers are those in the records, and a request
                without one ends in abstaining. A `Keyed` one is called with a third argument, the idempotency keys.
            repeatable: Whether asking `secondary` again is free and gives the same. If not, calls that were in flight
                when the process died are lost (spent, and abstained on) unless the secondary is `Keyed`.
        """
        batch = as_records(records, self._protocol, keep_sources=True)
        segments = encode_records(batch)
        observations = [segment.ref for segment in segments]
        if _digests(observations) in self._decided:
            return self._recorded(self._decided[_digests(observations)])
        self._refuse_repeated(batch)
        number = len(self._batches)
        carried = self._carried(batch)
        closed = self._why_closed(batch)
        policy = NOTHING if closed else self._policy
        if not self._recording:
            return Decisions(
                decide_batch(self._stage, policy, batch, None, carried, closed, self._key), closed, -1
            )
        self._open_deployment()
        self._rewind_interrupted()
        for segment in segments:
            self._ledger.put(segment)
        where = {"batch": number, "observations": observations, "windowed": batch.windowed}
        requests = None if closed else request_batch(self._stage, policy, batch, carried)
        asked = np.zeros(len(batch), np.bool_) if requests is None else requests.rows
        repeatable = repeatable or secondary is None
        answers = appeal(
            self._ledger, where, asked, secondary or self._paid, (batch, asked), repeatable=repeatable
        )
        table = decide_batch(self._stage, policy, batch, answers, carried, closed, self._key)
        decisions = Decisions(table, closed, number)
        body = {**where, "sources": source_facts(batch), **batch_facts(self._ledger, batch, decisions)}
        event = self._ledger.commit(EventKind.ACTIONS, body)
        self._batches.append(event)
        self._decided[_digests(observations)] = event
        # What was just written need not be read again.
        add_calls(self._spent, window_calls(batch, table, number))
        self._seen.update(batch.id.to_pylist())
        return decisions

    def _why_closed(self, batch: Records) -> str:
        """Why the gate is closed for a batch; empty if it is open."""
        return (
            self.closed
            or foreign_source(self._stage, batch)
            or overdue(self._stage, self._spent, window_keys(batch, len(self._batches)))
        )

    def overlap(self, records: Any) -> dict[str, int]:
        """How many ids and groups of a batch were already in the certification records.

        Records that certified are safe to decide on, but a learner that trains on them leaves nothing fresh to renew
        the certificate with.
        """
        batch = as_records(records, self._protocol, keep_sources=True)
        refs = self._stage.opening.body["observations"]["certification"]
        seen = pa.concat_tables([self._ledger.table(ref, ["id", "group"]) for ref in refs])
        groups = pc.unique(batch.declared_groups)
        return {
            "ids": int(pc.sum(pc.is_in(batch.id, value_set=seen.column("id").combine_chunks())).as_py()),
            "groups": int(pc.sum(pc.is_in(groups, value_set=seen.column("group").combine_chunks())).as_py()),
        }

    def _paid(self, batch: Records, asked: npt.NDArray[np.bool_]) -> Answers:
        """The answers that came with the records, those of other secondaries than the certified ones failing."""
        del asked
        trusted = []
        for name in batch.secondary_names:
            certified = self._stage.sources.get(name)
            known = certified is None or certified.digest == batch.sources[name].digest
            declared = self._stage.protocol.secondary
            if known and (name in declared if declared is not None else certified is not None):
                trusted.append(name)
        return Answers.of(batch.secondary, len(batch), tuple(trusted))

    def _open_deployment(self) -> None:
        """Say in the log that the policy is at work from here on, with the first batch and not before."""
        if self._ledger.deployed:
            return
        self._ledger.rewind(len(self._ledger.events))
        body = deploy_facts(self._ledger, self._protocol)
        self._opened = self._ledger.commit(EventKind.DEPLOY, body).seq

    def _rewind_interrupted(self) -> None:
        """Go back to where a batch began that was interrupted, so that it is redone and not done twice."""
        last = len(self._ledger.events)
        while self._ledger.events[last - 1].kind in (EventKind.REQUESTED, EventKind.SETTLED):
            last -= 1
        self._ledger.rewind(last)

    @cached_property
    def _seen(self) -> set[str]:
        tables = [self._ledger.table(event.body["rows"], ["id"]) for event in self._batches]
        return {name for table in tables for name in table.column("id").to_pylist()}

    def _refuse_repeated(self, batch: Records) -> None:
        if not self._batches:
            return
        for row, name in enumerate(batch.id.to_pylist()):
            if name in self._seen:
                where = f"{batch.where}: row {batch.row[row] + 1}: field 'id'"
                expected = "a record that was not decided before"
                raise InputError(expected, repr(name), where=where)

    @cached_property
    def _spent(self) -> dict[str, int]:
        """Calls made in each window so far, by the log."""
        spent: dict[str, int] = {}
        for event in self._batches:
            add_calls(spent, self._ledger.table(event.body["windows"]))
        return spent

    def _carried(self, batch: Records) -> npt.NDArray[np.int64]:
        """Calls already spent in each window of a batch."""
        return np.array(
            [self._spent.get(name, 0) for name in window_keys(batch, len(self._batches))], np.int64
        )

    @property
    def _key(self) -> bytes:
        return check_key(self._ledger, self._opened)

    def _recorded(self, event: Any) -> Decisions:
        return Decisions(
            self._ledger.table(event.body["rows"]), event.body["closed"], int(event.body["batch"])
        )


def _digests(refs: list[dict[str, str]]) -> tuple[str, ...]:
    return tuple(ref["sha256"] for ref in refs)
