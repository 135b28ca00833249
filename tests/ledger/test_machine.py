"""Any sequence of steps, deaths among them, leaves the run that a small model says it must be."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.crash.life import installed
from tests.crash.power import Quick
from tests.ledger.model import B_MAX, BUDGET, C_MIN, CANDIDATES, DELTA, RHO, STAGES, Model, Row
from tests.samples import files_of
from vapo.certification.appeals import Keyed
from vapo.certification.certificate import Certificate
from vapo.certification.flow import as_labels, as_records, prepare
from vapo.certification.freeze import freeze_trace
from vapo.certification.issue import issue, join_labels
from vapo.errors import VapoError
from vapo.gate import Gate, join_spotchecks, replay_run, watch
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.policy import Answers, Family, Policy, Reason
from vapo.protocol import Protocol

TERMS = Protocol.from_dict(
    {
        "rho": RHO,
        "c_min": C_MIN,
        "b_max": B_MAX,
        "delta": DELTA,
        "stages": STAGES,
        "monitor_rate": 1.0,
        "monitor_delta": 0.2,
        "secondary": ("bank",),
    },
    where="terms",
)
FAMILY = Family.of([Policy.plain(low, high, 0.5, budget=BUDGET) for low, high in CANDIDATES], [[0, 1]])
WORLDS = ("sound", "noisy", "turned", "thin")
DIES = st.sampled_from(("", "", "before it is paid", "after it is paid"))
KINDS = st.sampled_from(("sound", "sound", "sound", *WORLDS))
STEPS = st.tuples(KINDS, DIES, st.sampled_from(("decide", "decide", "check", "renew")))


class Gone(BaseException):
    """The process is gone while it waits for the secondary."""


def world(prefix: str, size: int, kind: str, windows: str) -> list[Row]:
    """Records whose score knows the truth, knows it less, is the opposite of it, or is low nearly everywhere."""
    rng = np.random.default_rng([*prefix.encode(), WORLDS.index(kind)])
    rows = []
    for number in range(size):
        score, y = int(rng.integers(0, 8)) / 8, int(rng.choice((-1, 1)))
        score = score / 8 if kind == "thin" and number % 6 else score
        wrong = {"sound": score < 0.25, "noisy": rng.random() < 0.35, "turned": True, "thin": False}[kind]
        window = windows[number * len(windows) // size]
        rows.append(Row(f"{prefix}-{number}", score, y, -y if wrong else y, window))
    return rows


def table(rows: list[Row]) -> pa.Table:
    ids = [row.name for row in rows]
    columns = {"id": ids, "group": ids, "y": [row.y for row in rows], "signal.s": [row.score for row in rows]}
    return pa.table({**columns, "window": [row.window for row in rows]})


class Runs(RuleBasedStateMachine):
    """A run, its model, and a vendor of second opinions with a book of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.run = self.folder / "run"
        self.quick = installed(Quick())
        self.quick.__enter__()
        self.paid: list[str] = []
        self.keys: set[str] = set()
        self.truth: dict[str, int] = {}
        self.batches = 0
        self.waiting: list[Row] = []

    def teardown(self) -> None:
        try:
            if self.model.phase == "issued" and not self.model.pending:
                assert replay_run(self.run).stages == self.model.stage
        finally:
            self.quick.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    @initialize(keyed=st.booleans(), steps=st.lists(STEPS, max_size=24))
    def begin(self, keyed: bool, steps: list[tuple[str, str, str]]) -> None:
        self.model = Model(keyed)
        for step in steps:
            self.go_on(step)

    @rule(step=STEPS)
    def go_on(self, step: tuple[str, str, str]) -> None:
        """Do what comes next: by chance alone few sequences would get far."""
        kind, dies, then = step
        match self.model.phase:
            case "new":
                self.open_or_renew(kind, renew=False)
            case "declared":
                self.freeze(dies)
            case "frozen":
                self.join(forget=False)
            case "joined":
                self.certify()
            case _ if self.model.pending:
                self.decide(kind, "a", again=True, dies=dies)
            case _ if then == "renew" or self.model.alarmed:
                self.open_or_renew(kind, renew=True)
            case _ if then == "check" and self.model.deployed:
                self.check(harmful=kind in ("turned", "noisy"))
            case _:
                self.decide(kind, "a", again=False, dies=dies)

    # The steps; each may come at any time, and one that may not be done now must change nothing.

    @rule(kind=KINDS, renew=st.booleans())
    def open_or_renew(self, kind: str, renew: bool) -> None:
        rows = world(f"s{self.model.stage + renew}", 32, kind, "abcd")
        if not renew and self.model.stage == 1:
            rows = self.model.rows  # the same again is no other run
        legal = self.model.renew(rows) if renew else self.model.open(rows)
        if self.model.rows is rows:
            self.truth |= {row.name: row.truth for row in rows}

        def step() -> None:
            with Ledger.write(self.run) as ledger:
                why = "the generator changed" if renew else None
                prepare(ledger, TERMS, None, as_records(table(rows), TERMS), family=FAMILY, renew=why)

        self.try_it(step, legal=legal)

    @rule(dies=DIES)
    def freeze(self, dies: str) -> None:
        legal, died = self.model.freeze(bool(dies))

        def step() -> None:
            with Ledger.write(self.run) as ledger:
                records = as_records(table(self.model.rows), TERMS)
                freeze_trace(ledger, records, answers=self.secondary(records, dies if died else ""))

        self.try_it(step, legal=legal, dies=died)

    @rule(forget=st.booleans())
    def join(self, forget: bool) -> None:
        labels = {row.name: row.truth for row in self.model.rows}
        needed = self.model.needed() if self.model.phase in ("frozen", "joined", "issued") else set()
        if forget and needed:
            del labels[min(needed)]
        legal = self.model.join(not (forget and needed))

        def step() -> None:
            with Ledger.write(self.run) as ledger:
                join_labels(ledger, as_labels(labels))

        self.try_it(step, legal=legal)

    @rule()
    def certify(self) -> None:
        legal = self.model.issue()

        def step() -> None:
            with Ledger.write(self.run) as ledger:
                issue(ledger)

        self.try_it(step, legal=legal)

    @rule(
        kind=KINDS,
        window=st.sampled_from("ab"),
        again=st.booleans(),
        dies=DIES,
    )
    def decide(self, kind: str, window: str, again: bool, dies: str) -> None:
        if self.waiting and again:
            rows = self.waiting
        else:
            rows = world(f"b{self.batches}", 8, kind, window)
            self.batches += 1
            self.truth |= {row.name: row.truth for row in rows}
        legal, died, signs = self.model.decide(rows, bool(dies))
        if legal:
            self.waiting = rows if died else []

        def step() -> None:
            with Gate.open(self.run) as gate:
                records = as_records(table(rows), TERMS)
                told = gate.decide(records, secondary=self.secondary(None, dies if died else "")).table
                assert dict(zip(told["id"].to_pylist(), told["sign"].to_pylist(), strict=True)) == signs

        self.try_it(step, legal=legal, dies=died)

    @rule(harmful=st.booleans())
    def check(self, harmful: bool) -> None:
        labels = {name: -sign if harmful else sign for name, sign in self.model.signs.items() if sign}
        if self.model.deployed:
            with Ledger.write(self.run) as ledger:
                wanted = set(watch(ledger).wanted)
            labels = {name: z for name, z in labels.items() if name in wanted}
        if self.model.deployed and not labels:
            return
        legal, alarm = self.model.check(), []

        def step() -> None:
            with Ledger.write(self.run) as ledger:
                alarm.append(join_spotchecks(ledger, as_labels(labels or {"nobody": 1})).monitor.closed)

        self.try_it(step, legal=legal)
        self.labelled_harmful = harmful or getattr(self, "labelled_harmful", False)
        if alarm == [True]:
            assert self.labelled_harmful
            self.model.alarm()

    # What must hold

    def try_it(self, step, *, legal: bool, dies: bool = False) -> None:
        before = dict(files_of(self.run)) if self.run.exists() else {}
        try:
            step()
        except VapoError:
            if legal:
                raise
            assert (dict(files_of(self.run)) if self.run.exists() else {}) == before
        except Gone:
            assert dies
        else:
            assert legal
            assert not dies

    def secondary(self, records, dies: str):
        def ask(batch, asked, keys=None):
            ids = (batch.id if records is None else records.id[batch]).to_pylist()
            place = np.flatnonzero(asked)
            for number, key in zip(place.tolist(), keys or [None] * len(place), strict=True):
                if dies == "before it is paid":
                    raise Gone
                if key is None or key not in self.keys:
                    self.paid.append(ids[number])
                    self.keys.add(key)
            if dies:
                raise Gone
            answers = Answers.none(len(ids))
            answers.confidence[place] = 1.0
            answers.verdict[place] = [self.truth[ids[number]] for number in place.tolist()]
            return answers

        return Keyed(ask) if self.model.keyed else ask

    @invariant()
    def the_log_says_what_the_model_says(self) -> None:
        if not self.run.exists():
            return
        ledger = Ledger.read(self.run) if (self.run / "log.jsonl").exists() else None
        assert [str(event.kind) for event in (ledger.events if ledger else ())] == self.model.kinds
        if ledger is not None:
            report = verify_run(self.run)
            assert report.ok, report.findings

    @invariant()
    def nothing_is_paid_twice_and_what_was_asked_is_paid_or_lost(self) -> None:
        if not (self.run / "log.jsonl").exists():
            return
        ledger, asked, lost = Ledger.read(self.run), 0, 0
        for event in ledger.events:
            if event.kind is EventKind.REQUESTED:
                asked += event.body["count"]
            if event.kind is EventKind.SETTLED:
                codes = ledger.table(event.body["answers"]).column("failure").to_pylist()
                lost += codes.count(int(Reason.SECONDARY_LOST))
        assert len(set(self.paid)) == len(self.paid)
        flying = len(self.model.pending[1]) if self.model.pending else 0
        assert asked - lost - flying <= len(self.paid) <= asked
        assert all(calls <= BUDGET for calls in self.model.spent.values())

    @precondition(lambda self: self.model.phase == "issued")
    @invariant()
    def the_certificate_says_what_the_model_says(self) -> None:
        with Ledger.write(self.run) as ledger:
            body = Certificate.of(ledger).body
        selected = self.model.selected
        assert body["status"] == ("refused" if selected is None else "certified")
        shown = body["nearest"]["index"] if selected is None else body["selected"]["index"]
        assert selected in (None, shown)
        told = tuple(body["counts"][name] for name in ("n", "admitted", "harmful", "appealed"))
        assert told == self.model.counts(shown)
        assert np.isclose(body["delta_spent"], self.model.joined * DELTA / STAGES)


Runs.TestCase.settings = settings(
    max_examples=1000 if os.environ.get("VAPO_CONFORMANCE") == "full" else 30, stateful_step_count=12
)
TestRuns = Runs.TestCase
