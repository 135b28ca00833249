"""DSSE envelopes (protocol v1) around any payload, and in-toto Statements v1 inside them.

What is signed is the payload's type and bytes, never their encoding. Reading is stricter than DSSE asks:
one spelling of base64, known fields only, no key twice, a bound on size. A signature names its key by
`keyid`, the SHA-256 of the raw public key. One that names no trusted key is passed over; one that names a
trusted key must be good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from vapo._internal.keyed import canonical_json
from vapo._internal.strict import base64_text, from_base64, strict_json
from vapo.errors import InputError, IntegrityError
from vapo.ledger.keys import SigningKey, VerifierKey, verify_ed25519

__all__ = [
    "CERTIFICATE_TYPE",
    "IN_TOTO",
    "MOST_ENVELOPE",
    "STATEMENT_TYPE",
    "Envelope",
    "EnvelopeSignature",
    "Statement",
    "pre_authentication",
    "sign_statement",
]

IN_TOTO = "application/vnd.in-toto+json"
"""Payload type of a Statement."""
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
CERTIFICATE_TYPE = "urn:audit-first-vapo:certificate:v1"
"""Predicate type of a certificate."""
MOST_ENVELOPE = 1 << 22
"""Bytes of the longest envelope that is read."""
_MOST_SIGNATURES = 100
_DIGEST = re.compile(r"[0-9a-f]{64}")


def pre_authentication(payload_type: str, payload: bytes) -> bytes:
    """The bytes that are signed: version, type and payload, each with its length.

    Example:
        >>> pre_authentication("http://example.com/HelloWorld", b"hello world")
        b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class EnvelopeSignature:
    """A signature of an envelope."""

    keyid: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class Envelope:
    """A payload, its type, and signatures of both.

    Example:
        >>> key = SigningKey.from_seed("example.org/run", bytes(32))
        >>> envelope = Envelope("text/plain", b"hello").sign(key)
        >>> Envelope.parse(envelope.data).verify([key.verifier]) == (key.verifier,)
        True
    """

    payload_type: str
    payload: bytes
    signatures: tuple[EnvelopeSignature, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The envelope as plain data."""
        return {
            "payload": base64_text(self.payload),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": s.keyid, "sig": base64_text(s.signature)} for s in self.signatures],
        }

    @property
    def data(self) -> bytes:
        """The envelope as canonical JSON."""
        return canonical_json(self.as_dict())

    @classmethod
    def parse(cls, data: bytes, *, payload_type: str | None = None, where: str = "envelope") -> Self:
        """Read an envelope, without trusting it.

        Args:
            data: JSON.
            payload_type: Which type the payload must have.
            where: What is read, for messages.

        Raises:
            IntegrityError: If it is not of the exact form.
        """
        raw = strict_json(data, where, limit=MOST_ENVELOPE)
        if not isinstance(raw, dict) or set(raw) != {"payload", "payloadType", "signatures"}:
            msg = f"{where}: expected exactly the fields payload, payloadType and signatures"
            raise IntegrityError(msg)
        payload, kind, signatures = raw["payload"], raw["payloadType"], raw["signatures"]
        if not (isinstance(payload, str) and isinstance(kind, str) and isinstance(signatures, list)):
            msg = f"{where}: payload and payloadType must be text, signatures a list"
            raise IntegrityError(msg)
        if payload_type is not None and kind != payload_type:
            msg = f"{where}: expected a payload of type {payload_type}, got {kind[:80]!r}"
            raise IntegrityError(msg)
        if len(signatures) > _MOST_SIGNATURES:
            msg = f"{where}: more than {_MOST_SIGNATURES} signatures"
            raise IntegrityError(msg)
        return cls(
            kind,
            from_base64(payload, f"{where}: payload"),
            tuple(_signature(entry, f"{where}: signature {n}") for n, entry in enumerate(signatures, 1)),
        )

    def sign(self, *keys: SigningKey) -> Envelope:
        """The envelope with the signatures of further keys; a key that has signed does not sign again."""
        message = pre_authentication(self.payload_type, self.payload)
        found = list(self.signatures)
        for key in keys:
            one = EnvelopeSignature(key.fingerprint, key.sign(message))
            if one not in found:
                found.append(one)
        return Envelope(self.payload_type, self.payload, tuple(found))

    def verify(
        self, keys: Sequence[VerifierKey], *, threshold: int = 1, where: str = "envelope"
    ) -> tuple[VerifierKey, ...]:
        """Check the signatures of trusted keys.

        Args:
            keys: Keys that are trusted.
            threshold: How many different ones must have signed.
            where: What is checked, for messages.

        Returns:
            The keys that signed, each once.

        Raises:
            IntegrityError: If a signature that names a trusted key is not good, or too few are there.
        """
        if threshold < 1:
            expected = "a threshold of at least one signature"
            raise InputError(expected, str(threshold))
        trusted = {key.fingerprint: key for key in keys}
        message = pre_authentication(self.payload_type, self.payload)
        found: dict[str, VerifierKey] = {}
        for one in self.signatures:
            key = trusted.get(one.keyid)
            if key is None:
                continue
            if not verify_ed25519(key.public, one.signature, message):
                msg = f"{where}: the signature by {key.name} is not good: payload or signature was changed"
                raise IntegrityError(msg)
            found[one.keyid] = key
        if len(found) < threshold:
            msg = f"{where}: signed by {len(found)} trusted keys, {threshold} must have"
            raise IntegrityError(msg)
        return tuple(found.values())


def _signature(entry: Any, where: str) -> EnvelopeSignature:
    if not isinstance(entry, dict) or set(entry) != {"keyid", "sig"}:
        msg = f"{where}: expected exactly the fields keyid and sig"
        raise IntegrityError(msg)
    keyid, signature = entry["keyid"], entry["sig"]
    if not isinstance(keyid, str) or not isinstance(signature, str) or not _DIGEST.fullmatch(keyid):
        msg = f"{where}: keyid must be a SHA-256 in hexadecimal, sig text"
        raise IntegrityError(msg)
    return EnvelopeSignature(keyid, from_base64(signature, where, size=64))


@dataclass(frozen=True, slots=True)
class Statement:
    """Something said about artifacts that are named by their digests.

    Example:
        >>> statement = Statement({"trace": "ab" * 32}, "https://example.org/claim/v1", {"holds": True})
        >>> Statement.parse(statement.payload) == statement
        True
    """

    subjects: Mapping[str, str]
    """SHA-256 of each artifact, by its name."""
    predicate_type: str
    predicate: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The statement as plain data."""
        return {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": name, "digest": {"sha256": sha}} for name, sha in self.subjects.items()],
            "predicateType": self.predicate_type,
            "predicate": dict(self.predicate),
        }

    @property
    def payload(self) -> bytes:
        """The statement as canonical JSON."""
        return canonical_json(self.as_dict())

    @classmethod
    def parse(cls, payload: bytes, *, predicate_type: str | None = None, where: str = "statement") -> Self:
        """Read a statement.

        Args:
            payload: JSON.
            predicate_type: Which type the predicate must have.
            where: What is read, for messages.

        Raises:
            IntegrityError: If it is not of the exact form.
        """
        raw = strict_json(payload, where, limit=MOST_ENVELOPE)
        if not isinstance(raw, dict) or set(raw) != {"_type", "subject", "predicateType", "predicate"}:
            msg = f"{where}: expected exactly the fields _type, subject, predicateType and predicate"
            raise IntegrityError(msg)
        if raw["_type"] != STATEMENT_TYPE:
            msg = f"{where}: expected a statement of type {STATEMENT_TYPE}"
            raise IntegrityError(msg)
        kind, predicate = raw["predicateType"], raw["predicate"]
        if not isinstance(kind, str) or not isinstance(predicate, dict):
            msg = f"{where}: predicateType must be text, predicate an object"
            raise IntegrityError(msg)
        if predicate_type is not None and kind != predicate_type:
            msg = f"{where}: expected a predicate of type {predicate_type}, got {kind[:80]!r}"
            raise IntegrityError(msg)
        return cls(_subjects(raw["subject"], where), kind, predicate)


def _subjects(raw: Any, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in raw if isinstance(raw, list) else ():
        match entry:
            case {"name": str(name), "digest": {"sha256": str(sha), **others}, **more} if not (
                others or more
            ):
                if not _DIGEST.fullmatch(sha) or name in found:
                    break
                found[name] = sha
            case _:
                break
    else:
        if found:
            return found
    msg = f"{where}: subject must be a list of differently named artifacts, each with one sha256"
    raise IntegrityError(msg)


def sign_statement(statement: Statement, *keys: SigningKey) -> Envelope:
    """Put a statement into an envelope and sign it; with no key it stays unsigned."""
    return Envelope(IN_TOTO, statement.payload).sign(*keys)
