"""`vapo labels`: hand labels over before they may be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

EXAMPLES = (
    "vapo labels key join.key",
    "vapo labels seal labels.csv --to join.key.pub --out labels.sealed",
)

What = Annotated[
    Literal["key", "seal"],
    typer.Argument(metavar="key|seal", help="Make a label key, or seal a label file for one."),
]
FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="key: where the private half goes. seal: the label file.")
]
To = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="PUBLIC", help="seal: the public half of the key that may open it; more than one if needed."
    ),
]
Out = Annotated[Path | None, typer.Option(metavar="SEALED", help="seal: where the sealed file goes.")]


def labels(
    what: What, path: FileArgument, to: To = None, out: Out = None, json_output: shared.Json = False
) -> None:
    """Seal labels so that only the join of a frozen trace opens them.

    The file is encrypted in the age format for the holder of a label key. vapo join opens it once the trace is frozen
    and not before. What that cannot keep: whoever holds the private key can open the file with any age tool, so keep
    the key where those who make the trace cannot read it.
    """
    if what == "key":
        if to or out is not None:
            shared.refuse("a file name only", "--to or --out", where="vapo labels key")
        _key(path, json_output=json_output)
        return
    if not to or out is None:
        shared.refuse("--to PUBLIC and --out SEALED", "not both", where="vapo labels seal")
    _seal(path, to, out, json_output=json_output)


def _key(path: Path, *, json_output: bool) -> None:
    from vapo.ledger.keys import public_path
    from vapo.ledger.sealed import new_label_key

    recipient = new_label_key(path)
    shared.say(f"label key in {path}, its public half in {public_path(path)}: {recipient.text}")
    answer = {"private": str(path), "public": str(public_path(path)), "recipient": recipient.text}
    shared.emit(answer, json_output=json_output)


def _seal(path: Path, to: list[Path], out: Path, *, json_output: bool) -> None:
    from vapo._internal.keyed import sha256_hex
    from vapo.ledger.sealed import label_lines, load_recipient, seal_labels
    from vapo.records import Labels

    recipients = [load_recipient(files.existing(public, "the public half of a label key")) for public in to]
    signs = Labels.read(files.existing(path, "labels"))
    sealed = seal_labels(label_lines(signs.id, signs.z), *recipients)
    files.write_out(out, sealed)
    digest = sha256_hex(sealed)
    shared.say(f"{len(signs):,} labels sealed in {out}, SHA-256 {digest}.")
    shared.say(f"Declare it when the stage is opened: vapo design RECORDS --sealed-labels {out} ...")
    answer = {
        "sealed": str(out),
        "labels": len(signs),
        "sha256": digest,
        "recipients": [r.text for r in recipients],
    }
    shared.emit(answer, json_output=json_output)
