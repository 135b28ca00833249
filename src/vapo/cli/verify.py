"""`vapo verify`: is every byte of a run what was written?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from vapo.ledger.keys import VerifierKey
    from vapo.ledger.note import Checkpoint
    from vapo.ledger.verify import Report

EXAMPLES = (
    "vapo verify run",
    "vapo verify run --key signer.pem.pub",
    "vapo verify run --checkpoint last-month.note --key signer.pem.pub --witness witness.pub",
)


Key = Annotated[
    Path | None,
    typer.Option(metavar="PUBLIC", help="Public key: certificate and checkpoint must carry its signature."),
]
Known = Annotated[
    Path | None,
    typer.Option(metavar="OLD", help="A checkpoint that was kept elsewhere: the run must only have grown."),
]
Witness = Annotated[
    Path | None, typer.Option(metavar="PUBLIC", help="Public keys of witnesses: all must have cosigned OLD.")
]
Exact = Annotated[bool, typer.Option("--exact", help="The run must not even have grown since OLD.")]
Save = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep what the run is now, as an unsigned checkpoint.")
]


def verify(
    run: shared.RunFolder,
    key: Key = None,
    checkpoint: Known = None,
    exact: Exact = False,
    witness: Witness = None,
    save: Save = None,
    json_output: shared.Json = False,
) -> None:
    """Check every byte of a run.

    Looks at the chain and order of events, every file that they name, the door through which labels came, and
    signatures. Says what is wrong first, where, and what it means. Nothing is recomputed: that is vapo replay. Exits
    with 1 if anything is not as it was written.

    A run that verifies is what its maker wrote, and only with --checkpoint also what the maker wrote then. Without a
    witness that cosigned it, nothing here speaks against a maker who shows you another history than others.

    Also takes what vapo train left: its ledger and metrics, and the gate's own run in its folder gate, which is a run
    like any other.
    """
    from vapo.train.runner_files import GATE, is_training_run

    if is_training_run(run):
        if key or checkpoint or exact or witness or save:
            shared.refuse(f"no options beside a training run; they are for the run in {run / GATE}", "some")
        _training(run, json_output=json_output)
        return
    from vapo.ledger import verify_run
    from vapo.ledger.keys import load_verifiers
    from vapo.ledger.note import Checkpoint

    # A run that lost its log is a finding; a folder that never was a run is a mistake.
    if not any((run / name).exists() for name in ("segments", "certificate.json", files.LOG)):
        files.open_run(run)
    keys = () if key is None else load_verifiers(files.existing(key, "a public key"))
    known = None if checkpoint is None else open_known(checkpoint, keys, witness)
    if known is None and (witness is not None or exact):
        shared.refuse("--checkpoint beside --witness and --exact", "none")
    report = verify_run(run, keys=keys, checkpoint=known, exact=exact)
    if report.ok:
        grown = "" if known is None else f", of which the first {known.size} are those of {checkpoint}"
        shared.say(
            f"OK: {report.events} events{grown}; the last is '{report.last}', Merkle root {report.root[:16]}…"
        )
        if save is not None:
            point = Checkpoint(report.origin, report.events, bytes.fromhex(report.root))
            files.write_out(save, point.text.encode(), run=run)
            shared.say(f"Kept in {save}: hold the run against it later with --checkpoint.")
    _tell(report, json_output=json_output)


def _training(run: Path, *, json_output: bool) -> None:
    from vapo.train.runner_verify import verify_training

    report = verify_training(run)
    if report.ok:
        shared.say(f"OK: a training run of {report.events} entries; the last is '{report.last}'.")
    _tell(report, json_output=json_output)


def _tell(report: Report, *, json_output: bool) -> None:
    """What is wrong, first things first; ends the command with 1 if anything is."""
    for number, finding in enumerate(report.findings):
        shared.say(f"{'FIRST ' if not number else 'ALSO '}WRONG {finding.where}: {finding.what}")
        shared.say(f"      That means: {finding.means}")
    shared.emit(report.as_dict(), json_output=json_output)
    if not report.ok:
        raise typer.Exit(shared.NEGATIVE)


def open_known(path: Path, keys: tuple[VerifierKey, ...], witness: Path | None) -> Checkpoint:
    """Read a checkpoint that somebody kept; with keys, it must be signed by one of them and by all witnesses."""
    from vapo.errors import IntegrityError
    from vapo.ledger.checkpoints import parse_checkpoint
    from vapo.ledger.note import open_checkpoint

    data = files.existing(path, "a checkpoint").read_bytes()
    witnesses = files.load_witnesses(witness)
    if witnesses and not keys:
        shared.refuse("--key, the run's own public key, beside --witness", "none")
    if keys and b"\n\n" in data:
        return open_checkpoint(data, keys, witnesses=witnesses).checkpoint
    if witnesses:
        msg = f"{path}: nobody signed it, and every witness must have"
        raise IntegrityError(msg)
    # An unsigned one is as good as the place where it was kept.
    return parse_checkpoint(data)
