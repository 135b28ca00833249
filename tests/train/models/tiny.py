"""Small models that are quick to make: the embedded one, and random ones of other architectures."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from vapo.train.models.embedded import CharacterModel, Shape
from vapo.train.models.loaded import LoadedModel
from vapo.train.models.wrapped import character_tokenizer

SHAPE = Shape(width=64, layers=2, heads=4)
TEMPLATE = (
    "{% for message in messages %}({{ message['content'] }})\n{% endfor %}"
    "{% if add_generation_prompt %}={% endif %}"
)
PROMPTS = ["12+34=", "7+8=", "12+34=", "123+456=", "7+8=", "12+34="]


# Llama 3.2 turns its slow angles more slowly still.
ANGLES = {
    "rope_type": "llama3", "rope_theta": 500_000.0, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def embedded() -> CharacterModel:
    return CharacterModel(SHAPE, seed=3)


def llama() -> LoadedModel:
    config = LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None, tie_word_embeddings=True,
        initializer_range=0.2, rope_parameters=ANGLES,
    )  # fmt: skip
    return _loaded(LlamaForCausalLM, config, "llama")


QWEN = {
    "vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "pad_token_id": 0, "eos_token_id": 1,
    "tie_word_embeddings": True, "initializer_range": 0.2,
}  # fmt: skip


def qwen() -> LoadedModel:
    return _loaded(Qwen3_5ForCausalLM, Qwen3_5TextConfig(**QWEN), "qwen3_5")


def _loaded(kind, config, name) -> LoadedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = kind(config)
    return LoadedModel(module.eval(), character_tokenizer(), name=name, source="0" * 64)


MODELS = {"embedded": embedded, "llama": llama, "qwen3_5": qwen}
