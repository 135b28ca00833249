"""The life of a run: three stages, two certified and one refused, two deployments that pay a secondary, an alarm."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.crash.power import Quick, Tree
from tests.samples import without, world
from vapo._internal.keyed import sha256_hex
from vapo.certification import issue as issuing
from vapo.certification.appeals import Keyed
from vapo.certification.flow import as_labels, as_records, prepare
from vapo.certification.freeze import freeze_trace
from vapo.certification.issue import issue, join_labels
from vapo.gate import Gate, join_spotchecks, replay_run, watch
from vapo.ledger import Event, EventKind, Ledger, disk
from vapo.ledger.log import parse_log
from vapo.ledger.run import referenced
from vapo.policy import Answers, Family, Policy, Reason
from vapo.protocol import Protocol
from vapo.records import Records

BUDGET = 3
WINDOW = 12
FAMILY = Family.of(
    [Policy.plain(0.4, 0.85, 0.5, budget=BUDGET), Policy.plain(0.3, 0.8, 0.5, budget=BUDGET)], [[0, 1]]
)
TERMS = Protocol.from_dict(
    {
        "rho": 0.4,
        "c_min": 0.2,
        "b_max": 0.25,
        "stages": 3,
        "monitor_rate": 1.0,
        "monitor_delta": 0.2,
        "secondary": ("bank",),
    },
    where="terms",
)
STAGES = 3
BATCHES = (2, 2, 1)
TURNED = ("batch1", "stage2")
"""Where the labels are the opposite of what everybody thinks: the second deployment and the last stage."""


class Bank:
    """A vendor of second opinions, with a book of its own in which every paid call is a line."""

    def __init__(self, book: Path, point: Callable[[str], None]) -> None:
        self.book, self.point = book, point

    def ask(self, ids: list[str], keys: list[str] | None) -> list[int]:
        """Answer, and put what has to be paid into the book first: each key once, if keys are given."""
        paid = set(book_of(self.book).splitlines())
        for name, key in zip(ids, keys or ids, strict=True):
            self.point(f"call for {name}")
            if keys is None or f"{name} {key}" not in paid:
                with self.book.open("ab", buffering=0) as stream:
                    stream.write(f"{name} {key}\n".encode())
            self.point(f"answer for {name}")
        return [truth(name) for name in ids]


def book_of(book: Path) -> str:
    """The vendor's book."""
    return book.read_text(encoding="utf-8") if book.exists() else ""


def secondary(bank: Bank, *, keyed: bool, records: Records | None = None) -> Any:
    """The bank as a secondary: for the gate, or for the records of a stage."""

    def ask(batch: Any, asked: Any, keys: list[str] | None = None) -> Answers:
        ids = (batch.id if records is None else records.id[batch]).to_pylist()
        answers, place = Answers.none(len(ids)), np.flatnonzero(asked)
        answers.verdict[place] = bank.ask([ids[i] for i in place.tolist()], keys)
        return answers

    return Keyed(ask) if keyed else ask


@cache
def records_of(what: str) -> tuple[Records, dict[str, int]]:
    """The records of a stage ("stage0") or of a batch ("batch00"), and what is true of them."""
    size = 4 * WINDOW if what.startswith("stage") else WINDOW
    seed = int.from_bytes(sha256_hex(what.encode())[:8].encode(), "big")
    table, labels = world(size, prefix=f"{what}-", seed=seed, window=WINDOW, wrong=0.05)
    return as_records(without(table, "y2", "c2"), TERMS), labels


def truth(name: str) -> int:
    """What a careful reader would say of a record."""
    return records_of(name.split("-")[0])[1][name]


def label(name: str) -> int:
    """What is true of a record: the opposite where the world has turned."""
    return -truth(name) if name.startswith(TURNED) else truth(name)


def live(run: Path, book: Path, system: Any, *, keyed: bool = True) -> None:
    """Do it all, or go on with it where it was interrupted."""
    bank = Bank(book, system.point)
    with installed(system):
        for stage in range(STAGES):
            with Ledger.write(run) as ledger:
                over = bool(ledger.events) and ledger.events[-1].kind in (EventKind.ALARM, EventKind.CLOSED)
                if ledger.stage > stage + 1 or (ledger.stage == stage + 1 and over):
                    continue
                if not (ledger.stage == stage + 1 and ledger.deployed):
                    certify_stage(ledger, stage, bank, keyed=keyed)
            with Gate.open(run) as gate:
                for number in range(BATCHES[stage]):
                    batch, _ = records_of(f"batch{stage}{number}")
                    gate.decide(batch, secondary=secondary(bank, keyed=keyed))
            with Ledger.write(run) as ledger:
                if ledger.deployed:
                    join_spotchecks(ledger, as_labels({name: label(name) for name in watch(ledger).wanted}))


def certify_stage(ledger: Ledger, stage: int, bank: Bank, *, keyed: bool) -> None:
    """Declare or renew, freeze, join and issue."""
    records, _ = records_of(f"stage{stage}")
    prepare(ledger, TERMS, None, records, family=FAMILY, renew="the generator changed" if stage else None)
    freeze_trace(ledger, records, answers=secondary(bank, keyed=keyed, records=records))
    join_labels(ledger, as_labels({name: label(name) for name in records.id.to_pylist()}), records)
    issue(ledger, records)


_KNOWN: dict[bytes, Any] = {}


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    # Limits and plans are pure and slow, and every life asks for the same ones.
    def wrapped(*given: Any, **named: Any) -> Any:
        key = pickle.dumps((function.__name__, given, named))
        if key not in _KNOWN:
            _KNOWN[key] = function(*given, **named)
        return _KNOWN[key]

    return wrapped


@contextmanager
def installed(system: Any) -> Iterator[None]:
    """Put a file system below every ledger, and remember what was computed before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "System", lambda: system)
        for name in ("evaluate", "enough_for"):
            patch.setattr(issuing, name, _remembered(getattr(issuing, name)))
        yield


@contextmanager
def acknowledged(lines: list[bytes] | None = None, *, redone: bool = False) -> Iterator[list[bytes]]:
    """The lines of all new events that `commit` returned, in order; or of all that it returned, redone ones too."""
    lines = [] if lines is None else lines
    commit = Ledger.commit

    def noted(self: Ledger, *given: Any) -> Any:
        new = not self.redoing
        event = commit(self, *given)
        if new or redone:
            lines.append(event.line)
        return event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Ledger, "commit", noted)
        yield lines


def absent(tree: Tree, lines: list[bytes], run: str = "run") -> str:
    """The first thing that was acknowledged and is not in a state; empty if all is there."""
    log = tree.get(f"{run}/log.jsonl") or b""
    if not log.startswith(b"".join(line + b"\n" for line in lines)):
        return "an event"
    for name in referenced(_parsed(lines)):
        data = tree.get(f"{run}/{name}")
        if data is None or sha256_hex(data) != Path(name).stem:
            return name
    return ""


def _parsed(lines: list[bytes]) -> list[Event]:
    return _parse(b"".join(line + b"\n" for line in lines))


@cache
def _parse(log: bytes) -> list[Event]:
    return parse_log(log)[0]


def replayed(run: Path) -> int:
    """Do a run again and compare; returns how many stages came out the same."""
    with installed(Quick()):
        return replay_run(run).stages


def check_bill(run: Path, book: str) -> int:
    """Hold a finished run against the vendor's book and the budget; returns how many calls were lost."""
    lines = book.splitlines()
    twice = [line for line, count in Counter(lines).items() if count > 1]
    assert not twice, f"paid more than once: {twice}"
    ledger = Ledger.read(run)
    asked = lost = 0
    spent: Counter[tuple[int, str]] = Counter()
    for event in ledger.events:
        if event.kind is EventKind.REQUESTED:
            asked += event.body["count"]
        elif event.kind is EventKind.SETTLED:
            codes = ledger.table(event.body["answers"]).column("failure").to_pylist()
            assert set(codes) <= {0, int(Reason.SECONDARY_LOST)}
            lost += sum(code != 0 for code in codes)
        elif event.kind is EventKind.ACTIONS and "batch" in event.body:
            for row in ledger.table(event.body["windows"]).to_pylist():
                spent[event.seq - event.body["batch"], row["window"]] += row["calls"]
    # A lost call was paid for or was not; every other one was, and nothing that was not asked for.
    assert asked - lost <= len(lines) <= asked
    assert 0 < max(spent.values()) <= BUDGET
    return lost


def kinds_of(run: Path) -> Mapping[EventKind, int]:
    """How often each kind of event happened."""
    return Counter(event.kind for event in Ledger.read(run).events)
