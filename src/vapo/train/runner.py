"""A training run from its configuration to its last examination, resumable at any moment.

A run's folder holds `config.json`, the chained `ledger.jsonl`, `metrics.jsonl`, `test.jsonl`, the last checkpoint, the
present regime, the selected weights, and for certified arms the gate's run folder `gate/`. Killed at any moment, the
same call goes on: files are cut back to the last checkpoint and the work since is done again, to the same bytes.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.certification.stage import Progress, silent
from vapo.errors import ProtocolError
from vapo.ledger.disk import Disk
from vapo.tasks.base import Task
from vapo.train import runner_files as files
from vapo.train.config import TrainConfig
from vapo.train.engine import Engine, Step
from vapo.train.evaluate import examine
from vapo.train.noise_correction import ErrorRates
from vapo.train.regime import Lot, Regime
from vapo.train.resources import Chain, Lines, Position
from vapo.train.resources_rows import decision_facts, flat, risk_facts, step_facts
from vapo.train.rollouts import derive_seed
from vapo.train.runner_follow import read_recorded
from vapo.train.runner_make import Maker
from vapo.train.runner_state import Totals, demand_own, load, save
from vapo.train.sinks import Sink, open_sinks
from vapo.train.verdicts import Calls, open_judge

__all__ = ["open_engine", "train"]

Opener = Callable[[TrainConfig, Task], Engine]


def open_engine(config: TrainConfig, task: Task) -> Engine:
    """The engine and the model that a configuration names."""
    from vapo.train.models import EMBEDDED, open_model

    options = dict(config.model.options)
    if config.model.name == EMBEDDED:
        options["task"] = task
    model = open_model(config.model.name, **options)
    settings = replace(config.learner, max_tokens=config.rollouts.max_tokens or task.max_tokens)
    if config.engine == "trl":
        from vapo.train.trl.engine import TrlEngine

        return TrlEngine(model, settings)
    from vapo.train.lean import LeanEngine

    return LeanEngine(model, settings)


def train(
    config: TrainConfig,
    out: str | Path,
    *,
    open_with: Opener = open_engine,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Train, or go on training, or give back the result of a run that is finished.

    Args:
        config: Everything that fixes the run.
        out: Its folder; one that holds another run is refused.
        open_with: Opens engine and model.
        progress: Told of every update.

    Returns:
        What came of it: the last examination, totals of what was spent, stages and their certificates.

    Raises:
        ProtocolError: The folder holds a run of another configuration.
    """
    disk = Disk(out)
    with disk:
        demand_own(disk, config)
        if disk.exists(files.RESULT):
            found: dict[str, Any] = json.loads(disk.read(files.RESULT))
            return found
        before = torch.get_num_threads()
        torch.set_num_threads(config.threads)
        try:
            return _Run.open(config, disk, open_with, progress).go()
        finally:
            torch.set_num_threads(before)


@dataclass(slots=True)
class _Run:
    """The state of a run between two updates."""

    config: TrainConfig
    disk: Disk
    maker: Maker
    engine: Engine
    task: Task
    ledger: Chain
    metrics: Lines
    sinks: list[Sink]
    progress: Progress
    totals: Totals
    update: int = 0
    """Updates that are done."""
    rates: ErrorRates = field(default_factory=ErrorRates)
    best: tuple[float, int] = (-1.0, 0)
    """Best held-out accuracy and the update behind which it was seen."""
    regime: Regime | None = None
    lots: list[Lot] = field(default_factory=list)
    """The present regime's windows, taken apart."""

    @classmethod
    def open(cls, config: TrainConfig, disk: Disk, open_with: Opener, progress: Progress) -> _Run:
        from vapo.tasks import open_task

        task = open_task(config.task.name, **dict(config.task.options))
        engine = open_with(config, task)
        recorded = read_recorded(config.controls.follows, config) if config.plan.follows else None
        own = f"vapo train {config.seed}"
        judges = {name: open_judge(j, task, run=own, name=name) for name, j in config.further.items()}
        maker = Maker(
            config=config,
            task=task,
            engine=engine,
            primary=open_judge(config.primary, task, run=own, name="primary"),
            secondary=open_judge(config.secondary, task, run=own, name="secondary"),
            further=judges,
            gate=disk.root / files.GATE,
            recorded=recorded,
        )
        # Not before all that is configured could be opened: until then the folder is free for a better configuration.
        if not disk.exists(files.CONFIG):
            disk.write(files.CONFIG, canonical_json(config.as_dict()))
        state = load(disk, files.CHECKPOINT)
        at = {name: Position.from_dict(state[name]) if state else None for name in ("ledger", "metrics")}
        run = cls(
            config=config,
            disk=disk,
            maker=maker,
            engine=engine,
            task=task,
            ledger=Chain(disk.root / files.LEDGER, at["ledger"]),
            metrics=Lines(disk.root / files.METRICS, at["metrics"]),
            sinks=open_sinks(config.sinks, disk.root.parent, disk.root.name, config.as_dict()),
            progress=progress,
            totals=Totals(),
        )
        if state:
            engine.load_state_dict(state["engine"])
            run.update, run.best = int(state["update"]), (state["best"][0], state["best"][1])
            run.rates, run.totals = ErrorRates(**state["rates"]), Totals.from_dict(state["totals"])
        else:
            run._begin()
        return run

    def _begin(self) -> None:
        maker, config = self.maker, self.config
        sources = {"primary": maker.primary, "secondary": maker.secondary, **maker.further}
        self.ledger.append(
            "run.declared",
            {
                "format": 1,
                "arm": config.arm,
                "seed": config.seed,
                "config": config.digest,
                "model": {"name": self.engine.model.name, "source": self.engine.model.source},
                "task": {
                    "name": self.task.name,
                    "source": self.task.source,
                    "splits": self.task.manifest().as_dict(),
                },
                "verifiers": {n: {"id": j.source.id, "digest": j.source.digest} for n, j in sources.items()},
                "follows": maker.recorded.head if maker.recorded else "",
                "baseline": "observed",
                "select": config.evaluation.select,
            },
        )
        self._look()

    def go(self) -> dict[str, Any]:
        """Every update that is left, and the end."""
        config = self.config
        try:
            while self.update < config.updates:
                self._one_update()
            return self._end()
        finally:
            for sink in self.sinks:
                sink.close()
            self.ledger.close()
            self.metrics.close()
            for judge in (self.maker.primary, self.maker.secondary, *self.maker.further.values()):
                judge.close()

    def _one_update(self) -> None:
        config = self.config
        number, age = divmod(self.update, config.regime.updates)
        if age == 0 or self.regime is None:
            self._enter(number, age)
        assert self.regime is not None
        started = perf_counter()
        row = self._learn(self.regime, age)
        spent = perf_counter() - started
        self.update += 1
        self.ledger.append("update.done", row)
        self._tell(row["update"], row)
        self._telemetry("update", spent, row["step"].get("tokens", 0), update=row["update"])
        self.progress("updates", self.update, config.updates)
        every = config.evaluation.every
        if every and self.update % every == 0:
            self._look()
        ends = self.update % config.regime.updates == 0 or self.update == config.updates
        if ends or self.update % config.checkpoint_every == 0:
            self._checkpoint()

    def _enter(self, number: int, age: int) -> None:
        """Open a regime: from disk where it was made before, else by making it. Behind an age of 0 it is on disk."""
        self.lots = []
        state = load(self.disk, files.REGIME)
        if state and int(state["number"]) == number:
            self.regime = Regime.from_state_dict(state)
        elif age:
            msg = (
                f"{self.disk.root / files.REGIME}: regime {number}, which the checkpoint is in, is not there"
            )
            raise ProtocolError(msg)
        else:
            if self.update == 0 or not self.disk.exists(files.CHECKPOINT):
                self._checkpoint()
            self.progress("regimes", number, self.config.regimes)
            started = perf_counter()
            self.regime = self.maker.make(number, self.rates)
            save(self.disk, files.REGIME, self.regime.state_dict())
            parts, seconds = self.maker.seconds, perf_counter() - started
            self._telemetry("regime", seconds, self.regime.tokens, regime=number, parts=parts)
        if age == 0:
            self.rates = self.regime.rates
            self._count_stage(self.regime)
            self.ledger.append("regime.opened", dict(self.regime.facts))

    def _count_stage(self, regime: Regime) -> None:
        stage, totals = regime.facts["stage"], self.totals
        if "buffer" in stage:
            totals.buffer_tokens += int(stage["buffer"]["tokens"])
            totals.buffer_primary += Calls(**stage["buffer"]["primary"])
            totals.buffer_further += Calls(**stage["buffer"]["further"])
        if "bill" in stage:
            totals.buffer_secondary += int(stage["bill"]["secondary_calls"])
            totals.labels += int(stage["bill"]["labels"])
            totals.certificate_labels += int(stage["bill"]["labels"])
            totals.certified += stage["status"] == "certified"
            totals.refused += stage["status"] == "refused"

    def _learn(self, regime: Regime, age: int) -> dict[str, Any]:
        base = {
            "update": self.update,
            "regime": regime.number,
            "age": age,
            "generator": regime.facts["generator"],
            "baseline": "observed",
        }
        if regime.windows is None:
            return base | self._idle(regime.closed)
        self.lots = lots = self.lots or regime.windows.lots()
        lot = lots[age % len(lots)]
        step = self.engine.update(lot.batch, lot.admission)
        return base | self._row(lot, step, fresh=age < len(lots))

    def _idle(self, why: str) -> dict[str, Any]:
        """The row of an update in which nothing was generated, since nothing would have been admitted."""
        nothing = {"admitted": 0, "accepted": 0, "appealed": 0, "records": 0, "magnitude": None}
        return {
            "tokens": {"fresh": 0, "total": 0},
            **{name: Calls().as_dict() for name in ("primary", "secondary", "further")},
            "labels": 0,
            "step": step_facts(Step.none()),
            "decided": nothing | {"coverage": None, "closed": why, "certificate": ""},
            "risk": None,
        }

    def _row(self, lot: Lot, step: Step, *, fresh: bool) -> dict[str, Any]:
        rows, totals, tokens = len(lot.y), self.totals, lot.tokens
        asked = {"primary": lot.primary, "secondary": lot.secondary, "further": lot.further}
        calls = {n: c if fresh else Calls(cache_hits=c.reserved) for n, c in asked.items()}
        totals.tokens += tokens if fresh else 0
        totals.learned_tokens += step.tokens
        totals.primary += calls["primary"]
        totals.secondary += calls["secondary"]
        totals.further += calls["further"]
        totals.labels += lot.labels if fresh else 0
        totals.steps += step.taken
        return {
            "window": lot.update,
            "tokens": {"fresh": tokens if fresh else 0, "total": tokens},
            **{name: some.as_dict() for name, some in calls.items()},
            "labels": lot.labels if fresh else 0,
            "step": step_facts(step),
            "decided": decision_facts(lot.admission),
            "risk": risk_facts(lot.y, lot.admission, lot.z),
            "response_length": tokens / rows,
            "parsed": float(lot.parsed.mean()),
            "finished": float(lot.finished.mean()),
            "observed_reward": float((lot.y > 0).mean()),
            "clean_reward": float((lot.z > 0).mean()),
        }

    def _look(self) -> None:
        """Examine the learner on held-out questions, and keep its weights where they are to be selected by that."""
        config = self.config.evaluation
        if not config.every:
            return
        questions = self.task.split("held-out")[: config.held_out or None]
        found = examine(self.engine, self.task, questions, seed=0, rows_at_once=config.rows_at_once)
        facts = {"update": self.update, "split": "held-out", **found.facts()}
        self.totals.evaluation_tokens += found.tokens
        self.ledger.append("evaluation.done", facts)
        self._tell(self.update, {"held_out": facts})
        if config.select == "held-out" and facts["accuracy"] > self.best[0]:
            self.best = (facts["accuracy"], self.update)
            save(self.disk, files.SELECTED, self.engine.model.module.state_dict())

    def _end(self) -> dict[str, Any]:
        """Open the test set, once, for the checkpoint that the declared rule selects."""
        config = self.config.evaluation
        selected = self.update
        if config.select == "held-out":
            selected = self.best[1]
            self.engine.model.module.load_state_dict(load(self.disk, files.SELECTED) or {})
        questions = self.task.split("test")[: config.test or None]
        found = examine(
            self.engine,
            self.task,
            questions,
            samples=config.samples,
            seed=derive_seed(self.config.seed, "test"),
            rows_at_once=config.rows_at_once,
        )
        rows = b"".join(canonical_json(row) + b"\n" for row in found.rows())
        self.disk.write(files.TEST, rows)
        self.totals.evaluation_tokens += found.tokens
        facts = {"selected": selected, "split": "test", "rows": sha256_hex(rows), **found.facts(config.k)}
        self.ledger.append("test.opened", facts)
        self._tell(self.update, {"test": facts})
        closed = {"updates": self.update, "test": facts, "totals": self.totals.as_dict()}
        last = self.ledger.append("run.closed", closed)
        self.ledger.sync()
        self.metrics.sync()
        if config.select == "last":
            save(self.disk, files.SELECTED, self.engine.model.module.state_dict())
        result = {"arm": self.config.arm, "seed": self.config.seed, **closed, "ledger": last.line_digest}
        self.disk.write(files.RESULT, canonical_json(result))
        return result

    def _tell(self, step: int, row: Mapping[str, Any]) -> None:
        numbers = flat(row)
        self.metrics.add(canonical_json({"step": step, **numbers}))
        for sink in self.sinks:
            sink.write(step, numbers)

    def _checkpoint(self) -> None:
        self.ledger.sync()
        self.metrics.sync()
        save(
            self.disk,
            files.CHECKPOINT,
            {
                "engine": self.engine.state_dict(),
                "update": self.update,
                "best": list(self.best),
                "rates": self.rates.as_dict(),
                "totals": self.totals.as_dict(),
                "ledger": self.ledger.position.as_dict(),
                "metrics": self.metrics.position.as_dict(),
            },
        )

    def _telemetry(self, what: str, seconds: float, tokens: int, **facts: Any) -> None:
        facts |= {"seconds": seconds, "tokens_per_second": tokens / seconds if seconds else 0.0}
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        line = canonical_json({"what": what, "peak_kib": memory, **facts})
        self.disk.note(files.TELEMETRY, line + b"\n")
