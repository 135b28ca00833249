"""Canonical JSON is RFC 8785, and what it cannot write is refused."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import refuses
from tests.ledger.shared import public
from vapo._internal.keyed import canonical_json
from vapo._internal.strict import plainly_canonical, strict_json

NAMES = ("arrays", "french", "structures", "unicode", "values", "weird")
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.mark.parametrize("name", NAMES)
def test_the_published_inputs_become_the_published_outputs(name):
    value = json.loads(public("jcs", "input", f"{name}.json").read_bytes())
    expected = public("jcs", "output", f"{name}.json").read_bytes()
    assert bytes.fromhex(public("jcs", "outhex", f"{name}.txt").read_text()) == expected
    assert canonical_json(value) == expected
    assert canonical_json(strict_json(expected, name)) == expected


@pytest.mark.parametrize("value", [2**53, -(2**53), 10**400, math.nan, math.inf, -math.inf])
def test_numbers_that_readers_hold_differently_are_refused(value):
    assert len(canonical_json(math.copysign(2**53 - 1, 1))) == 16
    refuses(canonical_json, {"n": value})


@pytest.mark.parametrize("value", ["\ud800", {"\udfff": 1}, {1: 2}, {1, 2}, b"bytes", object()])
def test_what_is_not_json_is_refused(value):
    refuses(canonical_json, value)


def test_numbers_are_doubles_and_zero_has_no_sign():
    assert canonical_json([1.0, 1, -0.0, 1e21, 1e-7, 5e-324]) == b"[1,1,0,1e+21,1e-7,5e-324]"


@given(st.integers(2**53, 2**70) | st.floats(2.0**53, 1e22).map(int))
def test_long_whole_numbers_are_read_only_as_canonical_json_writes_a_double(number):
    for text in (str(number), str(-number)):
        if canonical_json(float(text)).decode() == text:
            assert canonical_json(strict_json(text.encode(), "here")).decode() == text
        else:
            refuses(strict_json, text.encode(), "here")


@given(plain)
def test_writing_and_reading_again_changes_nothing(value):
    text = canonical_json(value)
    assert canonical_json(strict_json(text, "here")) == text
    assert strict_json(text, "here") == value


def spellings(value):
    """A value as Python writes it in many ways, most of which are not canonical."""
    for sort_keys in (True, False):
        for ensure_ascii in (True, False):
            for separators in ((",", ":"), (", ", ": ")):
                yield json.dumps(value, sort_keys=sort_keys, ensure_ascii=ensure_ascii, separators=separators)


@given(plain)
def test_what_is_seen_at_once_to_be_canonical_is(value):
    for text in [*spellings(value), *spellings([value]), canonical_json(value).decode()]:
        data = text.encode()
        found = plainly_canonical(data)
        if found is not None:
            assert canonical_json(strict_json(data, "here")) == data
            assert repr(found) == repr(strict_json(data, "here"))


TOKENS = st.sampled_from(
    [
        *'{}[]:,"0123456789.eE+-\\/ ',
        "true",
        "null",
        "NaN",
        "Infinity",
        '"a":',
        '"b":',
        "1e5",
        ".0",
        "1" * 16,
        "\\u0061",
    ]
)


@given(
    st.lists(TOKENS, max_size=12).map("".join), st.sampled_from(["{}", "[{}]", '{{"a":{}}}', '[1,{},"x"]'])
)
def test_nothing_else_is_taken_for_canonical_at_once(text, around):
    data = around.format(text).encode()
    if plainly_canonical(data) is not None:
        assert canonical_json(strict_json(data, "here")) == data


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}', '{"b":1,"a":1}', "[1.0]", "[-0]", "[-0.0]", "[1e16]", "[1e-05]", "[1E5]",
        "[10000000000000000]",
        "[9007199254740993]", "[1e+16]", "[1.5e+300]", '["\\u0061"]', '["\\/"]', '["\\u00E9"]', "[NaN]", "[Infinity]",
        "[-Infinity]", '["\\ud800"]', "[1e400]", " []", "[] ", "[1 ]", "[" * 65 + "]" * 65, '["\x7f","\u00e9"]', "1",
        "true", '{"\ud83d\ude00":1,"\uffff":1}'.encode("utf-16", "surrogatepass").decode("utf-16"), "", "[", '["\x1f"]',
    ],
)  # fmt: skip
def test_what_might_not_be_canonical_is_looked_at_closely(text):
    assert plainly_canonical(text.encode()) is None


def test_most_of_what_a_log_holds_is_seen_at_once():
    line = {
        "body": {"delta": 0.05, "n": -3, "ref": {"sha256": "0" * 64, "suffix": "json"}},
        "seq": 12,
        "a": [None, True],
    }
    assert plainly_canonical(canonical_json(line)) == line
