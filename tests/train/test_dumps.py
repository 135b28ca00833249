from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vapo.errors import InputError
from vapo.records import Records
from vapo.train.batch import advantages
from vapo.train.dumps import Layout, RewardScale, read_dump


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rollouts(step, scores=(1.0, 0.0, 1.0, 0.0)):
    """Two prompts with two completions each, as verl writes them down."""
    return [
        {
            "input": f"{step} and {n // 2}?",
            "output": f"#### {n % 2}",
            "gts": "0",
            "score": score,
            "step": step,
            "acc": 1,
        }
        for n, score in enumerate(scores)
    ]


@pytest.fixture
def verl(tmp_path):
    for step in (2, 10, 1):
        lines(tmp_path / f"{step}.jsonl", rollouts(step))
    return tmp_path


def test_updates_come_in_the_order_of_their_numbers_and_every_completion_is_there(verl):
    found = read_dump(verl, "verl")
    records = Records.from_arrow(found.table)
    assert records.window_names.to_pylist() == ["1", "2", "10"]
    assert (len(records), records.groups) == (12, 6)
    assert found.table.column("id").to_pylist()[:5] == ["1-0", "1-1", "1-2", "1-3", "2-0"]


def test_the_gold_answer_and_what_nobody_asked_for_stay_behind_and_are_listed(verl):
    found = read_dump(verl, "verl")
    assert set(found.left_out) == {"gts", "acc", "output"}
    assert not {"gts", "acc"} & set(found.table.column_names)


def test_zero_one_rewards_are_verdicts_and_nothing_else(verl):
    found = read_dump(verl, "verl")
    assert found.table.column("y").to_pylist()[:4] == [1, -1, 1, -1]
    assert not found.graded
    assert [name for name in found.table.column_names if name.startswith("signal.")] == ["signal.consistency"]


def test_proposals_are_those_of_the_learner_where_the_dump_does_not_say(verl):
    found = read_dump(verl, "verl", unit=0.2)
    expected = 0.2 * np.abs(advantages([1, 0, 1, 0], [0, 0, 1, 1]))
    assert np.allclose(found.table.column("delta_r").to_pylist()[:4], expected)
    assert found.advantage == ""


def test_the_baseline_of_a_prompt_is_that_of_its_own_update(tmp_path):
    rows = [
        {"prompt": "q", "completion": "1", "reward": r, "step": s}
        for s, r in ((1, 1), (1, 1), (2, 1), (2, 0))
    ]
    found = read_dump(lines(tmp_path / "d.jsonl", rows))
    deltas = found.table.column("delta_r").to_pylist()
    assert deltas[:2] == [0, 0]
    assert min(deltas[2:]) > 0
    assert len(set(found.table.column("group").to_pylist())) == 1


def test_graded_rewards_become_a_verdict_and_a_margin(tmp_path):
    rows = [
        {"prompt": "q", "completion": f"{n}", "reward": r} for n, r in enumerate((0.9, 0.5, 0.4, 0.0, None))
    ]
    found = read_dump(lines(tmp_path / "d.jsonl", rows), scale=RewardScale(at=0.5))
    assert found.table.column("y").to_pylist() == [1, 1, -1, -1, 0]
    assert found.graded
    assert np.allclose(found.table.column("signal.margin").to_pylist(), [0.8, 0.0, 0.2, 1.0, 0.0])
    assert found.table.column("delta_r").to_pylist()[-1] == 0


def test_advantages_that_push_against_their_verdict_are_counted(tmp_path):
    # Both are right by their rewards; the weaker of them is pushed down all the same.
    rows = [{"prompt": "q", "completion": f"{n}", "reward": r} for n, r in enumerate((0.6, 0.9))]
    found = read_dump(lines(tmp_path / "d.jsonl", rows))
    assert found.table.column("y").to_pylist() == [1, 1]
    assert found.against == 1
    rows = [{"prompt": "q", "completion": f"{n}", "reward": r} for n, r in enumerate((0, 1))]
    assert read_dump(lines(tmp_path / "e.jsonl", rows)).against == 0


def test_rewards_from_minus_one_to_one_turn_round_in_the_middle():
    scale = RewardScale(-1, 1)
    assert scale.signs([-1, -0.1, 0.0, 1]).tolist() == [-1, -1, 1, 1]
    assert scale.margin([-1, -0.5, 0.5, 1]).tolist() == [1, 0.5, 0.5, 1]


def test_a_threshold_at_the_top_leaves_no_doubt_about_what_reaches_it():
    assert RewardScale(at=1.0).margin([1.0, 0.75, 0.0]).tolist() == [1.0, 0.25, 1.0]
    for wrong in (
        (RewardScale, {"low": 1.0, "high": 0.0}),
        (RewardScale, {"at": 2.0}),
        (RewardScale, {"at": 0.0}),
    ):
        with pytest.raises(InputError, match="low < threshold <= high"):
            wrong[0](**wrong[1])


def test_self_consistency_is_counted_on_final_answers_and_turned_towards_the_verdict(tmp_path):
    texts = ["so 7", "it is 7.", "#### 8", "who knows"]
    rows = [{"prompt": "q", "completion": t, "reward": r} for t, r in zip(texts, (1, 1, 0, 0), strict=True)]
    found = read_dump(lines(tmp_path / "d.jsonl", rows))
    assert found.table.column("signal.consistency").to_pylist() == [0.5, 0.5, 0.75, 1.0]


def test_what_trl_writes_down_is_read_with_its_advantages_and_other_rewards(tmp_path):
    said = [{"role": "user", "content": "3+4?"}]
    table = pa.table(
        {
            "step": [1, 1],
            "prompt": [said, said],
            "completion": [[{"role": "assistant", "content": text}] for text in ("7", "8")],
            "exact": [1.0, float("nan")],
            "format": [0.0, 1.0],
            "advantage": [0.7, -0.7],
        }
    )
    pq.write_table(table, tmp_path / "completions_00001.parquet")
    found = read_dump(tmp_path, "trl", reward="exact", verdicts={"format": "format"})
    assert found.table.column("y").to_pylist() == [1, 0]
    assert found.table.column("verdict.format").to_pylist() == [-1, 1]
    assert found.table.column("content").to_pylist() == ["3+4?"] * 2
    assert np.allclose(found.table.column("delta_r").to_pylist(), [0.07, 0.07])
    assert found.advantage == "advantage"
    with pytest.raises(InputError, match=r"the name of the reward field \(--reward NAME\), got 2"):
        read_dump(tmp_path, "trl")


@pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing.*` is deprecated:FutureWarning")
def test_the_dump_that_the_installed_trl_writes_is_read(tmp_path):
    pytest.importorskip("trl")
    from trl import GRPOConfig, GRPOTrainer

    datasets = pytest.importorskip("datasets")
    from tests.train.models.tiny import embedded
    from vapo.train.models import trl_parts

    model, tokenizer = trl_parts(embedded())

    def near_seven(completions, **_):
        return [1.0 if "7" in text else 0.0 for text in completions]

    settings = GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_generations=4, max_completion_length=4,
        max_steps=2, logging_steps=1, log_completions=True, report_to=[], use_cpu=True, bf16=False,
        activation_checkpointing=False, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=near_seven,
        args=settings,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["1+2=", "3+4=", "5+6="]}),
    )
    trainer.train()
    found = read_dump(tmp_path / "completions", "trl")
    records = Records.from_arrow(found.table)
    assert (len(records), found.reward, found.advantage) == (16, "near_seven", "advantage")
    assert records.window_names.to_pylist() == ["1", "2"]


def test_what_openrlhf_writes_down_is_one_window(tmp_path):
    rows = [{"input": f"{n // 4}?", "output": "1", "reward": float(n % 2)} for n in range(8)]
    found = read_dump(lines(tmp_path / "out.jsonl", rows), "openrlhf")
    assert "window" not in found.table.column_names
    assert len(Records.from_arrow(found.table)) == 8


def test_a_layout_of_ones_own_names_fields_signals_and_the_end_of_a_completion(tmp_path):
    rows = [
        {"q": "1?", "a": "1", "r": 1, "p": 0.9, "done": True},
        {"q": "1?", "a": "2", "r": 0, "p": 0.6, "done": False},
    ]
    layout = Layout("q", "a", "r", finished="done")
    found = read_dump(lines(tmp_path / "d.jsonl", rows), layout, signals={"confidence": "p"})
    assert found.table.column("signal.confidence").to_pylist() == [0.9, 0.4]
    assert found.table.column("signal.finished").to_pylist() == [1.0, 1.0]
    assert found.left_out == ("a",)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"completion": "1", "reward": 1}], "a field 'prompt'"),
        (
            [{"prompt": "q", "completion": "1", "reward": 2}],
            "row 1: field 'reward': expected a number in [0, 1], got 2",
        ),
        ([{"prompt": "q", "completion": "1", "reward": "high"}], "row 1: field 'reward'"),
        ([{"prompt": 3, "completion": "1", "reward": 1}], "row 1: field 'prompt': expected text"),
        ([{"prompt": "q", "completion": None, "reward": 1}], "row 1: field 'completion': expected text"),
    ],
)
def test_a_row_that_does_not_fit_is_named(tmp_path, rows, message):
    with pytest.raises(InputError) as said:
        read_dump(lines(tmp_path / "d.jsonl", rows))
    assert message in str(said.value)


def test_files_with_other_fields_an_empty_folder_and_an_unknown_layout_are_named(tmp_path, verl):
    lines(verl / "3.jsonl", [{"input": "q", "output": "1", "score": 1, "step": 3}])
    with pytest.raises(InputError, match=r"3\.jsonl: expected the same fields in every file"):
        read_dump(verl, "verl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="none in it"):
        read_dump(tmp_path / "empty", "verl")
    with pytest.raises(InputError, match="one of trl, verl"):
        read_dump(verl, "ppo")


@pytest.mark.parametrize("text", ['{"correct": true, "solution": 7}', '[{"solution": 7}]', "[{", "[{}] = 7"])
def test_a_completion_that_looks_like_json_is_a_text_and_no_oracle_field(tmp_path, text):
    rows = [{"prompt": "q", "completion": text, "reward": 1}] * 2
    assert len(read_dump(lines(tmp_path / "d.jsonl", rows)).table) == 2


def test_conversations_in_json_lines_are_read_message_by_message(tmp_path):
    said = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "3+4?"}]
    rows = [{"prompt": said, "completion": [{"role": "assistant", "content": "7"}], "reward": 1}] * 2
    table = read_dump(lines(tmp_path / "d.jsonl", rows)).table
    assert table.column("content").to_pylist() == ["Be short.\n\n3+4?"] * 2
    assert table.column("signal.consistency").to_pylist() == [1.0, 1.0]
