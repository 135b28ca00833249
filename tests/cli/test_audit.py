"""Keys, checkpoints, witnesses, proofs and sealed labels, as a team would use them."""

from __future__ import annotations

import contextlib
import shutil
import stat

import pytest

from tests.cli.conftest import rows
from vapo.cli import run


@pytest.fixture(scope="module")
def built(seen, tmp_path_factory):
    """A signed run of a stage that declared sealed labels, and all keys."""
    folder = tmp_path_factory.mktemp("audit")

    def done(*arguments, code=0):
        with contextlib.chdir(folder):
            assert run([str(argument) for argument in arguments]) == code

    for name in ("signer", "witness"):
        done("keys", "new", f"{name}.pem", "--name", f"example.org/{name}")
    done("labels", "key", "join.key")
    done("labels", "seal", seen.labels, "--to", "join.key.pub", "--out", "labels.sealed")
    done("design", seen.rollouts, "--rho", 0.1, "--sealed-labels", "labels.sealed", "--out", "run")
    done("verify", "run", "--save", "designed.note")
    done("join", "run", "labels.sealed", "--label-key", "join.key", code=2)
    done("freeze", "run", seen.rollouts)
    done("join", "run", "labels.sealed", "--label-key", "join.key", "--key", "signer.pem")
    return folder


@pytest.fixture
def signed(built, tmp_path, monkeypatch):
    """A copy of that folder, which is the current one."""
    folder = shutil.copytree(built, tmp_path / "audit")
    monkeypatch.chdir(folder)
    return folder


def test_sealed_labels_give_the_certificate_that_open_ones_give(vapo, signed, world):
    sealed = vapo(
        "join", "run", "labels.sealed", "--label-key", "join.key", "--key", "signer.pem", "--json"
    ).json
    assert vapo("design", world.rollouts, "--rho", 0.1, "--out", "open").code == 0
    assert vapo("freeze", "open", world.rollouts).code == 0
    plain = vapo("join", "open", world.labels, "--json").json
    differ = {name for name in plain if plain[name] != sealed[name]}
    assert differ == {"trace_root", "labels_digest"}
    assert vapo("replay", "run").code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("join", "run", "labels.sealed"), "--label-key with sealed labels"),
        (("join", "run", "{labels}", "--label-key", "join.key"), "--label-key with sealed labels"),
        (("join", "run", "labels.sealed", "--label-key", "signer.pem"), "a label key (X25519)"),
        (("labels", "seal", "{labels}", "--out", "x"), "--to PUBLIC and --out SEALED"),
        (("labels", "key", "join.key"), "a free place"),
        (("labels", "key", "x", "--out", "y"), "a file name only"),
        (("keys", "new", "x", "--out", "y"), "--name only"),
        (("keys", "new", "signer.pem"), "a free place"),
        (("keys", "sign", "run", "--out", "y"), "--key PRIVATE and --out NOTE"),
        (("keys", "sign", "run", "--key", "signer.pem", "--out", "run/note"), "a place outside run"),
        (("keys", "sign", "run", "--key", "signer.pem", "--first", "--out", "n"), "--key and --out only"),
        (("keys", "cosign", "run/checkpoint.note", "--key", "witness.pem", "--out", "n"), "--log-key PUBLIC"),
        (
            (
                "keys",
                "cosign",
                "run/checkpoint.note",
                "--key",
                "witness.pem",
                "--log-key",
                "signer.pem.pub",
                "--out",
                "n",
            ),
            "either --previous OLD or --first",
        ),
        (("verify", "run", "--exact"), "--checkpoint beside"),
        (("verify", "run", "--witness", "witness.pem.pub"), "--checkpoint beside"),
        (("verify", "run", "--checkpoint", "designed.note", "--witness", "witness.pem.pub"), "--key"),
        (("prove", "run", "--out", "p"), "exactly one of"),
        (("prove", "run", "--event", 0), "--out FILE"),
        (("prove", "--event", 0, "--out", "p"), "a run folder, or --check"),
        (("prove", "run", "--event", 0, "--key", "signer.pem.pub", "--out", "p"), "keys with --check only"),
        (("prove", "run", "--record", "nobody", "--out", "p"), "a record that the run's decisions hold"),
        (("prove", "run", "--event", 0, "--out", "run/p"), "a place outside run"),
        (("prove", "run", "--check", "p"), "--check with a proof file"),
        (("prove", "--check", "designed.note"), "either --key"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_was_expected(vapo, signed, world, arguments, said):
    told = vapo(*(str(one).format(labels=world.labels) for one in arguments))
    assert told.code == 2, told.err
    assert said in told.err


def test_a_checkpoint_that_lost_its_signatures_does_not_pass_for_a_witnessed_one(vapo, signed):
    trusted = ("--key", "signer.pem.pub", "--witness", "witness.pem.pub")
    told = vapo("verify", "run", "--checkpoint", "designed.note", *trusted)
    assert told.code == 1
    assert "nobody signed it" in told.err


def test_other_labels_than_the_declared_sealed_ones_are_refused(vapo, signed, world):
    shutil.rmtree("run")
    assert (
        vapo("design", world.rollouts, "--rho", 0.1, "--sealed-labels", "labels.sealed", "--out", "run").code
        == 0
    )
    assert vapo("freeze", "run", world.rollouts).code == 0
    assert vapo("labels", "seal", world.labels, "--to", "join.key.pub", "--out", "again.sealed").code == 0
    told = vapo("join", "run", "again.sealed", "--label-key", "join.key")
    assert (told.code, "not the file that event 0 declared" in told.err) == (1, True)
    told = vapo("join", "run", world.labels)
    assert told.code != 0
    assert "declared its labels sealed" in told.err
    assert vapo("join", "run", "labels.sealed", "--label-key", "join.key").code == 0
    assert vapo("verify", "run").code == 0
    assert vapo("replay", "run").code == 0


def test_keys_can_be_read_by_their_owner_only_and_open_ones_are_not_used(vapo, signed):
    for name in ("signer.pem", "witness.pem", "join.key"):
        assert stat.S_IMODE((signed / name).stat().st_mode) == 0o600
        (signed / name).chmod(0o644)
    for arguments in (
        ("keys", "sign", "run", "--key", "signer.pem", "--out", "n"),
        ("join", "run", "labels.sealed", "--label-key", "join.key"),
    ):
        told = vapo(*arguments)
        assert told.code == 2
        assert "chmod 600" in told.err


def test_a_witness_signs_what_grew_out_of_what_it_signed_before_and_nothing_else(vapo, signed, world):
    both = ("--key", "witness.pem", "--log-key", "signer.pem.pub")
    assert vapo("keys", "cosign", "run/checkpoint.note", *both, "--first", "--out", "w1").code == 0
    assert vapo("gate", "run", world.fresh, "--out", "decisions.csv").code == 0
    assert vapo("keys", "sign", "run", "--key", "signer.pem", "--out", "now.note").code == 0
    # Without a proof of growth it does not go on, nor from a checkpoint that it has not signed.
    assert vapo("keys", "cosign", "now.note", *both, "--previous", "w1", "--out", "w2").code == 1
    assert vapo("prove", "run", "--since", "w1", "--checkpoint", "now.note", "--out", "grown").code == 0
    assert vapo("keys", "cosign", "grown", *both, "--previous", "now.note", "--out", "w2").code == 1
    assert vapo("keys", "cosign", "grown", *both, "--previous", "w1", "--out", "w2").code == 0
    seen = ("--key", "signer.pem.pub", "--witness", "witness.pem.pub")
    assert vapo("verify", "run", "--checkpoint", "w2", "--exact", *seen).code == 0
    assert vapo("verify", "run", "--checkpoint", "now.note", *seen).code == 1
    assert vapo("verify", "run", "--checkpoint", "w1", *seen).code == 0
    told = vapo("verify", "run", "--checkpoint", "w1", "--exact", *seen, "--json")
    assert told.code == 1
    assert "were added behind" in told.json["findings"][0]["what"]
    assert "FIRST WRONG log.jsonl" in told.err
    assert "That means" in told.err
    assert vapo("prove", "--check", "grown", *seen).code == 1
    assert vapo("prove", "--check", "grown", "--key", "signer.pem.pub", "--json").json["ok"]


def test_a_checkpoint_that_was_kept_finds_a_run_that_was_made_anew(vapo, signed, world):
    kept = vapo("verify", "run", "--checkpoint", "designed.note", "--json")
    assert kept.json["ok"]
    shutil.rmtree("run")
    assert vapo("certify", world.rollouts, "--labels", world.labels, "--rho", 0.1, "--out", "run").code == 0
    assert vapo("verify", "run").code == 0
    told = vapo("verify", "run", "--checkpoint", "designed.note")
    assert told.code == 1
    assert "another run" in told.err


def test_a_proof_needs_no_run(vapo, signed, world):
    name = rows(world.rollouts).column("id").to_pylist()
    certified = vapo("verify", "run", "--json").json
    first = next(one for one in name if vapo("prove", "run", "--record", one, "--out", "p").code == 0)
    assert vapo("prove", "run", "--record", first, "--table", "labels", "--out", "q").code == 0
    shutil.rmtree("run")
    told = vapo("prove", "--check", "p", "--key", "signer.pem.pub", "--record", first, "--json").json
    assert (told["origin"], told["signers"]) == (certified["origin"], ["example.org/signer"])
    assert told["record"]["id"] == first
    assert vapo("prove", "--check", "q", "--key", "signer.pem.pub", "--json").json["rows"]
    assert vapo("prove", "--check", "p", "--key", "witness.pem.pub").code == 1
    assert vapo("prove", "--check", "p", "--key", "signer.pem.pub", "--record", "nobody").code == 1
