"""`vapo prove`: small files that show one thing about a run, to somebody who has nothing else of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vapo.ledger.keys import VerifierKey
    from vapo.ledger.note import Checkpoint
    from vapo.ledger.proof import Grown, Proved

EXAMPLES = (
    "vapo prove run --record q17-3 --out q17-3.proof",
    "vapo prove run --record q17-3 --table labels --out label.proof",
    "vapo prove run --since last-month.note --out growth.proof",
    "vapo prove --check q17-3.proof --key signer.pem.pub --record q17-3",
)

Run = Annotated[Path | None, typer.Argument(metavar="[RUN]", help="The run folder; none with --check.")]
Record = Annotated[str | None, typer.Option(metavar="ID", help="Prove what the run says about this record.")]
Table = Annotated[
    Literal["decisions", "labels"],
    typer.Option(
        help="Which table the record stands in: decisions (of the certificate or the gate), or labels."
    ),
]
EventNumber = Annotated[
    int | None, typer.Option("--event", min=0, help="Prove an event of the log, by number.")
]
Since = Annotated[
    Path | None, typer.Option(metavar="OLD", help="Prove that the run only grew since this checkpoint.")
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Where the proof file goes.")]
Check = Annotated[Path | None, typer.Option(metavar="FILE", help="Check a proof file instead of making one.")]
Key = Annotated[
    Path | None, typer.Option(metavar="PUBLIC", help="With --check: keys that may sign for the run.")
]
Witness = Annotated[
    Path | None, typer.Option(metavar="PUBLIC", help="With --check: witnesses that must all have cosigned.")
]
Known = Annotated[
    Path | None,
    typer.Option(
        metavar="NOTE", help="The checkpoint to prove against; with --check, the one that you trust."
    ),
]


def prove(
    run: Run = None,
    record: Record = None,
    table: Table = "decisions",
    event: EventNumber = None,
    since: Since = None,
    checkpoint: Known = None,
    out: Out = None,
    check: Check = None,
    key: Key = None,
    witness: Witness = None,
    json_output: shared.Json = False,
) -> None:
    """Prove that a record, an event or an earlier state is in a run, in a small file.

    With --check the file is all that is needed: no run folder, only the public key that is trusted (or a checkpoint
    that was had from elsewhere). A proof shows that the signer committed to these bytes at this place; not that they
    are true, and without a witness not that others were shown the same history.
    """
    if check is not None:
        if run is not None or out is not None or since is not None or event is not None:
            shared.refuse(
                "--check with a proof file and keys only", "a run, --out, --event or --since beside it"
            )
        _check(check, key, witness, checkpoint, record, json_output=json_output)
        return
    if run is None:
        shared.refuse("a run folder, or --check FILE", "neither")
    if (record is not None) + (event is not None) + (since is not None) != 1:
        shared.refuse("exactly one of --record, --event and --since", "none or several")
    if out is None:
        shared.refuse("--out FILE, for the proof", "none")
    if key is not None or witness is not None:
        shared.refuse(
            "keys with --check only: a proof is made with the run's own checkpoint", "--key or --witness"
        )
    data = _make(run, record, table, event, since, checkpoint)
    files.write_out(out, data, run=run)
    shared.say(
        f"Proof of {len(data):,} bytes in {out}. Whoever has it needs nothing else but a key to trust:"
    )
    shared.say(f"vapo prove --check {out} --key PUBLIC")
    shared.emit({"proof": str(out), "bytes": len(data)}, json_output=json_output)


def _make(
    run: Path, record: str | None, table: str, event: int | None, since: Path | None, checkpoint: Path | None
) -> bytes:
    from vapo.ledger.limited import LimitedReader
    from vapo.ledger.lookup import prove_event, prove_growth, prove_record
    from vapo.ledger.run import Ledger

    files.open_run(run)
    note = None if checkpoint is None else files.existing(checkpoint, "a checkpoint").read_bytes()
    with LimitedReader() as reader:
        ledger = Ledger.read(run, tables=reader)
        if record is not None:
            return prove_record(ledger, record, table=table, checkpoint=note)
        if event is not None:
            return prove_event(ledger, event, checkpoint=note)
        assert since is not None
        return prove_growth(ledger, files.existing(since, "a checkpoint").read_bytes(), checkpoint=note)


def _check(
    path: Path,
    key: Path | None,
    witness: Path | None,
    checkpoint: Path | None,
    record: str | None,
    *,
    json_output: bool,
) -> None:
    from vapo._internal.strict import strict_json
    from vapo.ledger.checkpoints import parse_checkpoint
    from vapo.ledger.keys import load_verifiers
    from vapo.ledger.proof import GROWTH, MOST_PROOF, check_growth_proof, check_proof

    if (key is None) == (checkpoint is None):
        shared.refuse("either --key, whom you trust, or --checkpoint, what you know", "both or neither")
    trusted: Sequence[VerifierKey] | Checkpoint
    if key is not None:
        trusted = load_verifiers(files.existing(key, "a public key"))
    else:
        assert checkpoint is not None
        trusted = parse_checkpoint(files.existing(checkpoint, "a checkpoint").read_bytes())
    witnesses = files.load_witnesses(witness)
    with files.existing(path, "a proof").open("rb") as stream:
        data = stream.read(MOST_PROOF + 1)
    raw = strict_json(data, "proof", limit=MOST_PROOF)
    if isinstance(raw, dict) and raw.get("format") == GROWTH:
        if record is not None:
            shared.refuse("--record with the proof of a record", "a proof of growth")
        grown = check_growth_proof(data, trusted, witnesses=witnesses)
        shared.say(
            f"OK: {grown.checkpoint.origin} had {grown.old.size} events then and {grown.checkpoint.size} now; "
            "nothing was taken away or changed."
        )
        shared.say("Compare the earlier checkpoint with the one that you kept: nobody signed it here.")
        shared.emit({**_facts(grown), "old": grown.old.text}, json_output=json_output)
        return
    proved = check_proof(data, trusted, witnesses=witnesses)
    event = proved.event
    shared.say(f"OK: event {event['seq']} ({event['kind']}) is in {proved.checkpoint.origin}")
    found = {**_facts(proved), "event": dict(event)}
    if record is not None:
        found["record"] = dict(proved.row(record))
        shared.say(f"    and says of record {record}: {found['record']}")
    elif proved.rows:
        found["rows"] = [dict(row) for row in proved.rows]
        shared.say(f"    and so are {len(proved.rows)} rows of its table, from row {proved.first_row} on")
    shared.emit(found, json_output=json_output)


def _facts(found: Proved | Grown) -> dict[str, Any]:
    point = found.checkpoint
    signers = [signed.key.name for signed in found.signers]
    return {
        "ok": True,
        "origin": point.origin,
        "size": point.size,
        "root": point.root.hex(),
        "signers": signers,
    }
