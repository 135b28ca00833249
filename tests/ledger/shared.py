"""Where the public test vectors are, if they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

OWN = Path(__file__).parents[1] / "vectors"


def public(*parts: str) -> Path:
    """A file or folder of the public vectors; the test is skipped where they are not at hand."""
    beside = Path(__file__).parents[2].parent / "shared" / "vectors"
    root = Path(os.environ.get("VAPO_SHARED_VECTORS", beside))
    if not root.is_dir():
        pytest.skip(f"no public vectors in {root}; name their folder in VAPO_SHARED_VECTORS")
    return root.joinpath(*parts)
