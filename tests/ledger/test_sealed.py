"""Sealed labels: what opens them, when, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import damaged, refuses
from tests.ledger.shared import OWN
from tests.vectors.make import LABELS, WITNESS_SEED, stream
from vapo._internal.keyed import sha256_hex
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.ledger.age import Identity, Recipient, decrypt, encrypt
from vapo.ledger.log import Event, EventKind
from vapo.ledger.sealed import (
    SEALED_LABELS,
    LabelKey,
    is_sealed,
    label_lines,
    load_label_key,
    load_recipient,
    new_label_key,
    open_labels,
    parse_labels,
    seal_labels,
)

VECTORS = json.loads((OWN / "sealed.json").read_text(encoding="utf-8"))
ME, OTHER = Identity.from_bytes(bytes(range(32))), Identity.from_bytes(bytes(range(1, 33)))
KEY = LabelKey(ME)
CHUNK = 1 << 16


LINES = b'{"id":"a","z":1}\n{"id":"\xc3\xbc\\n","z":-1}\n'


def test_labels_stand_in_a_sealed_file_as_lines_of_canonical_json_and_come_back():
    ids, signs = pa.array(["a", "ü\n"]), np.array([1, -1], np.int8)
    assert label_lines(ids, signs) == LINES
    assert parse_labels(LINES).to_pydict() == {"id": ["a", "ü\n"], "z": [1, -1]}
    with pytest.raises(IntegrityError, match="line 2: does not end in a newline"):
        parse_labels(LINES[:-1])
    assert parse_labels(label_lines(ids[:0], signs[:0])).num_rows == 0
    assert is_sealed(seal_labels(LINES, ME.recipient))
    assert not is_sealed(LINES)


@pytest.mark.parametrize(
    "line",
    [
        b"", b"id,z", b"a,1", b"[]", b"{}", b'{"id":"a"}', b'{"id":"a","z":0}', b'{"id":"a","z":true}',
        b'{"id":1,"z":1}', b'{"id":"a","z":1.0}', b'{"id":"a","z":1,"more":2}', b'{"id":"a","id":"b","z":1}', b"\xff",
    ],
)  # fmt: skip
def test_any_other_line_is_refused_and_named(line):
    with pytest.raises(IntegrityError, match="sealed labels: line 2"):
        parse_labels(b'{"id":"a","z":1}\n' + line + b"\n")


def run(*kinds, body=None):
    return [Event(seq, "", kind, (body or {}) if seq == 0 else {}) for seq, kind in enumerate(kinds)]


K = EventKind
FROZEN = run(K.PROTOCOL, K.FAMILY, K.ACTIONS, K.FROZEN)


def test_the_published_files_open_to_what_was_sealed():
    identity = Identity.from_bytes(bytes.fromhex(VECTORS["identity"]))
    assert identity.recipient.text == VECTORS["recipient"]
    for case in VECTORS["good"]:
        assert decrypt(bytes.fromhex(case["sealed"]), identity).hex() == case["plain"]


@pytest.mark.parametrize("name", VECTORS["must_fail"])
def test_the_published_wrong_file_is_refused(name):
    identity = Identity.from_bytes(bytes.fromhex(VECTORS["identity"]))
    with pytest.raises(IntegrityError, match=r"^sealed file: "):
        decrypt(bytes.fromhex(VECTORS["must_fail"][name]), identity)


def test_the_published_long_file_opens_for_both_its_recipients():
    case = VECTORS["two_recipients"]
    plain, second = bytes(range(256)) * 513, Identity.from_bytes(WITNESS_SEED)
    sealed = encrypt(plain, [second.recipient, LABELS.recipient], draw=stream(case["seed"]))
    assert sha256_hex(plain) == case["plain_sha256"]
    assert sha256_hex(sealed) == case["sealed_sha256"]
    assert decrypt(sealed, LABELS) == decrypt(sealed, second) == plain


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_files_of_every_length_round_a_chunk_come_back(size):
    plain = bytes(range(256)) * (size // 256 + 1)
    assert decrypt(seal_labels(plain[:size], ME.recipient), ME) == plain[:size]


def test_the_same_labels_are_never_sealed_to_the_same_bytes():
    assert len({seal_labels(b"id,z\n", ME.recipient) for _ in range(20)}) == 20


def test_a_file_for_another_is_refused_by_name():
    with pytest.raises(IntegrityError, match=f"not sealed for {ME.recipient.text}"):
        decrypt(seal_labels(b"id,z\n", OTHER.recipient), ME)


def test_parts_cannot_be_cut_off_moved_doubled_or_dropped():
    sealed = seal_labels(bytes(3 * CHUNK), ME.recipient)
    start = sealed.index(b"\n", sealed.index(b"\n--- ") + 1) + 17
    head, step = sealed[:start], CHUNK + 16
    one, two, three = (sealed[start + step * n : start + step * (n + 1)] for n in range(3))
    assert decrypt(head + one + two + three, ME) == bytes(3 * CHUNK)
    for parts in ((one,), (one, two), (two, one, three), (one, one, two, three), (one, three), (three,), ()):
        with pytest.raises(IntegrityError, match=r"sealed file: (part|cut off)"):
            decrypt(head + b"".join(parts), ME)


def test_parts_of_two_files_for_one_key_cannot_be_mixed():
    first, second = (seal_labels(bytes([n]) * 40, ME.recipient) for n in (1, 2))
    assert len(first) == len(second)
    with pytest.raises(IntegrityError):
        decrypt(first[:-56] + second[-56:], ME)


def test_a_last_part_without_content_is_refused():
    from vapo.ledger import age

    draw = stream("empty end")
    sealed = encrypt(bytes(CHUNK), [ME.recipient], draw=draw)
    header = age._parse_header(sealed)
    (wrapped,) = age._wrapped(header)
    key = age._derive(ME.unwrap(*wrapped), sealed[header.size : header.size + 16], b"payload")
    cipher = age.ChaCha20Poly1305(key)
    full = cipher.encrypt(age._chunk_nonce(0, last=False), bytes(CHUNK), None)
    end = cipher.encrypt(age._chunk_nonce(1, last=True), b"", None)
    with pytest.raises(IntegrityError, match="empty part"):
        decrypt(sealed[: header.size + 16] + full + end, ME)


def header(*lines):
    return "\n".join(["age-encryption.org/v1", *lines]).encode() + b"\n" + bytes(40)


SHARE = "TEiF0ypqr+bpvcqXNyCVJpL7OuwPdVwPL7KQEbFDOCc"
END = "--- " + "A" * 43


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"age-encryption.org/v1",
        b"age-encryption.org/v2\n",
        header(END),
        header(f"-> X25519 {SHARE}", SHARE),
        header(f"-> X25519 {SHARE}", SHARE, END + "="),
        header(f"-> X25519 {SHARE}", SHARE, END[:-1]),
        header(f"-> X25519 {SHARE}", SHARE, END[:-1] + "B"),
        header(f"-> X25519 {SHARE}", SHARE, "---" + "A" * 43),
        header(f"-> X25519 {SHARE}", SHARE, "--- "),
        header(f"-> X25519 {SHARE}", "", END),
        header(f"-> X25519 {SHARE}", SHARE[:-1], END),
        header(f"-> X25519 {SHARE}", SHARE + "=", END),
        header(f"-> X25519 {SHARE}", "A" * 64, "A" * 23, END),
        header(f"-> X25519 {SHARE}", "A" * 65, END),
        header(f"-> X25519 {SHARE[:-1]}", SHARE, END),
        header(f"-> X25519 {SHARE}=", SHARE, END),
        header("-> X25519", SHARE, END),
        header(f"-> X25519 {SHARE} x", SHARE, END),
        header(f"-> X25519  {SHARE}", SHARE, END),
        header(f"->  X25519 {SHARE}", SHARE, END),
        header(f"->X25519 {SHARE}", SHARE, END),
        header(f"-> X25519 {SHARE}\r", SHARE, END),
        header(f"-> X25519 {'A' * 43}", SHARE, END),
        header("-> é", "", END),
        header("->", "", END),
        header("-> ", "", END),
        header("-> scrypt aaaa 18", SHARE, END),
        header("-> long " + "A" * (1 << 16), "", END),
        header("-> long", *["A" * 64] * 2000, "", END),
    ],
)
def test_a_header_of_nearly_the_right_form_is_refused(data):
    with pytest.raises(IntegrityError, match=r"^sealed file: "):
        decrypt(data, ME)


def test_other_kinds_of_recipient_beside_ours_are_passed_over():
    from vapo.ledger import age

    sealed = encrypt(b"labels", [ME.recipient], draw=lambda size: bytes(range(size)))
    found = age._parse_header(sealed)
    before, rest = found.signed.removesuffix(b"---"), sealed[found.size :]
    signed = before + b"-> ssh-ed25519 abc\n" + b"A" * 64 + b"\n\n---"
    mac = age._bare(age._header_mac(bytes(range(16)), signed))
    assert decrypt(signed + b" " + mac + b"\n" + rest, ME) == b"labels"


def test_a_recipient_is_one_line_and_survives_reading():
    assert Recipient.parse(ME.recipient.text) == ME.recipient
    assert Recipient.parse(ME.recipient.text.upper()) == ME.recipient


@pytest.mark.parametrize(
    "wrong",
    [
        lambda text: "",
        lambda text: text[:-1],
        lambda text: text + "q",
        lambda text: text.replace("age1", "age"),
        lambda text: text.replace("age1", "bge1"),
        lambda text: text.capitalize(),
        lambda text: text[:-1] + ("q" if text[-1] != "q" else "p"),
        lambda text: text[:20] + "b" + text[21:],
        lambda text: text + "\n",
    ],
)
def test_a_recipient_with_a_slip_is_refused(wrong):
    assert isinstance(refuses(Recipient.parse, wrong(ME.recipient.text)), InputError)


@given(place=st.integers(4, 61), letter=st.sampled_from("qpzry9x8gf2tvdw0s3jn54khce6mua7l"))
def test_no_single_wrong_letter_of_a_recipient_goes_unseen(place, letter):
    text = ME.recipient.text
    wrong = text[:place] + letter + text[place + 1 :]
    if wrong != text:
        refuses(Recipient.parse, wrong)


def test_nothing_is_sealed_for_nobody_or_for_a_key_that_everybody_knows():
    assert "at least one" in str(refuses(seal_labels, b"labels"))
    for public in (bytes(32), bytes([1, *bytes(31)])):
        assert "small order" in str(refuses(seal_labels, b"labels", Recipient(public)))
    refuses(Recipient, b"short")


def test_a_label_key_opens_what_was_sealed_for_its_public_half(tmp_path):
    recipient = new_label_key(tmp_path / "labels.key")
    assert load_recipient(tmp_path / "labels.key.pub") == recipient
    key = load_label_key(tmp_path / "labels.key")
    assert key.recipient == recipient
    assert open_labels(seal_labels(b"id,z\n", recipient), key, FROZEN) == b"id,z\n"
    (tmp_path / "two").write_text(f"{recipient.text}\n{ME.recipient.text}\n")
    assert "2 lines" in str(refuses(load_recipient, tmp_path / "two"))


@pytest.mark.parametrize(
    "events",
    [
        [],
        run(K.PROTOCOL),
        run(K.PROTOCOL, K.FAMILY, K.REQUESTED, K.SETTLED, K.ACTIONS),
        run(K.PROTOCOL, K.FAMILY, K.ACTIONS, K.FROZEN, K.LABELS, K.REFUSED, K.STAGE),
        run(K.PROTOCOL, K.FAMILY, K.ACTIONS, K.FROZEN, K.LABELS, K.ISSUED, K.STAGE, K.FAMILY, K.ACTIONS),
        run(K.FROZEN),
    ],
)
def test_labels_stay_sealed_until_the_trace_of_their_stage_is_frozen(events):
    with pytest.raises(ProtocolError, match="until the trace is frozen"):
        open_labels(seal_labels(b"id,z\n", ME.recipient), KEY, events)


def test_labels_open_again_for_a_run_that_is_resumed_after_the_join():
    sealed = seal_labels(b"id,z\n", ME.recipient)
    for more in ((), (K.LABELS,), (K.LABELS, K.ISSUED, K.DEPLOY)):
        assert open_labels(sealed, KEY, run(K.PROTOCOL, K.FAMILY, K.ACTIONS, K.FROZEN, *more)) == b"id,z\n"


def test_only_the_labels_that_were_declared_beforehand_are_opened():
    sealed, later = (seal_labels(b"id,z\n", ME.recipient) for _ in range(2))
    events = run(K.PROTOCOL, K.FAMILY, K.ACTIONS, K.FROZEN, body={SEALED_LABELS: sha256_hex(sealed)})
    assert open_labels(sealed, KEY, events) == b"id,z\n"
    with pytest.raises(IntegrityError, match="not the file that event 0 declared"):
        open_labels(later, KEY, events)


def test_a_label_key_offers_no_other_way_to_open_anything():
    public = {name for name in dir(KEY) if not name.startswith("_")}
    assert public == {"recipient"}
    assert "rivate" not in repr(ME)


GOOD = encrypt(b"id,z\na,1\n", [ME.recipient], draw=stream("fuzz"))


@given(data=damaged(GOOD))
def test_a_damaged_sealed_file_is_refused(data):
    if data != GOOD:
        refuses(decrypt, data, ME)


@given(
    data=st.one_of(
        st.binary(max_size=300), st.binary(max_size=300).map(b"age-encryption.org/v1\n-> ".__add__)
    )
)
def test_bytes_that_were_never_sealed_are_refused(data):
    refuses(decrypt, data, ME)
