"""A stage's observations, kept in the run and read back from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo.errors import InputError
from vapo.ledger import Event, EventKind, Ledger
from vapo.ledger.segments import Encoded, encode_table
from vapo.policy import Family
from vapo.protocol import Protocol
from vapo.records import Records, Source
from vapo.scores import FittedScore

__all__ = [
    "CHUNK",
    "Progress",
    "Stage",
    "declared_protocol",
    "encode_records",
    "has_secondary",
    "load_records",
    "named_sources",
    "silent",
    "source_facts",
    "store_records",
    "trusted_secondaries",
]

CHUNK = 65_536
"""Records in one segment; fixed, so that the same run has the same bytes everywhere."""

Progress = Callable[[str, int, int], None]
"""Called with the step's name, how much is done and how much there is."""


def silent(step: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
    del step, done, total


def _tables(records: Records, *, secondary: bool = False) -> Iterator[pa.Table]:
    for rows in records.slices(CHUNK):
        yield records.take(rows).to_arrow(secondary=secondary)


def store_records(
    ledger: Ledger, records: Records | None, *, secondary: bool = False
) -> list[dict[str, str]]:
    """Put observations into segments, with the secondary's answers only if told so."""
    return [] if records is None else [ledger.put_table(t) for t in _tables(records, secondary=secondary)]


def encode_records(records: Records) -> list[Encoded]:
    """Observations as segments that are not stored yet."""
    return [encode_table(table) for table in _tables(records)]


def source_facts(records: Records) -> dict[str, dict[str, Any]]:
    """The sources of some records as plain data."""
    return {
        name: {"id": source.id, "digest": source.digest, "declared": source.declared}
        for name, source in records.sources.items()
    }


def named_sources(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Source]:
    """The inverse of `source_facts`."""
    return {name: Source(**source) for name, source in facts.items()}


def has_secondary(protocol: Protocol, *parts: Records | None) -> bool:
    """Whether there is a secondary verifier: some records have its answers, or the protocol names it."""
    return bool(protocol.secondary) or any(part is not None and part.secondary_names for part in parts)


def trusted_secondaries(protocol: Protocol, records: Records) -> dict[str, Source]:
    """The secondary verifiers whose answers count: the declared ones, or else all that answered."""
    names = records.secondary_names if protocol.secondary is None else protocol.secondary
    known = {**protocol.sources, **records.sources}
    return {name: known.get(name) or Source.undeclared(name) for name in names}


def load_records(ledger: Ledger, body: Mapping[str, Any], role: str, protocol: Protocol) -> Records | None:
    """Read a stage's observations back."""
    refs = body["observations"][role]
    if not refs:
        return None
    table = pa.concat_tables([ledger.table(ref) for ref in refs])
    # They were searched for oracle fields when they were taken in; what was waived then stands in the log.
    where = f"{ledger.path}: {role} records"
    records = Records.restore(table, where=where, sources=protocol.sources)
    if role == "design":
        return records
    sources = named_sources(body["sources"])
    return replace(records, windowed=body["windowed"], sources=sources, waived=tuple(body["waived"]))


@dataclass(frozen=True, slots=True)
class Stage:
    """What is fixed about a stage once its family is frozen."""

    number: int
    opening: Event
    """The event that declared it."""
    protocol: Protocol
    delta: float
    """This stage's share of the protocol's delta."""
    extends: int | None
    """The stage whose buffer this one adds to."""
    family: Family
    score: FittedScore
    planned_coverage: npt.NDArray[np.float64]
    planned_calls: npt.NDArray[np.float64]
    planned_squares: npt.NDArray[np.float64] | None
    """Mean square of admitted records a group on the design split, by candidate."""
    group_cap: int | None
    sources: dict[str, Source]

    @classmethod
    def load(cls, ledger: Ledger, number: int | None = None) -> Stage:
        """Read a stage, the current one by default."""
        start = ledger.stage_start(number)
        opening = ledger.events[start]
        frozen = ledger.stage_events(EventKind.FAMILY, stage=number)
        if not frozen:
            expected = f"{ledger.path}: this stage has no family yet"
            raise InputError(expected)
        body = frozen[0].body
        planned = ledger.json(body["planned"])
        return cls(
            number=int(opening.body["stage"]),
            opening=opening,
            protocol=declared_protocol(ledger),
            delta=float(opening.body["delta"]),
            extends=opening.body.get("extends"),
            family=Family.from_dict(ledger.json(body["family"])),
            score=FittedScore.from_dict(ledger.json(body["score"])),
            planned_coverage=np.array(planned["coverage"], np.float64),
            planned_calls=np.array(planned["calls"], np.float64),
            planned_squares=None if planned["squares"] is None else np.array(planned["squares"], np.float64),
            group_cap=body["group_cap"],
            sources=named_sources(opening.body["sources"]),
        )

    @property
    def needs_cap(self) -> bool:
        """Whether evidence is read by group with the declared cap on what is admitted of one."""
        planned = self.planned_squares is not None and self.protocol.reach == "population"
        return self.group_cap is not None and (self.protocol.claim == "sequential" or planned)

    def records(self, ledger: Ledger) -> Records:
        """The certification records as the run keeps them."""
        found = load_records(ledger, self.opening.body, "certification", self.protocol)
        if found is None:
            expected = "certification records"
            raise InputError(expected, "none", where=str(ledger.path))
        return found

    def actions(self, ledger: Ledger) -> Iterator[Event]:
        """The recorded chunks of actions, in order."""
        yield from ledger.stage_events(EventKind.ACTIONS, stage=self.number)


def declared_protocol(ledger: Ledger) -> Protocol:
    """The protocol of a run."""
    return Protocol.from_dict(ledger.events[ledger.stage_start(1)].body["protocol"], where=str(ledger.path))
