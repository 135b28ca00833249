"""Studies on the fixture: the paper's numbers as printed, the same bytes however run, cells that lead to rows."""

from __future__ import annotations

import hashlib
import math

import pytest

from tests.studies.printed import paper
from vapo.studies import frontier, load, replay, severity, stress
from vapo.studies.fixture_cases import FRONTIER, REPLAY, SEVERITY
from vapo.studies.framework import matching
from vapo.studies.runner import load_rows, run_studies

NAMES = ("replay", "severity", "stress", "frontier")
SEEDS = (73, 79)


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    return folder, run_studies([load(name) for name in NAMES], out=folder, seeds=SEEDS)


def digests(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in {".jsonl", ".md", ".csv", ".json", ".svg", ".png"}
    }


def test_one_worker_and_two_write_the_same_bytes(out, tmp_path):
    run_studies([load(name) for name in NAMES], out=tmp_path, seeds=SEEDS, workers=2)
    alone, together = digests(out[0]), digests(tmp_path)
    assert alone.keys() == together.keys()
    assert {name for name in alone if alone[name] != together[name]} == set()
    assert sum(name.endswith(".png") for name in alone) == len(NAMES)


def test_every_cell_leads_to_the_rows_behind_it(out):
    folder, studies = out
    for done in studies:
        rows = load_rows(folder / done.study.name)
        for table in done.tables:
            for cell in table.cells:
                found = list(matching(rows, cell.rows))
                assert found, (done.study.name, table.name, cell.id)
                if cell.ours.unit == "seeds":
                    assert len(found) == cell.ours.n


def test_a_mean_over_seeds_is_the_mean_of_its_rows(out):
    folder, studies = out
    tables = {(done.study.name, table.name): table for done in studies for table in done.tables}
    cells = {cell.id: cell for cell in tables["replay", "fixed-replay"].cells}
    cell = cells["combined/u"]
    found = list(matching(load_rows(folder / "replay"), cell.rows))
    assert sorted(row["seed"] for row in found) == list(SEEDS)
    assert cell.ours.value == pytest.approx(math.fsum(row["U"] for row in found) / 2, abs=1e-15)


def test_every_number_compared_with_is_printed_in_the_paper():
    text = paper()
    numbers = {f"{value:.4f}" for row in replay.PRINTED.values() for value in row}
    numbers |= {f"{value:.4f}" for row in severity.PRINTED.values() for value in row[1:]}
    numbers |= {f"{value:.4f}" for value in (severity.HARMFUL, *severity.THRESHOLDS.values())}
    numbers |= {f"{value:.4f}" for value in (*stress.GAINS.values(), *stress.HARMFUL.values())}
    for harmful, coverage, aligned, _ in frontier.PRINTED.values():
        numbers |= {f"{value:.4f}" for value in (*harmful, *coverage, aligned)}
    numbers |= {f"{abs(value):.6f}" for row in frontier.DELTAS.values() for value in row}
    assert {number for number in numbers if number not in text} == set()


def test_each_line_of_the_papers_tables_is_read_whole():
    text = paper()
    for name, values in replay.PRINTED.items():
        assert " & ".join([name, *(f"{value:.4f}" for value in values)]) in text
    for name, (_, aligned, low, high) in severity.PRINTED.items():
        line = (aligned, low, high, severity.HARMFUL)
        assert " & ".join([name, *(f"{value:.4f}" for value in line)]) in text


def test_declared_constants_lie_within_the_papers_sampling_error():
    assert abs(REPLAY.error - 0.1391) < 1.96 * math.sqrt(0.1391 * 0.8609 / 1280)
    mean = math.fsum(case.error for case in FRONTIER.cases()) / 6
    assert 0.3092 < mean < 0.3273
    mean = math.fsum(case.error for case in SEVERITY.cases()) / 6
    assert abs(mean - 0.2630) < 1.96 * math.sqrt(0.2630 * 0.7370 / 768)


def test_controllers_change_how_far_updates_move_and_next_to_nothing_of_how_many_are_harmful(out):
    rows = load_rows(out[0] / "replay")
    for seed in SEEDS:
        by = {row["controller"]: row for row in rows if row["kind"] == "replay" and row["seed"] == seed}
        assert by["combined"]["mean_u"] < by["trust"]["mean_u"] < by["static"]["mean_u"]
        assert by["combined"]["mean_u"] < by["clip-kl"]["mean_u"] < by["static"]["mean_u"]
        for row in by.values():
            lost = by["static"]["harmful_count"] - row["harmful_count"]
            assert 0 <= lost <= row["records"] - row["applied_count"]


def test_the_declared_constants_fit_the_replay_and_one_rate_for_all_records_does_not(out):
    by = {row["variant"]: row for row in load_rows(out[0] / "replay") if row["kind"] == "constants"}
    assert by["declared: 0.40 of records, 0.35 a view"]["p"] > 0.05
    for name in ("all records, 0.14 a view", "all records, 0.14, correlated by 0.5"):
        assert by[name]["p"] < 1e-6


def test_a_tighter_trust_quantile_admits_less_at_equal_kl(out):
    rows = [row for row in load_rows(out[0] / "frontier") if row["kind"] == "stated"]
    for seed in SEEDS:
        coverage = [row["coverage"] for row in rows if row["seed"] == seed]
        assert coverage == sorted(coverage, reverse=True)
        assert len(set(coverage)) == 4


def test_calibration_and_evaluation_share_no_record(out):
    gates = [row for row in load_rows(out[0] / "severity") if row["kind"] == "gate"]
    assert [row["overlap"] for row in gates] == [0] * len(SEEDS)


def test_a_single_seed_is_not_judged_by_a_spread_that_it_cannot_show(tmp_path):
    (done,) = run_studies([load("severity")], out=tmp_path, seeds=(13,))
    judged = {cell.verdict for table in done.tables for cell in table.cells if cell.paper is not None}
    assert judged == {"not comparable"}
