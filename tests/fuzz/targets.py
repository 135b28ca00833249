"""Everything that reads what comes from outside: one function of bytes for each, and the seeds to start from.

A function returns, or raises the library's own error. Anything else is a finding.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.ledger.forging import chained, read_files, with_segment, write_files
from tests.ledger.small import KEY, OTHER, small_run
from tests.samples import world
from vapo._internal.keyed import canonical_json, sha256_hex
from vapo._internal.strict import plainly_canonical, strict_json
from vapo.certification.certificate import open_certificate
from vapo.certification.flow import as_records
from vapo.errors import VapoError
from vapo.gate import replay_run
from vapo.ledger import Ledger, verify_run
from vapo.ledger.age import Identity, Recipient, decrypt, encrypt
from vapo.ledger.checkpoints import checkpoint_of, parse_checkpoint
from vapo.ledger.envelope import Envelope, Statement
from vapo.ledger.keys import VerifierKey, load_key, load_verifiers
from vapo.ledger.limited import LimitedReader
from vapo.ledger.log import check_mark, parse_log
from vapo.ledger.lookup import prove_event, prove_growth, prove_record
from vapo.ledger.note import Note, cosign, open_checkpoint
from vapo.ledger.proof import check_growth_proof, check_proof
from vapo.ledger.sealed import parse_labels
from vapo.policy import Family
from vapo.protocol import Protocol
from vapo.records import Labels
from vapo.studies.runner import MANIFEST, load_rows
from vapo.tasks import open_task
from vapo.train.config import TrainConfig
from vapo.train.dumps import LAYOUTS, read_dump
from vapo.verifiers.answers import Place, final_number, final_text, read_number
from vapo.verifiers.audit_file import read_verdicts
from vapo.verifiers.judge_reading import read_reply
from vapo.verifiers.templates import TEMPLATES

REPO = Path(__file__).parents[2]
IDENTITY = Identity.from_bytes(bytes(range(32)))


class Target(NamedTuple):
    """A reader, and what it reads when all is well."""

    read: Callable[[bytes], object]
    seeds: tuple[bytes, ...]
    share: float = 1.0
    """Inputs that it gets, as a share of what is asked for: readers that start processes or redo runs get fewer."""
    total: bool = False
    """Whether it may raise nothing at all."""


def targets() -> dict[str, Target]:
    """All of them by name."""
    return {**_ledger(), **_files(), **_texts(), **_foreign()}


_READERS: list[LimitedReader] = []


def _reader(memory: int, seconds: int) -> LimitedReader:
    _READERS.append(LimitedReader(memory=memory, seconds=seconds))
    return _READERS[-1]


@cache
def _place() -> Path:
    # Files are written anew for every input: in memory where that can be had.
    memory = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="fuzz-", dir=memory if os.access(memory, os.W_OK) else None)
    return Path(folder)


def clean() -> None:
    """Remove what the targets wrote, and end the processes that they started."""
    while _READERS:
        _READERS.pop().close()
    shutil.rmtree(_place(), ignore_errors=True)
    _place.cache_clear()
    _run.cache_clear()


@cache
def _run() -> Path:
    run = _place() / "seed"
    small_run(run)
    return run


def _at(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A reader of a file as a reader of bytes."""

    def of(data: bytes) -> object:
        path = _place() / name
        path.write_bytes(data)
        return read(path)

    return of


# What a run holds


def _ledger() -> dict[str, Target]:
    ledger, files = Ledger.read(_run()), read_files(_run())
    events, now = ledger.events, checkpoint_of(ledger.events)
    point, log = now.text.encode(), files["log.jsonl"]
    note, envelope = files["checkpoint.note"], files["certificate.json"]
    witnessed = cosign(note, OTHER, log_keys=[KEY.verifier], time=1, previous=None)
    payload = Envelope.parse(envelope).payload
    old = checkpoint_of(events, 5).text.encode()
    signed = (prove_record(ledger, "r5"), prove_event(ledger, 3))
    known = (prove_record(ledger, "n2", checkpoint=point), prove_event(ledger, 9, checkpoint=point))
    growth = prove_growth(ledger, old, checkpoint=point)
    sealed = encrypt(b'{"id":"a","z":1}\n' * 3, [IDENTITY.recipient], draw=lambda size: bytes(range(size)))
    rows = b'{"id":"a","z":1}\n{"id":"b","z":-1}\n'
    pem = Ed25519PrivateKey.from_private_bytes(bytes(32)).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )

    def values(data: bytes) -> None:
        # What is seen at once to be canonical has to be so when it is looked at closely.
        seen = plainly_canonical(data)
        read = strict_json(data, "input")
        assert seen is None or (canonical_json(read) == data and seen == read)

    def notes(data: bytes) -> None:
        Note.parse(data).verify([KEY.verifier])
        open_checkpoint(data, [KEY.verifier], witnesses=[OTHER.witness], quorum=0)

    def envelopes(data: bytes) -> None:
        Envelope.parse(data).verify([KEY.verifier])
        str(open_certificate(data))

    def statements(data: bytes) -> None:
        # What a forger can make: an envelope around anything.
        Statement.parse(data)
        str(open_certificate(Envelope("application/vnd.in-toto+json", data, ()).data))

    def keys(path: Path) -> None:
        load_verifiers(path)

    def private(data: bytes) -> None:
        path = _place() / "private.key"
        path.write_bytes(data)
        path.chmod(0o600)
        load_key(path, "example.org/runs")

    def lines(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        errors = [with_error(parse, text) for parse in (VerifierKey.parse, Recipient.parse)]
        if all(errors):
            raise errors[0]

    return {
        "json": Target(values, (payload, events[0].line, b"[1, 1e21, -0.0]")),
        "log": Target(parse_log, (log, b"\n".join(log.split(b"\n")[:3]) + b"\n")),
        "mark": Target(partial(check_mark, events=events), (files["checkpoint.json"],)),
        "checkpoint": Target(parse_checkpoint, (point, note, witnessed)),
        "note": Target(notes, (note, witnessed)),
        "envelope": Target(envelopes, (envelope,)),
        "statement": Target(statements, (payload,)),
        "proof": Target(partial(check_proof, trusted=now), known),
        "signed-proof": Target(partial(check_proof, trusted=[KEY.verifier]), signed),
        "growth": Target(partial(check_growth_proof, trusted=now), (growth,)),
        "sealed": Target(partial(decrypt, identity=IDENTITY), (sealed,)),
        "sealed-labels": Target(parse_labels, (rows,)),
        "public-keys": Target(_at("keys.pub", keys), (f"# ours\n{KEY.verifier.text}\n".encode(),)),
        "private-key": Target(private, (pem,)),
        "key-lines": Target(lines, (KEY.verifier.text.encode(), IDENTITY.recipient.text.encode())),
    }


def with_error(read: Callable[[Any], object], given: Any) -> Any:
    """How the library says no, or None."""
    try:
        read(given)
    except VapoError as error:
        return error
    return None


# Files that people hand in


def _table(kind: str) -> bytes:
    table, _ = world(6, per_group=2, window=3, content=True)
    sink = pa.BufferOutputStream()
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif kind == "csv":
        pa.csv.write_csv(table, sink)
    else:
        sink.write(b"".join(json.dumps(row).encode() + b"\n" for row in table.to_pylist()))
    return bytes(sink.getvalue())


_NESTED = (
    b'{"id":"a","group":"g","y":1,"order":2,"signals":{"s":0.5},"verdicts":{"j":1,"k":{"v":-1,"s":0.25}},'
    b'"delta_r":0.2,"kl":0.1}\n'
    b'{"id":"b","group":"g","y":-1,"order":1,"signals":{"s":0.75},"verdicts":{"j":0},"delta_r":0.1,"kl":0,"y2":1}\n'
)
_VERDICTS = (
    b'{"id":"a","primary":1,"primary_score":0.9,"label":-1,"group":"g","secondary":{"m":{"v":-1,"s":0.2,"calls":1,'
    b'"tokens_in":90,"seconds":0.5}}}\n{"id":"b","primary":-1,"group":"g","secondary":{"m":{"v":1}}}\n'
)
_DUMP = (
    b'{"prompt":"2+2","completion":"4","reward":1.0,"step":1,"advantage":0.5}\n'
    b'{"prompt":"2+2","completion":"The answer is 5.","reward":0.0,"step":1,"advantage":-0.5}\n'
)
_TALK = (
    b'{"input":[{"role":"user","content":"2+2"}],"output":[{"role":"assistant","content":"4"}],'
    b'"score":0.25,"step":"7"}\n'
)
_FAMILY = (
    b'{"candidates":[{"tau_low":0.5,"tau_high":0.8,"tau_2":0.6},{"pos":{"tau_low":0.1,"tau_high":0.2},'
    b'"neg":{"tau_low":0.3,"tau_high":0.4,"tau_2":0.5},"budget":3}],"budget":40,"chains":[[0,1]]}'
)
_TERMS = (
    b'rho = 0.08\nc_min = 0.25\nclaim = "sequential"\nstages = "open"\nscore = "signal:conf"\nseed = 3\n'
    b'delta_split = [0.9, 0.05, 0.05]\nwaivers = ["gold"]\n\n[null_signals]\nconf = 0.5\n\n'
    b'[sources.primary]\nid = "rule"\ndigest = "' + b"ab" * 32 + b'"\n'
)
_QUESTIONS = b'{"id":"q1","question":"2+2?","answer":"4"}\n{"id":"q2","question":"3+3?","answer":"#### 6"}\n'


def _files() -> dict[str, Target]:
    reader = _reader(memory=1 << 30, seconds=5)
    terms = Protocol.from_dict({"rho": 0.08, "c_min": 0.25}, where="terms")
    config = (REPO / "examples" / "embedded.toml").read_bytes()
    yaml = b"arm: rc-vapo\nupdates: 3\ntask: {name: arithmetic}\ncertificate: {rho: 0.08, c_min: 0.25}\n"

    def records(path: Path) -> None:
        as_records(path, terms)

    def segment(data: bytes) -> None:
        table = reader(data, sha256_hex(data))
        as_records(table, terms)

    def dump(path: Path) -> None:
        errors = [with_error(partial(read_dump, path), layout) for layout in LAYOUTS]
        if all(errors):
            raise errors[0]

    def finished(data: bytes, manifest: bytes) -> Path:
        folder = _place() / "study"
        (folder / rows).parent.mkdir(parents=True, exist_ok=True)
        (folder / rows).write_bytes(data)
        (folder / MANIFEST).write_bytes(manifest)
        return folder

    def study(data: bytes) -> None:
        load_rows(finished(data, json.dumps({"rows": [rows], "files": {rows: sha256_hex(data)}}).encode()))

    def manifest(data: bytes) -> None:
        load_rows(finished(found, data))

    rows, found = f"rows/{'ab' * 32}.jsonl", b'{"task":"a"}\n{"x":1}\n'
    stated = json.dumps({"rows": [rows], "files": {rows: sha256_hex(found)}})
    labels = (b"id,z\nr0,1\nr1,-1\n", b"id,z,who\nr0,+1,me\n")
    return {
        "records-csv": Target(_at("r.csv", records), (_table("csv"),)),
        "records-jsonl": Target(_at("r.jsonl", records), (_table("jsonl"), _NESTED)),
        "records-arrow": Target(_at("r.arrow", records), (_table("arrow"),)),
        "records-parquet": Target(segment, (_table("parquet"),), share=0.1),
        "labels-csv": Target(_at("l.csv", Labels.read), labels),
        "labels-jsonl": Target(_at("l.jsonl", Labels.read), (b'{"id":"a","z":1}\n{"id":"b","z":-1}\n',)),
        "verdicts": Target(_at("v.jsonl", read_verdicts), (_VERDICTS, _NESTED)),
        "dumps": Target(_at("d.jsonl", dump), (_DUMP, _TALK), share=0.3),
        "family": Target(_at("f.json", Family.read), (_FAMILY,)),
        "protocol": Target(_at("p.toml", Protocol.read), (_TERMS,)),
        "train-toml": Target(_at("t.toml", TrainConfig.read), (config,)),
        "train-yaml": Target(_at("t.yaml", TrainConfig.read), (yaml,), share=0.1),
        "questions": Target(_at("q.jsonl", lambda path: open_task("jsonl", path=path)), (_QUESTIONS,)),
        "study-rows": Target(study, (b'{"task":{"seed":1},"code":"x"}\n{"metric":0.5}\n{"metric":null}\n',)),
        "study-manifest": Target(manifest, (stated.encode(),)),
    }


# Texts that models write

_ANSWERS = (
    rb"So it is \boxed{\frac{3}{4}}, or $1,234.50 in all.", b"16 - 3 - 4 = 9, so 9 * 2 = 18.\n#### 18",
    "The answer is −1 3/4 cups, that is 50%.".encode(), b"<answer>1e5</answer> 2^10 12 + 34 = 46",
    rb"\text{Final answer:} \dfrac{-7}{2} \times 10^{3}",
)  # fmt: skip
_REPLY = canonical_json(
    {
        "choices": [
            {
                "finish_reason": "stop",
                "message": {"content": "Both are 4.\nVerdict: True", "refusal": None},
                "logprobs": {
                    "content": [
                        {"token": "True", "logprob": -0.1, "top_logprobs": [{"token": "False", "logprob": -2.5}]}
                    ]
                },
            }
        ],
        "usage": {"prompt_tokens": 90, "completion_tokens": 1},
    }
)  # fmt: skip


def _texts() -> dict[str, Target]:
    def answers(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        for place in Place:
            final_text(text, [place])
            final_number(text, [place])
        final_text(text)
        final_number(text, percent=True)
        read_number(text)

    def judged(data: bytes) -> None:
        for form in TEMPLATES.values():
            reading = read_reply(data, form, limit=1 << 20)
            assert reading.verdict in (None, -1, 1)
            assert 0.0 <= reading.confidence <= 1.0

    plain = _REPLY.replace(b"Both are 4.\\nVerdict: True", b"True")
    return {
        "answers": Target(answers, _ANSWERS, total=True),
        "judge": Target(judged, (_REPLY, plain), total=True),
    }


# Runs from elsewhere, whose forger has made the chain anew


def _check_tool() -> Any:
    # By name, so that a fuzzer that follows imports follows this one too.
    tools = str(REPO / "tools")
    if tools not in sys.path:
        sys.path.insert(0, tools)
    return importlib.import_module("check_run")


def _foreign() -> dict[str, Target]:
    files, tool = read_files(_run()), _check_tool()
    reader = _reader(memory=4 << 30, seconds=20)
    small = sorted(
        (name for name in files if name.startswith("segments/")), key=lambda name: len(files[name])
    )

    def laid(forged: dict[str, bytes]) -> Path:
        run = _place() / "forged"
        shutil.rmtree(run, ignore_errors=True)
        write_files(run, forged)
        return run

    def looked_at(run: Path) -> None:
        verify_run(run, keys=[KEY.verifier])
        tool.check_run(str(run), [KEY.verifier.text])

    def log(data: bytes) -> Path:
        events = []
        for line in data.split(b"\n"):
            try:
                event = strict_json(line, "line")
            except VapoError:
                continue
            events += [event] if isinstance(event, dict) else []
        try:
            return laid(chained(files, events))
        except VapoError:
            return laid({**files, "log.jsonl": data})

    def segment(data: bytes) -> Path:
        name, _, content = data.partition(b"\n")
        known = name.decode("utf-8", "replace")
        return laid(with_segment(files, known if known in files else small[0], content))

    def redone(run: Path) -> None:
        replay_run(run, tables=reader)

    def tool_proof(data: bytes) -> None:
        path = _place() / "proof.json"
        path.write_bytes(data)
        keys = _place() / "tool.pub"
        keys.write_text(KEY.verifier.text + "\n", encoding="utf-8")
        silent = open(os.devnull, "w")  # noqa: SIM115, PTH123 - closed below
        out, sys.stdout = sys.stdout, silent
        try:
            assert tool.main(["--proof", str(path), "--key", str(keys)]) in (0, 1)
        finally:
            sys.stdout = out
            silent.close()

    segments = tuple(name.encode() + b"\n" + files[name] for name in small)
    proofs = (prove_record(Ledger.read(_run()), "r5"), prove_event(Ledger.read(_run()), 3))
    logs = (files["log.jsonl"],)
    return {
        "forged-log": Target(lambda data: looked_at(log(data)), logs, share=0.05, total=True),
        "forged-segment": Target(lambda data: looked_at(segment(data)), segments, share=0.05, total=True),
        "replayed-log": Target(lambda data: redone(log(data)), logs, share=0.02),
        "replayed-segment": Target(lambda data: redone(segment(data)), segments, share=0.02),
        "check-run-proof": Target(tool_proof, proofs, share=0.3, total=True),
    }
