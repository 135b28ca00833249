"""The appeal engine: any verifier behind a budget that cannot be overspent.

Reserve, put the request on disk, call, settle: in this order, so that the cap holds under concurrency, failures,
retries and restarts, and nothing is paid for twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from vapo.certification.appeals import Keyed
from vapo.errors import InputError, ProtocolError
from vapo.policy import Answers, Reason
from vapo.records import Records, Source
from vapo.verifiers.appeals_bill import Bill
from vapo.verifiers.base import Cost, Failure, Item, Outcome, Verifier, terms_of
from vapo.verifiers.book import Asked, Book

__all__ = ["Appeals", "Streaming", "as_answers"]

_REASONS = {Failure.LOST: Reason.SECONDARY_LOST, Failure.UNPARSABLE: Reason.SECONDARY_INVALID}


@runtime_checkable
class Streaming(Protocol):
    """A verifier that gives outcomes one by one, under keys: judges do."""

    @property
    def honours_keys(self) -> bool:
        """Whether asking again under one key is paid once."""
        ...

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost."""
        ...

    def stream(self, items: Sequence[Item], keys: Sequence[str]) -> Iterator[Sequence[tuple[int, Outcome]]]:
        """Outcomes as they arrive, each with the number of its item; every item once."""
        ...


class Appeals:
    """A verifier whose calls are reserved in a book before they are made; itself a verifier with the same source.

    A record's key hangs on the verifier's source, the record's id and its content. Asked again, after a crash or in the
    next process, a record has the outcome that it had, failures included, so that asking again is free and gives the
    same. A call that was in flight at a crash is made again under its key where the verifier honours keys, and is lost
    otherwise.

    Args:
        verifier: The one to ask. Judges are asked about many items at once; others get a batch as it is.
        book: Holds the cap and the answers; may be shared by several engines, which then share the cap.
        workers: Batches that may be under way at once.

    Example:
        >>> import tempfile
        >>> class Approving:
        ...     source = Source("approving", "0" * 64)
        ...     def verify(self, items):
        ...         return [Outcome(verdict=1) for _ in items]
        >>> batch = [Item("a", "1 + 1 = ?", "2"), Item("b", "1 + 1 = ?", "2"), Item("c", "1 + 1 = ?", "3")]
        >>> with tempfile.TemporaryDirectory() as folder, Book(folder, cap=1) as book:
        ...     with Appeals(Approving(), book) as engine:
        ...         said = [str(outcome.verdict or outcome.failure) for outcome in engine.verify(batch)]
        ...         said, engine.bill().reserved, engine.bill().hits
        (['1', '1', 'over_budget'], 1, 1)
    """

    def __init__(self, verifier: Verifier, book: Book, *, workers: int = 8) -> None:
        if workers < 1:
            expected = "at least one worker"
            raise InputError(expected, str(workers), where="argument 'workers'")
        self._verifier = verifier
        self._book = book
        self._terms = terms_of(verifier)
        self._calls = max(1, self._terms.most_calls)
        self._workers = ThreadPoolExecutor(workers, thread_name_prefix="vapo appeals")
        self._open = True

    @property
    def source(self) -> Source:
        """The source of the verifier behind it: a budget changes no verdict."""
        return self._verifier.source

    @property
    def by_id(self) -> bool:
        """Whether verdicts depend on the record's id."""
        return self._terms.by_id

    @property
    def honours_keys(self) -> bool:
        """Always: asked again, a record has what the book holds."""
        return True

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost: those that are reserved for it."""
        return self._calls

    def __enter__(self) -> Appeals:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Wait for what is under way; the book stays open."""
        self._open = False
        self._workers.shutdown()

    def bill(self) -> Bill:
        """What was asked in the book and what it cost so far."""
        return self._book.bill()

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Ask and wait for the answers."""
        return self.submit(items).result()

    def submit(self, items: Sequence[Item]) -> Future[list[Outcome]]:
        """Reserve the calls for a batch and begin with them; the caller goes on with other work.

        When this returns, the requests are on disk and the cap is spent, in the order of the items. Which records get
        a call depends on the order of submissions alone, never on when answers arrive.
        """
        if not self._open:
            msg = "the appeal engine is closed"
            raise ProtocolError(msg)
        asked = [Asked.of(self.source, item, by_id=self._terms.by_id) for item in items]
        now = self._book.request(asked, self.source.id, calls=self._calls, honoured=self._terms.honours_keys)
        try:
            todo = [self._as_first_asked(items[number], asked[number].key, key) for number, key in now]
            return self._workers.submit(self._work, todo, now, asked)
        except BaseException:
            self._book.landed([asked[number].content for number, _ in now])
            raise

    def keyed(self, items: Iterable[Item], records: Records | None = None) -> Keyed:
        """The engine as a secondary for `Gate.decide` and `freeze_trace`.

        Args:
            items: The items of the records, in any order.
            records: The records that are certified, for `freeze_trace`, which asks by place.
        """
        by_id = {item.id: item for item in items}

        def ask(batch: Records | slice, asked: npt.NDArray[np.bool_], keys: Sequence[str]) -> Answers:
            # The book's own keys do the same service, and find what was submitted ahead of the decision.
            del keys
            some = _part(records, batch) if isinstance(batch, slice) else batch
            wanted = [name for name, is_asked in zip(some.id.to_pylist(), asked, strict=True) if is_asked]
            missing = [name for name in wanted if name not in by_id]
            if missing:
                expected = "an item for every record that is asked about"
                raise InputError(expected, f"none for {missing[0]!r}", where="argument 'items'")
            return as_answers(self.verify([by_id[name] for name in wanted]), asked)

        return Keyed(ask)

    def _as_first_asked(self, item: Item, own: str, key: str) -> Item:
        """The item of a call; one that is taken up for another record goes by the name under which it was paid."""
        return item if key == own else replace(item, id=self._book.record(key))

    def _work(self, items: list[Item], now: list[tuple[int, str]], asked: list[Asked]) -> list[Outcome]:
        """Ask, and settle what arrives as it arrives; whatever the verifier does, every call is settled."""
        waiting = dict(enumerate(key for _, key in now))
        arriving, failed = self._ask(items, list(waiting.values())), "the verifier gave no outcome"
        try:
            while waiting:
                try:
                    some = [(waiting[number], number, _outcome(given)) for number, given in next(arriving)]
                except StopIteration:
                    break
                except Exception as error:  # a verifier that dies must not take the run along
                    failed = f"{type(error).__name__}: {error}"[:200]
                    break
                self._book.settle([(key, outcome) for key, _, outcome in some])
                for _, number, _ in some:
                    waiting.pop(number, None)
            crash = Outcome(failure=Failure.CRASH, cost=Cost(calls=self._calls), detail=ascii(failed))
            if waiting:
                self._book.settle([(key, crash) for key in waiting.values()])
        finally:
            arriving.close()
            self._book.landed([asked[number].content for number, _ in now])
        return [self._book.outcome(question.key) for question in asked]

    def _ask(
        self, items: list[Item], keys: list[str]
    ) -> Generator[Sequence[tuple[int, Outcome]], None, None]:
        if isinstance(self._verifier, Streaming):
            yield from self._verifier.stream(items, keys)
        elif items:
            yield list(zip(range(len(items)), self._verifier.verify(items), strict=True))


def _outcome(given: object) -> Outcome:
    if isinstance(given, Outcome):
        return given
    expected = "an outcome for every item"
    raise InputError(expected, type(given).__name__, where="verifier")


def as_answers(outcomes: Sequence[Outcome], asked: npt.NDArray[np.bool_]) -> Answers:
    """Outcomes as the decision function takes them: a failure is no answer, never a no.

    Args:
        outcomes: One for each record that was asked about, in their order.
        asked: Which of the records were.

    Example:
        >>> import numpy as np
        >>> given = as_answers([Outcome(verdict=-1, confidence=0.8)], np.array([False, True]))
        >>> given.verdict.tolist(), given.confidence.tolist()
        ([0, -1], [0.0, 0.8])
    """
    place, given = np.flatnonzero(asked), Answers.none(len(asked))
    if len(outcomes) != len(place):
        expected = f"{len(place)} outcomes"
        raise InputError(expected, str(len(outcomes)), where="argument 'outcomes'")
    given.verdict[place] = [outcome.sign for outcome in outcomes]
    given.confidence[place] = [outcome.confidence if outcome.sign else 0.0 for outcome in outcomes]
    reasons = [_REASONS.get(outcome.failure, 0) if outcome.failure else 0 for outcome in outcomes]
    given.failure[place] = np.array(reasons, np.uint8)
    return given


def _part(records: Records | None, rows: slice) -> Records:
    if records is None:
        expected = "the records that are certified, since they are asked about by place"
        raise InputError(expected, "none", where="argument 'records'")
    return records.take(rows)
