"""Envelopes and statements: what is signed and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import damaged, refuses
from tests.ledger.shared import OWN
from vapo._internal.keyed import canonical_json
from vapo._internal.strict import from_base64, strict_json
from vapo.errors import InputError, IntegrityError, VapoError
from vapo.ledger.envelope import (
    IN_TOTO,
    Envelope,
    EnvelopeSignature,
    Statement,
    pre_authentication,
    sign_statement,
)
from vapo.ledger.keys import SigningKey, VerifierKey

A, B, C = (SigningKey.from_seed(f"example.org/{n}", bytes([n]) * 32) for n in (1, 2, 3))
STATEMENT = Statement({"trace": "ab" * 32}, "https://example.org/claim/v1", {"rho": 0.05})
GOOD = sign_statement(STATEMENT, A, B)
VECTORS = json.loads((OWN / "envelope.json").read_text(encoding="utf-8"))
TRUSTED = [VerifierKey.parse(text) for text in VECTORS["keys"]]


def test_the_published_envelope_holds_the_published_statement_and_two_good_signatures():
    envelope = Envelope.parse(VECTORS["envelope"].encode(), payload_type=IN_TOTO)
    assert envelope.verify(TRUSTED, threshold=2) == tuple(TRUSTED)
    assert envelope.payload == VECTORS["statement"].encode()
    assert pre_authentication(envelope.payload_type, envelope.payload).hex() == VECTORS["signed_bytes"]
    assert Statement.parse(envelope.payload).predicate == {"n": 1000, "rho": 0.05}


@pytest.mark.parametrize("name", VECTORS["must_fail"])
def test_the_published_wrong_envelope_is_refused(name):
    with pytest.raises(IntegrityError):
        Envelope.parse(VECTORS["must_fail"][name].encode()).verify(TRUSTED, threshold=2)


def test_lengths_in_the_signed_bytes_are_of_bytes_not_of_letters():
    assert pre_authentication("é", "€".encode()) == "DSSEv1 2 é 3 €".encode()
    assert pre_authentication("", b"") == b"DSSEv1 0  0 "


def test_type_and_payload_cannot_be_shifted_into_each_other():
    assert pre_authentication("a 1 b", b"") != pre_authentication("a", b"b")


def test_what_is_written_is_what_is_read():
    assert Envelope.parse(GOOD.data) == GOOD
    assert Statement.parse(GOOD.payload) == STATEMENT
    assert GOOD.sign(A) == GOOD


def test_as_many_different_keys_must_have_signed_as_were_asked_for():
    assert GOOD.verify([A.verifier, B.verifier, C.verifier], threshold=2) == (A.verifier, B.verifier)
    with pytest.raises(IntegrityError, match="signed by 2 trusted keys, 3 must have"):
        GOOD.verify([A.verifier, B.verifier, C.verifier], threshold=3)
    twice = Envelope(GOOD.payload_type, GOOD.payload, (GOOD.signatures[0],) * 2)
    with pytest.raises(IntegrityError, match="signed by 1 trusted keys, 2 must have"):
        twice.verify([A.verifier, B.verifier], threshold=2)
    with pytest.raises(InputError, match="threshold"):
        GOOD.verify([A.verifier], threshold=0)


def test_an_unsigned_envelope_and_one_signed_by_strangers_prove_nothing():
    for envelope in (sign_statement(STATEMENT), sign_statement(STATEMENT, C)):
        with pytest.raises(IntegrityError, match="signed by 0 trusted keys"):
            Envelope.parse(envelope.data).verify([A.verifier])


def test_a_bad_signature_under_a_trusted_name_spoils_the_envelope():
    bad = EnvelopeSignature(B.fingerprint, bytes(64))
    with pytest.raises(IntegrityError, match=r"example.org/2 is not good"):
        Envelope(IN_TOTO, b"{}", (bad,)).sign(A).verify([A.verifier, B.verifier])


def test_a_payload_of_another_type_is_refused():
    data = Envelope("text/plain", GOOD.payload).sign(A).data
    with pytest.raises(IntegrityError, match=r"expected a payload of type application/vnd.in-toto"):
        Envelope.parse(data, payload_type=IN_TOTO)
    with pytest.raises(IntegrityError, match="expected a predicate of type x"):
        Statement.parse(GOOD.payload, predicate_type="x")


PARTS = GOOD.as_dict()


@pytest.mark.parametrize(
    "raw",
    [
        [],
        None,
        {},
        PARTS | {"payload": 1},
        PARTS | {"payload": None},
        PARTS | {"payload": PARTS["payload"] + "="},
        PARTS | {"payload": PARTS["payload"] + "\n"},
        PARTS | {"payload": "AA"},
        PARTS | {"payload": "AB=="},
        PARTS | {"payload": "é==="},
        PARTS | {"payloadType": ["x"]},
        PARTS | {"signatures": {}},
        PARTS | {"signatures": [1]},
        PARTS | {"signatures": [{}]},
        PARTS | {"signatures": [{"sig": PARTS["signatures"][0]["sig"]}]},
        PARTS | {"signatures": [PARTS["signatures"][0] | {"cert": ""}]},
        PARTS | {"signatures": [PARTS["signatures"][0] | {"keyid": ""}]},
        PARTS | {"signatures": [PARTS["signatures"][0] | {"keyid": "AB" * 32}]},
        PARTS | {"signatures": [PARTS["signatures"][0] | {"sig": ""}]},
        PARTS | {"signatures": [PARTS["signatures"][0] | {"sig": None}]},
        PARTS | {"signatures": PARTS["signatures"] * 51},
    ],
)
def test_an_envelope_of_nearly_the_right_form_is_refused(raw):
    with pytest.raises(IntegrityError, match=r"^envelope: "):
        Envelope.parse(json.dumps(raw).encode())


PLAIN = STATEMENT.as_dict()


@pytest.mark.parametrize(
    "raw",
    [
        None,
        {},
        PLAIN | {"more": 1},
        PLAIN | {"_type": "https://in-toto.io/Statement/v0.1"},
        PLAIN | {"predicateType": None},
        PLAIN | {"predicate": []},
        PLAIN | {"subject": []},
        PLAIN | {"subject": {}},
        PLAIN | {"subject": PLAIN["subject"] * 2},
        PLAIN | {"subject": [{"digest": {"sha256": "ab" * 32}}]},
        PLAIN | {"subject": [{"name": "trace", "digest": {}}]},
        PLAIN | {"subject": [{"name": "trace", "digest": {"sha256": "AB" * 32}}]},
        PLAIN | {"subject": [{"name": "trace", "digest": {"sha256": "ab" * 32, "md5": ""}}]},
        PLAIN | {"subject": [{"name": 1, "digest": {"sha256": "ab" * 32}}]},
        PLAIN | {"subject": [{"name": "trace", "digest": {"sha256": "ab" * 32}, "uri": ""}]},
    ],
)
def test_a_statement_of_nearly_the_right_form_is_refused(raw):
    with pytest.raises(IntegrityError, match=r"^statement: "):
        Statement.parse(json.dumps(raw).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xef\xbb\xbf{}",
        b"{}{}",
        "{}".encode("utf-16"),
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"9007199254740993",
        b"-9007199254740993",
        b"12345678901234567890",
        b"1000000000000000000000",
        b"1" * 5000,
        b'"\\ud800"',
        b'{"\\udfff": 1}',
        b'"\xff"',
        b"[" * 65 + b"]" * 65,
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[1,]",
        b"'a'",
        b'"a\nb"',
        b" " * (1 << 20) + b"1",
    ],
)
def test_json_that_two_readers_could_take_differently_is_refused(data):
    with pytest.raises(IntegrityError, match=r"^here: "):
        strict_json(data, "here")


def test_json_at_the_limits_is_read():
    assert strict_json(b"[" * 63 + b"1" + b"]" * 63, "here")
    assert strict_json(b"9007199254740991", "here") == 2**53 - 1
    assert isinstance(strict_json(b"-9007199254740992", "here"), float)
    assert strict_json('"\\ud83d\\ude00€"'.encode(), "here") == "😀€"


@given(st.binary(max_size=40))
def test_base64_has_one_spelling(data):
    text = json.loads(canonical_json(Envelope("", data).as_dict()))["payload"]
    assert from_base64(text, "here") == data
    for other in (text + "=", text + "\n", " " + text, text.rstrip("=") + "A", text.rstrip("=") + "*"):
        if other != text:
            with suppress(IntegrityError):
                assert from_base64(other, "here") != data


@given(data=damaged(GOOD.data))
def test_a_damaged_envelope_is_refused_or_says_the_same(data):
    try:
        envelope = Envelope.parse(data, payload_type=IN_TOTO)
        envelope.verify([A.verifier, B.verifier])
        statement = Statement.parse(envelope.payload)
    except VapoError:
        return
    assert statement == STATEMENT


@given(data=damaged(STATEMENT.payload))
def test_a_damaged_statement_is_refused_or_can_be_written_again(data):
    try:
        statement = Statement.parse(data)
    except VapoError:
        return
    assert Statement.parse(statement.payload) == statement


@given(data=st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]",:a1\\', max_size=60).map(str.encode)))
def test_bytes_that_were_never_an_envelope_are_refused(data):
    refuses(Envelope.parse, data)
    refuses(Statement.parse, data)
