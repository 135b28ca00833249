"""The five-view fixture: keyed binary views of a clean sign, a frozen proposal, and corruption that is known.

What a controller may see comes back as records, the clean signs beside it. Every draw is fixed by a seed, by the
record's name and by what is drawn, so that no record depends on which others are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo._internal.keyed import keyed_fraction, sha256_hex
from vapo.errors import InputError
from vapo.records import Records

__all__ = [
    "DELTA_R",
    "KL",
    "SOURCES",
    "VIEWS",
    "VIEW_STRIDE",
    "Corruption",
    "Fixture",
    "Part",
    "agreement",
    "build",
    "check_contract",
    "consistency",
]

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]

VIEWS = 5
"""Binary views of each record (K); the first one is the primary verdict."""
VIEW_STRIDE = 1_000_003
"""View j draws its corruption from the seed plus j times this."""
DELTA_R = (0.02, 0.30)
"""Range of the proposed ratio change, part of the replay contract."""
KL = (0.001, 0.08)
"""Range of the observed KL, part of the replay contract."""
RIGHT = 0.5
"""Share of records whose clean sign is +1."""


@dataclass(frozen=True, slots=True)
class Corruption:
    """How views go wrong: which records, how often, and how alike.

    Example:
        >>> Corruption("symmetric-55", trigger=0.55, flip=0.5).error
        0.275
        >>> Corruption("false-positive-60", side="wrong", flip=0.6).error
        0.3
    """

    name: str
    """Stands in the records' names, and so in their draws."""
    side: Literal["all", "right", "wrong"] = "all"
    """Whether only records with clean sign +1, or only those with -1, can be corrupted."""
    trigger: float = 1.0
    """Chance that such a record is corrupted."""
    flip: float = 0.0
    """Chance that a view of a corrupted record is turned round."""
    correlation: float = 0.0
    """Correlation of the flips of two views of a corrupted record."""

    def __post_init__(self) -> None:
        for name in ("trigger", "flip", "correlation"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                expected = "a number in [0, 1]"
                raise InputError(expected, repr(value), where=f"corruption {self.name!r}: '{name}'")

    @property
    def error(self) -> float:
        """How often the primary verdict is wrong."""
        return {"all": 1.0, "right": RIGHT, "wrong": 1.0 - RIGHT}[self.side] * self.trigger * self.flip


class Part(NamedTuple):
    """Some consecutive records of one corruption."""

    corruption: Corruption
    """How their views go wrong."""
    size: int
    """How many."""
    first: int = 0
    """The number of the first; splits are disjoint when their numbers are."""


class Fixture(NamedTuple):
    """Records and, apart from them, what they are judged by after the decisions are frozen."""

    records: Records
    """All that a controller may see."""
    clean: npt.NDArray[np.int8]
    """The clean signs."""


def _by_hash(seed: int, names: Sequence[str], what: str) -> Floats:
    key = str(seed).encode()
    return np.array([keyed_fraction(key, f"{name}/{what}") for name in names])


def _by_generator(seed: int, names: Sequence[str], what: str) -> Floats:
    salt = int(sha256_hex(f"{names[0]}/{what}".encode())[:15], 16)
    return np.random.default_rng([seed, salt]).random(len(names))


SOURCES: Mapping[str, Callable[[int, Sequence[str], str], Floats]] = {
    "sha256": _by_hash,
    "pcg64": _by_generator,
}
"""Where draws in [0, 1) come from: a keyed hash of each record's name, or for comparison a generator a part."""


def build(seed: int, parts: Sequence[Part], *, source: str = "sha256") -> Fixture:
    """Draw the fixture.

    Args:
        seed: The stream s; view j is corrupted by the stream s + 1,000,003 j.
        parts: Which records.
        source: Where draws come from: a name among `SOURCES`.

    Example:
        >>> whole = build(13, [Part(Corruption("noise", flip=0.2), 4)])
        >>> tail = build(13, [Part(Corruption("noise", flip=0.2), 2, first=2)])
        >>> whole.records.id.to_pylist()[2:] == tail.records.id.to_pylist()
        True
        >>> bool((whole.records.kl[2:] == tail.records.kl).all())
        True
    """
    names: list[str] = []
    columns: list[dict[str, npt.NDArray[np.generic]]] = []
    for part in parts:
        own = [f"{part.corruption.name}-{number:05d}" for number in range(part.first, part.first + part.size)]
        names += own
        columns.append(_draw(seed, own, part.corruption, SOURCES[source]))
    joined = {name: np.concatenate([part[name] for part in columns]) for name in columns[0]}
    clean, views = joined.pop("clean").astype(np.int8), joined.pop("views").astype(np.int8)
    table = {"id": names, "group": names, "y": views[:, 0]} | joined
    table |= {
        "signal.agreement": agreement(views),
        "signal.consistency": consistency(views),
        # The views behind the summaries are retained in the trace and read by no controller.
        **{f"view_{j + 1}": views[:, j] for j in range(VIEWS)},
    }
    return Fixture(Records.from_arrow(pa.table(table), where=f"fixture of seed {seed}"), clean)


def _draw(
    seed: int, names: list[str], corruption: Corruption, draw: Callable[[int, Sequence[str], str], Floats]
) -> dict[str, npt.NDArray[np.generic]]:
    clean = np.where(draw(seed, names, "clean") < RIGHT, 1, -1).astype(np.int8)
    open_to = {"all": np.ones(len(names), np.bool_), "right": clean > 0, "wrong": clean < 0}[corruption.side]
    if corruption.trigger < 1.0:
        open_to = open_to & (draw(seed, names, "trigger") < corruption.trigger)
    turned = open_to[:, None] & _flips(seed, names, corruption, draw)
    return {
        "clean": clean,
        "views": np.where(turned, -clean[:, None], clean[:, None]),
        "signal.confidence": 0.5 + 0.5 * draw(seed, names, "confidence"),
        "delta_r": DELTA_R[0] + (DELTA_R[1] - DELTA_R[0]) * draw(seed, names, "delta-r"),
        "kl": KL[0] + (KL[1] - KL[0]) * draw(seed, names, "kl"),
    }


def _flips(
    seed: int, names: list[str], corruption: Corruption, draw: Callable[[int, Sequence[str], str], Floats]
) -> Bits:
    if not corruption.flip:
        return np.zeros((len(names), VIEWS), np.bool_)
    streams = [seed + VIEW_STRIDE * j for j in range(1, VIEWS + 1)]
    own = np.stack([draw(stream, names, "corruption") for stream in streams], axis=1)
    if corruption.correlation:
        # Two views share the common draw with the product of their chances to take it.
        whose = np.stack([draw(stream, names, "whose") for stream in streams], axis=1)
        common = draw(seed, names, "common corruption")[:, None]
        own = np.where(whose < np.sqrt(corruption.correlation), common, own)
    return np.asarray(own < corruption.flip)


def agreement(views: npt.NDArray[np.int8]) -> Floats:
    """The share of views on the side of their majority.

    Args:
        views: Signs, one row a record.

    Example:
        >>> import numpy as np
        >>> agreement(np.array([[1, -1, -1, -1, 1]], dtype=np.int8)).tolist()
        [0.6]
    """
    positive = np.count_nonzero(views > 0, axis=1)
    return np.asarray(np.maximum(positive, views.shape[1] - positive) / views.shape[1])


def consistency(views: npt.NDArray[np.int8]) -> Floats:
    """The share of views that say what the first one says.

    Args:
        views: Signs, one row a record.

    Example:
        >>> import numpy as np
        >>> consistency(np.array([[1, -1, -1, -1, 1]], dtype=np.int8)).tolist()
        [0.4]
    """
    return np.asarray(np.count_nonzero(views == views[:, :1], axis=1) / views.shape[1])


def check_contract(records: Records) -> Records:
    """Refuse a proposal outside the ranges that the replay was promised.

    Args:
        records: Observations of the fixture.

    Raises:
        InputError: A proposal is missing or out of its range.

    Example:
        >>> len(check_contract(build(13, [Part(Corruption("none"), 3)]).records))
        3
    """
    for name, (low, high) in (("delta_r", DELTA_R), ("kl", KL)):
        values = getattr(records, name)
        expected = f"'{name}' in [{low:g}, {high:g}]"
        if values is None:
            raise InputError(expected, "none", where=records.where)
        fits = (values >= low) & (values <= high)
        if not fits.all():
            raise InputError(expected, f"{values[~fits][0]:g}", where=records.where)
    return records
