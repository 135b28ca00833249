"""File systems for tests: one that films what the medium holds at every call, and one that fails.

A film knows, before each call and in the middle of each write, which bytes were written and which of them were
flushed. A crash at that moment leaves one of the states made from the two: everything that was written (kill -9),
only what was flushed (the plug is pulled), or any mixture. "After" a call is "before" the next one.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from types import MappingProxyType

from vapo._internal.keyed import sha256_hex
from vapo.ledger.disk import System

PULLS = ("kept", "lost", "mixed")
"""What a crash leaves: all that was written (kill -9), only what was flushed, or any mixture of the two."""

Tree = dict[str, bytes | None]
"""Files by relative name, and folders as None."""

_PAGE = 4096
_FOLDER = -1


class Killed(BaseException):
    """The process is gone: no handler of ordinary errors sees this."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What is written and what is flushed before a call, or in the middle of a write."""

    number: int
    what: str
    mode: str
    outside: tuple[int, str]
    """What the world outside the file system knows: acknowledged events, and the vendor's book."""
    names: MappingProxyType[str, int]
    """Files (by number) and folders by relative name, as the process sees them."""
    flushed_names: MappingProxyType[str, MappingProxyType[str, int]]
    """Entries of every folder, as the medium has them."""
    written: MappingProxyType[int, bytes]
    flushed: MappingProxyType[int, bytes]

    def __str__(self) -> str:
        return f"{self.mode} call {self.number} ({self.what})"

    def left(self, pull: str, seed: int = 0) -> Tree:
        """What a crash at this moment leaves."""
        if pull == "kept":
            return {
                name: None if file == _FOLDER else self.written[file] for name, file in self.names.items()
            }
        chance = random.Random(f"{self.number}/{self.mode}/{seed}") if pull == "mixed" else None
        return dict(self._restored("", chance))

    def _restored(self, folder: str, chance: random.Random | None) -> Iterator[tuple[str, bytes | None]]:
        flushed = self.flushed_names.get(folder, {})
        start = f"{folder}/" if folder else ""
        seen = {
            name.removeprefix(start): file
            for name, file in self.names.items()
            if name.startswith(start) and "/" not in name.removeprefix(start)
        }
        for entry in sorted(flushed.keys() | seen.keys()):
            file = (flushed if chance is None or chance.random() < 0.5 else seen).get(entry)
            if file == _FOLDER:
                yield start + entry, None
                yield from self._restored(start + entry, chance)
            elif file is not None:
                yield start + entry, self._content(file, chance)

    def _content(self, file: int, chance: random.Random | None) -> bytes:
        flushed, written = self.flushed.get(file, b""), self.written[file]
        if chance is None or flushed == written:
            return flushed
        # Pages reach the medium in any order; one that is missing behind the old end reads as zeros.
        size = chance.choice(
            [len(written), chance.randint(min(len(flushed), len(written)), len(written)), len(flushed)]
        )
        old, new = flushed.ljust(size, b"\0")[:size], written.ljust(size, b"\0")[:size]
        pages = range(0, size, _PAGE)
        return b"".join((new if chance.random() < 0.6 else old)[p : p + _PAGE] for p in pages)


class Film(System):
    """The real file system, filmed: nothing is flushed in earnest, as the medium is this memory.

    Args:
        root: A folder that exists and is empty, or holds what is on the medium already.
        outside: Tells what the world outside knows at a moment.
        wanted: Which calls to keep a picture of; all by default.
        before: The moment at which the process before was killed: what it had not flushed is there and not flushed.
    """

    def __init__(
        self,
        root: Path,
        outside: Callable[[], tuple[int, str]] = lambda: (0, ""),
        wanted: Callable[[int], bool] = lambda number: True,
        before: Moment | None = None,
    ) -> None:
        self.root, self.outside, self.wanted = root, outside, wanted
        self.calls: list[str] = []
        self.moments: list[Moment] = []
        self._handles: dict[int, str] = {}
        self._names: dict[str, int] = {}
        self._medium: dict[str, MappingProxyType[str, int]] = {}
        self._written: dict[int, bytes] = {}
        self._flushed: dict[int, bytes] = {}
        if before is not None:
            self._names, self._medium = dict(before.names), dict(before.flushed_names)
            self._written, self._flushed = dict(before.written), dict(before.flushed)
            return
        for path in sorted(root.rglob("*")):
            self._names[self._name(path)] = _FOLDER if path.is_dir() else len(self._written)
            if path.is_file():
                self._flushed[len(self._written)] = self._written[len(self._written)] = path.read_bytes()
        for folder in ["", *(name for name, file in self._names.items() if file == _FOLDER)]:
            self._flush_folder(folder)

    def point(self, what: str) -> None:
        """A moment at which the process may die, of the file system or of anything else."""
        self.calls.append(what)
        self._picture(what, "before")

    def _picture(self, what: str, mode: str) -> None:
        if self.wanted(len(self.calls) - 1):
            parts = (self._names, self._medium, self._written, self._flushed)
            copies = (MappingProxyType(dict(part)) for part in parts)
            self.moments.append(Moment(len(self.calls) - 1, what, mode, self.outside(), *copies))  # type: ignore[arg-type]

    def _name(self, path: Path) -> str:
        name = str(path.relative_to(self.root))
        return "" if name == "." else name

    def open(self, path: Path, flags: int) -> int:
        self.point(f"open {path.name}")
        handle = super().open(path, flags)
        name = self._handles[handle] = self._name(path)
        if not flags & os.O_DIRECTORY and (name not in self._names or flags & os.O_TRUNC):
            file = self._names.setdefault(name, len(self._written))
            self._written[file] = b""
        return handle

    def write(self, handle: int, data: memoryview) -> int:
        self.point("write")
        file = self._names[self._handles[handle]]
        before = self._written[file]
        self._written[file] = before + bytes(data[: len(data) // 2])
        self._picture("write", "half")
        done = super().write(handle, data)
        self._written[file] = before + bytes(data[:done])
        return done

    def fsync(self, handle: int) -> None:
        name = self._handles[handle]
        self.point(f"fsync {PurePath(name).name}")
        if self._names.get(name, _FOLDER) == _FOLDER:
            self._flush_folder(name)
        else:
            self._flushed[self._names[name]] = self._written[self._names[name]]

    def _flush_folder(self, name: str) -> None:
        start = f"{name}/" if name else ""
        inside = {n.removeprefix(start): file for n, file in self._names.items() if n.startswith(start)}
        self._medium[name] = MappingProxyType({n: file for n, file in inside.items() if "/" not in n})

    def truncate(self, handle: int, size: int) -> None:
        self.point("truncate")
        super().truncate(handle, size)
        file = self._names[self._handles[handle]]
        self._written[file] = self._written[file][:size]

    def close(self, handle: int) -> None:
        self.point("close")
        del self._handles[handle]
        super().close(handle)

    def rename(self, old: Path, new: Path) -> None:
        self.point(f"rename {new.name}")
        super().rename(old, new)
        self._names[self._name(new)] = self._names.pop(self._name(old))

    def unlink(self, path: Path) -> None:
        self.point(f"unlink {path.name}")
        super().unlink(path)
        del self._names[self._name(path)]

    def mkdir(self, path: Path) -> None:
        self.point(f"mkdir {path.name}")
        super().mkdir(path)
        self._names[self._name(path)] = _FOLDER


class Forgetful(Film):
    """The film of a ledger that forgets one thing: to flush files, to flush folders, or to write under another name."""

    def __init__(self, root: Path, outside: Callable[[], tuple[int, str]], forgets: str) -> None:
        self.forgets = forgets
        super().__init__(root, outside)

    def fsync(self, handle: int) -> None:
        folder = self._names.get(self._handles[handle], _FOLDER) == _FOLDER
        log = self._handles[handle].endswith("log.jsonl")
        if self.forgets != ("folders" if folder else "the log" if log else "files"):
            super().fsync(handle)


class Broken(System):
    """A file system that fails: the disk is full from one call on, one call is an error, or one write is short."""

    def __init__(self, at: int, fault: str) -> None:
        self.at, self.fault = at, fault
        self.calls = 0
        self.failed = 0

    def point(self, what: str) -> None:
        """Nothing fails here but the file system."""

    def _count(self) -> bool:
        self.calls += 1
        wrong = self.calls > self.at if self.fault == "full" else self.calls - 1 == self.at
        self.failed += wrong
        return wrong

    def _check(self) -> None:
        if self._count() and self.fault != "short":
            number = errno.ENOSPC if self.fault == "full" else errno.EIO
            raise OSError(number, os.strerror(number))

    def write(self, handle: int, data: memoryview) -> int:
        if not self._count():
            return super().write(handle, data)
        done = super().write(handle, data[: max(1, len(data) // 2)])
        if self.fault == "short":
            return done
        number = errno.ENOSPC if self.fault == "full" else errno.EIO
        raise OSError(number, os.strerror(number))

    def fsync(self, handle: int) -> None:
        self._check()

    def rename(self, old: Path, new: Path) -> None:
        self._check()
        super().rename(old, new)

    def mkdir(self, path: Path) -> None:
        self._check()
        super().mkdir(path)

    def truncate(self, handle: int, size: int) -> None:
        # A full disk lets files be cut.
        if self.fault == "broken":
            self._check()
        super().truncate(handle, size)


class Quick(System):
    """A file system that is never crashed and so need not flush."""

    def fsync(self, handle: int) -> None:
        del handle

    def point(self, what: str) -> None:
        """Nothing happens here."""


class Fatal(Quick):
    """A file system on which the process dies before one of its calls, and does nothing more."""

    def __init__(self, at: int) -> None:
        self.left = at

    def point(self, what: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise Killed

    def write(self, handle: int, data: memoryview) -> int:
        self.point("write")
        return super().write(handle, data)

    def rename(self, old: Path, new: Path) -> None:
        self.point("rename")
        super().rename(old, new)

    def unlink(self, path: Path) -> None:
        self.point("unlink")
        super().unlink(path)

    def truncate(self, handle: int, size: int) -> None:
        self.point("truncate")
        super().truncate(handle, size)


def digest_of(tree: Tree, outside: tuple[int, str]) -> str:
    """Names a state; equal states have equal futures."""
    parts = [f"{name} {'' if data is None else sha256_hex(data)}" for name, data in sorted(tree.items())]
    return sha256_hex("\n".join([*parts, *map(str, outside)]).encode())


def lay(tree: Tree, folder: Path) -> None:
    """Put a state on the real disk."""
    folder.mkdir(parents=True)
    for name, data in sorted(tree.items()):
        if data is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(data)
