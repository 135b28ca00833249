"""What a task is: questions with trusted answers in disjoint splits, and one way to read an answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from fractions import Fraction

import numpy as np
import pyarrow as pa

from vapo._internal.keyed import canonical_json, keyed_fraction, sha256_hex
from vapo.errors import InputError
from vapo.records import Records, Source, normalise_content
from vapo.splits import Manifest, make_manifest
from vapo.verifiers import Failure, Item, Outcome, Verifier
from vapo.verifiers.answers import EXACT_PLACES, NUMERIC_PLACES, Place, final_number, final_text, read_number
from vapo.verifiers.origin import source_of

__all__ = ["SHARES", "SPLITS", "Oracle", "Prompt", "Question", "Reading", "Task", "divide", "grouped"]

SPLITS = ("pretrain", "train", "calibration", "held-out", "test")
"""What questions are for; `held-out` chooses among checkpoints, `test` is opened once for the chosen one."""
SHARES: Mapping[str, float] = {"train": 0.5, "calibration": 0.3, "held-out": 0.1, "test": 0.1}
"""How groups are shared out where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is said to a model; the model knows how its own template puts it.

    Example:
        >>> Prompt("What is 7 × 14?", prefill="7 × 14 = ").messages
        [{'role': 'user', 'content': 'What is 7 × 14?'}]
        >>> Prompt("12+34=").plain
        '12+34='
    """

    user: str
    """The question as it is put."""
    system: str = ""
    """Instructions that stand before it."""
    prefill: str = ""
    """How the answer begins; the model goes on from there."""

    @property
    def messages(self) -> list[dict[str, str]]:
        """The messages of a chat, without the beginning of the answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.user}]

    @property
    def plain(self) -> str:
        """The text for a model that knows no chat."""
        parts = [part for part in (self.system, self.user) if part]
        return "\n\n".join(parts) + (f"\n\n{self.prefill}" if self.prefill else "")


@dataclass(frozen=True, slots=True)
class Question:
    """One question with its trusted answer."""

    id: str
    text: str
    """What is asked; by it copies of a question are found."""
    reference: str
    """The trusted answer. Only the oracle, and whom it is declared to, may see it."""
    group: str
    """Questions that must not be separated share one: copies, and the two orders of a pair of operands."""
    prompt: Prompt


class Reading(StrEnum):
    """How the final answer is found in a completion, and compared."""

    NUMBER = "number"
    """The final number, wherever answers stand; equal as numbers."""
    BARE = "bare"
    """The whole completion is one number."""
    TEXT = "text"
    """The final text; equal after normalisation."""

    @property
    def places(self) -> Sequence[Place]:
        """Where an answer is looked for."""
        if self is Reading.BARE:
            return (Place.WHOLE,)
        return NUMERIC_PLACES if self is Reading.NUMBER else EXACT_PLACES

    def answer(self, completion: str) -> str | None:
        """The final answer in its normal form, or None where there is none.

        Example:
            >>> Reading.NUMBER.answer("16 - 7 = 9, so 9 * 2 = 18.0"), Reading.BARE.answer("12+34")
            ('18', None)
        """
        if self is Reading.TEXT:
            text = final_text(completion, self.places)
            return None if text is None else normalise_content(text)
        value = final_number(completion, self.places)
        return None if value is None else str(value)

    def reference(self, answer: str) -> str:
        """A trusted answer in its normal form.

        Raises:
            InputError: If it cannot be read.
        """
        if self is Reading.TEXT:
            return normalise_content(answer)
        value: Fraction | None = read_number(answer)
        if value is None:
            expected = "an answer that is a number"
            raise InputError(expected, repr(answer))
        return str(value)


@dataclass(frozen=True, slots=True)
class Oracle:
    """The clean verdict: compares the final answer with the trusted one.

    What cannot be read is wrong: an oracle says of a completion whether it answers the question, not why.

    Example:
        >>> oracle = Oracle(Reading.BARE)
        >>> items = [Item("a", "12+34=", "46", "46"), Item("b", "12+34=", "", "46")]
        >>> [outcome.sign for outcome in oracle.verify(items)]
        [1, -1]
    """

    reading: Reading
    judge: Verifier | None = None
    """Judges instead, where answers that are written differently may all be right."""

    @property
    def source(self) -> Source:
        """What decides: the code that reads and compares, or the judge."""
        if self.judge is not None:
            return self.judge.source
        return source_of(
            "oracle", {"reading": str(self.reading)}, modules=[__name__, "vapo.verifiers.answers"]
        )

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """One verdict for each item; an item without a reference gets none."""
        if self.judge is not None:
            return self.judge.verify(items)
        return [self._outcome(item) for item in items]

    def _outcome(self, item: Item) -> Outcome:
        if not item.reference:
            return Outcome(failure=Failure.REFUSED, detail="there is no reference to compare with")
        right = self.reading.answer(item.completion) == self.reading.reference(item.reference)
        return Outcome(1 if right else -1)


@dataclass(frozen=True, slots=True)
class Task:
    """Questions in disjoint splits.

    Example:
        >>> from vapo.tasks import open_task
        >>> task = open_task("arithmetic")
        >>> question = task.split("train")[0]
        >>> len({question.group} & {other.group for other in task.split("test")})
        0
    """

    name: str
    splits: Mapping[str, tuple[Question, ...]]
    oracle: Oracle
    max_tokens: int
    """What an answer needs at most; the default cap of completions."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.splits if name not in SPLITS]
        if unknown:
            expected = f"splits among {', '.join(SPLITS)}"
            raise InputError(expected, repr(unknown[0]), where=f"task '{self.name}'")

    def split(self, name: str) -> tuple[Question, ...]:
        """The questions of one split.

        Raises:
            InputError: If the task has no such questions.
        """
        found = self.splits.get(name, ())
        if not found:
            there = ", ".join(n for n, questions in self.splits.items() if questions)
            expected = f"one of the splits {there} of task '{self.name}'"
            raise InputError(expected, repr(name), where="argument 'name'")
        return found

    def answer(self, completion: str) -> str | None:
        """The final answer of a completion in its normal form, or None where there is none."""
        return self.oracle.reading.answer(completion)

    def manifest(self) -> Manifest:
        """Counts and digests of the splits, after making sure that no two share an id, a group or a content."""
        return make_manifest({name: _rows(name, rows) for name, rows in self.splits.items() if rows})

    @property
    def source(self) -> str:
        """SHA-256 over every question, answer and prompt, split by split, and over how answers are read."""
        rows = {
            name: [[q.id, q.text, q.reference, q.group, *astuple(q.prompt)] for q in split]
            for name, split in sorted(self.splits.items())
        }
        whole = {"name": self.name, "oracle": self.oracle.source.digest, "splits": rows}
        return sha256_hex(canonical_json(whole))


def _rows(name: str, questions: Sequence[Question]) -> Records:
    """The questions as records, which is what manifests are made of."""
    columns = {
        "id": [question.id for question in questions],
        "group": [question.group for question in questions],
        "content": [question.text for question in questions],
        "y": np.zeros(len(questions), np.int8),
        "signal.none": np.zeros(len(questions)),
    }
    return Records.from_arrow(pa.table(columns), where=f"split '{name}'")


def divide(
    questions: Iterable[Question], shares: Mapping[str, float] | None = None, *, seed: int = 0
) -> dict[str, tuple[Question, ...]]:
    """Share whole groups out among splits by a keyed hash of their names.

    Which split a group falls into does not depend on the order of the questions; inside a split they keep it.

    Args:
        questions: The questions.
        shares: The share of groups of each split; they add up to 1.
        seed: The key of the hash.

    Example:
        >>> some = [Question(str(n), f"what is {n}?", str(n), str(n // 2), Prompt(f"what is {n}?")) for n in range(8)]
        >>> {name: len(split) for name, split in divide(some, {"train": 0.5, "test": 0.5}).items()}
        {'train': 4, 'test': 4}
    """
    shares = SHARES if shares is None else shares
    if not isinstance(shares, Mapping) or not all(
        isinstance(share, int | float) for share in shares.values()
    ):
        expected = "a table with a share of each split"
        raise InputError(expected, repr(shares), where="argument 'shares'")
    shares = dict(shares)
    if any(not 0 <= share <= 1 for share in shares.values()) or abs(sum(shares.values()) - 1) > 1e-9:
        expected = "shares in [0, 1] that add up to 1"
        raise InputError(expected, repr(shares), where="argument 'shares'")
    rows = list(questions)
    key = f"vapo task split {seed}".encode()
    names = sorted({row.group for row in rows}, key=lambda name: (keyed_fraction(key, name), name))
    belongs: dict[str, str] = {}
    total, start = 0.0, 0
    for split, share in shares.items():
        total += share
        end = round(total * len(names))
        belongs |= dict.fromkeys(names[start:end], split)
        start = end
    return {split: tuple(row for row in rows if belongs[row.group] == split) for split in shares}


def grouped(questions: Iterable[Question]) -> list[Question]:
    """The same questions, those of one normalised content in one group: that of the first of them.

    Example:
        >>> twins = [Question("a", "How many?", "1", "a", Prompt("How many?")),
        ...          Question("b", "how  many?", "1", "b", Prompt("how  many?"))]
        >>> [question.group for question in grouped(twins)]
        ['a', 'a']
    """
    first: dict[str, str] = {}
    return [
        Question(q.id, q.text, q.reference, first.setdefault(normalise_content(q.text), q.group), q.prompt)
        for q in questions
    ]
