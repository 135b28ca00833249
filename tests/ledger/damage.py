"""Damage to bytes, for tests of what reads them."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from vapo.errors import VapoError


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """The data with a few of its bytes changed, dropped, doubled, moved or put in."""

    @st.composite
    def build(draw):
        found = bytearray(data)
        for _ in range(draw(st.integers(1, 3))):
            place = draw(st.integers(0, max(len(found) - 1, 0)))
            length = draw(st.integers(0, 12))
            kind = draw(st.sampled_from(["flip", "drop", "double", "insert", "cut"]))
            if kind == "flip" and found:
                found[place] ^= 1 << draw(st.integers(0, 7))
            elif kind == "drop":
                del found[place : place + length]
            elif kind == "double":
                found[place:place] = found[place : place + length]
            elif kind == "insert":
                found[place:place] = draw(st.binary(max_size=12))
            elif kind == "cut":
                del found[place:]
        return bytes(found)

    return build()


def refuses(read, *arguments) -> VapoError:
    """The error of this library that a call ends in."""
    with pytest.raises(VapoError) as caught:
        read(*arguments)
    assert str(caught.value)
    return caught.value
