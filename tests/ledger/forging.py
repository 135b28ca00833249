"""Forging runs: by who can only write to the folder, and by the author who can sign as well."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.ledger.envelope import IN_TOTO, Envelope
from vapo.ledger.keys import SigningKey
from vapo.ledger.log import GENESIS, merkle_root
from vapo.ledger.merkle import Tree
from vapo.ledger.note import Checkpoint, run_origin

Files = dict[str, bytes]
Body = dict[str, Any]

_OUTCOMES = ("certificate.issued", "certificate.refused")


def read_files(run: Path) -> Files:
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*")) if p.is_file()}


def write_files(run: Path, files: Files) -> None:
    for name, data in files.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def events_of(files: Files) -> list[Body]:
    return [json.loads(line) for line in files["log.jsonl"].splitlines()]


def body(events: list[Body], kind: str, at: int = 0) -> Body:
    return [event for event in events if event["kind"] == kind][at]["body"]


def chained(files: Files, events: list[Body]) -> Files:
    """The files with these events, chained soundly, and a mark to match: what anybody can do who can write."""
    previous, lines = GENESIS, []
    for number, event in enumerate(events):
        line = canonical_json({**event, "seq": number, "prev": previous})
        previous = sha256_hex(line)
        lines.append(line)
    mark = canonical_json({"events": len(lines), "head": previous})
    return {**files, "log.jsonl": b"".join(line + b"\n" for line in lines), "checkpoint.json": mark}


def put(files: Files, data: bytes, suffix: str) -> dict[str, str]:
    """Add a segment."""
    ref = {"sha256": sha256_hex(data), "suffix": suffix}
    files[f"segments/{ref['sha256']}.{suffix}"] = data
    return ref


def replaced(value: Any, old: str, new: str) -> Any:
    """Plain data with one digest in the place of another, wherever it stands."""
    return json.loads(json.dumps(value).replace(old, new))


def with_segment(files: Files, name: str, data: bytes) -> Files:
    """The run with another segment in the place of one, named rightly, and chained to match."""
    old, suffix = name.removeprefix("segments/").split(".")
    found = {n: d for n, d in files.items() if n != name}
    ref = put(found, data, suffix)
    return chained(found, replaced(events_of(files), old, ref["sha256"]))


def authored(
    files: Files,
    key: SigningKey,
    *,
    events: Callable[[list[Body]], None] = lambda events: None,
    predicate: Callable[[Body], None] = lambda predicate: None,
) -> Files:
    """The run as its author could have forged it: all that follows is made to fit, and signed with the run's own key.

    Args:
        files: A sound run of one stage.
        key: The key that signed it.
        events: Changes what the log says.
        predicate: Changes what the certificate says.
    """
    found, log = dict(files), copy.deepcopy(events_of(files))
    outcome = next(event for event in log if event["kind"] in _OUTCOMES)
    old = outcome["body"]["envelope"]["sha256"]
    statement = json.loads(base64.b64decode(json.loads(found.pop(f"segments/{old}.json"))["payload"]))
    events(log)
    predicate(statement["predicate"])
    joined = body(log, "labels.joined")
    frozen = [event["kind"] for event in log].index("trace.frozen")
    root, label = _root(log, frozen), f"segments/{joined['labels']['sha256']}.parquet"
    if joined["trace_root"] == statement["predicate"]["trace_root"] and joined["trace_root"] != root:
        table = found.pop(label).replace(joined["trace_root"].encode(), root.encode())
        # Arrow repeats the metadata in base64, which nobody looks at.
        joined |= {"labels": put(found, table, "parquet"), "trace_root": root}
        statement["predicate"] |= {"trace_root": root, "labels_digest": joined["labels"]["sha256"]}
    digests = (statement["predicate"]["trace_root"], statement["predicate"]["labels_digest"])
    for subject, digest in zip(statement["subject"], digests, strict=True):
        subject["digest"]["sha256"] = digest
    envelope = Envelope(IN_TOTO, canonical_json(statement)).sign(key).data
    outcome["body"]["envelope"] = put(found, envelope, "json")
    found["certificate.json"] = envelope
    made = chained(found, replaced(log, old, outcome["body"]["envelope"]["sha256"]))
    return {**made, "checkpoint.note": note(made, key)}


def _root(log: list[Body], last: int) -> str:
    return merkle_root(chained({}, log)["log.jsonl"].splitlines()[: last + 1])


def note(files: Files, key: SigningKey) -> bytes:
    """The signed checkpoint that belongs to a log."""
    lines = files["log.jsonl"].splitlines()
    size = max(n for n, event in enumerate(events_of(files), 1) if event["kind"] in _OUTCOMES)
    return Checkpoint(run_origin(sha256_hex(lines[0])), size, Tree(lines[:size]).root()).sign(key).data
