"""Each rule verifier says what it should, tells failures from verdicts, and runs only where it can do no harm."""

from __future__ import annotations

import pickle

import pytest

from vapo.errors import InputError
from vapo.verifiers import Failure, Item
from vapo.verifiers.answers import Place
from vapo.verifiers.exact import Exact
from vapo.verifiers.gym import ReasoningGym, gym_reference
from vapo.verifiers.marker import FormatMarker
from vapo.verifiers.mathverify import MathVerify
from vapo.verifiers.numeric import Numeric
from vapo.verifiers.python_tests import PythonTests, program_of
from vapo.verifiers.regex import Regex

RULES = [Exact(), Numeric(), FormatMarker(), Regex("a"), MathVerify(), ReasoningGym(), PythonTests()]
HARMLESS = RULES[:3]


def judged(rule, completion, reference="46"):
    outcome = rule.judge(Item("a", "q", completion, reference))
    return outcome.verdict if outcome.failure is None else outcome.failure


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_rule_is_a_small_value_with_one_source(rule):
    again = pickle.loads(pickle.dumps(rule))
    assert again == rule
    assert again.source == rule.source
    assert rule.source.id == type(rule).name


def test_every_rule_is_a_source_of_its_own_and_every_setting_is_another():
    digests = [rule.source.digest for rule in RULES]
    digests += [
        Numeric(tolerance=0.5).source.digest,
        MathVerify(precision=4).source.digest,
        Regex("b").source.digest,
    ]
    digests += [Exact(ignore_case=False).source.digest, Numeric(places=(Place.LAST,)).source.digest]
    assert len(set(digests)) == len(digests)


@pytest.mark.parametrize("rule", RULES[3:], ids=lambda rule: type(rule).__name__)
def test_a_rule_that_can_do_harm_does_not_run_in_the_calling_process(rule):
    with pytest.raises(InputError, match=r"Pool\("):
        rule.verify([Item("a", "", "1")])


@pytest.mark.parametrize("rule", RULES[5:], ids=lambda rule: type(rule).__name__)
def test_a_rule_that_runs_programs_does_not_even_judge_here(rule):
    with pytest.raises(InputError, match=r"Pool\("):
        rule.judge(Item("a", "", "1", "assert True"))


@pytest.mark.parametrize("rule", HARMLESS, ids=lambda rule: type(rule).__name__)
def test_a_harmless_rule_verifies_in_place(rule):
    assert len(rule.verify([Item("a", "", "1", "1"), Item("b", "", "\ud800\x00", "1")])) == 2


def test_exact_compares_words_and_not_their_dress():
    assert judged(Exact(), "The answer is  NORTH\u00a0east.", "north East") == 1
    assert judged(Exact(ignore_case=False), "North", "north") == -1
    assert judged(Exact(), "north or east", "north") == -1
    assert judged(Exact(places=(Place.HASH,)), "north", "north") is Failure.UNPARSABLE
    assert judged(Exact(places=(Place.HASH,), unreadable="wrong"), "north", "north") == -1
    assert judged(Exact(), "north", "  ") is Failure.UNPARSABLE


def test_exact_does_not_fold_what_cannot_be_the_reference():
    # Folding half a million combining marks takes longer than anybody's patience.
    assert judged(Exact(), "\u0300\u0323" * (1 << 19), "46") == -1


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("46", 1),
        ("46.0", 1),
        ("The answer is 92/2.", 1),
        (r"\boxed{46}", 1),
        ("47", -1),
        ("12 + 34", Failure.UNPARSABLE),
        ("46 or 47", Failure.UNPARSABLE),
        ("First 46, then 47.", Failure.UNPARSABLE),
        ("", Failure.UNPARSABLE),
    ],
)
def test_numeric_takes_one_number_that_was_worked_out(completion, verdict):
    assert judged(Numeric(), completion) == verdict


def test_places_by_name_are_the_same_rule():
    named, meant = Numeric(places=["hash", "whole"]), Numeric(places=(Place.HASH, Place.WHOLE))
    assert named == meant
    assert named.source == meant.source


def test_numeric_settings_do_what_they_say():
    assert judged(Numeric(tolerance=0.01), "3.14", "3.1415") == 1
    assert judged(Numeric(), "3.14", "3.1415") == -1
    assert judged(Numeric(percent=True), "50%", "0.5") == 1
    assert judged(Numeric(places=(Place.LAST,)), "12 + 34", "34") == 1
    assert judged(Numeric(unreadable="wrong"), "none") == -1
    assert judged(Numeric(), "46", "forty-six") is Failure.UNPARSABLE
    assert judged(Numeric(), "46", "Because it is.\n#### 46") == 1


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Numeric(tolerance=-1.0), "tolerance"),
        (lambda: Numeric(places=()), "places"),
        (lambda: Numeric(unreadable="maybe"), "unreadable"),
        (lambda: Exact(unreadable="maybe"), "unreadable"),
        (lambda: FormatMarker("", "}"), "FormatMarker"),
        (lambda: Regex("("), "pattern"),
        (lambda: Regex("a{99999999999}"), "pattern"),
        (lambda: MathVerify(precision=-1), "precision"),
        (lambda: ReasoningGym(threshold=0.0), "threshold"),
    ],
)
def test_settings_outside_their_range_are_named(make, named):
    with pytest.raises(InputError, match=named):
        make()


def test_a_marker_must_hold_something():
    assert judged(FormatMarker(), r"so \boxed{wrong}") == 1
    assert judged(FormatMarker(), r"so \boxed{ }") == -1
    assert judged(FormatMarker(), r"so \boxed{46") == -1
    assert judged(FormatMarker(), "46") == -1
    assert judged(FormatMarker("<a>", "</a>"), "<a>1</a> <a></a>") == -1
    assert judged(FormatMarker("**", "**"), "so **46**") == 1
    assert judged(FormatMarker("**", "**"), "so ** 46") == -1


def test_a_pattern_may_be_the_rules_or_the_items():
    assert judged(Regex("4[0-9]"), "it is 46") == 1
    assert judged(Regex("4[0-9]", whole=True), "it is 46") == -1
    assert judged(Regex(), "it is 46", r"\b46$") == 1
    assert judged(Regex(), "it is 46", "(") is Failure.UNPARSABLE


def test_math_verify_gives_its_own_verdict_faults_and_all():
    assert judged(MathVerify(), "The answer is 12 + 34") == 1  # nobody worked it out
    assert judged(MathVerify(), r"\boxed{\frac{92}{2}}") == 1
    assert judged(MathVerify(), "47") == -1
    assert judged(MathVerify(), "no idea") == -1
    assert judged(MathVerify(), "46", "???") is Failure.UNPARSABLE


def test_an_error_inside_math_verify_is_no_verdict():
    outcome = MathVerify().judge(Item("a", "", "$1:00$", "$12:00$"))  # its parser makes an infinity of both
    assert outcome.failure is Failure.UNPARSABLE
    assert "error in math-verify" in outcome.detail


def test_a_program_is_the_last_fenced_block():
    assert program_of("a\n```\nx\n```\nb\n```py\ny\nz\n```") == "y\nz\n"
    assert program_of("```python\nunfinished") == "unfinished"
    assert program_of("plain") == "plain"


def test_a_gym_entry_that_json_cannot_hold_is_refused():
    with pytest.raises(InputError, match="reasoning-gym entry"):
        gym_reference({"answer": "1", "metadata": {"x": object()}})
    with pytest.raises(InputError, match="reasoning-gym entry"):
        gym_reference({"answer": "1"})
