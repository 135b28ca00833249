"""The half of a stage in which labels exist: join them to the frozen trace and say what they prove."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo._internal.keyed import canonical_json
from vapo.certification.certificate import Certificate, finite
from vapo.certification.claims import evaluate
from vapo.certification.enough import enough_for
from vapo.certification.population import stage_reach
from vapo.certification.reach import Reach
from vapo.certification.renewal import spent_delta
from vapo.certification.stage import CHUNK, Progress, Stage, load_records, silent
from vapo.certification.tables import ClaimTable, Requirements, Tally, Verdict
from vapo.certification.tally import add_tallies, stored_codes, tally_stage
from vapo.errors import InputError, ProtocolError
from vapo.ledger import EventKind, Ledger
from vapo.ledger.checkpoints import NOTE, SIGNER, checkpoint_of
from vapo.ledger.envelope import sign_statement
from vapo.ledger.keys import SigningKey
from vapo.ledger.rows import row_tree
from vapo.ledger.run import CERTIFICATE
from vapo.ledger.sealed import SEALED_LABELS
from vapo.policy import Actions, Policy, Reason
from vapo.records import Labels, Records, find_leaks

__all__ = ["certificate_body", "certified_rows", "decision_rows", "issue", "join_labels"]

Signs = npt.NDArray[np.int8]


def join_labels(
    ledger: Ledger,
    labels: Labels,
    records: Records | None = None,
    *,
    ignored_before: int = 0,
    sealed: str | None = None,
) -> None:
    """Let labels in through the one door there is: a frozen trace.

    Args:
        ledger: A run whose stage is frozen.
        labels: Clean signs; those of design records are counted and left out, unknown ids are an error.
        records: The certification records, if they are at hand.
        ignored_before: Labels of design records that were left out already.
        sealed: SHA-256 of the sealed file that the labels came out of, if they did.

    Raises:
        ProtocolError: If no trace is frozen, or the stage has declared a sealed file and these came from elsewhere.
        InputError: If an id is unknown or a needed label is missing.
    """
    stage = Stage.load(ledger)
    frozen = ledger.stage_events(EventKind.FROZEN)
    if not frozen:
        msg = f"{ledger.path}: labels may be joined only after the trace is frozen; freeze it first"
        raise ProtocolError(msg)
    declared = stage.opening.body.get(SEALED_LABELS)
    if declared not in (None, sealed):
        msg = f"{ledger.path}: this stage declared its labels sealed; only what comes out of that file may be joined"
        raise ProtocolError(msg)
    records = stage.records(ledger) if records is None else records
    ledger.rewind(frozen[0].seq + 1)
    root = ledger.root(frozen[0].seq + 1)
    z, ignored = _signs(ledger, stage, labels, records)
    needed = ledger.table(frozen[0].body["needed"]).column("row").to_numpy()
    missing = needed[z[needed] == 0]
    if len(missing) and stage.protocol.missing_label == "error":
        expected = "a label for every record that some candidate admits (or missing_label = harmful, declared before)"
        raise InputError(
            expected,
            f"none for {len(missing)} of {len(needed)}, the first with id {records.id[int(missing[0])].as_py()!r}",
            where=labels.where,
        )
    known = np.flatnonzero(z)
    table = pa.table({"id": records.id.take(pa.array(known)), "z": z[known]})
    table = table.replace_schema_metadata({"vapo.trace_root": root})
    came_out_of = {} if sealed is None else {SEALED_LABELS: sealed}
    ledger.commit(
        EventKind.LABELS,
        {
            **came_out_of,
            "trace_root": root,
            "labels": ledger.put_table(table),
            "labels_tree": row_tree(table),
            "joined": len(known),
            "ignored_design": ignored + ignored_before,
            "missing": len(missing),
            "suspected_leaks": find_leaks(records, z),
        },
    )


def _places(ids: pa.Array, records: Records) -> pa.Array:
    """The row of each id, null for an unknown one."""
    same = len(ids) == len(records) and ids.equals(records.id)
    return pa.array(np.arange(len(ids))) if same else pc.index_in(ids, value_set=records.id)


def _signs(ledger: Ledger, stage: Stage, labels: Labels, records: Records) -> tuple[Signs, int]:
    """Signs in row order, 0 where there is none, and how many labels belonged to design records."""
    place = _places(labels.id, records)
    rest = labels.id.filter(pc.is_null(place))
    ignored = 0
    if len(rest):
        design = load_records(ledger, stage.opening.body, "design", stage.protocol)
        known = pa.array([], pa.string()) if design is None else design.id
        foreign = rest.filter(pc.invert(pc.is_in(rest, value_set=known)))
        if len(foreign):
            expected = "labels of known records"
            raise InputError(expected, f"{foreign[0].as_py()!r}, which is no record's id", where=labels.where)
        ignored = len(rest)
    z = np.zeros(len(records), np.int8)
    valid = np.asarray(pc.is_valid(place).to_numpy(zero_copy_only=False))
    z[place.drop_null().to_numpy()] = labels.z[valid]
    return z, ignored


def joined_signs(ledger: Ledger, stage: Stage, records: Records) -> Signs:
    """The joined labels in row order, 0 where there is none."""
    event = ledger.stage_events(EventKind.LABELS, stage=stage.number)[0]
    table = ledger.table(event.body["labels"])
    z = np.zeros(len(records), np.int8)
    place = _places(table.column("id").combine_chunks(), records)
    z[place.to_numpy(zero_copy_only=False)] = table.column("z").to_numpy()
    return z


def _harm(stage: Stage, records: Records, z: Signs) -> npt.NDArray[np.bool_]:
    """Records whose admission would be harmful; a missing label counts as harm where that was declared."""
    bad = z * records.y < 0
    return bad | (z == 0) if stage.protocol.missing_label == "harmful" else bad


def issue(
    ledger: Ledger,
    records: Records | None = None,
    *,
    key: SigningKey | None = None,
    progress: Progress = silent,
) -> Certificate:
    """Evaluate all three claims on the joined trace and write the certificate, issued or refused."""
    stage = Stage.load(ledger)
    joined = ledger.stage_events(EventKind.LABELS)
    if not joined:
        msg = f"{ledger.path}: no labels have been joined yet"
        raise ProtocolError(msg)
    ledger.rewind(joined[0].seq + 1)
    records = stage.records(ledger) if records is None else records
    body, codes = certificate_body(ledger, stage, records, progress)
    certificate = Certificate(body)
    envelope = sign_statement(certificate.statement(), *([] if key is None else [key])).as_dict()
    ref = ledger.put_json(envelope)
    event = {
        "envelope": ref,
        "selected": body["selected"],
        "status": body["status"],
        "candidates": body["candidates_segment"],
        **certified_rows(ledger, stage, records, certificate.policy, codes),
        SIGNER: None if key is None else key.verifier.text,
    }
    kind = EventKind.ISSUED if certificate.certified else EventKind.REFUSED
    size = ledger.commit(kind, event).seq + 1
    ledger.put_file(CERTIFICATE, canonical_json(envelope))
    if key is not None:
        ledger.put_file(NOTE, checkpoint_of(ledger.events, size).sign(key).data)
    ledger.sweep()
    return certificate


def certified_rows(
    ledger: Ledger, stage: Stage, records: Records, policy: Policy | None, codes: npt.NDArray[np.uint8]
) -> dict[str, Any]:
    """Store in full what the selected policy did, and what proves a row of it; nothing when none was selected."""
    if policy is None:
        return {"rows": [], "rows_tree": None}
    rows = decision_rows(policy, records, codes, stage.score.apply(records))
    stored = [ledger.put_table(rows[piece]) for piece in records.slices(CHUNK)]
    return {"rows": stored, "rows_tree": row_tree(rows)}


def certificate_body(
    ledger: Ledger, stage: Stage, records: Records, progress: Progress = silent
) -> tuple[dict[str, Any], npt.NDArray[np.uint8]]:
    """Everything that the certificate says, and the reasons of the candidate that it shows."""
    parts = _parts(ledger, stage, records)
    by_group = any(part.largest_group > 1 for _, part, _ in parts)
    counted = [tally_stage(ledger, s, r, bad, progress, by_group=by_group) for s, r, bad in parts]
    tallies = counted[0]
    for more in counted[1:]:
        tallies = [add_tallies(left, right) for left, right in zip(tallies, more, strict=True)]
    protocol = stage.protocol
    # A cap that somebody exceeds, where nothing rests on it, is not used: then records are the units.
    exceeded = any(t.units is not None and t.units.largest > (stage.group_cap or 0) for t in tallies)
    requirements = Requirements(
        rho=protocol.rho,
        c_min=protocol.c_min,
        b_max=protocol.b_max,
        delta=stage.delta,
        claim=protocol.claim,
        split=protocol.delta_split,
        weights=stage.family.shares,
        group_cap=None if exceeded and not stage.needs_cap else stage.group_cap,
        planned_squares=_planned_squares(stage),
    )
    verdict = evaluate(
        tallies,
        stage.family.chains,
        requirements,
        stage.planned_coverage,
        stage.planned_calls,
        planned_records=len(parts[-1][1]),
    )
    shown = verdict.nearest if verdict.selected is None else verdict.selected
    codes = np.concatenate([chunk[shown].copy() for _, chunk in stored_codes(ledger, stage)])
    reach = stage_reach(stage, records, codes, parts[0][2], tallies[shown])
    body = _body(ledger, stage, verdict, tallies, shown, reach)
    body["enough"] = None if verdict.selected is not None else _enough(stage, tallies, shown, requirements)
    return body, codes


def _parts(
    ledger: Ledger, stage: Stage, records: Records
) -> list[tuple[Stage, Records, npt.NDArray[np.bool_]]]:
    """The stage and those whose buffer it extends, latest first."""
    parts = [(stage, records, _harm(stage, records, joined_signs(ledger, stage, records)))]
    while parts[-1][0].extends is not None:
        earlier = Stage.load(ledger, parts[-1][0].extends)
        seen = earlier.records(ledger)
        parts.append((earlier, seen, _harm(earlier, seen, joined_signs(ledger, earlier, seen))))
    return parts


def _planned_squares(stage: Stage) -> tuple[float, ...] | None:
    """What the group bets of a population statement are planned with; None where the statement is about the stage."""
    if stage.protocol.reach == "stage" or stage.planned_squares is None or stage.group_cap is None:
        return None
    return tuple(stage.planned_squares.tolist())


def _body(
    ledger: Ledger, stage: Stage, verdict: Verdict, tallies: list[Tally], shown: int, reach: Reach
) -> dict[str, Any]:
    protocol, tally = stage.protocol, tallies[shown]
    deciding = verdict.claims[verdict.deciding]
    frozen = ledger.stage_events(EventKind.FROZEN, stage=stage.number)[0]
    joined = ledger.stage_events(EventKind.LABELS, stage=stage.number)[0]
    family = ledger.stage_events(EventKind.FAMILY, stage=stage.number)[0]
    chosen = {"index": shown, **stage.family.policies[shown].as_dict()}
    certified = verdict.selected is not None
    # A buffer that grew after a look at its labels says nothing under claims that are read once.
    void = () if stage.extends is None else ("hoeffding", "frozen")
    table = ledger.put_table(candidate_table(stage, verdict, tallies, void))
    return {
        "status": "certified" if certified else "refused",
        "claim": verdict.deciding,
        "rho": protocol.rho,
        "delta": stage.delta,
        "delta_total": protocol.delta,
        "delta_spent": spent_delta(ledger),
        "c_min": protocol.c_min,
        "b_max": protocol.b_max,
        "reach": "stage" if reach.case == "stage" else "population",
        "reach_detail": {
            "case": reach.case,
            "extra_width": finite(reach.extra_width),
            "design_effect": finite(reach.design_effect),
            "note": reach.note,
        },
        "selected": chosen if certified else None,
        "nearest": {
            **chosen,
            "failing": deciding.constraint[shown],
            "margin": finite(deciding.margin[shown]),
        },
        "counts": {
            "n": tally.records,
            "groups": tally.records if tally.units is None else tally.units.groups,
            "admitted": tally.admitted,
            "harmful": tally.harmful,
            "appealed": tally.appealed,
        },
        "bounds": {name: _bounds(claim, shown, void=name in void) for name, claim in verdict.claims.items()},
        "feasible": {n: n not in void and bool(c.feasible.any()) for n, c in verdict.claims.items()},
        "void": list(void),
        "units": {name: claim.unit for name, claim in verdict.claims.items()},
        "candidates": f"segments/{table['sha256']}.parquet",
        "candidates_segment": table,
        "bill": dict(frozen.body["bill"]),
        "labels": {
            name: joined.body[name] for name in ("joined", "ignored_design", "missing", "suspected_leaks")
        },
        "trace_root": joined.body["trace_root"],
        "labels_digest": joined.body["labels"]["sha256"],
        "family_digest": family.body["family_digest"],
        "score": stage.score.rule,
        "stage": stage.number,
        "extends": stage.extends,
        "sources": dict(stage.opening.body["sources"]),
        "undeclared_sources": sorted(name for name, source in stage.sources.items() if not source.declared),
        "waived": list(stage.opening.body["waived"]) + list(family.body["redundant"]),
    }


def _enough(
    stage: Stage, tallies: list[Tally], shown: int, requirements: Requirements
) -> list[dict[str, Any]]:
    """What would have been enough at even odds and at 90 % power, had the nearest candidate's counts been its rates."""
    family = stage.family
    plan = enough_for(
        tallies[shown],
        requirements,
        candidates=len(family),
        chains=len(family.chains),
        weight=family.shares[shown],
    )
    return [dataclasses.asdict(row) for row in plan.rows]


def _bounds(table: ClaimTable, shown: int, *, void: bool) -> Mapping[str, float | None]:
    names = ("excess_upper", "risk_upper", "coverage_lower", "calls_upper", "radius")
    return {name: None if void else finite(getattr(table, name)[shown]) for name in names}


def candidate_table(stage: Stage, verdict: Verdict, tallies: list[Tally], void: Sequence[str]) -> pa.Table:
    """One row a candidate: thresholds, counts, limits by claim (null if `void`), and what failed under the deciding."""
    policies, deciding = stage.family.policies, verdict.claims[verdict.deciding]
    plain = [not policy.sign_specific for policy in policies]
    columns: dict[str, Any] = {"index": np.arange(len(policies))}
    for name, part in (("tau_low", "low"), ("tau_high", "high"), ("tau_2", "second")):
        columns[name] = [
            getattr(p.pos, part) if same else None for p, same in zip(policies, plain, strict=True)
        ]
        for side in ("pos", "neg"):
            columns[f"{side}.{name}"] = [getattr(getattr(policy, side), part) for policy in policies]
    columns["budget"] = [policy.budget for policy in policies]
    chain = {index: number for number, members in enumerate(stage.family.chains) for index in members}
    columns["chain"] = pa.array([chain.get(index) for index in range(len(policies))], pa.int64())
    columns["weight"] = stage.family.shares
    columns |= {name: [getattr(t, name) for t in tallies] for name in ("admitted", "harmful", "appealed")}
    columns |= {"planned_coverage": stage.planned_coverage, "planned_calls": stage.planned_calls}
    limits = ("excess_upper", "risk_upper", "coverage_lower", "calls_upper", "radius")
    columns |= {name: getattr(deciding, name) for name in limits}
    columns |= {
        "failing": list(deciding.constraint),
        "margin": deciding.margin,
        "own_limit": deciding.own_limit,
    }
    for claim, table in verdict.claims.items():
        columns |= {f"{claim}.{name}": getattr(table, name) for name in limits}
        columns |= {f"{claim}.feasible": table.feasible, f"{claim}.failing": list(table.constraint)}
    arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    for name in arrays:
        if name.partition(".")[0] in void:
            arrays[name] = pa.nulls(len(policies), arrays[name].type)
    return pa.table(arrays)


def decision_rows(
    policy: Policy,
    records: Records,
    codes: npt.NDArray[np.uint8],
    score: npt.NDArray[np.float64],
    carried: npt.NDArray[np.int64] | int = 0,
) -> pa.Table:
    """What one policy did, in full: a row a record.

    Args:
        policy: The policy.
        records: Whole windows of records.
        codes: What it did with each, as a `Reason`.
        score: Their trust scores.
        carried: Calls made in each window before these records.
    """
    actions = Actions(codes[None, :], np.zeros((1, 0), np.int32), records.window, records.window_starts())
    # A closed gate has no budget, whatever was spent in the window before it closed.
    left = np.maximum(policy.budget - actions.spent_before(0, carried), 0)
    words = [("", ""), *((str(reason.action), reason.text) for reason in Reason)]
    code = pa.array(codes)
    return pa.table(
        {
            "id": records.id,
            "action": pa.array([action for action, _ in words]).take(code),
            "sign": actions.sign(records.y),
            "reason": pa.array([reason for _, reason in words]).take(code),
            "budget_before": left,
            "budget_after": left - actions.appealed(),
            "score": score,
        }
    )
