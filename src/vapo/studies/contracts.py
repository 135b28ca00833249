"""What the paper promises about its runs, checked on runs: splits, order of events, refusals, identities, manifests.

One audit run a seed goes through the whole flow on made-up rollouts, with five splits and a deployment, and every
promise is read off what it left behind. What learners and other studies did is read off their manifests, where they
stand finished in the same folder.
"""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vapo._internal.oracle import oracle_fields
from vapo.actuator import Actuator
from vapo.certification.flow import as_records, certify, prepare, split_records
from vapo.certification.issue import join_labels
from vapo.errors import IntegrityError, VapoError
from vapo.gate import Gate, replay_run
from vapo.ledger import Ledger
from vapo.ledger.log import EventKind
from vapo.ledger.run import LOG, referenced
from vapo.ledger.verify import verify_run
from vapo.metrics import alignment
from vapo.protocol import Protocol
from vapo.records import Labels, Records, Source
from vapo.simulate import simulate
from vapo.splits import make_manifest
from vapo.stats import paired_bootstrap
from vapo.studies.contracts_tables import tables
from vapo.studies.framework import Drawing, Row, Scale, Study, Table, Task
from vapo.studies.schematics import drawings

__all__ = ["STUDY"]

_QUESTIONS = {"design": 240, "certification": 400, "train": 160, "held-out": 80, "test": 80}
_RHO, _C_MIN, _B_MAX = 0.08, 0.2, 0.2


def _tasks(scale: Scale, seeds: tuple[int, ...]) -> Sequence[Task]:
    del scale
    audits = [Task("contracts", f"audit {seed}", _audit, {"seed": seed}) for seed in seeds]
    return [*audits, Task("contracts", "refusals", _refusals), Task("contracts", "constants", _constants)]


def _worlds(seed: int) -> tuple[dict[str, pa.Table], dict[str, int]]:
    """The five splits' records, and the clean signs of all."""
    tables: dict[str, pa.Table] = {}
    signs: dict[str, int] = {}
    for number, (split, questions) in enumerate(_QUESTIONS.items()):
        drawn = simulate(questions, 4, seed=1000 * seed + number, prefix=f"{split}-")
        text = pa.array([f"answer {name}" for name in drawn.records["id"].to_pylist()])
        tables[split] = drawn.records.append_column("content", text)
        signs.update(zip(*(drawn.labels[name].to_pylist() for name in ("id", "z")), strict=True))
    return tables, signs


def _audit(seed: int) -> Iterable[dict[str, Any]]:
    """One run through the whole flow: rows about its splits, its events, its decisions and its checks."""
    tables, signs = _worlds(seed)
    records = {split: Records.from_arrow(table) for split, table in tables.items()}
    manifest = make_manifest(records).as_dict()
    for split, facts in manifest["splits"].items():
        yield {"kind": "split", "seed": seed, "split": split, **facts}
    for split, table in tables.items():
        clean = not oracle_fields(table)
        yield {
            "kind": "inputs",
            "seed": seed,
            "split": split,
            "columns": ", ".join(table.column_names),
            "observed_only": clean,
        }
    for pair, shared in manifest["overlaps"].items():
        yield {"kind": "overlap", "seed": seed, "pair": pair, "shared": shared}
    opened = {name: sign for name, sign in signs.items() if name.startswith("certification-")}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder, "run")
        certificate = certify(
            tables["certification"],
            opened,
            out=run,
            design=tables["design"],
            rho=_RHO,
            c_min=_C_MIN,
            b_max=_B_MAX,
        )
        with Gate.open(run) as gate:
            decided = {split: gate.decide(tables[split]).table for split in ("train", "held-out")}
        ledger = Ledger.read(run)
        yield from _events(ledger, seed)
        yield from _measured(tables["train"], decided["train"], signs, seed)
        kinds = [event.kind for event in ledger.events]
        deployed = kinds[kinds.index(EventKind.DEPLOY) :]
        checks = {
            "a certificate is issued": certificate.certified,
            "no label column among the observations": not any(
                oracle_fields(_table(ledger, name)) for name in _tables_of(ledger, EventKind.PROTOCOL)
            ),
            "labels joined after the trace was frozen": kinds.index(EventKind.FROZEN)
            < kinds.index(EventKind.LABELS),
            "labels carry the frozen trace's root": _rooted(ledger),
            "the certificate comes before deployment": kinds.index(EventKind.ISSUED)
            < kinds.index(EventKind.DEPLOY),
            "deployed actions are recorded and no label after them": EventKind.ACTIONS in deployed
            and EventKind.LABELS not in deployed,
            "requests are recorded before answers": kinds.index(EventKind.REQUESTED)
            < kinds.index(EventKind.SETTLED),
            "every file verifies": verify_run(run).ok,
            "replay gives the same bytes": _replayed(run),
        }
        for name, passed in checks.items():
            yield {"kind": "check", "seed": seed, "check": name, "passed": bool(passed)}


def _tables_of(ledger: Ledger, kind: EventKind) -> list[str]:
    events = [event for event in ledger.events if event.kind is kind]
    return [name for name in referenced(events) if name.endswith(".parquet")]


def _table(ledger: Ledger, name: str) -> pa.Table:
    sha256, _, suffix = name.removeprefix("segments/").partition(".")
    return ledger.table({"sha256": sha256, "suffix": suffix})


def _rooted(ledger: Ledger) -> bool:
    """Whether the labels name the log as it stood when the trace was frozen."""
    (joined,) = ledger.stage_events(EventKind.LABELS)
    return bool(joined.body["trace_root"] == ledger.root(joined.seq))


def _replayed(run: Path) -> bool:
    try:
        replay_run(run)
    except VapoError:
        return False
    return True


def _events(ledger: Ledger, seed: int) -> Iterable[dict[str, Any]]:
    """Every event, with the columns of the tables that it is the first to name."""
    known: set[str] = set()
    for event in ledger.events:
        new = [name for name in referenced([event]) if name not in known and name.endswith(".parquet")]
        known.update(new)
        columns = {
            column for name in new for column in _table(ledger, name).column_names if not column.isdigit()
        }
        if any(column.isdigit() for name in new for column in _table(ledger, name).column_names):
            columns.add("one byte a candidate")
        yield {
            "kind": "event",
            "seed": seed,
            "seq": event.seq,
            "event": str(event.kind),
            "columns": ", ".join(sorted(columns)),
        }


def _measured(
    records: pa.Table, decided: pa.Table, signs: dict[str, int], seed: int
) -> Iterable[dict[str, Any]]:
    """Metrics of one deployed split under the full actuator, from the recorded decisions alone."""
    sign = decided["sign"].to_numpy().astype(np.int8)
    label = np.array([signs[name] for name in decided["id"].to_pylist()], np.int8)
    actuator = Actuator("full")
    updates = actuator.magnitude(
        score=decided["score"].to_numpy(),
        delta_r=records["delta_r"].to_numpy(),
        kl=records["kl"].to_numpy(),
        sign=sign,
    )
    found = alignment(sign, np.abs(updates.update), label, magnitude_max=actuator.magnitude_max)
    numbers = {name: value for name, value in found.as_dict().items() if isinstance(value, int | float)}
    yield {
        "kind": "metrics",
        "seed": seed,
        **numbers,
        "turned": int(np.count_nonzero((updates.update != 0) & (np.sign(updates.update) != sign))),
        "above_bound": int(np.count_nonzero(np.abs(updates.update) > actuator.magnitude_max)),
    }


def _refusals() -> Iterable[dict[str, Any]]:
    """What must not be possible, tried."""
    drawn = simulate(60, 4, seed=1)
    table, signs = drawn.records, drawn.labels
    n = table.num_rows
    oracle = table.append_column("meta", pa.array([{"gold_answer": 1}] * n))
    share = np.round(table["signal.consistency"].to_numpy() * 5) / 5
    views = table.drop_columns(["signal.consistency"]).append_column("signal.consistency", pa.array(share))
    views = views.append_column("signal.agreement", pa.array(np.maximum(share, 1 - share)))
    terms: dict[str, Any] = {"rho": _RHO, "c_min": _C_MIN, "b_max": _B_MAX}
    one = {name: Source(name, "0" * 64) for name in ("signal.confidence", "signal.consistency")}
    same = {name: Source("rules", "1" * 64) for name in ("primary", "strict-checker")}
    half = {
        "left": Records.from_arrow(table.slice(0, n // 2 + 2)),
        "right": Records.from_arrow(table.slice(n // 2)),
    }

    def joined_early(folder: Path) -> None:
        protocol = Protocol.from_dict(terms, where="terms")
        design, rest = split_records(as_records(table, protocol), protocol)
        with Ledger.write(folder / "run") as ledger:
            prepare(ledger, protocol, design, rest)
            join_labels(ledger, Labels.from_arrow(signs), rest)

    def opened_too_much(folder: Path) -> None:
        worlds, all_signs = _worlds(1)
        certify(worlds["certification"], all_signs, out=folder / "run", design=worlds["design"], **terms)

    def edited(folder: Path) -> None:
        run = folder / "run"
        certify(table, signs, out=run, **terms)
        log = run / LOG
        log.write_bytes(log.read_bytes().replace(b'"joined"', b'"jained"', 1))
        report = verify_run(run)
        if not report.ok:
            raise IntegrityError(report.findings[0].what)

    tries: dict[str, Callable[[Path], object]] = {
        "an oracle field in a nested column": lambda _: Records.from_arrow(oracle),
        "agreement beside consistency": lambda folder: certify(views, signs, out=folder / "run", **terms),
        "two signals with one digest": lambda _: Records.from_arrow(table, sources=one),
        "a secondary that is the primary": lambda _: Records.from_arrow(table, sources=same),
        "two splits that share a question": lambda _: make_manifest(half),
        "labels joined before the freeze": joined_early,
        "labels of other splits among those joined": opened_too_much,
        "an event changed in the log": edited,
    }
    for name, attempt in tries.items():
        with tempfile.TemporaryDirectory() as folder:
            try:
                attempt(Path(folder))
                error = ""
            except VapoError as refused:
                error = type(refused).__name__
        yield {"kind": "refusal", "refusal": name, "refused": bool(error), "error": error}


def _constants() -> Iterable[dict[str, Any]]:
    """Constants of the package that the paper prints too."""
    actuator = Actuator()
    resamples = inspect.signature(paired_bootstrap).parameters["resamples"].default
    found = {
        "bootstrap resamples": resamples,
        "w_min": actuator.trust_min,
        "epsilon_min": actuator.radius_min,
        "epsilon_max": actuator.radius_max,
        "beta_min": actuator.kl_price_min,
        "beta_max": actuator.kl_price_max,
    }
    for name, value in found.items():
        yield {"kind": "constant", "constant": name, "value": value}


def _figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterable[Drawing]:
    del rows, tables
    return drawings()


STUDY = Study(
    name="contracts",
    title="Does every run keep what the paper promises about runs?",
    labels=(
        "tab:split-contract",
        "tab:metric-contract",
        "tab:future-protocol",
        "tab:additional-config",
        "tab:learner-readiness",
        "tab:current-experiments",
        "fig:vapo-algorithm",
        "fig:sequential-certification",
    ),
    seeds={"smoke": (13,), "small": (13, 17, 23), "paper": (13, 17, 23)},
    tasks=_tasks,
    tables=tables,
    figures=_figures,
    revision=2,
    last=True,
)
