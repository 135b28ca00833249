"""`vapo plan`: what a certificate will cost, before anything is labelled."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared
from vapo.cli._terms import Signs, complete_score

if TYPE_CHECKING:
    from vapo.certification.plan import Plan
    from vapo.protocol import Protocol

EXAMPLES = (
    "vapo plan --rho 0.08 --risk 0.04 --coverage 0.41 --labels 500",
    "vapo plan rollouts.parquet --rho 0.08 --risk 0.04",
)

_SEEN = "What you expect; read off RECORDS if they are given"
_RECORDS = "How RECORDS are read"

RecordsFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RECORDS",
        help="Rollout records, unlabelled: coverage, calls and candidates are read off them.",
    ),
]
Rho = Annotated[float, typer.Option(help="Largest share of harmful records among the admitted.")]
Risk = Annotated[
    float, typer.Option(min=0, max=1, help="Share of harm that you expect among the admitted records.")
]
Labels = Annotated[
    int | None, typer.Option(min=0, help="Labels at hand: also say what they can certify at best.")
]
Delta = Annotated[float, typer.Option(help="Chance of a false certificate.")]
CMin = Annotated[float, typer.Option(min=0, max=1, help="Least share of records to admit.")]
BMax = Annotated[
    float, typer.Option(min=0, max=1, help="Largest share of records that cost a secondary call.")
]
Power = Annotated[
    float, typer.Option(min=0.01, max=0.999, help="Wanted chance of a certificate, beside even odds.")
]
Coverage = Annotated[
    float | None,
    typer.Option(min=0.0001, max=1, help="Share of records that you expect to admit.", rich_help_panel=_SEEN),
]
Calls = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="Share of records that cost a secondary call.", rich_help_panel=_SEEN),
]
Candidates = Annotated[
    int | None, typer.Option(min=1, help="Candidates of the family.", rich_help_panel=_SEEN)
]
Chains = Annotated[int | None, typer.Option(min=1, help="Chains of the family.", rich_help_panel=_SEEN)]
GroupSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="Records of a group, such as completions of one question.", rich_help_panel=_SEEN
    ),
]
Icc = Annotated[
    float, typer.Option(min=0, max=1, help="Correlation of harm inside a group.", rich_help_panel=_SEEN)
]
Score = Annotated[
    str, typer.Option(help="The trust score.", autocompletion=complete_score, rich_help_panel=_RECORDS)
]
Waive = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FIELD",
        help="Field that the scan for answers in disguise lets through; repeatable.",
        rich_help_panel=_RECORDS,
    ),
]
SignsOption = Annotated[
    Signs, typer.Option("--signs", help="Thresholds for each sign of the verdict.", rich_help_panel=_RECORDS)
]


def plan(
    rho: Rho,
    risk: Risk,
    records: RecordsFile = None,
    labels: Labels = None,
    delta: Delta = 0.05,
    c_min: CMin = 0.25,
    b_max: BMax = 0.2,
    power: Power = 0.9,
    coverage: Coverage = None,
    calls: Calls = None,
    candidates: Candidates = None,
    chains: Chains = None,
    group_size: GroupSize = None,
    icc: Icc = 0.0,
    score: Score = "mean",
    signs: SignsOption = "plain",
    waive: Waive = None,
    json_output: shared.Json = False,
) -> None:
    """Say what a certificate costs, before any labelling.

    For each claim: how many records, labels and secondary calls it takes at even odds and at the wanted
    chance. Without RECORDS, and unless you say otherwise, one candidate is expected to admit as much as
    --c-min asks and to make no calls.
    """
    from vapo.certification.plan import plan as make_plan
    from vapo.protocol import Protocol

    seen = {}
    if records is not None:
        reading: dict[str, Any] = {"score": score, "signs": signs, "waivers": tuple(waive or ())}
        seen = _look_at(records, Protocol(rho=rho, c_min=c_min, b_max=b_max, **reading))
    facts: dict[str, Any] = {
        "coverage": coverage if coverage is not None else seen.get("coverage", max(c_min, 0.01)),
        "calls": calls if calls is not None else seen.get("calls", 0.0),
        "candidates": candidates or seen.get("candidates", 1),
        "chains": chains or seen.get("chains", 1),
        "group_size": group_size or seen.get("group_size", 1),
        "union_coverage": seen.get("union_coverage"),
        "union_calls": seen.get("union_calls"),
    }
    at_hand = seen.get("records")
    terms: dict[str, Any] = {
        "rho": rho,
        "risk": risk,
        "delta": delta,
        "c_min": c_min,
        "b_max": b_max,
        "power": power,
        "icc": icc,
    }
    costs = make_plan(**terms, **facts, labels=labels)
    _tell(costs, facts | {"records": at_hand}, risk, rho)
    answer = {
        "terms": terms,
        "expectations": facts,
        "rows": [dataclasses.asdict(row) for row in costs.rows],
        "design_effect": costs.design_effect,
        "information_limit": costs.information_limit,
        "least_admitted": costs.least_admitted,
        "at_hand": None if costs.at_hand is None else dataclasses.asdict(costs.at_hand),
    }
    shared.emit(answer, json_output=json_output)


def _look_at(path: Path, protocol: Protocol) -> dict[str, Any]:
    """What a records file says about the family that would be built on it; no label is involved."""
    import numpy as np

    from vapo.certification.candidates import default_budget
    from vapo.certification.flow import as_records
    from vapo.policy import Answers, ask, build_family, settle
    from vapo.policy.build import planned_rates
    from vapo.scores import fit_score

    records = as_records(files.existing(path, "records"), protocol)
    trust = fit_score(protocol.score, records).apply(records)
    budget = default_budget(protocol, records) if records.secondary is not None else 0
    family = build_family(records, trust, budget=budget, signs=protocol.signs)
    coverage, calls = planned_rates(family.policies, records, trust)
    requests = ask(family, records, trust)
    actions = settle(requests, records, Answers.of(records.secondary, len(records)))
    fitting = np.flatnonzero((coverage >= protocol.c_min) & (calls <= protocol.b_max))
    by_coverage = fitting[np.argsort(coverage[fitting])]
    typical = int(by_coverage[len(fitting) // 2]) if len(fitting) else int(np.argmax(coverage))
    return {
        "records": len(records),
        "coverage": float(coverage[typical]),
        "calls": float(calls[typical]),
        "candidates": len(family),
        "chains": len(family.chains),
        "group_size": max(1, round(len(records) / records.groups)),
        "union_coverage": float(np.mean(np.minimum.reduce(actions.codes, axis=0) <= 2)),
        "union_calls": float(np.mean(requests.rows)),
    }


def _tell_too_few(costs: Plan, admitted: int) -> None:
    hopeless = [claim for claim, least in costs.least_admitted.items() if admitted < least]
    if hopeless:
        shared.say(
            f"The records at hand, of which about {admitted:,} would be admitted, cannot certify under "
            f"{', '.join(hopeless)}."
        )


def _tell(costs: Plan, facts: dict[str, Any], risk: float, rho: float) -> None:
    candidates = "1 candidate" if costs.candidates == 1 else f"{costs.candidates} candidates"
    chains = "" if costs.candidates == 1 else f" in {costs.chains} chain{'s' if costs.chains > 1 else ''}"
    groups = "" if facts["group_size"] == 1 else f", groups of {facts['group_size']}"
    shared.say(
        f"Expecting {risk:.2%} harm among what is admitted ({rho:.2%} is allowed), coverage "
        f"{facts['coverage']:.3f}, call rate "
        f"{facts['calls']:.3f}, {candidates}{chains}{groups}:\n"
    )
    rows = []
    for row in costs.rows:
        amounts = (row.records, row.admitted, row.labels, row.secondary_calls)
        shown = ["never", "", "", ""] if row.records is None else [f"{amount:,}" for amount in amounts]
        rows.append([row.claim, f"{row.power:.0%}", *shown, row.binding])
    columns = ("claim", "chance", "records", "admitted", "labels", "secondary calls", "what asks for most")
    shared.show_table(columns, rows)
    if risk < rho:
        shared.say(
            f"No test can be expected to do it with fewer than {costs.information_limit:,} admitted records."
        )
    else:
        shared.say("No test can certify this: the harm that you expect is not below what you allow.")
    least = ", ".join(f"{count:,} ({claim})" for claim, count in costs.least_admitted.items())
    shared.say(f"Nothing at all certifies with fewer admitted records than {least}, even if none is harmful.")
    if facts["records"] is not None:
        _tell_too_few(costs, round(facts["records"] * facts["coverage"]))
    hand = costs.at_hand
    if hand is not None:
        said = (
            "can certify nothing at this rho, whatever they say"
            if hand.largest_risk is None
            else f"certify at even odds if the true share of harm is {hand.largest_risk:.2%}"
        )
        chance = "" if hand.chance is None else f"; at {risk:.2%} the chance is {hand.chance:.0%}"
        shared.say(
            f"At best, each on an admitted record and no two in one group, your {hand.labels:,} labels "
            f"{said}{chance} (claim frozen)."
        )
