"""What counts as the final answer, how it is read as a number, and that no text makes the reading slow."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vapo.errors import InputError
from vapo.verifiers.answers import EXACT_PLACES, NUMERIC_PLACES, Place, final_number, final_text, read_number

LONG = 1 << 20


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("-5", -5),
        ("− 5", -5),
        ("-$5", -5),
        ("$-5", -5),
        (r"\$18", 18),
        ("$18$", 18),
        ("$$18$$", 18),
        ("**18**", 18),
        ("(-5)", -5),
        ("1,234,567", 1234567),
        ("1{,}234", 1234),
        ("18.00", 18),
        ("1000.", 1000),
        (".5", Fraction(1, 2)),
        ("5e3", 5000),
        ("3/4", Fraction(3, 4)),
        ("-1 3/4", Fraction(-7, 4)),
        ("1½", Fraction(3, 2)),
        (r"-\frac{3}{4}", Fraction(-3, 4)),
        (r"\dfrac{-3}{4}", Fraction(-3, 4)),
        (r"\frac12", Fraction(1, 2)),
        (r"90^\circ", 90),
        ("90°", 90),
        (r"18\text{ cm}", 18),
        ("18 km", 18),
        ("$5/hour", 5),
        ("5 (five)", 5),
        ("x = 5", 5),
        ("3 x 4 = 12", 12),
        ("about 12.", 12),
        ("\uff11\uff18", 18),
    ],
)
def test_a_number_is_read_exactly_whatever_is_written_around_it(text, value):
    assert read_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "twelve",
        "12 + 34",
        "12-5",
        "3 * 4",
        "6 × 7",
        "2^3",
        "5²",
        "2x",
        "x2",
        "x_2",
        "sqrt(2)",
        r"\sqrt{2}",
        "ln 5",
        r"2\pi",
        "-(2)",
        "--5",
        "±5",
        "x > 2",
        "not 5",
        "it isn't 5",
        "1.5.2",
        "1,23",
        "3 or 4",
        "1/0",
        "12 = 3 x 4",
        "1" * 500,
        "1e100000",
        "1,111" + ",111" * 200,
    ],
)
def test_what_nobody_worked_out_is_no_number(text):
    assert read_number(text) is None


def test_a_percent_sign_counts_only_where_asked():
    assert read_number("50%") == 50
    assert read_number("50%", percent=True) == Fraction(1, 2)
    assert read_number(r"12.5\%", percent=True) == Fraction(1, 8)


def test_the_first_place_that_a_text_has_decides_readable_or_not():
    text = "It is 3.\nThe answer is 4.\n\\boxed{5}\n#### six"
    assert final_number(text) is None
    assert final_number(text, [Place.BOXED, Place.HASH]) == 5
    assert final_number(text, [Place.PHRASE]) == 4
    assert final_number("It is 3, not 4", [Place.HASH, Place.LAST]) == 4
    assert final_number("It is 3", [Place.HASH, Place.BOXED, Place.PHRASE]) is None
    assert final_number("3", [Place.WHOLE]) == 3


def test_the_last_occurrence_of_a_place_is_taken():
    assert final_number("#### 1\n#### 2") == 2
    assert final_number(r"\boxed{1} \fbox{2}") == 2
    assert final_number("The answer is 1. No: the answer is 2.") == 2
    assert final_text(r"\boxed{1} and \boxed{\frac{\{a\}}{2}}") == r"\frac{\{a\}}{2}"


def test_a_box_that_is_never_closed_is_no_box():
    assert final_text(r"\boxed{5", [Place.BOXED]) is None
    assert final_text(r"\boxed{1} \boxed{5", [Place.BOXED]) == "1"
    assert final_text(r"} \boxed{1}", [Place.BOXED]) == "1"


@pytest.mark.parametrize(
    "places", [[], [Place.HASH, Place.HASH], ["hash", Place.HASH], ["here"], ["hash", 5]]
)
def test_places_are_known_named_once_and_at_least_one(places):
    with pytest.raises(InputError, match="places: expected at least one of hash, boxed, phrase, last, whole"):
        final_number("1", places)


@given(st.fractions(), st.sampled_from(["{}", "#### {}", r"\boxed{{{}}}", "so the answer is {}.", "x = {}"]))
def test_every_fraction_comes_back_from_every_place(value, pattern):
    assert final_number(pattern.format(value), [*NUMERIC_PLACES[:-1], Place.WHOLE]) == value


@given(st.integers(), st.sampled_from(["{:,}", "${:,}$", r"\({}\)", "{} apples", "{}.00"]))
def test_every_integer_is_read_in_every_dress(value, pattern):
    assert read_number(pattern.format(value)) == value


@given(st.text())
def test_no_text_is_an_error(text):
    for places in ([place] for place in Place):
        final_number(text, places)
        final_text(text, places)


@pytest.mark.parametrize(
    "text",
    [
        "1" + ",111" * (LONG // 4) + "1",
        "\\boxed{" * 64 + "a" * LONG,
        "\\boxed{" * (LONG // 7),
        "9" * LONG,
        "1 " * (LONG // 2),
        "\u0300\u0323" * (LONG // 2),
        ("answer" + " " * 1000) * (LONG // 1006),
        "####" * (LONG // 4),
        "\\frac{1}{" * (LONG // 9),
        "-" * LONG,
        "1e" * (LONG // 2),
        "1" + " " * LONG,
        "\ud800" * LONG,
        "\x00" * LONG,
    ],
    ids=lambda text: ascii(text[:12]),
)
def test_a_megabyte_made_to_be_slow_is_read_in_one_pass(text):
    # Quadratic time would be minutes or hours here: the suite itself would not come to its end.
    final_number(text, NUMERIC_PLACES)
    final_text(text, EXACT_PLACES)
