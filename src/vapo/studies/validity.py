"""Are certificates valid? Stages of laws with known conditional means, counted against the truth.

Every stage is drawn from a law of `vapo.studies.laws`, decided by the package's own tests, and compared with what is
true of it: the average of the conditional means along its path of calls left (`hoeffding`, `sequential`), or the
average of the admitted records' probabilities of harm given all that was frozen (`frozen`). At the *operating point*
one candidate has the paper's reported risk and coverage. On the *boundary* no eligible candidate is safe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from vapo.certification.bounds import hoeffding_radius
from vapo.certification.claims import evaluate
from vapo.certification.required import records_for_frozen, records_for_hoeffding, records_for_sequential
from vapo.certification.tables import CLAIMS, Requirements, Tally
from vapo.policy import Family
from vapo.studies.decisions import Counts, Decided, Plan, decide_stages
from vapo.studies.framework import Scale, Study, Task
from vapo.studies.laws import (
    BUDGET,
    NOISES,
    ORDERS,
    REFERENCE,
    WINDOW,
    SequenceLaw,
    candidates,
    edge_law,
    law_of,
)
from vapo.studies.sequences import Stages, simulate
from vapo.studies.validity_constants import VARIANTS, constants_rows
from vapo.studies.validity_figures import figures
from vapo.studies.validity_paper import B_MAX, C_MIN, DELTA, LARGE, LONG, REACH, RHOS, SHORT, TARGETS
from vapo.studies.validity_tables import tables

__all__ = ["STUDY"]

Flags = npt.NDArray[np.bool_]

# Laws of the paper's checks: noise, order, calls a window.
_CHECKS = [
    ("symmetric", ORDERS[0], WINDOW),
    *(("symmetric", order, BUDGET) for order in ORDERS),
    ("correlated", ORDERS[0], BUDGET),
]
_OTHERS = [(noise, ORDERS[0], BUDGET) for noise in NOISES if noise not in ("symmetric", "correlated")]

# Stages a seed up to LONG records and beyond it, stages that `evaluate` decides one by one, and stages of other
# constants.
_STAGES: dict[Scale, tuple[int, int, int, int]] = {
    "smoke": (40, 4, 1, 40),
    "small": (2500, 100, 60, 1000),
    "paper": (2500, 100, 60, 1000),
}
_CAMPAIGN = 5


def _tasks(scale: Scale, seeds: tuple[int, ...]) -> Sequence[Task]:
    many, few, sixty, others = _STAGES[scale]
    found = [Task("validity", "plan", _plan), Task("validity", "rates", _rates)]

    def add(kind: str, key: str, function: Any, **arguments: Any) -> None:
        found.append(Task("validity", f"{kind} {key}", function, arguments))

    for seed in seeds:
        for records in (SHORT, LONG, LARGE):
            stages = few if records > LONG else many
            for noise, order, budget in [*_CHECKS, *_OTHERS]:
                law = {"noise": noise, "order": order, "budget": budget}
                where = f"{noise}, {order}, {budget} calls, {records}, seed {seed}"
                size = {"records": records, "stages": stages, "seed": seed}
                add("operating point:", where, _block, law="operating point", rhos=RHOS, **law, **size)
                for rho in RHOS if (noise, order, budget) in _CHECKS else (0.08,):
                    add(f"boundary {rho}:", where, _block, law="boundary", rhos=(rho,), **law, **size)
        for records in REACH:
            law = {"noise": "symmetric", "order": ORDERS[0], "budget": BUDGET}
            size = {"records": records, "stages": few, "seed": seed}
            where = f"{records}, seed {seed}"
            add("reach:", where, _block, law="operating point", rhos=(0.08,), **law, **size)
    for noise, order, budget in _CHECKS:
        law = {"noise": noise, "order": order, "budget": budget}
        # The three permutations share the stages of one setting.
        stages = sixty if order == ORDERS[0] else max(sixty // 3, 1)
        for records in (SHORT, LONG, LARGE):
            where = f"{noise}, {order}, {budget} calls, {records}"
            size = {"records": records, "stages": stages, "seed": seeds[0]}
            add("sixty:", where, _one_by_one, part="sixty", rhos=RHOS, **law, **size)
    for noise in NOISES:
        law = {"noise": noise, "order": ORDERS[0], "budget": BUDGET}
        for records in (SHORT, LONG):
            size = {"records": records, "stages": max(sixty // _CAMPAIGN, 1), "seed": seeds[0]}
            where = f"{noise}, {records}"
            add("campaign:", where, _one_by_one, part="campaign", rhos=(0.08,), **law, **size)
    for variant in VARIANTS:
        add("constants:", variant, constants_rows, variant=variant, stages=others, seed=seeds[0])
    return found


def _law(law: str, rho: float, noise: str, order: str, budget: int) -> SequenceLaw:
    return edge_law(rho, noise, order, budget) if law == "boundary" else law_of(noise, order)


def _asked(rho: float) -> Requirements:
    return Requirements(rho, C_MIN, B_MAX, DELTA)


def _wrong(stages: Stages, rho: float) -> dict[str, Flags]:
    """By claim: which candidates truly break a requirement, stages by candidates."""
    average = stages.mean_harmful - rho * stages.mean_admitted > 0
    average |= (stages.mean_admitted < C_MIN) | (stages.mean_appealed > B_MAX)
    frozen = stages.frozen_risk > rho
    frozen |= (stages.admitted / stages.records < C_MIN) | (stages.appealed / stages.records > B_MAX)
    return {"hoeffding": average, "sequential": average, "frozen": frozen}


def _decided(
    stages: Stages, law: SequenceLaw, family: Family, rho: float
) -> tuple[dict[str, Decided], npt.NDArray[np.float64]]:
    rates = law.rates(family)
    counts = Counts(stages.records, stages.admitted, stages.harmful, stages.appealed)
    return decide_stages(counts, _asked(rho), family.chains, Plan(rates.admitted, rates.appealed)), rates.risk


def _block(
    law: str, rhos: Sequence[float], noise: str, order: str, budget: int, records: int, stages: int, seed: int
) -> Iterable[dict[str, Any]]:
    """Many stages of one law: one row a target and claim."""
    family = candidates(budget)
    whose = {"law": law, "noise": noise, "order": order, "budget": budget, "records": records}
    drawn: Stages | None = None
    for rho in rhos:
        how = _law(law, rho, noise, order, budget)
        # At the operating point all targets read the same stages.
        if drawn is None:
            number = [
                seed,
                ("operating point", "boundary").index(law),
                NOISES.index(noise),
                ORDERS.index(order),
            ]
            drawn = simulate(how, family, records, stages, [*number, budget, records, round(1000 * rho)])
        decided, risk = _decided(drawn, how, family, rho)
        wrong = _wrong(drawn, rho)
        for claim in CLAIMS:
            feasible, selected = decided[claim]
            rows = np.flatnonzero(selected >= 0)
            chosen = selected[rows]
            coverage = drawn.admitted[rows, chosen] / records
            yield {
                "kind": "block",
                **whose,
                "rho": rho,
                "claim": claim,
                "seed": seed,
                "stages": stages,
                "certified": len(rows),
                "false": int(np.count_nonzero(wrong[claim][rows, chosen])),
                "any_false": int(np.count_nonzero((feasible & wrong[claim]).any(axis=1))),
                "reference": int(np.count_nonzero(feasible[:, REFERENCE])),
                "risk": math.fsum(risk[chosen]),
                "risk_squared": math.fsum(risk[chosen] ** 2),
                "coverage": math.fsum(coverage),
                "coverage_squared": math.fsum(coverage**2),
            }


def _one_by_one(
    part: str,
    rhos: Sequence[float],
    noise: str,
    order: str,
    budget: int,
    records: int,
    stages: int,
    seed: int,
) -> Iterable[dict[str, Any]]:
    """Stages decided by `evaluate` itself: one row a stage, target and claim."""
    family, law = candidates(budget), law_of(noise, order)
    rates = law.rates(family)
    number = [seed, 2 + ("sixty", "campaign").index(part), NOISES.index(noise), ORDERS.index(order)]
    drawn = simulate(law, family, records, stages, [*number, budget, records])
    for rho in rhos:
        at_once, risk = _decided(drawn, law, family, rho)
        wrong = _wrong(drawn, rho)
        for stage in range(stages):
            parts = (drawn.admitted[stage], drawn.harmful[stage], drawn.appealed[stage])
            tallies = [Tally(records, *row) for row in np.stack(parts, axis=1).tolist()]
            verdict = evaluate(
                tallies, family.chains, _asked(rho), rates.admitted, rates.appealed, planned_records=records
            )
            for claim in CLAIMS:
                table = verdict.claims[claim]
                chosen = table.selected
                same = np.array_equal(table.feasible, at_once[claim].feasible[stage])
                same &= int(at_once[claim].selected[stage]) == (-1 if chosen is None else chosen)
                yield {
                    "kind": part,
                    "noise": noise,
                    "order": order,
                    "budget": budget,
                    "records": records,
                    "rho": rho,
                    "claim": claim,
                    "stage": stage,
                    "certified": chosen is not None,
                    "selected": chosen,
                    "false": chosen is not None and bool(wrong[claim][stage, chosen]),
                    "risk": None if chosen is None else float(risk[chosen]),
                    "coverage": None if chosen is None else float(drawn.admitted[stage, chosen]) / records,
                    "same_at_once": bool(same),
                }


def _rates() -> Iterable[dict[str, Any]]:
    """Exact long-run rates of the candidate at the paper's operating point."""
    for noise, order, budget in [*_CHECKS, *_OTHERS]:
        rates = law_of(noise, order).rates(candidates(budget))
        yield {
            "kind": "rates",
            "noise": noise,
            "order": order,
            "budget": budget,
            "risk": float(rates.risk[REFERENCE]),
            "coverage": float(rates.admitted[REFERENCE]),
            "calls": float(rates.appealed[REFERENCE]),
        }


def _plan() -> Iterable[dict[str, Any]]:
    """What the paper's operating points need, by the package's planner; and other readings of its counts."""
    for rho, target in TARGETS.items():
        risk, coverage, size = target.risk, target.coverage, len(candidates())
        point = (rho, risk, coverage)
        even = {
            "frozen": records_for_frozen(*point, DELTA),
            "sequential": records_for_sequential(*point, DELTA / size),
            "hoeffding": records_for_hoeffding(*point, DELTA, size),
            "hoeffding alone": records_for_hoeffding(*point, DELTA, 1),
        }
        sure = {
            "frozen": records_for_frozen(*point, DELTA, 0.9),
            "sequential": records_for_sequential(*point, DELTA / size, 0.9),
            "hoeffding": records_for_hoeffding(*point, DELTA, size, 0.9),
            "hoeffding alone": records_for_hoeffding(*point, DELTA, 1, 0.9),
        }
        for name, records in even.items():
            yield {"kind": "plan", "rho": rho, "claim": name, "even": records, "sure": sure[name]}
        missed = 60 - target.satisfied
        share = target.satisfied / 60
        reach = (float(special.ndtri(share)) / (rho - risk)) ** 2 * risk * (1.0 - risk) / coverage
        yield {
            "kind": "reading",
            "rho": rho,
            "radius": hoeffding_radius(SHORT, size, DELTA),
            "room": rho * coverage,
            "false_on_boundary": float(special.ndtr(-_radii(rho, coverage, size))),
            "least_records": math.ceil(math.log(3.0 * size / DELTA) / (2.0 * (rho * coverage) ** 2)),
            "at_least_as_many": float(stats.binom.sf(missed - 1, 60, DELTA)),
            "observed_512": _looks_fine(rho, risk, round(512 * coverage)),
            "observed_1319": _looks_fine(rho, risk, round(1319 * coverage)),
            "observed_4096": _looks_fine(rho, risk, round(4096 * coverage)),
            "observed_reach": math.ceil(reach) if missed else None,
        }


def _radii(rho: float, coverage: float, size: int) -> float:
    """The radius in standard errors of the excess harm of a policy whose risk is exactly the target."""
    variance = coverage * (rho * (1.0 - rho) ** 2 + (1.0 - rho) * rho**2)
    return hoeffding_radius(1, size, DELTA) / math.sqrt(variance)


def _looks_fine(rho: float, risk: float, admitted: int) -> float:
    """How often the harm observed among that many admitted records stays within the target."""
    return float(stats.binom.cdf(math.floor(rho * admitted), admitted, risk))


STUDY = Study(
    name="validity",
    title="How often is a certificate false, where the truth is known?",
    labels=(
        "tab:risk_certificate",
        "tab:primary-checks",
        "tab:primary-checks-sensitivity",
        "tab:calibration-sensitivity",
        "tab:order-sensitivity",
    ),
    seeds={"smoke": (1,), "small": (1, 2, 3, 4), "paper": tuple(range(1, 41))},
    tasks=_tasks,
    tables=tables,
    figures=figures,
    revision=2,
)
