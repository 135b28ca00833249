"""Every command does what its help says, and its JSON says what it did."""

from __future__ import annotations

import shutil

import pyarrow as pa
import pytest

from tests.cli.conftest import labels_of, rows
from vapo._internal.files import write_table
from vapo.ledger import Ledger

SELECTED = {"index", "tau_low", "tau_high", "tau_2", "budget"}
BODY = {
    "status",
    "claim",
    "rho",
    "delta",
    "c_min",
    "b_max",
    "reach",
    "selected",
    "nearest",
    "counts",
    "bounds",
    "feasible",
    "candidates",
    "bill",
    "trace_root",
    "labels_digest",
    "family_digest",
    "stage",
}
LIMITS = {"excess_upper", "risk_upper", "coverage_lower", "calls_upper", "radius"}
DECISION = ["id", "action", "sign", "reason", "budget_before", "budget_after", "score"]


def test_certify_prints_the_body_of_the_certificate_and_names_the_candidates_file(vapo, seen, tmp_path):
    run = tmp_path / "run"
    said = vapo(
        "certify", seen.rollouts, "--labels", seen.labels, "--rho", 0.1, "--out", run, "--json", "--strict"
    )
    assert said.code == 0
    body = said.json
    assert body.keys() >= BODY
    assert body["status"] == "certified"
    assert body["selected"].keys() == SELECTED
    assert body["counts"].keys() == {"n", "groups", "admitted", "harmful", "appealed"}
    assert body["bounds"].keys() == body["feasible"].keys() == {"frozen", "sequential", "hoeffding"}
    assert all(limits.keys() == LIMITS for limits in body["bounds"].values())
    assert body["bill"].keys() == {"labels", "secondary_calls"}
    table = rows(run / body["candidates"])
    promised = {
        "index",
        "tau_low",
        "tau_high",
        "tau_2",
        "admitted",
        "harmful",
        "appealed",
        "failing",
        *LIMITS,
    }
    assert promised <= set(table.column_names)
    chosen = table.slice(body["selected"]["index"], 1).to_pylist()[0]
    assert {name: chosen[name] for name in ("admitted", "harmful", "appealed")} == {
        name: body["counts"][name] for name in ("admitted", "harmful", "appealed")
    }


def test_the_flow_in_steps_gives_the_certificate_of_the_flow_in_one_go(vapo, seen, tmp_path):
    run = tmp_path / "run"
    whole = vapo("certify", seen.rollouts, "--labels", seen.labels, "--rho", 0.1, "--out", run, "--json").json
    steps = vapo("join", shutil.copytree(seen.frozen, tmp_path / "steps"), seen.labels, "--json").json
    assert {name: steps[name] for name in BODY} == {name: whole[name] for name in BODY}


def test_every_claim_decides_when_it_is_asked_to(vapo, seen, tmp_path):
    for claim in ("frozen", "sequential", "hoeffding"):
        said = vapo(
            "certify",
            seen.rollouts,
            "--labels",
            seen.labels,
            "--rho=0.1",
            "--claim",
            claim,
            "--out",
            tmp_path / claim,
            "--json",
        )
        assert (said.code, said.json["claim"]) == (0, claim)


def test_the_options_end_in_the_protocol_of_the_run(vapo, seen, tmp_path):
    options = {
        "rho": 0.1,
        "c_min": 0.2,
        "b_max": 0.1,
        "delta": 0.1,
        "claim": "sequential",
        "reach": "population",
        "score": "signal:confidence",
        "signs": "both",
        "budget": 7,
        "design_fraction": 0.4,
        "seed": 3,
        "group_cap": 4,
        "missing_label": "harmful",
        "stages": 3,
        "max_labels": 5000,
        "max_secondary_calls": 5000,
    }
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    said = vapo(
        "design",
        seen.rollouts,
        *flags,
        "--secondary=strict-checker",
        "--waive=gold",
        "--oracle-word=rated by people",
        "--waive-redundancy",
        "--out",
        tmp_path / "r",
        "--json",
    )
    assert said.code == 0, said.err
    declared = Ledger.read(tmp_path / "r").events[0].body["protocol"]
    assert {name: declared[name] for name in options} == options
    assert declared["secondary"] == ["strict-checker"]
    assert (declared["waivers"], declared["oracle_words"]) == (["gold"], ["rated by people"])
    assert declared["waive_redundancy"]


def test_a_protocol_file_says_what_options_say_and_options_win(vapo, seen, tmp_path):
    terms = tmp_path / "terms.toml"
    terms.write_text('rho = 0.1\nseed = 5\n[sources.primary]\nid = "rule"\ndigest = "' + "a" * 64 + '"\n')
    said = vapo("design", seen.rollouts, "--protocol", terms, "--seed", 6, "--out", tmp_path / "r", "--json")
    assert said.code == 0, said.err
    declared = Ledger.read(tmp_path / "r").events[0].body["protocol"]
    assert (declared["rho"], declared["seed"], declared["sources"]["primary"]["id"]) == (0.1, 6, "rule")


def test_a_protocol_file_may_name_design_and_family_beside_itself(vapo, seen, tmp_path):
    (tmp_path / "sub").mkdir()
    terms, family = tmp_path / "sub" / "terms.toml", tmp_path / "sub" / "family.json"
    family.write_text('{"candidates": [{"tau_low": 0.5, "tau_high": 0.5}]}')
    terms.write_text(f"rho = 0.1\nscore = 'rank-mean'\nfamily = 'family.json'\ndesign = '{seen.fresh}'\n")
    said = vapo("design", seen.rollouts, "--protocol", terms, "--out", tmp_path / "r", "--json")
    assert said.code == 0, said.err
    assert (said.json["candidates"], said.json["design"]) == (1, rows(seen.fresh).num_rows)
    terms.write_text("rho = 0.1\nfamily = ['family.json']\n")
    said = vapo("design", seen.rollouts, "--protocol", terms, "--out", tmp_path / "s", "--json")
    assert said.code == 2
    assert "terms.toml: field 'family': expected the name of a file" in said.err


def test_a_family_of_ones_own_takes_no_design_split(vapo, seen, tmp_path):
    family = tmp_path / "family.json"
    family.write_text(
        '{"candidates": [{"tau_low": 0.5, "tau_high": 0.8}, {"tau_low": 0.7, "tau_high": 0.7}]}'
    )
    said = vapo("design", seen.rollouts, "--rho", 0.1, "--family", family, "--out", tmp_path / "r", "--json")
    assert said.code == 0, said.err
    assert (said.json["design"], said.json["candidates"]) == (0, 2)
    assert said.json["certification"] == rows(seen.rollouts).num_rows


def test_a_design_file_leaves_all_records_to_certify(vapo, seen, tmp_path):
    said = vapo(
        "design", seen.rollouts, "--rho", 0.1, "--design", seen.fresh, "--out", tmp_path / "r", "--json"
    )
    assert said.code == 0, said.err
    assert said.json["design"] == rows(seen.fresh).num_rows
    assert said.json["certification"] == rows(seen.rollouts).num_rows


def test_freeze_lists_the_labels_that_certification_needs_and_join_is_content_with_them(
    vapo, world, tmp_path
):
    needs = tmp_path / "needs.csv"
    said = vapo("freeze", world.designed, world.rollouts, "--needs", needs, "--json")
    assert said.code == 0, said.err
    ids = rows(needs).column("id").to_pylist()
    assert len(ids) == said.json["labels"]
    few = labels_of(world.labels, ids, tmp_path / "few.csv")
    assert vapo("join", world.designed, few, "--json").json["bill"]["labels"] == len(ids)


def test_secondary_answers_may_be_bought_between_design_and_freeze(vapo, seen, edited, tmp_path):
    without = edited("bare.parquet", y2=None, c2=None, y2_source=None)
    run, ask = tmp_path / "run", tmp_path / "ask.csv"
    assert vapo("design", without, "--rho", 0.1, "--secondary", "strict-checker", "--out", run).code == 0
    said = vapo("freeze", run, without, "--requests", ask, "--json")
    assert (said.code, said.json["frozen"]) == (0, False)
    assert rows(ask).num_rows == said.json["requests"] > 0
    refused = vapo("freeze", run, without)
    assert refused.code == 2
    assert "'y2'" in refused.err
    assert "--requests" in refused.err
    said = vapo("freeze", run, seen.rollouts, "--json")
    assert (said.code, said.json["frozen"]) == (0, True), said.err


@pytest.mark.parametrize("extension", ["csv", "jsonl", "parquet", "arrow"])
def test_gate_writes_decisions_in_the_format_of_the_file_name(vapo, world, tmp_path, extension):
    out = tmp_path / f"decisions.{extension}"
    said = vapo("gate", world.certified, world.fresh, "--out", out, "--json")
    assert said.code == 0, said.err
    table = rows(out)
    assert table.column_names == [*DECISION, "check"]
    assert table.num_rows == said.json["records"] == sum(said.json["reasons"].values())
    signs = [int(sign) for sign in table.column("sign").to_pylist()]
    assert sum(sign != 0 for sign in signs) == said.json["admitted"]


def test_gate_says_again_what_it_said_before(vapo, world, tmp_path):
    again = tmp_path / "again.csv"
    before = len(Ledger.read(world.deployed).events)
    assert vapo("gate", world.deployed, world.fresh, "--out", again).code == 0
    assert again.read_bytes() == world.decisions.read_bytes()
    assert len(Ledger.read(world.deployed).events) == before


def test_gate_lists_what_it_would_ask_and_records_nothing(vapo, world, tmp_path):
    ask = tmp_path / "ask.csv"
    said = vapo("gate", world.certified, world.fresh, "--requests", ask, "--json")
    assert said.code == 0
    assert rows(ask).num_rows == said.json["requests"]
    assert "actions.recorded" not in [str(event.kind) for event in Ledger.read(world.certified).events[-2:]]


def test_a_refused_certificate_is_done_unless_strict_is_asked_and_its_gate_admits_nothing(
    vapo, world, tmp_path
):
    strict = vapo("join", world.refused, world.labels, "--strict", "--json")
    assert (strict.code, strict.json["status"], strict.json["selected"]) == (1, "refused", None)
    assert strict.json["nearest"]["failing"]
    assert vapo("join", world.refused, world.labels).code == 0
    said = vapo("gate", world.refused, world.fresh, "--out", tmp_path / "d.csv", "--json")
    assert (said.code, said.json["admitted"], bool(said.json["closed"])) == (0, 0, True)


def test_monitor_counts_the_labels_of_drawn_records(vapo, world, tmp_path):
    wanted = tmp_path / "wanted.csv"
    said = vapo("monitor", world.deployed, "--wanted", wanted, "--json")
    assert said.code == 0
    ids = rows(wanted).column("id").to_pylist()
    assert said.json["wanted"] == len(ids) > 0
    checked = labels_of(world.freshlabels, ids, tmp_path / "checked.csv")
    said = vapo("monitor", world.deployed, checked, "--json")
    assert (said.code, said.json["labelled"], said.json["wanted"]) == (0, len(ids), 0)


def test_an_alarm_exits_with_1_and_closes_the_gate(vapo, world, tmp_path):
    decided = rows(world.decisions).to_pylist()
    wrong = {row["id"]: -int(row["sign"]) for row in decided if row["check"] == "true"}
    from vapo._internal.files import write_table

    bad = tmp_path / "bad.csv"
    write_table(pa.table({"id": list(wrong), "z": list(wrong.values())}), bad)
    said = vapo("monitor", world.deployed, bad, "--json")
    assert (said.code, said.json["alarm"]) == (1, True)
    again = vapo("gate", world.deployed, world.fresh, "--out", tmp_path / "d.csv", "--json")
    assert (again.code, again.json["closed"]) == (0, "")
    assert "alarm" in again.json["closed_since"]
    assert "GATE CLOSED SINCE" in again.err
    more = vapo("gate", world.deployed, world.rollouts, "--out", tmp_path / "e.csv", "--json")
    assert (more.code, more.json["admitted"]) == (0, 0)
    assert "alarm" in more.json["closed"]


def test_verify_and_replay_find_a_sound_run_sound(vapo, seen):
    for run in (seen.certified, seen.deployed, seen.refused):
        verified = vapo("verify", run, "--json")
        assert (verified.code, verified.json["ok"], verified.json["findings"]) == (0, True, [])
        redone = vapo("replay", run, "--json")
        assert (redone.code, redone.json["ok"]) == (0, True)


def test_verify_exits_with_1_and_names_what_was_changed(vapo, world):
    segment = sorted((world.certified / "segments").iterdir())[0]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    said = vapo("verify", world.certified, "--json")
    assert (said.code, said.json["ok"]) == (1, False)
    assert segment.name in said.json["findings"][0]["where"]
    (world.deployed / "log.jsonl").unlink()
    assert vapo("verify", world.deployed, "--json").code == 1


@pytest.mark.parametrize("events", range(1, 8))
def test_an_interrupted_certify_is_resumed_by_the_same_command(vapo, seen, tmp_path, stop_after, events):
    run = tmp_path / "run"
    command = ["certify", seen.rollouts, "--labels", seen.labels, "--rho", 0.1, "--out", run, "--json"]
    with stop_after(events):
        stopped = vapo(*command)
    assert (stopped.code, stopped.json["error"]["kind"]) == (130, "Interrupted")
    assert "goes on from there" in stopped.err
    said = vapo(*command)
    assert said.code == 0, said.err
    assert vapo("verify", run).code == 0
    whole = Ledger.read(seen.certified).events
    assert [event.digest for event in Ledger.read(run).events] == [event.digest for event in whole]


def test_a_run_is_renewed_with_fresh_records_as_often_as_it_declared(vapo, seen, tmp_path):
    run = tmp_path / "run"
    first = vapo(
        "certify", seen.rollouts, "--labels", seen.labels, "--rho=0.1", "--stages=2", "--out", run, "--json"
    )
    again = [
        "certify",
        seen.fresh,
        "--labels",
        seen.freshlabels,
        "--out",
        run,
        "--renew",
        "new judge",
        "--json",
    ]
    second = vapo(*again)
    assert (first.code, second.code) == (0, 0), second.err
    assert (first.json["delta"], second.json["stage"], second.json["delta_spent"]) == (0.025, 2, 0.05)
    assert vapo("replay", run).code == 0


def test_a_refused_sequential_stage_is_extended(vapo, seen, tmp_path):
    run = tmp_path / "run"
    first = vapo(
        "certify",
        seen.fresh,
        "--labels",
        seen.freshlabels,
        "--rho=0.01",
        "--claim=sequential",
        "--out",
        run,
        "--json",
    )
    assert first.json["status"] == "refused"
    assert "--extend" in first.err
    second = vapo("certify", seen.rollouts, "--labels", seen.labels, "--out", run, "--extend", "--json")
    assert second.code == 0, second.err
    assert second.json["counts"]["n"] > first.json["counts"]["n"]
    assert second.json["delta_spent"] == first.json["delta_spent"]


def test_one_writer_at_a_time(vapo, world):
    with Ledger.write(world.frozen):
        said = vapo("join", world.frozen, world.labels, "--json")
    assert (said.code, said.json["error"]["kind"]) == (2, "LedgerLockedError")


def test_plan_reads_coverage_and_candidates_off_the_records(vapo, seen):
    said = vapo("plan", seen.rollouts, "--rho", 0.08, "--risk", 0.03, "--labels", 500, "--json")
    assert said.code == 0
    assert said.json["expectations"]["candidates"] > 1
    assert said.json["expectations"]["group_size"] == 4
    assert {row["claim"] for row in said.json["rows"]} == {"frozen", "sequential", "hoeffding"}
    assert said.json["at_hand"]["labels"] == 500


def test_plan_reads_records_of_which_a_field_is_waived(vapo, seen, tmp_path):
    table = rows(seen.rollouts)
    write_table(table.append_column("gold", table.column("id")), tmp_path / "r.parquet")
    asked = ("plan", tmp_path / "r.parquet", "--rho", 0.08, "--risk", 0.03, "--json")
    assert vapo(*asked).code == 2
    assert vapo(*asked, "--waive", "gold").code == 0


@pytest.mark.parametrize(
    ("threshold", "rho", "c_min", "why"),
    [
        (1.5, 0.02, 0.25, "admits nothing"),
        (0.7, 0.3, 0.99, "cannot keep to the coverage"),
        (0.0, 0.02, 0.25, "larger rho might"),
    ],
)
def test_a_refusal_that_no_number_of_records_would_turn_says_why(
    vapo, seen, tmp_path, threshold, rho, c_min, why
):
    family = tmp_path / "family.json"
    family.write_text(f'{{"candidates": [{{"tau_low": {threshold}, "tau_high": {threshold}}}]}}')
    terms = ("--rho", rho, "--c-min", c_min, "--family", family, "--out", tmp_path / "run")
    said = vapo("certify", seen.rollouts, "--labels", seen.labels, *terms)
    assert said.code == 0
    assert why in said.err


def test_a_refusal_says_what_was_not_tested_and_where_labels_would_have_gone_farther(vapo, seen, tmp_path):
    asked = ("certify", seen.rollouts, "--labels", seen.labels, "--rho", 0.03, "--out", tmp_path / "run")
    said = vapo(*asked, "--json")
    assert said.json["status"] == "refused"
    table = Ledger.read(tmp_path / "run").table(said.json["candidates_segment"])
    untested = sum("stopped" in why for why in table.column("frozen.failing").to_pylist())
    assert f"{untested} candidates were not tested" in said.err
    assert "Whole groups were tested" in said.err
    other = vapo(*asked[:-1], tmp_path / "other", "--claim", "hoeffding")
    assert "not tested" not in other.err


def test_plan_says_when_nothing_will_do(vapo):
    said = vapo("plan", "--rho", 0.05, "--risk", 0.06, "--json")
    assert said.code == 0
    assert [row["records"] for row in said.json["rows"]] == [None] * len(said.json["rows"])
    assert "not below" in said.err


def test_doctor_finds_this_machine_fit(vapo, tmp_path):
    said = vapo("doctor", "--folder", tmp_path, "--json")
    assert (said.code, said.json["ok"]) == (0, True)
    assert not list(tmp_path.iterdir())


def test_the_demo_certifies_deploys_raises_an_alarm_and_finds_every_forgery(vapo, tmp_path):
    said = vapo("demo", "--out", tmp_path / "demo", "--updates", "0", "--json")
    assert said.code == 0, said.err
    facts = said.json
    status = {claim: body["status"] for claim, body in facts["certificates"].items()}
    assert (status["frozen"], status["hoeffding"]) == ("certified", "refused")
    gate = facts["gate"]
    assert 0.6 <= gate["admitted"] / gate["records"] <= 0.9
    assert gate["risk"] < facts["rho"] < facts["rollouts"]["harm_of_applying_all"] / 2
    assert not gate["alarm"]
    assert facts["drift"]["alarm"]
    assert facts["audit"]["verified"]
    assert all(facts["audit"]["forgeries_found"].values())
    assert "does not follow" in next(iter(facts["audit"]["forgeries_found"].values()))
    assert vapo("verify", tmp_path / "demo" / "run-frozen").code == 0
