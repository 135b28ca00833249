"""`vapo join`: labels meet the frozen trace, and the certificate follows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared
from vapo.cli.certify import Key, Strict, tell

EXAMPLES = (
    "vapo join run labels.csv",
    "vapo join run labels.csv --strict --json",
    "vapo join run labels.sealed --label-key join.key",
)

LabelsFile = Annotated[
    Path,
    typer.Argument(
        metavar="LABELS",
        help="Clean signs, -1 or +1: a file with the columns id and z, or what vapo labels seal made of it.",
    ),
]
LabelKey = Annotated[
    Path | None, typer.Option(metavar="PRIVATE", help="The label key that opens sealed labels.")
]


def join(
    run: shared.RunFolder,
    labels: LabelsFile,
    label_key: LabelKey = None,
    key: Key = None,
    strict: Strict = False,
    json_output: shared.Json = False,
) -> None:
    """Join the labels and issue the certificate, or refuse it.

    The last of three steps, and the only one that sees a label.
    """
    from vapo._internal.keyed import sha256_hex
    from vapo.certification.issue import issue, join_labels
    from vapo.ledger import EventKind, Ledger
    from vapo.ledger.keys import load_key
    from vapo.ledger.sealed import is_sealed, load_label_key, open_labels, parse_labels
    from vapo.records import Labels

    files.demand(files.open_run(run), "nothing is frozen yet, so no label may be seen", EventKind.FROZEN)
    with files.existing(labels, "labels").open("rb") as stream:
        sealed = is_sealed(stream.read(64))
    if sealed != (label_key is not None):
        shared.refuse("--label-key with sealed labels, and with no others", where=str(labels))
    opener = None if label_key is None else load_label_key(files.existing(label_key, "a label key"))
    signs = None if sealed else Labels.read(labels)
    signer = None if key is None else load_key(files.existing(key, "a key"))
    with Ledger.write(run) as ledger, shared.progress() as progress:
        came_out_of = None
        if opener is not None:
            data = labels.read_bytes()
            plain, came_out_of = open_labels(data, opener, ledger.events), sha256_hex(data)
            signs = Labels.from_arrow(parse_labels(plain), where=str(labels))
        assert signs is not None
        join_labels(ledger, signs, sealed=came_out_of)
        certificate = issue(ledger, key=signer, progress=progress)
    tell(certificate, run)
    shared.emit(dict(certificate.body), json_output=json_output)
    if strict and not certificate.certified:
        raise typer.Exit(shared.NEGATIVE)
