"""A verifier's source changes when anything changes that its verdicts depend on."""

from __future__ import annotations

import sys

import pytest

from vapo.errors import InputError
from vapo.verifiers import origin
from vapo.verifiers.gym import ReasoningGym
from vapo.verifiers.origin import library_version, source_of
from vapo.verifiers.python_tests import PythonTests
from vapo.verifiers.regex import Regex
from vapo.verifiers.rules import _source

HERE = ["vapo.verifiers.origin"]


def test_equal_settings_name_one_source():
    assert source_of("rule", {"a": 1, "b": 2}, modules=HERE) == source_of(
        "rule", {"b": 2, "a": 1}, modules=HERE
    )


def test_name_settings_code_and_libraries_all_stand_in_the_digest():
    digests = {
        source_of("rule", {}, modules=HERE).digest,
        source_of("other", {}, modules=HERE).digest,
        source_of("rule", {"digits": 2}, modules=HERE).digest,
        source_of("rule", {}, modules=[*HERE, "vapo.verifiers.base"]).digest,
        source_of("rule", {}, modules=HERE, libraries=["numpy"]).digest,
    }
    assert len(digests) == 5


def test_another_version_of_a_library_is_another_source(monkeypatch):
    before = source_of("rule", {}, modules=HERE, libraries=["numpy"])
    monkeypatch.setattr(origin, "version", lambda _: "0.0.1")
    assert source_of("rule", {}, modules=HERE, libraries=["numpy"]).digest != before.digest


@pytest.mark.parametrize("rule", [PythonTests("import math"), Regex("a+"), ReasoningGym()])
def test_another_python_is_another_source_of_what_it_decides_itself(rule, monkeypatch):
    before = rule.source
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    _source.cache_clear()
    assert rule.source.digest != before.digest
    monkeypatch.undo()
    _source.cache_clear()
    assert rule.source == before


def test_a_missing_library_says_how_to_get_it():
    with pytest.raises(InputError, match=r"audit-first-vapo\[verifiers\]"):
        library_version("no-such-library")


def test_settings_that_are_no_plain_data_are_refused():
    with pytest.raises(InputError):
        source_of("rule", {"x": float("nan")}, modules=HERE)


def test_a_module_without_a_file_is_refused():
    with pytest.raises(InputError, match="a loaded module with a file"):
        source_of("rule", {}, modules=["no.such.module"])
