"""The examples run as they stand, and the README's commands are commands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from vapo.cli import _COMMANDS

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_runs_and_says_what_came_of_it(path, capsys):
    pytest.importorskip("pandas", reason="the examples work on data frames")
    runpy.run_path(str(path), run_name="__main__")
    said = capsys.readouterr().out
    assert said.startswith(("CERTIFIED", "REFUSED"))
    assert "may enter the learner" in said


def test_every_command_that_the_readme_shows_exists_with_its_options():
    known = {room.__name__.rpartition(".")[2]: room for room, _ in _COMMANDS}
    lines = re.findall(
        r"^vapo (\w+)([^#\n]*)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert {name for name, _ in lines} >= {"plan", "certify", "gate", "monitor", "verify", "replay"}
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    for name, rest in lines:
        assert name in known
        for option in re.findall(r"--[a-z-]+", rest):
            assert f"`{option}" in page or f"{option} " in page, (name, option)


def test_every_page_that_the_readme_links_to_is_there():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links
    assert all((ROOT / link).exists() for link in links), links
