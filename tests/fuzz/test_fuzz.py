"""Every reader of files from outside is fed with damaged ones: what it says is the library's own, soon, in bounds."""

from __future__ import annotations

import time

import pytest

from tests.fuzz import drive as driving
from tests.fuzz.drive import drive
from tests.fuzz.mutate import MOST, generator, mutate
from tests.fuzz.targets import Target, clean, targets
from vapo.errors import InputError

INPUTS = 10_000
"""For each reader; those that start processes or redo runs get the share that they declare."""
NAMES = [
    "json", "log", "mark", "checkpoint", "note", "envelope", "statement", "proof", "signed-proof",
    "growth", "sealed", "sealed-labels", "public-keys", "private-key", "key-lines", "records-csv",
    "records-jsonl", "records-arrow", "records-parquet", "labels-csv", "labels-jsonl", "verdicts",
    "dumps", "family", "protocol", "train-toml", "train-yaml", "questions", "study-rows",
    "study-manifest", "answers", "judge", "forged-log", "forged-segment", "replayed-log",
    "replayed-segment", "check-run-proof",
]  # fmt: skip


@pytest.fixture(scope="module")
def known():
    yield targets()
    clean()


def test_all_readers_are_fed(known):
    assert list(known) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_or_refused_by_an_error_of_ours_and_nothing_else(known, name):
    target = known[name]
    outcome = drive(name, target, round(INPUTS * target.share))
    assert not outcome.findings, str(outcome)
    assert outcome.inputs == outcome.accepted + outcome.refused > 0
    # Damage that every reader refuses at the door, or that none notices, would test nothing.
    assert outcome.accepted > 0
    assert target.total or outcome.refused > 0


@pytest.mark.parametrize("name", NAMES)
def test_what_the_damage_is_done_to_is_read(known, name):
    for seed in known[name].seeds:
        known[name].read(seed)


def _hangs(data: bytes) -> None:
    until = time.process_time() + 60
    while time.process_time() < until:
        pass


WRONG = {
    "KeyError": lambda data: {}[data],
    "RecursionError": lambda data: WRONG["RecursionError"](data),
    "MemoryError": lambda data: bytearray(1 << 40),
    "Hang": _hangs,
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_reader_that_fails_in_another_way_is_convicted(monkeypatch, kind):
    monkeypatch.setattr(driving, "SECONDS", 0.1)
    outcome = drive("wrong", Target(WRONG[kind], (b"seed",)), 2)
    assert [found.partition(" ")[0] for found in outcome.findings] == [kind]
    assert (outcome.accepted, outcome.refused) == (0, 0)


def test_a_reader_that_may_refuse_nothing_is_convicted_when_it_does():
    def refuses(data: bytes) -> None:
        raise InputError("nothing")  # noqa: EM101 - it is a test

    assert drive("refuses", Target(refuses, (b"seed",)), 3).refused == 3
    assert len(drive("refuses", Target(refuses, (b"seed",), total=True), 3).findings) == 1


def test_the_same_input_comes_out_of_the_same_number_and_none_is_too_long(known):
    seeds = known["log"].seeds
    inputs = [mutate(generator("log", number), seeds) for number in range(300)]
    assert inputs == [mutate(generator("log", number), seeds) for number in range(300)]
    assert inputs != [mutate(generator("log", number, 1), seeds) for number in range(300)]
    assert len(set(inputs)) > 290
    assert max(map(len, inputs)) <= MOST
