"""Replay redoes the work, so it finds what was forged and chained soundly again."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crashes import drop, forge, store
from tests.samples import files_of
from vapo._internal.keyed import canonical_json
from vapo.certification.tally import codes_of, codes_table
from vapo.errors import IntegrityError
from vapo.gate import replay_run
from vapo.ledger import Ledger, run, verify_run


def event_of(events, kind, number=0):
    return [event for event in events if event["kind"] == kind][number]


def table_of(run, ref):
    return pq.read_table(run / "segments" / f"{ref['sha256']}.parquet")


def parquet(table):
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def put(run, holder, key, data, suffix="parquet"):
    old = holder[key]
    holder[key] = store(run, data, suffix)
    drop(run, old)


def admit_more(run, events):
    body = event_of(events, "actions.recorded")["body"]
    stored = table_of(run, body["codes"])
    codes = codes_of(stored, len(stored), body["rows"]).copy()
    codes[0, np.flatnonzero(codes[0] == 9)[:5]] = 1
    put(run, body, "codes", parquet(codes_table(codes)))
    return events


def lower_threshold(run, events):
    body = event_of(events, "family.frozen")["body"]
    path = run / "segments" / f"{body['family']['sha256']}.json"
    family = json.loads(path.read_bytes())
    family["candidates"][0]["tau_high"] -= 0.01
    family["candidates"][0]["tau_low"] -= 0.01
    put(run, body, "family", canonical_json(family), "json")
    return events


def other_score(run, events):
    body = event_of(events, "family.frozen")["body"]
    put(run, body, "score", canonical_json({"rule": "mean", "inputs": ["conf"], "params": {}}), "json")
    return events


def larger_plan(run, events):
    body = event_of(events, "family.frozen")["body"]
    path = run / "segments" / f"{body['planned']['sha256']}.json"
    planned = json.loads(path.read_bytes())
    planned["coverage"][0] = 0.987
    put(run, body, "planned", canonical_json(planned), "json")
    return events


def smaller_bill(run, events):
    event_of(events, "trace.frozen")["body"]["bill"]["labels"] -= 1
    return events


def fewer_harmful(run, events):
    issued = event_of(events, "certificate.issued")["body"]
    path = run / "segments" / f"{issued['envelope']['sha256']}.json"
    envelope = json.loads(path.read_bytes())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    statement["predicate"]["counts"]["harmful"] = 0
    envelope["payload"] = base64.b64encode(canonical_json(statement)).decode()
    put(run, issued, "envelope", canonical_json(envelope), "json")
    (run / "certificate.json").write_bytes(canonical_json(envelope))
    return events


def other_selected(run, events):
    event_of(events, "certificate.issued")["body"]["selected"]["index"] += 1
    return events


def other_rows(run, events):
    body = event_of(events, "certificate.issued")["body"]
    table = table_of(run, body["rows"][0])
    flipped = pa.array([-sign for sign in table.column("sign").to_pylist()], pa.int8())
    place = table.schema.get_field_index("sign")
    old = body["rows"][0]
    body["rows"] = [store(run, parquet(table.set_column(place, "sign", flipped)))]
    drop(run, old)
    return events


def other_split(run, events):
    event_of(events, "protocol.declared")["body"]["splits"]["splits"]["design"]["rows"] += 1
    return events


def admit_in_a_batch(run, events):
    body = event_of(events, "actions.recorded", -2)["body"]
    table = table_of(run, body["rows"])
    signs = table.column("sign").to_pylist()
    signs[signs.index(0)] = 1
    place = table.schema.get_field_index("sign")
    put(run, body, "rows", parquet(table.set_column(place, "sign", pa.array(signs, pa.int8()))))
    return events


def spend_less(run, events):
    body = event_of(events, "actions.recorded", -2)["body"]
    table = table_of(run, body["windows"])
    put(run, body, "windows", parquet(table.set_column(1, "calls", pa.array([0] * len(table)))))
    return events


def ask_for_less(run, events):
    body = event_of(events, "appeals.requested", -1)["body"]
    table = table_of(run, body["requests"])
    put(run, body, "requests", parquet(table.slice(1)))
    return events


def close_a_batch(run, events):
    event_of(events, "actions.recorded", -2)["body"]["closed"] = "because"
    return events


def renumber_a_batch(run, events):
    event_of(events, "actions.recorded", -1)["body"]["batch"] = 7
    return events


def other_source(run, events):
    event_of(events, "actions.recorded", -1)["body"]["sources"]["primary"]["digest"] = "7" * 64
    return events


def more_than_a_batch_holds(run, events):
    event_of(events, "actions.recorded", -1)["body"]["approved_by"] = "somebody"
    return events


def alarm_out_of_nothing(run, events):
    return [*events, {"kind": "alarm", "body": {"drawn": True, "picked": False, "checks": 3}}]


def skip_a_batch(run, events):
    kept = []
    for event in events:
        if event["body"].get("batch") == 1:
            for ref in [
                *event["body"]["observations"],
                *(v for v in event["body"].values() if isinstance(v, dict)),
            ]:
                if "suffix" in ref and (run / "segments" / f"{ref['sha256']}.{ref['suffix']}").exists():
                    drop(run, ref)
            continue
        kept.append(event)
    return kept


FORGERIES = [
    admit_more,
    lower_threshold,
    other_score,
    larger_plan,
    smaller_bill,
    fewer_harmful,
    other_selected,
    other_rows,
    other_split,
    admit_in_a_batch,
    spend_less,
    ask_for_less,
    close_a_batch,
    renumber_a_batch,
    other_source,
    more_than_a_batch_holds,
    alarm_out_of_nothing,
    skip_a_batch,
]


def test_a_sound_run_replays_in_full(deployed):
    ledger = Ledger.read(deployed)
    replayed = replay_run(deployed)
    assert (replayed.stages, replayed.batches) == (1, 3)
    assert replayed.events == len(ledger.stage_events())


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda f: f.__name__)
def test_a_forgery_that_verification_cannot_see_is_found_by_replay(deployed_copy, forgery):
    forge(deployed_copy, lambda events: forgery(deployed_copy, events))
    with pytest.raises(IntegrityError):
        replay_run(deployed_copy)


@pytest.mark.parametrize(
    "forgery", [admit_in_a_batch, close_a_batch, renumber_a_batch], ids=lambda f: f.__name__
)
def test_these_forgeries_are_indeed_chained_soundly(deployed_copy, forgery):
    forge(deployed_copy, lambda events: forgery(deployed_copy, events))
    assert verify_run(deployed_copy).ok


def test_a_field_too_many_in_a_certificates_event_is_found(certified_copy):
    def approve(events):
        event_of(events, "certificate.issued")["body"]["approved_by"] = "somebody"
        return events

    forge(certified_copy, approve)
    with pytest.raises(IntegrityError, match="does not say what its certificate says"):
        replay_run(certified_copy)


def test_replay_reads_the_log_twice_however_much_happened(deployed, monkeypatch):
    read, logs = run.parse_log, []
    monkeypatch.setattr(run, "parse_log", lambda data: logs.append(data) or read(data))
    assert replay_run(deployed).batches == 3
    assert len(logs) == 2


def test_replay_writes_nothing(deployed_copy):
    before = files_of(deployed_copy)
    steps = []
    replay_run(deployed_copy, progress=lambda step, done, total: steps.append(step))
    assert files_of(deployed_copy) == before
    assert {"deciding", "replaying batches"} <= set(steps)
