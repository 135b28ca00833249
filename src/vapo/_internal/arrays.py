"""Arguments that are arrays: one column each, of one length, with the argument named when it does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError

__all__ = ["floats", "keys", "mask", "signs"]


def floats(
    name: str, values: npt.ArrayLike, *, length: int | None = None, low: float = -np.inf, high: float = np.inf
) -> npt.NDArray[np.float64]:
    """One column of finite numbers in `[low, high]`."""
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        expected = "numbers"
        raise InputError(expected, str(error), where=f"argument '{name}'") from None
    _refuse_shape(name, column, length)
    fits = np.isfinite(column) & (column >= low) & (column <= high)
    _refuse_misfits(name, column, fits, f"finite numbers in [{low:g}, {high:g}]")
    return column


def signs(
    name: str, values: npt.ArrayLike, *, length: int | None = None, zero: bool = True
) -> npt.NDArray[np.int8]:
    """One column of signs in {-1, 0, +1}, or in {-1, +1} where zero is not allowed."""
    column = floats(name, values, length=length)
    fits = np.abs(column) <= 1.0 if zero else np.abs(column) == 1.0
    fits &= column == np.floor(column)
    _refuse_misfits(name, column, fits, "signs in {-1, 0, +1}" if zero else "signs in {-1, +1}")
    return column.astype(np.int8)


def mask(name: str, values: npt.ArrayLike, *, length: int | None = None) -> npt.NDArray[np.bool_]:
    """One column of truth values (0 and 1 pass as such)."""
    column = np.asarray(values)
    _refuse_shape(name, column, length)
    if column.dtype != np.bool_:
        numbers = floats(name, column)
        _refuse_misfits(name, numbers, (numbers == 0) | (numbers == 1), "truth values")
        column = numbers == 1
    return column


def keys(name: str, values: npt.ArrayLike, *, length: int | None = None) -> npt.NDArray[Any]:
    """One column of identifiers that can be sorted: whole numbers as such, anything else as text."""
    column = np.asarray(values)
    _refuse_shape(name, column, length)
    return column if column.dtype.kind in "iuU" else column.astype(np.str_)


def _refuse_shape(name: str, column: npt.NDArray[Any], length: int | None) -> None:
    if column.ndim != 1 or (length is not None and column.size != length):
        expected = "one column" if length is None else f"one column of {length} values"
        raise InputError(expected, f"shape {column.shape}", where=f"argument '{name}'")


def _refuse_misfits(name: str, column: npt.NDArray[Any], fits: npt.NDArray[np.bool_], expected: str) -> None:
    if not fits.all():
        row = int(np.argmin(fits))
        raise InputError(expected, f"{column[row]!s}", where=f"argument '{name}': position {row}")
