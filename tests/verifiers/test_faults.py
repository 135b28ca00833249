"""The count of math-verify's faults: its texts are what they say, the same in every run, and all stand on its page."""

from __future__ import annotations

import pytest

from benchmarks.verifier_faults import in_words, measure, page, texts, variants
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.pool import Pool


def test_numbers_are_spelt_as_people_spell_them():
    assert [in_words(n) for n in (0, 13, 20, 46, 100, 999)] == [
        "zero",
        "thirteen",
        "twenty",
        "forty-six",
        "one hundred",
        "nine hundred ninety-nine",
    ]


def test_every_way_of_writing_is_named_once_for_each_truth():
    names = [(variant.truth, variant.name) for variant in variants()]
    assert len(set(names)) == len(names)
    assert {truth for truth, _ in names} == {1, -1}


def test_texts_are_the_same_in_every_run_and_differ_within_their_kind():
    for variant in variants():
        items = texts(variant, 20)
        assert items == texts(variant, 20)
        assert len({item.question for item in items}) > 10


@pytest.mark.parametrize("name", ["the number alone", "a box", "commas", "worked out", "a variable"])
def test_plain_ways_of_writing_are_right_and_wrong_as_declared(name):
    for variant in variants():
        if variant.name in (name, f"{name}, another number"):
            found = Numeric(unreadable="wrong").verify(texts(variant, 20))
            assert {outcome.verdict for outcome in found} == {variant.truth}


def test_the_page_shows_every_way_with_its_known_faults(monkeypatch):
    # One worker is enough for two texts of each kind.
    monkeypatch.setattr("benchmarks.verifier_faults.Pool", lambda rule, **_: Pool(rule, workers=1))
    result = measure(2)
    by_name = {row["name"]: row for row in result["rows"]}
    assert by_name["the sum itself"]["math-verify"] == {"wrong": 2, "none": 0, "of": 2}
    assert by_name["the sum itself"]["numeric"] == {"wrong": 0, "none": 0, "of": 2}
    assert by_name["words"]["math-verify"]["wrong"] == 2
    assert by_name["the number alone"]["math-verify"]["wrong"] == 0
    shown = page(result)
    assert all(f"| {variant.name} |" in shown for variant in variants())
