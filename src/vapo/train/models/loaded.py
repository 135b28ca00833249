"""Whatever transformers loads, from a folder or from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import processors
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.cache_utils import DynamicCache

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError
from vapo.tasks import Prompt

__all__ = ["TEMPLATE", "LoadedModel", "load"]

TEMPLATE: Mapping[str, Any] = {"date_string": "26 Jul 2024", "enable_thinking": False}
"""What chat templates are told: a date that stays (Llama's writes today's otherwise), and not to think aloud."""

_FILES = ("*.json", "*.safetensors", "*.jinja", "*.model", "*.txt")


class LoadedModel:
    """A causal language model of transformers with its tokenizer, as an engine sees it.

    Args:
        module: The model.
        tokenizer: Its tokenizer.
        name: How it is called in files.
        source: SHA-256 of everything that fixes weights and tokens.
        template: What its chat template is told.
    """

    def __init__(
        self,
        module: Any,
        tokenizer: Any,
        *,
        name: str,
        source: str,
        template: Mapping[str, Any] | None = None,
    ) -> None:
        if tokenizer.eos_token_id is None:
            expected = "a tokenizer with an end token"
            raise InputError(expected, "one without", where=name)
        self.module: torch.nn.Module = module
        self.tokenizer = tokenizer
        self.name = name
        self.source = source
        self.template = dict(TEMPLATE if template is None else template)
        self.eos: int = tokenizer.eos_token_id
        self.pad: int = self.eos if tokenizer.pad_token_id is None else tokenizer.pad_token_id
        tokenizer.padding_side = "left"
        if tokenizer.chat_template:
            # The template writes the special tokens itself; a second first token would be a prompt never seen before.
            tokenizer.backend_tokenizer.post_processor = processors.Sequence([])

    def render(self, prompt: Prompt) -> str:
        """The prompt in the model's chat template, up to the beginning of the answer; as plain text without one."""
        if not self.tokenizer.chat_template:
            return prompt.plain
        text = self.tokenizer.apply_chat_template(
            prompt.messages, tokenize=False, add_generation_prompt=True, **self.template
        )
        return f"{text}{prompt.prefill}"

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(self.tokenizer(text)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def logits(
        self, tokens: torch.Tensor, mask: torch.Tensor, cache: Any = None, *, last: int = 0
    ) -> tuple[torch.Tensor, Any]:
        """Logits of the next token; see `LanguageModel.logits`."""
        kept = DynamicCache(config=self.module.config) if cache == () else cache
        places = (mask.long().cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.shape[1] :]
        out = self.module(
            input_ids=tokens,
            attention_mask=mask.long(),
            position_ids=places,
            past_key_values=kept,
            use_cache=kept is not None,
            logits_to_keep=last,
        )
        return out.logits, kept

    def pick(self, cache: Any, rows: torch.Tensor) -> Any:
        """The cache of some rows."""
        cache.reorder_cache(rows)
        return cache


def load(
    name: str | Path,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    template: Mapping[str, Any] | None = None,
) -> LoadedModel:
    """Load a model from a folder, or by its name on the Hugging Face hub (which is kept in the hub's own cache).

    Args:
        name: A folder with `config.json`, or a name like `Qwen/Qwen3.5-0.8B`.
        revision: Which revision of the hub's; the newest by default.
        dtype: The type of its weights.
        template: What its chat template is told; default `TEMPLATE`.

    Raises:
        InputError: If there is no such model.
    """
    import vapo.train.models.wrapped  # noqa: F401 - so that saved embedded models are known by their type

    folder, source = _found(name, revision)
    try:
        module = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        expected = "a causal language model with its tokenizer, as transformers saves them"
        raise InputError(expected, str(error).strip().split("\n")[0], where=str(name)) from error
    return LoadedModel(module, tokenizer, name=Path(name).name, source=source, template=template)


def _found(name: str | Path, revision: str | None) -> tuple[Path, str]:
    """The folder that holds a model, and what it is known by: the content of its files, or the hub's revision."""
    folder = Path(name)
    if folder.is_dir():
        files = sorted({file for pattern in _FILES for file in folder.glob(pattern)})
        if not (folder / "config.json").is_file():
            expected = "a folder with config.json and weights"
            raise InputError(expected, "a folder without config.json", where=str(name))
        return folder, sha256_hex(canonical_json({file.name: _digest(file) for file in files}))
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = Path(snapshot_download(str(name), revision=revision, allow_patterns=list(_FILES)))
    except (OSError, ValueError, HFValidationError) as error:
        expected = (
            "a folder, or the name of a model on the Hugging Face hub that can be reached or is in its cache"
        )
        raise InputError(expected, str(error).strip().split("\n")[0], where=str(name)) from error
    # The last part of a snapshot's path is the commit that it is of.
    return folder, sha256_hex(canonical_json({"hub": str(name), "commit": folder.name}))


def _digest(file: Path) -> str:
    import hashlib

    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
