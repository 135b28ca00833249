"""Verification finds every byte and every file that is not as it was written, and says where."""

from __future__ import annotations

import io
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crashes import drop, forge, store
from tests.ledger.test_tamper import SECOND
from vapo._internal.keyed import canonical_json
from vapo.ledger import Ledger, verify_run
from vapo.ledger.disk import Disk
from vapo.ledger.log import GENESIS


def everything(run):
    return sorted(path for path in run.rglob("*") if path.is_file())


def found(run):
    report = verify_run(run)
    assert not report.ok
    return report.findings


def test_a_sound_run_passes(certified, deployed):
    for run in (certified, deployed):
        report = verify_run(run)
        assert report.ok, report.findings
        assert report.as_dict()["ok"]
        assert len(report.root) == 64


def test_any_changed_byte_of_any_file_is_found_and_the_file_named(deployed_copy):
    for path in everything(deployed_copy):
        sound, name = path.read_bytes(), str(path.relative_to(deployed_copy))
        for at in {0, len(sound) // 3, len(sound) // 2, len(sound) - 2, len(sound) - 1}:
            path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
            assert found(deployed_copy)[0].where.split(":")[0] in (name, "log.jsonl", "checkpoint.json"), name
        path.write_bytes(sound)
    assert verify_run(deployed_copy).ok


def test_any_file_that_is_cut_stretched_or_emptied_is_found(deployed_copy):
    for path in everything(deployed_copy):
        sound = path.read_bytes()
        for hurt in (sound[:-1], sound[: len(sound) // 2], b"", sound + b"\x00", sound + b"\n", sound * 2):
            path.write_bytes(hurt)
            found(deployed_copy)
        path.write_bytes(sound)
    assert verify_run(deployed_copy).ok


def test_any_file_that_is_gone_renamed_or_exchanged_is_found(deployed_copy):
    paths = everything(deployed_copy)
    for path, other in zip(paths, [*paths[1:], paths[0]], strict=True):
        sound, theirs = path.read_bytes(), other.read_bytes()
        path.unlink()
        assert any(
            path.name in finding.where or "not a run" in finding.what for finding in found(deployed_copy)
        )
        path.with_name("renamed").write_bytes(sound)
        found(deployed_copy)
        path.with_name("renamed").unlink()
        path.write_bytes(theirs)
        other.write_bytes(sound)
        found(deployed_copy)
        path.write_bytes(sound)
        other.write_bytes(theirs)
    assert verify_run(deployed_copy).ok


@pytest.mark.parametrize(
    "name", ["x", "segments/x", "segments/deep/x", ".hidden", "log.jsonl.bak", "telemetry.jsonl/x"]
)
def test_a_file_that_was_put_in_is_found(certified_copy, name):
    path = certified_copy / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    (finding,) = found(certified_copy)
    assert finding.where == name


def test_a_link_in_place_of_a_file_is_found(certified_copy, tmp_path):
    for path in everything(certified_copy):
        data = path.read_bytes()
        (tmp_path / "elsewhere").write_bytes(data)
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
        found(certified_copy)
        path.unlink()
        path.symlink_to(tmp_path / "nowhere")
        found(certified_copy)
        path.unlink()
        path.write_bytes(data)


def test_a_pipe_in_place_of_telemetry_is_found_and_holds_no_writer_up(certified_copy):
    os.mkfifo(certified_copy / "telemetry.jsonl")
    (finding,) = found(certified_copy)
    assert finding.where == "telemetry.jsonl"
    with Ledger.write(certified_copy) as ledger:
        ledger.telemetry(seconds=1.5)


@pytest.mark.parametrize("name", [b"\x1b[2K\rOK: 14 events", b"x\nOK", b"\xff\xfe", "\u202ex".encode()])
def test_a_name_that_was_put_in_cannot_say_otherwise_on_a_terminal(certified_copy, name):
    path = certified_copy / os.fsdecode(name)
    for make in (path.touch, path.mkdir):
        make()
        (finding,) = found(certified_copy)
        second, _, _ = SECOND.check_run(str(certified_copy))
        for where in (finding.where, second.where):
            assert where == ascii(path.name)
        path.unlink() if path.is_file() else path.rmdir()


def test_tables_are_hashed_in_pieces_and_only_labels_are_read(deployed, monkeypatch):
    read, whole = Disk.read, []
    monkeypatch.setattr(Disk, "read", lambda self, name: whole.append(name) or read(self, name))
    assert verify_run(deployed).ok
    joined = [e.body["labels"]["sha256"] for e in Ledger.read(deployed).events if e.kind == "labels.joined"]
    assert [name[9:73] for name in whole if name.endswith(".parquet")] == joined


def test_telemetry_is_outside_of_it_all(certified_copy):
    (certified_copy / "telemetry.jsonl").write_bytes(b"whatever\n")
    assert verify_run(certified_copy).ok


def test_every_event_that_is_dropped_doubled_swapped_or_put_in_is_found(deployed_copy):
    log = deployed_copy / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for at in range(len(lines)):
        hurt = [
            [*lines[:at], *lines[at + 1 :]],
            [*lines[: at + 1], *lines[at:]],
            [*lines[:at], b'{"seq":0}\n', *lines[at:]],
        ]
        if at:
            hurt.append([*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]])
        for forged in hurt:
            log.write_bytes(b"".join(forged))
            assert found(deployed_copy)[0].where in ("log.jsonl", "checkpoint.json")
    log.write_bytes(b"".join(lines))
    assert verify_run(deployed_copy).ok


def test_dropped_last_events_are_found_even_if_they_named_no_file(deployed_copy):
    log = deployed_copy / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for kept in range(len(lines)):
        log.write_bytes(b"".join(lines[:kept]))
        assert any("are gone" in finding.what for finding in found(deployed_copy))


def test_an_event_chained_on_by_hand_shows_beside_the_mark(deployed_copy):
    log = deployed_copy / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    mark = (deployed_copy / "checkpoint.json").read_bytes()
    forge(deployed_copy, lambda events: [*events, {"kind": "deploy.closed", "body": {"reason": "mine"}}])
    (deployed_copy / "checkpoint.json").write_bytes(mark)
    assert any("added by hand" in finding.means for finding in found(deployed_copy))
    log.write_bytes(b"".join(lines))
    assert verify_run(deployed_copy).ok


def test_labels_that_were_joined_to_another_trace_are_found_even_when_chained_soundly(certified_copy):
    def other_root(events):
        return [
            {**e, "body": {**e["body"], "trace_root": GENESIS}} if e["kind"] == "labels.joined" else e
            for e in events
        ]

    forge(certified_copy, other_root)
    assert any("another trace" in finding.what for finding in found(certified_copy))


def test_a_label_file_that_does_not_carry_the_root_is_found(certified_copy):
    table = pa.table({"id": ["r1"], "z": [1]})
    stream = io.BytesIO()
    pq.write_table(table, stream)
    ref = store(certified_copy, stream.getvalue())

    def swapped(events):
        joined = next(e for e in events if e["kind"] == "labels.joined")
        drop(certified_copy, joined["body"]["labels"])
        joined["body"]["labels"] = ref
        return events

    forge(certified_copy, swapped)
    assert any("does not carry the root" in finding.what for finding in found(certified_copy))


def test_labels_before_the_freeze_are_found_even_when_chained_soundly(certified_copy):
    def early(events):
        labels = next(e for e in events if e["kind"] == "labels.joined")
        rest = [e for e in events if e is not labels]
        return [*rest[:2], labels, *rest[2:]]

    forge(certified_copy, early)
    assert any("not legal" in finding.what for finding in found(certified_copy))


def test_another_certificate_beside_the_log_is_found(certified_copy):
    path = certified_copy / "certificate.json"
    envelope = json.loads(path.read_bytes())
    path.write_bytes(canonical_json({**envelope, "signatures": [{"sig": "", "keyid": ""}]}))
    assert found(certified_copy)[0].where == "certificate.json"


@pytest.mark.parametrize(
    "kind", ["labels.joined", "certificate.issued", "protocol.declared", "actions.recorded"]
)
@pytest.mark.parametrize(
    "body", [{}, {"labels": 3}, {"labels": {}}, {"envelope": []}, {"a": {"sha256": "../../x", "suffix": "y"}}]
)
def test_an_event_with_a_body_that_no_writer_of_ours_wrote_is_a_finding_and_no_traceback(
    certified_copy, kind, body
):
    def emptied(events):
        return [{**e, "body": body} if e["kind"] == kind else e for e in events]

    forge(certified_copy, emptied)
    found(certified_copy)


def test_what_is_no_run_is_said_to_be_none(tmp_path):
    assert "not a run folder" in found(tmp_path)[0].what
    assert "not a run folder" in found(tmp_path / "nowhere")[0].what
    (tmp_path / "log.jsonl").write_bytes(b"")
    assert "no event" in found(tmp_path)[0].what
