"""Verifiers for tests: as simple as can be, counting what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from vapo._internal.keyed import sha256_hex
from vapo.records import Source
from vapo.verifiers import Item, Outcome


class Stub:
    """Judges by a function of the item and keeps every id that it was asked about."""

    def __init__(self, judge: Callable[[Item], Outcome], name: str = "stub") -> None:
        self._judge = judge
        self._lock = Lock()
        self.asked: list[str] = []
        self.batches = 0
        self.source = Source(name, sha256_hex(name.encode()))

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        with self._lock:
            self.asked += [item.id for item in items]
            self.batches += 1
        return [self._judge(item) for item in items]


def matches_reference(item: Item) -> Outcome:
    """Right if the completion is the reference."""
    return Outcome(verdict=1 if item.completion == item.reference else -1)


def items(count: int, right: int | None = None) -> list[Item]:
    """So many items, the first of which are right."""
    right = count if right is None else right
    return [Item(f"i{n}", f"question {n}", str(n), str(n if n < right else -1)) for n in range(count)]
