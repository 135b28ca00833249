"""`vapo gate`: the certified policy on new records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from vapo.ledger import Ledger
    from vapo.records import Records

EXAMPLES = (
    "vapo gate run fresh.parquet --out decisions.csv",
    "vapo gate run fresh.parquet --requests to-ask.csv",
)

Out = Annotated[
    Path | None,
    typer.Option(metavar="DECISIONS", help="Write the decisions here: .csv, .jsonl, .parquet or .arrow."),
]
Requests = Annotated[
    Path | None, typer.Option(help="Write which records the policy asks the secondary for, and stop.")
]


def gate(
    run: shared.RunFolder,
    records: shared.RecordsFile,
    out: Out = None,
    requests: Requests = None,
    json_output: shared.Json = False,
) -> None:
    """Decide which new records may enter the learner.

    Writes one row a record: id, action, sign (0 = keep it out), reason, budget_before, budget_after, score,
    and check (drawn for a spot check). Each batch is on disk in RUN before its decisions are; asked again,
    it gets the same ones.
    """
    import pyarrow as pa

    from vapo.certification.flow import as_records
    from vapo.certification.stage import declared_protocol
    from vapo.gate import Gate
    from vapo.ledger import EventKind

    target = out or requests
    if target is None or (out is not None and requests is not None):
        shared.refuse("either --out or --requests", "neither" if target is None else "both")
    ledger = files.open_run(run)
    files.demand(ledger, "there is no certificate yet", EventKind.ISSUED, EventKind.REFUSED, anywhere=True)
    batch = as_records(files.existing(records, "records"), declared_protocol(ledger))
    _refuse_unscorable(ledger, batch)
    output = files.Output(target, run=run, inputs=(records,))
    with Gate.open(run) as opened:
        if requests is not None:
            wanted = opened.requests(batch)
            count = int(wanted.sum())
            output.write(pa.table({"id": batch.id.filter(pa.array(wanted))}))
            shared.say(
                f"{count:,} records need a secondary answer: see {requests}. Add them to {records} as "
                "y2 (and c2, "
                f"y2_source), then: vapo gate {run} {records} --out DECISIONS"
            )
            shared.emit({"requests": count, "closed": opened.closed}, json_output=json_output)
            return
        decisions = opened.decide(batch)
        overlap = opened.overlap(batch)
        since = "" if decisions.closed else opened.closed
    output.write(decisions.table)
    total, checks = decisions.table.num_rows, sum(decisions.table.column("check").to_pylist())
    if decisions.closed:
        shared.say(f"GATE CLOSED: {decisions.closed}; all {total:,} records abstain ({out}).")
    else:
        shared.say(
            f"{decisions.admitted:,} of {total:,} records admitted with {decisions.appealed:,} "
            f"secondary calls: see {out}."
        )
    if since:
        shared.say(f"GATE CLOSED SINCE: {since}; these are the decisions that it made before that.")
    for reason, count in decisions.counts().items():
        shared.say(f"{count:9,}  {reason}")
    if checks:
        shared.say(f"{checks:,} were drawn for a spot check. Next: vapo monitor {run} --wanted to-check.csv")
    if overlap["ids"] or overlap["groups"]:
        shared.say(
            f"Note: {overlap['ids']:,} of these records ({overlap['groups']:,} groups) are "
            "certification records. A learner "
            "that trains on them leaves nothing fresh to renew the certificate with."
        )
    answer = {
        "closed": decisions.closed,
        "closed_since": since,
        "batch": decisions.batch,
        "records": total,
        "admitted": decisions.admitted,
        "appealed": decisions.appealed,
        "reasons": decisions.counts(),
        "checks": checks,
        "overlap": overlap,
    }
    shared.emit(answer, json_output=json_output)


def _refuse_unscorable(ledger: Ledger, batch: Records) -> None:
    """Find out that the certified score cannot be computed before a deployment is opened."""
    from vapo.ledger import EventKind

    certified = ledger.last(EventKind.ISSUED, EventKind.REFUSED)
    families = [event for event in ledger.events if event.kind is EventKind.FAMILY]
    if certified is None:
        return
    family = [event for event in families if event.seq < certified.seq][-1]
    for name in ledger.json(family.body["score"])["inputs"]:
        if name not in batch.trust_names:
            expected = f"a column 'signal.{name}' or 'verdict.{name}', which the certified score reads"
            shared.refuse(expected, "none", where=batch.where)
