"""No field that could give the answer away reaches a controller, however deep it hides."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.samples import replaced, tiny
from vapo._internal.oracle import field_tokens, is_oracle_name, oracle_fields
from vapo.errors import InputError
from vapo.records import Records


@pytest.mark.parametrize(
    "name",
    [
        "gold",
        "gold_answer",
        "goldAnswer",
        "GoldAnswer",
        "GOLDANSWER_gold",
        "GOLDanswer",
        "meta.is_correct",
        "isCorrect",
        "HTTPTruth",
        "reward_model",
        "RewardModel",
        "reward.model",
        "signal.label",
        "verdict.oracle",
        "z",
        "clean-sign",
        "x/trigger/y",
        "ground truth",
        "SOLUTION2",
        "y_true",
        "trueAnswer",
        "meta.reference_answer",
        "ExpectedAnswer",
        "is_right",
        "\uff47\uff4f\uff4c\uff44",
    ],
)
def test_a_name_with_an_oracle_word_is_caught(name):
    assert is_oracle_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "target_kl",
        "answer",
        "right",
        "reference_kl",
        "expected_length",
        "final_answer",
        "golding",
        "cleaner",
        "labeller_free",
        "zeta",
        "size",
        "reward",
        "model_reward",
        "correction",
        "IDZone",
        "solutionist",
        "",
        "...",
        "标签",
    ],
)
def test_only_whole_tokens_count(name):
    assert not is_oracle_name(name)


def test_names_split_at_punctuation_and_case_changes():
    assert field_tokens("fooBarBAZQux.2x-y") == ("foo", "bar", "baz", "qux", "2", "x", "y")


deep = {"outer": [{"inner": json.dumps({"x": json.dumps([{"gold_answer": 1}])})}]}
HIDDEN = {
    "a column": ("gold", pa.array([1, 2, 3, 4])),
    "a struct": ("info", pa.array([{"a": {"truth": 1}}] * 4)),
    "a list of structs": ("info", pa.array([[{"truth": 1}]] * 4)),
    "a fixed-size list of structs": (
        "info",
        pa.array([[{"truth": 1}]] * 4, pa.list_(pa.struct([("truth", pa.int64())]), 1)),
    ),
    "a map": ("info", pa.array([[("truth", 1)]] * 4, pa.map_(pa.string(), pa.int64()))),
    "a map inside a struct": (
        "info",
        pa.array([{"m": [("truth", 1)]}] * 4, pa.struct([("m", pa.map_(pa.string(), pa.int64()))])),
    ),
    "a struct inside a map": (
        "info",
        pa.array([[("k", {"truth": 1})]] * 4, pa.map_(pa.string(), pa.struct([("truth", pa.int64())]))),
    ),
    "JSON text": ("info", pa.array([None, "{}", '{"truth": 1}', "x"])),
    "JSON text behind white space": ("info", pa.array([None, "{}", ' \n\t{"truth": 1}', "x"])),
    "JSON in JSON in JSON": ("info", pa.array([json.dumps(deep)] * 4)),
    "a JSON text that is JSON text": ("info", pa.array([json.dumps(json.dumps({"truth": 1}))] * 4)),
    "JSON in a list": ("info", pa.array([['{"truth": 1}']] * 4)),
    "JSON in a struct": ("info", pa.array([{"s": '{"truth": 1}'}] * 4)),
    "JSON in bytes": ("info", pa.array([b'{"truth": 1}'] * 4)),
    "JSON in large text": ("info", pa.array(['{"truth": 1}'] * 4, pa.large_string())),
    "JSON in a dictionary": ("info", pa.array(['{"truth": 1}'] * 4).dictionary_encode()),
    "JSON in a text view": ("info", pa.array(['{"truth": 1}'] * 4, pa.string_view())),
    "JSON in a later chunk": ("info", pa.chunked_array([["x", "y"], ['{"truth": 1}', "{}"]])),
    "the type of an empty list": ("info", pa.array([[]] * 4, pa.list_(pa.struct([("truth", pa.int64())])))),
}


@pytest.mark.parametrize("place", HIDDEN)
def test_an_oracle_is_found_in(place):
    name, column = HIDDEN[place]
    with pytest.raises(InputError, match="give the answer away"):
        Records.from_arrow(replaced(tiny(), **{name: column}))


@pytest.mark.parametrize(
    "metadata",
    [{"gold": "x"}, {"note": '{"deep": [{"gold": 1}]}'}, {"pandas": '{"attributes": {"gold": 1}}'}],
)
def test_an_oracle_is_found_in_metadata_of_table_and_field(metadata, tmp_path):
    table = tiny()
    on_table = table.replace_schema_metadata(metadata)
    on_field = pa.table(
        table.columns, schema=table.schema.set(2, table.schema.field(2).with_metadata(metadata))
    )
    for hidden in (on_table, on_field):
        with pytest.raises(InputError, match="gold"):
            Records.from_arrow(hidden)
        pq.write_table(hidden, tmp_path / "hidden.parquet")
        with pytest.raises(InputError, match="gold"):
            Records.read(tmp_path / "hidden.parquet")


def test_what_hides_nothing_passes_and_is_kept():
    extra = pa.array(['{"final_answer": 1}', "[1, 2", "{", '"quoted"'])
    records = Records.from_arrow(replaced(tiny(), note=extra, scores=pa.array([[0.1, 0.2]] * 4)))
    assert records.extra.column_names == ["note", "scores"]
    assert records.extra.column("note").to_pylist() == extra.to_pylist()


def test_a_waiver_names_the_field_and_is_recorded():
    table = replaced(tiny(), gold=[1, 2, 3, 4], info=pa.array([{"truth": 1}] * 4))
    with pytest.raises(InputError, match="'gold' and 1 more"):
        Records.from_arrow(table)
    with pytest.raises(InputError, match=r"'info\.truth'"):
        Records.from_arrow(table, waivers=["gold"])
    records = Records.from_arrow(table, waivers=["info.truth", "gold", "unused"])
    assert records.waived == ("gold", "info.truth")


def test_a_waived_parent_does_not_waive_what_is_inside():
    table = replaced(tiny(), gold=pa.array([{"gold": 1}] * 4))
    with pytest.raises(InputError, match=r"'gold\.gold'"):
        Records.from_arrow(table, waivers=["gold"])


def test_the_words_can_be_chosen_and_may_be_a_generator():
    table = replaced(tiny(), gold=[1, 2, 3, 4], secret_key=[1, 2, 3, 4])
    words = [("secret", "key")]
    for given in (words, iter(words)):
        assert oracle_fields(table, given) == ["secret_key"]


def test_deep_nesting_neither_hides_nor_breaks_anything():
    shallow = "[" * 300 + '{"gold": 1}' + "]" * 300
    hopeless = "[" * 100_000 + "]" * 100_000
    with pytest.raises(InputError, match="gold"):
        Records.from_arrow(replaced(tiny(), info=[shallow] * 4))
    Records.from_arrow(replaced(tiny(), info=[hopeless] * 4))
