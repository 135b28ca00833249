from __future__ import annotations

import pytest

from vapo.errors import InputError
from vapo.tasks import open_task
from vapo.verifiers import Item


def test_neither_order_of_a_held_out_pair_is_in_another_split():
    task = open_task("arithmetic")
    place = {}
    for name, split in task.splits.items():
        for question in split:
            pair = tuple(sorted(question.text.split("+")))
            assert place.setdefault(pair, name) == name
    assert len(place) == 90 * 91 // 2
    assert set(task.manifest().overlaps.values()) == {0}


def test_both_orders_of_every_pair_are_asked_about_once():
    task = open_task("arithmetic")
    texts = [question.text for split in task.splits.values() for question in split]
    assert len(texts) == len(set(texts)) == 90 * 90


@pytest.mark.parametrize(
    ("operator", "text", "reference"), [("+", "12+7", "19"), ("-", "7-12", "-5"), ("*", "12*7", "84")]
)
def test_every_operator_has_right_answers(operator, text, reference):
    task = open_task("arithmetic", operator=operator, left=(2, 9), right=(11, 19))
    found = {question.text: question for split in task.splits.values() for question in split}
    question = found[text]
    assert question.reference == reference
    assert [o.sign for o in task.oracle.verify([Item("a", text, reference, question.reference)])] == [1]


def test_the_chat_style_begins_the_answer_and_leaves_only_the_number_to_write():
    task = open_task(
        "arithmetic", operator="*", left=(7, 7), right=(14, 14), style="chat", shares={"train": 1.0}
    )
    question = task.split("train")[0]
    assert question.prompt.user == "What is 7 * 14?"
    assert question.prompt.prefill == "7 * 14 = "
    assert task.answer("98.") == "98"


def test_the_cap_leaves_room_for_the_longest_answer_and_its_end():
    assert open_task("arithmetic").max_tokens > len("198")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator": "/"}, "one of"),
        ({"left": (9, 2)}, "the smaller first"),
        ({"right": (0.5, 2)}, "whole numbers"),
        ({"left": (0, 999), "right": (0, 999)}, "at most 250,000 pairs"),
        ({"style": "verse"}, "plain chat"),
    ],
)
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        open_task("arithmetic", **options)
