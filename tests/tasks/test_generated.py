from __future__ import annotations

import json

import pytest

from vapo.errors import InputError
from vapo.tasks import Reading, open_task
from vapo.verifiers import Item

pytest.importorskip("reasoning_gym")


def test_gsm_symbolic_has_numbers_as_answers_and_is_the_same_every_time():
    first, again = (open_task("reasoning-gym", size=60, seed=3) for _ in range(2))
    assert first.source == again.source
    assert first.oracle.reading is Reading.NUMBER
    assert first.source != open_task("reasoning-gym", size=60, seed=4).source
    questions = [question for split in first.splits.values() for question in split]
    items = [Item(q.id, q.text, f"So it is\n#### {q.reference}", q.reference) for q in questions]
    assert {outcome.sign for outcome in first.oracle.verify(items)} == {1}


def test_an_answer_that_is_no_number_is_judged_by_the_rule_of_its_dataset():
    task = open_task("reasoning-gym", dataset="countdown", size=10, seed=1)
    question = task.split("train")[0]
    assert task.oracle.reading is Reading.TEXT
    numbers = [int(n) for n in question.text.partition("numbers: ")[2].partition(".")[0].split(", ")]
    wrong = "+".join(map(str, numbers))
    right = json.loads(question.reference)["answer"]
    items = [Item("a", question.text, answer, question.reference) for answer in (right, wrong, "")]
    assert [outcome.sign for outcome in task.oracle.verify(items)] == [1, -1, -1]


def test_copies_that_a_generator_makes_are_never_in_two_splits():
    task = open_task("reasoning-gym", dataset="chain_sum", size=300, config={"max_terms": 2, "max_digits": 1})
    texts = [question.text for split in task.splits.values() for question in split]
    assert len(set(texts)) < len(texts) == 300
    assert set(task.manifest().overlaps.values()) == {0}


@pytest.mark.parametrize("options", [{"dataset": "no_such_set"}, {"config": {"no_such_setting": 1}}])
def test_what_reasoning_gym_does_not_know_is_an_input_error(options):
    with pytest.raises(InputError, match="reasoning-gym"):
        open_task("reasoning-gym", **options)


def test_an_answer_that_is_a_program_does_not_run_in_this_process(tmp_path):
    task = open_task("reasoning-gym", dataset="countdown", size=10, seed=1)
    question = task.split("train")[0]
    program = f"[open('{tmp_path / 'mark'}', 'w')]"
    outcome = task.oracle.verify([Item("a", question.text, program, question.reference)])[0]
    assert outcome.sign != 1
    assert not (tmp_path / "mark").exists()
