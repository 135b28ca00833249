"""What a new stage's buffer may hold: nothing whose labels somebody may have seen."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from vapo.certification.stage import load_records
from vapo.errors import InputError
from vapo.ledger import Event, EventKind, Ledger
from vapo.protocol import Protocol
from vapo.records import Records
from vapo.splits import make_manifest

__all__ = ["refuse_opened_groups", "refuse_other_sources"]


def refuse_other_sources(opening: Event, certification: Records) -> None:
    """Refuse to extend a stage by records that something else produced."""
    declared = opening.body["sources"]
    for name, source in certification.sources.items():
        if name in declared and declared[name]["digest"] != source.digest:
            expected = f"the source of '{name}' to be that of the stage that is extended (a change needs a new stage)"
            raise InputError(expected, source.id, where=certification.where)


def refuse_opened_groups(ledger: Ledger, past: list[Event], protocol: Protocol, fresh: Records) -> None:
    """Refuse records that share an id, a group or a content with any whose labels may have been seen."""
    for name, seen in _opened(ledger, past, protocol):
        try:
            make_manifest({name: seen, "the new stage": fresh})
        except InputError as error:
            msg = f"a fresh buffer is needed, of groups whose labels have not been opened: {error}"
            raise InputError(msg) from None


def _opened(ledger: Ledger, past: list[Event], protocol: Protocol) -> Iterator[tuple[str, Records]]:
    """Records whose labels may have been seen: those of earlier stages, and those of spot checks."""
    checked = [ledger.table(e.body["labels"], ["id"]) for e in past if e.kind is EventKind.SPOTCHECK]
    ids = pa.concat_tables(checked).column("id").combine_chunks() if checked else pa.array([], pa.string())
    for event in past:
        if event.kind in (EventKind.PROTOCOL, EventKind.STAGE):
            seen = load_records(ledger, event.body, "certification", protocol)
            if seen is not None:
                yield f"stage {event.body['stage']}", seen
        elif len(ids) and event.kind is EventKind.ACTIONS and "batch" in event.body:
            for ref in event.body["observations"]:
                table = ledger.table(ref)
                table = table.filter(pc.is_in(table.column("id"), value_set=ids))
                if len(table):
                    yield "spot-checked records", Records.restore(table)
