"""Laws under which labels are independent across groups given the frozen observations."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
import pyarrow as pa

from tests.conformance.harness import DELTA, Flags, Floats, Ints, Law
from tests.conformance.lookup import frozen_feasible, frozen_most_harm
from vapo.certification.bounds import binomial_p_value, poisson_binomial_limit
from vapo.certification.claims import Requirements, Units
from vapo.certification.frozen import frozen_group_test
from vapo.policy import Family, Policy, Reason, decide
from vapo.records import Records

RHO = 0.08
Blocks = tuple[tuple[int, float], ...]
"""Numbers of admitted records and the harm of each."""


def sharpest_stop(limit: int, rho: float, alpha: float) -> int:
    """The admitted count at which the exact test comes closest to its level: a clever stage stops there."""
    k = np.arange(limit // 2, limit + 1)
    most = frozen_most_harm(limit, rho, alpha)[k]
    size = np.where(most >= 0, binomial_p_value(k, np.maximum(most, 0), rho), 0.0)
    return int(k[np.argmax(size)])


def blocks_law(rng: np.random.Generator, reps: int, *, blocks: Blocks, rho: float) -> Flags:
    """One candidate; the admitted records are fixed and come in blocks of equal harm."""
    k = sum(count for count, _ in blocks)
    assert sum(count * harm for count, harm in blocks) >= k * rho - 1e-9
    h = sum(rng.binomial(count, harm, size=reps) for count, harm in blocks)
    return np.asarray(h <= frozen_most_harm(k, rho, DELTA)[k])


def random_admission(rng: np.random.Generator, reps: int) -> Flags:
    k = rng.binomial(1000, 0.5, size=reps)
    return np.asarray(rng.binomial(k, RHO) <= frozen_most_harm(1000, RHO, DELTA)[k])


def spread_risk(rng: np.random.Generator, reps: int, *, k: int = 400) -> Flags:
    """Every record has its own harm, drawn once and for all from a skewed law and scaled to the boundary."""
    harms = np.random.default_rng(7).beta(0.3, 3.0, size=k)
    harms *= RHO / harms.mean()
    assert harms.max() <= 1
    h = (rng.random((reps, k)) < harms).sum(axis=1)
    return np.asarray(h <= frozen_most_harm(k, RHO, DELTA)[k])


class _GroupTest:
    """The group test on frozen group sizes, evaluated once for each distinct pattern of harm."""

    def __init__(self, sizes: Ints, counts: Ints, rho: float) -> None:
        self.sizes, self.counts, self.rho = sizes, counts, rho
        self.known: dict[tuple[int, ...], bool] = {}

    def passes(self, harmful: Ints) -> Flags:
        """Whether groups that are harmful as a whole (replications by sizes) leave the test passed."""
        return np.array([self._passes(tuple(row)) for row in harmful.tolist()])

    def _passes(self, row: tuple[int, ...]) -> bool:
        if row not in self.known:
            bad = np.array(row)
            admitted = np.concatenate([self.sizes, self.sizes])
            harm = np.concatenate([self.sizes, 0 * self.sizes])
            units = Units(admitted, harm, 0 * harm, np.concatenate([bad, self.counts - bad]))
            self.known[row] = frozen_group_test(units, self.rho, DELTA)[0] >= -np.log(DELTA)
        return self.known[row]


@lru_cache
def _group_test(shape: tuple[tuple[int, int], ...]) -> _GroupTest:
    sizes, counts = np.array(shape).T
    return _GroupTest(sizes, counts, RHO)


def groups_of_one_mind(rng: np.random.Generator, reps: int, *, shape: tuple[tuple[int, int], ...]) -> Flags:
    """Groups (size, how many) in which either every record is harmful or none."""
    test = _group_test(shape)
    return test.passes(rng.binomial(test.counts, RHO, size=(reps, test.counts.size)))


def partly_correlated_groups(rng: np.random.Generator, reps: int, *, groups: int = 150) -> Flags:
    """Groups of 1 to 8 with a harm of their own each: none for most, half for some, all for a few."""
    sizes = np.arange(groups) % 8 + 1
    harm = rng.choice([0.0, 0.5, 1.0], p=[1 - 0.08 - 0.04, 0.08, 0.04], size=(reps, groups))
    harmful = rng.binomial(sizes, harm)
    flags = np.empty(reps, np.bool_)
    count = np.ones(groups, np.int64)
    for row in range(reps):
        flags[row] = frozen_group_test(Units(sizes, harmful[row], 0 * count, count), RHO, DELTA)[
            0
        ] >= -np.log(DELTA)
    return flags


@lru_cache
def _decided() -> tuple[Ints, Ints, Floats, Family]:
    """Observations of twelve windows, decided by the package, with harm on the boundary for every candidate.

    Records that the same candidates admit form a cell; within a cell the harm alternates between none and
    double. Which candidates share a cell depends on the order in which a window's budget was spent.
    """
    rng = np.random.default_rng(11)
    n, window = 1200, 100
    score = rng.random(n).round(6)
    y = np.where(rng.random(n) < 0.7, 1, -1)
    answers = np.where(rng.random(n) < 0.15, 0, np.where(rng.random(n) < 0.7, y, -y))
    table = pa.table(
        {
            "id": [f"r{i}" for i in range(n)],
            "group": [f"g{i}" for i in range(n)],
            "window": np.arange(n) // window,
            "y": y,
            "signal.score": score,
            "y2": answers,
            "c2": rng.random(n).round(6),
        }
    )
    records = Records.from_arrow(table)
    grid = [(low, high, second) for second in (0.5, 0.0) for high in (0.9, 0.7) for low in (high, 0.4, 0.2)]
    family = Family.of([Policy.plain(*triple, budget=25) for triple in grid])
    actions = decide(family, records, records.signals["score"])
    admitted = np.stack([actions.admitted(g) for g in range(len(family))])
    assert {Reason.BUDGET_EXHAUSTED, Reason.SECONDARY_MISSING} <= set(actions.codes.ravel().tolist())
    cells, place = np.unique(admitted, axis=1, return_inverse=True)
    harm = np.zeros(n)
    for cell in range(cells.shape[1]):
        members = np.flatnonzero(place.ravel() == cell)
        harm[members] = np.where(np.arange(members.size) % 2, 0.0, 2.0 * RHO)
        if members.size % 2:
            harm[members[-1]] = RHO
    appealed = np.stack([actions.appealed(g) for g in range(len(family))])
    return admitted.astype(np.int64), appealed.sum(axis=1), harm, family


def shared_budget(rng: np.random.Generator, reps: int) -> Flags:
    """Labels drawn again and again for the same frozen decisions."""
    admitted, calls, harm, family = _decided()
    labels = (rng.random((reps, harm.size)) < harm).astype(np.float32)
    h = (labels @ admitted.T.astype(np.float32)).astype(np.int64)
    k = np.broadcast_to(admitted.sum(axis=1), h.shape)
    asked = Requirements(RHO, 0.0, 1.0, DELTA)
    return frozen_feasible(harm.size, k, h, np.broadcast_to(calls, h.shape), asked, family.chains).any(axis=1)


def selected_limit(rng: np.random.Generator, reps: int) -> Flags:
    """The stated limit of the selected member, in a chain whose members are all safe or on the boundary."""
    k, _, alive, limits = _chain(rng, reps)
    best = np.where(alive, np.arange(k.size), -1).max(axis=1)
    whole = np.where(alive.all(axis=1), limits.max(axis=1), 1.0)
    stated = np.minimum(RHO, whole)
    last = k.size - 1
    return (best == last) | ((best >= 0) & (best < last) & (_CHAIN_HARM[best] > stated))


_CHAIN_SIZES = np.array([500, 4000])
_CHAIN_HARM = np.array([0.03, RHO])


def _chain(rng: np.random.Generator, reps: int) -> tuple[Ints, Ints, Flags, Floats]:
    """A safe member inside a large one on the boundary: which pass, and their own limits at delta."""
    shells = np.diff(_CHAIN_SIZES, prepend=0)
    harms = np.diff(_CHAIN_SIZES * _CHAIN_HARM, prepend=0.0) / shells
    h = rng.binomial(shells, harms, size=(reps, harms.size)).cumsum(axis=1)
    passed = h <= frozen_most_harm(int(_CHAIN_SIZES[-1]), RHO, DELTA)[_CHAIN_SIZES]
    return (
        _CHAIN_SIZES,
        h,
        np.logical_and.accumulate(passed, axis=1),
        np.asarray(poisson_binomial_limit(_CHAIN_SIZES, h, DELTA)),
    )


def own_limit(rng: np.random.Generator, reps: int) -> Flags:
    """Wrong: the selected member's own limit at delta, as if it had not been selected."""
    _, _, alive, limits = _chain(rng, reps)
    best = np.where(alive, np.arange(alive.shape[1]), -1).max(axis=1)
    return np.asarray((best >= 0) & (_CHAIN_HARM[best] >= np.take_along_axis(limits, best[:, None], 1)[:, 0]))


def laws() -> list[Law]:
    """All laws of the frozen claim on one candidate or one decided family."""
    stop = sharpest_stop(1000, RHO, DELTA)
    ramp = tuple((10, 2 * RHO * (step + 0.5) / 50) for step in range(50))
    found = {
        "iid": random_admission,
        "drift, harm front-loaded": partial(blocks_law, blocks=((100, 0.4), (400, 0.0)), rho=RHO),
        "drift, harm back-loaded": partial(blocks_law, blocks=ramp, rho=RHO),
        "opportunistic stopping on observations": partial(blocks_law, blocks=((stop, RHO),), rho=RHO),
        "shared budget, order coupled, decided by the package": shared_budget,
        "groups of 8, perfectly correlated": partial(groups_of_one_mind, shape=((8, 200),)),
        "groups of 1 to 16, perfectly correlated": partial(
            groups_of_one_mind, shape=((1, 150), (2, 80), (8, 60), (16, 20))
        ),
        "groups of 1 to 8, partly correlated": partly_correlated_groups,
        "heterogeneous risk": spread_risk,
        "heterogeneous risk, three sure harms": partial(
            blocks_law, blocks=((3, 1.0), (197, 13 / 197)), rho=RHO
        ),
        "tiny n": partial(blocks_law, blocks=((36, RHO),), rho=RHO),
        "tolerance near one": partial(blocks_law, blocks=((27, 1.0), (13, 9 / 13)), rho=0.9),
        "limit stated for the selected member": selected_limit,
    }
    return [Law(name, "frozen", run) for name, run in found.items()]
