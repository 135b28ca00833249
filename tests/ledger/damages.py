"""The conformance suite of must-fail runs: every case has a name and is damage of its own kind.

Four hands do damage. A **vandal** changes files and leaves the rest alone. A **forger** can write to the folder and
makes the chain anew; the reader knows the run's key and a checkpoint. An **impostor** does so with a key of their own;
the reader knows the run's key alone. The **author** can sign as well, and lies in one thing only; the reader knows the
key alone.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.ledger.forging import (
    Body,
    Files,
    authored,
    body,
    chained,
    events_of,
    note,
    put,
    replaced,
    with_segment,
)
from tests.ledger.small import KEY, OTHER
from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.ledger.envelope import IN_TOTO, Envelope, EnvelopeSignature
from vapo.ledger.keys import SigningKey
from vapo.ledger.note import Note, NoteSignature, cosign

VANDAL, FORGER, IMPOSTOR, AUTHOR = "vandal", "forger", "impostor", "author"


class Case(NamedTuple):
    """A damaged run and who did it."""

    name: str
    hand: str
    files: Files


def all_cases(files: Files) -> Iterator[Case]:
    """Every named case."""
    yield from vandalised_files(files)
    yield from vandalised_log(files)
    yield from vandalised_notes(files)
    yield from respelled_log(files)
    yield from forged_log(files)
    yield from forged_records(files)
    yield from forged_bodies(files)
    yield from forged_signatures(files)
    yield from lies_in_the_log(files)
    yield from lies_in_the_certificate(files)
    yield from respelled_certificates(files)


def role(files: Files, name: str) -> str:
    """What a file is in the run, in words that stay when digests change."""
    for event in events_of(files):
        for field, value in event["body"].items():
            if name[9:73] in json.dumps(value):
                return f"{event['seq']} {event['kind']} {field}"
    return name


def vandalised_files(files: Files) -> Iterator[Case]:
    names = sorted(files)
    for name, other in zip(names, [*names[1:], names[0]], strict=True):
        data, rest, what = files[name], {n: d for n, d in files.items() if n != name}, role(files, name)
        changes: dict[str, Files] = {
            "removed": rest,
            "renamed": {**rest, f"{name}.old": data},
            "emptied": {**rest, name: b""},
            "cut by a byte": {**rest, name: data[:-1]},
            "cut in half": {**rest, name: data[: len(data) // 2]},
            "a byte longer": {**rest, name: data + b"\n"},
            "doubled": {**rest, name: data + data},
            "exchanged with its neighbour": {**files, name: files[other], other: data},
            "copied beside itself": {**files, f"copy-{name.replace('/', '-')}": data},
        }
        for change, found in changes.items():
            yield Case(f"file {what}: {change}", VANDAL, found)
    for name in (
        "x",
        "segments/x",
        "segments/deep/x",
        ".hidden",
        "log.jsonl.bak",
        f"segments/{'0' * 64}.parquet",
    ):
        yield Case(f"file {name}: added", VANDAL, {**files, name: b"x"})


def damaged_events(events: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Every event dropped, doubled, exchanged with the next, and everything behind it cut off."""
    for at, event in enumerate(events):
        yield f"event {at} dropped", [*events[:at], *events[at + 1 :]]
        yield f"event {at} doubled", [*events[: at + 1], *events[at:]]
        yield f"event {at} again at the end", [*events, event]
        if at + 1 < len(events):
            yield f"event {at} behind the next", [*events[:at], events[at + 1], event, *events[at + 2 :]]
            yield f"cut off behind event {at}", events[: at + 1]


def vandalised_log(files: Files) -> Iterator[Case]:
    lines = files["log.jsonl"].splitlines(keepends=True)
    for name, damaged in damaged_events(lines):
        yield Case(f"log: {name}", VANDAL, {**files, "log.jsonl": b"".join(damaged)})
    for at, line in enumerate(lines):
        for change, hurt in {
            "with a space more": line.replace(b":", b": ", 1),
            "cut short": line[: len(line) // 2] + b"\n",
            "without its newline": line[:-1],
            "with a carriage return": line[:-1] + b"\r\n",
            "with a field more": b'{"a":0,' + line[1:],
            "with a field twice": b'{"seq":0,' + line[1:],
            "behind an empty one": b"\n" + line,
        }.items():
            found = [*lines[:at], hurt, *lines[at + 1 :]]
            yield Case(f"log: event {at} {change}", VANDAL, {**files, "log.jsonl": b"".join(found)})


def vandalised_notes(files: Files) -> Iterator[Case]:
    """The signed checkpoint with more or other signatures, or of another text that the same key has signed."""
    sound = files["checkpoint.note"]
    found = Note.parse(sound)
    (line,) = found.signatures
    lines, size = found.text.split("\n"), int(found.text.split("\n")[1])

    def alone(key_id: bytes, signature: bytes) -> bytes:
        return Note(found.text, (NoteSignature(line.name, key_id, signature),)).data

    def says(at: int, text: str) -> bytes:
        return Note("\n".join([*lines[:at], text, *lines[at + 1 :]])).sign(KEY).data

    large = int.from_bytes(line.signature[32:], "little") + 2**252 + 27742317777372353535851937790883648493
    witnessed = cosign(sound, OTHER, log_keys=[KEY.verifier], time=1, previous=None)
    for name, data in {
        "its signature twice": Note(found.text, (line, line)).data,
        "another key's signature behind its own": found.sign(OTHER).data,
        "another key's signature before its own": Note(found.text).sign(OTHER).sign(KEY).data,
        "a witness's signature behind its own": witnessed,
        "its key's signature as a witness": alone(KEY.witness.key_id, bytes(8) + line.signature),
        "an unreduced signature": alone(line.key_id, line.signature[:32] + large.to_bytes(32, "little")),
        "its key under another name": Note(found.text)
        .sign(SigningKey.from_seed("a.name", bytes([7]) * 32))
        .data,
        "one event less": says(1, str(size - 1)),
        "one event more": says(1, str(size + 1)),
        "a zero before its size": says(1, f"0{size}"),
        "another run's name": says(0, lines[0][:-1] + ("0" if lines[0][-1] != "0" else "1")),
        "an empty line at its end": sound + b"\n",
        "carriage returns": sound.replace(b"\n", b"\r\n"),
        "a hyphen for its dash": sound.replace("\N{EM DASH}".encode(), b"-"),
        "a line more that is signed too": Note(f"{found.text}more\n").sign(KEY).data,
    }.items():
        yield Case(f"checkpoint.note: {name}", VANDAL, {**files, "checkpoint.note": data})


def respelled_log(files: Files) -> Iterator[Case]:
    """A line that says the same in other bytes, the chain made anew around it."""
    first = files["log.jsonl"].splitlines()[0]
    spellings = {
        "a letter as an escape": first.replace(b'"kind"', b'"\\u006bind"'),
        "a solidus escaped": first.replace(b'"body":{', b'"body":{"\\/":0,', 1),
        "1.0 for 1": first.replace(b'"format":1', b'"format":1.0'),
        "1e0 for 1": first.replace(b'"format":1', b'"format":1e0'),
        "a zero behind a fraction": first.replace(b'"rho":0.3', b'"rho":0.30'),
        "a fraction with an exponent": first.replace(b'"rho":0.3', b'"rho":3e-1'),
        "a negative zero": first.replace(b'"seq":0', b'"seq":-0'),
        "a truth for a number": first.replace(b'"seq":0', b'"seq":false'),
        "a number for a number twice": first.replace(b'"rho":0.3', b'"rho":0.3,"rho":0.3'),
        "the same keys in another order": _reversed(first),
        "a tab": first.replace(b":", b":\t", 1),
        "a line separator of Unicode": first.replace(b"{", "{\u2028".encode(), 1),
        "a byte order mark": b"\xef\xbb\xbf" + first,
        "a NUL behind it": first + b"\0",
        "an overlong letter": first.replace(b'"format"', b'"form\xc1\xa1t"'),
        "half of a surrogate pair": first.replace(b'"body":{', b'"body":{"\\ud800":0,', 1),
        "not a number": first.replace(b'"rho":0.3', b'"rho":NaN'),
        "infinity": first.replace(b'"rho":0.3', b'"rho":Infinity'),
        "a number that no double holds": first.replace(b'"format":1', b'"format":1152921504606846977'),
        "seventy levels": first.replace(b'"body":{', b'"body":{"":' + b"[" * 70 + b"]" * 70 + b",", 1),
    }
    for name, line in spellings.items():
        assert line != first, name
        yield Case(f"respelled: {name}", VANDAL, _with_first_line(files, line))


def _reversed(line: bytes) -> bytes:
    return json.dumps(dict(reversed(json.loads(line).items())), separators=(",", ":")).encode()


def _with_first_line(files: Files, first: bytes) -> Files:
    lines = [first]
    for line in files["log.jsonl"].splitlines()[1:]:
        lines.append(canonical_json({**json.loads(line), "prev": sha256_hex(lines[-1])}))
    mark = canonical_json({"events": len(lines), "head": sha256_hex(lines[-1])})
    return {**files, "log.jsonl": b"".join(line + b"\n" for line in lines), "checkpoint.json": mark}


def forged_log(files: Files) -> Iterator[Case]:
    events = events_of(files)
    for name, damaged in damaged_events(events):
        yield Case(f"chained anew: {name}", FORGER, chained(files, copy.deepcopy(damaged)))
    for kind in sorted(
        {event["kind"] for event in events} | {"alarm", "deploy.closed", "stage.opened", "nonsense"}
    ):
        for at in (1, len(events)):
            forged = [*events[:at], {"kind": kind, "body": {"reason": "mine"}}, *events[at:]]
            yield Case(f"chained anew: a forged {kind} at {at}", FORGER, chained(files, forged))


def damaged_tables(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Every record of a table dropped, doubled, exchanged with the next or put in again, and the table cut."""
    table = pq.read_table(pa.BufferReader(data))

    def taken(rows: list[int]) -> bytes:
        return _written(table.take(pa.array(rows, pa.int64())))

    rows = list(range(len(table)))
    for at in rows:
        yield f"record {at} dropped", taken([*rows[:at], *rows[at + 1 :]])
        yield f"record {at} doubled", taken([*rows[: at + 1], *rows[at:]])
        yield f"record {at} again at the end", taken([*rows, at])
        if at:
            yield (
                f"record {at} before the one before",
                taken([*rows[: at - 1], at, at - 1, *rows[at + 1 :]]),
            )
            yield f"cut off before record {at}", _written(table.slice(0, at))


def _written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def forged_records(files: Files) -> Iterator[Case]:
    for name in sorted(files):
        if name.endswith(".parquet"):
            for change, data in damaged_tables(files[name]):
                yield Case(f"table {role(files, name)}: {change}", FORGER, with_segment(files, name, data))


def forged_bodies(files: Files) -> Iterator[Case]:
    """Every field of every event taken away or put to nothing, and every digest to another file's."""
    events = events_of(files)
    for at, event in enumerate(events):
        for field in event["body"]:
            for change, value in (("taken away", ...), ("null", None), ("a list", []), ("minus one", -1)):
                forged = copy.deepcopy(events)
                if forged[at]["body"][field] == value:
                    continue
                if value is ...:
                    del forged[at]["body"][field]
                else:
                    forged[at]["body"][field] = value
                yield Case(
                    f"chained anew: {at} {event['kind']} {field} {change}", FORGER, chained(files, forged)
                )
    signed = authored(files, OTHER)
    yield Case("signed anew with another key, its name in the log", FORGER, signed)
    yield Case(
        "signed anew with another key, the log untouched",
        FORGER,
        {**files, "checkpoint.note": note(files, OTHER)},
    )
    for event in events:
        if event["kind"] == "certificate.issued":
            event["body"]["signer"] = None
    unsigned = chained(files, events)
    del unsigned["checkpoint.note"]
    yield Case("the signer struck from the log, and the note removed", FORGER, unsigned)


def forged_signatures(files: Files) -> Iterator[Case]:
    """The true certificate in another history, which its signer did not sign."""
    old = body(events_of(files), "certificate.issued")["envelope"]["sha256"]
    sound = Envelope.parse(files[f"segments/{old}.json"])
    both, theirs = sound.sign(OTHER), Envelope(IN_TOTO, sound.payload).sign(OTHER)
    twice = replace(sound, signatures=sound.signatures * 2)
    swapped = replace(both, signatures=both.signatures[::-1])
    renamed = replace(sound, signatures=(replace(sound.signatures[0], keyid=OTHER.fingerprint),))
    other = OTHER.verifier.text
    for name, envelope, signer in (
        ("no signer, and its signature kept", sound, None),
        ("no signer, and its signature gone", replace(sound, signatures=()), None),
        ("the signer another, and both signatures", both, other),
        ("the signer another, and both signatures in the other order", swapped, other),
        ("the signer another, and only the other's signature", theirs, other),
        ("the signer another, and the first one's signature under its name", renamed, other),
        ("the signer the same, and both signatures", both, KEY.verifier.text),
        (
            "the signer the same, and its signature twice",
            twice,
            KEY.verifier.text,
        ),
        ("the signer the same, as one who cosigns", sound, KEY.witness.text),
    ):
        found, events = dict(files), events_of(files)
        body(events, "spotcheck.joined")["picked"] = True
        del found[f"segments/{old}.json"], found["checkpoint.note"]
        ref = put(found, envelope.data, "json")
        found["certificate.json"] = envelope.data
        body(events, "certificate.issued")["signer"] = signer
        made = chained(found, replaced(events, old, ref["sha256"]))
        if signer is not None:
            made["checkpoint.note"] = note(made, OTHER)
        yield Case(f"another history: {name}", IMPOSTOR, made)


def respelled_certificates(files: Files) -> Iterator[Case]:
    """The certificate in other bytes, or with more in its envelope, signed by its author."""
    old = body(events_of(files), "certificate.issued")["envelope"]["sha256"]
    sound = Envelope.parse(files[f"segments/{old}.json"])
    statement = json.loads(sound.payload)
    subjects = statement["subject"]
    payloads = {
        "with white space": sound.payload.replace(b":", b": ", 1),
        "with its keys in another order": _reversed(sound.payload),
        "with a key twice": sound.payload.replace(b"{", b'{"_type":"another",', 1),
        "of another predicate": canonical_json({**statement, "predicateType": "urn:another"}),
        "of another type": canonical_json({**statement, "_type": "https://in-toto.io/Statement/v0.1"}),
        "with its subjects in another order": canonical_json({**statement, "subject": subjects[::-1]}),
        "with a subject more": canonical_json(
            {**statement, "subject": [*subjects, {**subjects[0], "name": "more"}]}
        ),
    }
    envelopes = {name: Envelope(IN_TOTO, payload).sign(KEY) for name, payload in payloads.items()}
    for kind in ("text/plain", IN_TOTO.upper(), f"{IN_TOTO}; charset=utf-8"):
        envelopes[f"as {kind}"] = Envelope(kind, sound.payload).sign(KEY)
    envelopes["that another key has signed too"] = sound.sign(OTHER)
    stranger = EnvelopeSignature("0" * 64, bytes(64))
    envelopes["with a signature of nobody"] = replace(sound, signatures=(*sound.signatures, stranger))
    spelled = {name: envelope.data for name, envelope in envelopes.items()}
    spelled["in an envelope with white space"] = sound.data.replace(b":", b": ", 1)
    spelled["in an envelope with a newline"] = sound.data + b"\n"
    for name, data in spelled.items():
        found = {n: d for n, d in files.items() if n != f"segments/{old}.json"}
        ref = put(found, data, "json")
        found["certificate.json"] = data
        made = chained(found, replaced(events_of(files), old, ref["sha256"]))
        yield Case(f"a certificate {name}", AUTHOR, {**made, "checkpoint.note": note(made, KEY)})
    events = events_of(files)
    body(events, "certificate.issued")["signer"] = KEY.witness.text
    made = chained(files, events)
    plain = Note.parse(note(made, KEY))
    cosigned = replace(plain, signatures=(replace(plain.signatures[0], key_id=KEY.witness.key_id),))
    yield Case("a certificate whose signer cosigns", AUTHOR, {**made, "checkpoint.note": cosigned.data})


def _lie(path: str, value: Any) -> Callable[[Body], None]:
    def change(found: Body) -> None:
        *way, last = path.split(".")
        for key in way:
            found = found[key]
        assert found.get(last, ...) != value, path
        found[last] = value

    return change


CERTIFICATE: dict[str, Any] = {
    "counts.harmful": 1, "counts.admitted": 27, "counts.appealed": 3, "counts.n": 33, "counts.groups": 33,
    "rho": 0.1, "c_min": 0.5, "b_max": 0.1, "delta": 0.05, "delta_total": 0.05, "delta_spent": 0.05,
    "claim": "hoeffding", "stage": 2, "extends": 1, "void": ["hoeffding"],
    "bounds.frozen.risk_upper": 0.0001, "bounds.frozen.coverage_lower": 0.99, "bounds.frozen.calls_upper": 0.01,
    "bounds.frozen.excess_upper": -0.25, "bounds.frozen.radius": 0.001,
    "bounds.hoeffding.excess_upper": -0.2, "bounds.hoeffding.risk_upper": 0.01, "bounds.hoeffding.radius": 0.001,
    "bounds.hoeffding.coverage_lower": 0.8, "bounds.hoeffding.calls_upper": 0.2,
    "bounds.sequential.excess_upper": -0.2, "bounds.sequential.risk_upper": 0.01, "bounds.sequential.radius": 0.001,
    "bounds.sequential.coverage_lower": 0.8, "bounds.sequential.calls_upper": 0.2,
    "bounds.frozen.unknown": 0, "feasible.frozen": False,
    "selected.tau_low": 0.1, "selected.budget": 7, "selected.index": 1, "selected": None,
    "nearest.index": 1, "nearest.tau_high": 0.2, "counts.more": None,
    "status": "refused", "labels.joined": 33, "labels.missing": 1, "bill.labels": 2, "bill.secondary_calls": 0,
    "trace_root": "0" * 64, "labels_digest": "0" * 64, "family_digest": "0" * 64, "sources": {},
    "candidates": "segments/another.parquet", "reach": "population", "reach_detail.case": "a",
    "units.sequential": "window", "bounds.hoeffding": {}, "feasible": {}, "counts": None,
}  # fmt: skip
"""What the author of the small run might have its certificate say instead."""

LOG: dict[tuple[str, int], dict[str, Any]] = {
    ("protocol.declared", 0): {
        "delta": 0.1, "records": 31, "stage": 2, "format": 2, "protocol.rho": 0.4, "protocol.delta": 0.4,
        "protocol.c_min": 0.1, "protocol.b_max": 0.9, "protocol.claim": "sequential", "protocol.stages": 2,
        "protocol.delta_split": [0.5, 0.25, 0.25], "protocol.monitor_rate": 0.5, "observations.certification": [],
        "sealed_labels": "0" * 64,
    },
    ("family.frozen", 0): {"candidates": 2, "family_digest": "0" * 64},
    ("appeals.requested", 0): {"count": 4, "chunk": 1, "first": 1, "rows": 31},
    ("appeals.settled", 0): {"count": 4, "chunk": 1, "first": 1, "rows": 31},
    ("actions.recorded", 0): {"chunk": 1, "first": 1, "rows": 31},
    ("trace.frozen", 0): {"records": 31, "bill.secondary_calls": 1, "bill.labels": 2},
    ("labels.joined", 0): {"joined": 31, "missing": 1, "labels_tree.rows": 31, "trace_root": "0" * 64},
    ("certificate.issued", 0): {
        "rows": [], "rows_tree": None, "status": "refused", "selected": None, "rows_tree.rows": 1,
    },
    ("deploy.opened", 0): {"certificate": "0" * 64, "check_rate": 0.5},
    ("appeals.requested", 1): {"batch": 1, "count": 1, "windowed": True},
    ("appeals.settled", 1): {"batch": 1, "count": 1, "windowed": True},
    ("actions.recorded", 1): {"batch": 1, "calls": 0, "admitted": 9, "rows_tree.rows": 1, "windowed": True},
    ("spotcheck.joined", 0): {"count": 2, "labels_tree.rows": 2, "picked": 3},
}  # fmt: skip
"""What the author might have the log say instead, by event."""


def lies_in_the_certificate(files: Files) -> Iterator[Case]:
    for path, value in CERTIFICATE.items():
        yield Case(
            f"the certificate says {path} = {value!r}",
            AUTHOR,
            authored(files, KEY, predicate=_lie(path, value)),
        )


def lies_in_the_log(files: Files) -> Iterator[Case]:
    for (kind, at), lies in LOG.items():
        for path, value in lies.items():

            def edit(
                events: list[Body], kind: str = kind, at: int = at, path: str = path, value: Any = value
            ) -> None:
                _lie(path, value)(body(events, kind, at))

            yield Case(f"{kind} {at} says {path} = {value!r}", AUTHOR, authored(files, KEY, events=edit))
