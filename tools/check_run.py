#!/usr/bin/env python3
"""A second verifier of run folders: one file, the standard library, and docs/format.md.

    python tools/check_run.py RUN [--key PUBLIC] [--checkpoint OLD [--exact]] [--json]
    python tools/check_run.py --proof FILE (--key PUBLIC | --checkpoint KNOWN) [--json]

It shares no code with vapo, so that a mistake there is not repeated here. It checks bytes, chain, order of events,
marks, checkpoints, doors, signatures, what events and certificate say of each other, and the certificate's
arithmetic. Tables are opaque to it; what follows from observations is for `vapo replay`. Signatures need the
package `cryptography`; without it they are reported as skipped.

Exit code 0: nothing is wrong. 1: something is. 2: wrong usage.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import math
import re
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
except ImportError:
    SIGNATURES = False
else:
    SIGNATURES = True

SKIPPED = "signatures skipped: the package cryptography is not installed"

Json = Any
Event = dict[str, Any]

ISSUED, REFUSED = "certificate.issued", "certificate.refused"
OUTCOMES = (ISSUED, REFUSED)
OPENINGS = ("protocol.declared", "stage.opened")
ORDER: dict[str | None, tuple[str, ...]] = {
    None: ("protocol.declared",),
    "protocol.declared": ("family.frozen",),
    "stage.opened": ("family.frozen",),
    "family.frozen": ("appeals.requested", "actions.recorded"),
    "appeals.requested": ("appeals.settled",),
    "appeals.settled": ("actions.recorded",),
    "actions.recorded": ("appeals.requested", "actions.recorded", "trace.frozen"),
    "trace.frozen": ("labels.joined",),
    "labels.joined": OUTCOMES,
    ISSUED: ("deploy.opened", "stage.opened"),
    REFUSED: ("deploy.opened", "stage.opened"),
    "alarm": ("stage.opened",),
    "deploy.closed": ("deploy.opened", "stage.opened"),
}
OPEN = ("appeals.requested", "actions.recorded", "spotcheck.joined", "alarm", "deploy.closed")
ORDER_DEPLOYED: dict[str | None, tuple[str, ...]] = {
    "deploy.opened": OPEN,
    "actions.recorded": OPEN,
    "spotcheck.joined": OPEN,
    "appeals.requested": ("appeals.settled",),
    "appeals.settled": ("actions.recorded",),
}
HEX = re.compile(r"[0-9a-f]{64}")
SEGMENT = re.compile(r"segments/[0-9a-f]{64}\.(parquet|json)")
MALFORMED = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


class Wrong(Exception):  # noqa: N818 - a finding, and not a mistake of the program
    """Something is not as it must be."""

    def __init__(self, where: str, what: str) -> None:
        # A file's name is chosen by who put it there, and could have a terminal wipe out what was found.
        where = where if where.isprintable() else ascii(where)
        super().__init__(f"{where}: {what}")
        self.where, self.what = where, what


def wrong(where: str, what: str) -> NoReturn:
    """Say that something is not as it must be."""
    raise Wrong(where, what)


def need(fits: object, where: str, what: str) -> None:
    """Say what is wrong unless it fits."""
    if not fits:
        raise Wrong(where, what)


# 1 Bytes


def sha(data: bytes) -> str:
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while piece := stream.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def unbase64(text: Json, where: str, size: int | None = None) -> bytes:
    """Base64 in its one spelling."""
    need(isinstance(text, str), where, "base64 is not text")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        wrong(where, "not base64")
    need(base64.b64encode(data).decode() == text, where, "base64 in another spelling")
    need(size is None or len(data) == size, where, f"{len(data)} bytes for {size}")
    return data


def number(value: float) -> str:
    """A double as ECMAScript prints it."""
    if value == 0:
        return "0"
    text = repr(abs(value))
    digits, _, power = text.partition("e")
    whole, _, part = digits.partition(".")
    part = "" if part == "0" else part
    shift = int(power or 0) + len(whole)
    plain = (whole + part).lstrip("0")
    shift -= len(whole + part) - len(plain)
    plain = plain.rstrip("0")
    count = len(plain)
    if count <= shift <= 21:
        body = plain + "0" * (shift - count)
    elif 0 < shift <= 21:
        body = f"{plain[:shift]}.{plain[shift:]}"
    elif -6 < shift <= 0:
        body = f"0.{'0' * -shift}{plain}"
    else:
        rest = f".{plain[1:]}" if count > 1 else ""
        body = f"{plain[0]}{rest}e{'+' if shift > 0 else '-'}{abs(shift - 1)}"
    return f"-{body}" if value < 0 else body


SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def canonical(value: Json) -> str:
    """Canonical JSON."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value) if abs(value) < 2**53 else number(float(value))
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return '"' + "".join(SHORT.get(c) or (c if c >= " " else f"\\u{ord(c):04x}") for c in value) + '"'
    if isinstance(value, list):
        return f"[{','.join(map(canonical, value))}]"
    names = sorted(value, key=lambda name: name.encode("utf-16-be"))
    return "{" + ",".join(f"{canonical(name)}:{canonical(value[name])}" for name in names) + "}"


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    if len(dict(pairs)) < len(pairs):
        msg = "a key twice"
        raise ValueError(msg)
    return dict(pairs)


def _not_json(text: str) -> NoReturn:
    raise ValueError(text)


def _depth(value: Json) -> int:
    level, depth = [value], 0
    while level:
        depth += 1
        level = [
            inner
            for item in level
            if isinstance(item, (list, dict))
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def parse(data: bytes, where: str, most: int = 1 << 28) -> Json:
    """Canonical JSON, and nothing that is nearly so."""
    need(len(data) <= most, where, f"longer than {most} bytes")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_not_json)
        need(_depth(value) <= 64, where, "more than 64 levels")
        again = canonical(value).encode()
    except MALFORMED as error:
        wrong(where, f"not canonical JSON ({str(error).splitlines()[0][:80] if str(error) else 'malformed'})")
    need(again == data, where, "not canonical JSON")
    return value


# 5 Merkle trees


def leaf(data: bytes) -> bytes:
    """Hash of a leaf."""
    return hashlib.sha256(b"\0" + data).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Hash of two subtrees."""
    return hashlib.sha256(b"\1" + left + right).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """Root of the tree over some leaves."""
    level = [leaf(one) for one in leaves]
    if not level:
        return hashlib.sha256(b"").digest()
    while len(level) > 1:
        level = [node(*level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def included(hash_: bytes, index: int, size: int, path: list[bytes], top: bytes, where: str) -> None:
    """Check a proof of inclusion (RFC 9162, 2.1.3.2)."""
    need(0 <= index < size, where, f"no leaf {index} among {size}")
    need({len(one) for one in (hash_, top, *path)} == {32}, where, "a hash of another size")
    fn, sn, r = index, size - 1, hash_
    for p in path:
        need(sn, where, "a proof that is too long")
        if fn & 1 or fn == sn:
            r = node(p, r)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node(r, p)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0, where, "a proof that is too short")
    need(r == top, where, "the proof leads to another root")


def consistent(old: int, size: int, before: bytes, now: bytes, path: list[bytes], where: str) -> None:
    """Check a proof of consistency (RFC 9162, 2.1.4.2)."""
    need(0 < old <= size, where, f"no tree of {old} inside one of {size}")
    if old == size:
        need(not path and before == now, where, "the trees are of one size and differ")
        return
    need({len(one) for one in (before, now, *path)} == {32}, where, "a hash of another size")
    need(path, where, "a proof that is too short")
    path = [before, *path] if old & (old - 1) == 0 else path
    fn, sn = old - 1, size - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    fr = sr = path[0]
    for c in path[1:]:
        need(sn, where, "a proof that is too long")
        if fn & 1 or fn == sn:
            fr, sr = node(c, fr), node(c, sr)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, c)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0, where, "a proof that is too short")
    need(fr == before, where, "the proof does not begin at the earlier root")
    need(sr == now, where, "the proof does not lead to the later root")


# 7 Keys, notes and checkpoints

PRIME, GROUP = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
EIGHT = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
SMALL = {0, 1, PRIME - 1, EIGHT, PRIME - EIGHT}


def good(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether a signature is good in the strict sense; True where there is no way to know."""
    if len(public) != 32 or len(signature) != 64 or int.from_bytes(signature[32:], "little") >= GROUP:
        return False
    for point in (public, signature[:32]):
        y = int.from_bytes(point, "little") & (2**255 - 1)
        if y >= PRIME or y in SMALL:
            return False
    if not SIGNATURES:
        return True
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_key(text: Json, where: str) -> tuple[str, bytes, bytes]:
    """A public key in one line: its name, its id and its 32 bytes."""
    need(isinstance(text, str) and text.count("+") >= 2, where, "not a public key in one line")
    name, written, encoded = text.split("+", 2)
    material = unbase64(encoded, where, 33)
    key_id = hashlib.sha256(name.encode() + b"\n" + material).digest()[:4]
    need(material[0] in (1, 4) and key_id.hex() == written, where, "a public key whose id is another's")
    return name, key_id, material[1:]


def signs(key: str) -> bool:
    """Whether a key signs what is there, and does not cosign it as a witness."""
    return unbase64(key.split("+", 2)[2], "key", 33)[0] == 1


Point = tuple[str, int, bytes]


def read_checkpoint(text: str, where: str) -> Point:
    """Origin, size and root of a checkpoint."""
    lines = text.split("\n")
    form = len(lines) >= 4 and not lines[-1] and all(lines[:-1]) and lines[0].isprintable()
    need(
        form and re.fullmatch(r"0|[1-9][0-9]{0,18}", lines[1]),
        where,
        "not a checkpoint: origin, size and root in lines of their own",
    )
    return lines[0], int(lines[1]), unbase64(lines[2], where, 32)


def read_note(data: bytes, where: str) -> tuple[str, list[tuple[str, bytes]]]:
    """Text of a signed note and its signature lines, each a name and the bytes behind it."""
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        wrong(where, "not UTF-8")
    need(not re.search(r"[\x00-\x09\x0b-\x1f]", whole), where, "a control character")
    text, blank, lines = whole.rpartition("\n\n")
    need(blank and lines.endswith("\n"), where, "not a signed note")
    found = []
    for line in lines[:-1].split("\n"):
        match = re.fullmatch("\N{EM DASH} ([^\\s+]+) (\\S+)", line)
        need(match, where, "a signature line of another form")
        assert match is not None
        found.append((match[1], unbase64(match[2], where)))
    return f"{text}\n", found


def signed_checkpoint(data: bytes, keys: list[str], where: str) -> Point:
    """A checkpoint that one of some keys has signed; any other signature by such a key must be good too."""
    text, lines = read_note(data, where)
    count = 0
    for key in keys:
        name, key_id, public = read_key(key, where)
        for signer, blob in lines:
            if signs(key) and signer == name and blob[:4] == key_id:
                need(good(public, blob[4:], text.encode()), where, f"the signature by {name} is not good")
                count += 1
    need(count, where, "not signed by a trusted key")
    return read_checkpoint(text, where)


# The folder


class Run:
    """A run folder. Tables may be larger than memory, and are only hashed."""

    def __init__(self, path: str, keys: list[str], known: Point | None, *, exact: bool) -> None:
        self.path, self.keys, self.known, self.exact = path, keys, known, exact
        self.files: dict[str, Path] = {}
        self.notes: list[str] = []
        self.lines: list[bytes] = []
        self.events: list[Event] = []
        self._checks: tuple[Callable[[], object], ...] = (
            self.find_files,
            self.read_log,
            self.check_order,
            self.check_mark,
            self.check_growth,
            self.check_references,
            self.check_strangers,
            self.check_events,
            self.check_note,
            self.check_certificates,
        )

    def check(self) -> None:
        """Check everything; the first thing that is wrong is raised."""
        for step in self._checks:
            try:
                step()
            except MALFORMED as error:
                name = getattr(step, "__name__", "")
                wrong("log.jsonl", f"something has not the form that it must have ({name}: {error!r})"[:300])
        if not SIGNATURES and any(e["kind"] in OUTCOMES and e["body"]["signer"] for e in self.events):
            self.notes.append(SKIPPED)

    def find_files(self) -> None:
        """Find every file; links and empty folders do not belong into a run."""
        folder = Path(self.path)
        need(folder.is_dir(), self.path, "not a folder")
        for path in sorted(folder.rglob("*")):
            where, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
            need(not stat.S_ISLNK(mode), where, "a link")
            if stat.S_ISDIR(mode):
                need(where == "segments" or any(path.iterdir()), where, "an empty folder")
                continue
            need(stat.S_ISREG(mode), where, "not a file")
            self.files[where] = path

    def read_log(self) -> None:
        """2: lines, chain and form."""
        need("log.jsonl" in self.files, "log.jsonl", "missing")
        data = self.files["log.jsonl"].read_bytes()
        whole, newline, torn = data.rpartition(b"\n")
        need(newline, "log.jsonl", "no event")
        previous = "0" * 64
        for seq, line in enumerate(whole.split(b"\n")):
            where = f"log.jsonl: line {seq + 1}"
            event = parse(line, where, 1 << 26)
            fits = isinstance(event, dict) and set(event) == {"seq", "prev", "kind", "body"}
            need(fits and isinstance(event["body"], dict), where, "not an event")
            need(type(event["seq"]) is int and event["seq"] == seq, where, "removed, repeated or moved")
            need(event["prev"] == previous, where, "does not follow the line before it")
            self.lines.append(line)
            self.events.append(event)
            previous = sha(line)
        need(not torn, "log.jsonl", f"{len(torn)} bytes of an unfinished event at the end")

    def check_order(self) -> None:
        """2: the one legal order."""
        before, deployed = None, False
        for event in self.events:
            kind = event["kind"]
            allowed = (ORDER_DEPLOYED if deployed else ORDER).get(before, ())
            need(
                kind in allowed,
                f"log.jsonl: event {event['seq']}",
                f"{kind!r} may not come behind {before!r}",
            )
            deployed = kind == "deploy.opened" or (deployed and kind not in ("alarm", "deploy.closed"))
            before = kind

    def check_mark(self) -> None:
        """2: the mark beside the log."""
        where = "checkpoint.json"
        need(where in self.files, where, "missing")
        mark = parse(self.files[where].read_bytes(), where)
        need(isinstance(mark, dict) and set(mark) == {"events", "head"}, where, "not a mark")
        need(
            mark["events"] == len(self.events),
            where,
            f"notes {mark['events']} events, the log has {len(self.events)}",
        )
        need(mark["head"] == sha(self.lines[-1]), where, "notes another last event")

    def check_growth(self) -> None:
        """7: what was known before is the beginning of this log."""
        if self.known is None:
            return
        origin, size, top = self.known
        need(origin == self.origin, "log.jsonl", "another run than the known checkpoint's")
        need(0 < size <= len(self.lines), "log.jsonl", f"the known checkpoint counted {size} events")
        need(not self.exact or size == len(self.lines), "log.jsonl", f"grew beyond the known {size} events")
        need(root(self.lines[:size]) == top, "log.jsonl", "history before the known checkpoint was rewritten")

    @property
    def origin(self) -> str:
        """The name of this log in checkpoints."""
        return f"audit-first-vapo/run/{sha(self.lines[0])}"

    def check_references(self) -> None:
        """3: every file that an event names is there and is what was named."""
        for event in self.events:
            for name in references(event["body"]):
                need(
                    SEGMENT.fullmatch(name), f"log.jsonl: event {event['seq']}", "a reference of another form"
                )
                need(name in self.files, name, f"missing, though event {event['seq']} refers to it")
                need(digest(self.files[name]) == name[9:73], name, f"not what event {event['seq']} refers to")

    def check_strangers(self) -> None:
        """Nothing else is there."""
        known = {"log.jsonl", "checkpoint.json", "telemetry.jsonl"}
        known.update(name for event in self.events for name in references(event["body"]))
        outcomes = [event for event in self.events if event["kind"] in OUTCOMES]
        known |= {"certificate.json"} if outcomes else set()
        known |= {"checkpoint.note"} if any(event["body"]["signer"] for event in outcomes) else set()
        for name in self.files:
            need(name in known, name, "does not belong to the run")
        for name in known - {"telemetry.jsonl"}:
            need(name in self.files, name, "missing")

    def segment(self, ref: Json, suffix: str, where: str) -> Path:
        """The file of a segment of a kind."""
        fits = isinstance(ref, dict) and set(ref) == {"sha256", "suffix"} and ref["suffix"] == suffix
        need(fits, where, f"a reference to {suffix} is missing")
        return self.files[f"segments/{ref['sha256']}.{suffix}"]

    # 4 Events

    def check_events(self) -> None:
        """4: what events say of each other."""
        self.stages: list[dict[str, Event]] = []
        at = 0
        while at < len(self.events):
            end = next((e["seq"] for e in self.events[at + 1 :] if e["kind"] in OPENINGS), len(self.events))
            self._stage(self.events[at:end])
            at = end

    def _stage(self, events: list[Event]) -> None:
        opening = events[0]
        stage: dict[str, Any] = {"opening": opening}
        self.stages.append(stage)
        self._opening(opening)
        deployed = next((i for i, e in enumerate(events) if e["kind"] == "deploy.opened"), len(events))
        self._chunks(events[:deployed], opening)
        for event in events[:deployed]:
            where, body = f"log.jsonl: event {event['seq']}", event["body"]
            if event["kind"] == "family.frozen":
                stage["family"] = event
                self._family(event)
            elif event["kind"] == "trace.frozen":
                stage["frozen"] = event
                calls = sum(e["body"]["count"] for e in events[:deployed] if e["kind"] == "appeals.requested")
                need(body["records"] == opening["body"]["records"], where, "another number of records")
                need(
                    body["bill"]["secondary_calls"] == calls,
                    where,
                    "a bill of other calls than were requested",
                )
                self.segment(body["needed"], "parquet", where)
            elif event["kind"] == "labels.joined":
                stage["labels"] = event
                self._labels(event, stage["frozen"]["seq"])
            elif event["kind"] in OUTCOMES:
                stage["outcome"] = event
        self._deployments(events[deployed:], stage)

    def _opening(self, event: Event) -> None:
        where, body, number = f"log.jsonl: event {event['seq']}", event["body"], len(self.stages)
        self.protocol = self.stages[0]["opening"]["body"]["protocol"]
        need(body["stage"] == number, where, f"not stage {number}")
        need(event["seq"] or body["format"] == 1, where, "another format than 1")
        extends = body.get("extends")
        if extends is None:
            paid = sum("extends" not in stage["opening"]["body"] for stage in self.stages)
            total, stages = self.protocol["delta"], self.protocol["stages"]
            share = total * 6 / (math.pi * paid) ** 2 if stages == "open" else total / stages
            need(stages == "open" or paid <= stages, where, "a stage more than was declared")
        else:
            need(extends == number - 1 and number > 1, where, "extends another stage than the one before")
            need(self.stages[-2]["outcome"]["kind"] == REFUSED, where, "extends a stage that was not refused")
            need(
                self.protocol["claim"] == "sequential",
                where,
                "extends a stage under another claim than sequential",
            )
            share = self.stages[-2]["opening"]["body"]["delta"]
        need(close(body["delta"], share), where, f"delta is {body['delta']}, expected {share}")
        for role in ("design", "certification"):
            for ref in body["observations"][role]:
                self.segment(ref, "parquet", where)
        need(body["observations"]["certification"], where, "no observations")

    def _family(self, event: Event) -> None:
        where, body = f"log.jsonl: event {event['seq']}", event["body"]
        family = parse(self.segment(body["family"], "json", where).read_bytes(), where)
        planned = parse(self.segment(body["planned"], "json", where).read_bytes(), where)
        parse(self.segment(body["score"], "json", where).read_bytes(), where)
        need(body["family_digest"] == body["family"]["sha256"], where, "another family digest")
        size = body["candidates"]
        lengths = {len(family["candidates"]), len(planned["coverage"]), len(planned["calls"])}
        need(lengths == {size} and size > 0, where, "not as many candidates as it says")
        listed = [index for chain in family["chains"] for index in chain]
        need(all(type(i) is int and 0 <= i < size for i in listed), where, "a chain of unknown candidates")
        need(len(set(listed)) == len(listed) and all(family["chains"]), where, "a candidate in two chains")
        weights = family.get("weights", [1 / size] * size)
        fits = len(weights) == size and all(weight > 0 for weight in weights)
        need(fits and math.fsum(weights) <= 1 + 1e-12, where, "weights that are not shares of one")

    def _chunks(self, events: list[Event], opening: Event) -> None:
        first, chunk, asked = 0, 0, None
        for event in events:
            where, body, kind = f"log.jsonl: event {event['seq']}", event["body"], event["kind"]
            if kind not in ("appeals.requested", "appeals.settled", "actions.recorded"):
                continue
            need(type(body["rows"]) is int and body["rows"] > 0, where, "a chunk without rows")
            need((body["chunk"], body["first"]) == (chunk, first), where, "a chunk out of its place")
            asked = self._paid(event, asked, ("chunk", "first", "rows"))
            if kind == "actions.recorded":
                self.segment(body["codes"], "parquet", where)
                self.segment(body["calls"], "parquet", where)
                first, chunk = first + body["rows"], chunk + 1
        frozen = any(event["kind"] == "trace.frozen" for event in events)
        where = f"log.jsonl: event {opening['seq']}"
        need(
            not frozen or first == opening["body"]["records"],
            where,
            "chunks that do not add up to its records",
        )

    def _paid(self, event: Event, asked: Event | None, same: tuple[str, ...]) -> Event | None:
        """Requests, settlements and actions of one piece of work agree; returns the request that is open."""
        where, body, kind = f"log.jsonl: event {event['seq']}", event["body"], event["kind"]
        if kind == "appeals.requested":
            need(type(body["count"]) is int and body["count"] > 0, where, "a request of nothing")
            self.segment(body["requests"], "parquet", where)
            return event
        if asked is not None:
            need(
                all(body[name] == asked["body"][name] for name in same),
                where,
                "other work than was requested",
            )
        if kind == "appeals.settled":
            assert asked is not None
            need(body["count"] == asked["body"]["count"], where, "settles another number of calls")
            self.segment(body["answers"], "parquet", where)
            return asked
        return None

    def _tree(self, tree: Json, where: str) -> int:
        fits = isinstance(tree, dict) and set(tree) == {"root", "rows"} and HEX.fullmatch(tree["root"])
        need(fits and type(tree["rows"]) is int and tree["rows"] >= 0, where, "a tree of another form")
        return int(tree["rows"])

    def _labels(self, event: Event, frozen: int) -> None:
        where, body = f"log.jsonl: event {event['seq']}", event["body"]
        top = root(self.lines[: frozen + 1]).hex()
        need(body["trace_root"] == top, where, "labels joined to another trace than the one frozen before")
        need(self._tree(body["labels_tree"], where) == body["joined"], where, "another number of labels")
        data, name = (
            self.segment(body["labels"], "parquet", where).read_bytes(),
            f"segments/{body['labels']['sha256']}.parquet",
        )
        size = int.from_bytes(data[-8:-4], "little")
        need(data[-4:] == b"PAR1" and size <= len(data) - 12, name, "not Parquet")
        footer, key = data[-8 - size : -8], b"\x18\x0fvapo.trace_root\x18"
        need(footer.count(key) == footer.count(key + b"\x40" + top.encode() + b"\0") == 1, name,
             "does not carry the root of the trace that was frozen before it")  # fmt: skip
        opening = self.stages[-1]["opening"]["body"]
        need(
            opening.get("sealed_labels") in (None, body.get("sealed_labels")),
            where,
            "labels from elsewhere than the sealed file that the stage declared",
        )
        if body["missing"]:
            need(
                self.protocol["missing_label"] == "harmful",
                where,
                "labels are missing, and that was not declared",
            )
        need(body["joined"] <= opening["records"], where, "more labels than records")

    def _deployments(self, events: list[Event], stage: dict[str, Event]) -> None:
        batch, asked = 0, None
        for event in events:
            where, body, kind = f"log.jsonl: event {event['seq']}", event["body"], event["kind"]
            if kind == "deploy.opened":
                digest = stage["outcome"]["body"]["envelope"]["sha256"]
                need(body["certificate"] == digest, where, "deploys another certificate")
                need(body["check_rate"] == self.protocol["monitor_rate"], where, "another rate of checks")
                batch = 0
            elif kind in ("appeals.requested", "appeals.settled", "actions.recorded"):
                need(body["batch"] == batch, where, f"not batch {batch}")
                for ref in body["observations"]:
                    self.segment(ref, "parquet", where)
                open_request, asked = asked, self._paid(event, asked, ("batch", "observations", "windowed"))
                if kind == "actions.recorded":
                    calls = 0 if open_request is None else open_request["body"]["count"]
                    need(body["calls"] == calls, where, "other calls than were requested")
                    need(
                        0 <= body["admitted"] <= self._tree(body["rows_tree"], where),
                        where,
                        "too many admitted",
                    )
                    shut = stage["outcome"]["kind"] == REFUSED or bool(body["closed"])
                    need(
                        not shut or (body["admitted"] == 0 and body["closed"]),
                        where,
                        "a closed gate let records in",
                    )
                    self.segment(body["rows"], "parquet", where)
                    self.segment(body["windows"], "parquet", where)
                    batch += 1
            elif kind == "spotcheck.joined":
                self.segment(body["labels"], "parquet", where)
                need(
                    self._tree(body["labels_tree"], where) == body["count"] > 0,
                    where,
                    "another number of labels",
                )
                need(isinstance(body["picked"], bool), where, "neither picked nor drawn")
            elif kind == "alarm":
                need(body["drawn"] or body["picked"], where, "an alarm that nothing raised")
            else:
                need(isinstance(body["reason"], str), where, "no reason")

    # 7, 8 Signatures and certificates

    def check_note(self) -> None:
        """7: the signed checkpoint."""
        signed = [event for event in self.events if event["kind"] in OUTCOMES and event["body"]["signer"]]
        if not signed:
            return
        where, event = "checkpoint.note", signed[-1]
        name, key_id, public = read_key(event["body"]["signer"], where)
        text, lines = read_note(self.files[where].read_bytes(), where)
        size = event["seq"] + 1
        expected = f"{self.origin}\n{size}\n{base64.b64encode(root(self.lines[:size])).decode()}\n"
        need(text == expected, where, f"signed for another history than the log's first {size} events")
        need(len(lines) == 1 and lines[0][0] == name and lines[0][1][:4] == key_id, where, "another signer")
        need(good(public, lines[0][1][4:], text.encode()), where, "the signature is not good")

    def check_certificates(self) -> None:
        """8: every certificate, and the file beside the log."""
        outcomes = [stage["outcome"] for stage in self.stages if "outcome" in stage]
        if outcomes:
            name = f"segments/{outcomes[-1]['body']['envelope']['sha256']}.json"
            need(
                self.files["certificate.json"].read_bytes() == self.files[name].read_bytes(),
                "certificate.json",
                "not the latest certificate",
            )
        for number, stage in enumerate(self.stages):
            if "outcome" in stage:
                last = stage["outcome"] is outcomes[-1]
                self._certificate(number, stage, self.keys if last else [])
        need(
            outcomes or not self.keys,
            "certificate.json",
            "there is no certificate that a key could have signed",
        )

    def _certificate(self, number: int, stage: dict[str, Event], keys: list[str]) -> None:
        event, opening = stage["outcome"], stage["opening"]["body"]
        body, where = event["body"], f"certificate of event {event['seq']}"
        envelope = parse(self.segment(body["envelope"], "json", where).read_bytes(), where, 1 << 22)
        need(set(envelope) == {"payload", "payloadType", "signatures"}, where, "not an envelope")
        need(envelope["payloadType"] == "application/vnd.in-toto+json", where, "another type of payload")
        payload = unbase64(envelope["payload"], where)
        kind = envelope["payloadType"].encode()
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)
        signatures = {one["keyid"]: unbase64(one["sig"], where, 64) for one in envelope["signatures"]}
        need(
            all(set(one) == {"keyid", "sig"} for one in envelope["signatures"]),
            where,
            "a signature of another form",
        )
        wanted = [] if body["signer"] is None else [read_key(body["signer"], where)[2]]
        need(not wanted or signs(body["signer"]), where, "a signer that cosigns")
        need(
            set(signatures) == {sha(public) for public in wanted},
            where,
            "not signed by its event's signer alone",
        )
        need(len(envelope["signatures"]) == len(wanted), where, "a signature twice")
        need(
            all(good(key, signatures[sha(key)], message) for key in wanted),
            where,
            "its signature is not good",
        )
        trusted = {sha(read_key(key, where)[2]) for key in keys}
        need(not keys or trusted & set(signatures), where, "not signed by a trusted key")
        statement = parse(payload, where, 1 << 22)
        need(set(statement) == {"_type", "subject", "predicateType", "predicate"}, where, "not a statement")
        need(statement["_type"] == "https://in-toto.io/Statement/v1", where, "another type of statement")
        need(statement["predicateType"] == "urn:audit-first-vapo:certificate:v1", where, "another predicate")
        joined, said = stage["labels"]["body"], statement["predicate"]
        digests = {"trace": joined["trace_root"], "labels": joined["labels"]["sha256"]}
        subjects = [{"name": name, "digest": {"sha256": digest}} for name, digest in digests.items()]
        need(statement["subject"] == subjects, where, "about another trace or other labels")
        self._predicate(said, number, stage, where)
        status = "certified" if event["kind"] == ISSUED else "refused"
        need(said["status"] == body["status"] == status, where, f"does not say {status!r} as its event does")
        need(said["selected"] == body["selected"], where, "selects another policy than its event")
        need(
            (said["selected"] is None) == (status == "refused"),
            where,
            "a policy that does not fit the status",
        )
        need(said["candidates_segment"] == body["candidates"], where, "another table of candidates")
        need(said["candidates"] == f"segments/{body['candidates']['sha256']}.parquet", where, "another path")
        self.segment(body["candidates"], "parquet", where)
        if said["selected"] is None:
            need(
                body["rows"] == [] and body["rows_tree"] is None,
                where,
                "rows of a policy, and none was selected",
            )
        else:
            need(body["rows"], where, "no rows of the selected policy")
            for ref in body["rows"]:
                self.segment(ref, "parquet", where)
            need(self._tree(body["rows_tree"], where) == opening["records"], where, "rows of another number")
        arithmetic(self, said, stage, number, where)

    def _predicate(self, said: Json, number: int, stage: dict[str, Event], where: str) -> None:
        opening, joined = stage["opening"]["body"], stage["labels"]["body"]
        spent = sum(
            one["opening"]["body"]["delta"]
            for one in self.stages[: number + 1]
            if "labels" in one and "extends" not in one["opening"]["body"]
        )
        told = {
            **{name: self.protocol[name] for name in ("claim", "rho", "c_min", "b_max")},
            "delta_total": self.protocol["delta"],
            **{name: opening[name] for name in ("delta", "stage", "sources")},
            "extends": opening.get("extends"),
            "trace_root": joined["trace_root"],
            "labels_digest": joined["labels"]["sha256"],
            "family_digest": stage["family"]["body"]["family_digest"],
            "bill": stage["frozen"]["body"]["bill"],
            "labels": {
                name: joined[name] for name in ("joined", "ignored_design", "missing", "suspected_leaks")
            },
        }
        for name, value in told.items():
            need(said[name] == value, where, f"says another '{name}' than the log")
        need(close(said["delta_spent"], spent), where, "says that another delta was spent")


def references(value: Json) -> Iterator[str]:
    """The files that a body refers to."""
    if isinstance(value, dict):
        if set(value) == {"sha256", "suffix"}:
            yield f"segments/{value['sha256']}.{value['suffix']}"
        else:
            for inner in value.values():
                yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


# 9 Arithmetic


def close(left: float, right: float, room: float = 1e-9) -> bool:
    """Whether two numbers agree but for rounding."""
    return abs(left - right) <= room * max(1.0, abs(left), abs(right))


def arithmetic(run: Run, said: Json, stage: dict[str, Event], number: int, where: str) -> None:
    """Rederive what follows from the counts."""
    family = parse(run.segment(stage["family"]["body"]["family"], "json", where).read_bytes(), where)
    shown = said["nearest"] if said["selected"] is None else said["selected"]
    index = said["nearest"]["index"]
    need(type(index) is int and 0 <= index < len(family["candidates"]), where, "an unknown candidate")
    member = family["candidates"][index]
    need(said["selected"] in (None, {"index": index, **member}), where, "a policy that is not in the family")
    need({n: v for n, v in said["nearest"].items() if n not in ("failing", "margin")} == {"index": index, **member},
         where, "a nearest policy that is not in the family")  # fmt: skip
    need(shown["index"] == index, where, "selected and nearest are different")
    counts = said["counts"]
    n, k, h, a = (counts[name] for name in ("n", "admitted", "harmful", "appealed"))
    chain = [stage]
    while "extends" in chain[-1]["opening"]["body"]:
        chain.append(run.stages[chain[-1]["opening"]["body"]["extends"] - 1])
    need(all(type(counts[name]) is int for name in counts), where, "counts that are not whole numbers")
    need(
        n == sum(part["opening"]["body"]["records"] for part in chain),
        where,
        "counts of another number of records",
    )
    need(0 <= h <= k <= n and 0 <= a <= n and 0 < counts["groups"] <= n, where, "counts that cannot be")
    need(said["void"] == ([] if len(chain) == 1 else ["hoeffding", "frozen"]), where, "other claims are void")
    size, claims = len(family["candidates"]), ("hoeffding", "sequential", "frozen")
    need(
        set(said["bounds"]) == set(said["feasible"]) == set(said["units"]) == set(claims),
        where,
        "other claims",
    )
    for claim in claims:
        bounds, at = said["bounds"][claim], f"{where}: {claim}"
        need(
            set(bounds) == set(LIMITS) and said["units"][claim] in ("record", "group"),
            at,
            "other limits or units",
        )
        if claim in said["void"]:
            need(
                set(bounds.values()) == {None} and said["feasible"][claim] is False,
                at,
                "void, and has bounds",
            )
            continue
        fits = BOUNDS[claim](run, said, stage, chain, family, index, at)
        need(isinstance(said["feasible"][claim], bool), at, "neither feasible nor not")
        need(
            said["feasible"][claim] or not fits,
            at,
            "the shown candidate is feasible, and the claim says that none is",
        )
        need(
            size > 1 or said["feasible"][claim] == fits, at, "the one candidate is not as feasible as it says"
        )
        radius = bounds["excess_upper"] - (h - said["rho"] * k) / n
        need(close(bounds["radius"], radius), at, "another radius than its excess leaves")
        if claim == said["claim"]:
            certified = said["status"] == "certified"
            need(
                fits == certified == said["feasible"][claim], at, "the status does not follow from its bounds"
            )
    need((said["reach"] == "stage") == (said["reach_detail"]["case"] == "stage"), where, "two reaches")
    need(
        run.protocol["reach"] == "population" or said["reach"] == "stage",
        where,
        "reaches further than declared",
    )


def _averages(said: Json, bounds: Json, where: str) -> bool:
    excess, coverage = bounds["excess_upper"], bounds["coverage_lower"]
    rho = said["rho"]
    risk = rho + excess if excess <= 0 else rho + excess / coverage if coverage > 0 else 1.0
    need(
        close(bounds["risk_upper"], min(max(risk, 0.0), 1.0)),
        where,
        "a risk that does not follow from its excess",
    )
    return bool(excess <= 0 and coverage >= said["c_min"] and bounds["calls_upper"] <= said["b_max"])


def hoeffding(
    run: Run, said: Json, stage: Json, chain: list[Json], family: Json, index: int, where: str
) -> bool:
    """9: one radius for every average."""
    del run, stage, chain, index
    counts, bounds = said["counts"], said["bounds"]["hoeffding"]
    n, k, h, a = (counts[name] for name in ("n", "admitted", "harmful", "appealed"))
    radius = math.sqrt(math.log(3 * len(family["candidates"]) / said["delta"]) / (2 * n))
    expected = {
        "radius": radius,
        "excess_upper": (h - said["rho"] * k) / n + radius,
        "coverage_lower": k / n - radius,
        "calls_upper": a / n + radius,
    }
    for name, value in expected.items():
        need(close(bounds[name], value), where, f"'{name}' is {bounds[name]}, expected {value}")
    return _averages(said, bounds, where)


Counted = list[tuple[float, int]]


def evidence(values: Counted, total: int, scale: float, planned: float, mean: float) -> float:
    """Logarithm of E(u)."""

    def height(eps: float) -> float:
        found = -total * math.log1p(-scale * eps * mean)
        for value, count in values:
            gain = 1.0 - scale * eps * value
            if count and gain <= 0.0:
                return -math.inf
            found += count * math.log1p(-scale * eps * value) if count else 0.0
        return found

    # One peak, whatever the mean: found by the golden section, then integrated as far as it matters.
    low, high, part = 0.0, 1.0, (math.sqrt(5) - 1) / 2
    left, right = high - part * (high - low), low + part * (high - low)
    up, down = height(left), height(right)
    for _ in range(100):
        if up >= down:
            high, right, down = right, left, up
            left = high - part * (high - low)
            up = height(left)
        else:
            low, left, up = left, right, down
            right = low + part * (high - low)
            down = height(right)
    peak = (low + high) / 2
    top = max(height(peak), height(0.0), height(1.0))
    parts = []
    for sign, room in ((-1.0, peak), (1.0, 1.0 - peak)):
        width = room
        while width > 1e-18 and top - height(peak + sign * width / 2) > 46:
            width /= 2
        parts.append(_simpson(lambda x, s=sign: math.exp(height(peak + s * x) - top), width))  # type: ignore[misc]
    spread = top + math.log(sum(parts)) if sum(parts) > 0 else -math.inf
    one, two = math.log(0.9) + height(planned), math.log(0.1) + spread
    most = max(one, two)
    return most + math.log(math.exp(one - most) + math.exp(two - most))


def _simpson(function: Callable[[float], float], width: float, steps: int = 1500) -> float:
    # Squares crowd the points at the peak, where everything happens.
    total = 0.0
    for i in range(2 * steps + 1):
        t = i / (2 * steps)
        weight = 1 if i in (0, 2 * steps) else 4 if i % 2 else 2
        total += weight * function(width * t * t) * 2 * t
    return total * width / (6 * steps)


def _limit_is(stated: float, values: Counted, total: int, scale: float, planned: float, alpha: float) -> bool:
    """Whether a stated limit is the least mean that the evidence rejects."""
    level, ceiling, step = -math.log(alpha), (1 - 1e-9) / scale, 2e-7
    if stated >= ceiling:
        return evidence(values, total, scale, planned, ceiling) <= level + 1e-6
    above = evidence(values, total, scale, planned, min(stated + step, ceiling))
    floor = min(value for value, _ in values)
    below = evidence(values, total, scale, planned, stated - step) if stated - step > floor else -math.inf
    return below <= level <= above


def gap(x: float) -> float:
    """(1 + x) log(1 + x) - x."""
    if abs(x) < 1e-3:
        return math.fsum((-x) ** j / (j * (j - 1)) for j in range(2, 9))
    return (1 + x) * math.log1p(x) - x if x > -1 else 1.0


def _bisect(enough: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(110):
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def risk_bet(planned: float, rho: float, level: float) -> float:
    """The planned bet on harm."""
    if -planned * math.log1p(-rho) <= level:
        return 1.0
    return _bisect(lambda e: planned * (rho * gap(-e) + (1 - rho) * gap(rho * e / (1 - rho))) >= level)


def mean_bet(rate: float, total: float, level: float) -> float:
    """The stake of a planned rate."""
    rate = min(max(rate, 0.5 / total), 1 - 0.5 / total)

    def enough(eps: float) -> bool:
        u = min(rate / (1 - eps * (1 - rate)), 1 - 1e-9)
        kl = u * gap((rate - u) / u) + (1 - u) * gap((u - rate) / (1 - u))
        return total * kl >= level

    return min(_bisect(enough), 1 - 1e-9)


def sequential(
    run: Run, said: Json, stage: Json, chain: list[Json], family: Json, index: int, where: str
) -> bool:
    """9: inverted mixtures of bets."""
    counts, bounds = said["counts"], said["bounds"]["sequential"]
    fits = _averages(said, bounds, where)
    n, k, h, a = (counts[name] for name in ("n", "admitted", "harmful", "appealed"))
    by_group = said["units"]["sequential"] == "group"
    if by_group and counts["groups"] < n:
        run.notes.append(f"{where}: bounds read by group are not rederived")
        return fits
    cap = stage["family"]["body"]["group_cap"] if by_group else 1
    planned = parse(run.segment(stage["family"]["body"]["planned"], "json", where).read_bytes(), where)
    coverage, calls = planned["coverage"][index], planned["calls"][index]
    first, rho = chain[-1]["opening"]["body"]["records"], said["rho"]
    weight = family["weights"][index] if "weights" in family else 1 / len(family["candidates"])
    levels = [said["delta"] * share * weight for share in run.protocol["delta_split"]]
    logs = [-math.log(0.9 * level) for level in levels]
    bet = risk_bet(first * coverage / cap, rho, logs[0])
    harm = [((1 - rho) / cap, h), (-rho / cap, k - h), (0.0, n - k)]
    scale = 1 / (1 - rho)
    stated = bounds["excess_upper"] / cap
    rejected = evidence(harm, n, scale, bet, 0.0) + math.log(levels[0])
    if abs(rejected) > 1e-6:
        need(
            (stated <= 0) == (rejected >= 0),
            where,
            "'excess_upper' is on the other side of 0 than its evidence",
        )
    need(
        abs(stated) < 2e-7 or _limit_is(stated, harm, n, scale, bet, levels[0]),
        where,
        "another 'excess_upper'",
    )
    stake = mean_bet(1 - min(coverage / cap, 1.0), n if by_group else first, logs[1])
    stated = 1 - bounds["coverage_lower"] / cap
    missed = [(1 - 1 / cap, k), (1.0, n - k)] if cap > 1 else [(1.0, n - k), (0.0, k)]
    capped = bounds["coverage_lower"] == 1
    need(capped or _limit_is(stated, missed, n, 1.0, stake, levels[1]), where, "another 'coverage_lower'")
    stake = mean_bet(calls, first, logs[2])
    fine = _limit_is(bounds["calls_upper"], [(1.0, a), (0.0, n - a)], n, 1.0, stake, levels[2])
    need(fine, where, "another 'calls_upper'")
    return fits


def binomial_tail(k: int, h: int, rho: float) -> float:
    """P(Bin(k, rho) <= h)."""
    if rho <= 0 or h >= k:
        return 1.0
    if rho >= 1:
        return 0.0
    term = h
    logs = []
    while term >= 0:
        size = math.lgamma(k + 1) - math.lgamma(term + 1) - math.lgamma(k - term + 1)
        logs.append(size + term * math.log(rho) + (k - term) * math.log1p(-rho))
        if logs[-1] < max(logs) - 60 and term < k * rho:
            break
        term -= 1
    most = max(logs)
    return min(1.0, math.exp(most) * math.fsum(math.exp(value - most) for value in logs))


def frozen(
    run: Run, said: Json, stage: Json, chain: list[Json], family: Json, index: int, where: str
) -> bool:
    """9: exact tests, handed down chains."""
    del stage, chain, index
    counts, bounds, rho = said["counts"], said["bounds"]["frozen"], said["rho"]
    n, k, h, a = (counts[name] for name in ("n", "admitted", "harmful", "appealed"))
    risk = bounds["risk_upper"]
    expected = {"coverage_lower": k / n, "calls_upper": a / n, "excess_upper": k / n * (risk - rho)}
    for name, value in expected.items():
        need(close(bounds[name], value), where, f"'{name}' is {bounds[name]}, expected {value}")
    need(risk == 1 or 0 <= risk <= rho, where, "a risk between rho and 1")
    passed = bool(risk <= rho)
    if said["units"]["frozen"] != "record" or (counts["groups"] < n and run.protocol["reach"] != "stage"):
        run.notes.append(f"{where}: tests by group are not rederived")
        return passed
    alpha = said["delta"] / len(family["chains"])
    tail = binomial_tail(k, h, rho)
    meets = k >= 1 and k / n >= said["c_min"] and a / n <= said["b_max"] and (h == 0 or h <= k * rho - 1)
    sure = abs(tail - alpha) > 1e-7 * alpha
    if sure:
        need(not passed or (meets and tail <= alpha), where, "passed, and its counts do not allow it")
        alone = len(family["candidates"]) == 1 and family["chains"] == [[0]]
        need(not alone or passed == (meets and tail <= alpha), where, "its counts pass, and it did not")
    if passed:
        limit = 1.0 if h >= k else _bisect(lambda p: binomial_tail(k, h, p) <= alpha)
        limit = min(rho, max(limit, (h + 1) / k if h else 0.0))
        need(risk >= limit - 1e-7, where, "a risk below what its own counts allow")
        need(
            len(family["candidates"]) > 1 or abs(risk - limit) <= 1e-7,
            where,
            f"risk is {risk}, expected {limit}",
        )
    return passed


LIMITS = ("excess_upper", "risk_upper", "coverage_lower", "calls_upper", "radius")
BOUNDS = {"hoeffding": hoeffding, "sequential": sequential, "frozen": frozen}


# 10 Proof files


def check_proof(data: bytes, keys: list[str], known: Point | None) -> dict[str, Json]:
    """Check a proof file and say what it proves."""
    where = "proof"
    proof = parse(data, where, 1 << 22)
    need(isinstance(proof, dict), where, "not an object")
    note = proof["checkpoint"]
    if known is not None:
        text = read_note(note.encode(), where)[0] if "\n\n" in note else note
        point = read_checkpoint(text, where)
        need(point == known, where, "against another checkpoint than the known one")
    else:
        point = signed_checkpoint(note.encode(), keys, where)
    origin, size, top = point
    found: dict[str, Json] = {"origin": origin, "size": size}
    if proof["format"] == "audit-first-vapo/growth/v1":
        need(set(proof) == {"format", "checkpoint", "old", "path"}, where, "other fields")
        before = read_checkpoint(proof["old"], where)
        need(before[0] == origin, where, "two different runs")
        path = [unbase64(one, where, 32) for one in proof["path"]]
        consistent(before[1], size, before[2], top, path, where)
        return {**found, "old": before[1]}
    need(proof["format"] == "audit-first-vapo/proof/v1", where, "another format")
    need(set(proof) - {"rows"} == {"format", "checkpoint", "event"}, where, "other fields")
    part = proof["event"]
    need(
        set(part) == {"index", "line", "path"} and type(part["index"]) is int,
        where,
        "an event of another form",
    )
    line = part["line"].encode()
    included(leaf(line), part["index"], size, [unbase64(one, where, 32) for one in part["path"]], top, where)
    event = json.loads(line, object_pairs_hook=_once, parse_constant=_not_json)
    need(
        set(event) == {"seq", "prev", "kind", "body"} and event["seq"] == part["index"],
        where,
        "another event",
    )
    found["event"] = event
    if "rows" in proof:
        found["rows"] = _rows(proof["rows"], event["body"], where)
    return found


def _rows(rows: Json, body: Json, where: str) -> list[Json]:
    need(
        set(rows) == {"at", "index", "block", "path"} and type(rows["index"]) is int,
        where,
        "rows of another form",
    )
    tree = body
    for key in rows["at"]:
        tree = tree[key]
    need(isinstance(tree, dict) and set(tree) == {"root", "rows"}, where, "the event states no tree there")
    count, index = tree["rows"], rows["index"]
    path = [unbase64(one, where, 32) for one in rows["path"]]
    included(leaf(rows["block"].encode()), index, -(-count // 16), path, bytes.fromhex(tree["root"]), where)
    lines = rows["block"].encode().split(b"\n")
    need(
        lines.pop() == b"" and len(lines) == min(16, count - 16 * index),
        where,
        "a block of another number of rows",
    )
    found = [parse(line, where) for line in lines]
    need(all(isinstance(row, dict) for row in found), where, "a row that is not an object")
    return found


# The command


def read_keys(path: str) -> list[str]:
    """Public keys, one a line."""
    lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").split("\n")]
    return [line for line in lines if line and not line.startswith("#")]


def read_known(path: str, keys: list[str]) -> Point:
    """A checkpoint that was kept; a signed one must be signed by a trusted key, if there is one."""
    data = Path(path).read_bytes()
    if b"\n\n" in data and keys:
        return signed_checkpoint(data, keys, path)
    text = read_note(data, path)[0] if b"\n\n" in data else data.decode()
    return read_checkpoint(text, path)


def check_run(
    path: str, keys: Sequence[str] = (), known: Point | None = None, *, exact: bool = False
) -> tuple[Wrong | None, list[str], int]:
    """Check a run folder: what is wrong first (or None), what was not checked, and how many events there are."""
    run = Run(path, list(keys), known, exact=exact)
    try:
        run.check()
    except Wrong as error:
        return error, run.notes, len(run.events)
    return None, run.notes, len(run.events)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description="Check a run folder or a proof file by docs/format.md alone."
    )
    parser.add_argument("run", nargs="?", help="the run folder")
    parser.add_argument("--proof", metavar="FILE", help="check a proof file instead")
    parser.add_argument("--key", metavar="PUBLIC", help="file of public keys that are trusted")
    parser.add_argument("--checkpoint", metavar="OLD", help="a checkpoint that was kept elsewhere")
    parser.add_argument("--exact", action="store_true", help="the run must not even have grown since OLD")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args(arguments)
    if (given.run is None) == (given.proof is None):
        parser.error("a run folder or --proof FILE")
    if given.proof is not None and (given.key is None) == (given.checkpoint is None):
        parser.error("--proof needs either --key or --checkpoint")
    if given.exact and (given.checkpoint is None or given.proof is not None):
        parser.error("--exact needs a run and --checkpoint")
    answer: dict[str, Json] = {"ok": True}
    try:
        keys = [] if given.key is None else read_keys(given.key)
        known = None if given.checkpoint is None else read_known(given.checkpoint, keys)
        if given.proof is not None:
            with Path(given.proof).open("rb") as stream:
                answer |= check_proof(stream.read((1 << 22) + 1), keys, known)
            answer["notes"] = [] if SIGNATURES or not keys else [SKIPPED]
        else:
            found, notes, events = check_run(given.run, keys, known, exact=given.exact)
            answer |= {"events": events, "notes": notes}
            if found is not None:
                raise found
    except Wrong as error:
        answer |= {"ok": False, "where": error.where, "what": error.what}
    except MALFORMED as error:
        answer |= {
            "ok": False,
            "where": "proof",
            "what": f"not of the form that it must have ({error!r})"[:300],
        }
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if given.json:
        print(json.dumps(answer))
    elif answer["ok"]:
        print("OK", *(f"({note})" for note in answer.get("notes", ())))
    else:
        print(f"WRONG {answer['where']}: {answer['what']}")
    return 0 if answer["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
