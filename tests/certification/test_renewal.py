"""What later stages may still spend."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vapo.certification.renewal import equal_delta, open_ended_delta, stage_delta
from vapo.errors import InputError, ProtocolError


@given(delta=st.floats(0.001, 0.5), stages=st.integers(1, 50))
def test_equal_shares_add_up_to_delta(delta, stages):
    shares = [equal_delta(delta, stage, stages) for stage in range(1, stages + 1)]
    assert math.fsum(shares) == pytest.approx(delta)
    assert math.fsum(shares) <= delta * (1 + 1e-12)


@given(delta=st.floats(0.001, 0.5))
def test_open_ended_shares_never_add_up_to_more_than_delta(delta):
    total = math.fsum(open_ended_delta(delta, stage) for stage in range(1, 3001))
    # what is left after R stages is less than delta * 6 / (pi**2 * R)
    assert delta * (1 - 6 / (math.pi**2 * 3000)) < total < delta
    assert open_ended_delta(delta, 1) == pytest.approx(delta * 6 / math.pi**2)


def test_a_refused_stage_has_spent_its_delta():
    # a share goes with the number of the stage, whatever became of those before
    assert stage_delta(0.05, 1, 5) + stage_delta(0.05, 2, 5) == pytest.approx(0.02)
    assert stage_delta(0.05, 3, 5) == pytest.approx(0.01)


def test_a_stage_beyond_the_declared_ones_has_nothing_to_spend():
    with pytest.raises(ProtocolError, match="stage 6"):
        stage_delta(0.05, 6, 5)
    assert stage_delta(0.05, 600, None) > 0.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: stage_delta(0.0, 1, None),
        lambda: stage_delta(0.05, 0, None),
        lambda: stage_delta(0.05, 1, 0),
        lambda: stage_delta(0.05, -1, None),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(call):
    with pytest.raises(InputError):
        call()
