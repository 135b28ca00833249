"""The house keeps its own rules: few public names, light imports, small rooms, exact pins."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vapo

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "vapo").rglob("*.py"))
MOST_NAMES = 25
MOST_LINES = 400
HEAVY = (
    "crowdkit",
    "httpx",
    "mapie",
    "math_verify",
    "matplotlib",
    "nltk",
    "pandas",
    "ray",
    "reasoning_gym",
    "sklearn",
    "torch",
    "transformers",
    "trl",
    "vllm",
)


def test_there_are_at_most_25_public_names_each_there_and_documented():
    names = vapo.__all__
    assert 0 < len(names) <= MOST_NAMES
    assert len(set(names)) == len(names)
    for name in names:
        thing = getattr(vapo, name)
        if inspect.ismodule(thing) or callable(thing):
            assert (thing.__doc__ or "").strip(), f"vapo.{name} has no docstring"


def test_importing_everything_public_loads_nothing_heavy():
    code = f"""
import sys, vapo
for name in vapo.__all__:
    getattr(vapo, name)
print(*sorted({{module.split(".")[0] for module in sys.modules}} & set({HEAVY!r})))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert loaded.split() == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_room_is_larger_than_400_lines(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_every_room_says_what_it_is_for(path):
    assert path.read_text(encoding="utf-8").lstrip().startswith('"""')


def _pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_constraints_are_exact_pins_and_nothing_else():
    for line in _pins():
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]*==[0-9][0-9a-z.]*", line), line
    names = [line.partition("==")[0] for line in _pins()]
    assert names == sorted(set(names))


def test_every_declared_dependency_is_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    declared = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    for extra in project["project"]["optional-dependencies"].values():
        declared += extra
    wanted = {re.match(r"[A-Za-z0-9._-]+", line).group().lower().replace("_", "-") for line in declared}
    assert wanted <= {line.partition("==")[0] for line in _pins()}


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "src" / "vapo" / "py.typed").is_file()
