"""Worker processes that end with the work, whatever ends it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

__all__ = ["worker_pool"]


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
