"""A run is killed, unplugged or starved at every call that it makes of its file system and of its secondary."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash.life import (
    STAGES,
    absent,
    acknowledged,
    book_of,
    check_bill,
    kinds_of,
    live,
    replayed,
)
from tests.crash.power import PULLS, Broken, Film, Forgetful, Moment, Quick, digest_of, lay
from tests.samples import files_of
from vapo.errors import VapoError
from vapo.ledger import EventKind, verify_run
from vapo.ledger.log import parse_log

pytestmark = pytest.mark.conformance

REPO = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Life:
    """An uninterrupted life that was filmed."""

    film: Film
    lines: list[bytes]
    files: dict[str, bytes]
    book: str

    def knew(self, moment: Moment) -> list[bytes]:
        """The events that were acknowledged by then."""
        return self.lines[: moment.outside[0]]


def filmed(folder: Path, film_of=Film, *, keyed: bool = True, redone: bool = False, **how) -> Life:
    root, book = folder / "medium", folder / "book"
    root.mkdir(parents=True, exist_ok=True)
    with acknowledged(redone=redone) as lines:
        film = film_of(root, lambda: (len(lines), book_of(book)), **how)
        live(root / "run", book, film, keyed=keyed)
    return Life(film, lines, dict(files_of(root / "run")), book_of(book))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    life = filmed(folder)
    run = folder / "medium" / "run"
    assert verify_run(run).ok
    assert replayed(run) == STAGES
    assert check_bill(run, life.book) == 0
    return life, kinds_of(run)


def some(items: list, full: bool, many: int, seed: int = 0) -> list:
    """All of them at full size, and otherwise so many, drawn by a fixed seed."""
    return items if full or len(items) <= many else random.Random(seed).sample(items, many)


def distinct(life: Life, pull: str, *, seeds: int = 1) -> list[tuple[Moment, int]]:
    """The moments whose remains differ: those with equal remains have one future."""
    found = {}
    for moment in life.film.moments:
        for seed in range(seeds):
            found.setdefault(digest_of(moment.left(pull, seed), moment.outside), (moment, seed))
    return list(found.values())


def resumed(life: Life, moment: Moment, pull: str, seed: int, folder: Path, *, keyed: bool = True) -> Path:
    lay(moment.left(pull, seed), folder / "medium")
    (folder / "book").write_text(moment.outside[1], encoding="utf-8")
    live(folder / "medium" / "run", folder / "book", Quick(), keyed=keyed)
    return folder / "medium" / "run"


def test_a_life_has_events_of_every_kind_and_a_film_sees_all_that_is_on_the_disk(whole):
    life, kinds = whole
    assert set(kinds) == set(EventKind)
    assert kinds[EventKind.ISSUED] + kinds[EventKind.REFUSED] == STAGES
    last = life.film.moments[-1].left("kept")
    assert {name.removeprefix("run/"): data for name, data in last.items() if data is not None} == life.files
    calls = " ".join(life.film.calls)
    assert all(what in calls for what in ("write", "fsync", "rename", "mkdir", "open", "close", "call for"))


@pytest.mark.parametrize("pull", PULLS)
def test_what_was_acknowledged_is_there_after_a_crash_at_any_call(whole, pull):
    life, _ = whole
    for moment in life.film.moments:
        for seed in range(4 if pull == "mixed" else 1):
            gone = absent(moment.left(pull, seed), life.knew(moment))
            assert not gone, f"{moment}, {pull}: {gone}"


@pytest.mark.parametrize("forgets", ["files", "folders", "the log"])
def test_a_ledger_that_forgets_to_flush_is_convicted(tmp_path, forgets):
    life = filmed(tmp_path, Forgetful, forgets=forgets)
    assert all(not absent(moment.left("kept"), life.knew(moment)) for moment in life.film.moments)
    assert any(absent(moment.left("lost"), life.knew(moment)) for moment in life.film.moments)


@pytest.mark.parametrize("pull", PULLS)
def test_a_run_that_is_resumed_after_any_crash_has_the_bytes_of_the_uninterrupted_one(
    whole, tmp_path, full_size, pull
):
    life, _ = whole
    states = distinct(life, pull, seeds=3 if pull == "mixed" else 1)
    for number, (moment, seed) in enumerate(some(states, full_size, 15)):
        run = resumed(life, moment, pull, seed, tmp_path / str(number))
        assert files_of(run) == life.files, f"{moment}, {pull}"
        assert sorted(book_of(run.parents[1] / "book").split()) == sorted(life.book.split()), str(moment)
    print(f"{pull}: {len(life.film.moments)} moments, {len(states)} distinct states")


def test_a_crash_while_a_crash_is_being_mended_is_mended_too(whole, tmp_path, full_size):
    life, _ = whole
    chance = random.Random(0)
    for number in range(300 if full_size else 5):
        moment, pull = chance.choice(life.film.moments), chance.choice(PULLS)
        folder = tmp_path / f"{number}-first"
        lay(moment.left(pull, number), folder / "medium")
        (folder / "book").write_text(moment.outside[1], encoding="utf-8")
        again = filmed(folder)
        assert again.files == life.files
        second, pull = chance.choice(again.film.moments), chance.choice(PULLS)
        # What the first process was told counts on.
        told = again.knew(second)
        known = max(moment.outside[0], life.lines.index(told[-1]) + 1 if told else 0)
        gone = absent(second.left(pull, number), life.lines[:known])
        assert not gone, f"{moment}, then {second}, {pull}: {gone}"
        run = resumed(life, second, pull, number, tmp_path / f"{number}-second")
        assert files_of(run) == life.files, f"{moment}, then {second}, {pull}"


@pytest.mark.parametrize("unflushed", ["log.jsonl", "segments", "run", ""])
def test_a_power_cut_after_a_kill_takes_nothing_that_the_second_process_went_by(
    whole, tmp_path, full_size, unflushed
):
    # What a killed process had written and not flushed is seen by the next one, and is not on the medium yet.
    life, _ = whole
    moments = [moment for moment in life.film.moments if moment.what == f"fsync {unflushed}"]
    assert moments
    for number, moment in enumerate(some(moments, full_size, 4)):
        folder = tmp_path / str(number)
        lay(moment.left("kept"), folder / "medium")
        (folder / "book").write_text(moment.outside[1], encoding="utf-8")
        again = filmed(folder, redone=True, before=moment)
        assert again.files == life.files
        for second in again.film.moments:
            known = max(
                [moment.outside[0], *(life.lines.index(line) + 1 for line in again.knew(second)[-1:])]
            )
            for pull in ("lost", "mixed"):
                gone = absent(second.left(pull, number), life.lines[:known])
                assert not gone, f"{moment}, then {second}, {pull}: {gone}"


def test_a_log_can_be_read_whatever_order_its_last_pages_reached_the_medium_in(whole):
    life, _ = whole
    holes = 0
    for moment in life.film.moments:
        if moment.what != "fsync log.jsonl":
            continue
        logs = {moment.left("mixed", seed).get("run/log.jsonl") for seed in range(60)}
        for log in logs - {None}:
            events, _ = parse_log(log)
            assert len(events) >= moment.outside[0]
            holes += b"\0" in log[:-1] and log.endswith(b"\n")
    assert holes > 3


def test_a_secondary_without_keys_is_never_paid_twice_and_what_was_in_flight_is_lost(tmp_path, full_size):
    life = filmed(tmp_path / "whole", keyed=False)
    states = distinct(life, "kept")
    # Those with calls in flight are few and are all gone through.
    paying = [state for state in states if state[0].what.startswith(("call", "answer"))]
    rest = [state for state in states if state not in paying]
    lost = []
    for number, (moment, seed) in enumerate([*some(paying, full_size, 6), *some(rest, full_size, 8)]):
        run = resumed(life, moment, "kept", seed, tmp_path / str(number), keyed=False)
        lost.append(check_bill(run, book_of(run.parents[1] / "book")))
        assert verify_run(run).ok
        assert replayed(run) == STAGES
    assert sum(lost) > 0
    assert lost.count(0) > 0


@pytest.mark.parametrize("fault", ["full", "broken", "short"])
def test_a_disk_that_fails_is_a_typed_error_and_the_next_try_ends_in_the_same_bytes(
    whole, tmp_path, full_size, fault
):
    life, _ = whole
    probe = Broken(-1, "broken")
    live(tmp_path / "probe" / "run", tmp_path / "probe.book", probe)
    failed = 0
    for number in some(list(range(probe.calls)), full_size, 10):
        run, book = tmp_path / str(number) / "run", tmp_path / f"{number}.book"
        system = Broken(number, fault)
        with acknowledged() as lines:
            said = ""
            try:
                live(run, book, system)
            except VapoError as error:
                said = str(error)
        assert not said or {"full": "No space left", "broken": "Input/output"}[fault] in said
        failed += bool(said)
        left = {f"run/{name}": data for name, data in files_of(run).items()} if run.exists() else {}
        assert not absent(left, lines)
        assert system.failed > 0 or fault != "broken"
        live(run, book, Quick())
        assert files_of(run) == life.files, (number, fault)
        assert sorted(book_of(book).split()) == sorted(life.book.split())
    assert (failed == 0) == (fault == "short")
    print(f"{fault}: {probe.calls} calls")


@pytest.mark.parametrize("how", ["forked", "fresh"])
def test_real_processes_killed_at_random_moments_lose_nothing_and_pay_nothing_twice(
    whole, tmp_path, full_size, how
):
    life, _ = whole
    kills = {"forked": 5000, "fresh": 200}[how] if full_size else {"forked": 25, "fresh": 1}[how]
    said = subprocess.run(
        [sys.executable, "-m", "tests.crash.kills", str(tmp_path), "--kills", str(kills), "--how", how],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPO,
    )
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["kills"] >= kills
    runs = sorted((tmp_path / "keyed").iterdir())
    assert len(runs) == found["keyed"] > 0
    for folder in runs:
        assert files_of(folder / "run") == life.files
        assert sorted(book_of(folder / "book").split()) == sorted(life.book.split())
    print(said.stdout)
