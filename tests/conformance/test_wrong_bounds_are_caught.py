"""The harness is worth as much as the wrong bounds it convicts."""

from __future__ import annotations

import pytest

from tests.conformance import peers, wrong
from tests.conformance.harness import Law, measure, replications

pytestmark = pytest.mark.conformance


@pytest.mark.parametrize("law", wrong.laws(), ids=lambda law: law.name)
def test_a_wrong_bound_is_convicted(law: Law) -> None:
    outcome = measure(law, replications())
    assert outcome.convicted, str(outcome)


@pytest.mark.bench
@pytest.mark.skipif(not peers.INSTALLED, reason="mapie is not installed; `make conformance` installs it")
@pytest.mark.parametrize("law", peers.laws(), ids=lambda law: law.name)
def test_the_default_bound_of_a_peer_is_convicted(law: Law) -> None:
    outcome = measure(law, replications())
    assert outcome.convicted, str(outcome)
