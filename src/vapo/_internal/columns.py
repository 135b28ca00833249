"""Turning one Arrow column into one numpy array, with the row and field named when it does not fit."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo.errors import InputError

__all__ = ["Column"]

_NUMERIC = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)


class Column:
    """A column of an input file together with the words that name it in a message."""

    __slots__ = ("field", "values", "where")

    def __init__(self, table: pa.Table, field: str, where: str) -> None:
        column = table.column(field)
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        self.values: pa.Array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        if isinstance(self.values, pa.ChunkedArray):
            self.values = (
                pa.concat_arrays(self.values.chunks) if self.values.num_chunks else pa.array([], kind)
            )
        self.field = field
        self.where = where

    def error(self, row: int, expected: str, got: Any) -> InputError:
        """The error for one row (counted from 0 here, from 1 in the message)."""
        return InputError(expected, _shown(got), where=self._place(row))

    def _place(self, row: int) -> str:
        return f"{self.where}: row {row + 1}: field '{self.field}'"

    def _first(self, mask: pa.Array) -> int:
        return int(pc.index(mask, True).as_py())

    def refuse_null(self, expected: str, hint: str = "") -> None:
        """Raise at the first null."""
        if self.values.null_count:
            row = self._first(pc.is_null(self.values))
            raise InputError(expected, f"null{hint}", where=self._place(row))

    def text(self, expected: str, *, null_ok: bool = False) -> pa.Array:
        """The column as strings; whole numbers are written out, anything else that is not text is refused."""
        if not null_ok:
            self.refuse_null(expected)
        kind = self.values.type
        if pa.types.is_large_string(kind) or pa.types.is_integer(kind):
            return self.values.cast(pa.string())
        if pa.types.is_string(kind):
            return self.values
        if pa.types.is_null(kind):
            return self.values.cast(pa.string())
        row = self._first(pc.is_valid(self.values))
        raise self.error(row, expected, self.values[row].as_py())

    def numbers(
        self, expected: str, *, null: float | None = None, null_hint: str = ""
    ) -> npt.NDArray[np.float64]:
        """The column as float64; text is parsed, nulls take the given value or are refused."""
        if null is None:
            self.refuse_null(expected, null_hint)
        values, kind = self.values, self.values.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = self._parsed(expected)
        elif not any(check(kind) for check in _NUMERIC):
            row = self._first(pc.is_valid(values)) if len(values) > values.null_count else 0
            raise self.error(row, expected, values[row].as_py())
        numbers = pc.cast(values, pa.float64(), safe=False)
        if numbers.null_count:
            numbers = pc.fill_null(numbers, float("nan") if null is None else null)
        return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float64)

    def _parsed(self, expected: str) -> pa.Array:
        try:
            return pc.cast(self.values, pa.float64())
        except pa.ArrowInvalid:
            for row, value in enumerate(self.values):
                text = value.as_py()
                try:
                    pc.cast(pa.array([text]), pa.float64())
                except pa.ArrowInvalid:
                    raise self.error(row, expected, text) from None
            raise

    def between(
        self, low: float, high: float, expected: str, *, null: float | None = None, null_hint: str = ""
    ) -> npt.NDArray[np.float64]:
        """Finite numbers inside a closed interval (a null's stand-in may be NaN)."""
        numbers = self.numbers(expected, null=null, null_hint=null_hint)
        fits = np.isfinite(numbers) & (numbers >= low) & (numbers <= high)
        if null is not None and np.isnan(null):
            fits |= self._nulls()
        self._refuse_misfits(fits, expected)
        return numbers

    def whole(
        self, expected: str, *, low: int, high: int, null: int | None = None, null_hint: str = ""
    ) -> npt.NDArray[np.int64]:
        """Whole numbers inside a closed interval."""
        integers = self._integers()
        if integers is not None:
            whole = np.asarray(integers.to_numpy(zero_copy_only=False))
            fits = (whole >= low) & (whole <= high)
            self._refuse_misfits(fits, expected)
            return whole.astype(np.int64)
        numbers = self.numbers(expected, null=None if null is None else float(null), null_hint=null_hint)
        fits = np.isfinite(numbers) & (numbers == np.floor(numbers)) & (numbers >= low) & (numbers <= high)
        self._refuse_misfits(fits, expected)
        return numbers.astype(np.int64)

    def _integers(self) -> pa.Array | None:
        """The values as integers, exact however large, if that is what they all are."""
        kind = self.values.type
        if self.values.null_count:
            return None
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            with suppress(pa.ArrowInvalid):
                return pc.cast(self.values, pa.int64())
            return None
        return self.values if pa.types.is_integer(kind) else None

    def _nulls(self) -> npt.NDArray[np.bool_]:
        return np.asarray(pc.is_null(self.values).to_numpy(zero_copy_only=False), dtype=np.bool_)

    def _refuse_misfits(self, fits: npt.NDArray[np.bool_], expected: str) -> None:
        if not fits.all():
            row = int(np.argmin(fits))
            raise self.error(row, expected, self.values[row].as_py())


def _shown(value: Any, most: int = 60) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."
