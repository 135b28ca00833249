"""`vapo keys`: keys, and the checkpoints that are signed with them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from vapo.ledger.note import Checkpoint

EXAMPLES = (
    "vapo keys new signer.pem --name example.org/team",
    "vapo keys sign run --key signer.pem --out run.note",
    "vapo keys cosign run.note --key witness.pem --log-key signer.pem.pub --first --out cosigned.note",
    "vapo keys cosign growth.proof --key witness.pem --log-key signer.pem.pub --previous cosigned.note --out new.note",
)

What = Annotated[
    Literal["new", "sign", "cosign"],
    typer.Argument(metavar="new|sign|cosign", help="Make keys, sign a run's checkpoint, or witness one."),
]
PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="new: where the private key goes (the public one gets .pub behind it). sign: the run. "
        "cosign: a signed checkpoint, or a proof that the run grew to one.",
    ),
]
Name = Annotated[
    str, typer.Option(help="new: what the key is called in signatures, such as example.org/team.")
]
Key = Annotated[Path | None, typer.Option(metavar="PRIVATE", help="sign, cosign: the key that signs.")]
LogKey = Annotated[
    Path | None,
    typer.Option(metavar="PUBLIC", help="cosign: the public key that must have signed for the run."),
]
Previous = Annotated[
    Path | None,
    typer.Option(metavar="OLD", help="cosign: the last checkpoint of this run that this witness signed."),
]
First = Annotated[
    bool, typer.Option("--first", help="cosign: this witness has never signed one of this run.")
]
Out = Annotated[Path | None, typer.Option(metavar="NOTE", help="sign, cosign: where the checkpoint goes.")]


def keys(
    what: What,
    path: PathArgument,
    name: Name = "vapo",
    key: Key = None,
    log_key: LogKey = None,
    previous: Previous = None,
    first: First = False,
    out: Out = None,
    json_output: shared.Json = False,
) -> None:
    """Make an Ed25519 key pair, or sign and witness checkpoints.

    A private key can be read by its owner alone and never replaces another file. A checkpoint is three lines: which
    run, how many events, their Merkle root. Its maker can sign two histories; a witness with a key of its own, who
    signs only what grew out of what it signed before, cannot be made to by the maker alone. Without a witness a
    chain of events proves nothing against its own author.
    """
    if what == "new":
        if any(given is not None for given in (key, log_key, previous, out)) or first:
            shared.refuse("a file name and --name only", "other options", where="vapo keys new")
        _new(path, name, json_output=json_output)
        return
    if key is None or out is None:
        shared.refuse("--key PRIVATE and --out NOTE", "not both", where=f"vapo keys {what}")
    if what == "sign":
        if log_key is not None or previous is not None or first:
            shared.refuse("--key and --out only", "options of cosign", where="vapo keys sign")
        _sign(path, key, out, json_output=json_output)
        return
    if log_key is None:
        shared.refuse("--log-key PUBLIC, who may sign for the run", "none", where="vapo keys cosign")
    if first == (previous is not None):
        shared.refuse("either --previous OLD or --first", "both or neither", where="vapo keys cosign")
    _cosign(path, key, log_key, previous, out, json_output=json_output)


def _new(path: Path, name: str, *, json_output: bool) -> None:
    from vapo.ledger.keys import new_key, public_path

    public = new_key(path, name)
    shared.say(f"private key in {path}, public key in {public_path(path)}: {public.text}")
    answer = {
        "private": str(path),
        "public": str(public_path(path)),
        "key": public.text,
        "witness_key": public.as_witness.text,
        "name": public.name,
    }
    shared.emit(answer, json_output=json_output)


def _sign(run: Path, key: Path, out: Path, *, json_output: bool) -> None:
    from vapo.errors import IntegrityError
    from vapo.ledger import verify_run
    from vapo.ledger.keys import load_key
    from vapo.ledger.note import Checkpoint

    signer = load_key(files.existing(key, "a key"))
    files.open_run(run)
    report = verify_run(run)
    if not report.ok:
        msg = f"{run} is not signed, for it does not verify: {report.findings[0].where}: {report.findings[0].what}"
        raise IntegrityError(msg)
    point = Checkpoint(report.origin, report.events, bytes.fromhex(report.root))
    files.write_out(out, point.sign(signer).data, run=run)
    shared.say(f"{point.size} events of {point.origin} signed by {signer.name} in {out}")
    answer = {"note": str(out), "origin": point.origin, "size": point.size, "root": point.root.hex()}
    shared.emit(answer, json_output=json_output)


def _cosign(
    path: Path, key: Path, log_key: Path, previous: Path | None, out: Path, *, json_output: bool
) -> None:
    from vapo.errors import IntegrityError
    from vapo.ledger.checkpoints import parse_checkpoint
    from vapo.ledger.keys import load_key, load_verifiers
    from vapo.ledger.note import Note, cosign
    from vapo.ledger.proof import check_growth_proof

    witness = load_key(files.existing(key, "a key"))
    logs = load_verifiers(files.existing(log_key, "a public key"))
    data = files.existing(path, "a signed checkpoint, or a proof of growth").read_bytes()
    old: Checkpoint | None = None
    proof: tuple[bytes, ...] = ()
    if previous is not None:
        kept = files.existing(previous, "a checkpoint").read_bytes()
        # What a witness goes by is what it signed itself, not what somebody hands it.
        Note.parse(kept).verify([witness.witness])
        old = parse_checkpoint(kept)
    if data.startswith(b"{"):
        grown = check_growth_proof(data, logs)
        if old is None or grown.old != old:
            msg = f"{path}: proves growth from another checkpoint than the one that was signed last"
            raise IntegrityError(msg)
        data, proof = grown.note, grown.path
    now = parse_checkpoint(data)
    note = cosign(data, witness, log_keys=logs, time=int(time.time()), previous=old, proof=proof)
    files.write_out(out, note)
    shared.say(
        f"{now.size} events of {now.origin} cosigned by {witness.name} in {out}; keep it for the next time."
    )
    shared.emit(
        {"note": str(out), "origin": now.origin, "size": now.size, "witness": witness.witness.text},
        json_output=json_output,
    )
