"""What the terms do not allow is found before they are written down."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.samples import replaced, without, world
from vapo.certification.flow import certify, prepare, split_records
from vapo.certification.freeze import freeze_trace
from vapo.certification.replay import replay_stages
from vapo.errors import InputError
from vapo.ledger import Ledger
from vapo.policy import Family, Policy
from vapo.protocol import Protocol
from vapo.records import Records, Source

TERMS = {"rho": 0.15, "c_min": 0.2, "b_max": 0.2}
FAMILY = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=9), Policy.plain(0.5, 0.5)])


def judged(n=300, **columns):
    """Records with a verdict of a judge that also gave the secondary's answers."""
    table, labels = world(n)
    judge = table.column("y2")
    return replaced(
        table, **{"verdict.judge": judge, "y2_source": pa.array(["judge"] * n), **columns}
    ), labels


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "signal:gone"},
        {"score": "weighted:gone=1"},
        {"score": "rank-mean", "family": FAMILY},
        {"signs": "none of these"},
        {"claim": "sequential", "reach": "population", "family": FAMILY},
        {"family": FAMILY, "unanswered": True},
    ],
)
def test_a_mistake_in_the_terms_is_found_before_they_are_declared(tmp_path, wrong):
    table, labels = world(300)
    groups = pa.array([f"g{i // 2}" for i in range(300)])
    table = replaced(table, group=groups)
    terms = {**TERMS, **wrong}
    given = without(table, "y2", "c2") if terms.pop("unanswered", False) else table
    with pytest.raises(InputError):
        certify(given, labels, out=tmp_path / "run", **terms)
    assert not (tmp_path / "run" / "log.jsonl").exists()
    # Nothing stands in the way of the terms that were meant.
    assert certify(table, labels, out=tmp_path / "run", **TERMS).body["status"] in ("certified", "refused")


def test_a_signal_that_repeats_another_is_found_before_the_terms_are_declared(tmp_path):
    table, labels = world(300)
    table = replaced(table, **{"verdict.a": table.column("y2"), "verdict.b": table.column("y2")})
    with pytest.raises(InputError, match="is a function of"):
        certify(table, labels, out=tmp_path / "run", **TERMS)
    certify(table, labels, out=tmp_path / "run", waive_redundancy=True, **TERMS)


def test_a_secondary_that_is_declared_to_answer_later_may_not_be_behind_the_score(tmp_path):
    table, _ = judged()
    records = Records.from_arrow(without(table, "y2", "c2", "y2_source"))
    for protocol in (
        Protocol(**TERMS, secondary=("judge",)),
        Protocol(
            **TERMS,
            secondary=("other",),
            sources={"verdict.judge": Source("one", "a" * 64), "other": Source("two", "a" * 64)},
        ),
    ):
        given = records.with_sources(protocol.sources)
        with Ledger.write(tmp_path / "run") as ledger:
            with pytest.raises(InputError, match="not also a signal"):
                prepare(ledger, protocol, *split_records(given, protocol))
            assert not ledger.events


def test_a_secondary_that_is_declared_to_answer_later_may_not_be_the_primary(tmp_path):
    records = Records.from_arrow(without(world(300)[0], "y2", "c2"))
    protocol = Protocol(
        **TERMS, secondary=("s",), sources={"primary": Source("p", "b" * 64), "s": Source("s", "b" * 64)}
    )
    with (
        Ledger.write(tmp_path / "run") as ledger,
        pytest.raises(InputError, match="other than the primary"),
    ):
        prepare(ledger, protocol, *split_records(records.with_sources(protocol.sources), protocol))


def test_answers_that_come_after_the_declaration_may_not_be_those_of_a_signal(tmp_path):
    table, _ = judged()
    before = Records.from_arrow(without(table, "y2", "c2", "y2_source"))
    with Ledger.write(tmp_path / "run") as ledger:
        prepare(ledger, Protocol(**TERMS), None, before, family=FAMILY)
        with pytest.raises(InputError, match="not also a signal"):
            freeze_trace(ledger, Records.from_arrow(table))


def test_a_verifier_that_is_no_signal_of_the_score_may_answer(tmp_path):
    table, labels = judged()
    certify(table, labels, out=tmp_path / "run", score="signal:conf", **TERMS)


@pytest.mark.parametrize("name", ["verdict.judge", "signal.conf", "verdict.somebody"])
def test_a_secondary_may_not_go_by_the_name_of_a_column(name):
    table, _ = judged(y2_source=pa.array([name] * 300))
    with pytest.raises(InputError, match=r"'y2_source': .* not also a signal"):
        Records.from_arrow(table)


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"), pa.timestamp("s", "UTC"), pa.timestamp("ns"), pa.date64(), pa.time32("s"), pa.duration("s"),
        pa.binary_view(), pa.decimal32(7, 2), pa.float16(), pa.int64(),
    ],
)  # fmt: skip
def test_a_run_replays_whatever_the_kind_of_the_columns_that_nobody_reads(tmp_path, kind):
    table, labels = world(300)
    values = [b"x"] * 300 if kind == pa.binary_view() else np.full(300, 86_400_000)
    values = np.full(300, 20.0) if kind in (pa.decimal32(7, 2), pa.float16()) else values
    column = pa.array(values).cast(pa.int32()).cast(kind) if kind == pa.time32("s") else pa.array(values)
    table = table.append_column("note", column if column.type == kind else column.cast(kind))
    certify(table, labels, out=tmp_path / "run", family=FAMILY, **TERMS)
    assert replay_stages(tmp_path / "run").stages == 1


def test_labels_of_other_records_are_called_that(tmp_path):
    table, _ = world(300)
    with pytest.raises(InputError, match="300 groups and no label of any of their records"):
        certify(table, {"somebody": 1}, out=tmp_path / "run", **TERMS)


def test_terms_beside_a_protocol_are_read_like_terms_alone(tmp_path):
    table, labels = world(300)
    protocol = Protocol(**TERMS)
    for wrong in ({"rhoo": 0.1}, {"rho": "much"}):
        with pytest.raises(InputError, match="terms"):
            certify(table, labels, out=tmp_path / "run", protocol=protocol, **wrong)
    source = {"id": "checker", "digest": "c" * 64}
    body = certify(
        table, labels, out=tmp_path / "run", protocol=protocol, rho=0.2, sources={"primary": source}
    ).body
    assert (body["rho"], body["c_min"]) == (0.2, TERMS["c_min"])
    assert body["sources"]["primary"]["id"] == "checker"
