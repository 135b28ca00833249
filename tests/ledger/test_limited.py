"""Tables of runs from elsewhere are opened in a process that can do little, and its failures are errors of ours."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.damage import damaged
from tests.samples import world
from vapo._internal.keyed import sha256_hex
from vapo.certification.tally import codes_table
from vapo.errors import InputError, IntegrityError
from vapo.gate import replay_run
from vapo.ledger import Ledger, limited
from vapo.ledger.limited import LimitedReader
from vapo.ledger.segments import encode_table, read_parquet

REPO = Path(__file__).parents[2]
TABLES = {
    "records": world(50)[0],
    "empty": pa.table({"row": pa.array([], pa.int64())}),
    "texts": pa.table({"a": ["x", None, "ü"]}).replace_schema_metadata({"vapo.trace_root": "ab" * 32}),
    "codes": codes_table(np.arange(9, dtype=np.uint8).reshape(3, 3)),
    "dictionary": pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()}),
}


@pytest.fixture(scope="module")
def reader():
    with LimitedReader() as reader:
        yield reader


@pytest.mark.parametrize("name", TABLES)
def test_what_is_sound_comes_out_as_it_does_in_process(reader, name):
    segment = encode_table(TABLES[name])
    data, digest = bytes(segment.data), segment.ref["sha256"]
    assert reader(data, digest).equals(read_parquet(data, digest), check_metadata=True)
    first = TABLES[name].column_names[:1]
    assert reader(data, digest, first).equals(read_parquet(data, digest, first), check_metadata=True)


def test_a_whole_run_replays_through_it(deployed, reader):
    assert replay_run(deployed, tables=reader) == replay_run(deployed)
    ledger = Ledger.read(deployed, tables=reader)
    assert ledger.until(3)._tables is reader


def test_other_bytes_than_the_digest_names_are_not_even_handed_over(monkeypatch):
    with LimitedReader() as reader:
        monkeypatch.setattr(reader, "_start", lambda: pytest.fail("a process was started"))
        with pytest.raises(IntegrityError, match="not the ones that were written"):
            reader(b"PAR1", "0" * 64)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1\x00\x00\x00\x00PAR1", b"nonsense" * 100])
def test_what_is_no_table_is_an_error_and_the_next_table_is_read(reader, data):
    with pytest.raises(IntegrityError, match="not readable as Parquet"):
        reader(data, sha256_hex(data))
    good = bytes(encode_table(TABLES["texts"]).data)
    assert reader(good, sha256_hex(good)).num_rows == 3


def test_a_column_that_is_not_there_is_an_error(reader):
    data = bytes(encode_table(TABLES["texts"]).data)
    with pytest.raises(IntegrityError, match="no column 'b'"):
        reader(data, sha256_hex(data), ["b"])


@settings(max_examples=60)
@given(st.data())
def test_a_damaged_table_with_a_matching_digest_is_read_or_refused_and_nothing_else(reader, data):
    hurt = data.draw(damaged(bytes(encode_table(TABLES["records"]).data)))
    with suppress(IntegrityError):
        assert isinstance(reader(hurt, sha256_hex(hurt)), pa.Table)


def bomb(rows_at_once=1_000_000, times=60):
    """A small file whose table takes half a gigabyte."""
    part = pa.table({"a": np.zeros(rows_at_once, np.int64)})
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, part.schema) as writer:
        for _ in range(times):
            writer.write_table(part)
    return sink.getvalue()


def test_a_table_that_takes_more_memory_than_allowed_is_refused():
    data = bomb()
    assert len(data) < 1 << 20
    with LimitedReader(memory=700 << 20) as reader:
        with pytest.raises(IntegrityError, match="segment"):
            reader(data, sha256_hex(data))
        good = bytes(encode_table(TABLES["texts"]).data)
        assert reader(good, sha256_hex(good)).num_rows == 3


SAY = "import sys, time\nsay = sys.stdout.buffer.write\n"
REST = "\nsys.stdout.flush()\nsys.stdin.read()"
CHILDREN = {
    "it sleeps": f"{SAY}time.sleep(60)",
    "it ends at once": "",
    "it ends in the middle": f"{SAY}say(b'T' + (100).to_bytes(8) + b'x'); sys.exit(3)",
    "it dies": "import os; os.kill(os.getpid(), 11)",
    "it promises too much": f"{SAY}say(b'T' + (1 << 62).to_bytes(8)){REST}",
    "it answers nonsense": f"{SAY}say(b'T' + (3).to_bytes(8) + b'abc'){REST}",
    "it says no in no language": f"{SAY}say(b'E' + (2).to_bytes(8) + b'\\xff\\xfe'){REST}",
}


@pytest.mark.parametrize("name", CHILDREN)
def test_whatever_the_process_does_is_an_error_of_ours(tmp_path, monkeypatch, name):
    child = tmp_path / "child.py"
    child.write_text(CHILDREN[name], encoding="utf-8")
    monkeypatch.setattr(limited, "_CHILD", child)
    data = bytes(encode_table(TABLES["texts"]).data)
    with LimitedReader(seconds=1) as reader:
        for _ in range(2):
            with pytest.raises(IntegrityError, match="segment"):
                reader(data, sha256_hex(data))


def test_limits_that_are_none_are_refused():
    for wrong in ({"memory": 0}, {"seconds": 0}):
        with pytest.raises(InputError, match="at least one"):
            LimitedReader(**wrong)


@pytest.mark.parametrize("what", ["RLIMIT_CPU", "RLIMIT_AS"])
def test_it_works_under_lower_limits_of_its_callers(what):
    # As batch systems and shells (ulimit -t, ulimit -v) set them, for good.
    lower = {"RLIMIT_CPU": 100, "RLIMIT_AS": 3 << 30}[what]
    code = f"""
import resource
from tests.ledger.test_limited import LimitedReader, encode_table, pa
segment = encode_table(pa.table({{"a": [1, 2]}}))
resource.setrlimit(resource.{what}, ({lower}, {lower}))
with LimitedReader() as reader:
    for _ in range(2):
        print(reader(bytes(segment.data), segment.ref["sha256"]).column("a").to_pylist())
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO, check=False)
    assert said.stdout == "[1, 2]\n[1, 2]\n", said.stderr
