"""A small run that has everything in it, for trying every damage on; and what its reader has from elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from vapo.certification.flow import certify
from vapo.gate import Gate, join_spotchecks, watch
from vapo.ledger import Ledger
from vapo.ledger.checkpoints import checkpoint_of
from vapo.ledger.keys import SigningKey
from vapo.ledger.note import Checkpoint
from vapo.policy import Family, Policy
from vapo.records import Labels

KEY = SigningKey.from_seed("example.org/runs", bytes([7]) * 32)
OTHER = SigningKey.from_seed("example.org/others", bytes([8]) * 32)
TERMS = {"rho": 0.3, "c_min": 0.2, "b_max": 0.5, "monitor_rate": 1.0, "delta": 0.2}


def records(prefix: str, count: int) -> tuple[pa.Table, dict[str, int]]:
    ids = [f"{prefix}{n}" for n in range(count)]
    score = np.arange(count) % 8 / 8
    y = np.where(np.arange(count) % 3, 1, -1)
    truth = np.where(score > 0.3, y, -y)
    columns = {"id": ids, "group": ids, "y": y, "signal.s": score, "y2": truth}
    return pa.table(columns), dict(zip(ids, truth.tolist(), strict=True))


def small_run(path: Path) -> Checkpoint:
    """Certify, deploy, check, close and begin again; returns the checkpoint that its reader kept."""
    table, labels = records("r", 32)
    family = Family.of([Policy.plain(0.25, 0.5, 0.5, budget=6)])
    certificate = certify(table, labels, out=path, family=family, key=KEY, **TERMS)
    assert certificate.certified
    later, truth = records("n", 8)
    with Gate.open(path) as gate:
        gate.decide(later)
    with Ledger.write(path) as ledger:
        wanted = watch(ledger).wanted
        join_spotchecks(ledger, Labels.from_mapping({name: truth[name] for name in wanted[:3]}))
        join_spotchecks(
            ledger, Labels.from_mapping({name: -truth[name] for name in wanted[3:4]}), picked=True
        )
        return checkpoint_of(ledger.events)
