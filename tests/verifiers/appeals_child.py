"""A client that appeals until it is done or killed.

python -m tests.verifiers.appeals_child URL FOLDER COUNT CAP HONOURS
"""

from __future__ import annotations

import sys
from collections import deque

from vapo.verifiers import Item
from vapo.verifiers.appeals import Appeals
from vapo.verifiers.book import Book
from vapo.verifiers.judge import Endpoint, Judge, Limits

BATCH, AHEAD = 16, 3
LIMITS = Limits(concurrency=32, attempts=6, timeout=0.6, deadline=10.0, backoff=0.005, largest_reply=100_000)


def items(count: int) -> list[Item]:
    """So many records; every tenth asks what the one before it asked."""
    numbers = [n - 1 if n % 10 == 9 else n for n in range(count)]
    return [Item(f"r{n}", f"question {number}", str(number), "1") for n, number in enumerate(numbers)]


def main(url: str, folder: str, count: str, cap: str, honours: str) -> None:
    """Appeal every record, a few batches at a time."""
    wanted = items(int(count))
    endpoint = Endpoint(url, "judge", honours_keys=honours == "True")
    with (
        Judge(endpoint, limits=LIMITS) as judge,
        Book(folder, cap=int(cap)) as book,
        Appeals(judge, book) as engine,
    ):
        print("ready", flush=True)
        under_way = deque()
        for first in range(0, len(wanted), BATCH):
            under_way.append(engine.submit(wanted[first : first + BATCH]))
            if len(under_way) == AHEAD:
                under_way.popleft().result()
        while under_way:
            under_way.popleft().result()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
