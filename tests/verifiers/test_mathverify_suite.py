"""math-verify's own test pairs get math-verify's own verdicts through the pool."""

from __future__ import annotations

import pytest

from tests.verifiers.shared import rows, verdict_file
from vapo.verifiers import Failure, Item
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.pool import Pool

DELIMITERS = ("$", r"\boxed", r"\(", r"\[")


def _as_math(text: str) -> str:
    """As the file's verdicts were made: what has no delimiters of LaTeX gets dollar signs."""
    return text if any(mark in text for mark in DELIMITERS) else f"${text}$"


@pytest.fixture(scope="module")
def suite():
    pairs = rows(verdict_file("mathverify_suite.jsonl"))
    assert len(pairs) == 256
    items = [
        Item(row["id"], "", _as_math(row["meta"]["pred"]), _as_math(row["meta"]["gold"])) for row in pairs
    ]
    return items, [row["primary"] for row in pairs]


@pytest.mark.slow
def test_all_256_pairs_get_its_own_verdicts(suite):
    items, verdicts = suite
    with Pool(MathVerify(errors="wrong"), workers=2, deadline=60.0) as pool:
        assert [outcome.verdict for outcome in pool.verify(items)] == verdicts


@pytest.mark.slow
def test_an_error_that_it_hides_is_a_failure_unless_asked_otherwise(suite):
    items, verdicts = suite
    with Pool(MathVerify(), workers=2, deadline=60.0) as pool:
        outcomes = pool.verify(items)
    differ = [n for n, outcome in enumerate(outcomes) if outcome.verdict != verdicts[n]]
    # Its parser makes an infinity of 12:00, and its comparison gives up on infinities.
    assert [items[n].reference for n in differ] == ["$12:00$"]
    assert outcomes[differ[0]].failure is Failure.UNPARSABLE
