"""Stages drawn from a sequence law: what every candidate did, and what is true of each of them.

A record is one byte: its level, its sign, whether the secondary agrees, whether the primary is wrong. What a candidate
does with a record depends on this byte and on whether calls are left, so that a stage is a count of bytes and, for
windows in which more records ask than there are calls, of the bytes that were refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.policy import Family
from vapo.studies.laws import CYCLE, LEVELS, UNIT, WINDOW, SequenceLaw, levels_of

__all__ = ["Stages", "simulate"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_KINDS = 8 * LEVELS
_NEGATIVE, _AGREES, _WRONG = LEVELS, 2 * LEVELS, 4 * LEVELS
_BATCH = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """Many stages of one law; arrays run over stages and candidates."""

    records: int
    """Records of each stage."""
    admitted: Ints
    """Records with a final sign."""
    harmful: Ints
    """Admitted records whose final sign is wrong."""
    appealed: Ints
    """Secondary calls."""
    mean_harmful: Floats
    """Average of the conditional probability of harm, given history and calls left before each record."""
    mean_admitted: Floats
    """Average of the conditional probability of admission."""
    mean_appealed: Floats
    """Average of the conditional probability of a call."""
    frozen_risk: Floats
    """Average over admitted records of the probability of harm given all frozen observations."""


def simulate(law: SequenceLaw, family: Family, records: int, stages: int, seed: list[int]) -> Stages:
    """Draw stages and work out what is true of them.

    Args:
        law: How records come about.
        family: The candidates.
        records: Records of each stage: whole cycles of the declared order.
        stages: How many.
        seed: Of the generator.

    Example:
        >>> from vapo.studies.laws import candidates, law_of
        >>> found = simulate(law_of(), candidates(), 512, 3, [7])
        >>> found.admitted.shape, bool((found.harmful <= found.admitted).all())
        ((3, 20), True)
    """
    if records % CYCLE or records < 1:
        expected = f"a multiple of {CYCLE} records"
        raise InputError(expected, str(records), where="records")
    source = np.random.default_rng(seed).bit_generator
    plan = _Plan.of(law, family)
    step = max(1, _BATCH // records)
    parts = [
        plan.stages(_kinds(law, source, min(step, stages - first), records))
        for first in range(0, stages, step)
    ]
    return Stages(records, *(np.concatenate([part[name] for part in parts]) for name in range(7)))


def _kinds(law: SequenceLaw, source: np.random.BitGenerator, stages: int, records: int) -> Bytes:
    """The bytes of all records, stages by records."""
    size = stages * records
    levels = _draw(source, size, np.uint8).astype(np.uint16).reshape(-1, CYCLE)
    # By place and a byte of chance: the level. Every row of the law's table adds up to 256.
    table = np.stack([np.repeat(np.arange(LEVELS, dtype=np.uint8), row) for row in law.levels]).ravel()
    kind: Bytes = table[(levels + np.arange(CYCLE, dtype=np.uint16) * CYCLE).ravel()]
    kind += _bit(_draw(source, size, np.uint16) >= law.positive, _NEGATIVE)
    # A chance of one is the number 65536, which a draw never reaches.
    wrong = _draw(source, size, np.uint16) < law.wrong.ravel().astype(np.uint32)[kind]
    draw = _draw(source, size, np.uint16)
    agrees = np.where(wrong, draw < law.confirm_wrong, draw < law.confirm_right)
    kind += _bit(agrees, _AGREES)
    kind += _bit(wrong, _WRONG)
    return kind.reshape(stages, records)


def _bit(flags: npt.NDArray[np.bool_], value: int) -> Bytes:
    return flags.view(np.uint8) * np.uint8(value)


def _draw(
    source: np.random.BitGenerator, size: int, width: type[np.unsignedinteger]
) -> npt.NDArray[np.unsignedinteger]:
    """Equally likely small numbers, straight from the generator's bits."""
    per_word = 8 // np.dtype(width).itemsize
    words = np.asarray(source.random_raw(-(-size // per_word)), dtype="<u8")
    return words.view(np.dtype(width).newbyteorder("<"))[:size]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """What a law and a family come to, by kind of record and by place."""

    low: Ints
    high: Ints
    budget: Ints
    if_calls_left: Floats
    """Kinds by what is counted (admitted, harmful, appealed, probability of harm if admitted) by candidates."""
    lost: Floats
    """Kinds by the same: what is lost where a record that asks is refused."""
    full: Floats
    """Three conditional means by candidates, summed over a cycle in which calls never run out."""
    after: Floats
    """Three conditional means by candidates by places: what is lost from this place of its window on without calls."""

    @classmethod
    def of(cls, law: SequenceLaw, family: Family) -> _Plan:
        low, high, budget = (np.array(part) for part in zip(*map(levels_of, family.policies), strict=True))
        kind = np.arange(_KINDS)
        level, negative = kind % LEVELS, (kind // _NEGATIVE) % 2
        agrees, wrong = ((kind // _AGREES) % 2).astype(np.bool_), (kind // _WRONG) % 2
        error = law.wrong[negative, level] / UNIT
        right, waved = law.confirm_right / UNIT, law.confirm_wrong / UNIT
        if_wrong = np.where(agrees, waved, 1.0 - waved) * error
        if_right = np.where(agrees, right, 1.0 - right) * (1.0 - error)
        harm = if_wrong / (if_wrong + if_right)
        accepts = level[:, None] >= high
        asks = (level[:, None] >= low) & ~accepts & (budget > 0)
        confirmed = asks & agrees[:, None]

        def counted(admits: npt.NDArray[np.bool_], appeals: npt.NDArray[np.bool_]) -> Floats:
            return np.stack(
                [admits, admits * wrong[:, None], appeals, admits * harm[:, None]], axis=1
            ).astype(np.float64)

        means = np.stack(law.means(family))
        loss = (means[..., 1] - means[..., 0]).reshape(3, len(family), -1, WINDOW)
        after = np.zeros((*loss.shape[:-1], WINDOW + 1))
        after[..., :-1] = loss[..., ::-1].cumsum(axis=-1)[..., ::-1]
        return cls(
            low,
            high,
            budget,
            counted(accepts | confirmed, asks),
            counted(confirmed, asks),
            means[..., 1].sum(axis=2),
            after,
        )

    def stages(self, kind: Bytes) -> tuple[npt.NDArray[np.generic], ...]:
        """Counts and truths of some stages."""
        stages, records = kind.shape
        counts = np.stack([np.bincount(row, minlength=_KINDS) for row in kind]).astype(np.float64)
        sums = np.einsum("sk,kcg->csg", counts, self.if_calls_left)
        means = np.broadcast_to(self.full[:, None] * (records // CYCLE), (3, stages, len(self.low))).copy()
        for candidate, window, first in self._exhausted(kind):
            stage = window * WINDOW // records
            turn = window % (CYCLE // WINDOW)
            for name in range(3):
                lost = self.after[name, candidate][turn, first]
                means[name, :, candidate] -= np.bincount(stage, weights=lost, minlength=stages)
            rows = kind.reshape(-1, WINDOW)[window]
            level = rows & (LEVELS - 1)
            refused = (level >= self.low[candidate]) & (level < self.high[candidate])
            refused &= np.arange(WINDOW) >= first[:, None]
            place, _ = np.nonzero(refused)
            key = stage[place] * _KINDS + rows[refused]
            lost_kinds = np.bincount(key, minlength=stages * _KINDS).reshape(stages, _KINDS)
            sums[:, :, candidate] -= (lost_kinds @ self.lost[:, :, candidate]).T
        admitted, harmful, appealed = (np.rint(part).astype(np.int64) for part in sums[:3])
        frozen = np.divide(sums[3], admitted, out=np.zeros_like(sums[3]), where=admitted > 0)
        return admitted, harmful, appealed, *(means / records)[[0, 1, 2]], frozen

    def _exhausted(self, kind: Bytes) -> Iterator[tuple[int, Ints, Ints]]:
        """For each candidate: the windows whose calls run out, and the places from which on none are left."""
        level = (kind & (LEVELS - 1)).reshape(-1, WINDOW)
        windows = np.arange(len(level), dtype=np.int64)[:, None] * LEVELS
        counts = np.bincount((windows + level).ravel(), minlength=level.shape[0] * LEVELS).reshape(-1, LEVELS)
        below = np.zeros((len(level), LEVELS + 1), np.int64)
        below[:, 1:] = counts.cumsum(axis=1)
        for candidate in np.flatnonzero(self.budget > 0).tolist():
            low, high, budget = self.low[candidate], self.high[candidate], self.budget[candidate]
            short = np.flatnonzero(below[:, high] - below[:, low] >= budget)
            rows = level[short]
            asked = ((rows >= low) & (rows < high)).cumsum(axis=1, dtype=np.uint8)
            yield candidate, short, (asked < budget).sum(axis=1) + 1
