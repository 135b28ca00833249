"""From records and labels to a certificate in one go."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vapo.certification.candidates import choose_candidates, default_budget, freeze_family
from vapo.certification.certificate import Certificate
from vapo.certification.freeze import freeze_trace
from vapo.certification.issue import issue, join_labels
from vapo.certification.opening import declare, open_stage
from vapo.certification.stage import Progress, declared_protocol, encode_records, silent
from vapo.errors import InputError, ProtocolError
from vapo.ledger import Ledger
from vapo.ledger.keys import SigningKey
from vapo.policy import Family
from vapo.protocol import Protocol
from vapo.records import Labels, Records
from vapo.records.intake import refuse_oracles
from vapo.splits import design_rows

__all__ = ["as_labels", "as_records", "certify", "prepare", "split_records"]


def as_records(source: Any, protocol: Protocol, *, keep_sources: bool = False) -> Records:
    """Records from a path, a data frame, an Arrow table, or as they are.

    Args:
        source: Where they come from.
        protocol: What is declared about them.
        keep_sources: Whether `Records` that name other sources than the protocol keep them instead of being refused.
    """
    if isinstance(source, Records):
        return _declared_like(source, protocol, keep_sources=keep_sources)
    options: dict[str, Any] = {
        "sources": protocol.sources,
        "waivers": protocol.waivers,
        "null_signals": protocol.null_signals,
        "oracle_words": protocol.oracle_phrases,
    }
    if isinstance(source, (str, Path)):
        return Records.read(source, **options)
    return (
        Records.from_arrow(source, **options)
        if isinstance(source, pa.Table)
        else Records.from_pandas(source, **options)
    )


def _declared_like(records: Records, protocol: Protocol, *, keep_sources: bool) -> Records:
    """Records that were taken in apart from the protocol, made sure to be what it declares."""
    undeclared = [name for name in records.waived if name not in protocol.waivers]
    if undeclared:
        expected = f"a waiver of '{undeclared[0]}' in the protocol, like that of the records"
        raise InputError(expected, "none", where=records.where)
    if protocol.oracle_words:
        refuse_oracles(records.to_arrow(), records.where, protocol.waivers, protocol.oracle_phrases)
    for name, value in records.null_signals.items():
        if protocol.null_signals.get(name) != value:
            expected = f"null_signals in the protocol with {name} = {value}, like those of the records"
            raise InputError(expected, str(dict(protocol.null_signals)), where=records.where)
    for name, source in records.sources.items():
        if source.declared and protocol.sources.get(name, source) != source and not keep_sources:
            expected = (
                f"the source of '{name}' to be {protocol.sources[name].id!r}, as the protocol declares it"
            )
            raise InputError(expected, repr(source.id), where=records.where)
    return records.with_sources(protocol.sources) if protocol.sources else records


def as_labels(source: Any) -> Labels:
    """Labels from a path, a pandas frame, an Arrow table, a mapping, or as they are."""
    if isinstance(source, Labels):
        return source
    if isinstance(source, (str, Path)):
        return Labels.read(source)
    if isinstance(source, Mapping):
        return Labels.from_mapping(source)
    return Labels.from_arrow(source) if isinstance(source, pa.Table) else Labels.from_pandas(source)


def split_records(
    records: Records, protocol: Protocol, *, labelled: pa.Array | None = None
) -> tuple[Records, Records]:
    """Cut records into a design and a certification part by whole groups."""
    design = design_rows(records, protocol.design_fraction, seed=protocol.seed, labelled=labelled)
    if design.all() or not design.any():
        expected = "at least two groups, one of them labelled, to split into design and certification"
        known = labelled is None or pc.any(pc.is_in(records.id, value_set=labelled)).as_py()
        joined = " (groups that share a content are one)" if records.group_named is not None else ""
        count = "1 group" if records.groups == 1 else f"{records.groups} groups"
        got = f"{count}{joined}" + ("" if known else " and no label of any of their records")
        raise InputError(expected, got, where=records.where)
    return records.take(np.flatnonzero(design)), records.take(np.flatnonzero(~design))


def _refuse_misplaced_sources(protocol: Protocol, records: Records) -> None:
    """Find declared sources that would be of no column: one that is misspelt leaves its column undeclared."""
    columns = {records.trust_column(name) for name in records.trust_names}
    for name in protocol.sources:
        bare = name in records.trust_names
        if bare or (name.startswith(("signal.", "verdict.")) and name not in columns):
            expected = f"sources of the columns that are there: primary, {', '.join(sorted(columns))}"
            raise InputError(expected, repr(name), where=f"protocol, for {records.where}")


def prepare(
    ledger: Ledger,
    protocol: Protocol,
    design: Records | None,
    certification: Records,
    *,
    family: Family | None = None,
    renew: str | None = None,
    extend: bool = False,
    sealed_labels: str | None = None,
) -> None:
    """Declare a stage and freeze its family: everything that comes before a decision."""
    _refuse_misplaced_sources(protocol, certification)
    if renew is None and not extend and ledger.stage > 1:
        msg = f"{ledger.path}: the run is in stage {ledger.stage}; say what changed (renew), or use a new folder"
        raise ProtocolError(msg)
    # What is wrong with the terms is found before they are written down, where they could not be mended any more.
    chosen = None if extend else choose_candidates(protocol, design, certification, family)
    if renew is None and not extend:
        declare(ledger, protocol, design, certification, sealed_labels=sealed_labels)
    else:
        opening = ledger.events[ledger.stage_start()]
        declared = opening.body["observations"]["certification"]
        same = [segment.ref for segment in encode_records(certification)] == declared
        resumed = ledger.stage > 1 and same
        ledger.rewind(opening.seq if resumed else len(ledger.events))
        close = ledger.deployed and not resumed
        open_stage(
            ledger,
            design,
            certification,
            reason=renew or "extended",
            extend=extend,
            close=close,
            sealed_labels=sealed_labels,
        )
    freeze_family(ledger, chosen)


def _renewed(declared: Protocol, protocol: Protocol | None, terms: Mapping[str, Any]) -> Protocol:
    """The declared terms, which a later stage may say again but not change; only its sources may be new."""
    again = Protocol.from_dict({**(protocol or declared).as_dict(), **terms}, where="terms")
    said, before = again.as_dict(), declared.as_dict()
    changed = [name for name in before if name != "sources" and said[name] != before[name]]
    if changed:
        expected = f"{changed[0]} = {before[changed[0]]!r}, as the run has declared it for all its stages"
        raise InputError(expected, repr(said[changed[0]]), where="terms")
    return dataclasses.replace(declared, sources=again.sources)


def certify(
    records: Any,
    labels: Any,
    *,
    out: str | Path,
    protocol: Protocol | None = None,
    design: Any = None,
    family: Family | str | Path | None = None,
    renew: str | None = None,
    extend: bool = False,
    key: SigningKey | None = None,
    progress: Progress = silent,
    **terms: Any,
) -> Certificate:
    """Do the whole flow: split, freeze the family, decide, freeze the trace, join the labels, certify.

    A run that was interrupted is resumed by calling this again with the same arguments.

    Args:
        records: Records, a data frame or a file.
        labels: Labels, a data frame, a mapping of id to sign, or a file.
        out: The run folder.
        protocol: The declared terms; or give them one by one.
        design: Design records, if they are kept apart; otherwise whole groups are taken from `records`,
            those without a label first.
        family: Candidates of your own, or a JSON file with them; then every record certifies.
        renew: What changed, to open a further stage in an existing run with fresh records.
        extend: Add these records to the refused stage before (under the claim `sequential`).
        key: An Ed25519 key that signs the certificate.
        progress: Told of every step.
        **terms: Fields of `Protocol`, such as `rho`, `c_min`, `b_max`, `delta` and `claim`. A further stage may name
            new `sources` and has the other terms of the first.

    Example:
        >>> import pyarrow as pa, tempfile
        >>> table = pa.table({"id": [str(i) for i in range(400)], "group": [str(i) for i in range(400)],
        ...                   "y": [1] * 400, "signal.s": [i / 400 for i in range(400)]})
        >>> truth = {str(i): 1 if i > 100 else -1 for i in range(400)}
        >>> with tempfile.TemporaryDirectory() as run:
        ...     certify(table, truth, out=run, rho=0.08, c_min=0.25).certified
        True
    """
    if renew is not None or extend:
        protocol = _renewed(declared_protocol(Ledger.read(out)), protocol, terms)
    elif protocol is None:
        protocol = Protocol.from_dict(terms, where="terms")
    elif terms:
        protocol = Protocol.from_dict({**protocol.as_dict(), **terms}, where="terms")
    given = as_records(records, protocol)
    signs = as_labels(labels)
    if isinstance(family, (str, Path)):
        family = Family.read(family, budget=default_budget(protocol, given))
    if family is not None and family.appeals and given.secondary is None:
        expected = "a column 'y2' with the secondary's answers, which some candidates ask for"
        raise InputError(expected, "none", where=given.where)
    with Ledger.write(out) as ledger:
        if design is not None:
            apart, certification = as_records(design, protocol), given
        elif family is not None or extend:
            apart, certification = None, given
        else:
            apart, certification = split_records(given, protocol, labelled=signs.id)
        prepare(ledger, protocol, apart, certification, family=family, renew=renew, extend=extend)
        freeze_trace(ledger, certification, progress=progress)
        join_labels(ledger, signs, certification)
        return issue(ledger, certification, key=key, progress=progress)
