"""Error channels err as often and as jointly as they say, and always on the same items."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verifiers.stubs import Stub, items, matches_reference
from vapo.errors import InputError
from vapo.records import normalise_content
from vapo.stats import binomial_rate, verifier_errors
from vapo.verifiers import Failure, Item, Outcome
from vapo.verifiers.channels import Channel, Kind, NoisyVerifier

MANY = 20_000
IDS = [f"r{n}" for n in range(MANY)]
TRUTH = np.where(np.arange(MANY) % 3 == 0, 1, -1)
LEVEL = 0.9999


def holds(events, trials, rate):
    found = binomial_rate(int(events), int(trials), level=LEVEL)
    return found.low <= rate <= found.high


def make(kind, rate=0.2, **more):
    extra = {"correlated": {"cause": "shared"}, "exploitable": {"pattern": "trust me"}}.get(kind, {})
    return Channel.make(kind, rate, **{"key": "k", **extra, **more})


def final_answer(item):
    return item.completion.rpartition("=")[2]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(
    ("kind", "positive", "negative"),
    [
        ("none", 0, 0),
        ("symmetric", 0.2, 0.2),
        ("fp-heavy", 0.32, 0.08),
        ("fn-heavy", 0.08, 0.32),
        ("correlated", 0.2, 0.2),
    ],
)
def test_a_channel_errs_as_often_as_it_says_on_each_side(kind, positive, negative, persistent):
    said = make(kind, persistent=persistent).apply(TRUTH, ids=IDS, contents=IDS)
    wrong = said != TRUTH
    assert holds(wrong[TRUTH < 0].sum(), (TRUTH < 0).sum(), positive)
    assert holds(wrong[TRUTH > 0].sum(), (TRUTH > 0).sum(), negative)


def test_the_rate_of_a_channel_is_its_share_of_errors_among_balanced_verdicts():
    for kind in ("symmetric", "fp-heavy", "fn-heavy"):
        channel = make(kind, 0.15)
        assert (channel.false_positive + channel.false_negative) / 2 == pytest.approx(0.15)


def test_errors_thin_out_with_confidence_and_end_where_it_is_full():
    channel = make("confidence-dependent", 0.3)
    for sure, rate in ((1.0, 0.0), (0.75, 0.15), (0.5, 0.3), (0.0, 0.6)):
        wrong = channel.apply(TRUTH, ids=IDS, confidence=np.full(MANY, sure)) != TRUTH
        assert holds(wrong.sum(), MANY, rate)


def test_persistent_errors_follow_the_normalised_content_whatever_record_it_stands_in():
    channel = make("symmetric", 0.5, persistent=True)
    contents = [f"Answer {n}" for n in range(200)]
    copies = [f"  ANSWER\n {n}" for n in range(200)]
    assert [normalise_content(text) for text in contents] == [normalise_content(text) for text in copies]
    first = channel.apply([1] * 200, ids=IDS[:200], contents=contents)
    assert channel.apply([1] * 200, ids=IDS[200:400], contents=copies).tolist() == first.tolist()
    assert set(first.tolist()) == {-1, 1}


def test_independent_errors_hang_on_the_record_and_not_on_what_it_says():
    channel = make("symmetric", 0.5)
    same = ["the same answer"] * 500
    first = channel.apply([1] * 500, ids=IDS[:500], contents=same)
    assert holds((first < 0).sum(), 500, 0.5)
    assert channel.apply([1] * 500, ids=IDS[:500], contents=IDS[:500]).tolist() == first.tolist()


@given(st.permutations(range(30)), st.integers(1, 29), st.booleans())
def test_neither_order_nor_batches_change_an_error(order, cut, persistent):
    channel = make("fp-heavy", 0.4, persistent=persistent)
    texts = [IDS[n] for n in order]
    truth = [int(TRUTH[n]) for n in order]
    whole = channel.apply(truth, ids=texts, contents=texts).tolist()
    parts = [channel.apply(truth[s], ids=texts[s], contents=texts[s]) for s in (slice(cut), slice(cut, None))]
    assert np.concatenate(parts).tolist() == whole
    alone = dict(zip(IDS, channel.apply(TRUTH[:30], ids=IDS[:30], contents=IDS[:30]).tolist(), strict=False))
    assert whole == [alone[text] for text in texts]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("shared", [0.0, 0.3, 0.8, 1.0])
def test_channels_of_one_cause_err_together_as_far_as_they_share_it(shared, persistent):
    one, two = (
        Channel.make("correlated", 0.2, key=key, cause="c", shared=shared, persistent=persistent)
        for key in "ab"
    )
    found = verifier_errors(*(c.apply(TRUTH, ids=IDS, contents=IDS) for c in (one, two)), TRUTH)
    joint = shared * 0.2 + (1 - shared) * 0.2**2
    assert holds(found.joint_failures, MANY, joint)
    # Three standard errors of a correlation at this size.
    for correlation in (found.correlation_right, found.correlation_wrong):
        assert correlation == pytest.approx(shared, abs=3 / np.sqrt(MANY / 3))
    apart = Channel.make("correlated", 0.2, key="b", cause="other", shared=shared, persistent=persistent)
    found = verifier_errors(*(c.apply(TRUTH, ids=IDS, contents=IDS) for c in (one, apart)), TRUTH)
    assert holds(found.joint_failures, MANY, 0.2**2)


def test_an_exploitable_channel_approves_whatever_holds_its_pattern_and_errs_nowhere_else():
    channel = Channel.make("exploitable", 1.0, pattern="Therefore,  TRUE")
    answers = ["12", "so therefore, true.", "THEREFORE,\nTRUE", "therefore true"]
    assert channel.apply([-1] * 4, ids=list("abcd"), answers=answers).tolist() == [-1, 1, 1, -1]
    assert channel.apply([1] * 4, ids=list("abcd"), answers=answers).tolist() == [1] * 4
    half = Channel.make("exploitable", 0.5, pattern="x", key="k")
    assert holds((half.apply([-1] * MANY, ids=IDS, answers=["x"] * MANY) > 0).sum(), MANY, 0.5)


def test_a_verifier_behind_a_channel_errs_where_the_channel_errs():
    batch = [*items(300, right=150), Item("dead", "", "")]

    def judge(item):
        return Outcome(failure=Failure.TIMEOUT) if item.id == "dead" else matches_reference(item)

    for kind in Kind:
        for persistent in (False, True):
            channel = make(kind, 0.4, persistent=persistent)
            noisy = NoisyVerifier(Stub(judge), channel)
            outcomes = noisy.verify(batch)
            expected = channel.apply(
                [judge(item).sign for item in batch],
                ids=[item.id for item in batch],
                contents=[f"{item.question} {item.completion}" for item in batch],
                answers=[item.completion for item in batch],
                confidence=[1.0] * len(batch),
            )
            assert [outcome.sign for outcome in outcomes] == expected.tolist()
            assert outcomes[-1].failure is Failure.TIMEOUT


def test_an_outcome_does_not_say_that_it_was_turned_round():
    sound = Stub(lambda item: Outcome(verdict=1, confidence=0.7, detail="as it came"))
    (wrong,) = NoisyVerifier(sound, make("symmetric", 1.0)).verify(items(1))
    assert wrong == Outcome(verdict=-1, confidence=0.7, detail="as it came")


def test_all_wordings_of_an_answer_share_a_persistent_error_if_the_answer_is_what_counts():
    stub = Stub(lambda item: Outcome(verdict=1))
    noisy = NoisyVerifier(stub, make("symmetric", 0.5, persistent=True), content=final_answer)
    for answer in range(40):
        wordings = [Item(f"{answer}-{n}", "q", f"wording {n} = {answer}") for n in range(5)]
        assert len({outcome.sign for outcome in noisy.verify(wordings)}) == 1


def test_a_noisy_verifier_says_whether_a_copy_of_a_record_would_be_judged_alike():
    stub = Stub(matches_reference)
    assert NoisyVerifier(stub, make("symmetric")).by_id
    assert not NoisyVerifier(stub, make("symmetric", persistent=True)).by_id
    assert not NoisyVerifier(stub, make("none")).by_id
    inner = NoisyVerifier(stub, make("symmetric"))
    assert NoisyVerifier(inner, make("fp-heavy", persistent=True)).by_id


def test_everything_that_errors_depend_on_is_in_the_digest():
    base = make("correlated", persistent=True)
    others = [
        dataclasses.replace(base, **change)
        for change in (
            {"false_positive": 0.3},
            {"false_negative": 0.3},
            {"key": "other"},
            {"persistent": False},
            {"cause": "other"},
            {"shared": 0.1},
        )
    ]
    others += [make("symmetric"), make("exploitable"), make("exploitable", pattern="yes")]
    assert len({channel.digest for channel in (base, *others)}) == len(others) + 1
    sources = [
        NoisyVerifier(Stub(matches_reference, "a"), base).source,
        NoisyVerifier(Stub(matches_reference, "b"), base).source,
        NoisyVerifier(Stub(matches_reference, "a"), others[0]).source,
        NoisyVerifier(Stub(matches_reference, "a"), base, content=final_answer).source,
    ]
    assert len({source.digest for source in sources}) == 4
    assert sources[0].id == "a+correlated"


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("loud", {}, "one of the channels none, symmetric"),
        ("symmetric", {"rate": 1.2}, r"'false_positive': expected a probability in \[0, 1\], got 1.2"),
        ("symmetric", {"rate": float("nan")}, "a probability"),
        ("fp-heavy", {"rate": 0.7}, "a probability"),
        ("correlated", {"rate": 0.1}, "a cause"),
        ("symmetric", {"rate": 0.1, "cause": "c"}, "for no other"),
        ("exploitable", {"rate": 1.0, "pattern": "  "}, "a pattern"),
        ("symmetric", {"rate": 0.1, "pattern": "x"}, "for no other"),
    ],
)
def test_a_channel_that_makes_no_sense_is_refused(kind, arguments, message):
    with pytest.raises(InputError, match=message):
        Channel.make(kind, **arguments)


@pytest.mark.parametrize(
    ("channel", "missing"),
    [
        (make("symmetric"), "ids"),
        (make("symmetric", persistent=True), "contents"),
        (make("confidence-dependent"), "confidence"),
        (make("exploitable"), "answers"),
    ],
)
def test_what_errors_depend_on_has_to_be_given(channel, missing):
    with pytest.raises(InputError, match=f"argument '{missing}'"):
        channel.apply([1])
    if missing != "confidence":
        with pytest.raises(InputError, match="one text for each of 1 verdicts"):
            channel.apply([1], **{missing: ["a", "b"]})


def test_a_content_function_without_a_name_is_refused_for_its_name_is_part_of_the_source():
    with pytest.raises(InputError, match="a named function"):
        NoisyVerifier(Stub(matches_reference), make("symmetric"), content=lambda item: item.id)
