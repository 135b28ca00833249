"""Files encrypted to X25519 recipients in the age v1 format, which any age tool can write and read.

A random file key encrypts the payload in chunks of 64 KiB, each bound to its place and the last one
marked as such. The header wraps the file key for every recipient and is authenticated with it. Other
recipient types are passed over.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from vapo.errors import InputError, IntegrityError

__all__ = ["MOST_SEALED", "Identity", "Recipient", "decrypt", "encrypt"]

MOST_SEALED = 1 << 30
"""Bytes of the longest encrypted file that is opened."""
_VERSION = b"age-encryption.org/v1\n"
_INFO = b"age-encryption.org/v1/X25519"
_CHUNK = 1 << 16
_TAG = 16
_NONCE = 16
_MOST_HEADER = 1 << 16
_LETTERS = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_PREFIX = "age"


@dataclass(frozen=True, slots=True)
class Recipient:
    """For whom a file is encrypted.

    Example:
        >>> recipient = Identity.from_bytes(bytes(range(32))).recipient
        >>> recipient.text[:8], Recipient.parse(recipient.text) == recipient
        ('age13aqv', True)
    """

    public: bytes

    def __post_init__(self) -> None:
        if len(self.public) != 32:
            expected = "an X25519 public key of 32 bytes"
            raise InputError(expected, f"{len(self.public)} bytes")

    @property
    def text(self) -> str:
        """The recipient in one line, as age tools write it."""
        words = _regroup(self.public, 8, 5)
        check = _checksum([*words, *[0] * 6]) ^ 1
        words += [check >> 5 * (5 - place) & 31 for place in range(6)]
        return f"{_PREFIX}1{''.join(_LETTERS[word] for word in words)}"

    @classmethod
    def parse(cls, text: str, *, where: str = "recipient") -> Self:
        """Read a recipient from its one line.

        Raises:
            InputError: If it is not one.
        """
        lower = text.lower() if text.isupper() else text
        words = [_LETTERS.find(letter) for letter in lower.removeprefix(f"{_PREFIX}1")]
        # 32 bytes take 52 letters, whose last four bits are nothing; six letters are the checksum.
        fits = lower.startswith(f"{_PREFIX}1") and len(words) == 58 and min(words) >= 0
        if not fits or _checksum(words) != 1 or words[51] & 0b1111:
            expected = "a recipient in one line: age1..."
            raise InputError(expected, repr(text[:80]), where=where)
        return cls(bytes(_regroup(words[:52], 5, 8)[:32]))


def _checksum(words: Sequence[int]) -> int:
    spread = [*(ord(c) >> 5 for c in _PREFIX), 0, *(ord(c) & 31 for c in _PREFIX)]
    state = 1
    for word in [*spread, *words]:
        top, state = state >> 25, (state & 0x1FFFFFF) << 5 ^ word
        for bit, generator in enumerate((0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)):
            state ^= generator * (top >> bit & 1)
    return state


def _regroup(values: Sequence[int], old: int, new: int) -> list[int]:
    number = sum(value << old * place for place, value in enumerate(reversed(values)))
    bits = old * len(values)
    if old > new:
        number, bits = number << -bits % new, bits + -bits % new
    else:
        number, bits = number >> bits % new, bits - bits % new
    return [number >> new * place & (1 << new) - 1 for place in reversed(range(bits // new))]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who can decrypt what was encrypted for a recipient."""

    _private: X25519PrivateKey = field(repr=False)

    @classmethod
    def from_bytes(cls, secret: bytes) -> Self:
        """The identity that 32 bytes of randomness stand for."""
        return cls(X25519PrivateKey.from_private_bytes(secret))

    @property
    def recipient(self) -> Recipient:
        """The public half."""
        return Recipient(self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def unwrap(self, share: bytes, wrapped: bytes) -> bytes | None:
        """The file key that was wrapped for this identity; None if it was wrapped for another."""
        try:
            secret = self._private.exchange(X25519PublicKey.from_public_bytes(share))
            key = _derive(secret, share + self.recipient.public, _INFO)
            return ChaCha20Poly1305(key).decrypt(bytes(12), wrapped, None)
        except (ValueError, InvalidTag):
            return None


def _derive(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt, info).derive(secret)


def _bare(data: bytes) -> bytes:
    return base64.b64encode(data).rstrip(b"=")


def _unbare(text: bytes, what: str) -> bytes:
    try:
        data = base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)
    except ValueError:
        data = b"\x00"
    if _bare(data) != text:
        msg = f"sealed file: {what} is not canonical base64"
        raise IntegrityError(msg)
    return data


def encrypt(
    data: bytes, recipients: Sequence[Recipient], *, draw: Callable[[int], bytes] = os.urandom
) -> bytes:
    """Encrypt some bytes so that each of the recipients can open them.

    Args:
        data: What to encrypt.
        recipients: At least one.
        draw: Where randomness comes from; anything but the default is for published vectors only.

    Raises:
        InputError: If a recipient is not fit, or there is none.
    """
    if not recipients:
        expected = "at least one recipient"
        raise InputError(expected, "none")
    file_key = draw(16)
    header = bytearray(_VERSION)
    for recipient in recipients:
        ephemeral = X25519PrivateKey.from_private_bytes(draw(32))
        share = ephemeral.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        try:
            secret = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient.public))
        except ValueError:
            expected = "a recipient whose key is not of small order"
            raise InputError(expected, recipient.text) from None
        wrap = _derive(secret, share + recipient.public, _INFO)
        wrapped = ChaCha20Poly1305(wrap).encrypt(bytes(12), file_key, None)
        header += b"-> X25519 %s\n%s\n" % (_bare(share), _bare(wrapped))
    header += b"---"
    nonce = draw(_NONCE)
    cipher = ChaCha20Poly1305(_derive(file_key, nonce, b"payload"))
    parts = [bytes(header), b" ", _bare(_header_mac(file_key, bytes(header))), b"\n", nonce]
    count = max(1, -(-len(data) // _CHUNK))
    for place in range(count):
        chunk = data[place * _CHUNK : (place + 1) * _CHUNK]
        parts.append(cipher.encrypt(_chunk_nonce(place, last=place == count - 1), chunk, None))
    return b"".join(parts)


def _header_mac(file_key: bytes, header: bytes) -> bytes:
    return hmac.digest(_derive(file_key, b"", b"header"), header, "sha256")


def _chunk_nonce(place: int, *, last: bool) -> bytes:
    return place.to_bytes(11) + bytes([last])


@dataclass(frozen=True, slots=True)
class _Header:
    stanzas: tuple[tuple[tuple[bytes, ...], bytes], ...]
    signed: bytes
    mac: bytes
    size: int


def decrypt(data: bytes, identity: Identity) -> bytes:
    """Open an encrypted file; nothing is given out unless all of it is authentic.

    Raises:
        IntegrityError: If the file is not of the exact form, not for this identity, or was changed.
    """
    if len(data) > MOST_SEALED:
        msg = f"sealed file: {len(data)} bytes, at most {MOST_SEALED} are opened"
        raise IntegrityError(msg)
    header = _parse_header(data)
    found = [identity.unwrap(share, body) for share, body in _wrapped(header)]
    file_key = next((key for key in found if key is not None), None)
    if file_key is None:
        msg = f"sealed file: not sealed for {identity.recipient.text}"
        raise IntegrityError(msg)
    if not hmac.compare_digest(_header_mac(file_key, header.signed), header.mac):
        msg = "sealed file: the header was changed"
        raise IntegrityError(msg)
    nonce, body = data[header.size : header.size + _NONCE], memoryview(data)[header.size + _NONCE :]
    if len(nonce) < _NONCE or len(body) < _TAG:
        msg = "sealed file: cut off"
        raise IntegrityError(msg)
    cipher = ChaCha20Poly1305(_derive(file_key, nonce, b"payload"))
    count = -(-len(body) // (_CHUNK + _TAG))
    parts = []
    for place in range(count):
        chunk = body[place * (_CHUNK + _TAG) : (place + 1) * (_CHUNK + _TAG)]
        try:
            parts.append(cipher.decrypt(_chunk_nonce(place, last=place == count - 1), chunk, None))
        except (InvalidTag, ValueError):
            msg = f"sealed file: part {place + 1} of {count} was changed, moved or cut off"
            raise IntegrityError(msg) from None
    if count > 1 and not parts[-1]:
        msg = "sealed file: ends in an empty part"
        raise IntegrityError(msg)
    return b"".join(parts)


def _wrapped(header: _Header) -> list[tuple[bytes, bytes]]:
    found = []
    for arguments, body in header.stanzas:
        if arguments[0] != b"X25519":
            continue
        share = _unbare(arguments[1], "a key share") if len(arguments) == 2 else b""
        if len(share) != 32 or len(body) != 32:
            msg = "sealed file: an X25519 stanza is not a key share and a wrapped key of 16 bytes"
            raise IntegrityError(msg)
        found.append((share, body))
    return found


def _parse_header(data: bytes) -> _Header:
    if not data.startswith(_VERSION):
        msg = "sealed file: does not begin with age-encryption.org/v1"
        raise IntegrityError(msg)
    place = len(_VERSION)
    stanzas = []

    def line() -> bytes:
        nonlocal place
        end = data.find(b"\n", place, _MOST_HEADER)
        if end < 0:
            msg = f"sealed file: the header has no end within {_MOST_HEADER} bytes"
            raise IntegrityError(msg)
        start, place = place, end + 1
        return data[start:end]

    while True:
        start, text = place, line()
        if text.startswith(b"--- "):
            break
        arguments = tuple(text.removeprefix(b"-> ").split(b" "))
        fits = all(part and all(0x21 <= byte <= 0x7E for byte in part) for part in arguments)
        if not text.startswith(b"-> ") or not fits:
            msg = "sealed file: a header line is neither a recipient nor the end"
            raise IntegrityError(msg)
        lines = [line()]
        while len(lines[-1]) == 64:
            lines.append(line())
        if len(lines[-1]) > 64:
            msg = "sealed file: a header line is longer than 64 characters"
            raise IntegrityError(msg)
        stanzas.append((arguments, _unbare(b"".join(lines), "a wrapped key")))
    mac = _unbare(text[4:], "the header's code")
    if not stanzas or len(mac) != 32:
        msg = "sealed file: a header without a recipient or without its code"
        raise IntegrityError(msg)
    return _Header(tuple(stanzas), data[: start + 3], mac, place)
