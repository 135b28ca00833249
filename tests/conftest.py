"""What every test shares: hypothesis profiles and the size of the statistical harness."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.samples import world
from vapo.certification.flow import certify
from vapo.gate import Gate, join_spotchecks, watch
from vapo.ledger import Ledger
from vapo.records import Labels

# Time limits on single examples fail on a busy machine and say nothing about the code.
settings.register_profile("dev", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, database=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


@pytest.fixture(scope="session")
def full_size() -> bool:
    """Whether the statistical harness runs at the size that its promises are stated for."""
    return os.environ.get("VAPO_CONFORMANCE", "") == "full"


@pytest.fixture(scope="session")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a certificate. Copy it before you write."""
    run = tmp_path_factory.mktemp("certified") / "run"
    table, labels = world(900)
    certificate = certify(table, labels, out=run, rho=0.15, c_min=0.2, b_max=0.2, monitor_rate=0.5)
    assert certificate.certified
    return run


@pytest.fixture(scope="session")
def deployed(certified: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose gate has decided on three batches and had labels for spot checks. Copy it before you write."""
    run = tmp_path_factory.mktemp("deployed") / "run"
    shutil.copytree(certified, run)
    table, labels = world(240, seed=5, prefix="n", window=60)
    with Gate.open(run) as gate:
        for first in (0, 90, 150):
            gate.decide(table.slice(first, {0: 90, 90: 60, 150: 90}[first]))
    with Ledger.write(run) as ledger:
        join_spotchecks(
            ledger, Labels.from_mapping({name: labels[name] for name in watch(ledger).wanted[:20]})
        )
    return run


@pytest.fixture
def certified_copy(certified: Path, tmp_path: Path) -> Path:
    """A certified run of one's own."""
    return Path(shutil.copytree(certified, tmp_path / "run"))


@pytest.fixture
def deployed_copy(deployed: Path, tmp_path: Path) -> Path:
    """A deployed run of one's own."""
    return Path(shutil.copytree(deployed, tmp_path / "run"))
