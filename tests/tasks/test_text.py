from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vapo.errors import InputError
from vapo.tasks import open_task
from vapo.verifiers import Item

GSM = [
    {"question": f"Tom has {n} hats and buys 3. How many?", "answer": f"{n}+3=\n#### {n + 3}"}
    for n in range(20)
]


def data(*parts: str) -> Path:
    """A file or folder of the public data; the test is skipped where it is not at hand."""
    root = Path(os.environ.get("VAPO_SHARED_DATA", Path(__file__).parents[2].parent / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"no public data in {root}; name their folder in VAPO_SHARED_DATA")
    return root.joinpath(*parts)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def gsm(folder):
    write(folder / "train.jsonl", GSM[:16])
    write(folder / "test.jsonl", GSM[16:])
    return folder


def test_all_of_gsm8k_is_read_and_its_published_answers_are_right():
    task = open_task("gsm8k", path=data("gsm8k"))
    sizes = {name: len(split) for name, split in task.splits.items()}
    assert sum(sizes.values()) == 7473 + 1319
    assert sizes["test"] == 1319
    assert set(task.manifest().overlaps.values()) == {0}
    rows = [json.loads(line) for line in data("gsm8k", "test.jsonl").read_text(encoding="utf-8").splitlines()]
    items = [
        Item(question.id, question.text, row["answer"], question.reference)
        for question, row in zip(task.split("test"), rows, strict=True)
    ]
    assert {outcome.sign for outcome in task.oracle.verify(items)} == {1}


def test_all_of_svamp_is_read_with_copies_kept_together():
    task = open_task("svamp", path=data("svamp", "SVAMP.json"))
    assert sum(len(split) for split in task.splits.values()) == 1000
    assert set(task.manifest().overlaps.values()) == {0}
    found = {question.text: question for split in task.splits.values() for question in split}
    text = "Each pack of dvds costs 76 dollars. If there is a discount of 25 dollars on each pack. "
    assert found[text + "How much do you have to pay to buy each pack?"].reference == "51"


def test_the_published_test_split_stays_whole(tmp_path):
    task = open_task("gsm8k", path=gsm(tmp_path))
    assert [question.reference for question in task.split("test")] == ["19", "20", "21", "22"]
    assert sum(len(task.split(name)) for name in ("train", "calibration", "held-out")) == 16


def test_a_published_test_question_among_the_training_questions_is_refused(tmp_path):
    gsm(tmp_path)
    write(tmp_path / "test.jsonl", [GSM[0]])
    with pytest.raises(InputError, match="share no content"):
        open_task("gsm8k", path=tmp_path)


def test_the_same_task_comes_through_the_datasets_library(tmp_path):
    pytest.importorskip("datasets")
    folder = gsm(tmp_path)
    local, loaded = open_task("gsm8k", path=folder), open_task("gsm8k", dataset=str(folder))
    assert local.source == loaded.source
    by_name = open_task("jsonl", path=f"hub:{folder}", shares={"train": 1.0}, reading="text")
    assert [question.text for question in by_name.split("train")] == [row["question"] for row in GSM[:16]]


def test_a_dataset_that_cannot_be_had_is_an_input_error(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="dataset 'nobody/nothing-of-that-name'"):
        open_task("gsm8k", dataset="nobody/nothing-of-that-name")


def test_any_json_lines_make_a_task_with_ids_and_groups_of_their_own(tmp_path):
    rows = [{"n": n, "topic": f"t{n % 4}", "ask": f"Capital of {n}?", "say": f"City {n}"} for n in range(12)]
    path = write(tmp_path / "any.jsonl", rows)
    task = open_task(
        "jsonl", path=path, question="ask", answer="say", id="n", group="topic", reading="text",
        shares={"train": 0.5, "test": 0.5}, wording={"system": "", "user": "{question} Answer: "},
    )  # fmt: skip
    assert {question.group for question in task.split("train")}.isdisjoint(
        question.group for question in task.split("test")
    )
    question = next(q for split in task.splits.values() for q in split if q.id == "3")
    assert question.prompt.plain == "Capital of 3? Answer: "
    assert (
        task.oracle.verify([Item("3", question.text, "The answer is  CITY 3.", question.reference)])[0].sign
        == 1
    )


def test_numbers_as_answers_are_taken_as_they_are(tmp_path):
    path = write(tmp_path / "n.jsonl", [{"question": f"{n}?", "answer": n / 2} for n in range(4)])
    task = open_task("jsonl", path=path, shares={"train": 1.0})
    assert [question.reference for question in task.split("train")] == ["0", "1/2", "1", "3/2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            '{"question": "a?", "answer": "twelve"}',
            "line 1: expected an answer that is a number, got 'twelve'",
        ),
        ('{"question": "", "answer": "1"}', "line 1: expected text in field 'question'"),
        ('{"question": "a?"}', "line 1: expected text or a number in field 'answer', got None"),
        ('{"question": "a?", "answer": true}', "got True"),
        ("[1]", "line 1: expected an object, got list"),
        ("{", "line 1: expected JSON"),
        ('{"question": "a?", "question": "b?", "answer": "1"}', "'question' twice"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(InputError) as said:
        open_task("jsonl", path=path)
    assert message in str(said.value)
    assert str(path) in str(said.value)


def test_an_id_that_comes_twice_is_named(tmp_path):
    path = write(tmp_path / "twice.jsonl", [{"id": "a", "question": f"{n}?", "answer": n} for n in range(2)])
    with pytest.raises(InputError, match=r"line 2: expected each id once, got 'a'"):
        open_task("jsonl", path=path, id="id")


def test_a_missing_file_and_a_wrong_wording_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="a file with questions"):
        open_task("jsonl", path=tmp_path / "none.jsonl")
    path = write(tmp_path / "n.jsonl", [{"question": "1?", "answer": 1}])
    for wording, message in (({"user": "no place"}, "question"), ({"tone": "kind"}, "fields system, user")):
        with pytest.raises(InputError, match=message):
            open_task("jsonl", path=path, wording=wording)


def test_braces_in_a_question_mean_nothing(tmp_path):
    path = write(tmp_path / "n.jsonl", [{"question": "{0} {question} {", "answer": 1}])
    task = open_task(
        "jsonl", path=path, shares={"train": 1.0}, wording={"user": "Q: {question}", "system": ""}
    )
    assert task.split("train")[0].prompt.user == "Q: {0} {question} {"
