"""Keyed hashes, and the one canonical way to write JSON."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

import rfc8785

from vapo.errors import InputError

__all__ = ["canonical_json", "canonical_texts", "keyed_fraction", "sha256_hex"]


def canonical_json(value: Any) -> bytes:
    """Serialise plain JSON data by RFC 8785, so that equal data gives equal bytes; refuses NaN and infinities.

    Example:
        >>> canonical_json({"b": 1, "a": [0.1, None]})
        b'{"a":[0.1,null],"b":1}'
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError, RecursionError) as error:
        expected = "plain JSON data with exact numbers and valid text"
        raise InputError(expected, str(error)) from None


def canonical_texts(texts: Sequence[str]) -> bytes:
    r"""What `canonical_json` gives for a list of texts, for very long lists.

    Example:
        >>> canonical_texts(["a", "\n\u20ac"]) == canonical_json(["a", "\n\u20ac"])
        True
    """
    return json.dumps(list(texts), ensure_ascii=False, separators=(",", ":")).encode()


def sha256_hex(data: bytes | memoryview) -> str:
    """SHA-256 of some bytes, in hexadecimal.

    Example:
        >>> sha256_hex(b"")[:8]
        'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def keyed_fraction(key: bytes, text: str) -> float:
    """A number in [0, 1) that looks random, is fixed by key and text, and is the same on every machine.

    Example:
        >>> keyed_fraction(b"seed", "question-1") == keyed_fraction(b"seed", "question-1") < 1
        True
    """
    digest = hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256")
    return (int.from_bytes(digest[:8], "big") >> 11) * 2.0**-53
