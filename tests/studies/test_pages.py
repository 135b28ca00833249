"""Cells are judged by one rule, printed beside the paper, and found again with the rows behind them."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from tests.studies import squares
from vapo.errors import InputError
from vapo.studies import ROOMS, load, lookup
from vapo.studies.estimates import exact, mean, paper_rate, rate, said
from vapo.studies.fixture_tables import as_paper
from vapo.studies.framework import Cell, Estimate, Paper, Table, judge, matching
from vapo.studies.runner import load_rows, run_studies


def test_the_paper_agrees_inside_the_interval_and_differs_outside():
    ours = Estimate(0.5, 0.4, 0.8)
    assert [judge(Paper(value), ours) for value in (0.39, 0.4, 0.5, 0.8, 0.81)] == [
        "differs", "agrees", "agrees", "agrees", "differs",
    ]  # fmt: skip


def test_half_a_unit_of_the_last_printed_digit_is_given():
    assert judge(Paper(0.123, decimals=3), exact(0.1234)) == "agrees"
    assert judge(Paper(0.123, decimals=3), exact(0.1236)) == "differs"
    assert judge(Paper(0.123), exact(0.1234)) == "differs"


def test_sampling_errors_of_both_sides_add_in_quadrature():
    assert judge(Paper(1.0, half_width=0.3), Estimate(0.5, 0.1, 0.9)) == "agrees"
    assert judge(Paper(1.0, half_width=0.29), Estimate(0.5, 0.1, 0.9)) == "differs"


def test_what_is_undefined_agrees_with_nothing():
    assert judge(Paper(0.0), Estimate(None)) == "differs"
    assert judge(Paper("pass"), said("pass")) == "agrees"


def test_none_of_sixty_is_no_proof_of_never():
    assert judge(paper_rate(0.0, 60), rate(300, 10_000)) == "agrees"
    assert judge(paper_rate(0.0, 60), rate(900, 10_000)) == "differs"


def test_a_mean_of_something_undefined_is_undefined():
    assert mean([0.1, None, 0.3]).value is None
    assert mean([]).value is None


def test_the_same_cell_twice_is_refused():
    cell = Cell("a b", "c", exact(1.0), {})
    with pytest.raises(InputError, match="'a-b/c' twice"):
        Table("t", "", "T", [cell, Cell("A  b", "C", exact(2.0), {})])


def test_rows_are_matched_by_all_of_their_columns():
    rows = [{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": "x"}]
    assert list(matching(rows, {"a": 1, "b": ["x", "z"]})) == rows[:1]
    assert list(matching(rows, {"c": 1})) == []
    assert list(matching(rows, {})) == rows


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    folder = tmp_path_factory.mktemp("out")
    run_studies([squares.study(), squares.study(name="cubes")], out=folder)
    return folder


def test_a_cell_is_found_by_its_id_with_the_rows_that_give_its_value(out):
    cell = lookup.find_cell(out, "squares/squares/seed-2/mean-square")
    rows = list(matching(load_rows(out / "squares"), cell["rows"]))
    assert len(rows) == 4
    assert sum(row["square"] for row in rows) / 4 == pytest.approx(cell["ours"], rel=1e-15)


def test_an_id_that_fits_several_cells_or_none_names_the_nearest(out):
    with pytest.raises(InputError, match=r"fits cubes/squares/seed-1/mean-square, .*squares/squares/seed-3"):
        lookup.find_cell(out, "squares")
    with pytest.raises(InputError, match=r"is near .*squares/squares/seed-2/mean-square"):
        lookup.find_cell(out, "squares/squares/seed-2/mean-sqare")
    with pytest.raises(InputError, match="finished studies"):
        lookup.find_cell(out / "nowhere", "x")


def test_every_table_reads_the_same_as_markdown_csv_and_json(out):
    folder = out / "squares" / "tables"
    data = json.loads((folder / "squares.json").read_bytes())
    lines = list(csv.DictReader(io.StringIO((folder / "squares.csv").read_text())))
    page = (folder / "squares.md").read_text()
    assert len(data["cells"]) == len(lines) == 3
    for cell, line in zip(data["cells"], lines, strict=True):
        assert float(line["ours"]) == cell["ours"]
        assert json.loads(line["rows"]) == cell["rows"]
        assert line["verdict"] == cell["verdict"] in {"agrees", "differs"}
        assert f"{cell['ours']:.3f}" in page
        assert cell["why"] in page


def test_the_report_shows_every_table_and_every_picture(out):
    report = (out / "squares" / "report.md").read_text()
    assert "`tab:squares`" in report
    assert "figures/squares.svg" in report
    assert (out / "squares" / "figures" / "squares.png").stat().st_size > 1000


def test_every_room_opens_to_a_study_of_its_name_with_seeds_for_every_scale():
    for name in ROOMS:
        study = load(name)
        assert study.name == name
        assert set(study.seeds) == {"smoke", "small", "paper"}
        for scale in study.seeds:
            keys = [task.key for task in study.tasks(scale, tuple(study.seeds[scale]))]
            assert len(keys) == len(set(keys)) > 0


def test_a_cell_of_a_study_that_was_not_run_is_told_from_a_misspelt_one(out):
    for wanted in ("spheres/volumes", "cylinders/volumes/seed-2/volume"):
        with pytest.raises(InputError, match="which was not run there"):
            lookup.find_cell(out, wanted, ["spheres", "squares"])
    with pytest.raises(InputError, match="is near squares/squares/seed-2/mean-square"):
        lookup.find_cell(out, "square/squares/seed-2/mean-sqare", ["spheres", "squares"])


def test_what_was_read_off_a_manifest_is_found_there(out):
    assert lookup.rows_behind(out, "contracts", {"manifest": "squares", "field": "seeds"}) == [
        {"seeds": "[1, 2, 3]"}
    ]
    assert lookup.rows_behind(out, "contracts", {"manifest": "spheres", "field": "seeds"}) == []


def test_an_interval_of_shares_ends_where_shares_do():
    assert mean([0.0, 0.0, 0.1], share=True).low == 0.0
    assert mean([0.0, 0.0, 0.1]).low < 0.0


def test_the_spread_of_few_seeds_is_judged_by_students_factor():
    """Among draws of one law, one in twenty differs, also where three seeds are all there is."""
    source = np.random.default_rng(5)
    differs = 0
    for _ in range(2000):
        values = source.standard_normal(3).tolist()
        paper = as_paper(float(source.standard_normal()), values, decimals=None)
        differs += judge(paper, mean(values)) == "differs"
    assert 0.035 < differs / 2000 < 0.065
