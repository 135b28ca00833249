"""The embedded model: a character-level transformer that is pre-trained in seconds, and sampled fast on one core."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError
from vapo.tasks import Prompt

__all__ = ["ALPHABET", "CharacterModel", "Shape", "Transformer"]

ALPHABET = "0123456789+-*/=(). \n"
"""What it can read and write, next to its padding and its end token."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of the transformer; the default has 0.6 million parameters.

    Example:
        >>> Shape(width=64, heads=8).width
        64
    """

    width: int = 128
    layers: int = 3
    heads: int = 4
    places: int = 48
    """The longest sequence."""

    def __post_init__(self) -> None:
        if min(self.width, self.layers, self.heads, self.places) < 1 or self.width % self.heads:
            expected = "positive sizes, the width a multiple of the heads"
            raise InputError(expected, str(asdict(self)), where="embedded model")


class _Block(nn.Module):
    """Attention and a feed-forward layer, each behind a norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before = nn.LayerNorm(shape.width)
        self.mix = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.between = nn.LayerNorm(shape.width)
        self.wide = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor, seen: torch.Tensor, cache: Any, number: int) -> torch.Tensor:
        rows, places, width = x.shape
        parts = self.mix(self.before(x)).view(rows, places, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            key, value = cache.update(key, value, number)
        mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=seen)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, places, width))
        added: torch.Tensor = self.narrow(functional.gelu(self.wide(self.between(x))))
        return x + added


class _Cache:
    """Keys and values of earlier places, layer by layer; grows as caches of transformers do."""

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()) -> None:
        self.pairs = list(pairs)

    def update(self, key: torch.Tensor, value: torch.Tensor, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Put new places behind those of a layer, and return all."""
        if layer == len(self.pairs):
            self.pairs.append((key, value))
        else:
            before = self.pairs[layer]
            self.pairs[layer] = (torch.cat([before[0], key], dim=2), torch.cat([before[1], value], dim=2))
        return self.pairs[layer]


class Transformer(nn.Module):
    """Characters to logits."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(vocabulary, shape.width)
        self.places = nn.Embedding(shape.places, shape.width)
        self.blocks = nn.ModuleList(_Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        # Wide enough to learn fast: with the usual 0.02 a model of this width needs three times the steps.
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=1.0 / math.sqrt(shape.width))

    def hidden(self, tokens: torch.Tensor, mask: torch.Tensor, cache: Any, last: int = 0) -> torch.Tensor:
        """What is known behind the last of the new tokens (0 for all); the cache is extended in place."""
        new, whole = tokens.shape[1], mask.shape[1]
        if whole > self.places.num_embeddings:
            expected = f"at most {self.places.num_embeddings} characters with the completion"
            raise InputError(expected, str(whole), where="embedded model")
        place = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -new:]
        order = torch.arange(whole, device=mask.device)
        causal = order[None, :] <= order[whole - new :, None]
        # A padded place may look at itself, so that no row of the attention is empty.
        seen = (causal[None] & mask[:, None, :]) | (order[None, :] == order[whole - new :, None])[None]
        x = self.characters(tokens) + self.places(place)
        for number, block in enumerate(self.blocks):
            x = block(x, seen[:, None], cache, number)
        known: torch.Tensor = self.norm(x[:, -last:] if last else x)
        return known

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor, cache: Any, last: int) -> torch.Tensor:
        """Logits of the next character."""
        return functional.linear(self.hidden(tokens, mask, cache, last), self.characters.weight)


class CharacterModel:
    """The embedded model, as an engine sees it.

    Example:
        >>> model = CharacterModel(Shape(width=16, layers=1, heads=2), seed=1)
        >>> model.decode(model.encode("12+34="))
        '12+34='
    """

    pad, eos = 0, 1
    name = "embedded"

    def __init__(self, shape: Shape | None = None, *, seed: int = 0) -> None:
        self.shape = shape or Shape()
        self.seed = seed
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.module: nn.Module = Transformer(self.shape, len(ALPHABET) + 2)
        fixed = {"shape": asdict(self.shape), "seed": seed, "alphabet": ALPHABET}
        self.source = sha256_hex(canonical_json(fixed))
        self.taught: Mapping[str, float] = {}
        """How it was pre-trained, as far as it was: steps, and the accuracy that was reached."""

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return sum(weight.numel() for weight in self.module.parameters())

    def render(self, prompt: Prompt) -> str:
        """The prompt as plain text."""
        return prompt.plain

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        try:
            return [ALPHABET.index(letter) + 2 for letter in text]
        except ValueError:
            foreign = next(letter for letter in text if letter not in ALPHABET)
            expected = f"only the characters {ALPHABET!r}"
            raise InputError(expected, repr(foreign), where="embedded model") from None

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""
        return "".join(ALPHABET[token - 2] for token in tokens if token >= 2)

    def logits(
        self, tokens: torch.Tensor, mask: torch.Tensor, cache: Any = None, *, last: int = 0
    ) -> tuple[torch.Tensor, Any]:
        """Logits of the next token; see `LanguageModel.logits`."""
        kept = _Cache() if cache == () else cache
        return self.module(tokens, mask, kept, last), kept

    def pick(self, cache: Any, rows: torch.Tensor) -> Any:
        """The cache of some rows."""
        return _Cache([(key[rows], value[rows]) for key, value in cache.pairs])
