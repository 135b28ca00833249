"""Completions of a generating checkpoint, judged and turned into windows of records.

Everything about them is fixed when they are generated: verdicts, signals, advantages, and their KL to the reference
under the checkpoint that wrote them. A calibration buffer and the windows of the regime it speaks for are made by the
same function, so that they follow one law.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError
from vapo.records import Source
from vapo.tasks.base import Question, Task
from vapo.train.batch import Window
from vapo.train.engine import Engine, policy_signals
from vapo.train.models.base import Sampled
from vapo.train.verdicts import Calls, Judge
from vapo.verifiers import Item

__all__ = [
    "Asked",
    "Drawn",
    "Roster",
    "cut",
    "derive_seed",
    "draw",
    "in_turn",
    "rows_of",
    "weights_digest",
    "window_of",
]

Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]


def derive_seed(*parts: Any) -> int:
    """A seed of its own for every purpose, fixed by what names it.

    Example:
        >>> derive_seed(13, "rollouts", 0) == derive_seed(13, "rollouts", 0) != derive_seed(13, "rollouts", 1)
        True
    """
    return int(sha256_hex(canonical_json(["vapo train", *parts]))[:13], 16)


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 of a model's weights: the name of a generating checkpoint."""
    parts = []
    for name, value in module.state_dict().items():
        data = value.detach().contiguous().cpu()
        parts.append([name, str(data.dtype), list(data.shape), sha256_hex(_bytes(data))])
    return sha256_hex(canonical_json(parts))


def _bytes(data: torch.Tensor) -> bytes:
    return data.reshape(-1).view(torch.uint8).numpy().tobytes()


def in_turn(questions: Sequence[Question], *, seed: int) -> Iterator[Question]:
    """The questions again and again, in another order every time, for ever."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed % 2**32, epoch]).permutation(len(questions))
        yield from (questions[place] for place in order.tolist())
        epoch += 1


@dataclass(frozen=True, slots=True)
class Asked:
    """Which completion is of which question, update by update."""

    update: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Roster:
    """Who judges, and by which checkpoint the signals are made."""

    task: Task
    primary: Judge
    further: Mapping[str, Judge]
    generator: str
    """Digest of the generating checkpoint."""

    @property
    def sources(self) -> dict[str, Source]:
        """Who produced which column. Signals are the generating checkpoint's: another one is another source."""
        found = {"primary": self.primary.source}
        for name in ("consistency", "finished", "confidence"):
            digest = sha256_hex(canonical_json({"signal": name, "generator": self.generator}))
            found[f"signal.{name}"] = Source(f"policy-{name}", digest)
        return found | {f"verdict.{name}": judge.source for name, judge in self.further.items()}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Completions as they were sampled and judged, row by row; nothing here is a label."""

    batch: Sampled
    items: list[Item]
    groups: list[str]
    prompts: npt.NDArray[np.int64]
    """The number of each completion's question, counted over all updates: the unit of advantages."""
    updates: list[str]
    y: Signs
    verdicts: dict[str, Signs]
    answers: list[str | None]
    finished: npt.NDArray[np.bool_]
    confidence: Floats
    kl: Floats | None
    primary: dict[str, Calls]
    """What came of the calls of the primary verifier, by update."""
    further: dict[str, Calls]
    """The same of all further verifiers together."""

    def __len__(self) -> int:
        return len(self.items)

    @property
    def tokens(self) -> npt.NDArray[np.int64]:
        """Tokens of each completion."""
        return np.asarray(self.batch.lengths.cpu().numpy(), np.int64)


def draw(
    engine: Engine,
    roster: Roster,
    asked: Sequence[Asked],
    *,
    completions: int,
    seed: int,
    prefix: str,
    rows_at_once: int = 0,
    kl: bool = True,
) -> Drawn:
    """Sample completions and have them judged.

    Args:
        engine: Whose present weights generate.
        roster: Who judges.
        asked: The questions of every update.
        completions: How many of each.
        seed: The same seed, weights and questions give the same completions.
        prefix: Begins every record's name.
        rows_at_once: Completions sampled together; 0 for all.
        kl: Whether KL to the reference is measured.
    """
    task, model = roster.task, engine.model
    rows = [(one.update, q) for one in asked for q in one.questions for _ in range(completions)]
    if not rows:
        expected = "at least one question"
        raise InputError(expected, "none", where="rollouts")
    rendered = [model.render(question.prompt) for _, question in rows]
    size = rows_at_once or len(rows)
    lots = [
        engine.sample(rendered[first : first + size], seed=derive_seed(seed, first))
        for first in range(0, len(rows), size)
    ]
    batch = join(lots, model.pad)
    with torch.no_grad():
        lengths = batch.lengths.clamp(min=1)
        sure = (batch.logp.exp() * batch.mask).sum(dim=1) / lengths
    # Lot by lot: few rows at once stay in the processor's cache.
    measured = np.concatenate([engine.reference_kl(lot) for lot in lots]) if kl else None
    confidence = np.clip(sure.double().cpu().numpy(), 0.0, 1.0)
    items = [
        Item(f"{prefix}{number:07d}", question.text, text, question.reference)
        for number, ((_, question), text) in enumerate(zip(rows, batch.texts, strict=True))
    ]
    outcomes = roster.primary.verify(items, confidence)
    updates = rows_of([update for update, _ in rows])
    verdicts, further = {}, {update: Calls() for update, _ in updates}
    for name, judge in roster.further.items():
        more = judge.verify(items, confidence)
        verdicts[name] = np.array([outcome.sign for outcome in more], np.int8)
        further = {update: further[update] + Calls.of(more[part]) for update, part in updates}
    return Drawn(
        batch=batch,
        items=items,
        groups=[question.group for _, question in rows],
        prompts=np.arange(len(rows), dtype=np.int64) // completions,
        updates=[update for update, _ in rows],
        y=np.array([outcome.sign for outcome in outcomes], np.int8),
        verdicts=verdicts,
        answers=[task.answer(text) for text in batch.texts],
        finished=batch.finished.cpu().numpy(),
        confidence=confidence,
        kl=measured,
        primary={update: Calls.of(outcomes[part]) for update, part in updates},
        further=further,
    )


def window_of(
    drawn: Drawn,
    roster: Roster,
    y: Signs,
    advantage: Floats,
    *,
    unit: float,
    primary: Source | None = None,
    content: bool = False,
) -> Window:
    """The records of some completions, under the verdicts that the arm goes by.

    Args:
        drawn: The completions.
        roster: Who judged.
        y: Verdicts; signals are turned towards them.
        advantage: Advantages, from all of these verdicts.
        unit: Ratio change that an advantage of 1 proposes.
        primary: Who gave the verdicts, if not the roster's primary.
        content: Whether the questions go along, for overlap checks.
    """
    names = [str(prompt) for prompt in drawn.prompts.tolist()]
    sources = roster.sources | ({} if primary is None else {"primary": primary})
    return Window.of(
        ids=[item.id for item in drawn.items],
        groups=drawn.groups,
        window=drawn.updates,
        y=y,
        advantage=advantage,
        signals=policy_signals(
            y=y, group=names, answers=drawn.answers, finished=drawn.finished, confidence=drawn.confidence
        ),
        verdicts=drawn.verdicts,
        kl=drawn.kl,
        content=[item.question for item in drawn.items] if content else None,
        sources=sources,
        unit=unit,
    )


def rows_of(updates: Sequence[str]) -> list[tuple[str, slice]]:
    """The rows of each update, where those of one update stand side by side.

    Example:
        >>> rows_of(["u0", "u0", "u1"])
        [('u0', slice(0, 2, None)), ('u1', slice(2, 3, None))]
    """
    found: list[tuple[str, slice]] = []
    first: Any = 0
    for update, some in groupby(updates):
        last = first + sum(1 for _ in some)
        found.append((update, slice(first, last)))
        first = last
    return found


def join(lots: Sequence[Sampled], pad: int) -> Sampled:
    """Several lots of completions as one, padded to the widest prompt and the longest completion."""
    if len(lots) == 1:
        return lots[0]
    left = max(lot.prompts.shape[1] for lot in lots)
    right = max(lot.tokens.shape[1] for lot in lots)
    fill = {"prompts": pad, "tokens": pad}
    columns: dict[str, Any] = {"texts": [text for lot in lots for text in lot.texts]}
    for column in fields(Sampled):
        if column.name == "texts":
            continue
        parts = []
        for lot in lots:
            value = getattr(lot, column.name)
            if column.name in ("prompts", "prompt_mask"):
                value = F.pad(value, (left - value.shape[1], 0), value=fill.get(column.name, 0))
            elif value.dim() == 2:
                value = F.pad(value, (0, right - value.shape[1]), value=fill.get(column.name, 0))
            parts.append(value)
        columns[column.name] = torch.cat(parts)
    return Sampled(**columns)


def cut(batch: Sampled, rows: slice) -> Sampled:
    """Some rows of a batch."""
    columns = {column.name: getattr(batch, column.name)[rows] for column in fields(Sampled)}
    return Sampled(**columns)
