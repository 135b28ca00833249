"""One small model for all training tests of a session."""

from __future__ import annotations

import pytest

from tests.train.small import opener


@pytest.fixture(scope="session")
def open_small(tmp_path_factory):
    return opener(tmp_path_factory.mktemp("models"))
