"""Which processes are there."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def workers_of(parent: int | None = None) -> list[int]:
    """Worker processes that descend from this process, or from another one."""
    parents: dict[int, int] = {}
    workers = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            line = (folder / "cmdline").read_bytes()
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if b"vapo.verifiers.worker" in line:
            workers.add(int(folder.name))
    wanted = os.getpid() if parent is None else parent
    return sorted(pid for pid in workers if wanted in _above(pid, parents))


def _above(pid: int, parents: dict[int, int]) -> set[int]:
    seen: set[int] = set()
    while pid in parents and pid not in seen:
        seen.add(pid)
        pid = parents[pid]
    return seen


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether something becomes true; the limit is only there so that a test comes to an end."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
