"""Every way in which this library says no.

One root, one meaning a subclass. A message names what was looked at, what was expected and what came.
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "InputError",
    "IntegrityError",
    "LedgerLockedError",
    "ProtocolError",
    "StorageError",
    "VapoError",
]


class VapoError(Exception):
    """Root of every error that this library raises on purpose."""


class InputError(VapoError, ValueError):
    """A file, a field or an argument does not hold what it must.

    Args:
        expected: What would have been right.
        got: What came instead.
        where: File, row and field, as far as they are known.

    Example:
        >>> str(InputError("a sign in {-1, 0, +1}", "2", where="rollouts.jsonl: row 7: field 'y'"))
        "rollouts.jsonl: row 7: field 'y': expected a sign in {-1, 0, +1}, got 2"
    """

    def __init__(self, expected: str, got: str = "", *, where: str = "") -> None:
        text = f"expected {expected}, got {got}" if got else expected
        super().__init__(f"{where}: {text}" if where else text)


class ProtocolError(VapoError):
    """A step was asked for out of its legal order, or against what was declared beforehand."""


class IntegrityError(VapoError):
    """Stored bytes are not the bytes that were written."""


class BudgetError(VapoError):
    """A declared cap on labels or secondary calls would be exceeded."""


class LedgerLockedError(VapoError):
    """Another process holds the run folder open for writing."""


class StorageError(VapoError, OSError):
    """The medium took no more, or failed: the disk is full, or reading and writing end in errors.

    What was acknowledged before is on disk. With the cause removed, the same work done again goes on from there.

    Args:
        message: The file, and what the system says.
        errno: The system's number for it.
    """

    def __init__(self, message: str, errno: int | None = None) -> None:
        super().__init__(message)
        self.errno = errno
