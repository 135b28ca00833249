"""Opening tables of runs that come from elsewhere: in a process of its own, with little memory, time and power.

A Parquet reader is a large program in a language without bounds checks. Whoever can choose the bytes of a segment
can also choose its digest, so a digest says nothing about them. The process has no files but its pipes, and is
ended when it takes too much memory or time; if it breaks, that is an error like any other.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import pyarrow as pa

from vapo.errors import InputError, IntegrityError
from vapo.ledger.segments import checked_bytes

__all__ = ["LimitedReader"]

_CHILD = Path(__file__).with_name("limited_child.py")
_BLOCK = 1 << 20


class LimitedReader:
    """Reads Parquet segments like `read_parquet`, in a limited process that it starts when it is first needed.

    Example:
        >>> from vapo.ledger.segments import encode_table
        >>> segment = encode_table(pa.table({"a": [1, 2]}))
        >>> with LimitedReader() as reader:
        ...     reader(bytes(segment.data), segment.ref["sha256"]).column("a").to_pylist()
        [1, 2]
    """

    def __init__(self, *, memory: int = 4 << 30, seconds: int = 60) -> None:
        """Set the limits.

        Args:
            memory: Bytes of address space that the process may take, and of a table that is taken from it.
            seconds: Time for one table.
        """
        if memory < 1 or seconds < 1:
            expected = "at least one byte and one second"
            raise InputError(expected, f"{memory} and {seconds}")
        self._memory, self._seconds = memory, seconds
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, data: bytes, digest: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet segment after checking its digest.

        Raises:
            IntegrityError: If it is not the segment, not readable, or not within the limits.
        """
        checked_bytes(data, digest)
        try:
            kind, answer = self._ask(data, columns)
        except (OSError, EOFError) as error:
            code = self._end()
            why = str(error) if isinstance(error, TimeoutError) else f"its reader ended with {code}"
            msg = f"segment {digest[:12]}…: could not be opened within the limits: {why}"
            raise IntegrityError(msg) from None
        if kind == b"T":
            try:
                table = pa.ipc.open_stream(answer).read_all()
                table.validate(full=True)
            except pa.ArrowException as error:
                said = str(error)
            else:
                return table
        else:
            said = answer.decode("utf-8", "replace")
        msg = f"segment {digest[:12]}…: not readable as Parquet: {said}"
        raise IntegrityError(msg)

    def close(self) -> None:
        """End the process."""
        self._end()

    def __enter__(self) -> LimitedReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, data: bytes, columns: list[str] | None) -> tuple[bytes, bytes]:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        asked = json.dumps(columns).encode()
        process.stdin.write(len(asked).to_bytes(8) + asked + len(data).to_bytes(8))
        process.stdin.write(data)
        process.stdin.flush()
        until = time.monotonic() + self._seconds
        head = self._read(process.stdout, 9, until)
        size = int.from_bytes(head[1:])
        if size > self._memory:
            msg = f"its table takes {size} bytes"
            raise TimeoutError(msg)
        return head[:1], self._read(process.stdout, size, until)

    def _read(self, stream: IO[bytes], size: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < size:
            ready, _, _ = select.select([stream], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                msg = f"not done after {self._seconds} s"
                raise TimeoutError(msg)
            part = os.read(stream.fileno(), min(size - len(found), _BLOCK))
            if not part:
                raise EOFError
            found += part
        return bytes(found)

    def _start(self) -> subprocess.Popen[bytes]:
        # Arrow's own allocators reserve far more addresses than they use.
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "PATH": os.defpath}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(_CHILD), str(self._memory), str(self._seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment,
        )
        return self._process

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        return process.wait()
