"""Working one step ahead of whoever uses the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(items: Iterable[T]) -> Iterator[T]:
    """The same items in the same order, each computed in a thread while the one before it is in use.

    It pays where the computing is done by a library that lets go of the interpreter.

    Example:
        >>> list(ahead(number**2 for number in range(4)))
        [0, 1, 4, 9]
    """
    source, end = iter(items), object()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(next, source, end)
        while (item := waiting.result()) is not end:
            waiting = thread.submit(next, source, end)
            yield item  # type: ignore[misc]
