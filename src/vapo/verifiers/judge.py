"""A language model behind an OpenAI-compatible endpoint, as a verifier."""

from __future__ import annotations

import asyncio
import os
import queue
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any, NamedTuple

from vapo._internal.keyed import canonical_json
from vapo.errors import InputError
from vapo.records import Source
from vapo.verifiers.base import Cost, Failure, Item, Outcome
from vapo.verifiers.book import Asked
from vapo.verifiers.judge_client import Attempt, Client, Endpoint, Limits, Paid, send_to_loop
from vapo.verifiers.judge_reading import Reading, read_reply
from vapo.verifiers.origin import source_of
from vapo.verifiers.templates import Template, template

__all__ = ["Arrived", "Endpoint", "Judge", "Limits"]

_CODE = ("vapo.verifiers.judge", "vapo.verifiers.judge_reading", "vapo.verifiers.templates")


class Arrived(NamedTuple):
    """An outcome, and the number of the item that it is about."""

    number: int
    outcome: Outcome


class Judge:
    """Asks a chat model about every item, several at once, and never raises for what the other side does.

    What an attempt costs: an answer, and whatever may have been worked on (a cut connection, a timeout, a status 5xx),
    is a call; what never reached the server, and what it turned away (429, 503, 4xx), is none. With honoured keys all
    attempts at an item are one call. Without them an item is not asked again after an attempt that may have been paid,
    unless `limits.paid_retries` allows it, and then each such attempt is a call.

    Args:
        endpoint: Where it is, and what it offers.
        form: What is asked, as a template or the name of one.
        limits: How much, how often, and how long.
        name: Id of the source; by default the model and the template.

    Example:
        >>> with Judge(Endpoint("http://127.0.0.1:9/v1", "m"), limits=Limits(attempts=1)) as judge:
        ...     outcome, = judge.verify([Item("a", "1 + 1 = ?", "2", "2")])  # nobody is there
        >>> str(outcome.failure), outcome.cost.calls, judge.source.id
        ('crash', 0, 'm/equivalence')
    """

    def __init__(
        self,
        endpoint: Endpoint,
        form: Template | str = "equivalence",
        *,
        limits: Limits | None = None,
        name: str = "",
    ) -> None:
        if find_spec("httpx") is None:
            expected = "the library httpx (pip install 'audit-first-vapo[judges]')"
            got = "no such library installed"
            raise InputError(expected, got)
        self._endpoint = endpoint
        self._form = template(form)
        self._limits = limits or Limits()
        self._client: Client | None = None
        asked = {
            "model": endpoint.model,
            "version": endpoint.version,
            "logprobs": endpoint.logprobs,
            "template": self._form.digest,
        }
        self._source = source_of(name or f"{endpoint.model}/{self._form.name}", asked, modules=_CODE)

    @property
    def source(self) -> Source:
        """Its id, and a digest over model, version, template and the code that reads answers."""
        return self._source

    @property
    def honours_keys(self) -> bool:
        """Whether asking again under one key is paid once."""
        return self._endpoint.honours_keys

    @property
    def most_calls(self) -> int:
        """The most calls that an item can cost."""
        return self._limits.most_calls(honoured=self._endpoint.honours_keys)

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop all connections; the next question opens new ones."""
        send_to_loop(self._close()).result()

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def verify(self, items: Sequence[Item]) -> list[Outcome]:
        """Judge a batch, from any thread; the idempotency key of an item hangs on its id and content."""
        keys = [Asked.of(self._source, item).key for item in items]
        found = {arrived.number: arrived.outcome for some in self.stream(items, keys) for arrived in some}
        return [found[number] for number in range(len(items))]

    def stream(self, items: Sequence[Item], keys: Sequence[str]) -> Iterator[list[Arrived]]:
        """Outcomes as they arrive, those together that arrived together; every item once.

        Args:
            items: What is judged.
            keys: One idempotency key an item.
        """
        if not items:
            return
        arrived: queue.SimpleQueue[Arrived | None] = queue.SimpleQueue()
        work = send_to_loop(self._ask_all(items, keys, arrived))
        # Whatever ends the work, somebody is waiting for it.
        work.add_done_callback(lambda _: arrived.put(None))
        waiting = len(items)
        try:
            while waiting:
                some = [arrived.get()]
                while not arrived.empty():
                    some.append(arrived.get())
                given = [outcome for outcome in some if outcome is not None]
                waiting -= len(given)
                if given:
                    yield given
                if waiting and some[-1] is None:
                    work.result()
        finally:
            work.cancel()

    async def _ask_all(
        self, items: Sequence[Item], keys: Sequence[str], arrived: queue.SimpleQueue[Arrived | None]
    ) -> None:
        if self._client is None or self._client.process != os.getpid():
            self._client = Client(self._endpoint, self._limits, self._read)
        client, numbers = self._client, iter(range(len(items)))

        async def worker() -> None:
            for number in numbers:
                arrived.put(Arrived(number, await self._ask(client, items[number], keys[number])))

        await asyncio.gather(*(worker() for _ in range(min(self._limits.concurrency, len(items)))))

    async def _ask(self, client: Client, item: Item, key: str) -> Outcome:
        messages = self._form.messages(item)
        if messages is None:
            return _failed(
                Failure.UNPARSABLE, "too long for the template, or without the reference that it needs"
            )
        try:
            attempts, seconds = await client.ask(self._payload(messages), key)
        except Exception as error:  # what a library raises against its own word must not end the batch
            cost = Cost(calls=self.most_calls)
            return _failed(Failure.CRASH, f"{type(error).__name__}: {error}"[:200], cost)
        paid = sum(attempt.paid is not Paid.NO for attempt in attempts)
        calls = min(paid, 1) if self._endpoint.honours_keys else paid
        return _outcome(attempts[-1], calls, seconds)

    def _read(self, body: bytes) -> Reading:
        return read_reply(body, self._form, limit=self._limits.largest_reply)

    def _payload(self, messages: list[dict[str, str]]) -> bytes:
        body: dict[str, Any] = {
            "model": self._endpoint.model,
            "messages": messages,
            "max_tokens": self._form.most_tokens,
            "temperature": 0,
        }
        if self._endpoint.logprobs:
            body |= {"logprobs": True, "top_logprobs": self._endpoint.logprobs}
        return canonical_json(body)


def _outcome(last: Attempt, calls: int, seconds: float) -> Outcome:
    reading = last.reading
    if reading is None:
        return _failed(last.failure or Failure.CRASH, last.detail, Cost(calls=calls, seconds=seconds))
    cost = Cost(calls, reading.tokens_in, reading.tokens_out, seconds)
    if reading.failure is not None:
        return _failed(reading.failure, reading.detail, cost)
    return Outcome(verdict=reading.verdict, confidence=reading.confidence, cost=cost, detail=reading.detail)


def _failed(failure: Failure, detail: str, cost: Cost | None = None) -> Outcome:
    return Outcome(failure=failure, cost=cost or Cost(), detail=detail)
