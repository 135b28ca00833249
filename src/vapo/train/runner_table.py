"""What a grid of runs says: one row a run first, then one row an arm and condition, with paired intervals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vapo.stats import paired_bootstrap
from vapo.train.resources import read_chain
from vapo.train.runner_files import LEDGER, RESULT, TELEMETRY, TEST
from vapo.train.runner_grid import Job

__all__ = ["Summary", "run_row", "summarise"]

RESAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class Summary:
    """A grid in numbers."""

    rows: list[dict[str, Any]]
    """One row a finished run."""
    arms: list[dict[str, Any]]
    """One row an arm and condition."""
    missing: list[str]
    """Runs that are not finished."""

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return {"rows": self.rows, "arms": self.arms, "missing": self.missing}


def run_row(folder: Path) -> dict[str, Any]:
    """One finished run in flat numbers: how it ended, what it let through, what it cost."""
    result = json.loads((folder / RESULT).read_bytes())
    entries = read_chain(folder / LEDGER)
    updates = [entry.body for entry in entries if entry.kind == "update.done"]
    risks = [body["risk"] for body in updates if body["risk"]]
    records = sum(body["decided"]["records"] for body in updates)
    test, totals = result["test"], result["totals"]
    return {
        "seed": result["seed"],
        "accuracy": test["accuracy"],
        "return": test.get("return"),
        **{f"pass@{k}": value for k, value in test.get("pass", {}).items()},
        "unparsable": test["unparsable"] / test["questions"],
        "truncated": test["truncated"] / test["questions"],
        "questions": test["questions"],
        "steps": totals["steps"],
        "records": records,
        "admitted": sum(body["decided"]["admitted"] for body in updates),
        "coverage": _ratio(sum(body["decided"]["admitted"] for body in updates), records),
        "appeal_rate": _ratio(sum(body["decided"]["appealed"] for body in updates), records),
        "R_all": _ratio(sum(risk["harmful"] for risk in risks), records),
        **_selected_risks(risks),
        "secondary_calls": totals["secondary"]["reserved"] + totals["buffer_secondary"],
        "primary_calls": totals["primary"]["reserved"] + totals["buffer_primary"]["reserved"],
        "further_calls": totals["further"]["reserved"] + totals["buffer_further"]["reserved"],
        "labels": totals["labels"],
        "certificate_labels": totals["certificate_labels"],
        "rollout_tokens": totals["tokens"],
        "buffer_tokens": totals["buffer_tokens"],
        "verifier_tokens": sum(
            part["tokens_in"] + part["tokens_out"] for part in totals.values() if isinstance(part, dict)
        ),
        "learned_tokens": totals["learned_tokens"],
        "certified": totals["certified"],
        "refused": totals["refused"],
        **_seconds(folder / TELEMETRY),
    }


def _selected_risks(risks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Risks pooled over all updates: harmful among applied, and among admitted, both signs and each alone."""
    found: dict[str, Any] = {}
    for name, parts in (
        ("", risks),
        ("_positive", [r["positive"] for r in risks]),
        ("_negative", [r["negative"] for r in risks]),
    ):
        found[f"R_sel{name}"] = _ratio(sum(p["harmful"] for p in parts), sum(p["applied"] for p in parts))
        admitted = sum(p["admitted"] for p in parts)
        found[f"admitted_risk{name}"] = _ratio(sum(p["admitted_harmful"] for p in parts), admitted)
        found[f"admitted{name}"] = admitted
    return found


def _seconds(telemetry: Path) -> dict[str, float]:
    """Where the time went; outside every digest, and only of what was not interrupted."""
    found = {"seconds_updates": 0.0, "seconds_regimes": 0.0, "seconds_buffer": 0.0, "seconds_gate": 0.0}
    if not telemetry.is_file():
        return found
    for line in telemetry.read_bytes().splitlines():
        note = json.loads(line)
        if note["what"] == "update":
            found["seconds_updates"] += note["seconds"]
        elif note["what"] == "regime":
            parts = note["parts"]
            found["seconds_buffer"] += parts.get("buffer", 0.0)
            found["seconds_gate"] += parts.get("certify", 0.0) + parts.get("admit", 0.0)
            found["seconds_regimes"] += note["seconds"]
    return found


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def summarise(jobs: Sequence[Job], *, control: str = "static", ceiling: str = "oracle") -> Summary:
    """Compare the arms of a grid, condition by condition.

    Differences are paired: both arms of a seed answer the same test questions. The share of the gap is how much of the
    way from the control to the ceiling an arm goes, in mean accuracy.

    Args:
        jobs: The grid's runs; those without a result are listed as missing.
        control: What arms are compared with.
        ceiling: What the gap is measured to.
    """
    done = [job for job in jobs if (job.folder / RESULT).is_file()]
    rows = [{"condition": job.condition, "arm": job.config.arm, **run_row(job.folder)} for job in done]
    missing = [job.name for job in jobs if job not in done]
    arms = []
    conditions = list(dict.fromkeys(job.condition for job in done))
    for condition in conditions:
        here: dict[str, list[dict[str, Any]]] = {}
        for row in rows:
            if row["condition"] == condition:
                here.setdefault(row["arm"], []).append(row)
        folders = {(j.config.arm, j.config.seed): j.folder for j in done if j.condition == condition}
        for arm, some in here.items():
            arms.append(_arm_row(condition, arm, some, here, folders, control, ceiling))
    return Summary(rows, arms, missing)


def _arm_row(
    condition: str,
    arm: str,
    rows: list[dict[str, Any]],
    here: Mapping[str, list[dict[str, Any]]],
    folders: Mapping[tuple[str, int], Path],
    control: str,
    ceiling: str,
) -> dict[str, Any]:
    means = {
        name: _mean([row[name] for row in rows])
        for name in rows[0]
        if name not in ("condition", "arm", "seed")
    }
    found: dict[str, Any] = {"condition": condition, "arm": arm, "seeds": len(rows), **means}
    for name, other in (("versus_control", control), ("versus_ceiling", ceiling)):
        if other in here and other != arm:
            found[name] = _paired(folders, arm, other)
    low, high = (_mean([row["accuracy"] for row in here.get(name, [])]) for name in (control, ceiling))
    if low is not None and high is not None and means["accuracy"] is not None:
        found["gap"] = high - low
        found["gap_closed"] = _ratio(means["accuracy"] - low, high - low)
    base = here.get(control)
    if base:
        found["relative_tokens"] = _ratio(_tokens(rows), _tokens(base))
        found["relative_seconds"] = _ratio(_time(rows), _time(base))
    return found


def _tokens(rows: Sequence[Mapping[str, Any]]) -> float:
    """Tokens of rollouts, buffers and verifiers, a run."""
    names = ("rollout_tokens", "buffer_tokens", "verifier_tokens")
    return float(sum(row[name] for row in rows for name in names)) / len(rows)


def _time(rows: Sequence[Mapping[str, Any]]) -> float:
    return float(sum(row["seconds_updates"] + row["seconds_regimes"] for row in rows)) / len(rows)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _paired(folders: Mapping[tuple[str, int], Path], arm: str, other: str) -> dict[str, Any] | None:
    """Difference in accuracy over the seeds that both arms have, with its interval over seeds and questions."""
    seeds = sorted(seed for name, seed in folders if name == arm and (other, seed) in folders)
    if not seeds:
        return None
    ours, theirs, names, questions = [], [], [], []
    for seed in seeds:
        one, two = (_answers(folders[name, seed]) for name in (arm, other))
        for question in sorted(set(one) & set(two)):
            ours.append(float(one[question]))
            theirs.append(float(two[question]))
            names.append(seed)
            questions.append(question)
    found = paired_bootstrap(
        ours, theirs, seed=names, question=questions, rng=np.random.default_rng(0), resamples=RESAMPLES
    )
    return {"estimate": found.estimate, "low": found.low, "high": found.high, "per_seed": found.per_seed}


def _answers(folder: Path) -> dict[str, bool]:
    rows = map(json.loads, (folder / TEST).read_bytes().splitlines())
    return {row["question"]: row["right"] for row in rows}
