"""Tables in every format, and hostile bytes that end in one of our errors and nothing else."""

from __future__ import annotations

import gzip
import json
import random
from contextlib import suppress

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import tiny, world
from vapo._internal.files import read_table, write_table
from vapo.errors import InputError, VapoError
from vapo.protocol import Protocol
from vapo.records import Labels, Records

FORMATS = ["parquet", "pq", "jsonl", "jsonl.gz", "ndjson", "csv", "csv.gz", "arrow", "feather", "ipc"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_records_are_the_same_from_every_format(tmp_path, suffix):
    table, _ = world(50, content=True)
    path = tmp_path / f"rollouts.{suffix}"
    write_table(table, path)
    one, other = Records.from_arrow(table), Records.read(path)
    assert other.to_arrow(secondary=True).equals(one.to_arrow(secondary=True))


def test_arrow_streams_and_compressed_feather_are_read(tmp_path):
    with pa.ipc.new_stream(str(tmp_path / "s.arrow"), tiny().schema) as writer:
        writer.write_table(tiny())
    feather.write_feather(tiny(), str(tmp_path / "f.feather"), compression="zstd")
    assert read_table(tmp_path / "s.arrow").equals(tiny())
    assert read_table(tmp_path / "f.feather").equals(tiny())


def test_json_lines_may_nest_signals_and_graded_verdicts(tmp_path):
    rows = [
        {
            "id": 1,
            "group": "g",
            "y": 1,
            "signals": {"s": 0.5},
            "verdicts": {"v": {"v": 1, "s": 0.9}, "w": -1},
        },
        {"id": 2, "group": "h", "y": -1, "signals": {"s": 0.25}, "verdicts": {"v": {"v": 0}, "w": None}},
    ]
    path = tmp_path / "r.jsonl"
    path.write_text("\n\n".join(map(json.dumps, rows)), encoding="utf-8")
    records = Records.read(path)
    assert records.verdicts["v"].tolist() == [1, 0]
    assert records.verdict_scores["v"][0] == 0.9
    assert records.verdicts["w"].tolist() == [-1, 0]
    assert records.trust("v").tolist() == [0.9, 0.0]


def test_a_field_that_is_number_and_text_stays_readable(tmp_path):
    path = tmp_path / "r.jsonl"
    one = {"id": 7, "group": 1, "y": 1, "signals": {"s": 0.5}}
    rows = [one, {"id": "x", "group": "1", "y": 1.0, "signals": {"s": 1}}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    records = Records.read(path)
    assert records.id.to_pylist() == ["7", "x"]
    assert records.groups == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2"),
        ("[1]", "line 2"),
        ('{"id": 1, "id": 2}', "'id' twice"),
        ('{"signals": 3}', "field 'signals'"),
        ('{"signal.s": 1, "signals": {"s": 2}}', r"'signal\.s' once"),
        ('{"verdicts": {"v": {"x": 1}}}', "'v' and 's'"),
        ('{"id": ' + "[" * 100_000, "line 2"),
        ('{"id": ' + "9" * 5000 + "}", "line 2"),
    ],
)
def test_a_broken_line_is_named(tmp_path, line, said):
    path = tmp_path / "r.jsonl"
    path.write_text('{"id": "a", "group": "g", "y": 1, "signal.s": 0.1}\n' + line, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        read_table(path)


@pytest.mark.parametrize(
    "value", ['"\\ud800"', "1e999", "-1e400", "NaN", "1" * 400, "[1.5, " + "7" * 400 + "]"]
)
def test_strange_values_in_json_end_in_our_own_error(tmp_path, value):
    path = tmp_path / "r.jsonl"
    for field in ("id", "group", "y", "signal.s", "order"):
        row = {"id": '"a"', "group": '"g"', "y": "1", "signal.s": "0.5", "order": "1", field: value}
        other = '{"id": "b", "group": "g", "y": 1, "signal.s": 0.1, "order": 1.5}'
        path.write_text(
            "{" + ", ".join(f'"{k}": {v}' for k, v in row.items()) + "}\n" + other, encoding="utf-8"
        )
        with pytest.raises(InputError):
            Records.read(path)


def test_text_in_cells_with_line_breaks_does_not_confuse_the_header_pass(tmp_path):
    path = tmp_path / "r.csv"
    rows = [f'r{i},g{i},1,0.5,"line one\nline, two\n"' for i in range(5000)]
    path.write_text("id,group,y,signal.s,note\n" + "\n".join(rows), encoding="utf-8")
    assert len(Records.read(path)) == 5000


def test_large_orders_in_text_keep_every_digit(tmp_path):
    path = tmp_path / "r.csv"
    base = 2**53
    path.write_text(f"id,group,y,signal.s,order\na,g,1,0.5,{base + 1}\nb,h,1,0.5,{base}\n", encoding="utf-8")
    records = Records.read(path)
    assert records.id.to_pylist() == ["b", "a"]
    assert records.order.tolist() == [base, base + 1]


@pytest.mark.parametrize("name", ["r.txt", "r", "r.gz", "r.json", ".csv.bak"])
def test_an_unknown_ending_is_refused(tmp_path, name):
    (tmp_path / name).write_text("x", encoding="utf-8")
    with pytest.raises(InputError, match="a file name ending in"):
        read_table(tmp_path / name)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for name in ("none.csv", "folder.csv"):
        (tmp_path / "folder.csv").mkdir(exist_ok=True)
        with pytest.raises(InputError, match="an existing file"):
            read_table(tmp_path / name)


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_empty_file_is_refused(tmp_path, suffix):
    path = tmp_path / f"empty.{suffix}"
    path.write_bytes(b"")
    with pytest.raises(InputError):
        Records.read(path)


def test_a_column_that_stands_twice_is_refused(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("id,group,y,y,signal.s\na,g,1,1,0.5\n", encoding="utf-8")
    with pytest.raises(InputError, match="'y' twice"):
        read_table(path)
    twice = pa.Table.from_arrays([*tiny().columns, tiny().column("y")], names=[*tiny().column_names, "y"])
    with pytest.raises(InputError, match="'y' twice"):
        Records.from_arrow(twice)
    labels = pa.Table.from_arrays([pa.array(["a"])] * 3, names=["id", "id", "z"])
    with pytest.raises(InputError, match="one column 'id'"):
        Labels.from_arrow(labels)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    bad = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"\xff\xfe")]
    )
    table = pa.table({"id": bad, "group": ["g"], "y": [1], "signal.s": [0.5]})
    pq.write_table(table, tmp_path / "r.parquet")
    (tmp_path / "r.csv").write_bytes(b"id,group,y,signal.s\n\xff,g,1,0.5\n")
    (tmp_path / "r.jsonl").write_bytes(b'{"id": "\xff"}')
    for name in ("r.parquet", "r.csv", "r.jsonl"):
        with pytest.raises(InputError):
            Records.read(tmp_path / name)


def _sound(folder) -> dict[str, bytes]:
    files = {}
    for suffix in ("parquet", "jsonl", "jsonl.gz", "csv", "csv.gz", "arrow"):
        path = folder / f"sound.{suffix}"
        write_table(tiny(y2=[1, 0, -1, 1]), path)
        files[suffix] = path.read_bytes()
    return files


def test_no_flipped_cut_or_stretched_file_leads_to_a_traceback(tmp_path):
    rng = random.Random(0)
    for suffix, sound in _sound(tmp_path).items():
        path = tmp_path / f"hurt.{suffix}"
        for _ in range(60):
            data = bytearray(sound)
            for _ in range(rng.randint(1, 6)):
                kind = rng.random()
                if kind < 0.6 and data:
                    data[rng.randrange(len(data))] = rng.randrange(256)
                elif kind < 0.8:
                    del data[rng.randrange(len(data) + 1) :]
                else:
                    data += bytes(rng.randrange(256) for _ in range(rng.randint(1, 20)))
            path.write_bytes(bytes(data))
            for read in (Records.read, Labels.read):
                with suppress(VapoError):
                    read(path)


@settings(max_examples=60)
@given(st.binary(max_size=200), st.sampled_from(["parquet", "jsonl", "jsonl.gz", "csv", "csv.gz", "arrow"]))
def test_no_bytes_lead_to_anything_but_records_or_our_own_error(tmp_path_factory, data, suffix):
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    path.write_bytes(gzip.compress(data) if suffix.endswith("gz") and len(data) % 2 else data)
    for read in (Records.read, Labels.read, Labels.read_ids):
        with suppress(VapoError):
            read(path)


@pytest.mark.parametrize(
    "broken", ["rho = ", "rho = 'x'", "a = " + "[" * 5000, "\x00", "rho = 0.1\nrho = 0.2"]
)
def test_a_broken_protocol_file_is_refused(tmp_path, broken):
    path = tmp_path / "p.toml"
    path.write_text(broken, encoding="utf-8")
    with pytest.raises(InputError, match=r"p\.toml"):
        Protocol.read(path)


def test_a_table_that_cannot_be_written_is_our_own_error(tmp_path):
    with pytest.raises(InputError):
        write_table(tiny(), tmp_path / "no" / "such" / "folder.csv")
    nested = pa.table({"a": [[1, 2]]})
    with pytest.raises(InputError):
        write_table(nested, tmp_path / "nested.csv")


def test_csv_written_by_others_reads_empty_cells_as_missing(tmp_path):
    table = tiny(y2=pa.array([1, None, -1, None]))
    pa_csv.write_csv(table, str(tmp_path / "r.csv"))
    secondary = Records.read(tmp_path / "r.csv").secondary
    assert secondary is not None
    assert secondary.verdict.tolist() == [1, 0, -1, 0]


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_a_byte_order_mark_before_json_lines_is_no_part_of_them(tmp_path, suffix):
    path, opener = tmp_path / f"r.{suffix}", gzip.open if suffix.endswith("gz") else open
    with opener(path, "wt", encoding="utf-8-sig") as stream:
        stream.write('{"id": "a", "group": "g", "y": 1, "signal.s": 0.5}\n')
    assert Records.read(path).id.to_pylist() == ["a"]


@pytest.mark.parametrize("field", ["id", "group", "window", "y2_source"])
@pytest.mark.parametrize("value", [float("nan"), 1.5, True, ["a"], {"a": 1}])
def test_what_names_something_in_json_lines_is_text_or_a_whole_number_in_every_line(tmp_path, field, value):
    rows = [
        {"id": f"r{i}", "group": "g", "window": "w", "y": 1, "y2": 1, "y2_source": "s", "signal.s": 0.5}
        for i in range(4)
    ]
    rows[2][field] = value
    path = tmp_path / "r.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.raises(InputError, match=rf"r\.jsonl: line 3: field '{field}': expected text or a whole"):
        Records.read(path)
