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
from vapo._internal.strict import strict_json

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
