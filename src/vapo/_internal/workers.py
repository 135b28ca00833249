"""Workers that end with the work, whatever ends it: processes here, or those of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vapo.errors import InputError

__all__ = ["RayPool", "ray_pool", "worker_pool"]


@contextmanager
def worker_pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end with the work, also when it is interrupted or its owner killed.

    They are spawned, not forked: a forked child would inherit a library's threads in whatever state they were.
    """
    others = {process.pid for process in multiprocessing.active_children()}
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _quietly)
    try:
        yield pool
    except BaseException:
        # A running task may take minutes; what it finds would not be read any more.
        for process in multiprocessing.active_children():
            if process.pid not in others:
                process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True)
class RayPool:
    """The processors of a Ray cluster."""

    size: int
    """How many there are."""
    _remote: Callable[..., Any]

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have something called on one of them."""
        future: Future[Any] = self._remote(call).remote(*args).future()
        return future


@contextmanager
def ray_pool(address: str) -> Iterator[RayPool]:
    """The processors of a Ray cluster, whose machines have this package and what it needs.

    Args:
        address: Where the cluster is; `auto` for the one that this machine belongs to, `local` to start one here.

    Raises:
        InputError: Ray is not installed, or there is no such cluster.
    """
    try:
        import ray
    except ImportError as error:
        expected = "the extra `ray` (pip install 'audit-first-vapo[ray]')"
        raise InputError(expected, str(error), where="ray") from None
    try:
        host, colon, port = address.rpartition("://")[2].rpartition(":")
        if colon:
            # Ray itself would knock for minutes where nobody is.
            socket.create_connection((host, int(port)), timeout=10.0).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        expected = "the address of a Ray cluster, auto or local"
        raise InputError(expected, f"{address!r}: {error}", where="ray") from None
    try:
        yield RayPool(max(int(ray.cluster_resources().get("CPU", 1)), 1), ray.remote)
    finally:
        ray.shutdown()


def _quietly() -> None:
    """Leave an interruption from the keyboard to the process that owns the pool, and end when that one does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_outlive_nobody, daemon=True).start()


def _outlive_nobody() -> None:
    # A worker holds both ends of the queue of tasks, so it would wait for ever on an owner that was killed.
    owner = multiprocessing.parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)
