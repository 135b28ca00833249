"""The paper's text, if it is at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def paper() -> str:
    """The paper's source; the test is skipped where it is not at hand."""
    beside = Path(__file__).parents[2].parent / "shared" / "paper" / "audit-first-vapo.tex"
    path = Path(os.environ.get("VAPO_SHARED_PAPER", beside))
    if not path.is_file():
        pytest.skip(f"no paper at {path}; name it in VAPO_SHARED_PAPER")
    return path.read_text(encoding="utf-8")
