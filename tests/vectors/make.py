"""Writes the published vectors of the run folder's formats: `python -m tests.vectors.make`.

Keys and randomness are fixed, so the files come out the same each time; a test makes sure of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.ledger.age import Identity, encrypt
from vapo.ledger.envelope import Envelope, Statement, pre_authentication, sign_statement
from vapo.ledger.keys import SigningKey
from vapo.ledger.merkle import Tree, leaf_hash
from vapo.ledger.note import Checkpoint, cosign, run_origin
from vapo.ledger.proof import make_growth, make_proof
from vapo.ledger.rows import prove_row, row_blocks, row_tree

FOLDER = Path(__file__).parent
LOG_SEED, WITNESS_SEED, LABEL_SEED = (bytes([n]) * 32 for n in (1, 2, 3))
LOG = SigningKey.from_seed("example.org/runs", LOG_SEED)
WITNESS = SigningKey.from_seed("witness.example.net/w1", WITNESS_SEED)
LABELS = Identity.from_bytes(LABEL_SEED)
SIZES = (1, 2, 3, 5, 8, 13)


def stream(seed: str) -> Callable[[int], bytes]:
    """Bytes that stand in for randomness: SHA-256 of the seed and a counter, cut to size."""
    count = 0

    def draw(size: int) -> bytes:
        nonlocal count
        count += 1
        return hashlib.sha256(f"{seed} {count}".encode()).digest()[:size]

    return draw


def leaves() -> list[bytes]:
    return [b"", *(f"leaf {n}".encode() for n in range(1, 13))]


def merkle() -> dict[str, Any]:
    tree = Tree(leaves())
    inclusion = [
        {
            "index": index,
            "size": size,
            "leaf_hash": leaf_hash(leaves()[index]).hex(),
            "root": tree.root(size).hex(),
            "path": [value.hex() for value in tree.prove_inclusion(index, size)],
        }
        for size in SIZES
        for index in sorted({0, size // 2, size - 1})
    ]
    consistency = [
        {
            "old": old,
            "size": size,
            "old_root": tree.root(old).hex(),
            "root": tree.root(size).hex(),
            "path": [value.hex() for value in tree.prove_consistency(old, size)],
        }
        for size in SIZES
        for old in sorted({1, -(-size // 2), size})
    ]
    roots = [{"size": size, "root": tree.root(size).hex()} for size in range(len(tree) + 1)]
    return {
        "leaves": [leaf.hex() for leaf in leaves()],
        "roots": roots,
        "inclusion": inclusion,
        "consistency": consistency,
    }


def checkpoints() -> dict[str, Any]:
    tree = Tree(leaves())
    origin = run_origin(sha256_hex(leaves()[0]))
    old, new = (Checkpoint(origin, size, tree.root(size)) for size in (5, 13))
    proof = tree.prove_consistency(5)
    signed = new.sign(LOG).data
    cosigned = cosign(
        signed, WITNESS, log_keys=[LOG.verifier], time=1_700_000_000, previous=old, proof=proof
    ).decode()
    text, lines = cosigned.split("\n\n")
    first, second = lines.splitlines()
    wrong = {
        "another size": cosigned.replace("\n13\n", "\n12\n"),
        "a leading zero": cosigned.replace("\n13\n", "\n013\n"),
        "another origin": cosigned.replace("vapo/run", "vapo/ran"),
        "no signature of the log": f"{text}\n\n{second}\n",
        "no witness": f"{text}\n\n{first}\n",
        "the witness's time changed": cosigned.replace(second, second.replace("AAAABl", "AAAABm")),
        "a hyphen for the dash": cosigned.replace("\N{EM DASH} example", "- example"),
        "no newline at the end": cosigned[:-1],
        "an empty line more": f"{text}\n\n\n{lines}",
        "a carriage return": cosigned.replace("\n13\n", "\r\n13\n"),
        "a signature cut short": cosigned.replace(first, first[:-4]),
    }
    assert all(value != cosigned for value in wrong.values())
    return {
        "log_seed": LOG_SEED.hex(),
        "log_key": LOG.verifier.text,
        "witness_seed": WITNESS_SEED.hex(),
        "witness_key": WITNESS.witness.text,
        "previous": old.text,
        "consistency": [value.hex() for value in proof],
        "signed": signed.decode(),
        "cosigned": cosigned,
        "must_fail": wrong,
    }


def envelopes() -> dict[str, Any]:
    statement = Statement(
        {"trace": "ab" * 32, "labels": "cd" * 32}, "https://example.org/claim/v1", {"rho": 0.05, "n": 1000}
    )
    good = sign_statement(statement, LOG, WITNESS).as_dict()
    other = Envelope("text/plain", b"hello").sign(LOG).as_dict()
    text = canonical_json(good).decode()
    wrong = {
        "another payload": canonical_json(good | {"payload": other["payload"]}).decode(),
        "another type": canonical_json(good | {"payloadType": "text/plain"}).decode(),
        "a signature of something else": canonical_json(good | {"signatures": other["signatures"]}).decode(),
        "signatures exchanged": text.replace(LOG.fingerprint, "x")
        .replace(WITNESS.fingerprint, LOG.fingerprint)
        .replace("x", WITNESS.fingerprint),
        "no signature": canonical_json(good | {"signatures": []}).decode(),
        "a field more": canonical_json(good | {"more": 1}).decode(),
        "a field twice": text.replace('{"payload":', '{"payload":"","payload":', 1),
        "base64 without its filling": text.replace("==", ""),
    }
    assert all(value != text for value in wrong.values())
    return {
        "log_seed": LOG_SEED.hex(),
        "witness_seed": WITNESS_SEED.hex(),
        "keys": [LOG.verifier.text, WITNESS.verifier.text],
        "statement": statement.payload.decode(),
        "signed_bytes": pre_authentication("application/vnd.in-toto+json", statement.payload).hex(),
        "envelope": text,
        "must_fail": wrong,
    }


def sealed() -> dict[str, Any]:
    small = encrypt(b"id,z\na,1\nb,-1\n", [LABELS.recipient], draw=stream("small"))
    empty = encrypt(b"", [LABELS.recipient], draw=stream("empty"))
    long = bytes(range(256)) * 513
    two = encrypt(long, [Identity.from_bytes(WITNESS_SEED).recipient, LABELS.recipient], draw=stream("two"))
    head = small.index(b"\n--- ")
    body = small.index(b"\n", head + 1) + 1
    wrong = {
        "another version": small.replace(b"org/v1", b"org/v2"),
        "a recipient more": small[:head] + b"\n-> grease\n" + small[head:],
        "the code changed": small[: head + 5] + bytes([small[head + 5] ^ 1]) + small[head + 6 :],
        "the wrapped key changed": small[: head - 2] + bytes([small[head - 2] ^ 1]) + small[head - 1 :],
        "the nonce changed": small[:body] + bytes([small[body] ^ 1]) + small[body + 1 :],
        "the last byte changed": small[:-1] + bytes([small[-1] ^ 1]),
        "the last byte gone": small[:-1],
        "a byte more": small + b"\x00",
        "nothing but the header": small[:body],
    }
    return {
        "identity": LABEL_SEED.hex(),
        "recipient": LABELS.recipient.text,
        "good": [
            {"plain": b"id,z\na,1\nb,-1\n".hex(), "sealed": small.hex()},
            {"plain": "", "sealed": empty.hex()},
        ],
        "two_recipients": {
            "plain": "the bytes 0 to 255, 513 times",
            "plain_sha256": sha256_hex(long),
            "sealed_sha256": sha256_hex(two),
            "seed": "two",
        },
        "must_fail": {name: value.hex() for name, value in wrong.items()},
    }


def table() -> pa.Table:
    count = 37
    return pa.table(
        {
            "id": [f"r{n}" for n in range(count - 1)] + ['"\\\n\x1f é €'],
            "y": [(1, 0, -1)[n % 3] for n in range(count)],
            "s": [None, -0.0, 1e21, 1e20, 1e-7, 0.1, 12345678901.5, *(n / 8 for n in range(count - 7))],
            "ok": [n % 2 == 0 for n in range(count)],
        }
    )


def lines() -> list[bytes]:
    found: list[bytes] = []
    bodies: list[dict[str, Any]] = [{"protocol": {}}, {"trees": {"rows": row_tree(table())}}, {"last": True}]
    for seq, body in enumerate(bodies):
        prev = sha256_hex(found[-1]) if found else "0" * 64
        found.append(canonical_json({"seq": seq, "prev": prev, "kind": f"example.{seq}", "body": body}))
    return found


def growth() -> dict[str, Any]:
    log = lines()
    old, now = (Checkpoint(run_origin(sha256_hex(log[0])), n, Tree(log[:n]).root()) for n in (2, 3))
    good = make_growth(log, old.text.encode(), now.sign(LOG).data)
    value = json.loads(good)
    other = Checkpoint(old.origin, 2, Tree([log[0], log[2]]).root())
    wrong = {
        "another beginning": canonical_json(value | {"old": other.text}),
        "another run": canonical_json(value | {"old": old.text.replace("vapo/run", "vapo/ran")}),
        "an earlier size": canonical_json(value | {"old": old.text.replace("\n2\n", "\n1\n")}),
        "no hash": canonical_json(value | {"path": []}),
        "a hash more": canonical_json(value | {"path": value["path"] * 2}),
        "a space more": good.replace(b":", b": ", 1),
        "not signed": make_growth(log, old.text.encode(), now.text.encode()),
        "the later size changed": canonical_json(
            value | {"checkpoint": value["checkpoint"].replace("\n3\n", "\n4\n")}
        ),
    }
    assert all(found != good for found in wrong.values())
    return {
        "log_key": LOG.verifier.text,
        "old": old.text,
        "growth": good.decode(),
        "must_fail": {name: found.decode() for name, found in wrong.items()},
    }


def proofs() -> dict[str, Any]:
    log = lines()
    checkpoint = Checkpoint(run_origin(sha256_hex(log[0])), len(log), Tree(log).root())
    note = checkpoint.sign(LOG).data
    event = make_proof(log, 1, note)
    row = make_proof(log, 1, note, rows=prove_row(table(), "r20"), at=["trees", "rows"])
    bare = make_proof(log, 2, checkpoint.text.encode())
    value = json.loads(row)
    rows = value["rows"]
    wrong = {
        "another row": row.replace(b"r20", b"r21"),
        "another block": canonical_json(value | {"rows": rows | {"index": 2}}),
        "another place": canonical_json(value | {"rows": rows | {"at": ["trees"]}}),
        "another event": canonical_json(value | {"event": value["event"] | {"index": 2}}),
        "a hash gone": canonical_json(value | {"rows": rows | {"path": rows["path"][1:]}}),
        "a space more": row.replace(b":", b": ", 1),
        "not signed": bare,
    }
    assert all(found != row for found in wrong.values())
    return {
        "log_key": LOG.verifier.text,
        "lines": [line.decode() for line in log],
        "blocks": [block.decode() for block in row_blocks(table())],
        "event": event.decode(),
        "row": row.decode(),
        "bare": bare.decode(),
        "must_fail": {name: found.decode() for name, found in wrong.items()},
    }


FILES = {
    "merkle.json": merkle,
    "checkpoint.json": checkpoints,
    "envelope.json": envelopes,
    "sealed.json": sealed,
    "proof.json": proofs,
    "growth.json": growth,
}


def text(name: str) -> str:
    return json.dumps(FILES[name](), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file in FILES:
        (FOLDER / file).write_text(text(file), encoding="utf-8")
