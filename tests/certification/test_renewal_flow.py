"""Stages that follow each other: fresh buffers, spent delta, and what closes in between."""

from __future__ import annotations

import math
import shutil

import pyarrow.parquet as pq
import pytest

from tests.crashes import Killed, every_crash, forge, killed_at
from tests.samples import files_of, replaced, world
from vapo.certification import bounds
from vapo.certification.flow import certify, prepare
from vapo.certification.renewal import spent_delta
from vapo.certification.replay import replay_stages
from vapo.certification.stage import declared_protocol
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.gate import Gate, join_spotchecks, replay_run, watch
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.policy import Family, Policy
from vapo.records import Labels, Records, Source

FAMILY = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=9), Policy.plain(0.5, 0.5)])
TERMS = {"rho": 0.15, "c_min": 0.2, "b_max": 0.2}
HOPELESS = {"rho": 0.001, "c_min": 0.2, "b_max": 0.2}


def first(tmp_path, n=200, **terms):
    table, labels = world(n)
    return certify(table, labels, out=tmp_path / "run", family=FAMILY, **{**TERMS, **terms})


def renew(tmp_path, prefix="s2", n=200, table=None, **options):
    own, labels = world(n, prefix=prefix, seed=len(prefix))
    options = {"renew": "another prompt", **options}
    records = own if table is None else table
    return certify(records, labels, out=tmp_path / "run", family=FAMILY, **options)


def snapshot(tmp_path):
    return files_of(tmp_path / "run")


def test_delta_is_spread_over_the_declared_stages_and_read_from_the_log(tmp_path):
    assert first(tmp_path, stages=3, delta=0.06).body["delta"] == pytest.approx(0.02)
    assert renew(tmp_path).body["delta"] == pytest.approx(0.02)
    body = renew(tmp_path, prefix="stage3").body
    assert body["stage"] == 3
    radius = math.sqrt(math.log(3 * len(FAMILY) / 0.02) / (2 * 200))
    assert body["bounds"]["hoeffding"]["radius"] == pytest.approx(radius)
    assert body["delta_spent"] == pytest.approx(0.06)
    assert spent_delta(Ledger.read(tmp_path / "run")) == pytest.approx(0.06)
    before = snapshot(tmp_path)
    with pytest.raises(ProtocolError, match="stage 4 was not declared"):
        renew(tmp_path, prefix="stage_4")
    assert snapshot(tmp_path) == before
    assert replay_stages(tmp_path / "run").stages == 3


def test_open_ended_stages_never_spend_more_than_delta(tmp_path):
    deltas = [first(tmp_path, stages="open", delta=0.05).body["delta"]]
    deltas += [renew(tmp_path, prefix="x" * number).body["delta"] for number in (2, 3)]
    assert deltas == pytest.approx([0.05 * 6 / (math.pi * r) ** 2 for r in (1, 2, 3)])
    assert sum(deltas) < 0.05
    assert verify_run(tmp_path / "run").ok


def test_a_refused_stage_has_spent_its_delta(tmp_path):
    refused = first(tmp_path, stages=2, **HOPELESS)
    assert refused.body["status"] == "refused"
    assert refused.body["delta_spent"] == pytest.approx(0.025)
    assert renew(tmp_path).body["delta_spent"] == pytest.approx(0.05)
    with pytest.raises(ProtocolError, match="not declared"):
        renew(tmp_path, prefix="stage3")


def test_a_stage_that_saw_no_label_has_spent_nothing(tmp_path):
    first(tmp_path, stages=2)
    records = Records.from_arrow(world(200, prefix="s2", seed=2)[0])
    with Ledger.write(tmp_path / "run") as ledger:
        prepare(ledger, declared_protocol(ledger), None, records, family=FAMILY, renew="x")
    assert spent_delta(Ledger.read(tmp_path / "run")) == pytest.approx(0.025)


@pytest.mark.parametrize("kind", ["id", "group", "content"])
def test_a_buffer_whose_labels_were_opened_before_is_refused_and_nothing_changes(tmp_path, kind):
    table, labels = world(200, content=True)
    certify(table, labels, out=tmp_path / "run", family=FAMILY, stages=2, **TERMS)
    fresh, truth = world(200, prefix="s2", seed=2, content=True)
    stale = table.column(kind)[0].as_py()
    column = [stale if i == 7 else value for i, value in enumerate(fresh.column(kind).to_pylist())]
    with Gate.open(tmp_path / "run") as gate:
        gate.decide(world(50, prefix="n", seed=4)[0])
    before = snapshot(tmp_path)
    truth = truth | {stale: 1}
    with pytest.raises(InputError, match=f"fresh buffer is needed.*share no {kind}"):
        certify(
            replaced(fresh, **{kind: column}),
            truth,
            out=tmp_path / "run",
            family=FAMILY,
            renew="another prompt",
        )
    assert snapshot(tmp_path) == before
    assert Ledger.read(tmp_path / "run").deployed


def test_groups_whose_labels_a_spot_check_opened_are_not_fresh(tmp_path):
    first(tmp_path, stages=2, monitor_rate=1.0)
    table, labels = world(120, prefix="n", seed=4)
    with Gate.open(tmp_path / "run") as gate:
        gate.decide(table)
    with Ledger.write(tmp_path / "run") as ledger:
        wanted = watch(ledger).wanted[:5]
        join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in wanted}))
    with pytest.raises(InputError, match="spot-checked records"):
        certify(table, labels, out=tmp_path / "run", family=FAMILY, renew="again")
    unseen = [name not in wanted for name in table.column("id").to_pylist()]
    fresh = table.filter(unseen)
    kept = {name: z for name, z in labels.items() if name not in wanted}
    assert certify(fresh, kept, out=tmp_path / "run", family=FAMILY, renew="again").body["stage"] == 2
    assert replay_run(tmp_path / "run").batches == 1


def test_a_stage_follows_only_a_certificate(tmp_path, monkeypatch):
    with killed_at(monkeypatch, 10), pytest.raises(Killed):
        first(tmp_path, stages=2)
    with pytest.raises(ProtocolError, match="no certificate yet"):
        renew(tmp_path)
    with pytest.raises(InputError, match="a run folder"):
        certify(*world(50), out=tmp_path / "none", family=FAMILY, renew="x")


@pytest.mark.parametrize(
    ("terms", "outcome"),
    [({"claim": "frozen", **HOPELESS}, "frozen"), ({"claim": "hoeffding", **HOPELESS}, "hoeffding")],
)
def test_a_buffer_grows_only_under_sequential(tmp_path, terms, outcome):
    first(tmp_path, stages=2, **terms)
    before = snapshot(tmp_path)
    with pytest.raises(ProtocolError, match=f"proves nothing under '{outcome}'"):
        renew(tmp_path, extend=True)
    assert snapshot(tmp_path) == before


def test_a_certified_stage_is_not_extended(tmp_path):
    assert first(tmp_path, n=900, claim="sequential", stages=2).certified
    with pytest.raises(ProtocolError, match="only a refused stage"):
        renew(tmp_path, extend=True)


def test_an_extension_adds_its_counts_and_spends_nothing_more(tmp_path):
    one = first(tmp_path, n=60, claim="sequential", rho=0.1, c_min=0.5)
    assert not one.certified
    body = renew(tmp_path, n=900, extend=True).body
    assert body["extends"] == 1
    assert body["delta"] == body["delta_spent"] == 0.05
    assert body["counts"]["n"] == 960
    assert body["counts"]["groups"] == 960
    assert body["status"] == "certified"
    assert verify_run(tmp_path / "run").ok
    assert replay_stages(tmp_path / "run").stages == 2


def test_an_extension_takes_no_share_from_the_stages_that_follow(tmp_path):
    one = first(tmp_path, n=60, claim="sequential", rho=0.1, c_min=0.5, stages="open")
    assert renew(tmp_path, n=100, extend=True).body["delta"] == one.body["delta"]
    body = renew(tmp_path, prefix="stage3").body
    assert body["delta"] == pytest.approx(0.05 * 6 / (math.pi * 2) ** 2)
    assert body["delta_spent"] == pytest.approx(0.05 * 6 / math.pi**2 * (1 + 1 / 4))


def test_an_extension_keeps_the_bets_that_were_planned_before_the_first_look(tmp_path):
    first(tmp_path, n=60, claim="sequential", rho=0.1, c_min=0.5)
    body = renew(tmp_path, n=900, extend=True).body
    row = pq.read_table(tmp_path / "run" / body["candidates"]).to_pylist()[0]
    alpha = 0.9 * 0.05 * row["weight"]
    bet = bounds.planned_bet(60 * row["planned_coverage"], 0.1, -math.log(0.9 * alpha))
    limit = bounds.excess_upper(row["admitted"], row["harmful"], 960, 0.1, alpha, bet)
    assert row["excess_upper"] == pytest.approx(float(limit), abs=1e-10)


def test_a_buffer_that_grew_after_a_look_at_its_labels_says_nothing_under_claims_that_are_read_once(tmp_path):
    first(tmp_path, n=60, claim="sequential", rho=0.1, c_min=0.5)
    body = renew(tmp_path, n=900, extend=True).body
    row = pq.read_table(tmp_path / "run" / body["candidates"]).to_pylist()[0]
    assert body["void"] == ["hoeffding", "frozen"]
    for claim in body["void"]:
        assert set(body["bounds"][claim].values()) == {None}
        assert not body["feasible"][claim]
        assert {value for name, value in row.items() if name.startswith(f"{claim}.")} == {None}
    assert body["feasible"]["sequential"]
    assert None not in body["bounds"]["sequential"].values()


def test_an_extension_keeps_the_sources_of_what_it_extends(tmp_path):
    first(tmp_path, n=150, claim="sequential", **HOPELESS)
    table, labels = world(150, prefix="s2", seed=2)
    other = {"primary": Source("another rule", "4" * 64)}
    with pytest.raises(InputError, match="a change needs a new stage"):
        certify(table, labels, out=tmp_path / "run", extend=True, sources=other)


def test_a_new_stage_may_have_new_sources_and_the_gate_then_wants_those(tmp_path):
    old, new = {"primary": Source("rule 1", "1" * 64)}, {"primary": Source("rule 2", "2" * 64)}
    first(tmp_path, stages=2, n=900, sources=old)
    body = renew(tmp_path, n=900, sources=new).body
    assert body["sources"]["primary"]["id"] == "rule 2"
    assert body["status"] == "certified"
    assert replay_stages(tmp_path / "run").stages == 2
    batch = world(60, prefix="n", seed=4)[0]
    with Gate.open(tmp_path / "run") as gate:
        assert not gate.decide(batch).closed
        stale = Records.from_arrow(world(60, prefix="m", seed=5)[0], sources=old)
        assert "primary" in gate.decide(stale).closed
    assert replay_run(tmp_path / "run").batches == 2


def test_terms_are_declared_once(tmp_path):
    first(tmp_path, stages=2)
    before = snapshot(tmp_path)
    for changed in ({"rho": 0.3}, {"claim": "sequential"}, {"delta": 0.5}, {"stages": 9}):
        with pytest.raises(InputError, match=f"{next(iter(changed))} = .*as the run has declared it"):
            renew(tmp_path, **changed)
    assert snapshot(tmp_path) == before
    assert renew(tmp_path, rho=TERMS["rho"]).body["stage"] == 2


def test_the_first_stage_is_not_certified_again_into_the_second(tmp_path, monkeypatch):
    first(tmp_path, stages=2)
    with killed_at(monkeypatch, 4), pytest.raises(Killed):
        renew(tmp_path)
    assert Ledger.read(tmp_path / "run").stage == 2
    before = snapshot(tmp_path)
    with pytest.raises(ProtocolError, match="the run is in stage 2"):
        first(tmp_path, stages=2)
    assert snapshot(tmp_path) == before


def test_renewing_again_changes_nothing_and_other_records_are_another_stage(tmp_path):
    first(tmp_path, stages=2)
    body = renew(tmp_path).body
    before = snapshot(tmp_path)
    assert renew(tmp_path).body == body
    assert snapshot(tmp_path) == before
    with pytest.raises(ProtocolError, match="not declared"):
        renew(tmp_path, prefix="third")
    assert verify_run(tmp_path / "run").ok


def test_a_renewal_killed_at_any_write_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    first(tmp_path, n=60, stages=2)
    with Gate.open(tmp_path / "run") as gate:
        gate.decide(world(20, prefix="n", seed=4)[0])

    def prepare(path):
        shutil.copytree(tmp_path / "run", path)

    def work(path):
        table, labels = world(60, prefix="s2", seed=2)
        certify(table, labels, out=path, family=FAMILY, renew="another prompt")

    prepare(tmp_path / "reference")
    work(tmp_path / "reference")
    wanted = files_of(tmp_path / "reference")
    for what, place in every_crash(monkeypatch, tmp_path, work, prepare):
        work(place)
        assert files_of(place) == wanted, what
    assert verify_run(place).ok
    assert replay_run(place).stages == 2


def test_a_stage_with_another_share_of_delta_is_found_by_replay(tmp_path):
    first(tmp_path, stages=2)
    renew(tmp_path)

    def richer(events):
        for event in events:
            if event["kind"] == "stage.opened":
                event["body"]["delta"] = 0.05
        return events

    forge(tmp_path / "run", richer)
    with pytest.raises(IntegrityError, match="'delta'"):
        replay_stages(tmp_path / "run")


def test_the_gate_is_shut_between_a_new_stage_and_its_certificate(tmp_path, monkeypatch):
    first(tmp_path, n=900, stages=2)
    with killed_at(monkeypatch, 6), pytest.raises(Killed):
        renew(tmp_path)
    ledger = Ledger.read(tmp_path / "run")
    assert ledger.stage == 2
    assert ledger.events[-1].kind is EventKind.REQUESTED
    before = snapshot(tmp_path)
    with Gate.open(tmp_path / "run") as gate:
        decided = gate.decide(world(40, prefix="n", seed=4)[0])
        assert decided.closed == "a new stage awaits its certificate"
        assert decided.admitted == 0
        assert decided.counts() == {"fail_closed": 40}
    after = snapshot(tmp_path)
    assert all(after[name] == before[name] for name in ("log.jsonl", "certificate.json"))
    assert verify_run(tmp_path / "run").ok
