from __future__ import annotations

import dataclasses

import pytest

from vapo.errors import InputError
from vapo.tasks import Oracle, Prompt, Question, Reading, Task, open_task
from vapo.tasks.base import divide, grouped
from vapo.verifiers import Item


def some(count, *, group=lambda number: str(number)):
    return [
        Question(f"q{n}", f"what is {n}?", str(n), group(n), Prompt(f"what is {n}?")) for n in range(count)
    ]


def ids(split):
    return [question.id for question in split]


def test_whole_groups_are_shared_out_and_nothing_is_lost():
    questions = some(90, group=lambda number: str(number // 3))
    splits = divide(questions, {"train": 0.5, "calibration": 0.3, "test": 0.2})
    assert sorted(name for split in splits.values() for name in ids(split)) == sorted(ids(questions))
    assert [len(split) for split in splits.values()] == [45, 27, 18]
    groups = [{question.group for question in split} for split in splits.values()]
    assert sum(map(len, groups)) == len(set.union(*groups))


def test_a_group_keeps_its_split_when_the_questions_are_reordered():
    questions = some(60)
    forward, backward = (divide(some, {"train": 0.5, "test": 0.5}) for some in (questions, questions[::-1]))
    assert set(ids(forward["test"])) == set(ids(backward["test"]))


def test_another_seed_divides_otherwise():
    questions = some(60)
    first, second = (divide(questions, seed=seed)["train"] for seed in (0, 1))
    assert ids(first) != ids(second)


@pytest.mark.parametrize("shares", [{"train": 0.5}, {"train": 1.5, "test": -0.5}])
def test_shares_that_do_not_add_up_are_refused(shares):
    with pytest.raises(InputError, match="add up to 1"):
        divide(some(4), shares)


def test_copies_of_a_question_share_a_group():
    twin = dataclasses.replace(some(1)[0], id="copy", group="copy", text="What  is 0?")
    assert [question.group for question in grouped([*some(1), twin])] == ["0", "0"]


def test_a_task_that_shares_a_content_between_splits_has_no_manifest():
    first = some(1)[0]
    twin = dataclasses.replace(first, id="copy", group="copy")
    task = Task("t", {"train": (first,), "test": (twin,)}, Oracle(Reading.NUMBER), 8)
    with pytest.raises(InputError, match="share no content"):
        task.manifest()


def test_a_split_that_is_not_there_is_named_with_those_that_are():
    task = Task("t", {"train": tuple(some(2)), "test": ()}, Oracle(Reading.NUMBER), 8)
    with pytest.raises(InputError, match="one of the splits train of task 't', got 'test'"):
        task.split("test")
    with pytest.raises(InputError, match="splits among"):
        Task("t", {"practice": tuple(some(2))}, Oracle(Reading.NUMBER), 8)


def test_the_source_changes_with_any_question_answer_or_prompt():
    base = open_task("arithmetic", left=(1, 3), right=(1, 3))
    assert base.source == open_task("arithmetic", left=(1, 3), right=(1, 3)).source
    others = [
        open_task("arithmetic", left=(1, 4), right=(1, 3)),
        open_task("arithmetic", left=(1, 3), right=(1, 3), style="chat"),
        open_task("arithmetic", left=(1, 3), right=(1, 3), seed=1),
        dataclasses.replace(base, oracle=Oracle(Reading.NUMBER)),
    ]
    assert len({base.source, *(task.source for task in others)}) == 5


@pytest.mark.parametrize(
    ("reading", "completion", "answer"),
    [
        (Reading.BARE, "46", "46"),
        (Reading.BARE, " 46.\n", "46"),
        (Reading.BARE, "12+34", None),
        (Reading.BARE, "4 or 6", None),
        (Reading.NUMBER, "so 3 * 4 = 12\n#### 12", "12"),
        (Reading.NUMBER, "no number here", None),
        (Reading.TEXT, "The answer is  North.", "north"),
    ],
)
def test_answers_are_read_as_the_task_reads_them(reading, completion, answer):
    assert reading.answer(completion) == answer


def test_the_oracle_calls_wrong_what_cannot_be_read_and_gives_no_verdict_without_a_reference():
    oracle = Oracle(Reading.NUMBER)
    items = [
        Item("a", "?", "it is 7", "7.0"),
        Item("b", "?", "it is 8", "7"),
        Item("c", "?", "", "7"),
        Item("d", "?", "7"),
    ]
    assert [outcome.sign for outcome in oracle.verify(items)] == [1, -1, -1, 0]


def test_an_unknown_task_or_option_is_named():
    with pytest.raises(InputError, match="one of the tasks arithmetic, gsm8k"):
        open_task("algebra")
    with pytest.raises(
        InputError, match="task 'arithmetic' takes, got got an unexpected keyword argument 'digits'"
    ):
        open_task("arithmetic", digits=2)


def test_a_chat_prompt_and_a_plain_one_say_the_same():
    prompt = Prompt("What is 7 × 14?", system="Be short.", prefill="7 × 14 = ")
    assert [message["content"] for message in prompt.messages] == ["Be short.", "What is 7 × 14?"]
    assert prompt.plain == "Be short.\n\nWhat is 7 × 14?\n\n7 × 14 = "
