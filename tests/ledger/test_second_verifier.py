"""The second verifier reads bytes as its page says: numbers, trees, signatures, notes, proofs and limits."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.forging import authored, read_files, write_files
from tests.ledger.shared import OWN, public
from tests.ledger.small import KEY, records, small_run
from tests.ledger.test_jcs import NAMES, plain
from tests.ledger.test_tamper import ROOT, SECOND
from tests.samples import world
from vapo._internal.keyed import canonical_json
from vapo.certification.flow import certify
from vapo.ledger import Ledger
from vapo.ledger.checkpoints import checkpoint_of
from vapo.ledger.lookup import prove_event, prove_growth, prove_record
from vapo.ledger.merkle import Tree
from vapo.policy import Family, Policy

Wrong = SECOND.Wrong
VECTORS = {
    name: json.loads((OWN / f"{name}.json").read_text(encoding="utf-8")) for name in ("checkpoint", "proof")
}


@given(plain)
def test_it_writes_canonical_json_as_the_other_does(value):
    text = canonical_json(value)
    assert SECOND.canonical(value).encode() == text
    assert SECOND.canonical(SECOND.parse(text, "here")).encode() == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_it_writes_numbers_as_the_other_does(value):
    assert SECOND.number(value).encode() == canonical_json(value)


@pytest.mark.parametrize("name", NAMES)
def test_it_reads_the_published_canonical_json(name):
    data = public("jcs", "output", f"{name}.json").read_bytes()
    assert SECOND.canonical(SECOND.parse(data, name)).encode() == data


@pytest.mark.parametrize(
    "text",
    ["", "{}x", '{"a":1,"a":1}', "[1, 2]", "NaN", "[1e400]", '"\\ud800"', "1.0", "01", "[" * 70 + "]" * 70],
)
def test_it_reads_nothing_else(text):
    with pytest.raises(Wrong):
        SECOND.parse(text.encode(), "here")


@pytest.mark.parametrize(("kind", "count"), [("inclusion", 98), ("consistency", 98)])
def test_it_judges_the_public_merkle_vectors_as_published(kind, count):
    cases = [json.loads(path.read_text()) for path in public("merkle", kind).rglob("*.json")]
    assert len(cases) == count
    for case in cases:
        proof = [base64.b64decode(value) for value in case["proof"] or []]

        def hashes(name, case=case):
            return base64.b64decode(case[name] or "")

        try:
            if kind == "inclusion":
                SECOND.included(
                    hashes("leafHash"), case["leafIdx"], case["treeSize"], proof, hashes("root"), "here"
                )
            else:
                SECOND.consistent(
                    case["size1"], case["size2"], hashes("root1"), hashes("root2"), proof, "here"
                )
        except Wrong:
            assert case["wantErr"], case["desc"]
        else:
            assert not case["wantErr"], case["desc"]


@given(st.lists(st.binary(max_size=3), max_size=40))
def test_its_roots_are_those_of_the_other(leaves):
    assert SECOND.root(leaves) == Tree(leaves).root()


def test_it_judges_all_signatures_as_the_strict_reading_asks():
    refused = {"low_order_R", "low_order_A", "low_order_residue", "non_canonical_R", "non_canonical_A"}
    cases = json.loads(public("ed25519", "ed25519vectors.json").read_text())
    assert len(cases) == 914
    for case in cases:
        found = SECOND.good(bytes.fromhex(case["key"]), bytes.fromhex(case["sig"]), case["msg"].encode())
        assert found == (not refused & set(case["flags"] or [])), case["number"]


def test_it_reads_the_published_checkpoints_and_proofs():
    vector = VECTORS["checkpoint"]
    found = SECOND.signed_checkpoint(vector["cosigned"].encode(), [vector["log_key"]], "here")
    assert found[1] == 13
    both = [vector["log_key"], vector["witness_key"]]
    assert SECOND.signed_checkpoint(vector["cosigned"].encode(), both, "here") == found
    with pytest.raises(Wrong, match="not signed"):
        SECOND.signed_checkpoint(vector["cosigned"].encode(), both[1:], "here")
    # Two of the wrong ones are wrong only for a reader who asks for the witness.
    witnessed = {"no witness", "the witness's time changed"}
    for name, text in vector["must_fail"].items():
        if name not in witnessed:
            with pytest.raises(Wrong):
                SECOND.signed_checkpoint(text.encode(), [vector["log_key"]], name)
    proof = VECTORS["proof"]
    for name in ("event", "row"):
        assert SECOND.check_proof(proof[name].encode(), [proof["log_key"]], None)["event"]["seq"] == 1
    for name, text in proof["must_fail"].items():
        with pytest.raises((Wrong, *SECOND.MALFORMED)):
            SECOND.check_proof(text.encode(), [proof["log_key"]], None)
        assert name


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    small_run(folder / "run")
    ledger = Ledger.read(folder / "run")
    (folder / "key.pub").write_text(KEY.verifier.text + "\n", encoding="utf-8")
    note = checkpoint_of(ledger.events).sign(KEY).data
    (folder / "note").write_bytes(note)
    (folder / "old").write_bytes(checkpoint_of(ledger.events, 5).text.encode())
    (folder / "row.proof").write_bytes(prove_record(ledger, "n3", checkpoint=note))
    (folder / "event.proof").write_bytes(prove_event(ledger, 2))
    (folder / "growth.proof").write_bytes(
        prove_growth(ledger, (folder / "old").read_bytes(), checkpoint=note)
    )
    return folder


def command(folder, *arguments, before="pass"):
    code = f"import sys; {before}; sys.argv = ['check_run', *{list(arguments)!r}]; import runpy; " + (
        f"runpy.run_path({str(ROOT / 'tools' / 'check_run.py')!r}, run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=folder, check=False
    )


def test_its_command_needs_no_package_of_ours(small):
    ban = "sys.modules['vapo'] = sys.modules['numpy'] = sys.modules['pyarrow'] = None"
    told = command(small, "run", "--key", "key.pub", "--checkpoint", "note", "--exact", "--json", before=ban)
    assert told.returncode == 0, told.stdout + told.stderr
    assert json.loads(told.stdout) == {"ok": True, "events": 14, "notes": []}
    for name in ("row", "event", "growth"):
        told = command(small, "--proof", f"{name}.proof", "--key", "key.pub", "--json", before=ban)
        assert json.loads(told.stdout)["ok"], name
    assert command(small, "run", "--checkpoint", "old").stdout == "OK\n"
    told = command(small, "run", "--checkpoint", "old", "--exact")
    assert told.returncode == 1
    assert told.stdout == "WRONG log.jsonl: grew beyond the known 5 events\n"


def test_without_the_package_for_signatures_it_says_that_it_skipped_them(small):
    told = command(small, "run", "--json", before="sys.modules['cryptography'] = None")
    assert told.returncode == 0
    skipped = ["signatures skipped: the package cryptography is not installed"]
    assert json.loads(told.stdout)["notes"] == skipped
    # A proof against a key rests on nothing but its signature.
    told = command(
        small,
        "--proof",
        "row.proof",
        "--key",
        "key.pub",
        "--json",
        before="sys.modules['cryptography'] = None",
    )
    assert json.loads(told.stdout)["notes"] == skipped
    told = command(small, "--proof", "row.proof", "--key", "key.pub", "--json")
    assert json.loads(told.stdout)["notes"] == []


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        ("run", "--proof", "row.proof"),
        ("--proof", "row.proof"),
        ("run", "--exact"),
        ("run", "--key", "nowhere"),
    ],
)
def test_wrong_usage_ends_with_2(small, wrong):
    assert command(small, *wrong).returncode == 2


FAMILY = Family.of([Policy.plain(0.3, 0.7, 0.5, budget=9), Policy.plain(0.5, 0.5)])
WEIGHTED = Family.of(FAMILY.policies, weights=(0.9, 0.02))


@pytest.mark.parametrize("claim", ["frozen", "sequential", "hoeffding"])
@pytest.mark.parametrize("per_group", [1, 3])
@pytest.mark.parametrize("family", [None, FAMILY, WEIGHTED])
@pytest.mark.parametrize("rho", [0.08, 0.5])
def test_it_finds_sound_runs_of_every_kind_sound(tmp_path, claim, per_group, family, rho):
    table, labels = world(400, per_group=per_group)
    certify(table, labels, out=tmp_path / "run", claim=claim, family=family, rho=rho, c_min=0.2, b_max=0.3)
    found, notes, events = SECOND.check_run(str(tmp_path / "run"))
    assert found is None
    assert events >= 8
    # With several records a group the certificate does not hold the counts by group.
    assert not notes or per_group > 1


def shifted(name, step):
    """A limit moved by very little under `sequential`, and all that follows from it moved along."""

    def edit(predicate):
        bounds, rho = predicate["bounds"]["sequential"], predicate["rho"]
        bounds[name] += step
        excess, coverage = bounds["excess_upper"], bounds["coverage_lower"]
        if name == "excess_upper":
            bounds["radius"] += step
        risk = rho + excess if excess <= 0 else rho + excess / coverage if coverage > 0 else 1.0
        bounds["risk_upper"] = min(max(risk, 0.0), 1.0)

    return edit


@pytest.mark.parametrize("step", [1e-5, -1e-5])
@pytest.mark.parametrize("name", ["excess_upper", "coverage_lower", "calls_upper"])
def test_it_rederives_the_limits_of_bets_to_five_digits(small, tmp_path, name, step):
    write_files(tmp_path / "run", authored(read_files(small / "run"), KEY, predicate=shifted(name, 0.0)))
    assert SECOND.check_run(str(tmp_path / "run"))[0] is None
    shutil.rmtree(tmp_path / "run")
    write_files(tmp_path / "run", authored(read_files(small / "run"), KEY, predicate=shifted(name, step)))
    found, _, _ = SECOND.check_run(str(tmp_path / "run"))
    assert found is not None
    assert found.what == f"another '{name}'"


def test_it_finds_renewed_and_extended_runs_sound(tmp_path):
    terms = {"claim": "sequential", "rho": 0.3, "c_min": 0.2, "b_max": 0.5, "stages": 3}
    family = Family.of([Policy.plain(0.25, 0.5, 0.5, budget=6)])
    for prefix, options in (("a", {"family": family, **terms}), ("b", {"extend": True})):
        table, labels = records(prefix, 24)
        assert not certify(table, labels, out=tmp_path / "run", **options).certified
        assert SECOND.check_run(str(tmp_path / "run"))[0] is None
    table, labels = records("c", 400)
    certify(table, labels, out=tmp_path / "run", family=family, renew="more of it", key=KEY)
    assert SECOND.check_run(str(tmp_path / "run"), [KEY.verifier.text])[0] is None
