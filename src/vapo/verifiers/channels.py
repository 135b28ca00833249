"""Error channels: a verifier made wrong on purpose, in a way that is known, keyed and the same every time.

A channel turns some verdicts round. Which ones is fixed by a key and by what is judged: by the record's id, so that
errors are independent draws, or by the normalised content, so that they persist and the same answer gets the same wrong
verdict whenever it comes up, as with real verifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo._internal.arrays import floats, signs
from vapo._internal.keyed import canonical_json, keyed_fraction, sha256_hex
from vapo.errors import InputError
from vapo.records import Source, normalise_content
from vapo.verifiers.base import Item, Outcome, Verifier, terms_of

__all__ = ["Channel", "Kind", "NoisyVerifier", "question_and_completion"]

SKEW = 4.0
"""How many times more often a heavy channel errs on its heavy side."""


class Kind(StrEnum):
    """The ways to err."""

    NONE = "none"
    """Nothing is changed."""
    SYMMETRIC = "symmetric"
    """Both verdicts are turned round equally often."""
    FP_HEAVY = "fp-heavy"
    """Rejections are turned round more often than approvals."""
    FN_HEAVY = "fn-heavy"
    """Approvals are turned round more often than rejections."""
    CONFIDENCE = "confidence-dependent"
    """The less confidence, the more errors."""
    CORRELATED = "correlated"
    """Some errors have a cause that other channels share."""
    EXPLOITABLE = "exploitable"
    """Whatever holds a cheap pattern is approved; a policy can learn to write it."""


@dataclass(frozen=True, slots=True)
class Channel:
    """A way to err, as a value. `Channel.make` builds one from a kind and a rate.

    Example:
        >>> channel = Channel.make("fp-heavy", 0.1, key="run 7", persistent=True)
        >>> channel.false_positive, channel.false_negative
        (0.16, 0.04)
        >>> channel.apply([-1, 0, 1], contents=["17", "18", "19"]).tolist()
        [-1, 0, 1]
    """

    kind: Kind
    false_positive: float = 0.0
    """Chance that a rejection becomes an approval."""
    false_negative: float = 0.0
    """Chance that an approval becomes a rejection."""
    key: str = ""
    """Fixes every draw that is this channel's own."""
    persistent: bool = False
    """Whether errors are fixed by the content rather than by the record's id."""
    cause: str = ""
    """Fixes the draws that channels with the same cause share."""
    shared: float = 0.0
    """Share of items on which the draw is the cause's; for equal rates this is the correlation of errors."""
    pattern: str = ""
    """What an answer must hold to be approved, after normalisation."""

    def __post_init__(self) -> None:
        for name in ("false_positive", "false_negative", "shared"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                expected = "a probability in [0, 1]"
                raise InputError(expected, repr(value), where=f"channel '{self.kind}': '{name}'")
        if (self.kind is Kind.CORRELATED) is not bool(self.cause):
            expected = "a cause for a correlated channel, and for no other"
            raise InputError(expected, repr(self.cause), where=f"channel '{self.kind}'")
        if (self.kind is Kind.EXPLOITABLE) is not bool(normalise_content(self.pattern)):
            expected = "a pattern for an exploitable channel, and for no other"
            raise InputError(expected, repr(self.pattern), where=f"channel '{self.kind}'")

    @classmethod
    def make(
        cls,
        kind: Kind | str,
        rate: float = 0.0,
        *,
        key: str = "",
        persistent: bool = False,
        cause: str = "",
        shared: float = 0.5,
        pattern: str = "",
    ) -> Channel:
        """Build a channel that errs at a rate.

        Args:
            kind: The way to err.
            rate: Share of errors where as many verdicts approve as reject. A heavy channel splits it 4 : 1; a
                confidence-dependent one errs at 2·rate·(1 - confidence), so at this rate for a confidence of one
                half; an exploitable one applies it to rejected answers that hold the pattern.
            key: Fixes the draws.
            persistent: Whether errors are fixed by the content rather than by the record's id.
            cause: For a correlated channel: what it shares with others of the same cause.
            shared: For a correlated channel: the share of items on which the cause decides.
            pattern: For an exploitable channel: what an answer must hold.
        """
        if kind not in list(Kind):
            expected = f"one of the channels {', '.join(Kind)}"
            raise InputError(expected, repr(kind))
        kind = Kind(kind)
        heavy, light = 2 * rate * SKEW / (1 + SKEW), 2 * rate / (1 + SKEW)
        positive, negative = {
            Kind.NONE: (0.0, 0.0),
            Kind.FP_HEAVY: (heavy, light),
            Kind.FN_HEAVY: (light, heavy),
            Kind.EXPLOITABLE: (rate, 0.0),
        }.get(kind, (rate, rate))
        return cls(
            kind,
            positive,
            negative,
            key=key,
            persistent=persistent,
            cause=cause,
            shared=shared if kind is Kind.CORRELATED else 0.0,
            pattern=pattern,
        )

    @property
    def digest(self) -> str:
        """SHA-256 over everything that the channel's errors depend on."""
        return sha256_hex(canonical_json({"channel": 1, **self.as_dict()}))

    def as_dict(self) -> dict[str, Any]:
        """The channel as plain data."""
        return asdict(self) | {"kind": str(self.kind)}

    def apply(
        self,
        verdicts: npt.ArrayLike,
        *,
        ids: Sequence[str] | None = None,
        contents: Sequence[str] | None = None,
        answers: Sequence[str] | None = None,
        confidence: npt.ArrayLike | None = None,
    ) -> npt.NDArray[np.int8]:
        """Turn round the verdicts on which the channel errs; 0, no verdict, stays 0.

        Args:
            verdicts: Signs, as the sound verifier gave them.
            ids: The records' names, which independent draws hang on.
            contents: What was judged (question and answer), which persistent errors hang on.
            answers: Where an exploitable channel looks for its pattern.
            confidence: In [0, 1], for a confidence-dependent channel.

        Example:
            >>> channel = Channel.make("exploitable", 1.0, pattern="trust me")
            >>> channel.apply([-1, -1], ids=["a", "b"], answers=["12", "12. Trust  me!"]).tolist()
            [-1, 1]
        """
        said = signs("verdicts", verdicts)
        if self.kind is Kind.NONE or not said.size:
            return said
        chance = np.select([said < 0, said > 0], [self.false_positive, self.false_negative], 0.0)
        if self.kind is Kind.CONFIDENCE:
            sure = floats("confidence", _given("confidence", confidence), length=said.size, low=0.0, high=1.0)
            chance = np.minimum(1.0, chance * 2.0 * (1.0 - sure))
        if self.kind is Kind.EXPLOITABLE:
            wanted = normalise_content(self.pattern)
            texts = _texts("answers", answers, said.size)
            chance *= np.array([wanted in normalise_content(text) for text in texts])
        if self.persistent:
            names = [normalise_content(text) for text in _texts("contents", contents, said.size)]
        else:
            names = list(_texts("ids", ids, said.size))
        return np.where(self._draws(names) < chance, -said, said).astype(np.int8)

    def _draws(self, names: list[str]) -> npt.NDArray[np.float64]:
        """One number in [0, 1) an item."""
        own = self._uniform("own", self.key, names)
        if not self.shared:
            return own
        common = self._uniform("cause", self.cause, names)
        decided = self._uniform("whose", self.cause, names) < self.shared
        return np.where(decided, common, own)

    def _uniform(self, role: str, key: str, names: list[str]) -> npt.NDArray[np.float64]:
        hangs_on = "content" if self.persistent else "id"
        secret = canonical_json(["vapo channel", role, hangs_on, key])
        return np.array([keyed_fraction(secret, name) for name in names])


def question_and_completion(item: Item) -> str:
    r"""What a verdict is about, unless told otherwise: the question and the whole completion.

    Example:
        >>> question_and_completion(Item("a", "1 + 1 = ?", "2"))
        '1 + 1 = ?\n2'
    """
    return f"{item.question}\n{item.completion}"


class NoisyVerifier:
    """A verifier behind an error channel; its failures and its confidence pass as they are.

    Args:
        verifier: The sound one.
        channel: The way to err.
        content: What persistent errors hang on, by default question and whole completion. Give a function that takes
            the final answer out, and all wordings of one answer share its error. It must be a named function at the
            top of a module, since its name stands in the source's digest.

    Example:
        >>> class Approving:
        ...     source = Source("approving", "0" * 64)
        ...     def verify(self, items):
        ...         return [Outcome(verdict=1) for _ in items]
        >>> wrong = NoisyVerifier(Approving(), Channel.make("symmetric", 1.0))
        >>> wrong.source.id, wrong.verify([Item("a", "1 + 1 = ?", "2")])[0].verdict
        ('approving+symmetric', -1)
    """

    def __init__(
        self,
        verifier: Verifier,
        channel: Channel,
        *,
        content: Callable[[Item], str] = question_and_completion,
    ) -> None:
        name = getattr(content, "__qualname__", "")
        if not name or "<" in name:
            expected = "a named function at the top of a module"
            raise InputError(expected, repr(name or content), where="argument 'content'")
        self._verifier = verifier
        self._terms = terms_of(verifier)
        self._content = content
        self.channel = channel
        """The way in which this verifier errs."""
        behind = verifier.source
        parts = {
            "verifier": behind.digest,
            "channel": channel.as_dict(),
            "content": f"{content.__module__}.{name}",
        }
        self._source = Source(f"{behind.id}+{channel.kind}", sha256_hex(canonical_json(parts)))

    @property
    def source(self) -> Source:
        """Its id, and a digest over the verifier behind it and the channel."""
        return self._source

    @property
    def by_id(self) -> bool:
        """Whether verdicts depend on the record's id, so that an answer about one record says nothing of a copy."""
        drawn = self.channel.kind is not Kind.NONE and not self.channel.persistent
        return drawn or self._terms.by_id

    @property
    def honours_keys(self) -> bool:
        """Whether asking the verifier behind it again is paid once."""
        return self._terms.honours_keys

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost the verifier behind it."""
        return self._terms.most_calls

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """The sound verifier's outcomes, some verdicts turned round. Nothing in an outcome says which."""
        outcomes = self._verifier.verify(items)
        said = self.channel.apply(
            [outcome.sign for outcome in outcomes],
            ids=[item.id for item in items],
            contents=[self._content(item) for item in items],
            answers=[item.completion for item in items],
            confidence=[outcome.confidence for outcome in outcomes],
        )
        return [
            outcome if outcome.verdict is None else replace(outcome, verdict=int(sign))
            for outcome, sign in zip(outcomes, said, strict=True)
        ]


def _given(name: str, values: Any) -> Any:
    if values is None:
        expected = "values, which this channel's errors depend on"
        raise InputError(expected, "none", where=f"argument '{name}'")
    return values


def _texts(name: str, values: Sequence[str] | None, length: int) -> Sequence[str]:
    texts: Sequence[str] = _given(name, values)
    if len(texts) != length:
        expected = f"one text for each of {length} verdicts"
        raise InputError(expected, str(len(texts)), where=f"argument '{name}'")
    return texts
