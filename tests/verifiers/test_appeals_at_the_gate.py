"""At a gate, in certification and after a crash the appeal engine answers as a secondary, and pays once."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from tests.crashes import every_crash
from tests.samples import world
from tests.verifiers.stubs import Stub
from vapo.certification.flow import certify, prepare, split_records
from vapo.certification.freeze import freeze_trace
from vapo.errors import InputError
from vapo.gate import Gate
from vapo.ledger import Ledger
from vapo.policy import Reason
from vapo.protocol import Protocol
from vapo.records import Records
from vapo.verifiers import Failure, Item, Outcome
from vapo.verifiers.appeals import Appeals, as_answers
from vapo.verifiers.book import Book


def test_outcomes_become_answers_of_which_failures_are_none():
    outcomes = [Outcome(verdict=-1, confidence=0.6), *(Outcome(failure=failure) for failure in Failure)]
    asked = np.array([True, False] + [True] * len(Failure))
    given = as_answers(outcomes, asked)
    assert given.verdict.tolist() == [-1, 0] + [0] * len(Failure)
    assert given.confidence.tolist() == [0.6, 0.0] + [0.0] * len(Failure)
    named = dict(zip(Failure, given.failure[2:].tolist(), strict=True))
    assert named[Failure.LOST] == Reason.SECONDARY_LOST
    assert named[Failure.UNPARSABLE] == Reason.SECONDARY_INVALID
    assert {named[f] for f in Failure if f not in (Failure.LOST, Failure.UNPARSABLE)} == {0}
    with pytest.raises(InputError, match="outcomes"):
        as_answers(outcomes[:1], asked)


@pytest.fixture(scope="module")
def appealing(tmp_path_factory):
    """A certified run whose policy appeals, and fresh records."""
    run = tmp_path_factory.mktemp("appealing") / "run"
    table, labels = world(900)
    assert certify(table, labels, out=run, rho=0.15, c_min=0.2, b_max=0.2).certified
    fresh, _ = world(240, seed=5, prefix="n", window=60)
    return run, fresh


def test_a_gate_appeals_through_the_engine_and_finds_what_was_asked_ahead(appealing, tmp_path):
    certified, fresh = appealing
    run = shutil.copytree(certified, tmp_path / "run")
    blind = fresh.drop_columns(["y2", "c2"])
    records = Records.from_arrow(blind)
    texts = {row["id"]: Item(row["id"], row["id"], "1", str(row["y"])) for row in blind.to_pylist()}
    stub = Stub(lambda item: Outcome(verdict=int(item.reference)))  # always agrees
    with Gate.open(run) as gate, Book(tmp_path / "book", cap=200) as book, Appeals(stub, book) as engine:
        asked = [texts[name] for name in records.id.filter(pa.array(gate.requests(blind))).to_pylist()]
        assert asked
        ahead = engine.submit(asked)
        decisions = gate.decide(blind, secondary=engine.keyed(texts.values()))
        assert ahead.done()
        assert decisions.appealed == decisions.counts()["confirmed"] == len(asked)
        assert len(stub.asked) == engine.bill().reserved == len(asked)


def test_certification_appeals_through_the_engine_by_place(tmp_path):
    table, _ = world(900)
    ours = table.drop_columns(["y2", "c2"])
    second = dict(zip(table["id"].to_pylist(), table["y2"].to_pylist(), strict=True))
    texts = [Item(name, name, "1") for name in second]
    stub = Stub(
        lambda item: Outcome(second[item.id]) if second[item.id] else Outcome(failure=Failure.TIMEOUT)
    )
    protocol = Protocol(rho=0.15, c_min=0.2, b_max=0.2, budget=20, secondary=("late",))
    with Ledger.write(tmp_path / "run") as ledger, Book(tmp_path / "book", cap=900) as book:
        design, records = split_records(Records.from_arrow(ours), protocol)
        prepare(ledger, protocol, design, records)
        with Appeals(stub, book) as engine:
            found = freeze_trace(ledger, records, answers=engine.keyed(texts, records))
        assert found.secondary_calls == len(stub.asked) == book.bill().reserved > 0


def test_an_engine_without_an_item_for_a_record_says_which(tmp_path):
    records = Records.from_arrow(world(4)[0])
    with Book(tmp_path / "book", cap=5) as book, Appeals(Stub(lambda item: Outcome(1)), book) as engine:
        with pytest.raises(InputError, match="an item for every record"):
            engine.keyed([]).ask(records, np.ones(4, np.bool_), [])
        with pytest.raises(InputError, match="by place"):
            engine.keyed([]).ask(slice(0, 2), np.ones(2, np.bool_), [])


def test_a_gate_that_dies_anywhere_asks_no_record_twice_and_decides_as_if_it_had_not(
    appealing, tmp_path, monkeypatch
):
    run, fresh = appealing
    blind = fresh.drop_columns(["y2", "c2"])
    texts = [Item(row["id"], row["id"], "1", str(row["y"])) for row in blind.to_pylist()]
    asked: Counter[str] = Counter()

    def agree(item):
        asked[item.id] += 1
        return Outcome(verdict=int(item.reference))

    def work(folder):
        with (
            Gate.open(folder / "run") as gate,
            Book(folder / "book", cap=200) as book,
            Appeals(Stub(agree), book) as engine,
        ):
            return gate.decide(blind, secondary=engine.keyed(texts)).table

    def prepare(folder):
        asked.clear()
        shutil.copytree(run, folder / "run")

    crashes = every_crash(monkeypatch, tmp_path, work, prepare)
    name, folder = next(crashes)
    whole = None
    while folder is not None:
        again = work(folder)
        whole = again if whole is None else whole
        assert again == whole, name
        assert set(asked.values()) == {1}, name
        name, folder = next(crashes, ("", None))
