"""`vapo study` runs studies, says where they stand beside the paper, and shows the rows behind a number."""

from __future__ import annotations

import json
import shutil

import pytest

CELL = "contracts/metric-contract/cost-uncertainty/bootstrap-resamples"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    from vapo.cli import run

    folder = tmp_path_factory.mktemp("studies")
    assert run(["study", "contracts", "--out", str(folder)]) == 0
    return folder


def test_a_study_prints_one_object_that_counts_its_verdicts(vapo, out):
    said = vapo("study", "contracts", "--out", out, "--json")
    (found,) = said.json["studies"]
    assert said.code == 0
    assert found["study"] == "contracts"
    assert found["resumed"] == 3
    assert sum(found["verdicts"].values()) <= found["cells"]
    assert (out / "contracts" / "report.md").is_file()


def test_people_hear_the_same_and_nothing_is_printed_for_machines(vapo, out):
    said = vapo("study", "contracts", "--out", out)
    assert said.out == ""
    assert "3 tasks had been finished before" in said.err


def test_people_hear_what_differs(vapo, out, tmp_path):
    """The paper says that this study was not run; where it stands finished, that line differs."""
    shutil.copytree(out, tmp_path, dirs_exist_ok=True)
    shutil.copytree(tmp_path / "contracts", tmp_path / "independent")
    said = vapo("study", "contracts", "--out", tmp_path)
    assert (
        "differs: contracts/current-experiments/real-verifier-frozen-proposal-validation/status" in said.err
    )


def test_show_prints_a_cell_and_the_rows_it_was_computed_from(vapo, out):
    said = vapo("study", "show", CELL, "--out", out, "--json")
    assert said.code == 0
    assert said.json["cell"] == CELL
    assert said.json["ours"] == 10_000
    assert [row["value"] for row in said.json["behind"]] == [10_000]
    assert "1 row" in vapo("study", "show", CELL, "--out", out).err


def test_rows_with_many_columns_stay_readable(vapo, out):
    said = vapo("study", "show", "contracts/metric-contract/update/magnitudes-above-max", "--out", out)
    assert said.code == 0
    # Of thirty columns, those that tell the rows apart and the one that was added up.
    assert "how: sum of `above_bound`" in said.err
    assert "H_mag" not in said.err
    said = vapo("study", "show", "contracts/split-contract/test/shared-with-another-split", "--out", out)
    assert "In all of them: seed = 13" in said.err
    assert "shared = 0" in said.err


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["horoscope"], "expected one of replay"),
        (["show"], "expected the id of a cell"),
        (["show", "contracts/no-such-thing"], "expected the id of one cell"),
        (["contracts", CELL], "no cell unless the first word is show"),
        (["contracts", "--seeds", "one"], "whole numbers separated by commas"),
        (["contracts", "--scale", "huge"], "huge"),
        (["contracts", "--workers", "0"], "workers"),
    ],
)
def test_a_mistake_is_named_and_exits_with_2(vapo, out, arguments, expected):
    said = vapo("study", *arguments, "--out", out, "--json")
    assert said.code == 2
    assert expected in said.json["error"]["message"]


def test_seeds_can_be_given(vapo, tmp_path):
    assert vapo("study", "contracts", "--seeds", "7, 8", "--out", tmp_path).code == 0
    manifest = json.loads((tmp_path / "contracts" / "manifest.json").read_bytes())
    assert manifest["seeds"] == [7, 8]
