"""Asking an OpenAI-compatible endpoint: one item, several attempts at most, each bounded in time and in size."""

from __future__ import annotations

import asyncio
import email.utils
import os
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from vapo._internal.keyed import keyed_fraction
from vapo.errors import InputError
from vapo.verifiers.base import Failure
from vapo.verifiers.judge_reading import Reading

if TYPE_CHECKING:
    from concurrent.futures import Future

    import httpx

__all__ = ["Attempt", "Client", "Endpoint", "Limits", "Pace", "Paid", "send_to_loop"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a judge is, and what it offers.

    Example:
        >>> Endpoint("http://127.0.0.1:8000/v1/", "judge-model").chat
        'http://127.0.0.1:8000/v1/chat/completions'
    """

    url: str
    """Address of the API, up to and with its version: `http://127.0.0.1:8000/v1`."""
    model: str
    """Name of the model, as the endpoint calls it."""
    version: str = ""
    """What fixes the weights behind the name, such as a revision; it enters the digest, the address does not."""
    key_variable: str = ""
    """Environment variable with the access key; it is read when a call is made and kept nowhere."""
    honours_keys: bool = False
    """Whether asking again under one idempotency key gives the same answer and is paid once."""
    key_header: str = "Idempotency-Key"
    logprobs: int = 5
    """How many alternatives to ask for at each token; 0 for servers that offer no log-probabilities."""
    proxy: str = ""
    """Proxy to go through; none is taken from the environment."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")) or not self.model:
            expected = "an address that begins with http:// or https://, and a model"
            raise InputError(expected, f"{self.url!r}, {self.model!r}", where="endpoint")
        if not 0 <= self.logprobs <= 20:
            expected = "0 to 20 alternatives"
            raise InputError(expected, str(self.logprobs), where="endpoint: 'logprobs'")

    @property
    def chat(self) -> str:
        """Where requests go."""
        return self.url.rstrip("/") + "/chat/completions"


@dataclass(frozen=True, slots=True)
class Limits:
    """How much, how often, and how long a judge is asked.

    Example:
        >>> Limits(attempts=2).most_calls(honoured=False), Limits(paid_retries=1).most_calls(honoured=False)
        (1, 2)
    """

    concurrency: int = 8
    """Requests in flight at once, over all threads."""
    per_second: float | None = None
    """Requests begun in a second; None for no limit."""
    attempts: int = 5
    """Most requests for one item, whatever becomes of them."""
    paid_retries: int = 0
    """Without honoured keys: how often an item may be asked again after an attempt that may have been paid."""
    timeout: float = 60.0
    """Seconds that one attempt may take, its whole answer included."""
    deadline: float = 180.0
    """Seconds that an item may take from its first attempt on, waiting included."""
    backoff: float = 0.5
    """Seconds before the second attempt; twice as long before each further one, half of it varying."""
    largest_reply: int = 1 << 20
    """Bytes of a reply that are read; a larger one is cut off and cannot be parsed."""

    def __post_init__(self) -> None:
        counts = (self.concurrency, self.attempts, self.largest_reply, self.paid_retries + 1)
        spans = (self.timeout, self.deadline, 1.0 if self.per_second is None else self.per_second)
        if min(counts) < 1 or not all(0 < span < float("inf") for span in spans) or not self.backoff >= 0:
            expected = "positive limits (backoff and paid_retries may be 0)"
            raise InputError(expected, repr(self), where="limits")

    def most_calls(self, *, honoured: bool) -> int:
        """The most calls that an item can cost."""
        return 1 if honoured else min(self.attempts, 1 + self.paid_retries)


class Paid(Enum):
    """Whether an attempt may have been paid for."""

    NO = "no"
    """It never reached the server, or the server said that it would not work on it."""
    MAYBE = "maybe"
    """The server may have worked on it; nobody here can know."""
    YES = "yes"
    """The answer is there."""


class Attempt(NamedTuple):
    """What became of one request."""

    paid: Paid
    reading: Reading | None = None
    """What the reply says, where a whole one came."""
    failure: Failure | None = None
    again: bool = False
    """Whether trying again could help."""
    wait: float = 0.0
    """Seconds that the server asked to wait."""
    detail: str = ""


@dataclass(slots=True)
class Pace:
    """Begins at most so many requests in a second, over all threads and loops.

    Example:
        >>> pace = Pace(10.0)
        >>> pace.turn(100.0), round(pace.turn(100.0), 3), pace.turn(200.0)
        (0.0, 0.1, 0.0)
    """

    per_second: float | None
    _next: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def turn(self, now: float) -> float:
        """Take the next turn and say how many seconds to wait for it."""
        if self.per_second is None:
            return 0.0
        with self._lock:
            begin = max(now, self._next)
            self._next = begin + 1.0 / self.per_second
        return begin - now


class Client:
    """The connection to one endpoint; lives on the loop of `send_to_loop`."""

    def __init__(self, endpoint: Endpoint, limits: Limits, read: Callable[[bytes], Reading]) -> None:
        import httpx

        self.process = os.getpid()
        self._endpoint = endpoint
        self._read = read
        self._limits = limits
        self._pace = Pace(limits.per_second)
        self._slots = asyncio.Semaphore(limits.concurrency)
        self._client = httpx.AsyncClient(
            timeout=limits.timeout,
            limits=httpx.Limits(max_connections=limits.concurrency),
            trust_env=False,
            proxy=endpoint.proxy or None,
        )

    async def close(self) -> None:
        """Drop all connections."""
        await self._client.aclose()

    async def ask(self, payload: bytes, key: str) -> tuple[list[Attempt], float]:
        """Ask until there is an answer, no attempt is left, or trying again is in vain or could be paid twice.

        Returns:
            The attempts in their order, and the seconds since the first.
        """
        limits, attempts = self._limits, list[Attempt]()
        async with self._slots:
            begin = time.monotonic()
            while True:
                left = limits.deadline - (time.monotonic() - begin)
                await asyncio.sleep(min(self._pace.turn(time.monotonic()), max(left, 0.0)))
                left = limits.deadline - (time.monotonic() - begin)
                if left <= 0:
                    attempts.append(Attempt(Paid.NO, failure=Failure.TIMEOUT, detail="the deadline passed"))
                    break
                attempts.append(await self._attempt(payload, key, min(limits.timeout, left)))
                if not self._may_repeat(attempts):
                    break
                wait = limits.backoff * 2.0 ** (len(attempts) - 1)
                wait *= 0.5 + 0.5 * keyed_fraction(b"backoff", f"{key} {len(attempts)}")
                wait = max(wait, attempts[-1].wait)
                if time.monotonic() - begin + wait >= limits.deadline:
                    break
                await asyncio.sleep(wait)
            return attempts, time.monotonic() - begin

    def _may_repeat(self, attempts: list[Attempt]) -> bool:
        last = attempts[-1]
        if not last.again or len(attempts) >= self._limits.attempts:
            return False
        paid = sum(attempt.paid is not Paid.NO for attempt in attempts)
        return self._endpoint.honours_keys or paid <= self._limits.paid_retries

    async def _attempt(self, payload: bytes, key: str, seconds: float) -> Attempt:
        import httpx

        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        headers[self._endpoint.key_header] = key
        secret = (
            os.environ.get(self._endpoint.key_variable, "").strip() if self._endpoint.key_variable else ""
        )
        if not (secret.isascii() and secret.isprintable()):
            # A library would quote the key in its complaint.
            why = (
                f"the access key in {self._endpoint.key_variable} holds characters that no request can carry"
            )
            return Attempt(Paid.NO, failure=Failure.REFUSED, detail=why)
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        try:
            async with (
                asyncio.timeout(seconds),
                self._client.stream(
                    "POST", self._endpoint.chat, content=payload, headers=headers
                ) as response,
            ):
                body = await _bounded(response, self._limits.largest_reply)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError) as error:
            return Attempt(Paid.NO, failure=Failure.CRASH, again=True, detail=_named(error))
        except (TimeoutError, httpx.TimeoutException) as error:
            return Attempt(Paid.MAYBE, failure=Failure.TIMEOUT, again=True, detail=_named(error))
        except (httpx.HTTPError, httpx.StreamError) as error:
            return Attempt(Paid.MAYBE, failure=Failure.CRASH, again=True, detail=_named(error))
        except (httpx.InvalidURL, UnicodeError) as error:
            return Attempt(Paid.NO, failure=Failure.REFUSED, detail=_named(error))
        return self._judged(response.status_code, response.headers, body, secret)

    def _judged(self, status: int, headers: Any, body: bytes | None, secret: str) -> Attempt:
        """What a complete response means for the item and for the bill."""
        if 200 <= status < 300:
            reading = None if body is None else self._read(body)
            if reading is not None:
                reading = reading._replace(detail=_without(secret, reading.detail))
            if reading is None or reading.broken:
                why = "the reply is too large" if reading is None else reading.detail
                return Attempt(Paid.YES, failure=Failure.UNPARSABLE, again=True, detail=why)
            return Attempt(Paid.YES, reading)
        # Hidden before it is cut, so that no part of a key is left at the end.
        told = _without(secret, (body or b"").decode("utf-8", "replace"))[:160]
        detail = f"status {status}: {told}"
        if status in (429, 503):
            wait = _seconds(headers.get("retry-after", ""))
            return Attempt(Paid.NO, failure=Failure.REFUSED, again=True, wait=wait, detail=detail)
        if status >= 500 or status in (408, 409, 425):
            return Attempt(Paid.MAYBE, failure=Failure.CRASH, again=True, detail=detail)
        return Attempt(Paid.NO, failure=Failure.REFUSED, detail=detail)


async def _bounded(response: httpx.Response, most: int) -> bytes | None:
    """The body as it was sent; None if it is larger than allowed."""
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def _without(secret: str, text: str) -> str:
    """What a server said, without the key: servers quote keys that they do not know."""
    return text.replace(secret, "***") if secret else text


def _seconds(text: str) -> float:
    """What a Retry-After header asks for: seconds, or a date."""
    with suppress(ValueError):
        seconds = float(text)
        return seconds if 0.0 <= seconds < 1e9 else 0.0
    with suppress(ValueError, OverflowError):
        return max(email.utils.parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    return 0.0


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200] if str(error) else type(error).__name__


class _Loop:
    """An event loop in a thread of its own, one a process, so that any thread can wait for what runs on it."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="vapo judges", daemon=True).start()


_starting = threading.Lock()
_current: list[_Loop] = []


def send_to_loop(work: Coroutine[Any, Any, T]) -> Future[T]:
    """Run a coroutine on the process's loop for judges; a child that was forked gets a loop of its own.

    Example:
        >>> async def double(n):
        ...     return 2 * n
        >>> send_to_loop(double(4)).result()
        8
    """
    with _starting:
        if not _current or _current[0].process != os.getpid():
            _current[:] = [_Loop()]
        return asyncio.run_coroutine_threadsafe(work, _current[0].loop)
