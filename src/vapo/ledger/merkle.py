"""Merkle trees as RFC 6962 and RFC 9162 define them: roots, proofs of inclusion and of growth, their check.

A subtree is a range of leaves that begins at a multiple of the smallest power of two which holds it. One
proof serves all: that a subtree has a given root inside a tree with a given root. A leaf is a subtree of one
(inclusion), an earlier state of a log is the subtree that begins at the first leaf (consistency). Roots and
hashes are bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vapo.errors import InputError, IntegrityError

__all__ = [
    "EMPTY_ROOT",
    "MOST_LEAVES",
    "Frontier",
    "Tree",
    "leaf_hash",
    "node_hash",
    "verify_consistency",
    "verify_inclusion",
    "verify_subtree",
    "verify_subtree_inclusion",
]

EMPTY_ROOT = hashlib.sha256(b"").digest()
"""Root of a tree without leaves."""
MOST_LEAVES = 2**63 - 1
_SIZE = 32


def leaf_hash(leaf: bytes) -> bytes:
    """Hash of a leaf.

    Example:
        >>> leaf_hash(b"").hex()[:16]
        '6e340b9cffb37a98'
    """
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of two neighbouring subtrees."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def _left_size(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)


class _Turn(NamedTuple):
    """What lies beside the way from the root down to a subtree."""

    start: int
    end: int
    left: bool
    """Whether it lies to the left of the way."""
    shared: bool
    """Whether it is part of the subtree that is looked for."""


def _way(start: int, end: int, size: int) -> tuple[list[_Turn], tuple[int, int], bool]:
    """The way from the root down to a subtree, the range it ends at, and whether that is the whole subtree.

    Where it is not, the subtree was divided on the way, and only its last part is at the end.
    """
    turns: list[_Turn] = []
    low, high, known = 0, size, True
    while (low, high) != (start, end):
        middle = low + _left_size(high - low)
        if end <= middle:
            turns.append(_Turn(middle, high, left=False, shared=False))
            high = middle
            continue
        turns.append(_Turn(low, middle, left=True, shared=start < middle))
        if start < middle:
            start, known = middle, False
        low = middle
    return turns, (low, high), known


def _is_subtree(start: int, end: int) -> bool:
    return 0 <= start < end <= MOST_LEAVES and start % (1 << (end - start - 1).bit_length()) == 0


class Frontier:
    """A tree that grows, remembering only what its root needs: one hash for every bit of its size.

    Example:
        >>> frontier = Frontier()
        >>> frontier.extend([b"a", b"b", b"c"])
        >>> frontier.size, len(frontier.peaks), frontier.root() == Tree([b"a", b"b", b"c"]).root()
        (3, 2, True)
    """

    __slots__ = ("_peaks", "_size")

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        fits = 0 <= size <= MOST_LEAVES and len(peaks) == size.bit_count()
        if not fits or any(len(peak) != _SIZE for peak in peaks):
            expected = "one hash of 32 bytes for every bit of the size"
            raise InputError(expected, f"{len(peaks)} hashes for size {size}")
        self._size = size
        self._peaks = list(peaks)

    @property
    def size(self) -> int:
        """How many leaves there are."""
        return self._size

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """Roots of the complete subtrees from the left, from which the frontier can be made again."""
        return tuple(self._peaks)

    def append(self, leaf: bytes) -> None:
        """Add a leaf."""
        node, size = leaf_hash(leaf), self._size
        while size & 1:
            node = node_hash(self._peaks.pop(), node)
            size >>= 1
        self._peaks.append(node)
        self._size += 1

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Add leaves."""
        for leaf in leaves:
            self.append(leaf)

    def root(self) -> bytes:
        """Root over all leaves so far."""
        if not self._peaks:
            return EMPTY_ROOT
        node = self._peaks[-1]
        for peak in self._peaks[-2::-1]:
            node = node_hash(peak, node)
        return node


class Tree:
    """A tree that grows and can prove what is in it, now or at any earlier size.

    Example:
        >>> tree = Tree([b"a", b"b", b"c"])
        >>> verify_inclusion(leaf_hash(b"b"), 1, 3, tree.prove_inclusion(1), tree.root())
        >>> verify_consistency(2, 3, tree.root(2), tree.root(), tree.prove_consistency(2))
    """

    __slots__ = ("_levels",)

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        for leaf in leaves:
            self.append(leaf)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, leaf: bytes) -> None:
        """Add a leaf."""
        node, height = leaf_hash(leaf), 0
        while True:
            level = self._levels[height]
            level.append(node)
            if len(level) % 2:
                return
            node = node_hash(level[-2], node)
            height += 1
            if height == len(self._levels):
                self._levels.append([])

    def root(self, size: int | None = None) -> bytes:
        """Root over the first leaves, all of them by default."""
        size = self._until(size)
        return self._range(0, size) if size else EMPTY_ROOT

    def subtree_root(self, start: int, end: int) -> bytes:
        """Root of a subtree."""
        self._until(end)
        _refuse_crooked(start, end)
        return self._range(start, end)

    def prove_inclusion(self, index: int, size: int | None = None) -> tuple[bytes, ...]:
        """The hashes that lead from a leaf to the root of the first `size` leaves."""
        return self.prove_subtree(index, index + 1, size)

    def prove_consistency(self, old: int, size: int | None = None) -> tuple[bytes, ...]:
        """The hashes that show that the first `old` leaves are the beginning of the first `size` leaves."""
        return self.prove_subtree(0, old, size)

    def prove_subtree(self, start: int, end: int, size: int | None = None) -> tuple[bytes, ...]:
        """The hashes that show that a subtree is part of the first `size` leaves."""
        size = self._until(size)
        _refuse_crooked(start, end)
        if end > size:
            expected = f"a range inside the first {size} leaves"
            raise InputError(expected, f"{start} to {end}")
        turns, (low, high), known = _way(start, end, size)
        proof = [self._range(turn.start, turn.end) for turn in turns]
        if not known:
            proof.append(self._range(low, high))
        return tuple(reversed(proof))

    def _until(self, size: int | None) -> int:
        size = len(self) if size is None else size
        if not 0 <= size <= len(self):
            expected = f"a size from 0 to {len(self)}"
            raise InputError(expected, str(size))
        return size

    def _range(self, start: int, end: int) -> bytes:
        size = end - start
        if size & (size - 1) == 0:
            height = size.bit_length() - 1
            return self._levels[height][start >> height]
        middle = start + _left_size(size)
        return node_hash(self._range(start, middle), self._range(middle, end))


def _refuse_crooked(start: int, end: int) -> None:
    if not _is_subtree(start, end):
        expected = "a subtree: a range that begins at a multiple of the power of two that holds it"
        raise InputError(expected, f"{start} to {end}")


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Check that a leaf, given by its hash, stands at an index of a tree.

    Raises:
        IntegrityError: Naming what does not fit.
    """
    where = "inclusion proof"
    _check_leaf(where, leaf)
    _verify(where, index, index + 1, size, leaf, root, proof)


def verify_consistency(old: int, size: int, old_root: bytes, root: bytes, proof: Sequence[bytes]) -> None:
    """Check that a tree is an earlier tree with leaves added behind.

    An earlier tree without leaves says nothing, and is refused.

    Raises:
        IntegrityError: Naming what does not fit.
    """
    _verify("consistency proof", 0, old, size, old_root, root, proof)


def verify_subtree(
    start: int, end: int, size: int, subtree_root: bytes, root: bytes, proof: Sequence[bytes]
) -> None:
    """Check that a subtree is part of a tree.

    A subtree without leaves is part of every tree that reaches up to it, and says nothing about that tree.

    Raises:
        IntegrityError: Naming what does not fit.
    """
    where = "subtree proof"
    if 0 <= start == end <= size <= MOST_LEAVES:
        if proof or subtree_root != EMPTY_ROOT:
            msg = f"{where}: a subtree without leaves has the empty root and needs no hash"
            raise IntegrityError(msg)
        return
    _verify(where, start, end, size, subtree_root, root, proof)


def verify_subtree_inclusion(
    leaf: bytes, index: int, start: int, end: int, proof: Sequence[bytes], subtree_root: bytes
) -> None:
    """Check that a leaf, given by its hash, stands in a subtree; the index counts from the tree's first leaf.

    Raises:
        IntegrityError: Naming what does not fit.
    """
    where = "subtree inclusion proof"
    _check_leaf(where, leaf)
    if not _is_subtree(start, end) or not start <= index < end:
        msg = f"{where}: there is no leaf {index} in a subtree from {start} to {end}"
        raise IntegrityError(msg)
    _verify(where, index - start, index - start + 1, end - start, leaf, subtree_root, proof)


def _check_leaf(where: str, leaf: bytes) -> None:
    if len(leaf) != _SIZE:
        msg = f"{where}: the leaf's hash is not {_SIZE} bytes long"
        raise IntegrityError(msg)


def _verify(
    where: str, start: int, end: int, size: int, part: bytes, root: bytes, proof: Sequence[bytes]
) -> None:
    if not _is_subtree(start, end) or not end <= size <= MOST_LEAVES:
        msg = f"{where}: no leaves {start} to {end} in a tree of {size}"
        raise IntegrityError(msg)
    turns, _, known = _way(start, end, size)
    if len(proof) != len(turns) + (not known):
        msg = f"{where}: expected {len(turns) + (not known)} hashes, got {len(proof)}"
        raise IntegrityError(msg)
    if proof and any(len(value) != _SIZE for value in (part, root, *proof)):
        msg = f"{where}: a hash is not {_SIZE} bytes long"
        raise IntegrityError(msg)
    inner = whole = part if known else proof[0]
    for turn, value in zip(reversed(turns), proof if known else proof[1:], strict=True):
        whole = node_hash(value, whole) if turn.left else node_hash(whole, value)
        if turn.shared:
            inner = node_hash(value, inner)
    if inner != part:
        msg = f"{where}: leads to another root than the one it starts from"
        raise IntegrityError(msg)
    if whole != root:
        msg = f"{where}: leads to another root than the tree's"
        raise IntegrityError(msg)
