"""A training run as configuration: frozen values, read from TOML or YAML, changed by dotted overrides.

Whatever makes two runs differ stands here and nowhere else, so that the digest of a configuration names the run. The
defaults are those of the paper's scale (256 completions an update, 48 secondary calls, regimes of 25 updates); the
embedded model wants smaller ones, as in `examples/`.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.actuator import Actuator
from vapo.errors import InputError
from vapo.protocol import Protocol
from vapo.train.arms import ARMS, Arm
from vapo.train.batch import Scale
from vapo.train.config_files import apply_override, read_tables
from vapo.train.engine import Settings
from vapo.verifiers.channels import Channel

__all__ = [
    "Calibration",
    "Controls",
    "Evaluation",
    "Judging",
    "Named",
    "Regime",
    "Rollouts",
    "TrainConfig",
    "config_digest",
]


def _need(where: str, value: object, fits: object, expected: str) -> None:
    if not fits:
        raise InputError(expected, repr(value), where=where)


@dataclass(frozen=True, slots=True)
class Named:
    """Something that is opened by name: a task, a model, a verifier."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """What it is opened with beside its name."""


@dataclass(frozen=True, slots=True)
class Regime:
    """The rollouts of one generating checkpoint."""

    updates: int = 25
    """Updates that are taken before the learner generates anew."""
    windows: int = 0
    """Windows of fresh rollouts in a regime, gone through again and again; 0 for one an update. 1 is a frozen cache."""
    renew: bool = True
    """Whether a refresh opens a stage of its own. Without one the gate is closed from the first refresh on."""

    def __post_init__(self) -> None:
        _need("regime.updates", self.updates, self.updates >= 1, "at least one update")
        _need(
            "regime.windows",
            self.windows,
            0 <= self.windows <= self.updates,
            "0, or at most one window an update",
        )

    @property
    def fresh(self) -> int:
        """Windows that a regime generates."""
        return self.windows or self.updates


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What is asked in an update; questions times completions are its primary calls."""

    questions: int = 32
    completions: int = 8
    scale: Scale = "group"
    """What advantages are divided by."""
    rows_at_once: int = 0
    """Completions sampled together, for memory; 0 for all of a regime."""
    max_tokens: int = 0
    """The cap on a completion; 0 for what the task's answers need."""

    def __post_init__(self) -> None:
        _need("rollouts.rows_at_once", self.rows_at_once, self.rows_at_once >= 0, "a count of completions")
        _need("rollouts.max_tokens", self.max_tokens, self.max_tokens >= 0, "a count of tokens")
        _need("rollouts.questions", self.questions, self.questions >= 1, "at least one question an update")
        _need(
            "rollouts.completions",
            self.completions,
            self.completions >= 2,
            "at least two completions a question",
        )

    @property
    def calls(self) -> int:
        """Primary calls an update."""
        return self.questions * self.completions


@dataclass(frozen=True, slots=True)
class Judging:
    """A verifier, and the way in which it is made to err."""

    verifier: Named = field(default_factory=lambda: Named("oracle"))
    """`oracle` for the task's own, or a verifier by name."""
    kind: str = "none"
    """Error channel: none, symmetric, fp-heavy, fn-heavy, confidence-dependent, correlated, exploitable."""
    rate: float = 0.0
    """Share of errors; see `Channel.make`."""
    rates: tuple[float, float] | None = None
    """Share of rejections that become approvals, and the other way round, where the kind's own split is not wanted."""
    persistent: bool = False
    """Whether the same answer to the same question always gets the same wrong verdict."""
    pattern: str = ""
    cause: str = ""
    shared: float = 0.5
    budget: int = 48
    """Calls an update, for the secondary; the primary judges every completion."""

    def __post_init__(self) -> None:
        _need("budget", self.budget, 0 <= self.budget < 2**31, "a count of calls an update")
        self.channel("", "")

    def channel(self, run: str, name: str) -> Channel:
        """The error channel under keys that no other run has: one of the verifier's own, one a cause it shares."""
        channel = Channel.make(
            self.kind,
            self.rate,
            key=f"{run} {name}",
            persistent=self.persistent,
            cause=self.cause and f"{run} {self.cause}",
            shared=self.shared,
            pattern=self.pattern,
        )
        if self.rates is None:
            return channel
        return dataclasses.replace(channel, false_positive=self.rates[0], false_negative=self.rates[1])


@dataclass(frozen=True, slots=True)
class Calibration:
    """A stage's buffer: windows of the learner's size, on questions that nothing else sees."""

    windows: int = 24
    """Windows that certify."""
    design_windows: int = 8
    """Windows that the candidates are built on; they need no label."""

    def __post_init__(self) -> None:
        _need("calibration.windows", self.windows, self.windows >= 1, "at least one window")
        _need(
            "calibration.design_windows", self.design_windows, self.design_windows >= 1, "at least one window"
        )


@dataclass(frozen=True, slots=True)
class Controls:
    """What arms without a certificate go by, fixed beforehand."""

    coverage: float = 0.5
    """Share of the calibration records with a proposal that an uncertified threshold admits."""
    signal: str = "confidence"
    """What the arm `single-signal` reads."""
    legacy_score: str = "weighted:confidence=1,consistency=1,finished=1"
    """The historical weighted score, all weights equal."""
    q_trust: float = 0.60
    q_kl: float = 0.75
    q_ratio: float = 0.75
    follows: str = ""
    """Folder of the recorded rc-vapo run of the same seed, for arms that match its counts or spend its labels."""
    match: Literal["coverage", "magnitude"] = "magnitude"
    """Whether matched arms have its count alone, or its count and its mean magnitude."""
    unlabelled: Literal["drop", "observed"] = "drop"
    """What `label-matched` does with completions that no label is left for."""

    def __post_init__(self) -> None:
        for name in ("coverage", "q_trust", "q_kl", "q_ratio"):
            value = getattr(self, name)
            _need(f"controls.{name}", value, 0.0 < value <= 1.0, "a share in (0, 1]")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """When and how the learner is examined. Neither split of these questions is ever trained on."""

    every: int = 25
    """Updates between two looks at the held-out questions; 0 for none."""
    held_out: int = 200
    """Held-out questions at a look; 0 for all."""
    test: int = 0
    """Test questions, opened once for the selected checkpoint; 0 for all."""
    samples: int = 8
    """Completions of each test question for return and pass@k; 0 for none."""
    k: tuple[int, ...] = (1, 4, 8)
    select: Literal["last", "held-out"] = "last"
    """Which checkpoint the test set is opened for: the last, or the first of those with the best held-out accuracy."""
    rows_at_once: int = 512

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", tuple(self.k))
        for name in ("every", "held_out", "test", "samples"):
            value = getattr(self, name)
            _need(f"evaluation.{name}", value, value >= 0, "a count")
        sound = not self.samples or all(1 <= k <= self.samples for k in self.k)
        _need("evaluation.k", self.k, sound, f"numbers from 1 to the {self.samples} samples")
        looks = self.select == "last" or self.every
        _need(
            "evaluation.select", self.select, looks, "a look at held-out questions now and then to select by"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """Everything that fixes a training run.

    Example:
        >>> config = TrainConfig.from_dict({"arm": "static", "updates": 50, "regime": {"updates": 25}})
        >>> config.regimes, config.rollouts.calls, config.with_overrides(["rollouts.questions=8"]).rollouts.calls
        (2, 256, 64)
    """

    arm: str = "rc-vapo"
    seed: int = 13
    updates: int = 100
    task: Named = field(default_factory=lambda: Named("arithmetic"))
    model: Named = field(default_factory=lambda: Named("embedded"))
    engine: Literal["lean", "trl"] = "lean"
    learner: Settings = field(default_factory=Settings)
    regime: Regime = field(default_factory=Regime)
    rollouts: Rollouts = field(default_factory=Rollouts)
    primary: Judging = field(default_factory=Judging)
    secondary: Judging = field(default_factory=Judging)
    further: Mapping[str, Judging] = field(default_factory=dict)
    """Further verifiers, whose verdicts are signals."""
    certificate: Protocol = field(
        default_factory=lambda: Protocol(rho=0.08, score="weighted:confidence=1,consistency=1")
    )
    calibration: Calibration = field(default_factory=Calibration)
    actuator: Actuator = field(default_factory=Actuator)
    """Intervals of the surfaces; the arm says which variant."""
    controls: Controls = field(default_factory=Controls)
    evaluation: Evaluation = field(default_factory=Evaluation)
    checkpoint_every: int = 25
    """Updates between checkpoints; there is always one where a regime ends."""
    sinks: tuple[str, ...] = ()
    """Where metrics go beside `metrics.jsonl`: tensorboard, trackio, wandb, mlflow."""
    threads: int = 1
    """Threads of the learner; results are the same bits for the same number."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sinks", tuple(self.sinks))
        _need("arm", self.arm, self.arm in ARMS, f"one of the arms {', '.join(ARMS)}")
        _need("seed", self.seed, 0 <= self.seed < 2**31, "a whole number from 0 to 2^31 - 1")
        _need("updates", self.updates, self.updates >= 1, "at least one update")
        _need("checkpoint_every", self.checkpoint_every, self.checkpoint_every >= 1, "at least one update")
        _need("threads", self.threads, self.threads >= 1, "at least one thread")
        taken = sorted({"primary", "secondary"} & set(self.further))
        _need("further", taken, not taken, "names of further verifiers that no other verifier has")
        follows = ARMS[self.arm].follows and not self.controls.follows
        expected = f"the folder of an rc-vapo run of the same seed, which '{self.arm}' is matched to"
        _need("controls.follows", self.controls.follows, not follows, expected)

    @property
    def plan(self) -> Arm:
        """The arm as a value."""
        return ARMS[self.arm]

    @property
    def regimes(self) -> int:
        """How many regimes the updates make; the last may be shorter."""
        return -(-self.updates // self.regime.updates)

    @property
    def protocol(self) -> Protocol:
        """What the run's gate declares: delta is spread over all regimes, and the secondary's cap is the budget."""
        given = self.certificate
        stages: Any = given.stages if given.stages != 1 else self.regimes
        return dataclasses.replace(given, stages=stages, budget=self.secondary.budget, seed=self.seed)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "configuration") -> TrainConfig:
        """Read a configuration from plain data; what is left out takes its default, what is unknown is an error."""
        _refuse_unknown(cls, data, where)
        try:
            return _adapter().validate_python(dict(data))
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            own = first.get("ctx", {}).get("error")
            path = ".".join(str(part) for part in first["loc"])
            if isinstance(own, InputError):
                raise InputError(str(own), where=f"{where}: '{path}'" if path else where) from None
            expected = first["msg"].lower().removeprefix("input should be ")
            raise InputError(
                expected, repr(first.get("input"))[:80], where=f"{where}: field '{path}'"
            ) from None

    def as_dict(self) -> dict[str, Any]:
        """The whole configuration as plain data, ready for JSON."""
        return typing.cast("dict[str, Any]", _plain(dataclasses.asdict(self)))

    @classmethod
    def read(cls, path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
        """Read a configuration file (.toml, .yaml or .yml) and change some of its fields."""
        data = read_tables(path)
        for text in overrides:
            apply_override(data, text)
        return cls.from_dict(data, where=str(path))

    @property
    def digest(self) -> str:
        """SHA-256 of all that fixes the run: not the sinks, which look on, nor where a followed run lies."""
        return config_digest(self.as_dict())

    def with_overrides(self, overrides: Sequence[str]) -> TrainConfig:
        """The configuration with some fields changed, each given as `key.sub=value`; the value is read as in TOML.

        Example:
            >>> TrainConfig().with_overrides(["task.options.digits=2", "primary.kind=symmetric"]).primary.kind
            'symmetric'
        """
        data = self.as_dict()
        for text in overrides:
            apply_override(data, text)
        return TrainConfig.from_dict(data, where="overrides")


def config_digest(data: Mapping[str, Any]) -> str:
    """The digest of a configuration as plain data, whatever fields configurations have had since."""
    kept = {name: value for name, value in data.items() if name != "sinks"}
    kept["controls"] = {name: value for name, value in data["controls"].items() if name != "follows"}
    return sha256_hex(canonical_json(kept))


@functools.cache
def _adapter() -> pydantic.TypeAdapter[TrainConfig]:
    return pydantic.TypeAdapter(TrainConfig)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _refuse_unknown(kind: Any, data: Any, where: str) -> None:
    """Unknown fields of a dataclass and of the dataclasses within it."""
    if not isinstance(data, Mapping):
        expected = f"a table with fields of {where.rpartition(' ')[2]}"
        raise InputError(expected, repr(data)[:80], where=where)
    hints = typing.get_type_hints(kind)
    for name, value in data.items():
        if name not in hints:
            expected = f"one of the fields {', '.join(hints)}"
            raise InputError(expected, repr(name), where=where)
        inner = hints[name]
        if dataclasses.is_dataclass(inner) and isinstance(value, Mapping):
            _refuse_unknown(inner, value, f"{where}: '{name}'")
