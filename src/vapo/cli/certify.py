"""`vapo certify`: the whole flow in one go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared
from vapo.cli._terms import Terms, takes_terms

if TYPE_CHECKING:
    from vapo.certification.certificate import Certificate
    from vapo.ledger import Ledger
    from vapo.records import Labels, Records

EXAMPLES = (
    "vapo certify rollouts.parquet --labels labels.csv --rho 0.08 --out run",
    "vapo certify rollouts.parquet --labels labels.csv --protocol terms.toml --out run --strict",
    "vapo certify fresh.parquet --labels fresh.csv --out run --renew 'new judge'",
)

LabelsOption = Annotated[
    Path, typer.Option("--labels", help="Clean signs, -1 or +1: a file with the columns id and z.")
]
Out = Annotated[Path, typer.Option(metavar="RUN", help="The run folder; resumed if it was interrupted.")]
Renew = Annotated[
    str | None, typer.Option(metavar="WHY", help="Open a further stage in RUN with these fresh records.")
]
Extend = Annotated[
    bool, typer.Option("--extend", help="Add these records to RUN's refused stage (claim sequential).")
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if the certificate is refused.")]
Key = Annotated[Path | None, typer.Option(help="Ed25519 private key (PEM) that signs the certificate.")]


@takes_terms
def certify(
    records: shared.RecordsFile,
    labels: LabelsOption,
    out: Out,
    *,
    terms: Terms,
    renew: Renew = None,
    extend: Extend = False,
    key: Key = None,
    strict: Strict = False,
    json_output: shared.Json = False,
) -> None:
    """From rollouts and labels to a certificate, in one go.

    Builds candidates on a design split, lets all of them decide on the rest, freezes what they did, and
    only then joins the labels: what comes out is a policy that admits at most rho harm with probability 1 -
    delta, or a refusal.
    """
    from vapo.certification.flow import as_records
    from vapo.certification.flow import certify as run_certify
    from vapo.certification.stage import declared_protocol
    from vapo.ledger.keys import load_key
    from vapo.records import Labels

    files.existing(records, "records")
    files.existing(labels, "labels")
    if renew is not None or extend:
        if terms.given:
            shared.refuse(
                "no terms here, for the run has declared them", f"--{terms.given[0].replace('_', '-')}"
            )
        protocol = declared_protocol(files.open_run(out))
    else:
        protocol = terms.protocol()
        terms.refuse_other(out, protocol)
    rows, signs = as_records(records, protocol), Labels.read(labels)
    apart = None if terms.design is None else as_records(files.existing(terms.design, "records"), protocol)
    _refuse_strangers(signs, rows, apart)
    signer = None if key is None else load_key(files.existing(key, "a key"))
    with shared.progress() as progress:
        certificate = run_certify(
            rows,
            signs,
            out=out,
            protocol=protocol,
            design=apart,
            family=terms.family(protocol, rows),
            renew=renew,
            extend=extend,
            key=signer,
            progress=progress,
        )
    files.say_kept(rows)
    tell(certificate, out)
    shared.emit(dict(certificate.body), json_output=json_output)
    if strict and not certificate.certified:
        raise typer.Exit(shared.NEGATIVE)


def _refuse_strangers(labels: Labels, *parts: Records | None) -> None:
    """Find labels of unknown records while nothing is written yet; only ids are looked at."""
    import pyarrow as pa
    import pyarrow.compute as pc

    known = pa.concat_arrays([part.id for part in parts if part is not None])
    strange = labels.id.filter(pc.invert(pc.is_in(labels.id, value_set=known)))
    if len(strange):
        got = f"{strange[0].as_py()!r}" + (f" and {len(strange) - 1} others" if len(strange) > 1 else "")
        shared.refuse("labels of these records only", got, where=f"{labels.where}: field 'id'")


def tell(certificate: Certificate, run: Path) -> None:
    """Tell a person what a certificate says, and what to do next."""
    body = certificate.body
    shared.say(str(certificate))
    shared.say()
    rows = []
    for claim, limits in body["bounds"].items():
        numbers = [limits[key] for key in ("risk_upper", "coverage_lower", "calls_upper")]
        shown = ["-" if number is None else f"{number:.4f}" for number in numbers]
        name = f"{claim} (decides)" if claim == body["claim"] else claim
        rows.append([name, *shown, "yes" if body["feasible"][claim] else "no"])
    columns = ("claim", "harm <=", "coverage >=", "calls <=", "certifies any")
    shown_policy = "the selected policy" if certificate.certified else "the nearest candidate"
    shared.show_table(columns, rows, title=f"Limits that each claim gives {shown_policy}")
    bill, labels, counts = body["bill"], body["labels"], body["counts"]
    shared.say(f"Bill: {bill['labels']:,} labels and {bill['secondary_calls']:,} secondary calls.")
    if body["undeclared_sources"]:
        names = ", ".join(body["undeclared_sources"])
        shared.say(f"Nobody declared who produced {names}: the protocol file has room for it.")
    if (
        body["claim"] == "sequential"
        and body["units"]["sequential"] == "record"
        and counts["groups"] < counts["n"]
    ):
        shared.say(
            "Read record by record, given all before; --group-cap, declared beforehand, reads whole groups."
        )
    if labels["suspected_leaks"]:
        leaks = ", ".join(labels["suspected_leaks"])
        shared.say(
            f"SUSPECTED LEAK: {leaks} predicts the label perfectly. Look at it before you rely on this."
        )
    ledger = files.open_run(run)
    if not certificate.certified:
        _tell_untested(body, ledger)
        _tell_enough(body)
    shared.say(f"Next: {files.what_next(ledger)}")


def _tell_untested(body: Any, ledger: Ledger) -> None:
    """Why more might have been certified with other records or terms, under the claim that goes down chains."""
    if body["claim"] != "frozen":
        return
    failing = ledger.table(body["candidates_segment"]).column("frozen.failing").to_pylist()
    untested = sum(why.startswith("not tested: chain") for why in failing)
    if untested:
        shared.say(
            f"{untested} candidates were not tested, for one before them in its chain failed; with fresh labels, "
            "a larger --c-min begins further on."
        )
    if body["units"]["frozen"] == "group":
        shared.say(
            "Whole groups were tested, for several records of some are admitted; fresh labels go farther on one "
            "record a group."
        )


def _tell_enough(body: Any) -> None:
    """What would have been enough, had the nearest candidate's counts been its true rates."""
    rows = [
        (row["claim"], f"{row['power']:.0%}", *_amounts(row))
        for row in body.get("enough") or ()
        if row["records"]
    ]
    if not rows:
        asks = {row["binding"] for row in body.get("enough") or () if row["claim"] == body["claim"]}
        if not body["counts"]["admitted"]:
            why = "The nearest candidate admits nothing: lower thresholds might do."
        elif asks == {"risk"}:
            why = "At the harm that was found no number of records would do: a better score or a larger rho might."
        else:
            named = " and ".join(sorted(asks))
            why = f"The nearest candidate cannot keep to the {named} asked for, at any number of records."
        shared.say(why)
        return
    columns = ("claim", "chance", "records", "admitted", "labels", "secondary calls")
    shared.show_table(columns, rows, title="Enough, if the nearest candidate's rates are its true ones")


def _amounts(row: dict[str, Any]) -> list[str]:
    return [f"{row[name]:,}" for name in ("records", "admitted", "labels", "secondary_calls")]
