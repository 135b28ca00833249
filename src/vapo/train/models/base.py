"""What an engine asks of a language model, and the two things that it does with one: sampling and scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional

from vapo.errors import InputError
from vapo.tasks import Prompt

__all__ = ["LanguageModel", "Sampled", "pad_prompts", "sample", "score"]


class LanguageModel(Protocol):
    """Tokens in, logits out, with a cache for sampling."""

    module: torch.nn.Module
    """What is trained."""
    pad: int
    eos: int
    """The one token that ends a completion."""
    name: str
    """How it is called in files."""
    source: str
    """SHA-256 of everything that fixes its first weights and its tokens."""

    def render(self, prompt: Prompt) -> str:
        """The text that a completion is the continuation of."""
        ...

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""
        ...

    def logits(
        self, tokens: torch.Tensor, mask: torch.Tensor, cache: Any = None, *, last: int = 0
    ) -> tuple[torch.Tensor, Any]:
        """Logits of the next token behind each of `tokens`, and the cache that has seen them.

        Args:
            tokens: New tokens, rows by places.
            mask: Which places are real, of all tokens so far.
            cache: What an earlier call returned; `None` to begin without keeping one, `()` to begin one.
            last: How many places from the end logits are wanted for; 0 for all.
        """
        ...

    def pick(self, cache: Any, rows: torch.Tensor) -> Any:
        """The cache of some rows, each as often as it is named."""
        ...


@dataclass(frozen=True, slots=True)
class Sampled:
    """Completions of some prompts, and what they were sampled with."""

    prompts: torch.Tensor
    """Prompt tokens, padded on the left."""
    prompt_mask: torch.Tensor
    tokens: torch.Tensor
    """Completion tokens, padded on the right; the end token belongs to the completion."""
    mask: torch.Tensor
    logp: torch.Tensor
    """Log probability of each token under the sampling law; 0 where masked."""
    finished: torch.Tensor
    """Whether the end token came before the cap."""
    texts: list[str]

    @property
    def lengths(self) -> torch.Tensor:
        """Tokens of each completion."""
        return self.mask.sum(dim=1)


def pad_prompts(model: LanguageModel, prompts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompt tokens padded on the left, and which of them are real."""
    rows = [model.encode(prompt) for prompt in prompts]
    if not rows or not all(rows):
        expected = "at least one prompt, none of them empty"
        raise InputError(expected, f"{len(rows)} prompts", where="sampling")
    width = max(map(len, rows))
    tokens = torch.full((len(rows), width), model.pad, dtype=torch.long)
    mask = torch.zeros((len(rows), width), dtype=torch.bool)
    for number, row in enumerate(rows):
        tokens[number, width - len(row) :] = torch.tensor(row)
        mask[number, width - len(row) :] = True
    device = next(model.module.parameters()).device
    return tokens.to(device), mask.to(device)


def _begin(
    model: LanguageModel, prompts: Sequence[str]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Any]:
    """Prompt tokens and mask, the logits behind them and the cache; a prompt that comes often is read once."""
    place: dict[str, int] = {}
    rows = [place.setdefault(prompt, len(place)) for prompt in prompts]
    tokens, mask = pad_prompts(model, list(place))
    out, cache = model.logits(tokens, mask, (), last=1)
    if len(place) == len(rows):
        return tokens, mask, out[:, -1], cache
    index = torch.tensor(rows, device=tokens.device)
    return tokens[index], mask[index], out[:, -1][index], model.pick(cache, index)


@torch.no_grad()
def sample(
    model: LanguageModel,
    prompts: Sequence[str],
    *,
    max_tokens: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> Sampled:
    """One completion of each prompt, token by token with a cache.

    Args:
        model: The model.
        prompts: One prompt a completion; repeat a prompt for several.
        max_tokens: The cap.
        temperature: 0 takes the most likely token.
        generator: Where chance comes from (on the CPU); the same state gives the same completions.
    """
    if max_tokens < 1 or temperature < 0:
        expected = "max_tokens >= 1 and temperature >= 0"
        raise InputError(expected, f"{max_tokens} and {temperature:g}", where="sampling")
    model.module.eval()
    given, given_mask, out, cache = _begin(model, prompts)
    rows, mask, device = len(given), given_mask, given.device
    alive = torch.ones(rows, dtype=torch.bool, device=device)
    tokens = torch.full((rows, max_tokens), model.pad, dtype=torch.long, device=device)
    logp = torch.zeros((rows, max_tokens), device=device)
    real = torch.zeros((rows, max_tokens), dtype=torch.bool, device=device)
    for place in range(max_tokens):
        law = functional.log_softmax(out.float() / (temperature or 1.0), dim=-1)
        chosen = _drawn(law, generator) if temperature else law.argmax(dim=-1)
        tokens[:, place] = torch.where(alive, chosen, model.pad)
        logp[:, place] = torch.where(alive, law.gather(1, chosen[:, None])[:, 0], 0.0)
        real[:, place] = alive
        alive = alive & (chosen != model.eos)
        if place == max_tokens - 1 or not alive.any():
            break
        mask = torch.cat([mask, real[:, place : place + 1]], dim=1)
        logits, cache = model.logits(tokens[:, place : place + 1], mask, cache, last=1)
        out = logits[:, -1]
    width = int(real.any(dim=0).sum())
    tokens, logp, real = tokens[:, :width], logp[:, :width], real[:, :width]
    texts = [
        model.decode([t for t, kept in zip(row, keep, strict=True) if kept and t != model.eos])
        for row, keep in zip(tokens.tolist(), real.tolist(), strict=True)
    ]
    return Sampled(given, given_mask, tokens, real, logp, ~alive, texts)


def _drawn(law: torch.Tensor, generator: torch.Generator | None) -> torch.Tensor:
    """One token a row, by the inverse of the distribution function: one number a row, whatever the vocabulary."""
    draw = torch.rand(len(law), 1, generator=generator).to(law.device)
    summed = law.exp().cumsum(dim=-1)
    return (summed <= draw * summed[:, -1:]).sum(dim=-1).clamp(max=law.shape[-1] - 1)


def score(
    model: LanguageModel, batch: Sampled, *, temperature: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probability of each completion token, and the entropy of the law that it came from.

    Args:
        model: The model; gradients flow where they are enabled.
        batch: Completions with their prompts.
        temperature: What they were sampled with.
    """
    width = batch.tokens.shape[1]
    whole = torch.cat([batch.prompts, batch.tokens], dim=1)
    mask = torch.cat([batch.prompt_mask, batch.mask], dim=1)
    out, _ = model.logits(whole, mask, None, last=width + 1)
    law = functional.log_softmax(
        out[:, :-1].to(torch.promote_types(out.dtype, torch.float32)) / temperature, dim=-1
    )
    taken = law.gather(2, batch.tokens[:, :, None])[:, :, 0]
    with torch.no_grad():
        entropy = -(law.exp() * law).sum(dim=-1)
    return taken * batch.mask, entropy * batch.mask
