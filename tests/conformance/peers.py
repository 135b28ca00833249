"""MAPIE's default bound, called as MAPIE calls it: columns are thresholds, here replications."""

from __future__ import annotations

import importlib.util
from functools import partial

import numpy as np

from tests.conformance.harness import DELTA, Flags, Law

RHO = 0.2
INSTALLED = importlib.util.find_spec("mapie") is not None
_COLUMNS = 100


def _misses(losses: np.ndarray, rho: float) -> Flags:
    """Whether the limit falls below the true risk of a column; it is searched for on MAPIE's own grid."""
    from mapie.risk_control.methods import get_r_hat_plus

    columns = losses.shape[1]
    coarse = np.linspace(0.005, 0.995, columns - 1)
    grid = np.sort(np.append(coarse, rho - 1e-9))
    _, limits = get_r_hat_plus(losses, grid, method="rcps", bound=None, delta=DELTA, sigma_init=0.25)
    return np.asarray(limits < rho)


def default_bound(rng: np.random.Generator, reps: int, *, drift: bool) -> Flags:
    """Independent losses with one risk, or the same risk on average with all of it at the beginning."""
    n, rho = (1000, 0.08) if drift else (200, RHO)
    parts = []
    for first in range(0, reps, _COLUMNS):
        columns = min(_COLUMNS, reps - first)
        if drift:
            losses = (rng.random((n, columns)) < 0.4) & (np.arange(n) < n / 5)[:, None]
        else:
            losses = rng.random((n, columns)) < rho
        parts.append(_misses(losses.astype(np.float64), rho))
    return np.concatenate(parts)


def laws() -> list[Law]:
    """The bound on its own terms, and under drift."""
    return [
        Law("MAPIE's default bound, independent losses", "peer", partial(default_bound, drift=False)),
        Law("MAPIE's default bound, harm front-loaded", "peer", partial(default_bound, drift=True)),
    ]
