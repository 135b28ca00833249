"""The files of a training run, by name."""

from __future__ import annotations

from pathlib import Path

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "FILES",
    "GATE",
    "LEDGER",
    "METRICS",
    "REGIME",
    "RESULT",
    "SELECTED",
    "TELEMETRY",
    "TEST",
    "is_training_run",
]

CONFIG, LEDGER, METRICS, TELEMETRY = "config.json", "ledger.jsonl", "metrics.jsonl", "telemetry.jsonl"
CHECKPOINT, REGIME, SELECTED, TEST, RESULT = (
    "checkpoint.pt",
    "regime.pt",
    "selected.pt",
    "test.jsonl",
    "result.json",
)
GATE = "gate"
FILES = (CONFIG, LEDGER, METRICS, TELEMETRY, CHECKPOINT, REGIME, SELECTED, TEST, RESULT)
"""What a training run's folder holds beside the gate's."""


def is_training_run(path: str | Path) -> bool:
    """Whether a folder is that of a training run, and not a gate's run folder.

    Example:
        >>> is_training_run("no such folder")
        False
    """
    return (Path(path) / LEDGER).is_file() or (Path(path) / CONFIG).is_file()
