"""What is declared beforehand: read strictly, so that a slip is found while it can still be mended."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tests.samples import replaced, world
from vapo.certification.flow import certify
from vapo.certification.replay import replay_stages
from vapo.errors import InputError
from vapo.gate import Gate
from vapo.ledger import Ledger
from vapo.policy import Family
from vapo.protocol import Protocol
from vapo.records import Records, Source

TERMS = {"rho": 0.15, "c_min": 0.2}
DIGEST = "a" * 64


def terms(tmp_path, text: str, encoding: str = "utf-8"):
    path = tmp_path / "terms.toml"
    path.write_text(text, encoding=encoding)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rho = true", "'rho': expected a valid number"),
        ('rho = "0.08"', "'rho': expected a valid number"),
        ("rho = 0.08\nseed = false", "'seed'"),
        ("rho = 0.08\nstages = true", "'stages': expected a count >= 1 or \"open\""),
        ('rho = 0.08\nstages = "3"', "'stages'"),
        ("rho = 0.08\ndelta_split = [0.5, 0.5]", "'delta_split.2': expected a value, got none"),
        ('rho = 0.08\nwaivers = "gold"', "'waivers': expected a list"),
        ("rho = 0.08\noracle_words = ['?']", "'oracle_words': expected words"),
        ("rho = 0.08\nscore = 2024-01-01T00:00:00Z", "score"),
        ("c_min = 0.5", "'rho': expected a value, got none"),
        ("rho = 0.08\n[null_signals]\nconf = true", "'null_signals.conf'"),
        (
            "rho = 0.08\n[sources.primary]\nid = 'rule'",
            "'sources.primary.digest': expected a value, got none",
        ),
        (f"rho = 0.08\n[sources.primary]\nid = ''\ndigest = '{DIGEST}'", "'sources.primary.id'"),
        ("rho = 0.08\n[sources.primary]\nid = 'rule'\ndigest = 'A'", "'sources.primary.digest'.*SHA-256"),
        (f"rho = 0.08\n[sources.primary]\nid = 'r'\ndigest = '{DIGEST}'\nversion = 2", "got 'version'"),
    ],
)
def test_nothing_in_a_protocol_file_is_taken_for_something_else(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        certify(*world(300), out=tmp_path / "run", protocol=Protocol.read(terms(tmp_path, text)))
    assert not (tmp_path / "run" / "log.jsonl").exists()


def test_terms_may_come_as_numbers_of_numpy_and_sequences_of_any_kind():
    given = {
        "rho": np.float64(0.08),
        "seed": np.int64(3),
        "waivers": {"b", "a"},
        "delta_split": (0.8, 0.1, 0.1),
    }
    read = Protocol.from_dict(given | {"sources": {"primary": Source("rule", DIGEST)}})
    assert (read.rho, read.seed, read.waivers) == (0.08, 3, ("a", "b"))
    assert Protocol.from_dict(read.as_dict()) == read


def test_a_byte_order_mark_before_a_protocol_file_is_no_part_of_it(tmp_path):
    assert Protocol.read(terms(tmp_path, "rho = 0.08\r\n", "utf-8-sig")).rho == 0.08


@pytest.mark.parametrize("name", ["signal.gone", "verdict.conf", "conf", "signal.conf.score"])
def test_a_source_of_a_column_that_is_not_there_is_found_before_anything_is_declared(tmp_path, name):
    with pytest.raises(InputError, match=r"sources of the columns that are there: primary.*signal\.conf"):
        certify(*world(300), out=tmp_path / "run", **TERMS, sources={name: Source("policy", DIGEST)})
    assert not (tmp_path / "run" / "log.jsonl").exists()


@pytest.mark.parametrize("as_records", [False, True])
def test_further_words_of_the_oracle_scan_are_declared_and_a_waiver_lets_pass_what_they_find(
    tmp_path, as_records
):
    table, labels = world(300)
    table = replaced(table, RatedByPeople=table.column("signal.conf"))
    given = Records.from_arrow(table) if as_records else table
    asked = {**TERMS, "oracle_words": ("rated by", "nobody")}
    with pytest.raises(InputError, match=r"give the answer away.*'RatedByPeople'"):
        certify(given, labels, out=tmp_path / "run", **asked)
    asked["waivers"] = ("RatedByPeople",)
    given = (
        Records.from_arrow(table, waivers=("RatedByPeople",), oracle_words={("rated", "by")})
        if as_records
        else table
    )
    certify(given, labels, out=tmp_path / "run", **asked)
    ledger = Ledger.read(tmp_path / "run")
    assert ledger.events[0].body["protocol"]["oracle_words"] == ["rated by", "nobody"]
    replay_stages(tmp_path / "run")
    with Gate.open(tmp_path / "run") as gate, pytest.raises(InputError, match=r"'signal\.nobody'"):
        gate.decide(replaced(table, **{"signal.nobody": table.column("signal.conf")}))


def test_every_term_is_declared_also_one_that_was_left_at_its_default(tmp_path):
    certify(*world(300), out=tmp_path / "run", **TERMS)
    declared = Ledger.read(tmp_path / "run").events[0].body["protocol"]
    assert set(declared) == {field.name for field in dataclasses.fields(Protocol)}


def test_a_family_may_be_named_by_its_file(tmp_path):
    path, given = tmp_path / "family.json", {"candidates": [{"tau_low": 0.4, "tau_high": 0.7}], "budget": 9}
    path.write_text(json.dumps(given), encoding="utf-8")
    digests = {
        certify(*world(300), out=tmp_path / name, **TERMS, family=family).body["family_digest"]
        for name, family in (("file", path), ("text", str(path)), ("value", Family.from_dict(given)))
    }
    assert len(digests) == 1
