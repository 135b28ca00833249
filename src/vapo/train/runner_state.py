"""What a training run keeps on disk: its files, its checkpoints, and what it has spent."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from vapo.errors import InputError, ProtocolError
from vapo.ledger.disk import Disk
from vapo.train.config import TrainConfig
from vapo.train.runner_files import CONFIG, GATE
from vapo.train.verdicts import Calls

__all__ = ["Totals", "demand_own", "load", "save"]


@dataclass(slots=True)
class Totals:
    """What was spent so far; in every checkpoint.

    Example:
        >>> Totals.from_dict(Totals(tokens=7).as_dict()).tokens
        7
    """

    tokens: int = 0
    """Completion tokens of training rollouts, generated once."""
    buffer_tokens: int = 0
    evaluation_tokens: int = 0
    learned_tokens: int = 0
    """Tokens that gradients were taken over."""
    labels: int = 0
    """Clean labels, of certificates and of rewards."""
    certificate_labels: int = 0
    primary: Calls = field(default_factory=Calls)
    secondary: Calls = field(default_factory=Calls)
    further: Calls = field(default_factory=Calls)
    buffer_primary: Calls = field(default_factory=Calls)
    buffer_further: Calls = field(default_factory=Calls)
    buffer_secondary: int = 0
    refused: int = 0
    certified: int = 0
    steps: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The sums as plain data."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Totals:
        """The inverse of `as_dict`."""
        known: dict[str, Any] = {n: Calls(**v) if isinstance(v, Mapping) else v for n, v in data.items()}
        return cls(**known)


def demand_own(disk: Disk, config: TrainConfig) -> None:
    """Make sure that the folder holds this run, or nothing yet.

    Raises:
        ProtocolError: The folder holds a run of another configuration.
        InputError: It holds something else.
    """
    if disk.exists(CONFIG):
        there = TrainConfig.from_dict(json.loads(disk.read(CONFIG)), where=str(disk.root / CONFIG))
        if there.digest != config.digest:
            msg = f"{disk.root} holds a run of another configuration; use a new folder, or the configuration it has"
            raise ProtocolError(msg)
        return
    strangers = [name for name in disk.names() if not name.startswith(f"{GATE}/")]
    if strangers:
        expected = "a new or empty folder, or one of a training run"
        raise InputError(expected, f"{strangers[0]!r} in it", where=str(disk.root))


def save(disk: Disk, name: str, state: Mapping[str, Any]) -> None:
    """Save a state, whole or not at all."""
    data = io.BytesIO()
    torch.save(dict(state), data)
    disk.write(name, data.getbuffer())


def load(disk: Disk, name: str) -> dict[str, Any] | None:
    """A saved state, or None; only tensors and plain data are read, never code."""
    if not disk.exists(name):
        return None
    found: dict[str, Any] = torch.load(io.BytesIO(disk.read(name)), weights_only=True)
    return found
