"""A study's files are the same however the work was split and however often it was killed."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import pytest

from tests.crashes import MODES, Killed, killed_at
from tests.studies import squares
from tests.studies.squares import contents
from vapo.errors import InputError, IntegrityError
from vapo.ledger.disk import Disk
from vapo.studies.runner import TaskError, load_rows, run_studies

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    run_studies([squares.study()], out=out)
    return contents(out)


def test_one_worker_and_two_leave_the_same_bytes(tmp_path, whole):
    run_studies([squares.study()], out=tmp_path, workers=2)
    assert contents(tmp_path) == whole


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`")
def test_a_ray_cluster_leaves_the_same_bytes(tmp_path, whole):
    # In a process of its own: Ray leaves threads and warnings behind.
    code = """
        import sys
        from tests.studies import squares
        from vapo.studies.runner import run_studies
        run_studies([squares.study()], out=sys.argv[1], ray="local")
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    assert contents(tmp_path) == whole


def test_without_ray_its_extra_is_named_and_no_task_is_begun(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="the extra `ray`"):
        run_studies([squares.study()], out=tmp_path, ray="auto")


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port"])
def test_an_address_where_no_cluster_is_is_named(tmp_path, monkeypatch, address):
    monkeypatch.setitem(sys.modules, "ray", types.ModuleType("ray"))
    with pytest.raises(InputError, match="the address of a Ray cluster"):
        run_studies([squares.study()], out=tmp_path, ray=address)


def test_running_again_works_nothing_again_and_changes_no_byte(tmp_path, whole):
    run_studies([squares.study()], out=tmp_path)
    (done,) = run_studies([squares.study(squares.work)], out=tmp_path)
    assert (done.resumed, done.older) == (3, 0)
    assert contents(tmp_path) == whole


def test_a_run_killed_at_any_write_goes_on_to_the_same_bytes(tmp_path, whole, monkeypatch):
    with killed_at(monkeypatch, 10_000) as writes:
        run_studies([squares.study()], out=tmp_path / "counted")
    assert len(writes) == len(whole)
    for when in range(len(writes)):
        for mode in MODES:
            out = tmp_path / f"{when}-{mode}"
            with pytest.raises(Killed), killed_at(monkeypatch, when, mode):
                run_studies([squares.study()], out=out)
            run_studies([squares.study()], out=out)
            assert contents(out) == whole, (when, mode)


def _alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_process_killed_at_random_moments_leaves_no_worker_behind_and_resumes_to_the_same_bytes(
    tmp_path, workers, monkeypatch
):
    monkeypatch.setattr("vapo.studies.runner._code", lambda: "0" * 64)
    run_studies([squares.study(squares.patiently)], out=tmp_path / "whole", scale="small")
    pids, out = tmp_path / "pids", tmp_path / "killed"
    pids.mkdir()
    command = [sys.executable, "-m", "tests.studies.squares", str(out), str(workers)]
    environment = {**os.environ, "SQUARES_PIDS": str(pids)}
    rows = out / "squares" / "rows"
    for wanted in sorted(random.Random(workers).sample(range(1, squares.LAST), 6)):
        with subprocess.Popen(command, cwd=ROOT, env={**environment, "SQUARES_HANG": "1"}) as process:
            while process.poll() is None and (not rows.is_dir() or len(list(rows.iterdir())) < wanted):
                time.sleep(0.001)
            assert process.poll() is None, "it ended before it could be killed"
            process.send_signal(signal.SIGKILL)
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    for _ in range(100):
        left = [path.name for path in pids.iterdir() if _alive(path.name)]
        if not left:
            break
        time.sleep(0.1)
    assert not left
    assert contents(out) == contents(tmp_path / "whole")


def test_a_failed_task_names_itself_and_the_others_are_kept(tmp_path):
    with pytest.raises(TaskError, match=r"task seed-3 failed: ValueError: three is too many"):
        run_studies([squares.study(squares.failing)], out=tmp_path)
    assert len(list((tmp_path / "squares" / "rows").iterdir())) == 2
    with pytest.raises(TaskError, match="seed-3"):
        run_studies([squares.study(squares.failing)], out=tmp_path, workers=2)


@pytest.mark.parametrize("function", [squares.crooked, squares.nested])
def test_a_row_that_is_not_flat_or_not_finite_is_refused(tmp_path, function):
    with pytest.raises(TaskError, match="InputError"):
        run_studies([squares.study(function)], out=tmp_path)


def test_other_arguments_and_other_revisions_are_other_work(tmp_path):
    run_studies([squares.study()], out=tmp_path)
    (done,) = run_studies([squares.study(draws=5)], out=tmp_path)
    assert done.resumed == 0
    (done,) = run_studies([squares.study(revision=2)], out=tmp_path)
    assert done.resumed == 0
    assert json.loads((tmp_path / "squares" / "manifest.json").read_bytes())["row_count"] == 12


def test_rows_of_another_version_of_the_source_are_counted(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("vapo.studies.runner._code", lambda: "0" * 64)
        run_studies([squares.study()], out=tmp_path, seeds=[1])
    (done,) = run_studies([squares.study()], out=tmp_path)
    assert (done.resumed, done.older) == (1, 1)


def test_only_a_study_that_comes_last_sees_the_manifests_of_others_and_never_its_own(tmp_path):
    first, last = squares.study(), squares.study(name="cubes", last=True)
    for _ in range(2):
        done = run_studies([last, first], out=tmp_path)
        assert [each.study.name for each in done] == ["squares", "cubes"]
        assert [each.tables[0].note for each in done] == ["Scale smoke.", "Scale smoke.squares"]


def test_rows_come_back_as_they_were_made_and_changed_ones_are_refused(tmp_path):
    run_studies([squares.study()], out=tmp_path, seeds=[5])
    rows = load_rows(tmp_path / "squares")
    assert [{**row, "task": "seed-5"} for row in squares.work(5, 4)] == rows
    (path,) = (tmp_path / "squares" / "rows").iterdir()
    path.write_bytes(path.read_bytes().replace(b"square", b"squire"))
    with pytest.raises(IntegrityError, match="not the rows that the tables were made from"):
        load_rows(tmp_path / "squares")


def test_a_folder_without_a_finished_study_is_named(tmp_path):
    with pytest.raises(InputError, match=r"expected a finished study with its manifest.json"):
        load_rows(tmp_path)


def test_two_runs_never_write_to_one_folder_at_once(tmp_path):
    with Disk(tmp_path / "squares"), pytest.raises(Exception, match="open for writing in another process"):
        run_studies([squares.study()], out=tmp_path)


def test_figures_of_another_drawing_do_not_stay_behind(tmp_path):
    run_studies([squares.study()], out=tmp_path)
    stray = tmp_path / "squares" / "figures" / "old.svg"
    stray.write_text("old")
    run_studies([squares.study()], out=tmp_path)
    assert not stray.exists()
