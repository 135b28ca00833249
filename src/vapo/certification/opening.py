"""Opening a stage: its terms and observations are put down before anything is computed from them."""

from __future__ import annotations

from typing import Any

from vapo.certification import renewal
from vapo.certification.buffer import refuse_opened_groups, refuse_other_sources
from vapo.certification.stage import declared_protocol, has_secondary, source_facts, store_records
from vapo.errors import ProtocolError
from vapo.ledger import Event, EventKind, Ledger
from vapo.ledger.sealed import SEALED_LABELS
from vapo.protocol import Protocol
from vapo.records import Records
from vapo.splits import make_manifest

__all__ = ["declare", "open_stage"]


def _stage_body(
    ledger: Ledger,
    protocol: Protocol,
    design: Records | None,
    certification: Records,
    sealed_labels: str | None,
) -> dict[str, Any]:
    parts = (
        {"certification": certification}
        if design is None
        else {"design": design, "certification": certification}
    )
    splits = make_manifest(parts).as_dict()
    declared = {} if sealed_labels is None else {SEALED_LABELS: sealed_labels}
    return declared | {
        "records": len(certification),
        "groups": certification.groups,
        "observations": {
            "design": store_records(ledger, design, secondary=True),
            "certification": store_records(ledger, certification),
        },
        "splits": splits,
        "sources": source_facts(certification),
        "waived": list(dict.fromkeys(name for part in parts.values() for name in part.waived)),
        "windowed": certification.windowed,
        "secondary": has_secondary(protocol, *parts.values()),
    }


def declare(
    ledger: Ledger,
    protocol: Protocol,
    design: Records | None,
    certification: Records,
    *,
    sealed_labels: str | None = None,
) -> Event:
    """Put down the terms and the observations of the first stage, before anything is computed from them.

    Args:
        ledger: A new run.
        protocol: The terms.
        design: Design records, or None.
        certification: Certification records.
        sealed_labels: SHA-256 of the sealed file that the labels must come out of, if it exists already.
    """
    ledger.rewind(0)
    body = _stage_body(ledger, protocol, design, certification, sealed_labels)
    body |= {
        "format": 1,
        "protocol": protocol.as_dict(),
        "stage": 1,
        "delta": _delta(protocol, 1),
    }
    return ledger.commit(EventKind.PROTOCOL, body)


def open_stage(
    ledger: Ledger,
    design: Records | None,
    certification: Records,
    *,
    reason: str,
    extend: bool = False,
    close: bool = False,
    sealed_labels: str | None = None,
) -> Event:
    """Begin a stage with a fresh buffer, or add to the buffer of a refused one.

    Args:
        ledger: A run whose last stage has its certificate.
        design: Fresh design records, or None.
        certification: Fresh certification records, of groups whose labels no earlier stage opened.
        reason: What changed.
        extend: Add to the refused stage before instead of spending another share of delta; `sequential` only.
        close: End the open deployment first, once nothing speaks against the stage.
        sealed_labels: SHA-256 of the sealed file that the labels must come out of, if it exists already.
    """
    protocol = declared_protocol(ledger)
    past = ledger.seen
    openings = [event for event in past if event.kind in (EventKind.PROTOCOL, EventKind.STAGE)]
    number = len(openings) + 1
    outcomes = [e for e in past[openings[-1].seq :] if e.kind in (EventKind.ISSUED, EventKind.REFUSED)]
    if not outcomes:
        msg = f"{ledger.path}: stage {number - 1} has no certificate yet, so none can follow it"
        raise ProtocolError(msg)
    body: dict[str, Any] = {"stage": number, "reason": reason}
    if extend:
        if outcomes[-1].kind is not EventKind.REFUSED:
            msg = f"{ledger.path}: stage {number - 1} was certified, and only a refused stage may be extended"
            raise ProtocolError(msg)
        if protocol.claim != "sequential":
            msg = (
                "only a stage under the claim 'sequential' may be extended: a buffer that grew after a look at its "
                f"labels proves nothing under '{protocol.claim}'"
            )
            raise ProtocolError(msg)
        refuse_other_sources(openings[-1], certification)
        body |= {"extends": number - 1, "delta": openings[-1].body["delta"]}
    else:
        paid = sum("extends" not in event.body for event in openings)
        body["delta"] = _delta(protocol, paid + 1)
    refuse_opened_groups(ledger, past, protocol, certification)
    body = _stage_body(ledger, protocol, design, certification, sealed_labels) | body
    if close:
        ledger.commit(EventKind.CLOSED, {"reason": reason})
    return ledger.commit(EventKind.STAGE, body)


def _delta(protocol: Protocol, number: int) -> float:
    return renewal.stage_delta(protocol.delta, number, None if protocol.stages == "open" else protocol.stages)
