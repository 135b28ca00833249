"""Killing a process at any write, on purpose, and forging runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.ledger.disk import TEMPORARY, Disk
from vapo.ledger.log import GENESIS

MODES = ("half", "after")
"""Die in the middle of a write, or behind it but before anybody hears of it, which is as good as before the next."""


class Killed(BaseException):
    """The process is gone: no handler of ordinary errors sees this."""


@contextmanager
def killed_at(patch: pytest.MonkeyPatch, when: int, mode: str = "after") -> Iterator[list[str]]:
    """Let the process die at its write number `when` (from 0); yields the names of what is written."""
    seen: list[str] = []
    methods = {name: getattr(Disk, name) for name in ("write", "append", "truncate", "remove")}

    def counted(kind: str) -> Callable[..., None]:
        def method(self: Disk, name: str, *rest: Any, **options: Any) -> None:
            number = len(seen)
            seen.append(f"{kind} {name}")
            if number == when and mode == "half":
                leave_half(self, kind, name, *rest)
            if number == when and mode == "half":
                raise Killed
            methods[kind](self, name, *rest, **options)
            if number == when:
                raise Killed

        return method

    with patch.context() as patched:
        # Nothing pulls the plug here: what was written is on the disk.
        patched.setattr("os.fsync", lambda handle: None)
        for kind in methods:
            patched.setattr(Disk, kind, counted(kind))
        yield seen


def leave_half(disk: Disk, kind: str, name: str, *rest: Any) -> None:
    path = disk.root / name
    if kind == "append":
        with path.open("ab") as stream:
            stream.write(bytes(rest[0])[: len(rest[0]) // 2])
    elif kind == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(f"{TEMPORARY}{path.name}").write_bytes(bytes(rest[0])[: len(rest[0]) // 2])


def every_crash(
    patch: pytest.MonkeyPatch,
    folder: Path,
    work: Callable[[Path], Any],
    prepare: Callable[[Path], None] | None = None,
) -> Iterator[tuple[str, Path]]:
    """Do some work in fresh folders, dying at each of its writes in each way; yields what died and where."""
    ready = prepare or (lambda path: None)
    ready(folder / "whole")
    with killed_at(patch, -1) as writes:
        work(folder / "whole")
    for when in range(len(writes)):
        for mode in MODES:
            place = folder / f"{when}-{mode}"
            ready(place)
            with killed_at(patch, when, mode), pytest.raises(Killed):
                work(place)
            yield f"{mode} {writes[when]}", place


def forge(run: Path, edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the events of a run and chain them soundly again, as somebody with the code could."""
    events = edit([json.loads(line) for line in (run / "log.jsonl").read_bytes().splitlines()])
    previous, lines = GENESIS, []
    for number, event in enumerate(events):
        line = canonical_json({**event, "seq": number, "prev": previous})
        previous = sha256_hex(line)
        lines.append(line + b"\n")
    (run / "log.jsonl").write_bytes(b"".join(lines))
    (run / "checkpoint.json").write_bytes(canonical_json({"events": len(lines), "head": previous}))


def store(run: Path, data: bytes, suffix: str = "parquet") -> dict[str, str]:
    """Put a forged segment into a run and return its reference."""
    ref = {"sha256": sha256_hex(data), "suffix": suffix}
    (run / "segments" / f"{ref['sha256']}.{suffix}").write_bytes(data)
    return ref


def drop(run: Path, ref: dict[str, str]) -> None:
    """Remove a segment."""
    (run / "segments" / f"{ref['sha256']}.{ref['suffix']}").unlink()
