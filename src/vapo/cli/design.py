"""`vapo design`: declare the terms and freeze the family, before any decision."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared
from vapo.cli._terms import Terms, takes_terms

EXAMPLES = (
    "vapo design rollouts.parquet --rho 0.08 --out run",
    "vapo design rollouts.parquet --rho 0.08 --secondary strict-checker --out run",
)

Out = Annotated[Path, typer.Option(metavar="RUN", help="The run folder.")]
Labelled = Annotated[
    Path | None, typer.Option(help="File whose ids are the records that have, or will get, a label.")
]

Sealed = Annotated[
    Path | None,
    typer.Option(metavar="SEALED", help="Declare the sealed file that the labels must come out of."),
]


@takes_terms
def design(
    records: shared.RecordsFile,
    out: Out,
    *,
    terms: Terms,
    labelled: Labelled = None,
    sealed_labels: Sealed = None,
    json_output: shared.Json = False,
) -> None:
    """Declare the terms and freeze the candidates.

    The first of three steps. Splits off the design records, builds the candidates on them, and writes both
    down; no label is needed. If secondary answers are still to be bought, name who will give them with
    --secondary.
    """
    from vapo._internal.keyed import sha256_hex
    from vapo.certification.flow import as_records, prepare, split_records
    from vapo.certification.stage import Stage
    from vapo.ledger import Ledger
    from vapo.records import Labels

    files.existing(records, "records")
    protocol = terms.protocol()
    terms.refuse_other(out, protocol)
    rows = as_records(records, protocol)
    family = terms.family(protocol, rows)
    known = None if labelled is None else Labels.read_ids(files.existing(labelled, "ids"))
    apart, certification = None, rows
    if terms.design is not None:
        apart = as_records(files.existing(terms.design, "records"), protocol)
    elif family is None:
        apart, certification = split_records(rows, protocol, labelled=known)
    declared = None
    if sealed_labels is not None:
        declared = sha256_hex(files.existing(sealed_labels, "sealed labels").read_bytes())
    with Ledger.write(out) as ledger:
        prepare(ledger, protocol, apart, certification, family=family, sealed_labels=declared)
        stage = Stage.load(ledger)
    answer = {
        "candidates": len(stage.family),
        "chains": [len(chain) for chain in stage.family.chains],
        "family_digest": stage.family.digest,
        "score": stage.score.rule,
        "design": 0 if apart is None else len(apart),
        "certification": len(certification),
        "stage": stage.number,
        "delta": stage.delta,
        "other_columns": rows.extra.column_names,
    }
    files.say_kept(rows)
    chains = len(stage.family.chains)
    shared.say(
        f"Frozen: {len(stage.family)} candidates in {chains} chain{'s' if chains > 1 else ''}, built on "
        f"{answer['design']:,} design "
        f"records; {len(certification):,} records are left to certify.\nNext: vapo freeze {out} "
        f"{records} --needs to-label.csv"
    )
    shared.emit(answer, json_output=json_output)
