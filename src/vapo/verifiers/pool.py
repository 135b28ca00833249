"""A pool of worker processes in which a verifier can hang, crash or run wild, and hurt nothing but its own verdict."""

from __future__ import annotations

import math
import os
import pickle
import weakref
from collections.abc import Sequence
from types import TracebackType

from vapo.errors import InputError
from vapo.records import Source
from vapo.verifiers.base import Item, Outcome, Verifier, terms_of
from vapo.verifiers.pool_crew import Batch, Crew
from vapo.verifiers.pool_process import Limits

__all__ = ["Pool"]


class Pool:
    """Runs a verifier in worker processes of its own. It is itself a verifier, and the same source as the one it runs.

    An item that hangs, crashes or eats the memory gets its typed failure; the worker is replaced, and the others of its
    batch are judged by another one. Calls may come from any thread, several at a time. Workers are started by the first
    call, and end with `close`, with the pool, or with the interpreter, however that ends.

    A verifier that runs what it is given as a program gets sandboxed workers; where the system offers no isolation,
    each of its outcomes is `refused`.

    Args:
        verifier: What judges: an instance of a class at the top of a module, so that workers can import it.
        workers: Processes; by default one for each core that this process may use.
        deadline: Seconds for one item, measured in the worker, from when it begins with that item.
        grace: Seconds after the deadline until the pool kills a worker that could not end itself.
        memory: Bytes that a worker may use; of a sandboxed one, those that an item may use.

    Example:
        >>> from vapo.verifiers.regex import Regex
        >>> slow = Item("a", "", "a" * 40)
        >>> with Pool(Regex("(a|a)*b|c"), workers=1, deadline=0.5) as pool:
        ...     outcomes = pool.verify([Item("b", "", "c"), slow, Item("d", "", "e")])
        >>> [outcome.verdict or outcome.failure.value for outcome in outcomes]
        [1, 'timeout', -1]
    """

    def __init__(
        self,
        verifier: Verifier,
        *,
        workers: int | None = None,
        deadline: float = 5.0,
        grace: float = 0.5,
        memory: int = 2 << 30,
    ) -> None:
        workers = _cores() if workers is None else workers
        if workers < 1:
            expected = "at least one worker"
            raise InputError(expected, repr(workers), where="argument 'workers'")
        for name, value in (("deadline", deadline), ("grace", grace)):
            if not (math.isfinite(value) and value > 0):
                expected = "a finite number of seconds above 0"
                raise InputError(expected, repr(value), where=f"argument '{name}'")
        if memory < 1 << 20:
            expected = "at least 1 MiB"
            raise InputError(expected, f"{memory} bytes", where="argument 'memory'")
        try:
            pickle.dumps(verifier)
        except Exception as error:
            expected = "a verifier that can be sent to another process (an instance of a class at the top of a module)"
            raise InputError(expected, str(error), where="argument 'verifier'") from None
        self._source = verifier.source
        self._terms = terms_of(verifier)
        self._crew = Crew(verifier, workers, Limits(deadline, grace, memory))
        self._finalizer = weakref.finalize(self, self._crew.close)

    @property
    def source(self) -> Source:
        """The source of the verifier that it runs."""
        return self._source

    @property
    def by_id(self) -> bool:
        """Whether verdicts depend on the record's id, as those of the verifier that it runs may."""
        return self._terms.by_id

    @property
    def honours_keys(self) -> bool:
        """Whether asking the verifier that it runs again is paid once."""
        return self._terms.honours_keys

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost the verifier that it runs."""
        return self._terms.most_calls

    @property
    def workers(self) -> int:
        """How many processes judge at a time."""
        return self._crew.size

    @property
    def replaced(self) -> int:
        """How many workers have died so far."""
        return self._crew.deaths

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """One outcome for each item, in their order.

        Raises:
            InputError: If an item holds anything else than text, or if the pool belongs to another process.
            ProtocolError: If the pool is closed, before or meanwhile.
        """
        items = list(items)
        for place, item in enumerate(items):
            if not all(
                isinstance(text, str) for text in (item.id, item.question, item.completion, item.reference)
            ):
                expected = "texts only"
                raise InputError(expected, repr(item)[:200], where=f"item {place}")
        batch = Batch(items, [None] * len(items), len(items))
        if not items:
            return []
        try:
            self._crew.put(batch)
            batch.done.wait()
        finally:
            self._crew.drop(batch)
        outcomes = [outcome for outcome in batch.outcomes if outcome is not None]
        if len(outcomes) < len(items):
            message = "the pool was closed while it was judging"
            raise self._crew.why_closed(message)
        return outcomes

    def start(self) -> None:
        """Start the workers now, and wait until each has loaded the verifier."""
        self._crew.start()

    def close(self) -> None:
        """End the workers. Calls that wait for a verdict end with an error."""
        self._finalizer()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
