"""Looking at the data themselves: columns that repeat another, and columns that know the label."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from vapo.records.model import Records

__all__ = ["find_leaks", "find_redundant"]

_MOST_LEVELS = 32
_GLANCE = 4096
_LEAST_OF_EACH = 5


def find_redundant(columns: Mapping[str, npt.NDArray[np.float64]]) -> tuple[str, str] | None:
    """The first pair (derived, origin) in which one column is a function of the other on these data.

    An origin counts when it takes at most 32 distinct values, each of them more than once: then a coincidence is
    unlikely and the derived column adds nothing.

    Example:
        >>> import numpy as np
        >>> find_redundant({"consistency": np.array([.2, .8, .2, .8, .4, .4]),
        ...                 "agreement": np.array([.8, .8, .8, .8, .6, .6])})
        ('agreement', 'consistency')
    """
    for origin, values in columns.items():
        if np.unique(values[:_GLANCE]).size > _MOST_LEVELS:
            continue
        levels, place, counts = np.unique(values, return_inverse=True, return_counts=True)
        if not len(levels) or len(levels) > _MOST_LEVELS or counts.min() < 2:
            continue
        for derived, others in columns.items():
            if derived == origin:
                continue
            example = np.empty(len(levels))
            example[place] = others
            if np.array_equal(example[place], others):
                return derived, origin
    return None


def find_leaks(records: Records, z: npt.NDArray[np.int8]) -> list[str]:
    """The observed columns that predict the label without a single error, among records whose label is known.

    A column is suspected when one threshold, or the purity of every repeated level, separates the two signs. With
    fewer than five labels of either sign nothing is said.

    Args:
        records: The observations.
        z: Their clean signs, 0 where unknown.

    Example:
        >>> import numpy as np, pyarrow as pa
        >>> table = pa.table({"id": [str(i) for i in range(12)], "group": [str(i) for i in range(12)],
        ...                   "y": [1] * 12, "signal.a": [i / 12 for i in range(12)]})
        >>> find_leaks(Records.from_arrow(table), np.repeat([-1, 1], 6).astype(np.int8))
        ['signal.a']
    """
    known = z != 0
    truth = z[known]
    if min(np.sum(truth > 0), np.sum(truth < 0)) < _LEAST_OF_EACH:
        return []
    return [name for name, values in _observed(records) if _predicts(values[known], truth)]


def _observed(records: Records) -> Iterator[tuple[str, npt.NDArray[np.float64]]]:
    yield "y", records.y.astype(np.float64)
    yield from ((f"signal.{name}", values) for name, values in records.signals.items())
    yield from ((f"verdict.{name}", values.astype(np.float64)) for name, values in records.verdicts.items())
    yield from ((f"verdict.{name}.score", values) for name, values in records.verdict_scores.items())
    yield from ((n, v) for n, v in (("delta_r", records.delta_r), ("kl", records.kl)) if v is not None)
    for name in records.extra.column_names:
        column = records.extra.column(name).combine_chunks()
        if pa.types.is_nested(column.type):
            continue
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            # Identifiers and times in nanoseconds are beyond what a double holds exactly; near is enough here.
            yield name, column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            continue
        if pa.types.is_decimal(column.type):
            column = column.cast(pa.string())
        encoded = column.dictionary_encode(null_encoding="encode")
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        if len(encoded.dictionary) <= _MOST_LEVELS:
            yield name, encoded.indices.to_numpy(zero_copy_only=False).astype(np.float64)


def _predicts(values: npt.NDArray[np.float64], truth: npt.NDArray[np.int8]) -> bool:
    # To be missing is a value like any other: it may be missing exactly where the answer is wrong.
    values = np.where(np.isnan(values), -np.inf, values)
    right, wrong = values[truth > 0], values[truth < 0]
    if right.min() > wrong.max() or wrong.min() > right.max():
        return True
    if np.unique(values[:_GLANCE]).size > _MOST_LEVELS:
        return False
    levels, counts = np.unique(values, return_counts=True)
    if len(levels) > _MOST_LEVELS or counts.min() < 2:
        return False
    return not np.intersect1d(right, wrong).size
