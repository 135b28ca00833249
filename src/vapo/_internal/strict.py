"""Reading JSON and base64 that came from outside: one spelling for one value, bounded in size and depth."""

from __future__ import annotations

import base64
import json
import math
import re
from decimal import Decimal
from typing import Any, Never

from vapo.errors import IntegrityError

__all__ = ["MOST_DEPTH", "MOST_INTEGER", "base64_text", "from_base64", "plainly_canonical", "strict_json"]

MOST_DEPTH = 64
MOST_INTEGER = 2**53 - 1
"""The largest whole number that every reader of JSON holds exactly."""
_WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
# Numbers that Python may spell otherwise than canonical JSON: large ones, with an exponent, whole ones with a point.
_ODD_NUMBER = re.compile(rb"[:,\[]-?(?:[0-9]{16}|[0-9]+(?:\.[0-9]+)?[eE]|[0-9]+\.0[,\]}])")


def base64_text(data: bytes) -> str:
    """Bytes in standard base64.

    Example:
        >>> base64_text(bytes(2))
        'AAA='
    """
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, where: str, *, size: int | None = None) -> bytes:
    """Read standard base64 in its only canonical spelling.

    Args:
        text: The encoded bytes.
        where: What the text is, for the message.
        size: How many bytes there must be, if that is known.

    Raises:
        IntegrityError: If the text is not canonical or has another size.

    Example:
        >>> from_base64("aGk=", "example")
        b'hi'
    """
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        data = None
    if data is None or base64_text(data) != text:
        msg = f"{where}: not canonical base64"
        raise IntegrityError(msg)
    if size is not None and len(data) != size:
        msg = f"{where}: expected {size} bytes, got {len(data)}"
        raise IntegrityError(msg)
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a key stands twice in one object"
        raise ValueError(msg)
    return found


def _whole(text: str) -> int | float:
    if len(text) <= 17 and abs(int(text)) <= MOST_INTEGER:
        return int(text)
    # Canonical JSON writes doubles from 2^53 to 1e21 without point or exponent; nothing else may look so.
    value = float(text) if len(text) <= 22 else math.inf
    if abs(value) >= 1e21 or f"{Decimal(repr(value)):f}".removesuffix(".0") != text:
        msg = "a whole number beyond 2^53 - 1 that is not the spelling of a double"
        raise ValueError(msg)
    return value


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        msg = "a number that is too large"
        raise ValueError(msg)
    return value


def _refuse(text: str) -> Never:
    msg = f"{text} is not JSON"
    raise ValueError(msg)


def strict_json(data: bytes, where: str, *, limit: int = 1 << 20) -> Any:
    """Read one JSON value, refusing whatever two readers might understand differently.

    Refused are: more bytes than the limit, anything but UTF-8, a key twice in one object, NaN and infinities,
    whole numbers that a double cannot hold, halves of surrogate pairs, and more than 64 levels.

    Raises:
        IntegrityError: Naming what was found.

    Example:
        >>> strict_json(b'{"a": [1, null]}', "example")
        {'a': [1, None]}
    """
    if len(data) > limit:
        msg = f"{where}: {len(data)} bytes, at most {limit} are read"
        raise IntegrityError(msg)
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_once,
            parse_int=_whole,
            parse_float=_number,
            parse_constant=_refuse,
        )
        _check(value)
    except (ValueError, RecursionError) as error:
        what = str(error).splitlines()[0] if isinstance(error, ValueError) else "too deeply nested"
        msg = f"{where}: not strict JSON: {what}"
        raise IntegrityError(msg) from None
    return value


def plainly_canonical(data: bytes) -> Any:
    """The value of JSON that is seen at once to be canonical and strict; None where a closer look is needed.

    Python's own reader and writer are many times as fast as strict ones. Where writing gives the same bytes again, no
    key stood there twice, and nothing was spelled otherwise than Python spells it. What canonical JSON spells otherwise
    is left to the closer look: letters beyond ASCII (keys are sorted otherwise there), odd numbers, and many levels.

    Example:
        >>> plainly_canonical(b'{"a":[1,0.5]}'), plainly_canonical(b'{"a": 1}'), plainly_canonical(b"[1e1]")
        ({'a': [1, 0.5]}, None, None)
    """
    deep = data.count(b"{") + data.count(b"[") > MOST_DEPTH
    if deep or data[:1] not in (b"{", b"[") or not data.isascii() or _ODD_NUMBER.search(data):
        return None
    text = data.decode("ascii")
    try:
        value = json.loads(text)
        return value if _WRITER.encode(value) == text else None
    except (ValueError, RecursionError):
        return None


def _check(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MOST_DEPTH:
            msg = f"more than {MOST_DEPTH} levels"
            raise ValueError(msg)
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item)
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, str):
                item.encode("utf-8")
        level = inner
