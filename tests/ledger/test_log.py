"""The event log: one legal order, a chain of digests, and a mark beside it."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.ledger.log import GENESIS, Event, EventKind, Place, check_mark, mark, merkle_root, parse_log

K = EventKind
CERTIFY = [K.PROTOCOL, K.FAMILY, K.REQUESTED, K.SETTLED, K.ACTIONS, K.ACTIONS, K.FROZEN, K.LABELS, K.ISSUED]
DEPLOY = [K.DEPLOY, K.REQUESTED, K.SETTLED, K.ACTIONS, K.SPOTCHECK, K.ACTIONS]
STORY = [
    *CERTIFY,
    *DEPLOY,
    K.ALARM,
    K.STAGE,
    *CERTIFY[1:-1],
    K.REFUSED,
    K.STAGE,
    *CERTIFY[1:],
    *DEPLOY,
    K.CLOSED,
]


def log(kinds, body=None):
    lines, previous = [], GENESIS
    for number, kind in enumerate(kinds):
        line = Event(number, previous, kind, body or {"n": number}).line
        previous = sha256_hex(line)
        lines.append(line)
    return lines


def text(lines):
    return b"".join(line + b"\n" for line in lines)


def test_a_whole_story_is_legal():
    events, torn = parse_log(text(log(STORY)))
    assert [event.kind for event in events] == STORY
    assert torn == 0


@pytest.mark.parametrize(
    ("before", "kind"),
    [
        ([], K.FAMILY),
        (CERTIFY[:1], K.ACTIONS),
        (CERTIFY[:2], K.FROZEN),
        (CERTIFY[:3], K.ACTIONS),
        (CERTIFY[:5], K.LABELS),
        (CERTIFY[:6], K.ISSUED),
        (CERTIFY[:7], K.ACTIONS),
        (CERTIFY[:7], K.ISSUED),
        (CERTIFY[:8], K.LABELS),
        (CERTIFY, K.LABELS),
        (CERTIFY, K.ACTIONS),
        (CERTIFY, K.ISSUED),
        (CERTIFY, K.PROTOCOL),
        (CERTIFY, K.ALARM),
        ([*CERTIFY, *DEPLOY], K.STAGE),
        ([*CERTIFY, *DEPLOY], K.DEPLOY),
        ([*CERTIFY, *DEPLOY], K.SETTLED),
        ([*CERTIFY, *DEPLOY], K.LABELS),
        ([*CERTIFY, *DEPLOY[:2]], K.SPOTCHECK),
        ([*CERTIFY, *DEPLOY, K.ALARM], K.ACTIONS),
        ([*CERTIFY, *DEPLOY, K.ALARM], K.DEPLOY),
        ([*CERTIFY, *DEPLOY, K.CLOSED], K.ACTIONS),
        ([*CERTIFY, K.STAGE], K.DEPLOY),
        ([*CERTIFY, K.STAGE], K.ACTIONS),
    ],
)
def test_an_event_out_of_its_order_is_refused_and_found_when_forged(before, kind):
    place = Place()
    for earlier in before:
        place = place.then(earlier)
    with pytest.raises(ProtocolError, match="is not legal"):
        place.then(kind)
    with pytest.raises(IntegrityError, match=f"line {len(before) + 1}: '{kind}' is not legal"):
        parse_log(text(log([*before, kind])))


def test_an_empty_line_is_no_event_even_alone():
    with pytest.raises(IntegrityError, match="line 1"):
        parse_log(b"\n")


def test_a_torn_tail_is_counted_and_whole_lines_are_kept():
    lines = log(CERTIFY)
    for cut in range(1, len(lines[-1]) + 1):
        events, torn = parse_log(text(lines[:-1]) + lines[-1][:cut])
        assert (len(events), torn) == (len(lines) - 1, cut)


def test_a_last_line_with_a_hole_in_it_is_torn_and_any_other_is_damage():
    lines = log(CERTIFY)

    def holed(line):
        return line[:3] + bytes(4) + line[7:]

    events, torn = parse_log(text([*lines[:-1], holed(lines[-1])]))
    assert (len(events), torn) == (len(lines) - 1, len(lines[-1]) + 1)
    with pytest.raises(IntegrityError, match="the last 1 of"):
        check_mark(mark(parse_log(text(lines))[0]), events)
    for data in (
        text([*lines[:-2], holed(lines[-2]), lines[-1]]),
        text([*lines[:-1], holed(lines[-1])]) + b"{",
    ):
        with pytest.raises(IntegrityError, match="not strict JSON"):
            parse_log(data)


@pytest.mark.parametrize("at", range(len(CERTIFY)))
def test_no_event_can_be_dropped_doubled_swapped_or_put_in(at):
    lines = log(CERTIFY)
    stranger = Event(at, GENESIS, K.ACTIONS, {}).line
    hurt = [[*lines[:at], lines[at], *lines[at:]], [*lines[:at], stranger, *lines[at:]]]
    if at < len(lines) - 1:
        hurt += [[*lines[:at], *lines[at + 1 :]], [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]]
    for forged in hurt:
        with pytest.raises(IntegrityError, match="line"):
            parse_log(text(forged))


def test_the_mark_shows_a_loss_of_the_last_events():
    events, _ = parse_log(text(log(CERTIFY)))
    for kept in range(len(events)):
        with pytest.raises(IntegrityError, match=f"last {len(events) - kept} of {len(events)}"):
            check_mark(mark(events), events[:kept])
        assert check_mark(mark(events[:kept]), events) == len(events) - kept
    others, _ = parse_log(text(log(CERTIFY, {"other": True})))
    with pytest.raises(IntegrityError, match="not the one"):
        check_mark(mark(events), others)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[1]", b'{"events": 1, "head": 2}', b'{"events":-1,"head":""}', b"\xff", b"1"]
)
def test_a_broken_mark_is_found(data):
    with pytest.raises(IntegrityError, match="not a checkpoint"):
        check_mark(data, [])


@given(st.binary(max_size=300))
def test_no_bytes_lead_to_anything_but_events_or_our_own_error(data):
    try:
        parse_log(data)
    except IntegrityError:
        return


BODIES = [
    {"seq": 0, "prev": GENESIS, "kind": "protocol.declared", "body": {"n": 2**60}},
    {"seq": 0, "prev": GENESIS, "kind": "protocol.declared", "body": {"n": float("nan")}},
    {"seq": 0, "prev": GENESIS, "kind": "protocol.declared", "body": []},
    {"seq": 0, "prev": GENESIS, "kind": "protocol.declared", "body": {}, "more": 1},
    {"seq": "0", "prev": GENESIS, "kind": "protocol.declared", "body": {}},
    {"seq": True, "prev": GENESIS, "kind": "protocol.declared", "body": {}},
    {"seq": None, "prev": GENESIS, "kind": "protocol.declared", "body": {}},
    {"seq": 0, "prev": GENESIS, "kind": "nothing.known", "body": {}},
    {"seq": 0, "prev": GENESIS, "kind": ["x"], "body": {}},
    {"seq": 0, "prev": GENESIS, "kind": "protocol.declared", "body": {"\ud800": 1}},
    [],
    7,
    None,
]


@pytest.mark.parametrize("raw", BODIES, ids=range(len(BODIES)))
def test_a_line_that_no_writer_of_ours_wrote_is_named(raw):
    with pytest.raises(IntegrityError, match="line 1"):
        parse_log(json.dumps(raw).encode() + b"\n")


def test_a_line_nested_beyond_reason_is_named():
    with pytest.raises(IntegrityError, match="line 1"):
        parse_log(b'{"seq":0,"body":' + b"[" * 100_000 + b"\n")


def slow_root(leaves):
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + slow_root(leaves[:split]) + slow_root(leaves[split:])).digest()


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=40))
def test_the_root_is_that_of_the_tree_defined_by_halving(leaves):
    assert merkle_root(leaves) == slow_root(leaves).hex()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53 + 1, "\ud800", {"a": object()}, {1: 2}])
def test_what_json_cannot_hold_exactly_is_our_own_error(value):
    with pytest.raises(InputError):
        canonical_json(value)
