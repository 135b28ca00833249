"""A damaged run is found out by both verifiers, whoever did the damage and wherever."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.ledger.damages import AUTHOR, FORGER, IMPOSTOR, VANDAL, all_cases
from tests.ledger.forging import read_files, write_files
from tests.ledger.small import KEY, small_run
from vapo.errors import VapoError
from vapo.gate import replay_run
from vapo.ledger import verify_run

ROOT = Path(__file__).parents[2]
STEP = 17
"""In continuous integration every so many-th damage of the large kinds is tried, under VAPO_CONFORMANCE=full all."""


def load_second():
    spec = importlib.util.spec_from_file_location("check_run", ROOT / "tools" / "check_run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["check_run"] = module
    spec.loader.exec_module(module)
    return module


SECOND = load_second()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    run = tmp_path_factory.mktemp("small") / "run"
    return run, small_run(run)


def verdicts(run, known, *, key=True):
    """What each verifier says is wrong first; None where it finds nothing."""
    keys = [KEY.verifier] if key else []
    report = verify_run(run, keys=keys, checkpoint=known, exact=known is not None)
    assert all(f.where and f.what and f.means for f in report.findings)
    point = None if known is None else (known.origin, known.size, known.root)
    other, notes, _ = SECOND.check_run(str(run), [one.text for one in keys], point, exact=known is not None)
    assert not notes
    return (None if report.ok else report.findings[0]), other


def laid_out(files, folder):
    shutil.rmtree(folder, ignore_errors=True)
    write_files(folder, files)
    return folder


def replays(run):
    try:
        replay_run(run)
    except VapoError:
        return False
    return True


def test_the_small_run_is_small_complete_and_sound(small):
    run, known = small
    files = read_files(run)
    assert sum(map(len, files.values())) <= 40_000
    assert verdicts(run, known) == (None, None)
    assert verdicts(run, None, key=False) == (None, None)
    assert replays(run)


def test_every_changed_byte_of_every_file_is_found_by_both(small, full_size):
    run, _ = small
    step, tried = (1 if full_size else STEP), 0
    place = 0
    for name, data in read_files(run).items():
        for at in range(len(data)):
            place += 1
            if place % step:
                continue
            (run / name).write_bytes(data[:at] + bytes([data[at] ^ 1 << place % 8]) + data[at + 1 :])
            first, second = verdicts(run, None, key=False)
            assert first is not None, (name, at)
            assert second is not None, (name, at)
            tried += 1
        (run / name).write_bytes(data)
    assert tried == place // step
    assert verdicts(run, None, key=False) == (None, None)


def test_every_named_case_must_fail_under_both(small, tmp_path, full_size):
    run, known = small
    sound, names, seen = read_files(run), Counter(), set()
    for number, case in enumerate(all_cases(sound)):
        names[case.name] += 1
        assert case.files != sound, case.name
        key = hash(tuple(sorted(case.files.items())))
        large = case.name.startswith("table ")
        if key in seen or (large and not full_size and number % STEP):
            continue
        seen.add(key)
        place = laid_out(case.files, tmp_path / "run")
        known_to_reader = {
            VANDAL: (None, False),
            FORGER: (known, True),
            IMPOSTOR: (None, True),
            AUTHOR: (None, True),
        }[case.hand]
        first, second = verdicts(place, known_to_reader[0], key=known_to_reader[1])
        assert second is not None, case.name
        # What an author signs is sound as bytes; that it does not follow is for the arithmetic, or for replay.
        assert first is not None or (case.hand == AUTHOR and not replays(place)), case.name
    assert set(names.values()) == {1}
    assert len(names) >= 100
