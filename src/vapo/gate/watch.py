"""Spot-check labels of deployed records, in the order in which they were drawn, and the alarm that they may raise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from vapo.certification.monitor import Monitor
from vapo.certification.stage import declared_protocol
from vapo.errors import InputError, ProtocolError
from vapo.ledger import Event, EventKind, Ledger
from vapo.ledger.rows import row_tree
from vapo.protocol import Protocol
from vapo.records import Labels

__all__ = ["Watch", "alarm_facts", "deploy_facts", "join_spotchecks", "raise_alarm", "watch"]


@dataclass(frozen=True, slots=True)
class Watch:
    """The state of a deployment as its spot checks show it."""

    monitor: Monitor
    wanted: tuple[str, ...]
    """Ids that were drawn and have no label yet, in draw order."""
    labelled: int
    """Drawn records that have a label."""
    harmful: int
    """Those among them that were harmful."""

    def as_dict(self) -> dict[str, Any]:
        """The state as plain data."""
        monitor = self.monitor
        return {
            "alarm": monitor.closed,
            "drawn_alarm": monitor.alarm,
            "picked_alarm": monitor.picked_alarm,
            "labelled": self.labelled,
            "harmful": self.harmful,
            "wanted": len(self.wanted),
            "log_evidence": monitor.log_evidence,
            "log_fresh_evidence": monitor.log_fresh_evidence,
            "log_threshold": monitor.log_threshold,
            "rho": monitor.rho,
            "delta": monitor.delta,
        }


def _deployed(ledger: Ledger, opened: int) -> Iterator[tuple[str, int, bool]]:
    """Every decided record of a deployment: id, final sign, and whether it was drawn."""
    for event in ledger.events[opened:]:
        if event.kind is EventKind.ACTIONS:
            table = ledger.table(event.body["rows"], ["id", "sign", "check"])
            yield from zip(*(table.column(name).to_pylist() for name in ("id", "sign", "check")), strict=True)


def _labels(ledger: Ledger, events: list[Event], *, picked: bool) -> dict[str, int]:
    found: dict[str, int] = {}
    for event in events:
        if event.kind is EventKind.SPOTCHECK and event.body["picked"] is picked:
            table = ledger.table(event.body["labels"])
            found.update(zip(table.column("id").to_pylist(), table.column("z").to_pylist(), strict=True))
    return found


def watch(ledger: Ledger) -> Watch:
    """Rebuild the monitor of the current deployment, or of the one that an alarm ended, from the log."""
    last = ledger.last(EventKind.DEPLOY)
    if last is None:
        msg = f"{ledger.path}: nothing has been deployed yet"
        raise ProtocolError(msg)
    events = ledger.events[last.seq :]
    protocol = declared_protocol(ledger)
    monitor = Monitor(protocol.rho, protocol.monitor_delta)
    drawn, chosen = _labels(ledger, events, picked=False), _labels(ledger, events, picked=True)
    wanted, labelled, harmful = [], 0, 0
    for name, sign, check in _deployed(ledger, last.seq):
        if name in chosen:
            monitor.update_picked(admitted=sign != 0, harmful=chosen[name] * sign < 0)
        if not check:
            continue
        z = drawn.get(name)
        if z is None:
            wanted.append(name)
        else:
            labelled += 1
            harmful += z * sign < 0
        # A label that is still missing counts as harmless until it comes.
        monitor.update(admitted=True, harmful=None if z is None else z * sign < 0)
    return Watch(monitor, tuple(wanted), labelled, harmful)


def join_spotchecks(ledger: Ledger, labels: Labels, *, picked: bool = False) -> Watch:
    """Join labels of deployed records; if they raise the alarm, the gate is closed from here on.

    Args:
        ledger: A run with an open deployment.
        labels: Their clean signs.
        picked: Whether people chose the records. Then they may raise an alarm of their own, which carries no guarantee.
    """
    last = ledger.last(EventKind.DEPLOY)
    if last is None or not ledger.deployed:
        msg = f"{ledger.path}: no deployment is open"
        raise ProtocolError(msg)
    opened = last.seq
    known = {name: check for name, _, check in _deployed(ledger, opened)}
    before = _labels(ledger, ledger.events[opened:], picked=picked)
    any_before = _labels(ledger, ledger.events[opened:], picked=not picked) | before
    for name in labels.id.to_pylist():
        if name not in known:
            expected = "labels of records that this deployment decided on"
            raise InputError(expected, repr(name), where=labels.where)
        if not picked and not known[name]:
            expected = "labels of records that were drawn (others are 'picked')"
            raise InputError(expected, repr(name), where=labels.where)
    fresh = [i for i, name in enumerate(labels.id.to_pylist()) if name not in before]
    changed = [
        n for n, z in zip(labels.id.to_pylist(), labels.z.tolist(), strict=True) if any_before.get(n, z) != z
    ]
    if changed:
        expected = "one label for each record"
        raise InputError(expected, f"another one now for {changed[0]!r}", where=labels.where)
    if fresh:
        table = pa.table({"id": labels.id.take(pa.array(fresh)), "z": labels.z[fresh]})
        stored = {"labels": ledger.put_table(table), "labels_tree": row_tree(table)}
        ledger.commit(EventKind.SPOTCHECK, {**stored, "count": len(fresh), "picked": picked})
    return raise_alarm(ledger)


def raise_alarm(ledger: Ledger) -> Watch:
    """Look at the evidence in the log and, where it speaks against the policy, put the alarm down."""
    state = watch(ledger)
    if state.monitor.closed:
        ledger.commit(EventKind.ALARM, alarm_facts(state))
    return state


def deploy_facts(ledger: Ledger, protocol: Protocol) -> dict[str, Any]:
    """What the log says where a deployment opens."""
    issued = ledger.last(EventKind.ISSUED, EventKind.REFUSED)
    assert issued is not None
    return {"certificate": issued.body["envelope"]["sha256"], "check_rate": protocol.monitor_rate}


def alarm_facts(state: Watch) -> dict[str, Any]:
    """What the log says about an alarm."""
    monitor = state.monitor
    return {"drawn": monitor.alarm, "picked": monitor.picked_alarm, "checks": monitor.checks}
