"""The certified policy at work: every batch on disk first, budgets kept, and shut whenever in doubt."""

from __future__ import annotations

import shutil
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.crashes import Killed, every_crash, forge, killed_at
from tests.samples import files_of, replaced, without, world
from vapo.certification.appeals import Keyed
from vapo.certification.flow import certify
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.gate import Gate, join_spotchecks, replay_run, watch
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.policy import Answers, Family, Policy, decide
from vapo.protocol import Protocol
from vapo.records import Labels, Records, Source

TERMS = {"rho": 0.15, "c_min": 0.2, "b_max": 0.2}
APPEALING = Family.of([Policy.plain(0.2, 0.88, 0.5, budget=6)])


@pytest.fixture(scope="module")
def appealing(tmp_path_factory):
    run = tmp_path_factory.mktemp("appealing") / "run"
    table, labels = world(900)
    assert certify(table, labels, out=run, family=APPEALING, monitor_rate=0.5, **TERMS).certified
    return run


@pytest.fixture
def run(appealing, tmp_path):
    return shutil.copytree(appealing, tmp_path / "run")


def batch(n=60, **options):
    return world(n, **{"prefix": "n", "seed": 7, "window": 30, **options})[0]


def score(records):
    return (records.trust("conf") + records.trust("judge")) / 2


def segments(run):
    return len(list((run / "segments").iterdir()))


def test_the_gate_does_what_the_certified_policy_does(run):
    records = Records.from_arrow(batch())
    wanted = decide(APPEALING, records, score(records))
    with Gate.open(run) as gate:
        decided = gate.decide(batch())
        assert gate.policy == APPEALING.policies[0]
    assert decided.table.column("sign").to_pylist() == wanted.sign(records.y).tolist()
    assert decided.admitted == np.count_nonzero(wanted.admitted())
    assert decided.appealed == wanted.calls.sum()
    assert decided.table.column_names[:7] == [
        "id",
        "action",
        "sign",
        "reason",
        "budget_before",
        "budget_after",
        "score",
    ]
    before = 6 - wanted.spent_before()
    assert decided.table.column("budget_before").to_pylist() == before.tolist()
    assert decided.table.column("budget_after").to_pylist() == (before - wanted.appealed()).tolist()


@pytest.mark.parametrize("cuts", [(10,), (29,), (30,), (5, 17, 42), tuple(range(3, 60, 3))])
def test_a_window_that_comes_in_several_batches_has_one_budget(run, cuts):
    whole = batch()
    edges = [0, *cuts, 60]
    with Gate.open(run) as gate:
        parts = [gate.decide(whole.slice(a, b - a)).table for a, b in pairwise(edges)]
    records = Records.from_arrow(whole)
    wanted = decide(APPEALING, records, score(records))
    together = pa.concat_tables(parts)
    assert together.column("sign").to_pylist() == wanted.sign(records.y).tolist()
    assert together.column("budget_before").to_pylist() == (6 - wanted.spent_before()).tolist()
    assert replay_run(run).batches == len(edges) - 1


def test_the_budget_of_a_window_survives_the_process(run):
    whole = batch(30)
    parts = []
    for first in (0, 10, 20):
        with Gate.open(run) as gate:
            parts.append(gate.decide(whole.slice(first, 10)))
    assert sum(part.appealed for part in parts) == 6
    assert [event.kind for event in Ledger.read(run).events].count(EventKind.DEPLOY) == 1


def test_without_windows_each_batch_is_one(run):
    one, other = (without(batch(40, prefix=p, seed=s), "window") for p, s in (("n", 7), ("m", 8)))
    with Gate.open(run) as gate:
        assert gate.decide(one).appealed == 6
        assert gate.decide(other).appealed == 6
    assert replay_run(run).batches == 2


def test_a_batch_that_was_decided_is_returned_as_it_was(run):
    with Gate.open(run) as gate:
        decided = gate.decide(batch())
        before = files_of(run)
        assert gate.decide(batch()).table.equals(decided.table)
    with Gate.open(run) as gate:
        again = gate.decide(batch())
    assert again.table.equals(decided.table)
    assert again.batch == decided.batch == 0
    assert files_of(run) == before


def test_a_record_is_not_decided_twice_and_a_refused_batch_leaves_nothing(run):
    with Gate.open(run) as gate:
        gate.decide(batch())
        before = files_of(run)
        with pytest.raises(
            InputError, match="row 1: field 'id': expected a record that was not decided before"
        ):
            gate.decide(batch().slice(50, 10))
        with pytest.raises(InputError, match=r"signal\.conf"):
            gate.decide(without(batch(prefix="m"), "signal.conf"))
        with pytest.raises(InputError):
            gate.decide(replaced(batch(prefix="m"), gold=[1] * 60))
    assert files_of(run) == before
    assert verify_run(run).ok


def test_asking_what_would_be_asked_spends_and_writes_nothing(run):
    with Gate.open(run) as gate:
        before = files_of(run)
        asked = gate.requests(batch())
        assert files_of(run) == before
        decided = gate.decide(batch())
    assert asked.tolist() == pc.equal(decided.table.column("action"), "appeal").to_pylist()


def test_overlap_with_the_certification_records_is_counted(run):
    with Gate.open(run) as gate:
        assert gate.overlap(world(30)[0]) == {"ids": 30, "groups": 30}
        assert gate.overlap(batch()) == {"ids": 0, "groups": 0}


# Secondary answers


class Live:
    def __init__(self, run, records, *, die=False):
        self.run, self.records, self.die, self.calls = run, records, die, 0

    def __call__(self, records, asked):
        assert Ledger.read(self.run).events[-1].kind is EventKind.REQUESTED
        self.calls += int(asked.sum())
        if self.die:
            raise Killed
        return Answers.of(self.records.secondary, len(records))


def test_a_live_secondary_is_asked_only_for_what_is_on_disk(run):
    records = Records.from_arrow(batch())
    live = Live(run, records)
    with Gate.open(run) as gate:
        decided = gate.decide(without(batch(), "y2", "c2"), secondary=live)
    assert live.calls == decided.appealed == 12
    wanted = decide(APPEALING, records, score(records))
    assert decided.table.column("sign").to_pylist() == wanted.sign(records.y).tolist()
    assert replay_run(run).batches == 1


@pytest.mark.parametrize("repeatable", [False, True])
def test_a_batch_that_died_between_request_and_answer_is_redone_and_not_done_twice(run, repeatable):
    records = Records.from_arrow(batch())
    bare = without(batch(), "y2", "c2")
    with Gate.open(run) as gate, pytest.raises(Killed):
        gate.decide(bare, secondary=Live(run, records, die=True))
    with Gate.open(run) as gate:
        live = Live(run, records)
        decided = gate.decide(bare, secondary=live, repeatable=repeatable)
    assert live.calls == (12 if repeatable else 0)
    assert decided.appealed == 12
    lost = decided.counts().get("secondary_lost", 0)
    assert lost == (0 if repeatable else 12)
    kinds = [event.kind for event in Ledger.read(run).events]
    assert kinds[-3:] == [EventKind.REQUESTED, EventKind.SETTLED, EventKind.ACTIONS]
    assert kinds.count(EventKind.REQUESTED) == 2
    assert verify_run(run).ok
    assert replay_run(run).batches == 1


class Bank:
    """A secondary that honours idempotency keys, and dies before it answers if told so."""

    def __init__(self, records, *, die=False):
        self.records, self.die, self.paid = records, die, {}

    def __call__(self, records, asked, keys):
        assert len(keys) == asked.sum()
        answers = Answers.of(self.records.secondary, len(records))
        for key, row in zip(keys, np.flatnonzero(asked), strict=True):
            self.paid.setdefault(key, int(answers.verdict[row]))
        if self.die:
            raise Killed
        return answers


def test_calls_in_flight_under_idempotency_keys_are_asked_again_and_paid_once(run, tmp_path):
    records, bare = Records.from_arrow(batch()), without(batch(), "y2", "c2")
    smooth = shutil.copytree(run, tmp_path / "smooth")
    with Gate.open(smooth) as gate:
        gate.decide(bare, secondary=Keyed(Bank(records)))
    bank = Bank(records, die=True)
    with Gate.open(run) as gate, pytest.raises(Killed):
        gate.decide(bare, secondary=Keyed(bank))
    paid, bank.die = dict(bank.paid), False
    with Gate.open(run) as gate:
        assert "secondary_lost" not in gate.decide(bare, secondary=Keyed(bank)).counts()
    assert bank.paid == paid
    assert len(paid) == 12
    assert files_of(run) == files_of(smooth)


def test_another_batch_does_not_take_the_place_of_an_interrupted_one(run):
    records = Records.from_arrow(batch())
    with Gate.open(run) as gate:
        with pytest.raises(Killed):
            gate.decide(without(batch(), "y2", "c2"), secondary=Live(run, records, die=True))
        with pytest.raises(ProtocolError, match="differs from what is being done now"):
            gate.decide(batch(prefix="m", seed=8))
        gate.decide(without(batch(), "y2", "c2"), secondary=Live(run, records))
        gate.decide(batch(prefix="m", seed=8))
    assert verify_run(run).ok


def test_batches_killed_at_any_write_resume_to_the_same_bytes(appealing, tmp_path, monkeypatch):
    def prepare(path):
        shutil.copytree(appealing, path)

    def work(path):
        with Gate.open(path) as gate:
            gate.decide(batch(40))
            gate.decide(batch(30, prefix="m", seed=9))

    prepare(tmp_path / "reference")
    work(tmp_path / "reference")
    wanted = files_of(tmp_path / "reference")
    for what, place in every_crash(monkeypatch, tmp_path, work, prepare):
        verify_run(place)
        work(place)
        assert files_of(place) == wanted, what
    assert verify_run(place).ok
    assert replay_run(place).batches == 2


def test_answers_without_a_request_and_of_strangers_are_not_believed(run, tmp_path):
    named = replaced(batch(), y2_source=["stranger"] * 60)
    with Gate.open(run) as gate:
        counts = gate.decide(named).counts()
    assert "confirmed" not in counts
    assert counts["secondary_provenance"] > 0
    table, labels = world(900)
    certified = replaced(table, y2_source=["second"] * 900)
    certify(certified, labels, out=tmp_path / "named", family=APPEALING, **TERMS)
    with Gate.open(tmp_path / "named") as gate:
        assert "confirmed" not in gate.decide(without(batch(prefix="a"), "window")).counts()
        good = replaced(without(batch(prefix="b"), "window"), y2_source=["second"] * 60)
        assert "confirmed" in gate.decide(good).counts()
        changed = Records.from_arrow(
            replaced(without(batch(prefix="c"), "window"), y2_source=["second"] * 60),
            sources={"second": Source("second", "5" * 64)},
        )
        assert "confirmed" not in gate.decide(changed).counts()
    assert replay_run(tmp_path / "named").batches == 3


# Shut


def test_records_of_other_sources_than_the_certified_ones_are_all_abstained_on(run):
    for number, name in enumerate(("primary", "signal.conf", "verdict.judge")):
        foreign = Records.from_arrow(batch(prefix=f"f{number}"), sources={name: Source("new", "6" * 64)})
        with Gate.open(run) as gate:
            assert not gate.requests(foreign).any()
            decided = gate.decide(foreign)
            assert name in decided.closed
            assert decided.counts() == {"fail_closed": 60}
            assert decided.admitted == decided.appealed == 0
            assert not gate.closed
    assert replay_run(run).batches == 3
    assert verify_run(run).ok


def test_a_closed_gate_shows_no_negative_budget(run):
    whole = batch(30)
    foreign = Records.from_arrow(whole.slice(20, 10), sources={"primary": Source("new", "6" * 64)})
    with Gate.open(run) as gate:
        assert gate.decide(whole.slice(0, 20)).appealed == 6
        closed = gate.decide(foreign).table
    assert set(closed.column("budget_before").to_pylist()) == {0}
    assert set(closed.column("budget_after").to_pylist()) == {0}
    assert replay_run(run).batches == 2


def test_a_refused_certificate_keeps_the_gate_shut(tmp_path):
    table, labels = world(200)
    certify(table, labels, out=tmp_path / "run", family=APPEALING, **{**TERMS, "rho": 0.001})
    with Gate.open(tmp_path / "run") as gate:
        decided = gate.decide(batch())
        assert gate.closed == decided.closed == "the certificate was refused"
        assert decided.counts() == {"fail_closed": 60}
    assert verify_run(tmp_path / "run").ok
    assert replay_run(tmp_path / "run").batches == 1


def test_without_a_certificate_there_is_no_gate(tmp_path, monkeypatch):
    table, labels = world(200)
    with killed_at(monkeypatch, 12), pytest.raises(Killed):
        certify(table, labels, out=tmp_path / "run", family=APPEALING, **TERMS)
    with pytest.raises(InputError, match="a run with a certificate"):
        Gate.open(tmp_path / "run")
    with Ledger.write(tmp_path / "run"):
        pass
    with pytest.raises(InputError):
        Gate.open(tmp_path / "nowhere")


def harmful_batch(n=200):
    table, labels = world(n, prefix="n", seed=7, window=30)
    return table, {name: -z for name, z in labels.items()}


def test_an_alarm_shuts_the_gate_for_good(run):
    table, labels = harmful_batch()
    with Gate.open(run) as gate:
        admitted = gate.decide(table).admitted
    assert admitted > 50
    with Ledger.write(run) as ledger:
        wanted = watch(ledger).wanted
        state = join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in wanted}))
        assert state.monitor.alarm
        assert ledger.events[-1].kind is EventKind.ALARM
        with pytest.raises(ProtocolError, match="no deployment is open"):
            join_spotchecks(ledger, Labels.from_mapping({wanted[0]: labels[wanted[0]]}))
    assert verify_run(run).ok
    before = files_of(run)
    for _ in range(2):
        with Gate.open(run) as gate:
            decided = gate.decide(batch(prefix="m"))
            assert gate.closed == decided.closed == "an alarm was raised"
            assert decided.counts() == {"fail_closed": 60}
            assert decided.batch == -1
    assert files_of(run) == before
    assert verify_run(run).ok
    assert replay_run(run).batches == 1


def test_an_alarm_that_a_crash_kept_from_the_log_is_raised_when_the_gate_opens(run, monkeypatch):
    table, labels = harmful_batch()
    with Gate.open(run) as gate:
        gate.decide(table)
    with Ledger.write(run) as ledger:
        spots = Labels.from_mapping({name: labels[name] for name in watch(ledger).wanted})
        with killed_at(monkeypatch, 2), pytest.raises(Killed):
            join_spotchecks(ledger, spots)
    assert Ledger.read(run).events[-1].kind is EventKind.SPOTCHECK
    copy = shutil.copytree(run, run.with_name("copy"))
    with Gate.open(run) as gate:
        assert gate.closed == "an alarm was raised"
    with Ledger.write(copy) as ledger:
        assert join_spotchecks(ledger, spots).monitor.alarm
    assert files_of(copy) == files_of(run)
    assert replay_run(run).batches == 1


def test_a_renewal_ends_the_alarm(run, tmp_path):
    table, labels = world(900)
    certify(table, labels, out=tmp_path / "long", family=APPEALING, stages=2, monitor_rate=1.0, **TERMS)
    bad, truth = harmful_batch()
    with Gate.open(tmp_path / "long") as gate:
        gate.decide(bad)
    with Ledger.write(tmp_path / "long") as ledger:
        join_spotchecks(ledger, Labels.from_mapping({name: truth[name] for name in watch(ledger).wanted}))
    fresh, truth = world(900, prefix="s2", seed=2)
    certify(fresh, truth, out=tmp_path / "long", family=APPEALING, renew="after the alarm")
    with Gate.open(tmp_path / "long") as gate:
        assert not gate.closed
        assert gate.decide(batch()).admitted > 0
    assert replay_run(tmp_path / "long").batches == 2


# Spot checks


def test_checks_are_drawn_among_the_admitted_before_any_label_and_at_the_declared_rate(run):
    with Gate.open(run) as gate:
        table = gate.decide(batch(2000, window=50)).table
    admitted = pc.not_equal(table.column("sign"), 0).to_pylist()
    drawn = table.column("check").to_pylist()
    assert not any(check and not sign for check, sign in zip(drawn, admitted, strict=True))
    assert sum(drawn) / sum(admitted) == pytest.approx(0.5, abs=0.05)


def test_labels_of_records_that_were_not_drawn_are_refused_unless_picked(run):
    table, labels = world(200, prefix="n", seed=7, window=30)
    with Gate.open(run) as gate:
        decided = gate.decide(table).table
    undrawn = decided.filter(pc.invert(decided.column("check"))).column("id").to_pylist()
    drawn = decided.filter(decided.column("check")).column("id").to_pylist()
    with Ledger.write(run) as ledger:
        before = files_of(run)
        with pytest.raises(InputError, match="drawn"):
            join_spotchecks(ledger, Labels.from_mapping({undrawn[0]: 1}))
        with pytest.raises(InputError, match="decided on"):
            join_spotchecks(ledger, Labels.from_mapping({"stranger": 1}))
        assert files_of(run) == before
        join_spotchecks(ledger, Labels.from_mapping({undrawn[0]: labels[undrawn[0]]}), picked=True)
        state = join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in drawn[:3]}))
        assert state.labelled == 3
        assert drawn[0] not in state.wanted
        size = len(ledger.events)
        again = join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in drawn[:3]}))
        assert again.labelled == 3
        assert len(ledger.events) == size
        for picked in (False, True):
            with pytest.raises(InputError, match="one label for each record"):
                join_spotchecks(ledger, Labels.from_mapping({drawn[0]: -labels[drawn[0]]}), picked=picked)
    assert verify_run(run).ok


def test_labels_count_in_draw_order_whenever_they_come(run):
    table, labels = world(400, prefix="n", seed=7, window=50)
    with Gate.open(run) as gate:
        gate.decide(table)
    copy = shutil.copytree(run, run.with_name("copy"))
    with Ledger.write(run) as ledger:
        wanted = watch(ledger).wanted
        at_once = join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in wanted}))
    with Ledger.write(copy) as ledger:
        for part in (wanted[60:], wanted[3:30], wanted[:1]):
            join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in part}))
        late = {name: labels[name] for name in (*wanted[1:3], *wanted[30:60])}
        in_turn = join_spotchecks(ledger, Labels.from_mapping(late))
    assert in_turn.as_dict() == at_once.as_dict()


def test_nothing_can_be_watched_that_was_not_deployed(certified_copy):
    with Ledger.write(certified_copy) as ledger:
        with pytest.raises(ProtocolError, match="nothing has been deployed"):
            watch(ledger)
        with pytest.raises(ProtocolError, match="no deployment"):
            join_spotchecks(ledger, Labels.from_mapping({"r1": 1}))


def test_a_forged_certificate_does_not_open_the_gate(run):
    path = run / "certificate.json"
    path.write_bytes(path.read_bytes().replace(b"e", b"f", 1))
    assert not verify_run(run).ok
    ledger = Ledger.read(run)
    ref = ledger.events[-1].body["envelope"]
    segment = run / "segments" / f"{ref['sha256']}.json"
    segment.write_bytes(path.read_bytes())
    with pytest.raises(IntegrityError, match="not the ones that were written"):
        Gate.open(run)


def test_a_deployment_that_a_renewal_closed_is_not_opened_again(run):
    with Gate.open(run) as gate:
        gate.decide(batch())
    with Ledger.write(run) as ledger:
        ledger.commit(EventKind.CLOSED, {"reason": "a renewal that died right behind this"})
    before = files_of(run)
    with Gate.open(run) as gate:
        assert gate.closed == "a new stage awaits its certificate"
        assert gate.decide(batch(prefix="m", seed=8)).admitted == 0
    assert files_of(run) == before


def test_a_dropped_alarm_does_not_open_the_gate(run):
    table, labels = harmful_batch()
    with Gate.open(run) as gate:
        gate.decide(table)
    with Ledger.write(run) as ledger:
        join_spotchecks(ledger, Labels.from_mapping({name: labels[name] for name in watch(ledger).wanted}))
    log = run / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(IntegrityError, match="are gone"):
        Gate.open(run)
    log.write_bytes(whole)
    forge(run, lambda events: events[:-1])
    with Gate.open(run) as gate:
        assert gate.closed == "an alarm was raised"


# A certificate that serves so many windows and no more


def short_lived(tmp_path, windows, **terms):
    table, labels = world(900)
    run = tmp_path / "run"
    certify(table, labels, out=run, family=APPEALING, renew_after=windows, **{**TERMS, **terms})
    return run


def test_beyond_its_windows_the_gate_is_closed_and_replay_finds_it_so(tmp_path):
    run = short_lived(tmp_path, 3)
    first, second = batch(60), batch(60, prefix="m", seed=8)  # two windows each, of the same names
    later = replaced(batch(60, prefix="k", seed=9), window=["c"] * 30 + ["d"] * 30)
    with Gate.open(run) as gate:
        assert not gate.decide(first).closed
        assert not gate.decide(second).closed
        assert not gate.requests(later).any()
        over = gate.decide(later)
        assert "3 windows" in over.closed
        assert over.counts() == {"fail_closed": 60}
    with Gate.open(run) as gate:
        assert gate.decide(first).admitted
        assert not gate.decide(replaced(batch(20, prefix="j"), window=["c"] * 20)).admitted
        assert gate.decide(replaced(batch(20, prefix="i"), window=["c"] * 20)).closed
    assert verify_run(run).ok
    assert replay_run(run).batches == 5


def test_a_batch_without_windows_is_one(tmp_path):
    run = short_lived(tmp_path, 2)
    with Gate.open(run) as gate:
        closed = [bool(gate.decide(without(batch(9, prefix=p), "window")).closed) for p in "abc"]
    assert closed == [False, False, True]


def test_a_renewed_certificate_serves_its_windows_anew(tmp_path):
    run = short_lived(tmp_path, 2, stages=2)
    with Gate.open(run) as gate:
        assert not gate.decide(batch(60)).closed
        assert gate.decide(replaced(batch(9, prefix="m"), window=["c"] * 9)).closed
    fresh, truth = world(900, prefix="f", seed=5)
    assert certify(fresh, truth, out=run, family=APPEALING, renew="two windows are over").certified
    with Gate.open(run) as gate:
        assert not gate.decide(batch(60, prefix="k", seed=8)).closed
    assert replay_run(run).batches == 3


@pytest.mark.parametrize("windows", [0, -1, 2**31])
def test_a_certificate_serves_one_window_at_least(windows):
    with pytest.raises(InputError, match="renew_after"):
        Protocol(rho=0.1, renew_after=windows)
