"""The embedded model as transformers knows models, so that any trainer built on transformers can train it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from vapo.train.models.embedded import ALPHABET, CharacterModel, Shape, Transformer

__all__ = ["CharacterConfig", "CharacterForCausalLM", "as_transformers", "character_tokenizer"]


class CharacterConfig(PreTrainedConfig):  # type: ignore[misc]
    """Size and alphabet of an embedded model."""

    model_type = "vapo-character"
    # What transformers calls the same things, where its caches ask for them.
    attribute_map = {  # noqa: RUF012 - transformers reads it from the class
        "hidden_size": "width",
        "num_hidden_layers": "layers",
        "num_attention_heads": "heads",
        "max_position_embeddings": "places",
    }

    width: int = 128
    layers: int = 3
    heads: int = 4
    places: int = 48
    alphabet: str = ALPHABET
    vocab_size: int = len(ALPHABET) + 2
    pad_token_id: int = CharacterModel.pad
    eos_token_id: int = CharacterModel.eos
    bos_token_id: int | None = None
    tie_word_embeddings: bool = True

    @property
    def shape(self) -> Shape:
        """The size as the embedded model takes it."""
        return Shape(self.width, self.layers, self.heads, self.places)


class _Backbone(nn.Module):
    """The transformer without its head, under the signature that trainers call."""

    def __init__(self, inner: Transformer) -> None:
        super().__init__()
        self.inner = inner

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        *,
        use_cache: bool | None = False,
        logits_to_keep: int = 0,
        **others: Any,
    ) -> BaseModelOutputWithPast:
        del others  # Positions follow from the mask.
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        before = 0 if past_key_values is None else past_key_values.get_seq_length()
        if attention_mask is None:
            attention_mask = torch.ones(
                len(input_ids), before + input_ids.shape[1], dtype=torch.bool, device=input_ids.device
            )
        hidden = self.inner.hidden(input_ids, attention_mask.bool(), past_key_values, logits_to_keep)
        return BaseModelOutputWithPast(last_hidden_state=hidden, past_key_values=past_key_values)


class CharacterForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """The embedded model with its head; the head's weights are those of its characters."""

    config_class = CharacterConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.inner.characters.weight"}  # noqa: RUF012
    _no_split_modules = ["_Block"]  # noqa: RUF012
    _supports_sdpa = True

    def __init__(self, config: CharacterConfig, inner: Transformer | None = None) -> None:
        super().__init__(config)
        self.model = _Backbone(inner or Transformer(config.shape, config.vocab_size))
        self.lm_head = nn.Linear(config.width, config.vocab_size, bias=False)
        self.lm_head.weight = self.model.inner.characters.weight
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """The transformer has drawn its own weights."""

    def get_input_embeddings(self) -> nn.Module:
        """The characters."""
        return self.model.inner.characters

    def get_output_embeddings(self) -> nn.Module:
        """The head."""
        return self.lm_head

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        labels: torch.Tensor | None = None,
        use_cache: bool | None = None,  # noqa: FBT001 - as every model of transformers takes it
        logits_to_keep: int = 0,
        **others: Any,
    ) -> CausalLMOutputWithPast:
        """Logits of the next character."""
        out = self.model(
            input_ids, attention_mask, past_key_values, use_cache=use_cache, logits_to_keep=logits_to_keep
        )
        logits = self.lm_head(out.last_hidden_state)
        loss = (
            None if labels is None else self.loss_function(logits, labels, self.config.vocab_size, **others)
        )
        return CausalLMOutputWithPast(loss=loss, logits=logits, past_key_values=out.past_key_values)


AutoConfig.register(CharacterConfig.model_type, CharacterConfig)
AutoModelForCausalLM.register(CharacterConfig, CharacterForCausalLM)


def character_tokenizer() -> Any:
    """The embedded model's characters as a tokenizer of transformers.

    Example:
        >>> tokens = character_tokenizer()("12+34=")["input_ids"]
        >>> tokens == CharacterModel(Shape(16, 1, 2)).encode("12+34=")
        True
    """
    pad, end = "<pad>", "<eos>"
    numbers = {pad: CharacterModel.pad, end: CharacterModel.eos}
    numbers |= {letter: place + 2 for place, letter in enumerate(ALPHABET)}
    tokenizer = Tokenizer(models.WordLevel(numbers))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def as_transformers(model: CharacterModel) -> tuple[Any, Any]:
    """The embedded model and its tokenizer as transformers knows them; the weights are shared, not copied.

    Example:
        >>> model = CharacterModel(Shape(width=16, layers=1, heads=2))
        >>> wrapped, tokenizer = as_transformers(model)
        >>> wrapped.get_input_embeddings() is model.module.characters, tokenizer.eos_token_id == model.eos
        (True, True)
    """
    assert isinstance(model.module, Transformer)
    wrapped = CharacterForCausalLM(CharacterConfig(**asdict(model.shape)), model.module)
    return wrapped, character_tokenizer()
