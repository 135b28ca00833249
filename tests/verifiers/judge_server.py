"""A chat server on loopback that answers or misbehaves, as a test wants, and keeps its own book of payments."""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from vapo._internal.keyed import keyed_fraction

FAULTS = (
    "429",
    "503",
    "500 unpaid",
    "500 paid",
    "cut unpaid",
    "cut paid",
    "slow",
    "wrong json",
    "no json",
    "huge",
)
HUGE = b"{" + b" " * 400_000 + b"}"


def mostly_good(bad: float, seed: str = "") -> Callable[[str, int], str]:
    """A fault for a share of all requests, fixed by key, number of the request and seed."""

    def fault(key: str, attempt: int) -> str:
        draw = keyed_fraction(b"fault", f"{seed} {key} {attempt}")
        return FAULTS[int(draw / bad * len(FAULTS))] if draw < bad else "ok"

    return fault


def is_right(answer: int) -> bool:
    """The truth that the server tells: answers that seven divides are wrong."""
    return answer % 7 != 0


class JudgeServer:
    """Runs in a thread; `paid` says how often each key was paid for, `seen` how often it came."""

    def __init__(
        self,
        fault: Callable[[str, int], str] = lambda key, attempt: "ok",
        *,
        honours: bool = False,
        latency: Callable[[str], float] = lambda key: 0.0,
        slow: float = 1.0,
        logprobs: bool = True,
    ) -> None:
        self.fault, self.honours, self.latency, self.slow, self.logprobs = (
            fault,
            honours,
            latency,
            slow,
            logprobs,
        )
        self.paid: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.bodies: list[dict] = []
        self.keep = False
        self.deny = b'{"error": "no such key"}'
        self.under_way = self.most_under_way = 0
        self.begun: list[float] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self) -> JudgeServer:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop
        ).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = {
            n.lower(): v.strip() for n, _, v in (line.partition(":") for line in head.split("\r\n")[1:])
        }
        body = await reader.readexactly(int(headers["content-length"]))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.begun.append(self._loop.time())
        try:
            return await self._answer(headers, json.loads(body), writer)
        finally:
            self.under_way -= 1

    async def _answer(self, headers: dict[str, str], body: dict, writer: asyncio.StreamWriter) -> bool:
        key = headers["idempotency-key"]
        if self.keep:
            self.headers.append(headers)
            self.bodies.append(body)
        fault = self.fault(key, self.seen[key])
        self.seen[key] += 1
        await asyncio.sleep(self.latency(key))
        if fault in ("429", "503"):
            return await _send(writer, int(fault), b'{"error": "busy"}', "Retry-After: 0\r\n")
        if fault == "401":
            return await _send(writer, 401, self.deny)
        if fault == "cut unpaid":
            return False
        if fault == "500 unpaid":
            return await _send(writer, 500, b"oops")
        if not (self.honours and self.paid[key]):
            self.paid[key] += 1
        if fault == "500 paid":
            return await _send(writer, 500, b"oops")
        if fault in ("endless", "trickle"):
            return await _flow(writer, fault)
        if fault == "slow":
            await asyncio.sleep(self.slow)
        reply = {"wrong json": b'{"choices": 17}', "no json": b"<html>", "huge": HUGE}.get(
            fault
        ) or self.reply(body)
        if fault == "cut paid":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(reply) + reply[:40])
            await writer.drain()
            return False
        return await _send(writer, 200, reply)

    def reply(self, body: dict) -> bytes:
        """What a good answer holds; `--text` in a completion asks for that text instead."""
        asked = body["messages"][-1]["content"]
        scripted = re.search(r"--text (.*)", asked)
        number = re.search(r"\[answer [0-9a-f]+\]\n(-?\d+)", asked)
        word = scripted[1] if scripted else str(is_right(int(number[1])) if number else True)
        choice = {"index": 0, "message": {"role": "assistant", "content": word}, "finish_reason": "stop"}
        if self.logprobs and body.get("logprobs"):
            tops = [
                {"token": t, "logprob": math.log(p)} for t, p in (("True", 0.6), ("False", 0.2), ("\n", 0.2))
            ]
            own = next((top["logprob"] for top in tops if top["token"] == word), math.log(0.5))
            choice["logprobs"] = {"content": [{"token": word, "logprob": own, "top_logprobs": tops}]}
        return json.dumps(
            {"choices": [choice], "usage": {"prompt_tokens": 90, "completion_tokens": 1}}
        ).encode()


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, more: str = "") -> bool:
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return True


async def _flow(writer: asyncio.StreamWriter, fault: str) -> bool:
    """An answer that never ends: as fast as it is read, or a byte now and then, so that no single read is late."""
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    piece, pause = (b" " * 10_000, 0.0) if fault == "endless" else (b" ", 0.05)
    while not writer.is_closing():
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await writer.drain()
        await asyncio.sleep(pause)
    return False
