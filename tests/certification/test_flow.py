"""From records and labels to a certificate: the order of events, the doors, the bill, and resuming anywhere."""

from __future__ import annotations

import base64
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.crashes import Killed, every_crash, killed_at
from tests.samples import files_of, replaced, without, world
from vapo.certification import bounds, flow, freeze, issue, replay, stage
from vapo.certification.appeals import Keyed
from vapo.certification.candidates import default_budget
from vapo.certification.certificate import Certificate, open_certificate
from vapo.certification.flow import certify, prepare, split_records
from vapo.certification.freeze import freeze_trace, pending_requests
from vapo.certification.issue import join_labels
from vapo.certification.replay import replay_stages
from vapo.certification.stage import Stage
from vapo.certification.tally import codes_of, codes_table, stored_codes
from vapo.errors import BudgetError, InputError, IntegrityError, ProtocolError, VapoError
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.ledger.keys import SigningKey
from vapo.policy import Answers, Family, Policy, Reason, decide
from vapo.protocol import Protocol
from vapo.records import Labels, Records, Source

TERMS = {"rho": 0.15, "c_min": 0.2, "b_max": 0.2}
FAMILY = Family.of(
    [Policy.plain(0.3, 0.7, 0.5, budget=9), Policy.plain(0.5, 0.5), Policy.plain(0.6, 0.9, budget=5)]
)
PROMISED = {
    "status", "claim", "rho", "delta", "c_min", "b_max", "reach", "selected", "nearest", "counts", "bounds", "feasible",
    "candidates", "bill", "trace_root", "labels_digest", "family_digest", "stage",
}  # fmt: skip


def run(tmp_path, n=300, name="run", family=FAMILY, labels=None, table=None, **terms):
    own, truth = world(n)
    table = own if table is None else table
    return certify(
        table, truth if labels is None else labels, out=tmp_path / name, family=family, **{**TERMS, **terms}
    )


def kinds(path):
    return [event.kind.value for event in Ledger.read(path).events]


# What a certificate says


@pytest.mark.parametrize("claim", ["frozen", "sequential", "hoeffding"])
def test_a_certificate_says_what_was_promised_under_every_claim(tmp_path, claim):
    table, labels = world(1500)
    certificate = certify(table, labels, out=tmp_path / "run", claim=claim, **TERMS)
    body = certificate.body
    assert set(body) >= PROMISED
    assert set(body["bounds"]) == set(body["feasible"]) == {"frozen", "sequential", "hoeffding"}
    assert body["claim"] == claim
    assert set(body["counts"]) == {"n", "groups", "admitted", "harmful", "appealed"}
    candidates = pq.read_table(tmp_path / "run" / body["candidates"])
    assert candidates.num_rows == len(Stage.load(Ledger.read(tmp_path / "run")).family)
    shown = candidates.slice(body["nearest"]["index"], 1).to_pylist()[0]
    assert {name: shown[name] for name in ("admitted", "harmful", "appealed")} == {
        name: body["counts"][name] for name in ("admitted", "harmful", "appealed")
    }
    assert {"index", "tau_low", "tau_high", "tau_2", "failing"} <= set(candidates.column_names)
    assert Certificate.read(tmp_path / "run").body == body
    assert verify_run(tmp_path / "run").ok
    assert replay_stages(tmp_path / "run").stages == 1


def test_the_deciding_claim_alone_selects(tmp_path):
    table, labels = world(400)
    loose = certify(table, labels, out=tmp_path / "a", claim="frozen", **TERMS)
    strict = certify(table, labels, out=tmp_path / "b", claim="hoeffding", **TERMS)
    assert loose.certified
    assert loose.body["feasible"] == strict.body["feasible"] | {"frozen": True}
    assert loose.body["feasible"]["hoeffding"] is False
    assert strict.body["feasible"]["frozen"] is True
    assert not strict.certified
    assert strict.policy is None


def test_a_refused_certificate_says_what_failed_and_what_would_have_been_enough(tmp_path):
    refused = run(tmp_path, rho=0.001)
    assert refused.body["status"] == "refused"
    assert refused.body["selected"] is None
    assert refused.body["nearest"]["failing"]
    assert refused.body["enough"]
    assert kinds(tmp_path / "run")[-1] == "certificate.refused"
    table = pq.read_table(tmp_path / "run" / refused.body["candidates"])
    assert all(table.column("failing").to_pylist())
    assert "REFUSED" in str(refused)


def test_events_come_in_the_one_legal_order(tmp_path):
    run(tmp_path)
    assert kinds(tmp_path / "run") == [
        "protocol.declared",
        "family.frozen",
        "appeals.requested",
        "appeals.settled",
        "actions.recorded",
        "trace.frozen",
        "labels.joined",
        "certificate.issued",
    ]


def test_the_envelope_is_an_in_toto_statement_about_trace_and_labels_and_can_be_signed(tmp_path):
    key, stranger = (SigningKey.from_seed("example.org/runs", bytes([n] * 32)) for n in (1, 2))
    table, labels = world(300)
    body = certify(table, labels, out=tmp_path / "run", family=FAMILY, key=key, **TERMS).body
    data = (tmp_path / "run" / "certificate.json").read_bytes()
    assert open_certificate(data, [key.verifier]).body == body
    statement = json.loads(base64.b64decode(json.loads(data)["payload"]))
    assert {s["name"]: s["digest"]["sha256"] for s in statement["subject"]} == {
        "trace": body["trace_root"],
        "labels": body["labels_digest"],
    }
    with pytest.raises(IntegrityError):
        open_certificate(data, [stranger.verifier])
    hurt = json.loads(data)
    hurt["payload"] = base64.b64encode(
        base64.b64decode(hurt["payload"]).replace(b'"rho":0.15', b'"rho":0.10')
    ).decode()
    with pytest.raises(IntegrityError):
        open_certificate(json.dumps(hurt).encode(), [key.verifier])
    for broken in (b"", b"[]", b'{"payload": "!"}', b'{"payload": 3, "signatures": {}}', data + b"x"):
        with pytest.raises(VapoError):
            open_certificate(broken)


def test_a_column_that_knows_the_label_is_reported_after_the_join(tmp_path):
    table, labels = world(300)
    hint = [float(labels[name] > 0) for name in table.column("id").to_pylist()]
    certificate = run(tmp_path, table=replaced(table, hint=hint))
    assert certificate.body["labels"]["suspected_leaks"] == ["hint"]


# Splits and labels


def test_groups_without_labels_form_the_design_split_and_no_label_is_wasted(tmp_path):
    table, labels = world(900)
    known = {name: z for name, z in labels.items() if int(name[1:]) >= 300}
    body = certify(table, known, out=tmp_path / "run", **TERMS).body
    assert body["labels"]["ignored_design"] == 0
    assert body["counts"]["n"] == 600
    design = Ledger.read(tmp_path / "run").events[0].body["splits"]["splits"]["design"]
    assert design["rows"] == 300


def test_labels_of_design_records_are_ignored_and_counted(tmp_path):
    table, labels = world(900)
    body = certify(table, labels, out=tmp_path / "run", **TERMS).body
    assert body["labels"]["ignored_design"] == 900 - body["counts"]["n"] == 270
    assert body["labels"]["joined"] == body["counts"]["n"]


def test_a_label_of_an_unknown_record_is_refused(tmp_path):
    _, labels = world(300)
    with pytest.raises(InputError, match="'stranger', which is no record's id"):
        run(tmp_path, labels={**labels, "stranger": 1})
    assert kinds(tmp_path / "run")[-1] == "trace.frozen"
    assert verify_run(tmp_path / "run").ok
    assert run(tmp_path).body["labels"]["missing"] == 0


def admitted_ids(path):
    ledger = Ledger.read(path)
    frozen = ledger.stage_events(EventKind.FROZEN)[0]
    rows = ledger.table(frozen.body["needed"]).column("row").to_pylist()
    return [Stage.load(ledger).records(ledger).id[row].as_py() for row in rows]


def test_a_missing_label_of_an_admitted_record_is_an_error_unless_declared_harmful(tmp_path):
    whole = run(tmp_path, name="whole")
    _, labels = world(300)
    needed = admitted_ids(tmp_path / "whole")
    assert len(needed) == whole.body["bill"]["labels"] < 300
    just_enough = {name: labels[name] for name in needed}
    assert run(tmp_path, name="enough", labels=just_enough).body["counts"] == whole.body["counts"]
    short = {name: z for name, z in labels.items() if name not in needed[:7]}
    with pytest.raises(InputError, match=f"none for 7 of {len(needed)}, the first with id '{needed[0]}'"):
        run(tmp_path, name="short", labels=short)
    harmful = run(tmp_path, name="harmful", labels=short, missing_label="harmful")
    assert harmful.body["labels"]["missing"] == 7
    index = harmful.body["nearest"]["index"]
    before = pq.read_table(tmp_path / "whole" / whole.body["candidates"]).column("harmful")[index].as_py()
    assert before <= harmful.body["counts"]["harmful"] <= before + 7
    assert harmful.body["counts"]["harmful"] > before
    assert replay_stages(tmp_path / "harmful").stages == 1


def test_labels_cannot_be_joined_before_the_trace_is_frozen(tmp_path):
    table, labels = world(300)
    records = Records.from_arrow(table)
    with Ledger.write(tmp_path / "run") as ledger:
        prepare(ledger, Protocol(**TERMS), None, records, family=FAMILY)
        with pytest.raises(ProtocolError, match="only after the trace is frozen"):
            join_labels(ledger, Labels.from_mapping(labels))
        with pytest.raises(ProtocolError, match="no labels have been joined"):
            issue.issue(ledger)


def test_a_split_needs_two_groups_of_which_one_is_labelled():
    table, _ = world(20, per_group=20)
    with pytest.raises(InputError, match="at least two groups"):
        split_records(Records.from_arrow(table), Protocol(rho=0.1))
    alone = Records.from_arrow(world(20)[0])
    with pytest.raises(InputError, match="at least two groups"):
        split_records(alone, Protocol(rho=0.1), labelled=pa.array(["nobody"]))


def test_a_score_that_learns_needs_design_records(tmp_path):
    with pytest.raises(InputError, match="design records"):
        run(tmp_path, score="dawid-skene")
    design = world(300, prefix="d", seed=9)[0]
    table, labels = world(300)
    certificate = certify(
        table, labels, out=tmp_path / "apart", design=design, family=FAMILY, score="dawid-skene", **TERMS
    )
    assert certificate.body["counts"]["n"] == 300
    assert replay_stages(tmp_path / "apart").stages == 1


def test_candidates_chains_and_planned_rates_come_from_the_design_split_alone(tmp_path):
    design = world(300, prefix="d", seed=8)[0]
    stages = []
    for name, seed in (("one", 1), ("other", 2)):
        table, labels = world(400, seed=seed)
        certify(table, labels, out=tmp_path / name, design=design, score="rank-mean", **TERMS)
        stages.append(Stage.load(Ledger.read(tmp_path / name)))
    one, other = stages
    assert one.family == other.family
    assert one.score.as_dict() == other.score.as_dict()
    for name in ("planned_coverage", "planned_calls", "planned_squares"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_design_and_certification_that_overlap_are_refused(tmp_path):
    table, labels = world(300)
    with pytest.raises(InputError, match="share no id"):
        certify(table, labels, out=tmp_path / "run", design=table.slice(0, 10), **TERMS)
    with pytest.raises(InputError, match="share no content"):
        certify(
            world(300, content=True)[0],
            labels,
            out=tmp_path / "run",
            design=replaced(world(300, prefix="d")[0], content=[f"ANSWER {i}" for i in range(300)]),
            **TERMS,
        )


# Deciding, budgets and calls


def small_chunks(monkeypatch, size):
    for module in (stage, freeze, issue, replay):
        monkeypatch.setattr(module, "CHUNK", size)


@pytest.mark.parametrize(
    ("table", "shape"),
    [
        (codes_table(np.zeros((2, 3), np.uint8)), (2, 4)),
        (codes_table(np.zeros((2, 3), np.uint8)), (3, 2)),
        (pa.table({"reasons": [b"abc", b"ab"]}), (2, 3)),
        (pa.table({"reasons": [b"abc", None]}), (2, 3)),
        (pa.table({"reasons": pa.nulls(2)}), (2, 3)),
        (pa.table({"reasons": [1, 2]}), (2, 3)),
        (pa.table({"codes": [b"abc", b"abc"]}), (2, 3)),
        (pa.table({}), (2, 3)),
    ],
)
def test_recorded_actions_of_another_shape_are_refused(table, shape):
    with pytest.raises(IntegrityError, match="recorded actions: expected"):
        codes_of(table, *shape)


@pytest.mark.parametrize("size", [1, 7, 100, 150])
def test_budgets_reach_over_the_ends_of_chunks(tmp_path, monkeypatch, size):
    n = 60 if size == 1 else 300
    table = world(n, window=70)[0]
    whole = run(tmp_path, n=n, table=table, name="whole")
    small_chunks(monkeypatch, size)
    cut = run(tmp_path, n=n, table=table, name="cut")
    records = Records.from_arrow(table)
    at_once = decide(FAMILY, records, (records.trust("conf") + records.trust("judge")) / 2)
    ledger = Ledger.read(tmp_path / "cut")
    chunks = [codes for _, codes in stored_codes(ledger, Stage.load(ledger))]
    assert len(chunks) == -(-n // size)
    assert np.array_equal(np.concatenate(chunks, axis=1), at_once.codes)
    for name in ("counts", "selected", "bounds", "bill", "status"):
        assert cut.body[name] == whole.body[name]
    assert replay_stages(tmp_path / "cut").stages == 1


def test_no_window_ever_spends_more_than_its_budget(tmp_path):
    table, labels = world(900, window=64)
    certify(table, labels, out=tmp_path / "run", **TERMS)
    ledger = Ledger.read(tmp_path / "run")
    loaded = Stage.load(ledger)
    spent: Counter[tuple[int, str]] = Counter()
    for event in loaded.actions(ledger):
        calls = ledger.table(event.body["calls"])
        for row in calls.to_pylist():
            for index, count in enumerate(row["calls"]):
                spent[index, row["window"]] += count
    for (index, _), calls in spent.items():
        assert calls <= loaded.family.policies[index].budget


def test_the_default_budget_is_the_floor_of_the_largest_rate_times_the_window():
    records = Records.from_arrow(world(300, window=100)[0])
    for b_max, wanted in ((0.29, 29), (0.2, 20), (0.999, 99), (0.0, 0), (0.005, 0)):
        assert default_budget(Protocol(rho=0.1, b_max=b_max), records) == wanted
    assert default_budget(Protocol(rho=0.1, budget=3), records) == 3


class Oracle:
    """A live secondary that looks at the log before it answers."""

    def __init__(self, path, secondary, *, die_at=None):
        self.path, self.secondary, self.die_at, self.asked = path, secondary, die_at, 0

    def __call__(self, rows, asked):
        assert Ledger.read(self.path).events[-1].kind is EventKind.REQUESTED
        self.asked += int(asked.sum())
        if self.die_at is not None:
            raise Killed
        return Answers.of(self.secondary.take(rows), len(asked))


def frozen_family(path, **terms):
    records = Records.from_arrow(world(300)[0])
    ledger = Ledger.write(path)
    prepare(ledger, Protocol(**{**TERMS, **terms}), None, records, family=FAMILY)
    return ledger, records


def test_the_request_is_on_disk_before_the_answer_is_read(tmp_path):
    ledger, records = frozen_family(tmp_path / "run")
    with ledger:
        oracle = Oracle(tmp_path / "run", records.secondary)
        summary = freeze_trace(ledger, records, answers=oracle)
        assert oracle.asked == summary.secondary_calls == len(pending_requests(ledger, records))
        again = Oracle(tmp_path / "run", records.secondary)
        assert freeze_trace(ledger, records, answers=again).event == summary.event
        assert again.asked == 0


def test_a_call_in_flight_at_a_crash_is_lost_unless_asking_again_is_free(tmp_path):
    for repeatable, name in ((False, "paid"), (True, "free")):
        ledger, records = frozen_family(tmp_path / name)
        with ledger, pytest.raises(Killed):
            freeze_trace(ledger, records, answers=Oracle(tmp_path / name, records.secondary, die_at=0))
        with Ledger.write(tmp_path / name) as ledger:
            oracle = Oracle(tmp_path / name, records.secondary)
            freeze_trace(ledger, records, answers=oracle, repeatable=repeatable)
            _, codes = next(stored_codes(ledger, Stage.load(ledger)))
            lost = int(np.count_nonzero(codes[0] == Reason.SECONDARY_LOST))
            assert (oracle.asked > 0) is repeatable
            assert (lost > 0) is not repeatable


def test_calls_in_flight_under_idempotency_keys_are_not_lost_and_paid_once(tmp_path):
    paid = {}

    def ask(records, die):
        def answers(rows, asked, keys):
            given = Answers.of(records.secondary.take(rows), len(asked))
            for key, row in zip(keys, np.flatnonzero(asked), strict=True):
                paid.setdefault(key, int(given.verdict[row]))
            if die:
                raise Killed
            return given

        return Keyed(answers)

    ledger, records = frozen_family(tmp_path / "run")
    with ledger, pytest.raises(Killed):
        freeze_trace(ledger, records, answers=ask(records, die=True))
    before = dict(paid)
    with Ledger.write(tmp_path / "run") as ledger:
        summary = freeze_trace(ledger, records, answers=ask(records, die=False))
        assert freeze_trace(ledger, records, answers=ask(records, die=True)).event == summary.event
    assert paid == before
    assert len(paid) == summary.secondary_calls
    smooth, records = frozen_family(tmp_path / "smooth")
    with smooth:
        freeze_trace(smooth, records)
    assert files_of(tmp_path / "run") == files_of(tmp_path / "smooth")


def test_the_declared_caps_on_labels_and_calls_are_kept_before_anything_is_paid(tmp_path):
    free, records = frozen_family(tmp_path / "free")
    with free:
        summary = freeze_trace(free, records)
    ledger, records = frozen_family(tmp_path / "calls", max_secondary_calls=summary.secondary_calls - 1)
    with ledger:
        oracle = Oracle(tmp_path / "calls", records.secondary)
        with pytest.raises(BudgetError, match=f"{summary.secondary_calls} secondary calls"):
            freeze_trace(ledger, records, answers=oracle)
        assert oracle.asked == 0
    for cap, fits in ((summary.labels - 1, False), (summary.labels, True)):
        ledger, records = frozen_family(tmp_path / f"labels{cap}", max_labels=cap)
        with ledger:
            if fits:
                freeze_trace(ledger, records)
            else:
                with pytest.raises(BudgetError, match=f"{summary.labels} labels"):
                    freeze_trace(ledger, records)


def test_appeals_without_answers_are_asked_for_and_not_guessed(tmp_path):
    with pytest.raises(InputError, match="a column 'y2'"):
        run(tmp_path, table=without(world(300)[0], "y2", "c2"))


def test_only_answers_of_the_declared_secondary_count(tmp_path):
    table = world(300)[0]
    named = replaced(table, y2_source=["s" if i % 2 else "t" for i in range(300)])
    run(tmp_path, table=named, secondary=("s",))
    ledger = Ledger.read(tmp_path / "run")
    codes = next(stored_codes(ledger, Stage.load(ledger)))[1][0]
    appealed = (codes >= Reason.CONFIRMED) & (codes <= Reason.SECONDARY_LOST)
    foreign = appealed & (np.arange(300) % 2 == 0)
    assert set(codes[foreign]) <= {Reason.SECONDARY_PROVENANCE, Reason.SECONDARY_MISSING}
    assert Reason.CONFIRMED in codes
    with pytest.raises(InputError, match="declared secondary u"):
        run(tmp_path, name="none", table=named, secondary=("u",))


# Sources, waivers and groups in the protocol


def test_sources_waivers_and_null_signals_stand_in_the_protocol_and_the_certificate(tmp_path):
    table = replaced(world(300)[0], gold=[1] * 300)
    table = table.replace_schema_metadata({"solution": "in here"})
    signal = [None if i % 10 == 0 else 0.6 for i in range(300)]
    declared = {"signal.conf": Source("policy", "1" * 64), "primary": Source("rule", "2" * 64)}
    terms = {"waivers": ("gold", "@solution"), "null_signals": {"conf": 0.1}, "sources": declared}
    table = replaced(table, signal__conf=signal)
    body = run(tmp_path, table=table, **terms).body
    assert body["waived"] == ["gold", "@solution"]
    assert body["undeclared_sources"] == ["verdict.judge", "y2"]
    assert body["sources"]["signal.conf"]["digest"] == "1" * 64
    assert replay_stages(tmp_path / "run").stages == 1
    with pytest.raises(InputError, match="give the answer away"):
        run(tmp_path, name="strict", table=table)
    apart = Records.from_arrow(table, waivers=terms["waivers"], null_signals=terms["null_signals"])
    with pytest.raises(InputError, match="a waiver of 'gold' in the protocol"):
        run(tmp_path, name="records", table=apart)
    with pytest.raises(InputError, match="null_signals in the protocol"):
        run(tmp_path, name="records", table=apart, waivers=terms["waivers"])
    assert run(tmp_path, name="records", table=apart, **terms).body["counts"] == body["counts"]


def test_records_that_name_other_sources_than_the_protocol_are_refused(tmp_path):
    mine = Records.from_arrow(world(300)[0], sources={"primary": Source("mine", "3" * 64)})
    with pytest.raises(InputError, match="the source of 'primary' to be 'rule'"):
        run(tmp_path, table=mine, sources={"primary": Source("rule", "2" * 64)})
    assert run(tmp_path, table=mine).body["sources"]["primary"]["id"] == "mine"


def test_redundant_signals_are_refused_unless_waived_and_the_waiver_is_recorded(tmp_path):
    table = world(300)[0]
    levels = (np.arange(300) % 5) / 5
    doubled = replaced(table, signal__a=levels, signal__b=levels**2)
    with pytest.raises(InputError, match="is a function of"):
        run(tmp_path, table=doubled)
    body = run(tmp_path, name="waived", table=doubled, waive_redundancy=True).body
    assert any("is a function of" in words for words in body["waived"])


def test_a_verifier_that_is_signal_and_secondary_is_refused_before_anything_is_declared(tmp_path):
    table = replaced(world(300)[0], y2_source=["judge"] * 300)
    with pytest.raises(InputError, match="not also a signal"):
        run(tmp_path, table=table)
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_a_declared_cap_reads_sequential_evidence_by_group_and_is_kept(tmp_path):
    table, labels = world(600, per_group=4)
    with pytest.raises(InputError, match="at most 2 admitted records in every group"):
        run(tmp_path, name="low", table=table, labels=labels, claim="sequential", group_cap=2)
    assert kinds(tmp_path / "low")[-1] == "actions.recorded"
    body = run(tmp_path, name="enough", table=table, labels=labels, claim="sequential", group_cap=4).body
    assert body["units"]["sequential"] == "group"


def test_without_design_and_cap_sequential_reads_records_and_promises_nothing_about_a_population(tmp_path):
    table, labels = world(600, per_group=4)
    body = run(tmp_path, table=table, labels=labels, claim="sequential").body
    assert body["units"]["sequential"] == "record"
    with pytest.raises(InputError, match="--group-cap"):
        run(tmp_path, name="law", table=table, labels=labels, claim="sequential", reach="population")


@pytest.mark.parametrize(("sizes", "cap"), [((4, 4), 4), ((2, 4), 6), ((1, 3), 5)])
def test_the_cap_comes_from_the_design_split_with_room_where_its_groups_differ(tmp_path, sizes, cap):
    table, labels = world(600, per_group=4)
    groups = [i for i in range(200) for _ in range(sizes[i % 2])]
    apart = replaced(
        world(len(groups))[0], id=[f"d{i}" for i in range(len(groups))], group=[f"d{g}" for g in groups]
    )
    run(tmp_path, table=table, labels=labels, claim="sequential", design=apart, family=None)
    frozen = next(e for e in Ledger.read(tmp_path / "run").events if e.kind == "family.frozen")
    assert frozen.body["group_cap"] == cap


def test_a_cap_that_nothing_rests_on_does_not_stand_in_the_way(tmp_path):
    table, labels = world(600, per_group=4)
    body = run(tmp_path, table=table, labels=labels, group_cap=2).body
    assert body["units"] == {"hoeffding": "record", "sequential": "record", "frozen": "group"}
    assert body["counts"]["groups"] == 150
    assert replay_stages(tmp_path / "run").stages == 1


def test_groups_joined_by_content_are_one_group_in_the_certificate(tmp_path):
    table = replaced(world(300)[0], content=[f"text {i // 3}" for i in range(300)])
    body = run(tmp_path, table=table).body
    assert body["counts"]["groups"] == 100
    assert body["units"]["frozen"] == "group"
    assert replay_stages(tmp_path / "run").stages == 1


# Reach


def reach(tmp_path, table, labels, name="run", family=None, **terms):
    family = family or Family.of([Policy.plain(0.5, 0.5)])
    design = world(300, prefix="d", seed=8, per_group=terms.pop("design_group", 1))[0]
    body = certify(
        table,
        labels,
        out=tmp_path / name,
        design=design,
        family=family,
        reach="population",
        **{**TERMS, **terms},
    ).body
    return body["reach"], body["reach_detail"]["case"]


def test_the_reach_is_claimed_only_where_it_holds(tmp_path):
    single, labels = world(600)
    assert run(tmp_path, name="declared stage").body["reach"] == "stage"
    assert reach(tmp_path, single, labels, "a") == ("population", "a")
    appealing = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=9)])
    assert reach(tmp_path, single, labels, "c", appealing) == ("population", "c")
    grouped, truth = world(600, per_group=4, window=100)
    assert reach(tmp_path, grouped, truth, "b", design_group=4) == ("population", "b")
    assert reach(tmp_path, grouped, truth, "d", appealing, design_group=4) == ("population", "d")
    crossing, truth = world(600, per_group=4, window=75)
    assert reach(tmp_path, crossing, truth, "none", appealing, design_group=4) == ("stage", "stage")
    one_window, truth = world(600, per_group=4, window=None)
    assert reach(tmp_path, one_window, truth, "one", appealing, design_group=4) == ("stage", "stage")
    alone, truth = world(600, window=None)
    assert reach(tmp_path, alone, truth, "one budget", appealing) == ("stage", "stage")
    assert reach(tmp_path, grouped, truth, "uncapped") == ("population", "d")
    # That every group of this stage happens to have one admitted record does not bind the next group.
    pairs, truth = world(600, per_group=2, window=None)
    by_chance = replaced(pairs, **{"signal.conf": pa.array([0.9, 0.1] * 300)})
    assert reach(tmp_path, by_chance, truth, "by chance", score="signal:conf") == ("stage", "stage")


def test_the_certificate_says_with_which_probability_a_statement_about_the_population_holds(tmp_path):
    table, labels = world(1500)
    design = world(300, prefix="d", seed=8)[0]
    gate = Family.of([Policy.plain(0.3, 0.6, 0.5, budget=9)])
    for name, said in (("stage", "0.95"), ("population", "0.9")):
        terms = {**TERMS, "reach": name, "design": design, "family": gate, "score": "signal:conf"}
        certificate = certify(table, labels, out=tmp_path / name, **terms)
        assert certificate.certified
        assert certificate.body["reach"] == name
        # With a budget the share of appeals is an interval of its own, at the same level as the limit.
        assert f"with probability at least {said} at most" in str(certificate)


def test_a_population_of_groups_is_bet_on_with_a_stake_from_the_design_split(tmp_path):
    table, labels = world(600, per_group=4)
    design = world(300, prefix="d", seed=8, per_group=4)[0]
    gate = Policy.plain(0.5, 0.5)
    terms = {**TERMS, "design": design, "family": Family.of([gate]), "score": "signal:conf", "group_cap": 5}
    body = certify(table, labels, out=tmp_path / "run", reach="population", **terms).body

    def by_group(given):
        records = Records.from_arrow(given)
        admitted = decide(gate, records, records.signals["conf"]).admitted()
        bad = np.array([labels.get(name, 0) for name in records.id.to_pylist()]) * records.y < 0
        return [
            np.bincount(records.group[part], minlength=records.groups) for part in (admitted, admitted & bad)
        ]

    (planned, _), (a, h) = by_group(design), by_group(table)
    stake = np.sqrt(2 * np.log(20) / (0.15 * 0.85 * len(a) * np.mean(planned**2) / 5**2))
    evidence = np.log1p(-stake * (h - 0.15 * a) / 5).sum()
    used = np.count_nonzero(a)
    limit = 0.15 - np.expm1((evidence - np.log(20)) / used) / stake * used * 5 / a.sum()
    assert evidence > np.log(20)
    assert body["status"] == "certified"
    assert body["bounds"]["frozen"]["risk_upper"] == pytest.approx(limit, abs=1e-12)


# Doing it again


VARIANTS = {
    "built": {"family": None},
    "given": {},
    "sequential": {"claim": "sequential"},
    "small": {"score": "signal:conf"},
}


def test_a_run_killed_at_any_write_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    small_chunks(monkeypatch, 35)
    table, labels = world(60, content=True)
    one = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=9)])

    def work(path):
        certify(table, labels, out=path, family=one, **TERMS)

    work(tmp_path / "reference")
    wanted = files_of(tmp_path / "reference")
    for what, place in every_crash(monkeypatch, tmp_path, work):
        if (place / "log.jsonl").exists():
            verify_run(place)
        work(place)
        assert files_of(place) == wanted, what
    assert verify_run(place).ok
    assert replay_stages(place).stages == 1


def test_a_run_with_a_design_split_killed_at_any_event_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    table, labels = world(150)

    def work(path):
        certify(table, labels, out=path, score="dawid-skene", **TERMS)

    work(tmp_path / "reference")
    wanted = files_of(tmp_path / "reference")
    with killed_at(monkeypatch, -1) as writes:
        work(tmp_path / "counted")
    for when in [number for number, what in enumerate(writes) if what == "append log.jsonl"]:
        place = tmp_path / str(when)
        with killed_at(monkeypatch, when), pytest.raises(Killed):
            work(place)
        work(place)
        assert files_of(place) == wanted


@pytest.mark.parametrize("variant", VARIANTS)
def test_certifying_again_changes_nothing(tmp_path, variant):
    options = VARIANTS[variant]
    first = run(tmp_path, **options)
    before = files_of(tmp_path / "run")
    assert run(tmp_path, **options).body == first.body
    assert files_of(tmp_path / "run") == before


def test_other_inputs_are_refused_and_leave_the_run_as_it_was(tmp_path):
    run(tmp_path)
    before = files_of(tmp_path / "run")
    _, labels = world(300)
    other = world(300, seed=1)[0]
    flipped = {name: -z for name, z in labels.items()}
    answered = replaced(world(300)[0], y2=[1] * 300)
    for options in (
        {"rho": 0.2},
        {"table": other},
        {"labels": flipped},
        {"family": None},
        {"family": Family.of([Policy.plain(0.1, 0.1)])},
        {"table": answered},
        {"seed": 1},
    ):
        with pytest.raises(ProtocolError, match="differs from what is being done now"):
            run(tmp_path, **options)
        assert files_of(tmp_path / "run") == before
    assert verify_run(tmp_path / "run").ok


def test_in_steps_or_in_one_go_the_bytes_are_the_same(tmp_path):
    run(tmp_path, name="at once")
    table, labels = world(300)
    for step in range(3):
        with Ledger.write(tmp_path / "steps") as ledger:
            records = Records.from_arrow(table)
            if step == 0:
                prepare(ledger, Protocol(**TERMS), None, records, family=FAMILY)
            elif step == 1:
                freeze_trace(ledger, records)
            else:
                join_labels(ledger, Labels.from_mapping(labels))
                issue.issue(ledger)
        assert verify_run(tmp_path / "steps").ok or step == 0
    assert files_of(tmp_path / "steps") == files_of(tmp_path / "at once")


def test_a_file_in_any_row_order_gives_the_same_run_if_it_declares_the_order(tmp_path):
    table, labels = world(300)
    ordered = table.append_column("order", pa.array(range(300)))
    shuffled = ordered.take(pa.array(np.random.default_rng(0).permutation(300)))
    one = run(tmp_path, name="a", table=ordered, labels=labels)
    other = run(tmp_path, name="b", table=shuffled, labels=dict(reversed(labels.items())))
    assert one.body == other.body
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


EXTRAS = {
    "categories": pa.array([f"c{i % 3}" for i in range(300)]).dictionary_encode(),
    "nothing": pa.nulls(300),
    "lists": pa.array([[i, None] for i in range(300)]),
    "structs": pa.array([{"a": i, "b": [str(i)]} for i in range(300)]),
    "maps": pa.array([[("k", i)] for i in range(300)], pa.map_(pa.string(), pa.int64())),
    "times": pa.array(range(300), pa.timestamp("ns", "UTC")),
    "spans": pa.array(range(300), pa.duration("us")),
    "decimals": pa.array(range(300)).cast(pa.decimal128(24, 2)),
    "large": pa.array([str(i) for i in range(300)], pa.large_string()),
    "views": pa.array([str(i) for i in range(300)], pa.string_view()),
    "bytes": pa.array([bytes([i % 256]) for i in range(300)]),
    "half": pa.array(np.arange(300, dtype=np.float16)),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_a_run_replays_whatever_columns_it_keeps(tmp_path, name):
    run(tmp_path, table=replaced(world(300)[0], kept=EXTRAS[name]))
    assert verify_run(tmp_path / "run").ok
    assert replay_stages(tmp_path / "run").stages == 1


def test_a_column_that_cannot_be_kept_is_our_own_error(tmp_path):
    empty = pa.array([{}] * 300, pa.struct([]))
    with pytest.raises(InputError, match="Parquet can hold"):
        run(tmp_path, table=replaced(world(300)[0], kept=empty))


def test_a_run_replays_whose_design_file_has_no_secondary(tmp_path):
    table, labels = world(400)
    design = without(world(300, prefix="d", seed=3)[0], "y2", "c2")
    certify(table, labels, out=tmp_path / "run", design=design, **TERMS)
    assert replay_stages(tmp_path / "run").stages == 1


def test_a_family_that_calls_itself_built_is_still_the_users(tmp_path):
    family = Family.of(FAMILY.policies, rule="design quantiles (linear) of my own")
    table, labels = world(300)
    certify(table, labels, out=tmp_path / "run", design=world(300, prefix="d")[0], family=family, **TERMS)
    assert replay_stages(tmp_path / "run").stages == 1


def test_a_familys_weights_say_what_each_candidate_spends_under_sequential_and_nowhere_else(tmp_path):
    weights = (0.8, 0.05, 0.1)
    heavy = Family.of(FAMILY.policies, weights=weights)
    plain = run(tmp_path, 1200, claim="sequential").body
    body = run(tmp_path, 1200, "weighted", heavy, claim="sequential").body
    before = pq.read_table(tmp_path / "run" / plain["candidates"]).to_pylist()
    after = pq.read_table(tmp_path / "weighted" / body["candidates"]).to_pylist()
    assert [row["weight"] for row in before] == [1 / 3] * 3
    assert [row["weight"] for row in after] == list(weights)
    for one, other, weight in zip(before, after, weights, strict=True):
        assert {one[name] == other[name] for name in one if name.startswith(("frozen.", "hoeffding."))} == {
            True
        }
        k, h, a = (other[name] for name in ("admitted", "harmful", "appealed"))
        risk, coverage, calls = (0.05 * share * weight for share in (0.9, 0.05, 0.05))
        bet = bounds.planned_bet(1200 * 0.2, 0.15, -np.log(0.9 * risk))
        excess = bounds.excess_upper(k, h, 1200, 0.15, risk, bet)
        assert other["sequential.excess_upper"] == pytest.approx(float(excess), abs=1e-10)
        stake = bounds.planned_mean_bet(1 - 0.2, 1200, -np.log(0.9 * coverage))
        lower = bounds.mean_lower(k, 1200, coverage, stake)
        assert other["sequential.coverage_lower"] == pytest.approx(float(lower), abs=1e-10)
        stake = bounds.planned_mean_bet(0.2, 1200, -np.log(0.9 * calls))
        upper = bounds.mean_upper(a, 1200, calls, stake)
        assert other["sequential.calls_upper"] == pytest.approx(float(upper), abs=1e-10)
    assert verify_run(tmp_path / "weighted").ok
    assert replay_stages(tmp_path / "weighted").stages == 1


def test_a_sign_specific_policy_is_named_by_sign(tmp_path):
    table, labels = world(1200)
    body = certify(table, labels, out=tmp_path / "run", signs="specific", **TERMS).body
    chosen = body["selected"] or body["nearest"]
    assert {"pos", "neg"} <= set(chosen)
    assert "tau_low" not in chosen
    assert Certificate(body).policy is None or Certificate(body).policy.sign_specific


@pytest.mark.parametrize(
    "wrong", [{"rho": 0}, {"rho": "x"}, {"rho": 0.1, "rhoo": 1}, {}, {"rho": 0.1, "claim": "best"}]
)
def test_wrong_terms_are_our_own_error_and_leave_no_folder(tmp_path, wrong):
    table, labels = world(50)
    with pytest.raises(InputError, match="terms"):
        certify(table, labels, out=tmp_path / "run", **wrong)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", [None, 7, [1], {"id": ["a"]}])
def test_what_is_no_table_is_our_own_error(tmp_path, source):
    with pytest.raises(InputError):
        flow.as_records(source, Protocol(rho=0.1))
    with pytest.raises(InputError):
        flow.as_labels(source if source != {"id": ["a"]} else 3)


def test_a_run_replays_whose_windows_begin_in_another_order_among_a_part_of_the_records(tmp_path):
    table, labels = world(300, window=25)
    order = np.random.default_rng(3).permutation(300)
    certify(replaced(table, order=order), labels, out=tmp_path / "run", **TERMS)
    assert replay_stages(tmp_path / "run").stages == 1
