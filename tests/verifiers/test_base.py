"""An outcome is either a verdict or a typed failure, in numbers that can be stored and sent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vapo.errors import InputError
from vapo.verifiers import Cost, Failure, Outcome


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"verdict": 1, "failure": Failure.CRASH},
        {"verdict": 0},
        {"verdict": 2},
        {"verdict": 1, "confidence": 1.1},
        {"verdict": 1, "confidence": math.nan},
        {"verdict": 1, "cost": Cost(-1)},
        {"verdict": 1, "cost": Cost(1, 2.5)},
        {"verdict": 1, "cost": Cost(1, 1 << 63)},
        {"verdict": 1, "cost": Cost(seconds=math.inf)},
        {"verdict": 1, "cost": Cost(seconds=math.nan)},
        {"verdict": 1, "detail": None},
    ],
)
def test_what_is_no_outcome_is_refused(given):
    with pytest.raises(InputError, match="outcome"):
        Outcome(**given)


def test_a_failure_is_no_verdict():
    assert [Outcome(failure=failure).sign for failure in Failure] == [0] * len(Failure)


def test_numbers_of_other_libraries_become_plain_ones():
    outcome = Outcome(verdict=np.int8(-1), confidence=np.float32(0.5))
    assert outcome == Outcome(verdict=-1, confidence=0.5)
    assert (type(outcome.verdict), type(outcome.confidence)) == (int, float)
