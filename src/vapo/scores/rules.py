"""The score rules by name, and the values that a fitted score needs to be applied anywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.records import Records, Source, find_redundant
from vapo.scores import latent

__all__ = [
    "FittedScore",
    "ScoreRule",
    "check_inputs",
    "fit_score",
    "refuse_shared_sources",
    "register_score",
    "score_names",
    "score_needs_fit",
]

Array = npt.NDArray[np.float64]
_KNOTS = 1024


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """A way to turn trust signals into one score in [0, 1].

    Every step that `apply` takes must give the same bits however the records are cut into pieces.
    """

    fit: Callable[[Records, tuple[str, ...], str], Mapping[str, Any]]
    """(design records, inputs, argument behind the colon) to JSON-able parameters; sees no label."""
    apply: Callable[[Records, tuple[str, ...], Mapping[str, Any]], Array]
    """(records, inputs, parameters) to one score a record."""
    needs_fit: bool = False
    """Whether the parameters depend on the design records."""
    inputs: Callable[[Records, str], tuple[str, ...]] = field(default=lambda records, _: records.trust_names)
    """Which trust signals the rule reads, given the argument behind the colon."""


@dataclass(frozen=True, slots=True)
class FittedScore:
    """A score that is fixed: a rule's name, what it reads, and its parameters.

    Example:
        >>> import pyarrow as pa
        >>> records = Records.from_arrow(pa.table(
        ...     {"id": ["a", "b"], "group": ["p", "q"], "y": [1, 1], "signal.s": [0.1, 0.9], "signal.t": [0.3, 0.5]}))
        >>> fit_score("mean", records).apply(records).tolist()
        [0.2, 0.7]
    """

    rule: str
    inputs: tuple[str, ...]
    params: Mapping[str, Any]

    def apply(self, records: Records) -> Array:
        """One score a record, in [0, 1]."""
        rule, _ = _find(self.rule)
        score = rule.apply(records, self.inputs, self.params)
        fits = np.isfinite(score) & (score >= 0) & (score <= 1)
        if len(score) != len(records) or not fits.all():
            worst = int(np.argmin(fits)) if len(score) else 0
            got = (
                str(score[worst])
                if len(score) == len(records)
                else f"{len(score)} scores for {len(records)} records"
            )
            expected = f"score '{self.rule}' to give a number in [0, 1] a record"
            raise InputError(expected, got, where=records.where)
        return score

    def as_dict(self) -> dict[str, Any]:
        """The score as plain data."""
        return {"rule": self.rule, "inputs": list(self.inputs), "params": dict(self.params)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FittedScore:
        """The inverse of `as_dict`."""
        return cls(data["rule"], tuple(data["inputs"]), data["params"])


def refuse_shared_sources(
    records: Records, inputs: tuple[str, ...], secondaries: Mapping[str, Source]
) -> None:
    """Make sure that a secondary verifier is neither behind the score nor the primary, by name, id or digest.

    Args:
        records: The records that the score reads.
        inputs: The trust signals that it reads.
        secondaries: The secondary verifiers, by the names that `y2_source` gives them.

    Raises:
        InputError: Naming the first one that is.
    """
    for name in inputs:
        records.trust(name)
    behind = [records.sources[records.trust_column(name)] for name in inputs]
    used = {*inputs, *(source.id for source in behind), *(source.digest for source in behind)}
    primary = records.sources["primary"]
    for name, source in secondaries.items():
        if {source.id, source.digest, name} & used:
            expected = "a secondary verifier that is not also a signal"
            raise InputError(expected, f"'{name}'", where=records.where)
        if {source.id, source.digest, name} & {primary.id, primary.digest, "primary"}:
            expected = "a secondary verifier other than the primary"
            raise InputError(expected, f"'{name}'", where=records.where)


def check_inputs(
    records: Records,
    inputs: tuple[str, ...],
    *,
    secondaries: Mapping[str, Source] | None = None,
    waive_redundancy: bool = False,
) -> list[str]:
    """Make sure that the signals behind a score are distinct in source and in substance.

    Args:
        records: The records that the score reads.
        inputs: The trust signals that it reads.
        secondaries: The secondary verifiers whose answers count; those that answered, by default.
        waive_redundancy: Whether a signal may be a function of another.

    Returns:
        What a waiver let through, in words; empty otherwise.

    Raises:
        InputError: If a signal is a function of another, or is at the same time the secondary verifier.
    """
    if secondaries is None:
        secondaries = {name: records.sources[name] for name in records.secondary_names}
    refuse_shared_sources(records, inputs, secondaries)
    pair = find_redundant({name: records.trust(name) for name in inputs})
    if pair is None:
        return []
    said = f"'{pair[0]}' is a function of '{pair[1]}' on these records"
    if not waive_redundancy:
        expected = (
            "signals of which none is a function of another (drop one, or let it pass: --waive-redundancy, "
            "waive_redundancy in the protocol)"
        )
        constant = np.ptp(records.trust(pair[0])) == 0
        raise InputError(expected, f"{said}: it never changes" if constant else said, where=records.where)
    return [said]


def _single_inputs(records: Records, argument: str) -> tuple[str, ...]:
    if argument not in records.trust_names:
        expected = f"one of the signals {', '.join(records.trust_names)}"
        raise InputError(expected, repr(argument), where=f"score of {records.where}")
    return (argument,)


def _mean(records: Records, inputs: tuple[str, ...], params: Mapping[str, Any]) -> Array:
    weights = params.get("weights") or [1.0] * len(inputs)
    total = np.zeros(len(records))
    for name, weight in zip(inputs, weights, strict=True):
        total += weight * records.trust(name)
    return np.asarray(np.minimum(total / sum(weights), 1.0), dtype=np.float64)


def _parse_weights(argument: str) -> dict[str, float]:
    weights: dict[str, float] = {}
    for part in argument.split(","):
        name, _, text = part.partition("=")
        if name.strip() in weights:
            expected = "each signal once"
            raise InputError(expected, f"{name.strip()!r} twice", where="score weighted:")
        try:
            weights[name.strip()] = float(text)
        except ValueError:
            expected = "weighted:NAME=WEIGHT,..."
            raise InputError(expected, repr(part)) from None
    if any(not (0 <= w < float("inf")) for w in weights.values()) or not sum(weights.values()):
        expected = "weights >= 0, not all zero"
        raise InputError(expected, argument)
    return weights


def _weighted_inputs(records: Records, argument: str) -> tuple[str, ...]:
    names = tuple(_parse_weights(argument))
    for name in names:
        _single_inputs(records, name)
    return names


def _knots(records: Records, inputs: tuple[str, ...], argument: str) -> Mapping[str, Any]:
    del argument
    knots = {}
    for name in inputs:
        values = np.sort(records.trust(name))
        if len(values) > _KNOTS:
            values = values[np.linspace(0, len(values) - 1, _KNOTS).round().astype(np.int64)]
        knots[name] = values.tolist()
    return {"knots": knots}


def _rank_mean(records: Records, inputs: tuple[str, ...], params: Mapping[str, Any]) -> Array:
    total = np.zeros(len(records))
    for name in inputs:
        knots, values = np.asarray(params["knots"][name]), records.trust(name)
        ranks = np.searchsorted(knots, values, "left") + np.searchsorted(knots, values, "right")
        total += ranks / (2 * len(knots))
    return np.minimum(total / len(inputs), 1.0)


_RULES: dict[str, ScoreRule] = {
    "signal": ScoreRule(fit=lambda *_: {}, apply=_mean, inputs=_single_inputs),
    "mean": ScoreRule(fit=lambda *_: {}, apply=_mean),
    "weighted": ScoreRule(
        fit=lambda _, inputs, argument: {"weights": [_parse_weights(argument)[name] for name in inputs]},
        apply=_mean,
        inputs=_weighted_inputs,
    ),
    "rank-mean": ScoreRule(fit=_knots, apply=_rank_mean, needs_fit=True),
    "dawid-skene": ScoreRule(fit=latent.fit, apply=latent.posterior, needs_fit=True),
}


def register_score(name: str, rule: ScoreRule) -> None:
    """Make a score rule of your own known by name.

    Example:
        >>> register_score("least", ScoreRule(
        ...     fit=lambda *_: {},
        ...     apply=lambda records, inputs, params: np.min([records.trust(n) for n in inputs], axis=0)))
        >>> "least" in score_names()
        True
    """
    if not name or ":" in name:
        expected = "a score name without a colon"
        raise InputError(expected, repr(name))
    _RULES[name] = rule


def score_names() -> tuple[str, ...]:
    """The names of all score rules."""
    return tuple(_RULES)


_FORMS = {"signal": "signal:NAME", "weighted": "weighted:NAME=WEIGHT,..."}


def _find(spec: str) -> tuple[ScoreRule, str]:
    name, _, argument = spec.partition(":")
    if name not in _RULES:
        expected = f"a score among {', '.join(_FORMS.get(rule, rule) for rule in _RULES)}"
        raise InputError(expected, repr(spec))
    if name in _FORMS and not argument:
        expected = f"score {_FORMS[name]}"
        raise InputError(expected, repr(spec))
    return _RULES[name], argument


def score_needs_fit(spec: str) -> bool:
    """Whether a score learns anything from the design records.

    Example:
        >>> score_needs_fit("mean"), score_needs_fit("dawid-skene")
        (False, True)
    """
    return _find(spec)[0].needs_fit


def fit_score(spec: str, design: Records) -> FittedScore:
    """Fix a score on the design records; no label is looked at.

    Args:
        spec: `signal:NAME`, `mean`, `weighted:NAME=WEIGHT,...`, `rank-mean`, `dawid-skene`, or a registered name.
        design: The design records (any records for rules that learn nothing).
    """
    rule, argument = _find(spec)
    inputs = rule.inputs(design, argument)
    return FittedScore(spec, inputs, rule.fit(design, inputs, argument))
