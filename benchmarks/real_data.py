"""Certify real verifiers: what `openqa_eval` and `gsm8k_solutions` give, and whether the promise held.

    python -m benchmarks.real_data --data DIR --page docs/real-data.md

DIR (or the environment variable VAPO_SHARED_DATA) holds `verdicts/openqa_eval.jsonl` and
`verdicts/gsm8k_solutions.jsonl.gz`. Everything goes through `vapo.certify` with run folders in a temporary
place, and nothing of the data is written anywhere else.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.real_data_page import page
from benchmarks.real_verdicts import (
    COVERAGES,
    SETUPS,
    Setup,
    best_on_file,
    count_groups,
    deal_groups,
    draw_groups,
    errors,
    load,
    ungrouped,
    windowed,
)
from benchmarks.verdict_files import Tables, find_verdicts
from vapo import Certificate, Policy, Records, certify, decide
from vapo.certification.enough import enough_for
from vapo.certification.stage import Stage, silent
from vapo.certification.tables import CLAIMS, Requirements, Units
from vapo.certification.tally import tally_stage
from vapo.errors import VapoError
from vapo.ledger import Ledger
from vapo.policy.build import Signs
from vapo.scores import FittedScore
from vapo.stats import binomial_rate

__all__ = ["DELTA", "TRIALS", "Outcome", "Trial", "deployed", "grid", "measure", "one_run", "promise"]

DELTA = 0.05
RHOS = (0.05, 0.08, 0.10, 0.15)
DRAWN = (0.3, 0.7)
"""Groups that design and certification draw with replacement, as shares of the file's."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration whose promise is put to the test on random splits."""

    setup: str
    score: str
    signs: Signs
    rho: float
    c_min: float
    modes: tuple[str, ...] = ("dealt", "drawn")
    """Which of the two experiments; see `promise`."""
    ungrouped: bool = False
    """Give every record a group of its own, to see what that mistake costs."""


TRIALS = (
    Trial("openqa", "signal:bem", "plain", 0.15, 0.25),
    Trial("openqa-appeal", "signal:bem", "plain", 0.15, 0.25, modes=("dealt",)),
    Trial("gsm8k-peer", "mean", "plain", 0.10, 0.25, modes=("dealt",)),
    Trial("gsm8k-peer", "mean", "specific", 0.08, 0.25),
    Trial("gsm8k-peer", "dawid-skene", "specific", 0.08, 0.10),
    # Nothing here deserves a certificate, by a hair, and the errors of a question come all together.
    Trial("gsm8k-majority", "signal:calc", "plain", 0.10, 0.10, modes=("drawn",)),
    Trial("gsm8k-majority", "signal:calc", "plain", 0.10, 0.10, modes=("drawn",), ungrouped=True),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run: its certificate, and what each claim would have selected had it been the deciding one."""

    certificate: Certificate
    selected: Mapping[str, Mapping[str, Any] | None]
    policies: Mapping[str, Policy | None]
    score: FittedScore
    enough: Mapping[str, Any] | None
    """What a larger stage would have certified, where `frozen` refused and anything can be certified."""


def one_run(
    setup: Setup,
    tables: Tables,
    run: Path,
    *,
    design: pa.Table | None = None,
    plan: bool = False,
    **terms: Any,
) -> Outcome:
    """Certify once and read all three claims off the candidates' table.

    Every certificate evaluates all three claims; the deciding one only says which of them carries the
    promise. A claim's choice does not depend on which one decides.
    """
    certificate = certify(
        windowed(setup, tables.records),
        tables.labels,
        out=run,
        design=None if design is None else windowed(setup, design),
        delta=DELTA,
        group_cap=setup.group_cap,
        **terms,
    )
    table = pq.read_table(run / certificate.body["candidates"])
    ledger = Ledger.read(run)
    stage = Stage.load(ledger)
    selected = {claim: _chosen(table, claim) for claim in CLAIMS}
    policies = {
        claim: None if row is None else stage.family.policies[row["index"]] for claim, row in selected.items()
    }
    if policies[certificate.body["claim"]] != certificate.policy:
        msg = "the candidates' table and the certificate disagree"
        raise AssertionError(msg)
    wanted = plan and selected["frozen"] is None
    enough = _enough(ledger, stage, tables) if wanted else None
    return Outcome(certificate, selected, policies, stage.score, enough)


def _chosen(table: pa.Table, claim: str) -> dict[str, Any] | None:
    """The row of the candidate that a claim selects, with that claim's limits."""
    feasible, coverage, calls = (
        table.column(f"{claim}.{name}").to_numpy() for name in ("feasible", "coverage_lower", "calls_upper")
    )
    row = int(np.lexsort((calls, -coverage, ~feasible))[0])
    if not feasible[row]:
        return None
    found = {name: table.column(name)[row].as_py() for name in ("index", "admitted", "harmful", "appealed")}
    return found | {"risk_upper": table.column(f"{claim}.risk_upper")[row].as_py()}


def _enough(ledger: Ledger, stage: Stage, tables: Tables) -> dict[str, Any] | None:
    """What a larger stage would have needed, for the candidate that would pass first as the stage grows.

    A stage `m` times as large is taken to hold every group `m` times over; beside it stands what the
    planner asks for, told this candidate's counts. Looking for that candidate after the fact flatters: this
    says what is worth trying.
    """
    protocol, chains = stage.protocol, len(stage.family.chains)
    records = stage.records(ledger)
    truth = dict(zip(tables.labels["id"].to_pylist(), tables.labels["z"].to_pylist(), strict=True))
    bad = np.array([truth[name] for name in records.id.to_pylist()]) * records.y < 0
    tallies = tally_stage(ledger, stage, records, bad, silent, by_group=True)
    level = -math.log(stage.delta / chains)
    found = []
    for index, tally in enumerate(tallies):
        fits = tally.admitted >= protocol.c_min * len(records) and tally.appealed <= protocol.b_max * len(
            records
        )
        if fits and tally.harmful < protocol.rho * tally.admitted and tally.units is not None:
            times = _times(tally.units, protocol.rho, level)
            if times is not None:
                found.append((times, index))
    if not found:
        return None
    times, index = min(found)
    tally = tallies[index]
    asked = Requirements(protocol.rho, protocol.c_min, protocol.b_max, stage.delta)
    planned = enough_for(tally, asked, candidates=len(tallies), chains=chains)
    return {
        "index": index,
        "times": times,
        "records": math.ceil(times * len(records)),
        "admitted": tally.admitted,
        "harmful": tally.harmful,
        "planned": {
            f"{claim} {odds:g}": planned.row(claim, odds).records for claim in CLAIMS for odds in (0.5, 0.9)
        },
    }


def _times(units: Units, rho: float, level: float, most: float = 1e4) -> float | None:
    """How many times over these groups must be there until the frozen group bet passes."""
    cap = units.largest
    excess = (units.harmful - rho * units.admitted) / cap
    spread = float((units.count * (units.admitted / cap) ** 2).sum())

    def short(times: float) -> float:
        stake = min(0.99 / (1 - rho), math.sqrt(2 * level / (rho * (1 - rho) * times * spread)))
        return level - times * float((units.count * np.log1p(-stake * excess)).sum())

    low, high = 1e-3, most
    if short(high) > 0:
        return None
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if short(middle) > 0 else (low, middle)
    return high


def grid(setup: Setup, tables: Tables, scratch: Path) -> Iterator[dict[str, Any]]:
    """Every score, family, rho and C_min: what each claim selects on one split."""
    for spec, signs, rho, c_min in product(setup.scores, ("plain", "specific"), RHOS, COVERAGES):
        row: dict[str, Any] = {"setup": setup.name, "score": spec, "signs": signs, "rho": rho, "c_min": c_min}
        with tempfile.TemporaryDirectory(dir=scratch) as run:
            try:
                found = one_run(
                    setup, tables, Path(run) / "run", plan=True, score=spec, signs=signs, rho=rho, c_min=c_min
                )
            except VapoError as error:
                yield row | {"error": str(error)}
                continue
        body = found.certificate.body
        row |= {"bill": body["bill"], "n": body["counts"]["n"], "groups": body["counts"]["groups"]}
        row |= {"nearest": body["nearest"], "counts": body["counts"], "enough": found.enough}
        row |= found.selected
        yield row


def deployed(setup: Setup, tables: Tables, policy: Policy, score: FittedScore) -> tuple[int, int, int]:
    """Records, admitted and harmful when a policy decides on them."""
    records = Records.from_arrow(windowed(setup, tables.records))
    admitted = decide(policy, records, score.apply(records)).admitted()
    truth = dict(zip(tables.labels["id"].to_pylist(), tables.labels["z"].to_pylist(), strict=True))
    wrong = np.array([truth[name] for name in records.id.to_pylist()]) * records.y < 0
    return len(records), int(admitted.sum()), int((admitted & wrong).sum())


def promise(trial: Trial, tables: Tables, scratch: Path, *, splits: int, drawn: bool) -> dict[str, Any]:
    """Certify on many random splits and look at what the certified policies do elsewhere.

    Without `drawn`, groups are dealt out to design, certification and a fresh part. With it, design and
    certification are drawn with replacement from the file as a population, whose harm rate is then known.
    """
    setup = SETUPS[trial.setup]
    seen: dict[str, list[tuple[int, int, int]]] = {claim: [] for claim in CLAIMS}
    groups = count_groups(tables)
    for split in range(splits):
        rng = np.random.default_rng([2026, split])
        if drawn:
            design = draw_groups(tables, rng, round(DRAWN[0] * groups), "d")
            stage, elsewhere = draw_groups(tables, rng, round(DRAWN[1] * groups), "c"), tables
        else:
            design, stage, elsewhere = deal_groups(tables, rng)
        if trial.ungrouped:
            design, stage = ungrouped(design), ungrouped(stage)
        terms = {name: getattr(trial, name) for name in ("score", "signs", "rho", "c_min")}
        with tempfile.TemporaryDirectory(dir=scratch) as run:
            found = one_run(setup, stage, Path(run) / "run", design=design.records, **terms)
        for claim, policy in found.policies.items():
            if policy is not None:
                seen[claim].append(deployed(setup, elsewhere, policy, found.score))
    claims = {claim: _kept(counts, trial.rho, splits) for claim, counts in seen.items()}
    return {"trial": asdict(trial), "splits": splits, "claims": claims}


def _kept(counts: Sequence[tuple[int, int, int]], rho: float, splits: int) -> dict[str, Any]:
    risks = np.array([h / k if k else 0.0 for _, k, h in counts])
    above = int((risks > rho).sum())
    rate = binomial_rate(above, len(counts))
    return {
        "certified": len(counts),
        "coverage": float(np.mean([k / n for n, k, _ in counts])) if counts else None,
        "risk": float(risks.mean()) if counts else None,
        "pooled": sum(h for *_, h in counts) / max(sum(k for _, k, _ in counts), 1) if counts else None,
        "above": above,
        "low": rate.low,
        "high": rate.high,
        # of all splits: what delta bounds
        "false_high": binomial_rate(above, splits).high,
    }


def measure(folder: Path, *, splits: int = 200, trials: Sequence[Trial] = TRIALS) -> dict[str, Any]:
    """Everything that the page shows, as plain data."""
    data = load(folder)
    place = Path("/dev/shm")
    started = time.process_time()
    result: dict[str, Any] = {
        "splits": splits,
        "errors": {},
        "best": {},
        "grid": [],
        "dealt": [],
        "drawn": [],
    }
    with tempfile.TemporaryDirectory(dir=place if place.is_dir() else None) as scratch:
        for name, setup in SETUPS.items():
            result["errors"][name] = errors(data[name])
            result["best"][name] = best_on_file(setup, data[name])
            result["grid"] += list(grid(setup, data[name], Path(scratch)))
            print(f"{name}: grid done after {time.process_time() - started:.0f} s", file=sys.stderr)
        for trial in trials:
            for mode in trial.modes:
                found = promise(trial, data[trial.setup], Path(scratch), splits=splits, drawn=mode == "drawn")
                result[mode].append(found)
            print(f"{trial}: done after {time.process_time() - started:.0f} s", file=sys.stderr)
    result["seconds"] = time.process_time() - started
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the page."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_data", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--data", help="folder that holds verdicts/ (default: the environment variable VAPO_SHARED_DATA)"
    )
    parser.add_argument("--page", type=Path, help="where to write the page (default: standard output)")
    parser.add_argument(
        "--splits", type=int, default=200, help="random splits a configuration (default: 200)"
    )
    parser.add_argument("--keep", type=Path, help="also write every number, as JSON")
    parser.add_argument("--from", dest="kept", type=Path, help="make the page from such a JSON file")
    given = parser.parse_args(arguments)
    try:
        if given.kept is None:
            result = measure(find_verdicts(given.data), splits=given.splits)
        else:
            result = json.loads(given.kept.read_text(encoding="utf-8"))
    except VapoError as error:
        print(error, file=sys.stderr)
        return 2
    if given.keep is not None:
        given.keep.write_text(json.dumps(result), encoding="utf-8")
    text = page(result)
    if given.page is None:
        print(text)
    else:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
