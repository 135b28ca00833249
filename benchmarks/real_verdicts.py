"""Real verdicts as data: who plays which part, what they get wrong, and how groups are dealt and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.verdict_files import Row, Tables, convert, read_rows
from vapo import Records
from vapo.certification.reach import design_effect
from vapo.scores import fit_score
from vapo.stats import binomial_rate, intraclass_correlation, verifier_errors

__all__ = [
    "COVERAGES",
    "SETUPS",
    "Setup",
    "best_on_file",
    "count_groups",
    "deal_groups",
    "draw_groups",
    "errors",
    "load",
    "ungrouped",
    "windowed",
]

COVERAGES = (0.10, 0.25)
WINDOW = 64
"""Records that share a budget of secondary calls, where there are appeals."""
SPLIT = (0.2, 0.5)
"""Shares of the groups that design and certification take; the rest is fresh."""


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to use a verdict file: who is the primary, who are the signals, who stands by for appeals."""

    name: str
    file: str
    says: str
    scores: tuple[str, ...]
    group_cap: int
    """Most answers that the experiment collected for one question."""
    primary: str | None = None
    signals: tuple[str, ...] | None = None
    y2: str | None = None
    only_judged: bool = False

    def tables(self, rows: Sequence[Row]) -> Tables:
        """Records and labels under this reading."""
        return convert(
            rows, primary=self.primary, signals=self.signals, y2=self.y2, only_judged=self.only_judged
        )


SETUPS: Mapping[str, Setup] = {
    setup.name: setup
    for setup in (
        Setup(
            "openqa",
            "openqa_eval.jsonl",
            "GPT-4 judges the answer; signals davinci-003, BEM, F1, EM",
            ("signal:davinci3", "signal:bem", "mean", "rank-mean", "dawid-skene"),
            group_cap=10,
        ),
        Setup(
            "openqa-appeal",
            "openqa_eval.jsonl",
            f"the same with davinci-003 as the secondary (a call for 20 % of each window of {WINDOW} "
            "records); signals BEM, F1, EM",
            ("signal:bem", "mean", "rank-mean", "dawid-skene"),
            group_cap=10,
            y2="davinci3",
        ),
        Setup(
            "gsm8k-peer",
            "gsm8k_solutions.jsonl.gz",
            "the 175B verification model's own answer judges the other three models' solutions; signals: the "
            "other peers and the calculator check",
            ("signal:peer_175b_finetuning", "signal:calc", "mean", "rank-mean", "dawid-skene"),
            group_cap=3,
            primary="peer_175b_verification",
            only_judged=True,
        ),
        Setup(
            "gsm8k-majority",
            "gsm8k_solutions.jsonl.gz",
            "two of the three peers judge; only the calculator check is a source of its own",
            ("signal:calc",),
            group_cap=4,
            signals=("calc",),
        ),
    )
}


def load(folder: Path) -> dict[str, Tables]:
    """Every setup's records and labels."""
    rows = {file: read_rows(folder / file) for file in {setup.file for setup in SETUPS.values()}}
    return {name: setup.tables(rows[setup.file]) for name, setup in SETUPS.items()}


def windowed(setup: Setup, table: pa.Table) -> pa.Table:
    if setup.y2 is None:
        return table
    return table.append_column("window", pa.array([str(row // WINDOW) for row in range(table.num_rows)]))


def _harmful(tables: Tables) -> npt.NDArray[np.bool_]:
    y, z = tables.records.column("y").to_numpy(), tables.labels.column("z").to_numpy()
    return np.asarray(y * z < 0)


def errors(tables: Tables) -> dict[str, Any]:
    """How often the primary errs on either side, how errors cluster, and how the signals err with it."""
    y = tables.records.column("y").to_numpy()
    z = tables.labels.column("z").to_numpy()
    group = np.asarray(tables.records.column("group").to_pylist())
    sides = {}
    for side, part in (("both", y != 0), ("+1", y > 0), ("-1", y < 0)):
        wrong = (y != z)[part]
        rate = binomial_rate(int(wrong.sum()), int(part.sum()))
        _, of = np.unique(group[part], return_inverse=True)
        sides[side] = {
            "records": int(part.sum()),
            "groups": int(of.max()) + 1,
            "wrong": int(wrong.sum()),
            "rate": rate.rate,
            "low": rate.low,
            "high": rate.high,
            "icc": intraclass_correlation(wrong.astype(np.float64), group[part]),
            "design_effect": design_effect(np.bincount(of), np.bincount(of, wrong)),
        }
    together = {}
    for name in [
        n for n in tables.records.column_names if n.startswith("verdict.") and not n.endswith(".score")
    ]:
        other = tables.records.column(name).to_numpy()
        together[name.removeprefix("verdict.")] = verifier_errors(y, other, z, group).as_dict()
    unjudged = int((y == 0).sum())
    return {
        "records": len(y),
        "groups": len(np.unique(group)),
        "unjudged": unjudged,
        "sides": sides,
        "signals": together,
    }


def best_on_file(setup: Setup, tables: Tables) -> list[dict[str, Any]]:
    """The least harm that any threshold leaves, with every label of the file in hand."""
    records = Records.from_arrow(tables.records)
    bad = _harmful(tables)
    rows = []
    for spec in setup.scores:
        score = fit_score(spec, records).apply(records)
        row: dict[str, Any] = {"score": spec}
        for side, part in (("plain", records.y != 0), ("pos", records.y > 0), ("neg", records.y < 0)):
            order = np.argsort(-score[part], kind="stable")
            last = np.append(np.diff(score[part][order]) != 0, True)
            admitted = np.arange(1, len(order) + 1)[last]
            harm = np.cumsum(bad[part][order])[last] / admitted
            coverage = admitted / len(records)
            for c_min in COVERAGES:
                enough = coverage >= c_min
                row[f"{side} {c_min:g}"] = float(harm[enough].min()) if enough.any() else None
        rows.append(row)
    return rows


def deal_groups(tables: Tables, rng: np.random.Generator) -> list[Tables]:
    """Design, certification and fresh part, by whole groups and each in file order."""
    of = _groups(tables)
    groups = int(of.max()) + 1
    part = np.full(groups, 2)
    shuffled = rng.permutation(groups)
    first, second = round(SPLIT[0] * groups), round((SPLIT[0] + SPLIT[1]) * groups)
    part[shuffled[:first]], part[shuffled[first:second]] = 0, 1
    rows = [np.flatnonzero(part[of] == number) for number in range(3)]
    return [Tables(tables.records.take(these), tables.labels.take(these)) for these in rows]


def _groups(tables: Tables) -> npt.NDArray[np.int64]:
    return np.unique(np.asarray(tables.records.column("group").to_pylist()), return_inverse=True)[1]


def ungrouped(tables: Tables) -> Tables:
    records = tables.records.set_column(1, "group", tables.records.column("id"))
    return Tables(records.drop_columns([n for n in ("content",) if n in records.column_names]), tables.labels)


def draw_groups(tables: Tables, rng: np.random.Generator, groups: int, mark: str) -> Tables:
    """So many groups drawn with replacement, each draw a group of its own."""
    of = _groups(tables)
    members = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1])
    drawn = rng.integers(len(members), size=groups)
    rows = np.concatenate([members[group] for group in drawn])
    copy = np.repeat(np.arange(groups), [len(members[group]) for group in drawn])
    ids = [
        f"{name} {mark}{number}"
        for name, number in zip(tables.records["id"].take(rows).to_pylist(), copy, strict=True)
    ]
    records = tables.records.take(rows)
    records = records.set_column(0, "id", pa.array(ids)).set_column(
        1, "group", pa.array([f"{mark}{n}" for n in copy])
    )
    records = records.drop_columns([name for name in ("content",) if name in records.column_names])
    return Tables(records, tables.labels.take(rows).set_column(0, "id", pa.array(ids)))


def count_groups(tables: Tables) -> int:
    """How many groups there are."""
    return int(_groups(tables).max()) + 1
