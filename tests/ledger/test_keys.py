"""Keys in files, and what counts as a good signature."""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import damaged, refuses
from tests.ledger.shared import public
from vapo.errors import InputError, VapoError
from vapo.ledger import keys
from vapo.ledger.keys import (
    COSIGNS,
    SigningKey,
    VerifierKey,
    load_key,
    load_verifiers,
    new_key,
    verify_ed25519,
)
from vapo.ledger.sealed import load_label_key, load_recipient, new_label_key

REFUSED = {"low_order_R", "low_order_A", "low_order_residue", "non_canonical_R", "non_canonical_A"}
KEY = SigningKey.from_seed("example.org/run", bytes(32))


def test_of_914_edge_cases_only_those_are_good_that_every_strict_verifier_accepts():
    cases = json.loads(public("ed25519", "ed25519vectors.json").read_text())
    found = Counter()
    for case in cases:
        good = verify_ed25519(bytes.fromhex(case["key"]), bytes.fromhex(case["sig"]), case["msg"].encode())
        assert good == (not REFUSED & set(case["flags"] or [])), case["number"]
        found[good] += 1
    assert found == {True: 43, False: 871}


def test_all_151_wycheproof_cases_are_judged_as_published():
    groups = json.loads(public("ed25519", "wycheproof_ed25519_test.json").read_text())["testGroups"]
    found = Counter()
    for group in groups:
        key = bytes.fromhex(group["publicKey"]["pk"])
        for case in group["tests"]:
            good = verify_ed25519(key, bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"]))
            assert good == (case["result"] == "valid"), case["tcId"]
            found[good] += 1
    assert found == {True: 88, False: 63}


def on_curve(y):
    square = (y * y - 1) * pow(-121665 * pow(121666, -1, keys._PRIME) * y * y + 1, -1, keys._PRIME)
    square %= keys._PRIME
    root = pow(square, (keys._PRIME + 3) // 8, keys._PRIME)
    if (root * root - square) % keys._PRIME:
        root = root * pow(2, (keys._PRIME - 1) // 4, keys._PRIME) % keys._PRIME
    assert (root * root - square) % keys._PRIME == 0
    return root, y


def doubled(point):
    x, y = point
    d = -121665 * pow(121666, -1, keys._PRIME)
    product = d * x * x * y * y
    return (
        2 * x * y * pow(1 + product, -1, keys._PRIME) % keys._PRIME,
        (y * y + x * x) * pow(1 - product, -1, keys._PRIME) % keys._PRIME,
    )


def test_the_refused_points_are_the_ones_that_three_doublings_take_to_zero():
    assert len(keys._SMALL_ORDER) == 5
    for y in keys._SMALL_ORDER:
        point = on_curve(y)
        for _ in range(3):
            point = doubled(point)
        assert point == (0, 1)


@given(message=st.binary(max_size=100), place=st.integers(0, 63), bit=st.integers(0, 7))
def test_a_signature_with_one_bit_changed_is_not_good(message, place, bit):
    signature = bytearray(KEY.sign(message))
    assert verify_ed25519(KEY.verifier.public, bytes(signature), message)
    signature[place] ^= 1 << bit
    assert not verify_ed25519(KEY.verifier.public, bytes(signature), message)


def test_adding_the_group_order_to_s_makes_no_second_signature():
    signature = KEY.sign(b"text")
    more = int.from_bytes(signature[32:], "little") + keys._ORDER
    assert not verify_ed25519(KEY.verifier.public, signature[:32] + more.to_bytes(32, "little"), b"text")


def test_a_new_key_is_readable_by_its_owner_only_and_signs(tmp_path):
    path = tmp_path / "run.key"
    verifier = new_key(path, "example.org/run")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_verifiers(f"{path}.pub") == (verifier,)
    key = load_key(path)
    assert key.verifier == verifier
    assert verify_ed25519(verifier.public, key.sign(b"text"), b"text")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["run.key", "run.key.pub"]


@pytest.mark.parametrize("make", [lambda path: new_key(path, "example.org/run"), new_label_key])
@pytest.mark.parametrize("taken", ["run.key", "run.key.pub"])
def test_a_key_is_never_overwritten(tmp_path, make, taken):
    (tmp_path / taken).write_bytes(b"precious")
    with pytest.raises(InputError, match="never overwritten"):
        make(tmp_path / "run.key")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {taken: b"precious"}


def test_a_dangling_link_in_the_place_of_a_key_is_not_followed(tmp_path):
    (tmp_path / "run.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="never overwritten"):
        new_key(tmp_path / "run.key", "example.org/run")
    assert not (tmp_path / "elsewhere").exists()


def test_if_the_public_half_cannot_be_written_no_private_half_stays(tmp_path, monkeypatch):
    create = keys._create

    def fail(path, data, mode):
        if path.suffix == ".pub":
            raise OSError
        create(path, data, mode)

    monkeypatch.setattr(keys, "_create", fail)
    with pytest.raises(OSError):
        new_key(tmp_path / "run.key", "example.org/run")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620, 0o601])
@pytest.mark.parametrize("kind", ["signing", "label"])
def test_a_private_key_open_to_others_is_refused_with_the_remedy(tmp_path, mode, kind):
    path = tmp_path / "run.key"
    if kind == "signing":
        new_key(path, "example.org/run")
    else:
        new_label_key(path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"chmod 600 .*mode {mode:03o}"):
        (load_key if kind == "signing" else load_label_key)(path)


def test_keys_of_one_kind_are_not_taken_for_the_other(tmp_path):
    new_key(tmp_path / "sign", "example.org/run")
    new_label_key(tmp_path / "labels")
    assert "Ed25519" in str(refuses(load_label_key, tmp_path / "sign"))
    assert "Ed25519" in str(refuses(load_key, tmp_path / "labels"))
    refuses(load_recipient, tmp_path / "sign.pub")
    refuses(load_verifiers, tmp_path / "labels.pub")


def test_two_files_of_different_keys_are_not_a_pair(tmp_path):
    new_key(tmp_path / "a", "example.org/a")
    new_key(tmp_path / "b", "example.org/b")
    (tmp_path / "a.pub").write_bytes((tmp_path / "b.pub").read_bytes())
    assert "another key" in str(refuses(load_key, tmp_path / "a"))
    assert load_key(tmp_path / "a", "example.org/a").name == "example.org/a"


def test_a_key_without_its_public_half_needs_a_name(tmp_path):
    verifier = new_key(tmp_path / "a", "example.org/a")
    (tmp_path / "a.pub").unlink()
    assert "a.pub" in str(refuses(load_key, tmp_path / "a"))
    assert load_key(tmp_path / "a", "example.org/a").verifier == verifier


def _pem(kind):
    if kind == "encrypted":
        options = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
        return Ed25519PrivateKey.generate().private_bytes(*options)
    return generate_private_key(SECP256R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize(
    "data",
    [b"", b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 100, bytes(1 << 17), "encrypted", "another curve"],
)
def test_what_is_no_key_of_ours_ends_in_an_input_error(tmp_path, data):
    path = tmp_path / "run.key"
    path.touch(0o600)
    path.write_bytes(_pem(data) if isinstance(data, str) else data)
    assert isinstance(refuses(load_key, path, "example.org/run"), InputError)
    assert isinstance(refuses(load_verifiers, path), InputError)


def test_folders_pipes_and_nothing_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "nothing", Path("a\0b")):
        assert isinstance(refuses(load_key, path, "example.org/run"), InputError)
    assert isinstance(refuses(new_key, tmp_path / "nowhere" / "key", "example.org/run"), InputError)


@pytest.mark.parametrize(
    "name", ["", "a b", "a+b", "a\nb", "a\u00a0b", "a\u2003b", "\x7f", "a" * 256, "\ud800"]
)
def test_a_name_that_would_break_a_signature_line_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="key name"):
        new_key(tmp_path / "key", name)
    assert list(tmp_path.iterdir()) == []


def test_a_list_of_keys_may_have_empty_lines_and_remarks(tmp_path):
    other = SigningKey.from_seed("witness.example.net", bytes([1]) * 32)
    path = tmp_path / "trusted"
    path.write_text(f"# ours\n{KEY.verifier.text}\n\n{other.witness.text}\n")
    assert load_verifiers(path) == (KEY.verifier, other.witness)
    path.write_text("# none\n")
    refuses(load_verifiers, path)


def test_kind_and_name_are_part_of_the_key_id():
    other = SigningKey.from_seed("example.org/other", bytes(32))
    ids = {KEY.verifier.key_id, KEY.witness.key_id, other.verifier.key_id, other.witness.key_id}
    assert len(ids) == 4
    assert KEY.witness.kind == COSIGNS


def test_a_key_of_small_order_or_another_spelling_is_no_key():
    for encoded in (bytes(32), bytes([1, *bytes(31)]), b"\xff" * 32, (2**255 - 18).to_bytes(32, "little")):
        with pytest.raises(InputError, match="not of small order"):
            VerifierKey("example.org/run", encoded)


def test_a_private_key_does_not_show_itself():
    assert "rivate" not in repr(KEY)


@given(data=damaged(KEY.verifier.text.encode()))
def test_a_damaged_public_key_is_refused_or_is_another_key(data):
    try:
        key = VerifierKey.parse(data.decode("utf-8", "surrogateescape"))
    except VapoError:
        return
    assert key.text.encode() == data
