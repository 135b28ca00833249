"""How a regime comes about: its stage first, then its windows, and what the arm makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vapo._internal.keyed import canonical_json
from vapo.actuator import Actuator
from vapo.errors import InputError
from vapo.policy import ObservedThreshold
from vapo.scores import fit_score
from vapo.tasks.base import Question, Task
from vapo.train import arms_rules as rules
from vapo.train.arms_rewards import Rewarding
from vapo.train.batch import Window
from vapo.train.buffer import certify_stage, proposes
from vapo.train.config import Judging, TrainConfig
from vapo.train.engine import Engine
from vapo.train.hook import AcceptAll, AdmissionHook, GateHook
from vapo.train.noise_correction import ErrorRates
from vapo.train.regime import Regime, Windows
from vapo.train.rollouts import (
    Asked,
    Drawn,
    Roster,
    derive_seed,
    draw,
    in_turn,
    rows_of,
    weights_digest,
    window_of,
)
from vapo.train.runner_follow import Recorded
from vapo.train.verdicts import Calls, Judge, open_judge
from vapo.verifiers import Item

__all__ = ["Maker", "update_name"]

REFUSED = "the certificate was refused"
SILENT = "no calibration rollout proposes anything"


def update_name(number: int) -> str:
    """The name of an update in records and ledgers.

    Example:
        >>> update_name(7)
        'u000007'
    """
    return f"u{number:06d}"


@dataclass(slots=True, kw_only=True)
class Maker:
    """Makes the regimes of one run; between them it keeps nothing but what it was made with."""

    config: TrainConfig
    task: Task
    engine: Engine
    primary: Judge
    secondary: Judge
    further: Mapping[str, Judge]
    gate: Path
    """Run folder of the gate."""
    recorded: Recorded | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    """How long the parts of the last regime took; telemetry."""
    _oracle: Judge = field(init=False, repr=False)
    _train: list[Question] = field(init=False, repr=False)
    _calibration: list[Question] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        config = self.config
        self._oracle = open_judge(Judging(), self.task)
        per_regime = config.regime.fresh * config.rollouts.questions
        order = in_turn(self.task.split("train"), seed=derive_seed(config.seed, "train questions"))
        self._train = list(islice(order, config.regimes * per_regime))
        self._calibration = self._fresh_groups() if config.plan.calibrates else []

    def _fresh_groups(self) -> list[Question]:
        """Calibration questions in an order of their own, one of each group: no stage may see a group again."""
        questions = self.task.split("calibration")
        first = {question.group: question for question in reversed(questions)}
        names = sorted(first)
        order = np.random.default_rng([derive_seed(self.config.seed, "calibration") % 2**32]).permutation(
            len(names)
        )
        found = [first[names[place]] for place in order.tolist()]
        # A certificate that is not renewed wants no second buffer; thresholds without one are fixed anew every time.
        renews = self.config.regime.renew or not self.config.plan.certified
        stages = self.config.regimes if renews else 1
        wanted = stages * self._buffer_questions
        if wanted > len(found):
            expected = (
                f"{wanted} calibration questions of different groups, {self._buffer_questions} for each stage"
            )
            raise InputError(expected, str(len(found)), where=f"task '{self.task.name}'")
        return found

    @property
    def _buffer_questions(self) -> int:
        sizes, certifies = self.config.calibration, self.config.plan.certified
        windows = sizes.design_windows + (sizes.windows if certifies else 0)
        return windows * self.config.rollouts.questions

    def make(self, number: int, rates: ErrorRates) -> Regime:
        """Make a regime with the engine's present weights.

        Args:
            number: Which regime, from 0.
            rates: What is known of the primary's errors so far.
        """
        config = self.config
        self.seconds = {}
        roster = Roster(self.task, self.primary, self.further, weights_digest(self.engine.model.module))
        first = number * config.regime.updates
        updates = min(config.regime.updates, config.updates - first)
        facts: dict[str, Any] = {
            "regime": number,
            "first_update": first,
            "updates": updates,
            "generator": roster.generator,
            "stage": {},
        }
        hook = self._hook(number, roster, facts["stage"])
        if hook is None:
            return Regime(number, facts, rates, None)
        try:
            return self._windows(number, roster, facts, hook, rates)
        finally:
            if isinstance(hook, GateHook):
                hook.close()

    def _windows(
        self, number: int, roster: Roster, facts: dict[str, Any], hook: AdmissionHook, rates: ErrorRates
    ) -> Regime:
        config = self.config
        fresh = min(config.regime.fresh, facts["updates"])
        size = config.rollouts.questions
        begin = number * config.regime.fresh * size
        asked = [
            Asked(
                update_name(facts["first_update"] + place), tuple(self._train[begin + place * size :][:size])
            )
            for place in range(fresh)
        ]
        drawn = self._draw("rollouts", number, roster, asked, prefix=f"r{number}-")
        started = perf_counter()
        rewarding = self._rewarding()
        rewarded = rewarding.reward(drawn, rates)
        window = window_of(
            drawn, roster, rewarded.y, rewarded.advantage, unit=config.actuator.unit, primary=rewarded.primary
        )
        self._note("reward", started)
        started = perf_counter()
        admission = hook.admit(window, drawn.items)
        self._note("admit", started)
        z = np.array([outcome.sign for outcome in self._oracle.verify(drawn.items)], np.int8)
        facts["decided"] = {"windows": fresh, "closed": admission.closed, "hook": hook.state_dict()}
        return Regime(number, facts, rewarded.rates, Windows.of(drawn, rewarded, admission, z))

    def _draw(
        self, purpose: str, number: int, roster: Roster, asked: Sequence[Asked], *, prefix: str
    ) -> Drawn:
        config, arm = self.config, self.config.plan
        started = perf_counter()
        drawn = draw(
            self.engine,
            roster,
            asked,
            completions=config.rollouts.completions,
            seed=derive_seed(config.seed, purpose, number),
            prefix=prefix,
            rows_at_once=config.rollouts.rows_at_once,
            kl=arm.rule == "observed" or (arm.actuator != "identity" and purpose == "rollouts"),
        )
        self.secondary.tell(drawn.items, drawn.confidence)
        self._note(purpose, started)
        return drawn

    def _note(self, what: str, started: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + perf_counter() - started

    def _rewarding(self) -> Rewarding:
        config = self.config
        return Rewarding(
            arm=config.plan,
            scale=config.rollouts.scale,
            oracle=self._oracle,
            secondary=self.secondary,
            budget=config.secondary.budget,
            key=self._key("rates"),
            quota=self.recorded.quota if self.recorded else {},
            keep_observed=config.controls.unlabelled == "observed",
        )

    def _key(self, purpose: str) -> bytes:
        return canonical_json(["vapo train", purpose, self.config.arm, self.config.seed])

    def _hook(self, number: int, roster: Roster, stage: dict[str, Any]) -> AdmissionHook | None:
        """The arm's admission in a regime; None where nothing will be admitted, the reason being in `stage`."""
        config, arm = self.config, self.config.plan
        actuator = replace(config.actuator, variant=arm.actuator)
        followed = self.recorded.updates if self.recorded else {}
        if arm.rule == "all":
            return AcceptAll(actuator)
        if arm.rule == "labelled":
            return (
                rules.LabelledOnly(actuator) if not self._rewarding().keep_observed else AcceptAll(actuator)
            )
        if arm.rule == "random" or arm.rule == "first":
            matched = config.controls.match == "magnitude"
            return rules.Matched(followed, arm.rule, actuator, key=self._key("matched"), magnitude=matched)
        if arm.rule == "random-appeal":
            score = config.certificate.score
            key = self._key("appeals")
            return rules.RandomAppeal(followed, score, actuator, secondary=self.secondary, key=key)
        if arm.rule == "both-agree":
            return rules.BothAgree(actuator, secondary=self.secondary)
        if arm.rule == "certified":
            return self._gate(number, roster, stage, actuator)
        return self._control(number, roster, stage, actuator)

    def _buffer(
        self, number: int, roster: Roster, stage: dict[str, Any], windows: int
    ) -> tuple[Window, list[Item], int]:
        """Fresh calibration rollouts as one window of records, and how many of them are for design."""
        config, sizes = self.config, self.config.calibration
        size = config.rollouts.questions
        begin = number * self._buffer_questions
        names = [
            f"s{number}-{'d' if place < sizes.design_windows else 'c'}{place:04d}" for place in range(windows)
        ]
        asked = [
            Asked(name, tuple(self._calibration[begin + place * size :][:size]))
            for place, name in enumerate(names)
        ]
        drawn = self._draw("buffer", number, roster, asked, prefix=f"s{number}-")
        observed = Rewarding(
            arm=replace(config.plan, reward="observed"),
            scale=config.rollouts.scale,
            oracle=self._oracle,
            secondary=self.secondary,
            budget=0,
            key=b"",
        ).reward(drawn, ErrorRates())
        window = window_of(
            drawn, roster, observed.y, observed.advantage, unit=config.actuator.unit, content=True
        )
        ends = [rows.stop for _, rows in rows_of(drawn.updates)]
        stage["buffer"] = {
            "windows": windows,
            "completions": len(drawn),
            "tokens": int(drawn.tokens.sum()),
            "primary": sum(drawn.primary.values(), Calls()).as_dict(),
            "further": sum(drawn.further.values(), Calls()).as_dict(),
        }
        return window, drawn.items, ends[sizes.design_windows - 1]

    def _control(
        self, number: int, roster: Roster, stage: dict[str, Any], actuator: Actuator
    ) -> AdmissionHook | None:
        """An arm that nothing certifies: what it goes by is fixed by calibration observations, without labels."""
        config, arm, controls = self.config, self.config.plan, self.config.controls
        window, _, _ = self._buffer(number, roster, stage, config.calibration.design_windows)
        if not proposes(window):
            stage["closed"] = SILENT
            return None
        records = window.records
        named = {"CONTROL:signal": f"signal:{controls.signal}", "CONTROL:legacy_score": controls.legacy_score}
        score = fit_score(named.get(arm.score, arm.score) or config.certificate.score, records)
        trust = score.apply(records)
        if arm.rule == "observed":
            gate = ObservedThreshold.fit(
                records, trust, q_trust=controls.q_trust, q_kl=controls.q_kl, q_ratio=controls.q_ratio
            )
            stage["thresholds"] = gate.as_dict()
            return rules.ObservedGate(gate, score, actuator)
        policy = rules.pick_policy(
            records,
            trust,
            coverage=controls.coverage,
            budget=config.secondary.budget,
            appeals=arm.appeals,
        )
        stage["policy"] = policy.as_dict()
        return rules.ThresholdGate(policy, score, actuator, secondary=self.secondary if arm.appeals else None)

    def _gate(
        self, number: int, roster: Roster, stage: dict[str, Any], actuator: Actuator
    ) -> AdmissionHook | None:
        config, arm = self.config, self.config.plan
        secondary = self.secondary if arm.appeals else None
        if number == 0 or config.regime.renew:
            sizes = config.calibration
            whole, items, cut = self._buffer(number, roster, stage, sizes.design_windows + sizes.windows)
            design, rest = _parts(whole, cut)
            if not proposes(design):
                stage["closed"] = SILENT
                return None
            started = perf_counter()
            stage |= certify_stage(
                self.gate,
                config.protocol,
                design,
                rest,
                items[cut:],
                oracle=self._oracle,
                secondary=secondary,
                renew=f"rollouts of the checkpoint {roster.generator[:16]}" if number else "",
            )
            self._note("certify", started)
            if stage["status"] == "refused":
                stage["closed"] = REFUSED
                return None
        started = perf_counter()
        hook = GateHook.open(self.gate, actuator, secondary=secondary, repeatable=True)
        self._note("admit", started)
        return hook


def _parts(window: Window, at: int) -> tuple[Window, Window]:
    """The first rows of a window and the rest, the rest counted anew."""
    records = window.records
    first, rest = records.take(slice(0, at)), records.take(slice(at, len(records)))
    rest = replace(rest, row=np.arange(len(rest)))
    return Window(first, window.advantage[:at]), Window(rest, window.advantage[at:])
