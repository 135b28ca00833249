"""The threads behind a pool: one queue for all, and one thread that minds each worker process."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vapo.errors import InputError, ProtocolError
from vapo.verifiers.base import Failure, Item, Outcome, Verifier
from vapo.verifiers.pool_process import Limits, StartError, WorkerProcess

__all__ = ["Batch", "Crew", "Task"]

MOST_STARTS = 3
"""A worker that dies so often without having got to an item gives its items back as crashed."""
LEAST_IN_A_PIECE, MOST_IN_A_PIECE = 8, 32
AHEAD = 3
"""Pieces that a worker has at a time: it need not wait for the next one when the calling process is busy."""


@dataclass(slots=True, eq=False)
class Batch:
    """Items that somebody waits for, and what has come of them so far."""

    items: Sequence[Item]
    outcomes: list[Outcome | None]
    left: int
    """How many have no outcome yet."""
    abandoned: bool = False
    """Whether nobody waits any more."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when all have an outcome, or none will come any more."""


class Task(NamedTuple):
    """One item of a batch."""

    batch: Batch
    place: int

    @property
    def item(self) -> Item:
        """What is to be judged."""
        return self.batch.items[self.place]


class Crew:
    """What the threads of a pool share: the queue, and one thread for each worker process."""

    def __init__(self, verifier: Verifier, size: int, limits: Limits) -> None:
        self.verifier = verifier
        self.size = size
        self.limits = limits
        self.deaths = 0
        self._owner = os.getpid()
        self._change = threading.Condition()
        self._queue: deque[list[Task]] = deque()
        self._open: set[Batch] = set()
        self._closed = False
        self._broken: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self._processes: set[WorkerProcess] = set()
        self._getting_ready: set[threading.Thread] = set()

    def start(self) -> None:
        """Start the workers, and wait until each is loaded."""
        with self._change:
            self._begin()
            while self._getting_ready and not self._closed:
                self._change.wait()

    def _begin(self) -> None:
        if os.getpid() != self._owner:
            expected = "a pool made in this process"
            raise InputError(expected, "one that came through a fork", where="Pool")
        if self._closed:
            message = "the pool is closed"
            raise self.why_closed(message)
        if not self._threads:
            self._threads = [
                threading.Thread(target=_mind, args=(self,), name=f"vapo-verifier-{n}", daemon=True)
                for n in range(self.size)
            ]
            self._getting_ready = set(self._threads)
            for thread in self._threads:
                thread.start()

    def put(self, batch: Batch) -> None:
        """Have a batch judged."""
        tasks = [Task(batch, place) for place in range(len(batch.items))]
        with self._change:
            self._begin()
            self._open.add(batch)
            self._queue.extend(_pieces(tasks, self.size))
            self._change.notify_all()

    def drop(self, batch: Batch) -> None:
        """Nobody waits for it any more; what is left of it is not judged."""
        with self._change:
            batch.abandoned = True
            self._open.discard(batch)

    def put_back(self, tasks: Sequence[Task]) -> None:
        """Tasks of a worker that died: one at a time, so that any worker can take the next."""
        with self._change:
            self._queue.extendleft([task] for task in reversed(tasks))
            self._change.notify_all()

    def take(self, *, wait: bool) -> list[Task] | None:
        """The next piece of work; None when there is none, or, if waited for, when there will be none any more."""
        with self._change:
            while not self._closed:
                while self._queue:
                    tasks = [task for task in self._queue.popleft() if not task.batch.abandoned]
                    if tasks:
                        return tasks
                if not wait:
                    return None
                self._change.wait()
            return None

    def settle(self, task: Task, outcome: Outcome) -> None:
        """Note what came of an item; nothing once the pool is closed, when a worker's end is not the item's fault."""
        batch = task.batch
        with self._change:
            if self._closed:
                return
            batch.outcomes[task.place] = outcome
            batch.left -= 1
            if not batch.left:
                self._open.discard(batch)
                batch.done.set()

    def give_up(self, tasks: Sequence[Task], error: StartError | None) -> None:
        """Settle items that no worker could begin with."""
        failure = Failure.CRASH if error is None else error.failure
        detail = str(error or "workers die before they have begun")
        for task in tasks:
            self.settle(task, Outcome(failure=failure, detail=detail))

    def ready(self) -> None:
        """The calling thread's worker is loaded, or will not be."""
        with self._change:
            self._getting_ready.discard(threading.current_thread())
            self._change.notify_all()

    def spawn(self) -> WorkerProcess | None:
        """A new process, known to everybody before it can be forgotten; None when the pool is closed."""
        with self._change:
            if self._closed:
                return None
            try:
                process = WorkerProcess(self.verifier, self.limits)
            except OSError as error:
                raise StartError(str(error)) from None
            self._processes.add(process)
            return process

    def forget(self, process: WorkerProcess, *, died: bool) -> None:
        """A process is gone, or has to go."""
        process.close()
        with self._change:
            self._processes.discard(process)
            self.deaths += died

    def close(self, broken: BaseException | None = None) -> None:
        """End all workers; whoever waits is woken, with what there is, and told what broke, if anything did."""
        if os.getpid() != self._owner:
            return
        with self._change:
            self._broken = self._broken or broken
            self._closed = True
            self._queue.clear()
            for batch in self._open:
                batch.done.set()
            self._open.clear()
            for process in self._processes:
                process.end()
            self._change.notify_all()
        if threading.current_thread() not in self._threads:
            for thread in self._threads:
                thread.join()

    def why_closed(self, message: str) -> ProtocolError:
        """What to raise once it is over."""
        if self._broken is None:
            return ProtocolError(message)
        error = ProtocolError(f"{message}, since it broke: {type(self._broken).__name__}: {self._broken}")
        error.__cause__ = self._broken
        return error

    @property
    def closed(self) -> bool:
        """Whether it is over."""
        return self._closed


def _pieces(tasks: list[Task], workers: int) -> Iterator[list[Task]]:
    """Large ones first and small ones last, so that all workers come to the end together."""
    start = 0
    while start < len(tasks):
        fair = math.ceil((len(tasks) - start) / (4 * workers))
        size = max(LEAST_IN_A_PIECE, min(MOST_IN_A_PIECE, fair))
        yield tasks[start : start + size]
        start += size


def _mind(crew: Crew) -> None:
    """What one thread of a pool does: keep one worker process busy, and replace it when it dies."""
    process: WorkerProcess | None = None
    error: StartError | None = None
    failed_starts = blameless_deaths = 0
    try:
        while not crew.closed:
            if process is None and not (error and error.final):
                process, error = _started(crew)
                failed_starts = 0 if error is None else failed_starts + 1
            crew.ready()
            tasks = crew.take(wait=True)
            if tasks is None:
                break
            if process is None:
                if error and (error.final or failed_starts >= MOST_STARTS):
                    crew.give_up(tasks, error)
                    failed_starts = 0
                else:
                    crew.put_back(tasks)
                continue
            rest = _feed(crew, process, tasks)
            if rest is None:
                blameless_deaths = 0
                continue
            blameless_deaths = 0 if process.ended else blameless_deaths + 1
            crew.forget(process, died=True)
            process = None
            if blameless_deaths < MOST_STARTS:
                crew.put_back(rest)
            else:
                crew.give_up(rest, None)
    except BaseException as error:
        crew.close(error)  # whoever waits must not wait for a thread that is gone
    finally:
        if process is not None:
            crew.forget(process, died=False)


def _started(crew: Crew) -> tuple[WorkerProcess | None, StartError | None]:
    process = None
    try:
        process = crew.spawn()
        if process is not None:
            process.wait_until_ready()
    except StartError as error:
        if process is not None:
            crew.forget(process, died=not error.final)
        return None, error
    return process, None


def _feed(crew: Crew, process: WorkerProcess, tasks: list[Task]) -> list[Task] | None:
    """Have tasks judged, and more as long as there are any; if the process dies over it, those that are left."""
    sent: deque[Task] = deque()
    ends: deque[int] = deque()
    posted = settled = 0
    while True:
        if tasks:
            process.post([task.item for task in tasks])
            sent.extend(tasks)
            posted += len(tasks)
            ends.append(posted)
        for outcome in process.answers():
            crew.settle(sent.popleft(), outcome)
            settled += 1
        while ends and ends[0] <= settled:
            ends.popleft()
        if not process.alive:
            break
        tasks = (crew.take(wait=False) or []) if len(ends) < AHEAD else []
        if not sent and not tasks:
            return None
    rest = list(sent)
    if process.ended is not None and process.at_fault < len(rest):
        crew.settle(rest.pop(process.at_fault), process.ended)
    return rest
