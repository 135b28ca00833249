"""Teaching the embedded model part of a task, until it is as accurate as wanted and no longer."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from vapo._internal.keyed import canonical_json, keyed_fraction, sha256_hex
from vapo.errors import InputError, IntegrityError
from vapo.tasks import Question, Task
from vapo.train.models import cache_folder
from vapo.train.models.embedded import CharacterModel, Shape
from vapo.verifiers.origin import source_of

__all__ = ["Recipe", "model_digest", "pretrained", "probability", "teach"]

_WARM_UP = 50
_CHECK_EVERY = 10


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an embedded model comes to be. Equal recipes on equal tasks give equal weights on one machine.

    Example:
        >>> Recipe(accuracy=0.6).accuracy
        0.6
    """

    accuracy: float = 0.5
    """Where teaching stops: the mean probability of exactly the right completion, on questions that were not taught."""
    copies: float = 0.0
    """Share of lessons whose answer is the question itself, not worked out: a habit that can be rewarded by mistake."""
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    batch: int = 64
    rate: float = 2e-3
    """Learning rate of AdamW, after a warm-up of 50 steps."""
    measured: float = 0.15
    """Share of the groups that are not taught: on them the checkpoint is chosen."""
    most: int = 4000
    """Steps after which it is given up."""

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Shape):
            expected = "a table with width, layers, heads and places"
            raise InputError(expected, repr(self.shape), where="recipe: 'shape'")
        for name, low, high in (("accuracy", 0.0, 1.0), ("copies", 0.0, 1.0), ("measured", 0.0, 1.0)):
            if not low <= getattr(self, name) < high:
                expected = f"a share in [{low:g}, {high:g})"
                raise InputError(expected, repr(getattr(self, name)), where=f"recipe: '{name}'")
        if self.accuracy + self.copies >= 1 or not self.measured:
            expected = "something to measure on, and an accuracy that the share of copies leaves room for"
            got = f"accuracy {self.accuracy:g}, copies {self.copies:g}, measured {self.measured:g}"
            raise InputError(expected, got, where="recipe")


@dataclass(frozen=True, slots=True)
class _Lessons:
    """Prompts with their completions as tokens, padded on the right; `taught` marks the completions."""

    tokens: torch.Tensor
    taught: torch.Tensor

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def of(cls, model: CharacterModel, pairs: Sequence[tuple[str, str]]) -> _Lessons:
        rows = [(model.encode(prompt), [*model.encode(answer), model.eos]) for prompt, answer in pairs]
        width = max(len(prompt) + len(answer) for prompt, answer in rows)
        tokens = torch.full((len(rows), width), model.pad, dtype=torch.long)
        taught = torch.zeros((len(rows), width), dtype=torch.bool)
        for number, (prompt, answer) in enumerate(rows):
            tokens[number, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
            taught[number, len(prompt) : len(prompt) + len(answer)] = True
        return cls(tokens, taught)

    def take(self, rows: torch.Tensor) -> _Lessons:
        return _Lessons(self.tokens[rows], self.taught[rows])


def _losses(model: CharacterModel, lessons: _Lessons) -> torch.Tensor:
    """Negative log probability of every token, 0 where nothing is taught."""
    given, wanted, counts = lessons.tokens[:, :-1], lessons.tokens[:, 1:], lessons.taught[:, 1:]
    # Padding stands behind the answers, where nothing that is taught can see it.
    out, _ = model.logits(given, torch.ones_like(given, dtype=torch.bool))
    return functional.cross_entropy(out.transpose(1, 2), wanted, reduction="none") * counts


@torch.no_grad()
def probability(model: CharacterModel, pairs: Sequence[tuple[str, str]] | _Lessons) -> float:
    """The mean probability with which prompts are completed exactly so: the accuracy of sampling, without its noise.

    Example:
        >>> model = CharacterModel(Shape(width=16, layers=1, heads=2))
        >>> 0 < probability(model, [("1+2=", "3")]) < 1
        True
    """
    lessons = pairs if isinstance(pairs, _Lessons) else _Lessons.of(model, pairs)
    model.module.eval()
    return float(_losses(model, lessons).sum(dim=1).neg().exp().mean())


def teach(
    model: CharacterModel,
    lessons: Sequence[tuple[str, str]],
    measured: Sequence[tuple[str, str]],
    recipe: Recipe,
    *,
    copies: Sequence[tuple[str, str]] = (),
) -> dict[str, float]:
    """Teach a fresh model, in place, until it is as accurate on `measured` as the recipe wants.

    Args:
        model: The model.
        lessons: Prompts with right answers.
        measured: Prompts with right answers that are not taught.
        recipe: Where to stop, and how to learn.
        copies: Lessons for the habit of copying, drawn at the recipe's rate.

    Returns:
        The steps that were taken, and the accuracy that was reached.

    Raises:
        InputError: If the accuracy is not reached.
    """
    right, exam = _Lessons.of(model, [*lessons, *copies]), _Lessons.of(model, measured)
    chance = torch.Generator().manual_seed(recipe.seed)
    optimiser = torch.optim.AdamW(
        model.module.parameters(), lr=recipe.rate, weight_decay=0.01, betas=(0.9, 0.95)
    )
    reached = 0.0
    for step in range(1, recipe.most + 1):
        for group in optimiser.param_groups:
            group["lr"] = recipe.rate * min(1.0, step / _WARM_UP)
        rows = torch.randint(len(lessons), (recipe.batch,), generator=chance)
        if copies:
            copied = torch.rand(recipe.batch, generator=chance) < recipe.copies
            others = len(lessons) + torch.randint(len(copies), (recipe.batch,), generator=chance)
            rows = torch.where(copied, others, rows)
        some = right.take(rows)
        model.module.train()
        loss = _losses(model, some).sum() / some.taught.sum()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.module.parameters(), 1.0)
        optimiser.step()
        if step % _CHECK_EVERY == 0:
            reached = probability(model, exam)
            if reached >= recipe.accuracy:
                return {"steps": float(step), "accuracy": reached}
    expected = f"an accuracy of {recipe.accuracy:g} within {recipe.most} steps"
    raise InputError(expected, f"{reached:.3f}", where="pre-training")


def pretrained(
    task: Task, recipe: Recipe | None = None, *, cache: str | Path | None = None
) -> CharacterModel:
    """The embedded model, taught the questions of a task's split `pretrain` only.

    The checkpoint is the first one that reaches the accuracy, measured on groups of that split which are not taught. So
    the questions of every other split are alike to it: it has seen none of them, and none had a say in choosing it.

    Args:
        task: A task whose prompts and answers the model's alphabet can write.
        recipe: How to teach it.
        cache: The folder that keeps what was taught before; default `cache_folder()`.

    Raises:
        InputError: If the accuracy is not reached.
        IntegrityError: If the kept weights are not those that were put there.
    """
    recipe = recipe or Recipe()
    model = CharacterModel(recipe.shape, seed=recipe.seed)
    model.source = model_digest(task, recipe)
    file = Path(cache if cache is not None else cache_folder()) / f"embedded-{model.source}.safetensors"
    if file.is_file():
        model.taught = _restore(model, file)
        return model
    lessons, measured = _parts(task.split("pretrain"), recipe)
    copies = [(prompt, prompt.rstrip("= ")) for prompt, _ in lessons] if recipe.copies else []
    with _one_thread():
        model.taught = teach(model, lessons, measured, recipe, copies=copies)
    _keep(model, file)
    return model


def model_digest(task: Task, recipe: Recipe) -> str:
    """SHA-256 of everything that fixes the weights: lessons, recipe, code and the library that computes."""
    lessons = [
        [question.prompt.plain, question.reference, question.group] for question in task.split("pretrain")
    ]
    settings = {"lessons": sha256_hex(canonical_json(lessons)), **asdict(recipe)}
    modules = [__name__, "vapo.train.models.embedded"]
    return source_of("embedded", settings, modules=modules, libraries=["torch"]).digest


def _parts(
    questions: Sequence[Question], recipe: Recipe
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    parts: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    for question in questions:
        chosen = keyed_fraction(b"vapo pre-training", question.group) < recipe.measured
        parts[chosen].append((question.prompt.plain, question.reference))
    if not all(parts):
        expected = "questions to teach and questions to measure on"
        raise InputError(expected, f"{len(parts[0])} and {len(parts[1])}", where="split 'pretrain'")
    return parts


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """The order in which numbers are added up, and so the weights, must not depend on how many cores there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _weights_digest(model: CharacterModel) -> str:
    parts = [(name, weight.numpy().tobytes()) for name, weight in sorted(model.module.state_dict().items())]
    return sha256_hex(b"".join(name.encode() + b"\0" + weight for name, weight in parts))


def _keep(model: CharacterModel, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    told = {"weights": _weights_digest(model), "taught": json.dumps(dict(model.taught))}
    temporary = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        save_file(dict(model.module.state_dict()), temporary, metadata=told)
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def _restore(model: CharacterModel, file: Path) -> dict[str, float]:
    try:
        with safe_open(file, "pt") as kept:
            told = kept.metadata() or {}
            model.module.load_state_dict({name: kept.get_tensor(name) for name in kept.keys()})  # noqa: SIM118
        taught = {name: float(value) for name, value in json.loads(told["taught"]).items()}
        sound = told["weights"] == _weights_digest(model)
    except (SafetensorError, OSError, RuntimeError, KeyError, ValueError) as error:
        msg = f"{file}: cannot be read as the weights of an embedded model ({error}); delete it to teach it anew"
        raise IntegrityError(msg) from None
    if not sound:
        msg = f"{file}: the weights are not those that were kept there; delete it to teach it anew"
        raise IntegrityError(msg)
    return taught
