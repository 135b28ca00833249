"""Questions that reasoning-gym makes: gsm_symbolic, and every other of its datasets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vapo.errors import InputError
from vapo.tasks.base import Oracle, Reading, Task
from vapo.tasks.text import Row, assembled
from vapo.verifiers.gym import ReasoningGym, gym_reference
from vapo.verifiers.origin import library_version
from vapo.verifiers.pool import Pool

__all__ = ["reasoning_gym"]


def reasoning_gym(
    dataset: str = "gsm_symbolic",
    *,
    size: int = 2000,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
    reading: str | None = None,
    shares: Mapping[str, float] | None = None,
    wording: Mapping[str, str] | None = None,
    max_tokens: int = 256,
) -> Task:
    """Questions of a reasoning-gym dataset.

    Args:
        dataset: Its name there.
        size: How many questions are made; copies among them share a group.
        seed: What they and the splits are made from.
        config: Further settings of the dataset.
        reading: `number`, `bare` or `text`; by default numbers where all answers are numbers. Answers in words are
            judged by the dataset's own rule, for which different texts may be right.
        shares: How the questions are shared out.
        wording: Fields of `Wording` that differ from its defaults.
        max_tokens: The cap of completions.

    Example:
        >>> task = reasoning_gym("chain_sum", size=20, config={"min_terms": 2, "max_terms": 2})
        >>> task.name, len(task.split("train"))
        ('reasoning-gym/chain_sum', 10)
    """
    library_version("reasoning-gym")
    import reasoning_gym as gym

    try:
        made = gym.create_dataset(dataset, size=size, seed=seed, **(config or {}))
        entries = list(made)
    except (ValueError, TypeError, AssertionError) as error:
        expected = "a dataset of reasoning-gym with settings that it takes"
        raise InputError(
            expected, str(error) or type(error).__name__, where=f"reasoning-gym '{dataset}'"
        ) from None
    read_as = _reading(reading, entries)
    # Scorers that evaluate answers as programs must not do so here: they run in processes of their own.
    judge = ReasoningGym(dataset, places=tuple(Reading.TEXT.places), unreadable="wrong")
    oracle = Oracle(read_as, Pool(judge, workers=1)) if read_as is Reading.TEXT else None

    def rows() -> Iterator[tuple[str, Row]]:
        for number, entry in enumerate(entries, 1):
            yield f"reasoning-gym '{dataset}': entry {number}", entry

    def read(row: Row) -> tuple[str, str]:
        return str(row["question"]), str(row["answer"]) if oracle is None else gym_reference(row)

    return assembled(
        f"reasoning-gym/{dataset}",
        {"train": rows()},
        read,
        read_as,
        shares,
        seed,
        wording,
        max_tokens,
        oracle=oracle,
    )


def _reading(wanted: str | None, entries: list[Any]) -> Reading:
    if wanted is not None:
        if wanted not in list(Reading):
            expected = f"one of {', '.join(Reading)}"
            raise InputError(expected, repr(wanted), where="argument 'reading'")
        return Reading(wanted)
    try:
        for entry in entries:
            Reading.NUMBER.reference(str(entry["answer"]))
    except InputError:
        return Reading.TEXT
    return Reading.NUMBER
