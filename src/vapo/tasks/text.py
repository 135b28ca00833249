"""Questions in words: GSM8K, SVAMP, and any JSON lines with a question and an answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vapo._internal.files import unique_keys
from vapo.errors import InputError
from vapo.tasks.base import Oracle, Prompt, Question, Reading, Task, divide, grouped

__all__ = ["STEP_BY_STEP", "Wording", "assembled", "gsm8k", "jsonl", "svamp"]

STEP_BY_STEP = "Solve the problem step by step. Then write the final answer behind #### on a line of its own."
"""What models are told where nothing else is asked for."""

Row = Mapping[str, Any]
Reader = Callable[[Row], tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Wording:
    r"""How a question is put to a model.

    Example:
        >>> Wording(system="Be short.", user="Q: {question}", prefill="A: ").prompt("How many?").plain
        'Be short.\n\nQ: How many?\n\nA: '
    """

    system: str = STEP_BY_STEP
    user: str = "{question}"
    """Holds `{question}` once."""
    prefill: str = ""

    def __post_init__(self) -> None:
        if self.user.count("{question}") != 1:
            expected = "a text with {question} in it once"
            raise InputError(expected, repr(self.user), where="wording: 'user'")

    def prompt(self, question: str) -> Prompt:
        """The prompt for one question; braces in it mean nothing."""
        return Prompt(self.user.replace("{question}", question), self.system, self.prefill)


def gsm8k(
    path: str | Path | None = None,
    *,
    dataset: str = "openai/gsm8k",
    shares: Mapping[str, float] | None = None,
    seed: int = 0,
    wording: Mapping[str, str] | None = None,
    max_tokens: int = 256,
) -> Task:
    """Grade-school problems in words; the test split is the one that they were published with.

    Args:
        path: A folder with `train.jsonl` and `test.jsonl`; without one, the Hugging Face dataset.
        dataset: That dataset's name, or a folder that the datasets library reads.
        shares: How the published training questions are shared out.
        seed: The key of that.
        wording: Fields of `Wording` that differ from its defaults.
        max_tokens: The cap of completions.
    """
    if path is None:
        parts = {part: _hub(dataset, part, config="main") for part in ("train", "test")}
    else:
        parts = {part: _lines(Path(path) / f"{part}.jsonl") for part in ("train", "test")}

    def read(row: Row) -> tuple[str, str]:
        worked = _text(row, "answer")
        if "####" not in worked:
            expected = "an answer with ####"
            raise InputError(expected, repr(worked[-40:]))
        return _text(row, "question"), worked.rpartition("####")[2]

    return assembled("gsm8k", parts, read, Reading.NUMBER, shares, seed, wording, max_tokens)


def svamp(
    path: str | Path | None = None,
    *,
    dataset: str = "ChilleD/SVAMP",
    shares: Mapping[str, float] | None = None,
    seed: int = 0,
    wording: Mapping[str, str] | None = None,
    max_tokens: int = 256,
) -> Task:
    """Short problems in words; from one file, all splits are cut, else the test split is the published one.

    Args:
        path: The file `SVAMP.json`; without one, the Hugging Face dataset.
        dataset: That dataset's name, or a folder that the datasets library reads.
        shares: How the questions are shared out.
        seed: The key of that.
        wording: Fields of `Wording` that differ from its defaults.
        max_tokens: The cap of completions.
    """
    published = ("train", "test")
    parts = {p: _hub(dataset, p) for p in published} if path is None else {"train": _whole(Path(path))}

    def read(row: Row) -> tuple[str, str]:
        body = _text(row, "Body").strip()
        stop = "" if body.endswith((".", "?", "!", ",")) else "."
        return f"{body}{stop} {_text(row, 'Question').strip()}", str(row.get("Answer"))

    return assembled("svamp", parts, read, Reading.NUMBER, shares, seed, wording, max_tokens)


def jsonl(
    path: str | Path,
    *,
    test: str | Path | None = None,
    question: str = "question",
    answer: str = "answer",
    id: str | None = None,
    group: str | None = None,
    reading: str = "number",
    shares: Mapping[str, float] | None = None,
    seed: int = 0,
    wording: Mapping[str, str] | None = None,
    max_tokens: int = 256,
    name: str = "jsonl",
) -> Task:
    """Any questions with answers.

    Args:
        path: JSON lines, or the name of a Hugging Face dataset as `hub:NAME` or `hub:NAME:CONFIG`.
        test: A file of its own for the test split.
        question: The field with the question.
        answer: The field with the trusted answer.
        id: The field with the id; without one, questions are numbered.
        group: The field by which questions belong together.
        reading: `number`, `bare` or `text`: see `Reading`.
        shares: How the questions of `path` are shared out.
        seed: The key of that.
        wording: Fields of `Wording` that differ from its defaults.
        max_tokens: The cap of completions.
        name: What the task is called.
    """
    if reading not in list(Reading):
        expected = f"one of {', '.join(Reading)}"
        raise InputError(expected, repr(reading), where="argument 'reading'")
    parts = {"train": _from(path, "train")} | ({} if test is None else {"test": _from(test, "test")})

    def read(row: Row) -> tuple[str, str]:
        given = row.get(answer)
        if isinstance(given, bool) or not isinstance(given, str | int | float):
            expected = f"text or a number in field '{answer}'"
            raise InputError(expected, repr(given))
        return _text(row, question), str(given)

    return assembled(
        name, parts, read, Reading(reading), shares, seed, wording, max_tokens, id_field=id, group_field=group
    )


def assembled(
    name: str,
    parts: Mapping[str, Iterable[tuple[str, Row]]],
    read: Reader,
    reading: Reading,
    shares: Mapping[str, float] | None,
    seed: int,
    wording: Mapping[str, str] | None,
    max_tokens: int,
    *,
    id_field: str | None = None,
    group_field: str | None = None,
    oracle: Oracle | None = None,
) -> Task:
    """Make a task of rows.

    Args:
        name: What it is called.
        parts: Where each row stands, and the row; `train` is shared out, `test` stays whole.
        read: Question and trusted answer of a row.
        reading: How answers are found and compared.
        shares: How the rows of `train` are shared out.
        seed: The key of that.
        wording: Fields of `Wording` that differ from its defaults.
        max_tokens: The cap of completions.
        id_field: The field with the id, if there is one.
        group_field: The field by which rows belong together, if there is one.
        oracle: The clean verdict, where comparing answers is not enough; it reads trusted answers as they are.

    Raises:
        InputError: Naming the row that does not fit.
    """
    try:
        worded = Wording(**(wording or {}))
    except TypeError:
        expected = "the fields system, user and prefill"
        raise InputError(expected, ", ".join(map(repr, wording or {})), where="argument 'wording'") from None
    made: dict[str, list[Question]] = {}
    seen: set[str] = set()
    for part, rows in parts.items():
        made[part] = []
        for number, (where, row) in enumerate(rows):
            try:
                text, answer = read(row)
                reference = reading.reference(answer) if oracle is None else answer
                ident = f"{part}-{number}" if id_field is None else _name(row, id_field)
                group = ident if group_field is None else _name(row, group_field)
            except InputError as error:
                raise InputError(str(error), where=where) from None
            if ident in seen:
                expected = "each id once"
                raise InputError(expected, repr(ident), where=where)
            seen.add(ident)
            made[part].append(Question(ident, text, reference, group, worded.prompt(text)))
    published = "test" in made
    if shares is None and published:
        shares = {"train": 0.6, "calibration": 0.3, "held-out": 0.1}
    elif shares is not None and published and shares.get("test"):
        expected = "shares without a test split, which comes from a file of its own"
        raise InputError(expected, repr(dict(shares)), where="argument 'shares'")
    splits = divide(grouped(made["train"]), shares, seed=seed)
    if published:
        splits["test"] = tuple(grouped(made["test"]))
    task = Task(name, splits, oracle or Oracle(reading), max_tokens)
    task.manifest()  # raises where published parts overlap
    return task


def _text(row: Row, field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        expected = f"text in field '{field}'"
        raise InputError(expected, repr(value))
    return value


def _name(row: Row, field: str) -> str:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        expected = f"text or a whole number in field '{field}'"
        raise InputError(expected, repr(value))
    return str(value)


def _from(path: str | Path, part: str) -> Iterator[tuple[str, Row]]:
    kind, _, rest = str(path).partition(":")
    if kind != "hub":
        return _lines(Path(path))
    name, _, config = rest.partition(":")
    return _hub(name, part, config=config or None)


def _object(text: str, where: str) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
        # Halves of surrogate pairs are no text that anything could be made of.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        expected = "JSON"
        raise InputError(expected, str(error), where=where) from None
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        expected = "a file with questions"
        raise InputError(expected, getattr(error, "strerror", None) or str(error), where=str(path)) from None


def _lines(path: Path) -> Iterator[tuple[str, Row]]:
    for number, line in enumerate(_read(path).split("\n"), 1):
        if line.strip():
            where = f"{path}: line {number}"
            yield _row(_object(line, where), where)


def _whole(path: Path) -> Iterator[tuple[str, Row]]:
    rows = _object(_read(path), str(path))
    if not isinstance(rows, list):
        expected = "a list of objects"
        raise InputError(expected, type(rows).__name__, where=str(path))
    for number, row in enumerate(rows, 1):
        yield _row(row, f"{path}: entry {number}")


def _row(row: Any, where: str) -> tuple[str, Row]:
    if not isinstance(row, dict):
        expected = "an object"
        raise InputError(expected, type(row).__name__, where=where)
    return where, row


def _hub(name: str, part: str, *, config: str | None = None) -> Iterator[tuple[str, Row]]:
    """The rows of a part of a Hugging Face dataset, or of a folder that the datasets library reads."""
    where = f"dataset '{name}'"
    try:
        from datasets import load_dataset
    except ImportError:
        expected = "the library datasets (pip install 'audit-first-vapo[trl]'), or a local file"
        raise InputError(expected, "no such library installed", where=where) from None
    try:
        rows = load_dataset(name, None if Path(name).is_dir() else config, split=part)
    except (OSError, ValueError, RuntimeError) as error:
        expected = f"a dataset with a part '{part}' on the Hugging Face hub, in its cache or in a folder"
        raise InputError(expected, str(error).strip().split("\n")[0], where=where) from error
    for number, row in enumerate(rows, 1):
        yield f"{where}: {part}: row {number}", row
