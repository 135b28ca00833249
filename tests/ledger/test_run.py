"""The run folder as one writer and any number of readers see it."""

from __future__ import annotations

import json
import subprocess
import sys

import pyarrow as pa
import pytest

from tests.crashes import Killed, every_crash, killed_at
from tests.samples import files_of
from vapo.errors import InputError, IntegrityError, LedgerLockedError, ProtocolError, StorageError
from vapo.ledger import EventKind, Ledger, segments, verify_run
from vapo.ledger.disk import Disk, System
from vapo.ledger.log import mark
from vapo.ledger.segments import encode_table

K = EventKind


def work(path):
    with Ledger.write(path) as ledger:
        ledger.rewind(0)
        ref = ledger.put_table(pa.table({"a": [1, 2]}))
        ledger.commit(K.PROTOCOL, {"observations": ref})
        ledger.commit(K.FAMILY, {"family": ledger.put_json({"x": 1}), "note": 0.5})
        ledger.commit(K.ACTIONS, {"codes": ledger.put_table(pa.table({"b": [True]}))})
        ledger.put_file("certificate.json", b"{}")
        ledger.sweep()


def test_work_that_was_interrupted_anywhere_is_done_again_to_the_same_bytes(tmp_path, monkeypatch):
    work(tmp_path / "reference")
    wanted = files_of(tmp_path / "reference")
    for what, place in every_crash(monkeypatch, tmp_path, work):
        verify_run(place)
        work(place)
        assert files_of(place) == wanted, what
        work(place)
        assert files_of(place) == wanted, what


def test_a_second_writer_is_turned_away_and_readers_are_not(tmp_path):
    work(tmp_path / "run")
    code = f"""
from vapo.ledger import Ledger
from vapo.errors import LedgerLockedError
print(len(Ledger.read({str(tmp_path / "run")!r}).events))
try:
    Ledger.write({str(tmp_path / "run")!r})
except LedgerLockedError as error:
    print("locked:", error)
"""
    with Ledger.write(tmp_path / "run"):
        with pytest.raises(LedgerLockedError, match="open for writing"):
            Ledger.write(tmp_path / "run")
        said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert said.startswith("3\nlocked: ")
    with Ledger.write(tmp_path / "run") as ledger:
        assert len(ledger.events) == 3


def test_an_error_inside_leaves_the_run_unlocked(tmp_path):
    work(tmp_path / "run")
    (tmp_path / "run" / "log.jsonl").write_bytes(b"nonsense\n")
    for _ in range(2):
        with pytest.raises(IntegrityError):
            Ledger.write(tmp_path / "run")


def test_a_torn_tail_is_reported_and_cut_when_writing_goes_on(tmp_path, caplog):
    work(tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"seq":3,"ki')
    assert Ledger.read(tmp_path / "run").torn == 12
    report = verify_run(tmp_path / "run")
    assert not report.ok
    assert "12 bytes of an unfinished event behind event 2" in report.findings[0].what
    assert not caplog.messages
    with Ledger.write(tmp_path / "run") as ledger:
        assert ledger.torn == 12
    (said,) = caplog.messages
    assert said.startswith(f"{log}: cut off 12 bytes")
    assert log.read_bytes() == whole


def test_a_log_that_lost_its_last_events_is_not_written_on(tmp_path):
    work(tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    for way in (Ledger.write, Ledger.read):
        with pytest.raises(IntegrityError, match="last 1 of 3 recorded events are gone"):
            way(tmp_path / "run")


def test_a_mark_that_is_gone_or_far_behind_stops_the_writer(tmp_path):
    work(tmp_path / "run")
    path = tmp_path / "run" / "checkpoint.json"
    path.unlink()
    with pytest.raises(IntegrityError, match=r"checkpoint\.json"):
        Ledger.write(tmp_path / "run")
    assert [f.where for f in verify_run(tmp_path / "run").findings if "checkpoint" in f.where]


def test_work_that_differs_from_what_is_logged_is_refused_and_leaves_nothing_behind(tmp_path):
    work(tmp_path / "run")
    before = files_of(tmp_path / "run")
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.rewind(1)
        with pytest.raises(ProtocolError, match=r"event 1 is 'family\.frozen' and differs.*'note'"):
            ledger.commit(K.FAMILY, {"family": ledger.put_json({"x": 2}), "note": 0.25})
        ledger.rewind(3)
        with pytest.raises(ProtocolError, match="not legal"):
            ledger.commit(K.LABELS, {"labels": ledger.put_table(pa.table({"z": [1]}))})
    assert files_of(tmp_path / "run") == before


def test_what_was_stored_for_events_behind_a_refused_one_is_gone_too(tmp_path):
    work(tmp_path / "run")
    before = files_of(tmp_path / "run")
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.put_json({"for": "a stage that is to be opened once this deployment is closed"})
        with pytest.raises(ProtocolError, match="not legal"):
            ledger.commit(K.CLOSED, {"reason": "a renewal"})
        assert files_of(tmp_path / "run") == before
        kept = ledger.put_json({"for": "an event to come"})
        ledger.commit(K.ACTIONS, {"codes": ledger.put_json([1])})
        with pytest.raises(ProtocolError, match="not legal"):
            ledger.commit(K.LABELS, {})
        assert segments.segment_name(kept) not in files_of(tmp_path / "run")
        again = ledger.put_json({"for": "an event to come"})
        ledger.commit(K.ACTIONS, {"codes": ledger.put_json([2])})
        ledger.commit(K.ACTIONS, {"codes": again})
        with pytest.raises(ProtocolError, match="not legal"):
            ledger.commit(K.LABELS, {})
        assert segments.segment_name(again) in files_of(tmp_path / "run")


def test_a_failed_write_of_an_event_can_be_tried_again_by_the_same_writer(tmp_path, monkeypatch):
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.commit(K.PROTOCOL, {"n": 1})
        with monkeypatch.context() as patched:

            def no_space(*_):
                raise OSError(28, "No space left on device")

            patched.setattr("os.fsync", no_space)
            with pytest.raises(OSError, match="No space"):
                ledger.commit(K.FAMILY, {"n": 2})
        ledger.commit(K.FAMILY, {"n": 2})
    assert [event.kind for event in Ledger.read(tmp_path / "run").events] == [K.PROTOCOL, K.FAMILY]


def test_a_log_that_something_else_changed_meanwhile_is_not_appended_to(tmp_path):
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.commit(K.PROTOCOL, {"n": 1})
        with (tmp_path / "run" / "log.jsonl").open("ab") as stream:
            stream.write(b"x")
        with pytest.raises(IntegrityError, match="something else"):
            ledger.commit(K.FAMILY, {"n": 2})


def test_a_folder_with_other_files_is_not_taken_for_a_run(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("...", encoding="utf-8")
    with pytest.raises(InputError, match="other files"):
        Ledger.write(tmp_path / "home")
    with pytest.raises(InputError, match="a run folder"):
        Ledger.read(tmp_path / "home")
    with pytest.raises(InputError, match="a run folder"):
        Ledger.write(tmp_path / "home" / "thesis.tex")
    with pytest.raises(InputError, match="a run folder"):
        Ledger.write(tmp_path / "home" / "thesis.tex" / "run")


def test_segments_are_checked_when_they_are_read(tmp_path):
    work(tmp_path / "run")
    ledger = Ledger.read(tmp_path / "run")
    ref = ledger.events[0].body["observations"]
    path = tmp_path / "run" / "segments" / f"{ref['sha256']}.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(IntegrityError, match="not the ones that were written"):
        ledger.table(ref)
    path.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        ledger.table(ref)
    with pytest.raises(IntegrityError, match="not the name of a segment"):
        ledger.table({"sha256": "../../log", "suffix": "jsonl"})


def test_a_segment_is_parsed_in_memory_that_no_thread_needs_the_interpreter_to_free(monkeypatch):
    # A thread of Arrow's that outlives the call would otherwise abort a process that is ending.
    segment = encode_table(pa.table({"a": [1, 2]}))
    data, parse, places = bytes(segment.data), segments.pq.read_table, []

    def looked_at(source, **how):
        places.append(source.read_buffer(len(data)).address)
        source.seek(0)
        return parse(source, **how)

    monkeypatch.setattr(segments.pq, "read_table", looked_at)
    assert segments.read_parquet(data, segment.ref["sha256"]).column("a").to_pylist() == [1, 2]
    assert len(places) == 1
    assert places[0] != pa.py_buffer(data).address


def test_a_reader_can_redo_work_and_never_writes(tmp_path):
    work(tmp_path / "run")
    before = files_of(tmp_path / "run")
    ledger = Ledger.read(tmp_path / "run")
    ledger.rewind(1)
    ledger.commit(K.FAMILY, {"family": ledger.put_json({"x": 1}), "note": 0.5})
    ledger.commit(K.ACTIONS, {"codes": ledger.put_table(pa.table({"b": [True]}))})
    with pytest.raises(ProtocolError, match="reading only"):
        ledger.commit(K.ACTIONS, {"codes": ledger.put_table(pa.table({"b": [False]}))})
    ledger.sweep()
    assert files_of(tmp_path / "run") == before


def test_unfinished_files_are_cleared_away_and_telemetry_is_nobodys_business(tmp_path, monkeypatch):
    with killed_at(monkeypatch, 3, "half"), pytest.raises(Killed):
        work(tmp_path / "run")
    work(tmp_path / "run")
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.telemetry(seconds=1.5)
        assert not [name for name in ledger.files() if ".writing-" in name]
    assert json.loads((tmp_path / "run" / "telemetry.jsonl").read_text(encoding="utf-8")) == {"seconds": 1.5}


def test_a_write_is_whole_or_absent_and_makes_its_folders(tmp_path):
    with Disk(tmp_path / "a" / "b" / "run") as disk:
        disk.write("c/d/file", b"1")
        disk.write("c/d/file", b"22")
        assert disk.read("c/d/file") == b"22"
        assert disk.names() == ["c/d/file"]
        disk.append("log", b"x")
        disk.append("log", b"y", at=1)
        assert disk.read("log") == b"xy"
        disk.remove("log")
        assert not disk.exists("log")


class Failing(System):
    """A file system on which one call fails, and on which files cannot be cut if told so."""

    def __init__(self, call, *, uncut=False):
        self.call, self.uncut, self.armed = call, uncut, False

    def write(self, handle, data):
        if self.armed and self.call == "short":
            return super().write(handle, data[: max(1, len(data) // 2)])
        if self.armed and self.call == "write":
            super().write(handle, data[: len(data) // 2])
            raise OSError(28, "No space left on device")
        return super().write(handle, data)

    def rename(self, old, new):
        if self.armed and self.call == "rename":
            raise OSError(5, "Input/output error")
        super().rename(old, new)

    def truncate(self, handle, size):
        if self.uncut:
            raise OSError(5, "Input/output error")
        super().truncate(handle, size)


def test_a_full_disk_is_a_typed_error_that_leaves_no_half_files(tmp_path):
    system = Failing("write")
    with Ledger.write(tmp_path / "run", disk=Disk(tmp_path / "run", system)) as ledger:
        ledger.commit(K.PROTOCOL, {"n": 1})
        before = files_of(tmp_path / "run")
        system.armed = True
        for _ in range(2):
            with pytest.raises(
                StorageError, match=r"log\.jsonl: No space left on device; what was acknowledged"
            ):
                ledger.commit(K.FAMILY, {"n": 2})
            with pytest.raises(StorageError, match="segments") as caught:
                ledger.put_json({"x": 1})
        assert caught.value.errno == 28
        assert files_of(tmp_path / "run") == before
        ledger.telemetry(seconds=1.5)
        system.armed = False
        ledger.commit(K.FAMILY, {"n": 2})
    assert len(Ledger.read(tmp_path / "run").events) == 2


def test_short_writes_are_carried_on_with(tmp_path):
    system = Failing("short")
    system.armed = True
    with Disk(tmp_path / "run", system) as disk:
        disk.write("file", b"0123456789" * 100)
        disk.append("log", b"0123456789" * 100)
        assert disk.read("file") == disk.read("log") == b"0123456789" * 100


@pytest.mark.parametrize(("call", "uncut"), [("write", True), ("rename", False)])
def test_a_writer_that_does_not_know_what_it_wrote_writes_no_more(tmp_path, call, uncut):
    system = Failing(call, uncut=uncut)
    with Ledger.write(tmp_path / "run", disk=Disk(tmp_path / "run", system)) as ledger:
        ledger.commit(K.PROTOCOL, {"n": 1})
        system.armed = True
        with pytest.raises(StorageError):
            ledger.commit(K.FAMILY, {"n": 2})
        system.armed = False
        with pytest.raises(StorageError, match="open it again"):
            ledger.commit(K.ACTIONS, {"n": 3})
    with Ledger.write(tmp_path / "run") as ledger:
        ledger.rewind(1)
        ledger.commit(K.FAMILY, {"n": 2})
        ledger.commit(K.ACTIONS, {"n": 3})
    assert verify_run(tmp_path / "run").ok


@pytest.mark.parametrize("behind", [1, 2, 3])
def test_a_mark_that_is_behind_after_a_power_cut_is_mended_and_one_that_is_gone_is_refused(tmp_path, behind):
    work(tmp_path / "run")
    sound, path = files_of(tmp_path / "run"), tmp_path / "run" / "checkpoint.json"
    events = Ledger.read(tmp_path / "run").events
    path.write_bytes(mark(events[:-behind]))
    assert verify_run(tmp_path / "run").findings[0].where == "checkpoint.json"
    Ledger.write(tmp_path / "run").close()
    assert files_of(tmp_path / "run") == sound
    path.unlink()
    with pytest.raises(IntegrityError, match="missing"):
        Ledger.write(tmp_path / "run")
    path.write_bytes(mark([*events, events[-1]]))
    with pytest.raises(IntegrityError, match="are gone"):
        Ledger.write(tmp_path / "run")


def test_segments_of_one_event_are_flushed_once_and_before_it(tmp_path):
    calls = []

    class Counting(System):
        def open(self, path, flags):
            handle = super().open(path, flags)
            self.names = {**getattr(self, "names", {}), handle: path.name}
            return handle

        def fsync(self, handle):
            calls.append(self.names[handle].split("-")[0])

    with Ledger.write(tmp_path / "run", disk=Disk(tmp_path / "run", Counting())) as ledger:
        ledger.commit(K.PROTOCOL, {"first": ledger.put_json({})})
        calls.clear()
        refs = [ledger.put_json({"n": number}) for number in range(3)]
        ledger.commit(K.FAMILY, {"refs": refs})
    assert calls == [".writing"] * 3 + ["segments", "log.jsonl", ".writing"]


def test_a_lock_is_let_go_of_when_leftovers_cannot_be_cleared_away(tmp_path):
    work(tmp_path / "run")
    (tmp_path / "run" / ".writing-x").mkdir()
    with pytest.raises(StorageError, match="writing-x"):
        Ledger.write(tmp_path / "run")
    (tmp_path / "run" / ".writing-x").rmdir()
    Ledger.write(tmp_path / "run").close()


def test_a_link_in_a_run_leads_its_writer_nowhere(tmp_path):
    work(tmp_path / "run")
    victim = tmp_path / "victim"
    victim.write_bytes((tmp_path / "run" / "log.jsonl").read_bytes())
    (tmp_path / "run" / "log.jsonl").unlink()
    (tmp_path / "run" / "log.jsonl").symlink_to(victim)
    before = victim.read_bytes()
    with pytest.raises(StorageError, match=r"log\.jsonl: .*symbolic link"):
        Ledger.write(tmp_path / "run")
    assert victim.read_bytes() == before


def test_a_link_in_the_place_of_a_runs_folder_leads_its_writer_nowhere(tmp_path):
    work(tmp_path / "run")
    elsewhere = tmp_path / "elsewhere"
    (tmp_path / "run" / "segments").rename(elsewhere)
    (tmp_path / "run" / "segments").symlink_to(elsewhere)
    before = files_of(elsewhere)
    with pytest.raises(StorageError, match=r"segments: .*symbolic link"):
        Ledger.write(tmp_path / "run")
    assert files_of(elsewhere) == before
    (tmp_path / "link").symlink_to(tmp_path / "new")
    (tmp_path / "new").mkdir()
    work(tmp_path / "link")
    assert verify_run(tmp_path / "new").events == 3
