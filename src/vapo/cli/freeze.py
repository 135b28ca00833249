"""`vapo freeze`: every candidate decides on every certification record, before any label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from vapo.certification.stage import Stage
    from vapo.ledger import Ledger
    from vapo.records import Records

EXAMPLES = (
    "vapo freeze run rollouts.parquet --requests to-ask.csv",
    "vapo freeze run rollouts.parquet --needs to-label.csv",
)

Requests = Annotated[
    Path | None, typer.Option(help="Write which records need a secondary answer to this file, and stop.")
]
Needs = Annotated[
    Path | None, typer.Option(help="Write the ids of the records whose labels are needed to this file.")
]


def freeze(
    run: shared.RunFolder,
    records: shared.RecordsFile,
    requests: Requests = None,
    needs: Needs = None,
    json_output: shared.Json = False,
) -> None:
    """Let all candidates decide and freeze what they did.

    The second of three steps. After it is known which labels certification needs, and that no decision can
    depend on them.
    """
    import pyarrow as pa

    from vapo.certification.flow import as_records
    from vapo.certification.freeze import freeze_trace, pending_requests
    from vapo.certification.stage import Stage
    from vapo.ledger import EventKind, Ledger

    if requests is not None and needs is not None:
        shared.refuse("--requests, then --needs when the answers are there", "both at once")
    files.demand(files.open_run(run), "no candidates are frozen yet", EventKind.FAMILY)
    files.existing(records, "records")
    outputs = [
        None if path is None else files.Output(path, run=run, inputs=(records,)) for path in (requests, needs)
    ]
    with Ledger.write(run) as ledger, shared.progress() as progress:
        stage = Stage.load(ledger)
        rows = _certifying(ledger, stage, as_records(records, stage.protocol))
        if outputs[0] is not None:
            wanted = pending_requests(ledger, rows)
            outputs[0].write(wanted)
            shared.say(
                f"{len(wanted):,} records need a secondary answer: see {requests}. Add them to "
                f"{records} as y2 (and c2, "
                f"y2_source), then: vapo freeze {run} {records}"
            )
            shared.emit({"frozen": False, "requests": len(wanted)}, json_output=json_output)
            return
        if rows.secondary is None and stage.family.appeals:
            _refuse_unanswered(len(pending_requests(ledger, rows)), run, records)
        summary = freeze_trace(ledger, rows, progress=progress)
        root = ledger.root(summary.event.seq + 1)
    if outputs[1] is not None:
        outputs[1].write(pa.table({"id": summary.needed}))
    said = "" if needs is None else f" (listed in {needs})"
    shared.say(
        f"Frozen: certification took {summary.secondary_calls:,} secondary calls and needs "
        f"{summary.labels:,} labels{said}.\n"
        f"Next: vapo join {run} LABELS"
    )
    answer = {
        "frozen": True,
        "labels": summary.labels,
        "secondary_calls": summary.secondary_calls,
        "trace_root": root,
    }
    shared.emit(answer, json_output=json_output)


def _certifying(ledger: Ledger, stage: Stage, rows: Records) -> Records:
    """Those of the given records that the run certifies on; all must be there and be what they were."""
    import numpy as np
    import pyarrow.compute as pc

    from vapo.certification.freeze import check_same_records

    declared = stage.records(ledger).id
    absent = declared.filter(pc.invert(pc.is_in(declared, value_set=rows.id)))
    if len(absent):
        shared.refuse(
            f"the {len(declared):,} certification records that vapo design declared",
            f"{len(absent):,} of them missing, the first {absent[0].as_py()!r}",
            where=rows.where,
        )
    member = np.asarray(pc.is_in(rows.id, value_set=declared).to_numpy(zero_copy_only=False))
    chosen = rows.take(np.flatnonzero(member))
    check_same_records(ledger, chosen)
    return chosen


def _refuse_unanswered(requests: int, run: Path, records: Path) -> None:
    if requests:
        shared.refuse(
            f"a column 'y2' with answers to the {requests:,} secondary calls that candidates make; "
            f"list them with: vapo freeze {run} {records} --requests FILE",
            "none",
            where=str(records),
        )
