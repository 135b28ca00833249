"""Rows as canonical text, and proof files that need nothing else of a run."""

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import damaged, refuses
from tests.ledger.shared import OWN
from tests.vectors import make
from vapo._internal.keyed import canonical_json
from vapo.errors import InputError, IntegrityError, VapoError
from vapo.ledger.keys import SigningKey, VerifierKey
from vapo.ledger.log import merkle_root
from vapo.ledger.merkle import Tree, leaf_hash, verify_inclusion
from vapo.ledger.note import Checkpoint, cosign
from vapo.ledger.proof import check_proof, make_proof
from vapo.ledger.rows import prove_row, row_blocks, row_tree, rows_root

VECTORS = json.loads((OWN / "proof.json").read_text(encoding="utf-8"))
TRUSTED = [VerifierKey.parse(VECTORS["log_key"])]
LINES = make.lines()
POINT = Checkpoint("example.org/a-run", len(LINES), Tree(LINES).root())
NOTE = POINT.sign(make.LOG).data
WITNESS = make.WITNESS


@pytest.mark.parametrize("name", make.FILES)
def test_the_published_files_are_the_ones_that_the_code_makes(name):
    assert (OWN / name).read_text(encoding="utf-8") == make.text(name)


# Rows


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
columns = {
    "text": (texts, pa.string()),
    "large": (texts, pa.large_string()),
    "whole": (st.integers(-(2**53) + 1, 2**53 - 1), pa.int64()),
    "small": (st.integers(-128, 127), pa.int8()),
    "unsigned": (st.integers(0, 2**53 - 1), pa.uint64()),
    "number": (st.floats(allow_nan=False, allow_infinity=False), pa.float64()),
    "short": (st.floats(allow_nan=False, allow_infinity=False, width=32), pa.float32()),
    "truth": (st.booleans(), pa.bool_()),
    "nothing": (st.none(), pa.null()),
}


@st.composite
def tables(draw):
    size = draw(st.integers(0, 40))
    names = draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    arrays = {}
    for name in names:
        values, kind = columns[draw(st.sampled_from(sorted(columns)))]
        column = draw(
            st.lists(st.none() | values if draw(st.booleans()) else values, min_size=size, max_size=size)
        )
        array = pa.array(column, kind)
        if pa.types.is_string(kind) and draw(st.booleans()):
            array = array.dictionary_encode()
        arrays[name] = array
    table = pa.table(arrays)
    cut = draw(st.integers(0, size))
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)]) if draw(st.booleans()) else table


@given(tables())
def test_a_block_is_the_canonical_json_of_its_sixteen_rows_a_line_each(table):
    lines = [canonical_json(row) + b"\n" for row in table.to_pylist()]
    expected = [b"".join(lines[start : start + 16]) for start in range(0, len(lines), 16)]
    assert row_blocks(table) == expected
    assert rows_root(table) == merkle_root(expected)
    assert row_tree(table) == {"root": merkle_root(expected), "rows": len(lines)}


@given(
    st.lists(
        st.floats(1e8, 1e23) | st.floats(-1e-3, 1e-3) | st.sampled_from([1e21, 1e10, 2.0**53, -0.0, 1e9])
    )
)
def test_numbers_are_written_as_canonical_json_writes_them_at_every_size(values):
    table = pa.table({"x": pa.array(values, pa.float64())})
    assert b"".join(row_blocks(table)) == b"".join(canonical_json({"x": v}) + b"\n" for v in values)


def test_storage_plays_no_part():
    table = make.table()
    other = pa.concat_tables([table.slice(0, 5), table.slice(5)]).select(
        sorted(table.column_names, reverse=True)
    )
    other = other.set_column(
        other.column_names.index("id"), "id", other.column("id").combine_chunks().dictionary_encode()
    )
    assert rows_root(other) == rows_root(table)


def test_blocks_stay_the_same_across_the_slices_that_long_tables_are_worked_in(monkeypatch):
    from vapo.ledger import rows

    table = make.table()
    whole = row_blocks(table)
    monkeypatch.setattr(rows, "_SLICE", 16)
    assert row_blocks(table) == whole


@pytest.mark.parametrize(
    "table",
    [
        pa.table({}),
        pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]),
        pa.table({"x": [math.nan]}),
        pa.table({"x": [1.0, math.inf]}),
        pa.table({"x": [2**53]}),
        pa.table({"x": [-(2**53)]}),
        pa.table({"x": pa.array([2**64 - 1], pa.uint64())}),
        pa.table({"x": [[1]]}),
        pa.table({"x": [b"bytes"]}),
        pa.table({"x": pa.array([0], pa.timestamp("s"))}),
        pa.table(
            {
                "x": pa.Array.from_buffers(
                    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
                )
            }
        ),
    ],
)
def test_what_json_cannot_hold_is_refused(table):
    assert isinstance(refuses(row_blocks, table), InputError)


def test_every_row_can_be_proved_by_id_and_by_number():
    table = make.table()
    for number, name in enumerate(table.column("id").to_pylist()):
        proof = prove_row(table, name)
        assert proof == prove_row(table, number)
        assert canonical_json(table.slice(number, 1).to_pylist()[0]) + b"\n" in proof.block
        verify_inclusion(leaf_hash(proof.block), proof.index, 3, proof.path, bytes.fromhex(proof.root))


@pytest.mark.parametrize("row", ["r99", "", -1, 37])
def test_a_row_that_is_not_there_cannot_be_proved(row):
    assert isinstance(refuses(prove_row, make.table(), row), InputError)


# Proof files


def proof(**changes):
    value = json.loads(VECTORS["row"])
    for name, change in changes.items():
        value[name] = value[name] | change if isinstance(change, dict) else change
    return canonical_json(value)


def test_the_published_proofs_prove_what_they_say():
    found = check_proof(VECTORS["event"].encode(), TRUSTED)
    assert found.event == json.loads(VECTORS["lines"][1])
    assert found.rows == ()
    found = check_proof(VECTORS["row"].encode(), TRUSTED)
    assert found.first_row == 16
    assert found.row("r20") == make.table().slice(20, 1).to_pylist()[0]
    assert "".join(VECTORS["blocks"]).splitlines()[16:32] == [
        canonical_json(row).decode() for row in found.rows
    ]
    with pytest.raises(IntegrityError, match="no row whose 'id' is 'r1'"):
        found.row("r1")


@pytest.mark.parametrize("name", VECTORS["must_fail"])
def test_the_published_wrong_proof_is_refused(name):
    with pytest.raises(IntegrityError):
        check_proof(VECTORS["must_fail"][name].encode(), TRUSTED)


def test_a_proof_without_signatures_holds_only_against_a_checkpoint_that_is_known():
    data = make_proof(LINES, 0, POINT.text.encode())
    assert check_proof(data, POINT).event["seq"] == 0
    assert check_proof(data, POINT, origin="example.org/a-run").signers == ()
    assert check_proof(make_proof(LINES, 0, NOTE), POINT).checkpoint == POINT
    other = Checkpoint("example.org/b-run", POINT.size, POINT.root)
    for trusted in (TRUSTED, other, []):
        refuses(check_proof, data, trusted)
    with pytest.raises(IntegrityError, match="another checkpoint"):
        check_proof(data, POINT, origin="example.org/b-run")
    with pytest.raises(InputError, match="witnesses"):
        check_proof(data, POINT, witnesses=[WITNESS.witness])


def test_a_proof_may_be_asked_for_witnesses():
    with pytest.raises(IntegrityError, match="0 of 1 independent witnesses"):
        check_proof(make_proof(LINES, 0, NOTE), TRUSTED, witnesses=[WITNESS.witness])
    note = cosign(NOTE, WITNESS, log_keys=TRUSTED, time=7, previous=None)
    found = check_proof(make_proof(LINES, 0, note), TRUSTED, witnesses=[WITNESS.witness])
    assert [signed.time for signed in found.signers] == [None, 7]


def test_an_earlier_checkpoint_proves_the_events_it_holds_and_no_later_one():
    early = Checkpoint("example.org/a-run", 2, Tree(LINES[:2]).root()).sign(make.LOG).data
    assert check_proof(make_proof(LINES, 1, early), TRUSTED).event["seq"] == 1
    with pytest.raises(InputError, match="first 2"):
        make_proof(LINES, 2, early)
    with pytest.raises(InputError, match="a log that holds them"):
        make_proof(LINES[:2], 1, NOTE)


def test_a_log_that_is_not_the_checkpoints_makes_no_proof():
    with pytest.raises(IntegrityError, match="another root"):
        make_proof([*LINES[:2], b"{}"], 0, NOTE)


def test_a_row_is_proved_only_where_the_event_states_its_tables_root():
    rows = prove_row(make.table(), 3)
    assert check_proof(make_proof(LINES, 1, NOTE, rows=rows, at=["trees", "rows"]), TRUSTED).first_row == 0
    for index, at in (
        (1, ["trees"]),
        (1, []),
        (0, ["trees", "rows"]),
        (1, ["trees", "rows", "root"]),
        (1, [0]),
    ):
        with pytest.raises(InputError, match="states this table's root"):
            make_proof(LINES, index, NOTE, rows=rows, at=at)
    with pytest.raises(InputError, match="states this table's root"):
        make_proof(LINES, 1, NOTE, rows=prove_row(make.table().slice(1), 3), at=["trees", "rows"])


def test_a_proof_of_another_run_or_by_another_key_is_refused():
    data = VECTORS["row"].encode()
    origin = VECTORS["row"].split('"checkpoint":"')[1].split("\\n")[0]
    assert check_proof(data, TRUSTED, origin=origin)
    with pytest.raises(IntegrityError, match=r"expected example.org/b-run"):
        check_proof(data, TRUSTED, origin="example.org/b-run")
    stranger = SigningKey.from_seed("example.org/runs", bytes([8]) * 32).verifier
    with pytest.raises(IntegrityError, match="not signed"):
        check_proof(data, [stranger])


@pytest.mark.parametrize(
    "changes",
    [
        {"format": "audit-first-vapo/proof/v2"},
        {"format": 1},
        {"checkpoint": ""},
        {"checkpoint": "\n\n"},
        {"event": 1},
        {"rows": None},
        {"rows": []},
        {"event": {"index": "1"}},
        {"event": {"index": True}},
        {"event": {"index": 1.5}},
        {"event": {"index": -1}},
        {"event": {"index": 0}},
        {"event": {"index": 3}},
        {"event": {"path": []}},
        {"event": {"path": [1]}},
        {"event": {"path": ["AA=="]}},
        {"event": {"path": ["A" * 43 + "="] * 65}},
        {"event": {"line": "{}"}},
        {"event": {"more": 1}},
        {"rows": {"at": ["trees", "other"]}},
        {"rows": {"at": ["trees", 0]}},
        {"rows": {"at": [["trees"]]}},
        {"rows": {"at": "trees"}},
        {"rows": {"at": []}},
        {"rows": {"index": 0}},
        {"rows": {"index": -1}},
        {"rows": {"index": 2**53 - 1}},
        {"rows": {"block": ""}},
        {"rows": {"block": "{}\n"}},
        {"rows": {"path": []}},
        {"more": 1},
    ],
)
def test_a_proof_of_nearly_the_right_form_is_refused(changes):
    value = json.loads(VECTORS["row"])
    for name, change in changes.items():
        merge = isinstance(change, dict) and isinstance(value.get(name), dict)
        value[name] = value[name] | change if merge else change
    with pytest.raises(IntegrityError):
        check_proof(canonical_json(value), TRUSTED)


def committed(block, *, rows=1, root=None):
    """A proof, good in every hash, of a block that an event commits to."""
    tree = {"root": root or merkle_root([block]), "rows": rows}
    line = canonical_json({"seq": 0, "prev": "0" * 64, "kind": "x", "body": tree})
    note = Checkpoint("example.org/a-run", 1, Tree([line]).root()).sign(make.LOG).data
    return canonical_json(
        json.loads(make_proof([line], 0, note))
        | {"rows": {"at": [], "index": 0, "block": block.decode(), "path": []}}
    )


def test_rows_that_the_signer_wrote_askew_are_refused_though_every_hash_fits():
    assert check_proof(committed(b'{"id":"a"}\n'), TRUSTED).row("a") == {"id": "a"}
    for block in (
        b'{"id":"a"}',
        b'{"id": "a"}\n',
        b"[]\n",
        b"x\n",
        b'{"id":"a"}\n{"id":"b"}\n',
        b'{"a":1,"a":1}\n',
    ):
        with pytest.raises(IntegrityError):
            check_proof(committed(block), TRUSTED)
    for tree in (
        {"rows": 2},
        {"rows": 0},
        {"rows": -1},
        {"rows": True},
        {"rows": 1.5},
        {"root": "x" * 64},
        {"root": "AB" * 32},
    ):
        with pytest.raises(IntegrityError):
            check_proof(committed(b'{"id":"a"}\n', **tree), TRUSTED)


def test_a_line_that_says_it_is_another_event_is_refused():
    line = canonical_json({"seq": 1, "prev": "0" * 64, "kind": "x", "body": {}})
    note = Checkpoint("example.org/a-run", 1, Tree([line]).root()).sign(make.LOG).data
    with pytest.raises(IntegrityError, match="says that it is event 1"):
        check_proof(make_proof([line], 0, note), TRUSTED)


ROW = VECTORS["row"].encode()


def test_no_byte_of_a_proof_can_be_changed_unseen():
    for place in range(len(ROW)):
        for bit in (0, 5):
            data = bytearray(ROW)
            data[place] ^= 1 << bit
            with pytest.raises(VapoError):
                check_proof(bytes(data), TRUSTED)


@given(data=damaged(ROW))
def test_a_damaged_proof_is_refused(data):
    if data != ROW:
        refuses(check_proof, data, TRUSTED)


@given(data=st.one_of(st.binary(max_size=200), st.text(alphabet='{}[]",:a1\\', max_size=60).map(str.encode)))
def test_bytes_that_were_never_a_proof_are_refused(data):
    refuses(check_proof, data, TRUSTED)
