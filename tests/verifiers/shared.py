"""Where the recorded verdicts are, if they are here."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

FILES = ("openqa_eval.jsonl", "gsm8k_solutions.jsonl.gz", "hardverify_math.jsonl")


def verdict_file(name: str) -> Path:
    """A file of recorded verdicts, in the folder that the environment names or beside the checkout."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    folder = Path(os.environ.get("VAPO_SHARED_DATA") or beside)
    for path in (folder / "verdicts" / name, folder / name):
        if path.is_file():
            return path
    pytest.skip(f"no real verdicts here: no {name} in {folder}")


def rows(path: Path) -> list[dict]:
    """Its rows, read with nothing of the package."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
