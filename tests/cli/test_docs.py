"""docs/cli.md tells of every command, and of no option that is not there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from docs import make_cli

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def section(command: str) -> str:
    return PAGE.partition(f"\n## vapo {command}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("command", make_cli.COMMANDS)
def test_every_command_has_a_worked_example_with_its_json(command):
    told = section(command)
    assert f"$ vapo {command}" in told
    objects = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", told, re.DOTALL)]
    assert objects
    assert all(isinstance(data, dict) for data in objects)


@pytest.mark.parametrize("command", make_cli.COMMANDS)
def test_the_options_of_the_page_are_those_of_the_command(command):
    assert make_cli.options(command).strip() in section(command)
    assert make_cli.terms().strip() in PAGE


def test_the_examples_use_only_options_that_exist(vapo):
    lines = [line[2:] for line in PAGE.split("\n") if line.startswith("$ vapo ")]
    assert len(lines) > len(make_cli.COMMANDS)
    known = {command: vapo(command, "--help").out for command in make_cli.COMMANDS}
    for line in lines:
        _, command, *words = shlex.split(line)
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        assert all(option in known[command] for option in options), line


def test_the_page_names_no_place_on_the_machine_that_made_it():
    assert not re.search(r"(?<![\w.])/(tmp|home|root|work|usr|var|Users)\b", PAGE)
