"""Policies and families as values, and their form on disk."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, TypeVar

import pydantic

from vapo._internal.files import unique_keys
from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError

__all__ = ["ABOVE_ALL", "Action", "Family", "Policy", "Reason", "Thresholds", "check_weights"]

M = TypeVar("M", bound=pydantic.BaseModel)
ABOVE_ALL = 2.0
"""A threshold that no score reaches: with it a sign is never admitted."""
LEAST_WEIGHT = 1e-12
"""A candidate with a smaller share of the failure probability had better be left out."""


class Action(StrEnum):
    """What a policy does with a proposal."""

    ACCEPT = "accept"
    APPEAL = "appeal"
    ABSTAIN = "abstain"


class Reason(IntEnum):
    """Why it did so. The number is the byte in a trace: 1 and 2 are admitted, 2 to 8 were appealed."""

    ACCEPTED = 1
    CONFIRMED = 2
    SECONDARY_MISSING = 3
    SECONDARY_DISAGREES = 4
    SECONDARY_LOW_CONFIDENCE = 5
    SECONDARY_PROVENANCE = 6
    SECONDARY_INVALID = 7
    SECONDARY_LOST = 8
    BELOW_THRESHOLD = 9
    BUDGET_EXHAUSTED = 10
    NO_PRIMARY = 11
    NO_PROPOSAL = 12
    FAIL_CLOSED = 13

    @property
    def text(self) -> str:
        """The reason as it is written in files."""
        return self.name.lower()

    @property
    def action(self) -> Action:
        """The action that the reason belongs to."""
        if self is Reason.ACCEPTED:
            return Action.ACCEPT
        return Action.APPEAL if self <= Reason.SECONDARY_LOST else Action.ABSTAIN


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Accept from `high`, appeal from `low`, believe the secondary from `second`.

    Example:
        >>> Thresholds(0.5, 0.8, 0.6).appeals
        True
        >>> Thresholds(0.8, 0.8).appeals
        False
    """

    low: float
    high: float
    second: float = 0.0

    def __post_init__(self) -> None:
        for name, value, top in (
            ("low", self.low, ABOVE_ALL),
            ("high", self.high, ABOVE_ALL),
            ("second", self.second, 1),
        ):
            if not (math.isfinite(value) and 0 <= value <= top):
                expected = f"threshold {name} in [0, {top:g}]"
                raise InputError(expected, str(value))
        if self.low > self.high:
            expected = "low <= high"
            raise InputError(expected, f"low {self.low}, high {self.high}")

    @property
    def appeals(self) -> bool:
        """Whether any score leads to an appeal."""
        return self.low < min(self.high, 1.0) or self.low == 1.0 < self.high

    def as_dict(self) -> dict[str, float]:
        """The thresholds under the names they have on disk."""
        return {"tau_low": self.low, "tau_high": self.high, "tau_2": self.second}


NEVER = Thresholds(ABOVE_ALL, ABOVE_ALL)


@dataclass(frozen=True, slots=True)
class Policy:
    """One candidate: thresholds for a positive and for a negative primary verdict, and calls a window.

    Example:
        >>> Policy.plain(0.5, 0.8, 0.6, budget=40).as_dict()
        {'tau_low': 0.5, 'tau_high': 0.8, 'tau_2': 0.6, 'budget': 40}
    """

    pos: Thresholds
    neg: Thresholds
    budget: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.budget, bool) or not isinstance(self.budget, int) or not 0 <= self.budget < 2**31:
            expected = "a budget of secondary calls >= 0 a window"
            raise InputError(expected, repr(self.budget))

    @classmethod
    def plain(cls, low: float, high: float, second: float = 0.0, *, budget: int = 0) -> Policy:
        """The same thresholds for both signs."""
        both = Thresholds(low, high, second)
        return cls(both, both, budget)

    @property
    def sign_specific(self) -> bool:
        """Whether the signs have thresholds of their own."""
        return self.pos != self.neg

    @property
    def selectivity(self) -> tuple[float, float, float]:
        """A key that sorts policies from least to most selective by their thresholds."""
        pos, neg = self.pos, self.neg
        return (pos.high + neg.high, pos.low + neg.low, pos.second + neg.second)

    def as_dict(self) -> dict[str, Any]:
        """The policy as plain data."""
        if self.sign_specific:
            return {"pos": self.pos.as_dict(), "neg": self.neg.as_dict(), "budget": self.budget}
        return {**self.pos.as_dict(), "budget": self.budget}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, budget: int | None = None) -> Policy:
        """The inverse of `as_dict`; a family's budget stands in where the candidate names none."""
        candidate = _parse(_Candidate, data, "candidate")
        return _policy(candidate, budget or 0)


@dataclass(frozen=True, slots=True)
class Family:
    """The candidates of a stage, fixed before it, and the order in which chains of them are tested.

    Example:
        >>> family = Family.of([Policy.plain(0.5, 0.5), Policy.plain(0.9, 0.9)])
        >>> family.chains
        ((1, 0),)
    """

    policies: tuple[Policy, ...]
    chains: tuple[tuple[int, ...], ...]
    rule: str = "given"
    """How the candidates came about, for the record."""
    weights: tuple[float, ...] | None = None
    """Each candidate's share of the failure probability under ``sequential``; None shares it equally."""

    def __post_init__(self) -> None:
        if not self.policies:
            expected = "at least one candidate"
            raise InputError(expected, "none", where="family")
        listed = [index for chain in self.chains for index in chain]
        if not all(isinstance(index, int) and 0 <= index < len(self.policies) for index in listed):
            expected = f"chains of indices below {len(self.policies)}"
            raise InputError(expected, str(self.chains), where="family")
        if len(set(listed)) != len(listed) or not all(self.chains) or not self.chains:
            expected = "chains that hold each index at most once, none empty"
            raise InputError(expected, str(self.chains), where="family")
        if self.weights is not None:
            check_weights(self.weights, len(self.policies))

    def __len__(self) -> int:
        return len(self.policies)

    @classmethod
    def of(
        cls,
        policies: Sequence[Policy],
        chains: Sequence[Sequence[int]] | None = None,
        rule: str = "given",
        weights: Sequence[float] | None = None,
    ) -> Family:
        """A family with given chains, or with one chain that begins at the most selective candidate."""
        if chains is None:
            by_threshold = sorted(range(len(policies)), key=lambda i: policies[i].selectivity, reverse=True)
            chains = [by_threshold] if policies else []
        shares = None if weights is None else tuple(float(weight) for weight in weights)
        return cls(tuple(policies), tuple(tuple(chain) for chain in chains), rule, shares)

    @property
    def shares(self) -> tuple[float, ...]:
        """The weights, equal where none were given."""
        return self.weights or (1.0 / len(self),) * len(self)

    @property
    def digest(self) -> str:
        """SHA-256 of the family's canonical form."""
        return sha256_hex(canonical_json(self.as_dict()))

    @property
    def appeals(self) -> bool:
        """Whether any candidate may ever ask the secondary."""
        return any(p.budget and (p.pos.appeals or p.neg.appeals) for p in self.policies)

    def as_dict(self) -> dict[str, Any]:
        """The family as plain data."""
        return {
            "candidates": [policy.as_dict() for policy in self.policies],
            "chains": [list(chain) for chain in self.chains],
            "rule": self.rule,
            **({} if self.weights is None else {"weights": list(self.weights)}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], *, budget: int = 0, where: str = "family") -> Family:
        """Read a family: `candidates`, and optionally `budget`, `chains` and `weights`.

        Args:
            data: The plain data.
            budget: Calls a window for candidates and files that name none.
            where: What to call the data in messages.
        """
        model = _parse(_FamilyFile, data, where)
        shared = budget if model.budget is None else model.budget
        policies = []
        for number, candidate in enumerate(model.candidates):
            try:
                policies.append(_policy(candidate, shared))
            except InputError as error:
                raise _placed(error, f"{where}: candidate {number}") from None
        try:
            return cls.of(policies, model.chains, model.rule, model.weights)
        except InputError as error:
            raise _placed(error, where) from None

    @classmethod
    def read(cls, path: str | Path, *, budget: int = 0) -> Family:
        """Read a family from a JSON file."""
        try:
            data = json.loads(Path(path).read_bytes(), object_pairs_hook=unique_keys)
        except (OSError, ValueError, RecursionError) as error:
            expected = "a JSON object with 'candidates'"
            raise InputError(expected, str(error), where=str(path)) from None
        return cls.from_dict(data, budget=budget, where=str(path))


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class _Triple(_Strict):
    tau_low: float
    tau_high: float
    tau_2: float = 0.0


class _Candidate(_Strict):
    tau_low: float | None = None
    tau_high: float | None = None
    tau_2: float | None = None
    pos: _Triple | None = None
    neg: _Triple | None = None
    budget: int | None = pydantic.Field(default=None, ge=0)


class _FamilyFile(_Strict):
    candidates: list[_Candidate]
    budget: int | None = pydantic.Field(default=None, ge=0)
    chains: list[list[int]] | None = None
    rule: str = "given"
    weights: list[float] | None = None


def check_weights(weights: Sequence[float], size: int) -> None:
    """Refuse shares of the failure probability that are not one a candidate, or that spend more than all of it.

    Example:
        >>> check_weights([0.75, 0.25], 2)
    """
    fits = all(math.isfinite(weight) and weight >= LEAST_WEIGHT for weight in weights)
    if len(weights) != size or not fits or math.fsum(weights) > 1 + 1e-12:
        expected = (
            f"one weight a candidate ({size}), each at least {LEAST_WEIGHT:g}, that add up to at most 1"
        )
        raise InputError(expected, str(list(weights))[:80], where="weights")


def _parse(model: type[M], data: Any, where: str) -> M:
    try:
        return model.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        whole = f"a dictionary with '{needed[0]}'" if needed and not path else "a dictionary"
        plain = {"model_type": whole, "extra_forbidden": "only known fields"}
        expected = plain.get(first["type"]) or first["msg"].lower().removeprefix("input should be ")
        place = f"{where}: field '{path}'" if path else where
        raise InputError(expected, repr(first["input"])[:80], where=place) from None


def _placed(error: InputError, where: str) -> InputError:
    """The same error, with the file and the candidate that it is about."""
    return InputError(str(error).removeprefix("family: "), where=where)


def _policy(candidate: _Candidate, budget: int) -> Policy:
    calls = budget if candidate.budget is None else candidate.budget
    pos, neg, low, high = candidate.pos, candidate.neg, candidate.tau_low, candidate.tau_high
    if pos is not None and neg is not None and low is high is candidate.tau_2 is None:
        sides = [Thresholds(side.tau_low, side.tau_high, side.tau_2) for side in (pos, neg)]
        return Policy(sides[0], sides[1], calls)
    if pos is None and neg is None and low is not None and high is not None:
        return Policy.plain(low, high, candidate.tau_2 or 0.0, budget=calls)
    expected = "a candidate with tau_low and tau_high, or with pos and neg"
    raise InputError(expected, ", ".join(candidate.model_dump(exclude_none=True)) or "neither")
