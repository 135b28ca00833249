"""What passes the customs house, what does not, and how a refusal names file, row and field."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.samples import records, replaced, tiny, without, world
from vapo._internal.files import write_table
from vapo.errors import InputError, VapoError
from vapo.records import Labels, Records, Source, find_leaks, find_redundant, normalise_content
from vapo.records.model import DIGESTED

ONE, OTHER = "1" * 64, "2" * 64
NAN, INF = float("nan"), float("inf")

WRONG = [
    ("id", ["a", "b", "a", "d"], "row 3: field 'id': expected each id once, got 'a' as in row 1"),
    ("id", ["a", "", "c", "d"], "row 2: field 'id'"),
    ("id", ["a", "b", None, "d"], "row 3: field 'id'.*null"),
    ("id", [1.5, 2.5, 3.5, 4.5], "row 1: field 'id'.*1.5"),
    ("group", ["p", None, "r", "s"], "row 2: field 'group'.*null"),
    ("group", [["p"]] * 4, "row 1: field 'group'"),
    ("group", ["p", "q", "", "s"], "row 3: field 'group': expected a group, got an empty one"),
    ("y", [1, -1, 2, 0], r"row 3: field 'y': expected a sign in \{-1, 0, \+1\}, got 2"),
    ("y", [1, None, 1, 0], "row 2: field 'y'.*null"),
    ("y", [1, 0.5, 1, 0], "row 2: field 'y'.*0.5"),
    ("y", [1, NAN, 1, 0], "row 2: field 'y'.*nan"),
    ("y", [True, False, True, True], "row 1: field 'y'.*True"),
    ("y", ["1", "-1", "yes", "0"], "row 3: field 'y'.*yes"),
    ("y", ["1", "-1", "1e999", "0"], "row 3: field 'y'"),
    ("signal.conf", [0.9, 1.1, 0.1, 0.2], r"row 2: field 'signal\.conf'.*1\.1"),
    ("signal.conf", [0.9, 0.1, -0.1, 0.2], r"row 3: field 'signal\.conf'.*-0\.1"),
    ("signal.conf", [NAN, 0.1, 0.1, 0.2], r"row 1: field 'signal\.conf'.*nan"),
    ("signal.conf", [0.1, 0.1, 0.1, INF], r"row 4: field 'signal\.conf'.*inf"),
    ("signal.conf", [0.1, None, 0.1, 0.2], r"row 2: field 'signal\.conf'.*null_signals\.conf = 0\.0\)"),
    ("signal.conf", ["0.1", "x", "0.1", "0.2"], r"row 2: field 'signal\.conf'.*x"),
    ("signal.conf", ["0.1", "0.1", "nan", "0.2"], r"row 3: field 'signal\.conf'"),
    ("signal.conf", [[0.1]] * 4, r"row 1: field 'signal\.conf'"),
    ("verdict.v", [1, 0, 3, -1], r"row 3: field 'verdict\.v'.*3"),
    ("verdict.v", [1, 0, NAN, -1], r"row 3: field 'verdict\.v'.*nan"),
    ("order", [4, 2, 4, 1], "row 3: field 'order': expected each order once, got 4 as in row 1"),
    ("order", [4, 2, None, 1], "row 3: field 'order'.*null"),
    ("order", [4, 2.5, 3, 1], "row 2: field 'order'.*2.5"),
    ("order", [4, 2, 2**63 - 1, 1], "row 3: field 'order'"),
    ("window", ["u", "v", None, "w"], "row 3: field 'window'.*null"),
    ("delta_r", [0.1, -0.1, 0.1, 0.1], "row 2: field 'delta_r'.*-0.1"),
    ("delta_r", [0.1, 0.1, INF, 0.1], "row 3: field 'delta_r'.*inf"),
    ("delta_r", [0.1, 0.1, None, 0.1], "row 3: field 'delta_r'.*null"),
    ("kl", [0.1, 0.1, 0.1, NAN], "row 4: field 'kl'.*nan"),
    ("y2", [1, -2, 0, 0], "row 2: field 'y2'.*-2"),
    ("content", [b"x"] * 4, "row 1: field 'content'"),
]


@pytest.mark.parametrize(("field", "values", "said"), WRONG, ids=[f"{w[0]}-{i}" for i, w in enumerate(WRONG)])
def test_a_wrong_value_is_refused_with_row_and_field_named(field, values, said):
    with pytest.raises(InputError, match=said):
        records(**{field: values})


@pytest.mark.parametrize(("c2", "said"), [([1, 2, 0, 0], "row 2"), ([1, 1, NAN, 1], "row 3")])
def test_a_confidence_of_the_secondary_is_a_probability(c2, said):
    with pytest.raises(InputError, match=f"{said}: field 'c2'"):
        records(y2=[1, 1, 1, 1], c2=c2)


def test_rows_are_those_of_the_file_even_where_order_and_window_sort_them(tmp_path):
    table = tiny(order=[3, 1, 2, 0], window=["v", "u", "v", "u"])
    write_table(replaced(table, signal__conf=[0.1, 0.2, 7.0, 0.3]), tmp_path / "r.csv")
    with pytest.raises(InputError, match=r"r\.csv: row 3: field 'signal\.conf': expected a finite number in"):
        Records.read(tmp_path / "r.csv")
    sorted_rows = Records.from_arrow(table)
    assert sorted_rows.id.to_pylist() == ["d", "b", "c", "a"]
    assert sorted_rows.row.tolist() == [3, 1, 2, 0]


@pytest.mark.parametrize("field", ["id", "group", "y", "signal.conf"])
def test_a_missing_column_is_named(field):
    with pytest.raises(InputError, match=field.partition(".")[0]):
        records(**{field: None})


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"signal.": [0.1] * 4}, "a name behind"),
        ({"verdict.conf": [1] * 4}, "different names"),
        ({"verdict.v.score": [0.5] * 4}, r"'verdict\.v' beside"),
        ({"c2": [0.5] * 4}, "'y2' beside 'c2'"),
        ({"y2_source": ["s"] * 4}, "'y2' beside 'y2_source'"),
    ],
)
def test_a_column_without_its_partner_is_refused(columns, said):
    with pytest.raises(InputError, match=said):
        records(**columns)


def test_no_record_at_all_is_refused():
    with pytest.raises(InputError, match="at least one record"):
        Records.from_arrow(tiny().slice(0, 0))


def test_a_null_signal_takes_the_value_that_was_declared_for_it():
    table = tiny(**{"signal.conf": [0.1, None, 0.3, None]})
    taken = Records.from_arrow(table, null_signals={"conf": 0.25})
    assert taken.signals["conf"].tolist() == [0.1, 0.25, 0.3, 0.25]
    for wrong in ({"conf": 2.0}, {"conf": NAN}, {"other": 0.5}):
        with pytest.raises(InputError, match="null_signals"):
            Records.from_arrow(table, null_signals=wrong)


def test_the_same_values_may_come_in_any_sensible_type():
    plain = records().to_arrow()
    decimals = pa.array([0.9, 0.4, 0.6, 0.5]).cast(pa.decimal128(5, 3))
    for columns in (
        {"y": [1.0, -1.0, 1.0, 0.0]},
        {"y": ["1", "-1", "1", "0"]},
        {"y": pa.array([1, -1, 1, 0], pa.int8())},
        {"id": pa.array(["a", "b", "c", "d"]).dictionary_encode()},
        {"id": pa.array(["a", "b", "c", "d"], pa.large_string())},
        {"id": pa.array(["a", "b", "c", "d"], pa.string_view())},
        {"signal.conf": decimals},
        {"signal.conf": ["0.9", "0.4", "0.6", "0.5"]},
    ):
        assert records(**columns).to_arrow().equals(plain), columns


def test_a_column_of_a_type_that_pandas_added_is_kept_as_it_is_stored_and_searched_for_a_leak():
    table = pa.table(
        {"id": [str(i) for i in range(12)], "group": ["g"] * 12, "y": [1] * 12, "signal.s": [0.5] * 12}
    )
    months = pd.PeriodIndex(["2024-01"] * 6 + ["2024-02"] * 6, freq="M")
    spans = pd.interval_range(0, 12)
    taken = Records.from_pandas(table.to_pandas().assign(month=months, span=spans))
    assert taken.extra.schema.field("month").type == pa.int64()
    assert pa.types.is_struct(taken.extra.schema.field("span").type)
    assert find_leaks(taken, np.repeat([-1, 1], 6).astype(np.int8)) == ["month"]


@pytest.mark.parametrize("given", [None, [{"id": 1}], {"id": [1]}])
def test_what_is_no_table_is_called_by_its_name(given):
    with pytest.raises(InputError, match=f"data frame or an Arrow table, got {type(given).__name__}$"):
        Records.from_pandas(given)


def test_a_named_index_of_a_data_frame_is_a_column_and_a_nameless_one_a_numbering():
    frame = tiny().to_pandas()
    for shown in (
        frame.set_index("id"),
        frame.set_index(["group", "id"]),
        frame.set_index("id", drop=False),
        frame.rename(index=lambda row: 7),
        frame.set_index("id").sort_values("y", kind="stable").loc[frame.id],
    ):
        assert Records.from_pandas(shown).to_arrow().sort_by("order").equals(records().to_arrow())
        assert not Records.from_pandas(shown).extra.num_columns
    assert len(Labels.from_pandas(pd.DataFrame({"z": [1, -1]}, index=pd.Index(["a", "b"], name="id")))) == 2
    with pytest.raises(InputError, match="give the answer away"):
        Records.from_pandas(frame.set_index(pd.Index([1, 1, 1, 1], name="gold")))


def test_pandas_frames_are_taken_and_broken_ones_refused():
    frame = tiny().to_pandas()
    assert Records.from_pandas(frame).to_arrow().equals(records().to_arrow())
    categorical = frame.assign(group=frame["group"].astype("category"))
    assert Records.from_pandas(categorical).to_arrow().equals(records().to_arrow())
    for broken in (frame.assign(id=[1, "x", None, 2.5]), frame.to_dict(), 7, None, [frame]):
        with pytest.raises(InputError):
            Records.from_pandas(broken)
    with pytest.raises(InputError, match="row 2"):
        Records.from_pandas(frame.assign(**{"signal.conf": [0.1, np.nan, 0.2, 0.3]}))


class Stream:
    """Something that only speaks Arrow's C stream, as other data frames do."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def test_any_frame_that_speaks_arrow_is_taken():
    assert Records.from_pandas(Stream(tiny())).to_arrow().equals(records().to_arrow())


def test_unknown_columns_are_kept():
    kept = records(note=["w", "x", "y", "z"], when=pd.to_datetime(["2024-01-01"] * 4))
    assert kept.extra.column_names == ["note", "when"]
    assert Records.from_arrow(kept.to_arrow()).to_arrow().equals(kept.to_arrow())


def test_windows_come_in_the_order_in_which_they_begin_and_records_by_order_inside():
    table = tiny(window=["late", "early", "late", "early"], order=[5, 9, 6, 1])
    taken = Records.from_arrow(table)
    assert taken.id.to_pylist() == ["d", "b", "a", "c"]
    assert taken.window_names.to_pylist() == ["early", "late"]
    assert taken.window_starts().tolist() == [0, 2]


def test_without_windows_all_records_share_one_and_file_order_is_the_order():
    taken = records()
    assert not taken.windowed
    assert taken.window_starts().tolist() == [0]
    assert taken.order.tolist() == [0, 1, 2, 3]


# Groups and content


def test_groups_that_share_a_content_are_one_in_a_chain_of_any_length():
    taken = Records.from_arrow(
        tiny(
            id=list("abcdef"),
            group=["g5", "g1", "g1", "g2", "g2", "lone"],
            y=[1] * 6,
            **{"signal.conf": [0.5] * 6},
            content=["Two  plus TWO", "\uff54\uff57\uff4f plus two", "x", "\tX\n", None, None],
        )
    )
    assert taken.groups == 2
    assert taken.largest_group == 5
    assert taken.group_names.take(pa.array(taken.group)).to_pylist() == ["g1"] * 5 + ["lone"]
    assert taken.declared_groups.to_pylist() == ["g5", "g1", "g1", "g2", "g2", "lone"]


def test_joined_groups_survive_being_stored_cut_and_taken_in_again():
    table = replaced(world(60, per_group=2)[0], content=[f"text {i % 25}" for i in range(60)])
    taken = Records.from_arrow(table)
    again = Records.from_arrow(taken.to_arrow())
    assert again.groups == taken.groups == len(set(taken.group))
    assert again.to_arrow().equals(taken.to_arrow())
    assert taken.to_arrow().schema.field("content").metadata == DIGESTED
    some = taken.take(np.flatnonzero(taken.group == taken.group[0]))
    assert some.groups == 1
    assert set(some.declared_groups.to_pylist()) <= set(taken.declared_groups.to_pylist())


@given(st.text())
def test_normalising_twice_is_normalising_once_and_forgets_case_and_space(text):
    once = normalise_content(text)
    assert normalise_content(f"  {text}\n") == once
    assert " ".join(once.split()) == once


# Signals, sources


def test_a_verdict_counts_as_agreement_or_as_its_grade_turned_round():
    taken = records(
        y=[1, -1, -1, 1],
        **{
            "verdict.v": [1, 1, -1, 0],
            "verdict.w": [1, -1, -1, 0],
            "verdict.w.score": [0.8, 0.3, None, None],
        },
    )
    assert taken.trust("v").tolist() == [1.0, 0.0, 1.0, 0.0]
    assert taken.trust("w").tolist() == [0.8, 0.7, 1.0, 0.0]
    with pytest.raises(InputError, match="one of the signals conf, v, w"):
        taken.trust("u")


def source(name, digest):
    return Source(name, digest)


@pytest.mark.parametrize(
    ("declared", "columns", "said"),
    [
        ({"signal.conf": source("m", ONE), "verdict.v": source("n", ONE)}, {}, "source-distinct signals"),
        ({"primary": source("m", ONE), "s": source("m", OTHER)}, {}, "other than the primary"),
        ({"primary": source("m", ONE), "s": source("n", ONE)}, {}, "other than the primary"),
        ({}, {"y2_source": ["primary"] * 4}, "other than the primary"),
        (
            {"primary": source("m", ONE), "y2": source("m", OTHER)},
            {"y2_source": None},
            "other than the primary",
        ),
        ({"primary": source("m", "xyz")}, {}, "SHA-256"),
        ({"primary": source("m", "A" * 64)}, {}, "SHA-256"),
    ],
)
def test_sources_that_are_not_distinct_are_refused_before_anything_runs(declared, columns, said):
    table = tiny(**{"verdict.v": [1] * 4, "y2": [1] * 4, "y2_source": ["s"] * 4} | columns)
    with pytest.raises(InputError, match=said):
        Records.from_arrow(table, sources=declared)


def test_undeclared_sources_take_the_name_of_their_column_and_say_so():
    taken = records(y2=[1] * 4, y2_source=["s", "t", "s", "t"])
    assert set(taken.sources) == {"primary", "signal.conf", "s", "t"}
    assert not any(one.declared for one in taken.sources.values())
    assert taken.secondary_names == ("s", "t")
    assert records(y2=[1] * 4).secondary_names == ("y2",)
    declared = taken.with_sources({"s": source("n", ONE)})
    assert declared.sources["s"].declared


def test_an_answer_without_a_source_beside_answers_with_one_is_refused():
    with pytest.raises(InputError, match="row 2: field 'y2_source'"):
        records(y2=[1, 1, 0, 0], y2_source=["s", None, None, "s"])
    assert records(y2=[1, 0, 0, 0], y2_source=["s", None, None, None]).secondary_names == ("s",)


# Screens


def test_a_signal_that_is_a_function_of_another_is_found():
    levels = np.array([0.2, 0.4, 0.2, 0.4, 0.6, 0.6])
    assert find_redundant({"c": levels, "a": np.minimum(2 * levels, 1)}) == ("a", "c")
    assert find_redundant({"c": levels, "a": np.array([0.1, 0.4, 0.2, 0.4, 0.6, 0.6])}) is None


def test_a_signal_with_many_values_or_lonely_ones_makes_nobody_redundant():
    many = np.repeat(np.arange(33) / 33, 2)
    assert find_redundant({"c": many, "a": many**2}) is None
    few = np.repeat(np.arange(32) / 32, 2)
    assert find_redundant({"c": few, "a": few**2}) == ("a", "c")
    lonely = np.append(few, 0.999)
    assert find_redundant({"c": lonely, "a": lonely**2}) is None


def leaks(**columns):
    n = 40
    z = np.array([1, -1] * (n // 2), np.int8)
    base = {
        "id": [str(i) for i in range(n)],
        "group": [str(i) for i in range(n)],
        "y": [1, 1, -1, -1] * (n // 4),
    }
    rng = np.random.default_rng(0)
    table = pa.table({**base, "signal.s": rng.random(n), **{k: pa.array(v(z)) for k, v in columns.items()}})
    return find_leaks(Records.from_arrow(table), z)


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.uint64(), pa.timestamp("ns"), pa.decimal128(38, 2), pa.decimal32(9, 2), pa.null()]
)
def test_columns_of_any_kind_and_size_can_be_looked_at_for_leaks(kind):
    most = 1_700_000_000_000_000_000 if kind in (pa.int64(), pa.uint64(), pa.timestamp("ns")) else 700_000
    values = [None] * 12 if pa.types.is_null(kind) else [most + 1001 * (i % 7) for i in range(12)]
    table = pa.table(
        {"id": [str(i) for i in range(12)], "group": ["g"] * 12, "y": [1] * 12, "signal.s": [0.5] * 12}
    )
    table = table.append_column("note", pa.array(values, kind))
    assert find_leaks(Records.from_arrow(table), np.repeat([-1, 1], 6).astype(np.int8)) == []


@pytest.mark.parametrize(
    "leak",
    [
        lambda z: (z > 0).astype(float),
        lambda z: np.linspace(0, 0.4, len(z)) + (z > 0) / 2,
        lambda z: ["good" if sign > 0 else "bad" for sign in z],
        lambda z: [bool(sign > 0) for sign in z],
        lambda z: [1.0 if sign > 0 else None for sign in z],
        lambda z: [None if sign > 0 else "failed" for sign in z],
        lambda z: [3 if sign > 0 else 7 for sign in z],
    ],
)
def test_a_column_that_knows_the_label_is_suspected(leak):
    assert leaks(hint=leak) == ["hint"]


def test_an_innocent_column_is_not_suspected():
    assert (
        leaks(note=lambda z: ["x", "y", "x", "x"] * (len(z) // 4), number=lambda z: list(range(len(z)))) == []
    )
    assert leaks(**{"signal.t": lambda z: (z > 0).astype(float)}) == ["signal.t"]


# Labels


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"id": ["a"], "z": [0]}, r"row 1: field 'z': expected a clean sign in \{-1, \+1\}, got 0"),
        ({"id": ["a", "b"], "z": [1, None]}, "row 2: field 'z'.*null"),
        ({"id": ["a", "b"], "z": [1, NAN]}, "row 2: field 'z'.*nan"),
        ({"id": ["a", "a"], "z": [1, 1]}, "row 2: field 'id'"),
        ({"id": ["a"]}, "one column 'z'"),
        ({"z": [1]}, "one column 'id'"),
    ],
)
def test_a_wrong_label_is_refused_with_row_and_field_named(table, said):
    with pytest.raises(InputError, match=said):
        Labels.from_arrow(pa.table(table))


@pytest.mark.parametrize(
    "mapping", [{"a": 2}, {"a": None}, {"a": "x"}, {1: 1, "b": -1}, {"a": 2**70}, {"a": [1]}]
)
def test_a_wrong_mapping_of_labels_is_refused(mapping):
    with pytest.raises(InputError):
        Labels.from_mapping(mapping)


def test_ids_of_labels_can_be_read_without_the_labels(tmp_path):
    write_table(pa.table({"id": ["a", "b"], "z": ["secret", "stuff"]}), tmp_path / "l.csv")
    assert Labels.read_ids(tmp_path / "l.csv").to_pylist() == ["a", "b"]
    write_table(pa.table({"z": [1]}), tmp_path / "none.csv")
    with pytest.raises(InputError, match="'id'"):
        Labels.read_ids(tmp_path / "none.csv")


# Fuzz

cells = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(),
    st.floats(),
    st.sampled_from(["", "a", "1", "-1", "nan", "0.5", "{", '{"gold": 1}']),
    st.binary(max_size=3),
    st.lists(st.integers(0, 2), max_size=2),
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["id", "group", "y", "signal.s", "verdict.v", "verdict.v.score", "order", "window"]
            )
            | st.sampled_from(["delta_r", "kl", "content", "y2", "c2", "y2_source", "other", ""]),
            cells,
        ),
        max_size=3,
    )
)
def test_no_table_leads_to_anything_but_records_or_our_own_error(changes):
    table = tiny(**{"verdict.v": [1] * 4})
    for field, cell in changes:
        try:
            column = pa.array([cell, *([cell] if field != "id" else ["x"]), None, cell])
        except (pa.ArrowException, OverflowError):
            continue
        place = table.schema.get_field_index(field)
        table = table.append_column(field, column) if place < 0 else table.set_column(place, field, column)
    try:
        taken = Records.from_arrow(table)
        taken.to_arrow(secondary=True)
    except VapoError:
        return
    assert len(taken) == 4


def test_what_comes_in_comes_out_again_the_same_and_cut_anywhere():
    table, _ = world(300, content=True)
    taken = Records.from_arrow(table)
    assert (
        Records.from_arrow(taken.to_arrow(secondary=True))
        .to_arrow(secondary=True)
        .equals(taken.to_arrow(secondary=True))
    )
    pieces = [taken.take(rows).to_arrow() for rows in taken.slices(37)]
    assert pa.concat_tables(pieces).equals(taken.to_arrow())
    assert taken.take(np.arange(10, 20)).to_arrow().equals(taken.take(slice(10, 20)).to_arrow())
    assert "y2" not in taken.to_arrow().column_names
    assert without(table, "y2", "c2").num_columns == table.num_columns - 2
