"""Checking a training run: its chained ledger, every file beside it, and the gate's run folder within it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo._internal.strict import strict_json
from vapo.errors import IntegrityError, VapoError
from vapo.ledger import Ledger, verify_run
from vapo.ledger.verify import Finding, Report
from vapo.train.config import config_digest
from vapo.train.resources import Entry, read_chain
from vapo.train.resources_rows import flat
from vapo.train.runner_files import CONFIG, FILES, GATE, LEDGER, METRICS, RESULT, TEST

__all__ = ["verify_training"]

_HISTORY = "what this ledger says cannot be relied on from there on"
_REPORTED = "what was reported of the run is not what the run did"
_ORDER = ("run.declared", "regime.opened", "update.done", "evaluation.done", "test.opened", "run.closed")


def verify_training(path: str | Path) -> Report:
    """Check a training run byte by byte, without doing any of it again.

    The ledger's chain, the order of updates, the configuration, metrics and test rows that the ledger speaks of, the
    gate's own run with every certificate that updates name, and that nothing else is there. Weights and the present
    regime are what goes on is made from; they prove nothing and are not looked into.

    Args:
        path: The run's folder.
    """
    folder = Path(path)
    try:
        entries = read_chain(folder / LEDGER)
    except VapoError as error:
        finding = Finding(LEDGER, str(error).removeprefix(f"{LEDGER}: "), _HISTORY)
        return Report((finding,), 0, "", "")
    findings: list[Finding] = []
    for check in (_order, _config, _metrics, _test, _result, _gate, _strangers):
        try:
            findings += check(folder, entries)
        except (KeyError, TypeError, AttributeError, ValueError, OSError, VapoError) as error:
            where = check.__name__.strip("_")
            findings.append(Finding(LEDGER, f"the {where} cannot be checked: {error!r}"[:300], _HISTORY))
    last = entries[-1].kind if entries else ""
    head = entries[-1].line_digest if entries else ""
    return Report(tuple(findings), len(entries), last, head)


def _order(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    del folder
    if not entries or entries[0].kind != "run.declared":
        yield Finding(LEDGER, "does not begin with what the run is", _HISTORY)
        return
    updates, regimes = 0, 0
    for entry in entries[1:]:
        where = f"{LEDGER}: line {entry.seq + 1}"
        if entry.kind not in _ORDER[1:]:
            yield Finding(where, f"an entry of an unknown kind, {entry.kind!r}", _HISTORY)
        if entry.kind == "update.done":
            if entry.body["update"] != updates or entry.body["regime"] != regimes - 1:
                yield Finding(
                    where, f"update {entry.body['update']} stands where update {updates} belongs", _HISTORY
                )
            updates += 1
        elif entry.kind == "regime.opened":
            if entry.body["regime"] != regimes:
                yield Finding(
                    where, f"regime {entry.body['regime']} where regime {regimes} belongs", _HISTORY
                )
            regimes += 1
    tests = sum(entry.kind == "test.opened" for entry in entries)
    if tests > 1:
        yield Finding(LEDGER, f"the test set was opened {tests} times", "it was to be opened once")


def _config(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    config = strict_json((folder / CONFIG).read_bytes(), CONFIG)
    declared = entries[0].body
    named = (config["arm"], config["seed"]) == (declared["arm"], declared["seed"])
    if config_digest(config) != declared["config"] or not named:
        yield Finding(CONFIG, "not the configuration that the run declared", _REPORTED)


def metric_lines(entries: Sequence[Entry]) -> list[bytes]:
    """The lines of `metrics.jsonl`, which say again what the ledger says, as flat numbers."""
    lines, done = [], 0
    for entry in entries:
        body: dict[str, Any] = dict(entry.body)
        if entry.kind == "update.done":
            done = body["update"] + 1
            step, row = body["update"], body
        elif entry.kind == "evaluation.done":
            step, row = body["update"], {"held_out": body}
        elif entry.kind == "test.opened":
            step, row = done, {"test": body}
        else:
            continue
        lines.append(canonical_json({"step": step, **flat(row)}))
    return lines


def _metrics(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    said = (folder / METRICS).read_bytes()
    wanted = metric_lines(entries)
    for number, line in enumerate(said.split(b"\n")[:-1], 1):
        if number > len(wanted) or line != wanted[number - 1]:
            yield Finding(f"{METRICS}: line {number}", "not what the ledger says", _REPORTED)
            return
    if said.count(b"\n") < len(wanted) or not said.endswith(b"\n"):
        yield Finding(METRICS, "ends before the ledger does", _REPORTED)


def _test(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    opened = [entry for entry in entries if entry.kind == "test.opened"]
    there = (folder / TEST).is_file()
    if not opened:
        if there:
            yield Finding(TEST, "there, but the ledger never opened the test set", _REPORTED)
        return
    if not there:
        yield Finding(TEST, "missing, though the test set was opened", _REPORTED)
        return
    data = (folder / TEST).read_bytes()
    rows = [json.loads(line) for line in data.splitlines()]
    facts = opened[0].body
    if sha256_hex(data) != facts["rows"] or sum(row["right"] for row in rows) != facts["right"]:
        yield Finding(TEST, "not the answers that the ledger recorded", _REPORTED)


def _result(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    if not (folder / RESULT).is_file():
        return
    found = strict_json((folder / RESULT).read_bytes(), RESULT)
    last = entries[-1]
    if last.kind != "run.closed" or found != {**_named(entries[0]), **last.body, "ledger": last.line_digest}:
        yield Finding(RESULT, "not what the ledger closed with", _REPORTED)


def _named(declared: Entry) -> dict[str, Any]:
    return {"arm": declared.body["arm"], "seed": declared.body["seed"]}


def _gate(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    stages = [e for e in entries if e.kind == "regime.opened" and "log" in e.body["stage"]]
    named = {e.body["decided"]["certificate"] for e in entries if e.kind == "update.done"} - {""}
    gate = folder / GATE
    if not gate.is_dir():
        if stages or named:
            yield Finding(GATE, "missing, though the ledger names certificates", _HISTORY)
        return
    for finding in verify_run(gate).findings:
        yield Finding(f"{GATE}/{finding.where}", finding.what, finding.means)
    try:
        events = Ledger.read(gate).events
    except IntegrityError:
        return
    issued = set()
    for entry in stages:
        stage, place = entry.body["stage"], entry.body["stage"]["log"]
        where = f"{LEDGER}: line {entry.seq + 1}"
        if place["events"] > len(events) or events[place["events"] - 1].digest != place["head"]:
            yield Finding(where, "the gate's log does not hold the certificate of this regime", _HISTORY)
        elif events[place["events"] - 1].body["envelope"]["sha256"] == stage["certificate"]:
            issued.add(stage["certificate"])
    if named - issued:
        yield Finding(LEDGER, "updates name a certificate that no regime was given", _HISTORY)


def _strangers(folder: Path, entries: Sequence[Entry]) -> Iterator[Finding]:
    del entries
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            yield Finding(path.name, "a symbolic link, whose target can change unseen", _HISTORY)
        elif path.name not in (*FILES, GATE):
            yield Finding(path.name, "does not belong to the run", "who put it there, and what for?")
