"""Writes that survive a crash: everything the ledger puts on disk goes through here."""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOTDIR
from pathlib import Path
from types import TracebackType

from vapo.errors import InputError, IntegrityError, LedgerLockedError, StorageError

__all__ = ["TEMPORARY", "Disk", "System"]

TEMPORARY = ".writing-"
"""Prefix of files that were never finished."""


class System:
    """The calls that a ledger makes of its file system, and all of them.

    Nothing here decides anything. A test puts another one in its place to fail, to kill or to pull the plug at any
    of these calls.
    """

    def open(self, path: Path, flags: int) -> int:
        """Open a file or a folder."""
        return os.open(path, flags | os.O_CLOEXEC, 0o666)

    def write(self, handle: int, data: memoryview) -> int:
        """Write some of the data and say how much of it."""
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        """Flush a file or a folder to the medium."""
        os.fsync(handle)

    def truncate(self, handle: int, size: int) -> None:
        """Cut an open file to a size."""
        os.ftruncate(handle, size)

    def close(self, handle: int) -> None:
        """Close a file or a folder."""
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of the file that has it."""
        old.replace(new)

    def unlink(self, path: Path) -> None:
        """Take a file's name away."""
        path.unlink()

    def mkdir(self, path: Path) -> None:
        """Make a folder."""
        path.mkdir()

    def read(self, path: Path) -> bytes:
        """The bytes of a file."""
        return path.read_bytes()


class Disk:
    """A folder with durable writes and one writer.

    A file is complete or absent: it is written under a temporary name, flushed to the medium, renamed, and the folder
    is flushed too, at once or with `settle`. An append is acknowledged after it was flushed.
    """

    def __init__(self, root: str | Path, system: System | None = None) -> None:
        self.root = Path(root)
        self._system = system or System()
        self._lock: int | None = None
        self.unsure = False
        """Whether a failed append could not be taken back, so that nobody knows what is on the medium."""

    def lock(self) -> None:
        """Become the folder's only writer, creating it if need be, and clear away unfinished files."""
        try:
            self._make_folder(self.root)
            if not any(self.root.iterdir()):
                # Whoever made it may have been killed before its name was flushed.
                with suppress(PermissionError):
                    self._flush_folder(self.root.parent)
            handle = self._system.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            expected = "a run folder that can be written"
            raise InputError(expected, error.strerror or str(error), where=str(self.root)) from None
        self._lock = handle
        try:
            self._claim(handle)
            for path in self.root.rglob(f"{TEMPORARY}*"):
                with self._typed(path.name):
                    self._system.unlink(path)
        except BaseException:
            self.unlock()
            raise

    def _claim(self, handle: int) -> None:
        with self._typed(""):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                msg = f"{self.root} is open for writing in another process; wait until it has finished"
                raise LedgerLockedError(msg) from None

    def unlock(self) -> None:
        """Let others write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Disk:
        self.lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unlock()

    def settle(self, *names: str) -> None:
        """Flush files and folders that were written before and perhaps not flushed."""
        for name in names:
            with self._typed(name), self._opened(self.root / name, os.O_RDONLY) as handle:
                self._system.fsync(handle)

    def write(self, name: str, data: bytes | memoryview, *, flush: bool = True) -> None:
        """Write a whole file, replacing what was there.

        Args:
            name: The file.
            data: All of it.
            flush: Whether its folder is flushed too. If not, a power cut leaves the file whole or as it was, and
                `settle` for the folder makes sure.

        Raises:
            StorageError: If the medium is full or broken; the file is then what it was before, or the new one.
        """
        path = self.root / name
        temporary = path.with_name(f"{TEMPORARY}{path.name}")
        with self._typed(name):
            self._make_folder(path.parent)
            try:
                with self._opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as handle:
                    self._write_all(handle, data)
                    self._system.fsync(handle)
                self._system.rename(temporary, path)
            except OSError:
                # On a full disk the unfinished file would keep the space that somebody has to find.
                with suppress(OSError):
                    self._system.unlink(temporary)
                raise
            if flush:
                self._flush_folder(path.parent)

    def append(self, name: str, data: bytes, *, at: int | None = None) -> None:
        """Append to a file and flush it; what cannot be flushed is cut off again.

        Args:
            name: The file.
            data: What to append.
            at: The size that the file must have before.

        Raises:
            StorageError: If the medium is full or broken; nothing was appended then, unless `unsure` says so.
        """
        path = self.root / name
        new = not path.exists()
        size = 0 if new else path.stat().st_size
        if at is not None and at != size:
            msg = f"{name}: its size is not {at} bytes any more: something else than its one writer has changed it"
            raise IntegrityError(msg)
        with self._typed(name):
            try:
                with self._opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as handle:
                    self._write_all(handle, data)
                    self._system.fsync(handle)
                if new:
                    self._flush_folder(path.parent)
            except BaseException:
                self._take_back(name, size)
                raise

    def _take_back(self, name: str, size: int) -> None:
        path = self.root / name
        with suppress(OSError):
            if path.exists():
                self.truncate(name, size)
        # A cut that was not flushed is flushed with the next event; one that was not made leaves bytes of this one.
        self.unsure = path.exists() and path.stat().st_size != size

    def note(self, name: str, data: bytes) -> None:
        """Append to a file that may be lost, and is when the medium is full."""
        # Without waiting, so that a pipe in the file's place cannot hold the writer up.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
        with suppress(OSError), self._opened(self.root / name, flags) as handle:
            self._write_all(handle, data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to a size and flush it."""
        with self._typed(name), self._opened(self.root / name, os.O_WRONLY) as handle:
            self._system.truncate(handle, size)
            self._system.fsync(handle)

    def remove(self, name: str) -> None:
        """Remove a file."""
        path = self.root / name
        with self._typed(name):
            with suppress(FileNotFoundError):
                self._system.unlink(path)
            self._flush_folder(path.parent)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        with self._typed(name):
            return self._system.read(self.root / name)

    def digest(self, name: str) -> str:
        """SHA-256 of a file, however large."""
        with self._typed(name), (self.root / name).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    def exists(self, name: str) -> bool:
        """Whether a file is there."""
        return (self.root / name).is_file()

    def names(self) -> list[str]:
        """Every file below the folder, by relative name."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir())

    def _make_folder(self, path: Path) -> None:
        if path != self.root and path.is_symlink():
            raise NotADirectoryError(ENOTDIR, "a symbolic link where a folder belongs", str(path))
        if not path.is_dir():
            self._make_folder(path.parent)
            with suppress(FileExistsError):
                self._system.mkdir(path)
            self._flush_folder(path.parent)

    def _flush_folder(self, path: Path) -> None:
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as handle:
            self._system.fsync(handle)

    def _write_all(self, handle: int, data: bytes | memoryview) -> None:
        rest = memoryview(data).cast("B")
        while rest:
            rest = rest[self._system.write(handle, rest) :]

    @contextmanager
    def _opened(self, path: Path, flags: int) -> Iterator[int]:
        # A link in a run folder could lead a writer to any file of its user; the folder itself is the user's choice.
        handle = self._system.open(path, flags | (0 if path == self.root else os.O_NOFOLLOW))
        try:
            yield handle
        finally:
            self._system.close(handle)

    @contextmanager
    def _typed(self, name: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise
        except OSError as error:
            msg = f"{self.root / name}: {error.strerror or error}; what was acknowledged before is on disk"
            raise StorageError(msg, error.errno) from error
