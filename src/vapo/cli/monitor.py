"""`vapo monitor`: spot checks of what the gate let through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

EXAMPLES = ("vapo monitor run --wanted to-check.csv", "vapo monitor run checked.csv")

LabelsFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="LABELS", help="Clean signs (id, z) of drawn records; without them the state is only shown."
    ),
]
Picked = Annotated[
    bool,
    typer.Option(
        "--picked", help="People picked these records: they may raise an alarm without a guarantee."
    ),
]
Wanted = Annotated[
    Path | None, typer.Option(help="Write the drawn ids that still want a label to this file.")
]


def monitor(
    run: shared.RunFolder,
    labels: LabelsFile = None,
    picked: Picked = False,
    wanted: Wanted = None,
    json_output: shared.Json = False,
) -> None:
    """Join spot-check labels of deployed records.

    Evidence that the gate lets more harm through than was certified raises an alarm: the gate closes, and
    this exits with 1.
    """
    import pyarrow as pa

    from vapo.gate import join_spotchecks, watch
    from vapo.ledger import EventKind, Ledger
    from vapo.records import Labels

    if picked and labels is None:
        shared.refuse("LABELS beside --picked", "none")
    seen = files.open_run(run)
    files.demand(seen, "the gate has decided on nothing yet", EventKind.DEPLOY, anywhere=True)
    signs = None if labels is None else Labels.read(files.existing(labels, "labels"))
    output = None if wanted is None else files.Output(wanted, run=run, inputs=(labels,))
    if signs is None:
        state = watch(seen)
    else:
        with Ledger.write(run) as ledger:
            state = join_spotchecks(ledger, signs, picked=picked)
    if output is not None:
        output.write(pa.table({"id": pa.array(state.wanted, pa.string())}))
    facts = state.as_dict()
    strongest = max(facts["log_evidence"], facts["log_fresh_evidence"])
    shared.say(
        f"{'ALARM: the gate is closed' if facts['alarm'] else 'No alarm'}. {state.harmful:,} of "
        f"{state.labelled:,} checked "
        f"records were harmful ({facts['rho']:g} is allowed); {len(state.wanted):,} drawn records want "
        "a label"
        f"{'' if wanted is None else f' (listed in {wanted})'}.\n"
        f"Log evidence of too much harm: {strongest:.2f}; an alarm needs {facts['log_threshold']:.2f}."
    )
    shared.emit(facts, json_output=json_output)
    if facts["alarm"]:
        raise typer.Exit(shared.NEGATIVE)
