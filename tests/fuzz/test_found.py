"""What fuzzing has found once, kept as the shortest input that shows it."""

from __future__ import annotations

import json

import pytest

from tests.fuzz.targets import clean, targets
from vapo.errors import VapoError

_ROWS = f"rows/{'ab' * 32}.jsonl"
_MANIFEST = {"rows": [_ROWS], "files": {_ROWS: "0" * 64}}
_STATEMENT = {
    "_type": "https://in-toto.io/Statement/v1",
    "predicateType": "urn:audit-first-vapo:certificate:v1",
    "subject": [{"name": "trace", "digest": {"sha256": "0" * 64}}],
}

FOUND = {
    "a certificate that holds nothing": ("statement", {**_STATEMENT, "predicate": {}}),
    "a certificate whose counts are a list": ("statement", {**_STATEMENT, "predicate": {"counts": []}}),
    "a manifest that is a list": ("study-manifest", ["rows", "files"]),
    "a manifest whose files are text": ("study-manifest", {**_MANIFEST, "files": "none"}),
    "a manifest that names a file elsewhere": ("study-manifest", {**_MANIFEST, "rows": ["../../etc/passwd"]}),
    "a manifest of numbers": ("study-manifest", {**_MANIFEST, "rows": [1]}),
    "a manifest of many levels": ("study-manifest", b"[" * 5000),
    "rows that are no objects": ("study-rows", b'{"task":{}}\n1\n'),
    "rows of many levels": ("study-rows", b"[" * 5000),
    "a configuration of many levels": ("train-yaml", b"arm: " + b"[" * 5000),
    "a cost of four hundred digits": (
        "verdicts",
        {"id": "a", "primary": 1, "group": "g", "secondary": {"m": {"v": 1, "tokens_in": 10**400}}},
    ),
    "a key of 32 bytes that says it is of 56": (
        "private-key",
        b"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VvBCIEIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n"
        b"-----END PRIVATE KEY-----",
    ),
    "a log whose events are empty": ("replayed-log", b'{"kind":"protocol.declared","body":{}}'),
    "a protocol that is a text": ("replayed-log", b'{"kind":"protocol.declared","body":{"protocol":"x"}}'),
}


@pytest.fixture(scope="module")
def known():
    yield targets()
    clean()


@pytest.mark.parametrize("what", FOUND)
def test_it_is_refused_by_an_error_of_ours(known, what):
    name, given = FOUND[what]
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    with pytest.raises(VapoError) as caught:
        known[name].read(data)
    assert str(caught.value)
