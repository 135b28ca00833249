"""Inputs from seeds: damage that knows bytes, lines, JSON trees and base64, drawn from a keyed generator."""

from __future__ import annotations

import base64
import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

MOST = 1 << 16
"""Bytes of the longest input."""

_WORDS = (
    b"null true false NaN Infinity -Infinity 1e999 -0 -0.0 0.1e-400 1e308 9007199254740993 -1 2 256 65536 2147483648 "
    b"18446744073709551616 340282366920938463463374607431768211456 {} [] \"\" '' \\ \\u0000 \\ud800 0x10 1_000 +1 .5 "
    b"__proto__ signal. verdict. delta_r secondary y2 z id sha256 suffix ../../etc/passwd /dev/zero"
).split()
_PIECES = (
    b"", b"\n", b"\r\n", b"\r", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b",",
    b'"', b"'", b"\t", b" ", b"=", b"[" * 70, b"{\"a\":" * 70, b"[" * 5000, b"9" * 400, b"9" * 5000, b"A" * 300,
    b"((((" * 40, b"\\boxed{" * 30, b"\\frac{" * 30, b"-" * 60, b"1" * 40 + b"/3", b"a" * 3000 + b"!", b" " * 3000,
    "\u202e\u2028\u0130\ufeff\u0660\u00bd".encode(), b"PAR1", b"ARROW1\x00\x00", b"\x1f\x8b\x08", b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f", b"1e400", b"1" * 25 + b"." + b"1" * 25,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 2**31, 2**53, 2**64, -(2**63), 1e308, 5e-324, -0.0, 0.5, "", "x", "\x00",
    "a" * 2000, "../../x", "0" * 64, "é\u202e", [], {}, [[]], [None], {"": ""}, [1, "1"],
    {"sha256": "x", "suffix": "json"}, {"sha256": "0" * 64, "suffix": "parquet"}, float("nan"), float("inf"),
)  # fmt: skip


def generator(target: str, number: int, seed: int = 0) -> random.Random:
    """The chance behind one input: the same for the same target, number and seed, whatever came before."""
    return random.Random(f"{seed}/{target}/{number}")


def mutate(chance: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One input: a seed, damaged a few times."""
    data = chance.choice(seeds)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        # Damage to bytes rarely gets past a parser's first line; what knows the format does.
        way = chance.choice((_bytes, _lines, _tree, _tree, _words, _inside))
        data = way(chance, data, seeds)[:MOST]
    return data


def _bytes(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at, size = chance.randint(0, len(data)), chance.choice((1, 1, 2, 4, 8, 64, 1024))
    other = chance.choice(seeds)
    piece = other[(start := chance.randint(0, len(other))) : start + size]
    way = chance.randrange(8)
    if way == 0 and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
    if way == 1 and data:
        at = min(at, len(data) - 1)
        return (
            data[:at] + bytes([chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))]) + data[at + 1 :]
        )
    if way == 2:
        return data[:at] + data[at + size :]
    if way == 3:
        return data[:at] + data[at : at + size] * chance.choice((2, 2, 3, 20)) + data[at + size :]
    if way == 4:
        return data[:at]
    if way == 5:
        return data[:at] + piece + data[at:]
    if way == 6:
        return data[:at] + other[chance.randint(0, len(other)) :]
    return data[:at] + chance.choice(_PIECES) + data[at + chance.choice((0, 0, size)) :]


def _words(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    found = list(re.finditer(rb"[-+.\w]+", data))
    if not found:
        return data + chance.choice(_WORDS)
    at = chance.choice(found)
    others = re.findall(rb"[-+.\w]+", chance.choice(seeds)) or [b"0"]
    word = chance.choice((chance.choice(_WORDS), chance.choice(others), chance.choice(_PIECES)))
    return data[: at.start()] + word + data[at.end() :]


def _lines(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    lines = data.split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    way = chance.randrange(5)
    if way == 0:
        del lines[one]
    elif way == 1:
        lines.insert(two, lines[one])
    elif way == 2:
        lines[one], lines[two] = lines[two], lines[one]
    elif way == 3:
        lines.insert(one, chance.choice(chance.choice(seeds).split(b"\n")))
    else:
        # The structure of one line of many.
        lines[one] = _tree(chance, lines[one], seeds)
    return b"\n".join(lines)


def _tree(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return (
            _lines(chance, data, seeds)
            if b"\n" in data and chance.random() < 0.5
            else _bytes(chance, data, seeds)
        )
    for _ in range(chance.choice((1, 1, 2, 4))):
        value = _grafted(chance, value)
    tight = chance.random() < 0.8
    text = json.dumps(
        value, separators=(",", ":") if tight else None, sort_keys=tight, ensure_ascii=not tight
    )
    return text.encode("utf-8", "surrogatepass")


def _grafted(chance: random.Random, value: Any) -> Any:
    """Plain data with one place changed."""
    places: list[tuple[Any, Any]] = []

    def walk(inner: Any) -> None:
        steps = (
            inner.items() if isinstance(inner, dict) else enumerate(inner) if isinstance(inner, list) else ()
        )
        for step, below in steps:
            places.append((inner, step))
            walk(below)

    walk(value)
    if not places or chance.random() < 0.02:
        return copy.deepcopy(chance.choice(_VALUES))
    holder, step = chance.choice(places)
    way = chance.randrange(6)
    if way == 0:
        del holder[step]
    elif way == 1:
        other, place = chance.choice(places)
        holder[step] = copy.deepcopy(other[place])
    elif way == 2 and isinstance(holder, dict):
        name = chance.choice((str(step) + "x", "", "z", "gold_answer", "\x00", str(step).upper()))
        holder[name] = copy.deepcopy(chance.choice((holder[step], chance.choice(_VALUES))))
    elif way == 3 and isinstance(holder, list):
        holder.insert(step, copy.deepcopy(holder[step]))
    elif way == 4 and isinstance(holder[step], (int, float)) and not isinstance(holder[step], bool):
        changes: tuple[Callable[[float], Any], ...] = (
            lambda x: x + 1, lambda x: x - 1, lambda x: -x, lambda x: x * 1e9, str, float, lambda x: x / 3,
        )  # fmt: skip
        with suppress(OverflowError):
            holder[step] = chance.choice(changes)(holder[step])
    else:
        holder[step] = copy.deepcopy(chance.choice(_VALUES))
    return value


def _inside(chance: random.Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Damage to what is written in base64 within the input."""
    found = [m for m in re.finditer(rb"[A-Za-z0-9+/]{16,}={0,2}", data) if len(m[0]) % 4 == 0]
    if not found:
        return _words(chance, data, seeds)
    at = chance.choice(found)
    inner = base64.b64decode(at[0])
    changed = (_tree if inner[:1] in (b"{", b"[") else _bytes)(chance, inner, [inner])
    return data[: at.start()] + base64.b64encode(changed) + data[at.end() :]
