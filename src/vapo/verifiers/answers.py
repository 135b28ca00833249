"""Finding the final answer in a completion, and reading it as an exact number.

An answer is looked for by **places**, in a declared order; the first place that the text has decides, and its last
occurrence is taken. What stands there is never passed over for something more convenient further on:

| place | the answer is |
|---|---|
| `hash` | the rest of the line after the last `####` |
| `boxed` | what stands in the last `boxed{...}` or `fbox{...}` of LaTeX whose braces are balanced |
| `phrase` | the rest of the sentence after the last "answer is", "answer:", "answer =" |
| `last` | the last number of the text (numbers only) |
| `whole` | the whole text |

A number may have a sign, thousands separators, a decimal point, an exponent, a fraction (`3/4`, LaTeX's `frac{3}{4}`,
`1 3/4`, `½`), a percent sign, a currency sign and units around it. It is read as an exact fraction. A number that is
part of an expression (`2^3`, `2x`, `sqrt(2)`, `x > 2`) is not read: nobody worked it out. All of this takes time linear
in the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from fractions import Fraction
from itertools import islice

from vapo.errors import InputError

__all__ = [
    "EXACT_PLACES",
    "NUMERIC_PLACES",
    "Place",
    "check_places",
    "final_number",
    "final_text",
    "read_number",
]

MOST_DIGITS = 400
"""Longer numerals are not read: nothing honest needs them, and their arithmetic is slow."""
MOST_TEXT = 1 << 20
"""Of a longer text, only the end is looked at."""


class Place(StrEnum):
    """Where an answer may stand."""

    HASH = "hash"
    BOXED = "boxed"
    PHRASE = "phrase"
    LAST = "last"
    WHOLE = "whole"


NUMERIC_PLACES = (Place.HASH, Place.BOXED, Place.PHRASE, Place.LAST)
EXACT_PLACES = (Place.HASH, Place.BOXED, Place.PHRASE, Place.WHOLE)

# Every quantifier is possessive or bounded by a class that what follows cannot match: linear time on any text.
# A grouped numeral cannot start after a digit and a comma, so a failed one is not tried again from each of its groups.
_DIGITS = r"(?:(?<![0-9],)[0-9]{1,3}(?:,[0-9]{3})++(?![0-9])|[0-9]++)"
_DECIMAL = rf"(?:{_DIGITS}(?:\.[0-9]++)?+|\.[0-9]++)"
_SCIENTIFIC = rf"{_DECIMAL}(?:[eE][+-]?[0-9]{{1,6}}+)?+"
_NUMBER = re.compile(
    rf"""
    (?P<sign>(?<![0-9A-Za-z)\]}}])[+-]\s?)?+ (?:\\?[$€£¥]\s?)?+
    (?:
        \\[dt]?frac\s?\{{\s?(?P<top_sign>[+-])?+(?P<top>{_DECIMAL})\s?\}}\s?\{{\s?(?P<bottom>{_DECIMAL})\s?\}}
      | \\[dt]?frac\s?(?P<short_top>[0-9])\s?(?P<short_bottom>[0-9])(?![0-9])
      | (?P<whole>[0-9]++)\s++(?P<over>[0-9]++)/(?P<under>[0-9]++)
      | (?P<value>{_SCIENTIFIC})(?:\s?/\s?(?P<divisor>{_DECIMAL}))?+
    )
    (?P<percent>\s?\\?%)?+
    """,
    re.VERBOSE,
)
_HASH = re.compile(r"####([^\n]*+)")
_BRACE = re.compile(r"(?P<box>\\(?:boxed|fbox)\s*+\{)|\\[\\{}]|(?P<open>\{)|(?P<shut>\})")
_PHRASE = re.compile(r"\banswer(?:\s++is\b|\s*+[:=])[ \t]*+[:=]?", re.IGNORECASE)
_SENTENCE = re.compile(r"\n|[.;](?=\s|$)")
_SPACES = re.compile(r"\s++")
# Left of LaTeX that says nothing about the value.
_MARKUP = re.compile(
    r"\\[,;:! ]|\\left|\\right|\\[()\[\]]|\*\*|(?<![\\])\$(?=\s|$|\\)|\{,\}|\^\s?\{?\s?\\circ\s?\}?"
)
# What makes a number part of an expression that somebody would still have to work out.
_BEFORE = re.compile(r"(?:[A-Za-z0-9_^*/<>≤≥≠±√×·÷.+-]|\\(?:pm|mp|cdot|times|div))\Z")
_FUNCTION = re.compile(r"(?:(?:\b|\\)(?:sqrt|log|ln|exp|sin|cos|tan|not)|n['’]t)\Z")
_AFTER = re.compile(
    r"""\s?(?: \^ | [²³¹⁰⁴-⁹×·÷√π∞] | \*\s?[\w(\\] | /\s?[0-9(\\] | [+-]\s?[\w(\\]
         | \\(?:pi|sqrt|cdot|times|div|[dt]?frac|infty|pm|theta) )
      | \( | [a-cikntx-z](?![A-Za-z0-9])""",
    re.VERBOSE,
)
_WIDE = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_BLANKS = dict.fromkeys((0xA0, 0x2007, 0x2009, 0x200A, 0x202F, 0x205F, 0x3000), " ")
_VULGAR = {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "⅕": "1/5", "⅛": "1/8", "⅜": "3/8"}
_ALIKE = _WIDE | _BLANKS | {ord(mark): f" {value} " for mark, value in _VULGAR.items()}
_ALIKE |= {0x2212: "-", 0x2013: "-", 0x2044: "/", 0xB0: " "}


def _tidy(text: str) -> str:
    """Signs that look alike made one; of an over-long text its end."""
    tail = text[-MOST_TEXT:]
    # Not by a Unicode normal form: that reads 5² as 52, and takes quadratic time on texts made for it.
    return tail if tail.isascii() else tail.translate(_ALIKE)


def _boxed(text: str) -> str | None:
    """What the last box holds whose braces are balanced; one pass, however many boxes are never closed."""
    opened: list[int | None] = []
    best = None
    for mark in _BRACE.finditer(text):
        if mark["shut"]:
            start = opened.pop() if opened else None
            if start is not None and (best is None or start > best[0]):
                best = (start, mark.start())
        elif mark["box"] or mark["open"]:
            opened.append(mark.end() if mark["box"] else None)
    return None if best is None else text[best[0] : best[1]]


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    found = None
    for found in pattern.finditer(text):  # noqa: B007 - only the last one is wanted
        pass
    return found


def _at(place: Place, text: str) -> str | None:
    if place is Place.HASH:
        found = _last(_HASH, text)
        return found[1] if found else None
    if place is Place.BOXED:
        return _boxed(text)
    if place is Place.PHRASE:
        found = _last(_PHRASE, text)
        if not found:
            return None
        rest = text[found.end() :].lstrip(" \t\n")
        end = _SENTENCE.search(rest)
        return rest[: end.start()] if end else rest
    return text


def check_places(places: Sequence[Place | str]) -> tuple[Place, ...]:
    """Places as a tuple, given as such or by their names.

    Raises:
        InputError: If there is none, one that nobody knows, or one twice.

    Example:
        >>> check_places(["boxed", Place.WHOLE])
        (<Place.BOXED: 'boxed'>, <Place.WHOLE: 'whole'>)
    """
    known = tuple(Place(place) for place in places if place in list(Place))
    if not known or len(set(known)) != len(places):
        expected = f"at least one of {', '.join(Place)}, each once"
        raise InputError(expected, repr(tuple(str(place) for place in places)), where="places")
    return known


def final_text(text: str, places: Sequence[Place] = EXACT_PLACES) -> str | None:
    r"""The final answer as text, or None where no place holds one.

    White space is collapsed; dollar signs of LaTeX and a full stop at the end are dropped.

    Example:
        >>> final_text(r"So it is \boxed{x^{2}}, I think."), final_text("The answer is  north east.")
        ('x^{2}', 'north east')
        >>> final_text("Who knows?", [Place.HASH]) is None
        True
    """
    tidy = _tidy(text)
    for place in check_places(places):
        found = _at(place, tidy)
        if found is not None:
            return _SPACES.sub(" ", found).strip(" $").removesuffix(".").strip(" $") or None
    return None


def final_number(
    text: str, places: Sequence[Place] = NUMERIC_PLACES, *, percent: bool = False
) -> Fraction | None:
    r"""The final answer as an exact number, or None where there is none that can be read.

    At every place but `last` the text must hold exactly one number (or, after an equals sign, one number that is the
    result).

    Args:
        text: The completion.
        places: Where to look, in this order.
        percent: Whether `50%` means one half; otherwise the sign is read like a unit.

    Example:
        >>> final_number("16 - 3 - 4 = 9, so 9 * 2 = $18 a day.\n#### 18")
        Fraction(18, 1)
        >>> final_number(r"It is \boxed{\frac{3}{4}}."), final_number("1,234.5 dollars")
        (Fraction(3, 4), Fraction(2469, 2))
        >>> final_number("#### twelve") is None  # the first place decides, readable or not
        True
        >>> final_number("The answer is 12 + 34.") is None  # a sum that nobody worked out
        True
    """
    tidy = _tidy(text)
    for place in check_places(places):
        if place is Place.LAST:
            found = _last(_NUMBER, _clean(tidy))
            if found is not None:
                return _value(found, percent=percent)
            continue
        part = _at(place, tidy)
        if part is not None:
            return read_number(part, percent=percent)
    return None


def read_number(text: str, *, percent: bool = False) -> Fraction | None:
    """Read a text that holds one number, with a sign, units and so on around it; None if it holds none or several.

    Example:
        >>> read_number("-1 3/4 cups"), read_number("3 x 4 = 12"), read_number("12 + 34")
        (Fraction(-7, 4), Fraction(12, 1), None)
        >>> read_number("50%"), read_number("50%", percent=True)
        (Fraction(50, 1), Fraction(1, 2))
    """
    result = _clean(_tidy(text)).rpartition("=")[2]
    found = list(islice(_NUMBER.finditer(result), 2))
    if len(found) != 1 or _in_an_expression(result, found[0]):
        return None
    return _value(found[0], percent=percent)


def _clean(text: str) -> str:
    return _MARKUP.sub(lambda match: "," if match[0] == "{,}" else " " if match[0] != "**" else "", text)


def _in_an_expression(text: str, found: re.Match[str]) -> bool:
    """Whether the digits are part of a name or of an expression: `x2`, `2x`, `2^3`, `sqrt(2)`, `-(2)`, `x > 2`."""
    window = text[max(0, found.start() - 32) : found.start()]
    if window.endswith((" ", "(", "{")):
        # A word may stand before a number, and a number in brackets; a sign, a function or a "not" may not.
        window = window.rstrip(" ({")
        window = "" if window[-1:].isalnum() and not _FUNCTION.search(window) else window.rstrip(".")
    return bool(_BEFORE.search(window)) or _AFTER.match(text, found.end()) is not None


def _exact(numeral: str) -> Fraction:
    return Fraction(numeral.replace(",", ""))


def _value(found: re.Match[str], *, percent: bool) -> Fraction | None:
    if found.end() - found.start() > MOST_DIGITS:
        return None
    part = found.groupdict()
    if part["short_top"] is not None:
        part["top"], part["bottom"] = part["short_top"], part["short_bottom"]
    exponent = re.search(r"[eE]([+-]?[0-9]+)$", part["value"] or "")
    if exponent and abs(int(exponent[1])) > MOST_DIGITS:
        return None
    if part["top"] is not None:
        top, bottom = _exact(part["top"]), _exact(part["bottom"])
        top = -top if part["top_sign"] == "-" else top
    elif part["whole"] is not None:
        bottom = _exact(part["under"])
        top = _exact(part["whole"]) * bottom + _exact(part["over"])
    else:
        top, bottom = _exact(part["value"]), _exact(part["divisor"] or "1")
    if not bottom:
        return None
    value = top / bottom
    if (part["sign"] or "").startswith("-"):
        value = -value
    return value / 100 if percent and part["percent"] else value
