"""Everything that is declared before a run looks at anything."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pydantic

from vapo._internal.oracle import ORACLE_WORDS, field_tokens
from vapo.errors import InputError
from vapo.policy.build import Signs
from vapo.records import Source

__all__ = ["Claim", "Protocol"]

Claim = Literal["frozen", "sequential", "hoeffding"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """The declared terms of a run.

    Example:
        >>> Protocol(rho=0.08, c_min=0.25, b_max=0.2, delta=0.05).claim
        'frozen'
    """

    rho: float
    """Largest share of harmful records among the admitted."""
    c_min: float = 0.25
    """Least share of records that must be admitted."""
    b_max: float = 0.2
    """Largest share of records that may cost a secondary call."""
    delta: float = 0.05
    """Chance of a false certificate, over all stages together."""
    claim: Claim = "frozen"
    """The claim that decides and carries 1 - delta."""
    reach: Literal["stage", "population"] = "stage"
    """Whether groups are declared to be drawn independently from the law that deployment will see."""
    score: str = "mean"
    """The trust score."""
    signs: Signs = "plain"
    """Whether built candidates have thresholds for each sign of the verdict."""
    budget: int | None = None
    """Secondary calls a window; None for the largest number that keeps the stage within `b_max`."""
    design_fraction: float = 0.3
    """Share of groups that the design split takes when no design file is given."""
    seed: int = 0
    """Key of the hashes that split and draw."""
    group_cap: int | None = None
    """Most admitted records a group, declared; None for the largest group of the design split."""
    missing_label: Literal["error", "harmful"] = "error"
    """What a missing label of an admitted record means."""
    delta_split: tuple[float, float, float] = (0.90, 0.05, 0.05)
    """How `sequential` shares its delta among risk, coverage and calls."""
    stages: int | Literal["open"] = 1
    """Over how many stages delta is spread; "open" for any number."""
    max_labels: int | None = None
    """Most labels that certification may ask for."""
    max_secondary_calls: int | None = None
    """Most secondary calls that certification may ask for."""
    renew_after: int | None = None
    """Windows that the gate may decide on under one certificate; beyond them it is closed. None: any number."""
    monitor_rate: float = 0.05
    """Share of deployed records that are drawn for a spot check."""
    monitor_delta: float = 0.05
    """Chance of a false alarm."""
    waive_redundancy: bool = False
    """Let signals pass of which one is a function of another."""
    waivers: tuple[str, ...] = ()
    """Fields that the oracle scan lets through."""
    oracle_words: tuple[str, ...] = ()
    """What the oracle scan looks for beside its own words, such as "rated by people"."""
    null_signals: Mapping[str, float] = field(default_factory=dict)
    """The value that a null takes, by signal."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Who produced which column."""
    secondary: tuple[str, ...] | None = None
    """Source ids whose secondary answers count; None for all that are not otherwise excluded."""

    def __post_init__(self) -> None:
        def need(name: str, fits: object, expected: str) -> None:
            if not fits:
                raise InputError(expected, repr(getattr(self, name)), where=f"protocol: field '{name}'")

        need("rho", 0 < self.rho < 1, "a risk in (0, 1)")
        need("c_min", 0 <= self.c_min <= 1, "a coverage in [0, 1]")
        need("b_max", 0 <= self.b_max <= 1, "a call rate in [0, 1]")
        need("delta", 0 < self.delta < 1, "an error probability in (0, 1)")
        for name in ("budget", "max_labels", "max_secondary_calls"):
            count = getattr(self, name)
            need(name, count is None or 0 <= count < 2**31, "a count >= 0")
        need("seed", abs(self.seed) < 2**53, "a whole number that JSON can hold")
        need("design_fraction", 0 < self.design_fraction < 1, "a share in (0, 1)")
        for name in ("group_cap", "renew_after"):
            count = getattr(self, name)
            need(name, count is None or 1 <= count < 2**31, "a count >= 1")
        split = self.delta_split
        need(
            "delta_split",
            min(split) > 0 and abs(sum(split) - 1) < 1e-9,
            "three positive shares that sum to 1",
        )
        need("stages", self.stages == "open" or self.stages >= 1, 'a count >= 1 or "open"')
        need("monitor_rate", 0 < self.monitor_rate <= 1, "a share in (0, 1]")
        need("monitor_delta", 0 < self.monitor_delta < 1, "an error probability in (0, 1)")
        need("oracle_words", all(map(field_tokens, self.oracle_words)), "words of letters or digits")
        for name, source in self.sources.items():
            where = f"protocol: field 'sources.{name}"
            if not source.id:
                expected = "the name of what produced the column"
                raise InputError(expected, "an empty one", where=f"{where}.id'")
            if not re.fullmatch("[0-9a-f]{64}", source.digest):
                expected = "a SHA-256 digest in hexadecimal, 64 digits in lower case"
                raise InputError(expected, repr(source.digest), where=f"{where}.digest'")

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, where: str = "protocol") -> Protocol:
        """Read a protocol from plain data; unknown fields are an error."""
        unknown = sorted(set(data) - {f.name for f in dataclasses.fields(cls)})
        if unknown:
            expected = "only known fields"
            raise InputError(expected, f"'{unknown[0]}'", where=where)
        for name, source in _mapping(data.get("sources")).items():
            strange = sorted(set(_mapping(source)) - {f.name for f in dataclasses.fields(Source)})
            if strange:
                expected = "only id and digest"
                raise InputError(expected, f"'{strange[0]}'", where=f"{where}: field 'sources.{name}'")
        try:
            # As JSON, in which true is no number and "1" is none either, while a list may be any sequence.
            return _adapter().validate_json(json.dumps(dict(data), default=_plain), strict=True)
        except pydantic.ValidationError as error:
            raise _refusal(error.errors()[0], where) from None

    @classmethod
    def read(cls, path: str | Path, **overrides: Any) -> Protocol:
        """Read a protocol from a TOML file; overrides that are not None win."""
        return cls.from_dict(
            {**read_toml(path), **{k: v for k, v in overrides.items() if v is not None}}, where=str(path)
        )

    @property
    def oracle_phrases(self) -> frozenset[tuple[str, ...]]:
        """All that the oracle scan looks for, as tuples of tokens."""
        return ORACLE_WORDS | {field_tokens(word) for word in self.oracle_words}

    def as_dict(self) -> dict[str, Any]:
        """The protocol as plain data."""
        data = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in data.items()}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(value: Any) -> Any:
    """What JSON has no word for, as something that it has one for; what is still odd is refused by its field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, (Mapping, Set)):
        return dict(value) if isinstance(value, Mapping) else sorted(value, key=str)
    return value.item() if hasattr(value, "item") else repr(value)


def _refusal(error: Any, where: str) -> InputError:
    """What is wrong with a field of a protocol."""
    own = error.get("ctx", {}).get("error")
    if isinstance(own, InputError):
        return InputError(str(own).removeprefix("protocol: "), where=where)
    first, *rest = error["loc"] or ("",)
    if first == "stages":
        expected, rest = 'a count >= 1 or "open"', []
    elif error["type"] == "missing":
        return InputError("a value", "none", where=f"{where}: field '{'.'.join(map(str, (first, *rest)))}'")
    else:
        expected = error["msg"].lower().removeprefix("input should be ").replace("a valid array", "a list")
    path = ".".join(map(str, (first, *rest)))
    return InputError(expected, repr(error.get("input"))[:80], where=f"{where}: field '{path}'")


@functools.cache
def _adapter() -> pydantic.TypeAdapter[Protocol]:
    return pydantic.TypeAdapter(Protocol)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file as plain data."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        expected = "a readable TOML file"
        raise InputError(expected, str(error), where=str(path)) from None
