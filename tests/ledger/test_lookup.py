"""What a run says about a record can be shown to somebody who has nothing else of it, and that it only grew."""

from __future__ import annotations

import json

import pytest

from tests.ledger.forging import chained, events_of, read_files, write_files
from tests.ledger.shared import OWN
from tests.ledger.small import KEY, OTHER, small_run
from tests.ledger.test_tamper import SECOND
from vapo._internal.keyed import canonical_json
from vapo.errors import InputError, IntegrityError
from vapo.ledger import EventKind, Ledger, verify_run
from vapo.ledger.checkpoints import NOTE, check_growth, checkpoint_of, last_signed, parse_checkpoint
from vapo.ledger.keys import VerifierKey
from vapo.ledger.lookup import prove_event, prove_growth, prove_record
from vapo.ledger.note import Checkpoint, cosign
from vapo.ledger.proof import check_growth_proof, check_proof

TRUSTED = [KEY.verifier]
VECTORS = json.loads((OWN / "growth.json").read_text(encoding="utf-8"))


def test_the_published_proof_of_growth_is_good_and_every_wrong_one_is_refused():
    trusted = [VerifierKey.parse(VECTORS["log_key"])]
    grown = check_growth_proof(VECTORS["growth"].encode(), trusted)
    assert (grown.old.text, grown.checkpoint.size) == (VECTORS["old"], 3)
    for name, text in VECTORS["must_fail"].items():
        with pytest.raises(IntegrityError):
            check_growth_proof(text.encode(), trusted)
        with pytest.raises((SECOND.Wrong, *SECOND.MALFORMED)):
            SECOND.check_proof(text.encode(), [VECTORS["log_key"]], None)
        assert name
    assert SECOND.check_proof(VECTORS["growth"].encode(), [VECTORS["log_key"]], None)["old"] == 2


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    run = tmp_path_factory.mktemp("small") / "run"
    small_run(run)
    return Ledger.read(run)


@pytest.fixture(scope="module")
def note(ledger):
    return checkpoint_of(ledger.events).sign(KEY).data


def test_the_certified_decision_on_a_record_is_proved_by_the_runs_own_checkpoint(ledger):
    proof = prove_record(ledger, "r5")
    proved = check_proof(proof, TRUSTED)
    assert proved.event["kind"] == "certificate.issued"
    row = proved.row("r5")
    assert row["action"] in ("accept", "appeal", "abstain")
    assert len(proof) < 6_000
    with pytest.raises(IntegrityError, match="not signed"):
        check_proof(proof, [OTHER.verifier])


def test_the_gates_decision_and_both_kinds_of_labels_are_proved_by_a_later_checkpoint(ledger, note):
    decided = check_proof(prove_record(ledger, "n5", checkpoint=note), TRUSTED)
    assert decided.event["kind"] == "actions.recorded"
    assert decided.row("n5")["sign"] in (-1, 0, 1)
    for name, kind in (("r5", "labels.joined"), ("n3", "spotcheck.joined")):
        label = check_proof(prove_record(ledger, name, table="labels", checkpoint=note), TRUSTED)
        assert label.event["kind"] == kind
        assert label.row(name)["z"] in (-1, 1)


def test_what_no_signed_checkpoint_reaches_is_proved_against_one_that_the_reader_knows(ledger, note):
    proof = prove_record(ledger, "n5")
    with pytest.raises(IntegrityError):
        check_proof(proof, TRUSTED)
    assert check_proof(proof, checkpoint_of(ledger.events)).row("n5")
    with pytest.raises(IntegrityError, match="another checkpoint"):
        check_proof(proof, checkpoint_of(ledger.events, 3))
    with pytest.raises(InputError, match="an event of the first"):
        prove_record(ledger, "n5", checkpoint=checkpoint_of(ledger.events, 9).sign(KEY).data)
    assert check_proof(prove_record(ledger, "n5", checkpoint=note), TRUSTED).row("n5")


def test_every_event_is_proved_and_no_other(ledger, note):
    for event in ledger.events:
        assert (
            check_proof(prove_event(ledger, event.seq, checkpoint=note), TRUSTED).event["kind"] == event.kind
        )
    for number in (-1, len(ledger.events)):
        with pytest.raises(InputError, match="an event from 0"):
            prove_event(ledger, number)


def test_records_and_tables_that_are_not_there_are_refused(ledger):
    for name, table in (("nobody", "decisions"), ("nobody", "labels"), ("n7", "labels")):
        with pytest.raises(InputError, match=f"a record that the run's {table} hold"):
            prove_record(ledger, name, table=table)
    with pytest.raises(InputError, match="one of decisions, labels"):
        prove_record(ledger, "r5", table="codes")


def test_growth_is_proved_from_every_earlier_checkpoint_to_every_later_one(ledger):
    events = ledger.events
    for old in range(1, len(events) + 1):
        before = checkpoint_of(events, old)
        for size in range(old, len(events) + 1):
            now = checkpoint_of(events, size).sign(KEY).data
            grown = check_growth_proof(prove_growth(ledger, before.text.encode(), checkpoint=now), TRUSTED)
            assert (grown.old, grown.checkpoint.size) == (before, size)
        with pytest.raises(InputError if old > 1 else IntegrityError):
            prove_growth(
                ledger, before.text.encode(), checkpoint=checkpoint_of(events, old - 1).sign(KEY).data
            ) if (old > 1) else prove_growth(ledger, b"nonsense")


def test_a_proof_of_growth_with_anything_changed_is_refused(ledger, note):
    proof = prove_growth(ledger, checkpoint_of(ledger.events, 5).text.encode(), checkpoint=note)
    value = json.loads(proof)
    other = checkpoint_of(ledger.events, 6).text
    wrong = {
        "another old one": value | {"old": other},
        "a hash gone": value | {"path": value["path"][1:]},
        "a hash more": value | {"path": [*value["path"], value["path"][0]]},
        "hashes exchanged": value | {"path": value["path"][::-1]},
        "another run": value | {"old": value["old"].replace("run/", "run/0")},
        "another format": value | {"format": "audit-first-vapo/proof/v1"},
        "a field more": value | {"more": 1},
        "a path that is text": value | {"path": "abc"},
    }
    for name, hurt in wrong.items():
        with pytest.raises(IntegrityError):
            check_growth_proof(canonical_json(hurt), TRUSTED)
        assert name
    with pytest.raises(IntegrityError, match="canonical"):
        check_growth_proof(proof.replace(b":", b": ", 1), TRUSTED)
    with pytest.raises(IntegrityError):
        check_proof(proof, TRUSTED)


def test_a_witness_goes_on_from_what_it_signed_by_a_proof_of_growth(ledger, note):
    old = checkpoint_of(ledger.events, 8)
    grown = check_growth_proof(prove_growth(ledger, old.text.encode(), checkpoint=note), TRUSTED)
    signed = cosign(grown.note, OTHER, log_keys=TRUSTED, time=1, previous=old, proof=grown.path)
    assert parse_checkpoint(signed).size == len(ledger.events)


def test_a_run_that_was_rewritten_does_not_hold_against_a_checkpoint_that_was_kept(ledger, tmp_path):
    known = checkpoint_of(ledger.events, 10)
    check_growth(ledger.events, known)
    files = read_files(ledger.path)
    events = events_of(files)
    events[9]["body"]["count"] = 1
    write_files(tmp_path / "run", chained(files, events))
    forged = Ledger.read(tmp_path / "run")
    with pytest.raises(IntegrityError, match="history was rewritten"):
        check_growth(forged.events, known)
    with pytest.raises(IntegrityError, match="last events were removed"):
        check_growth(ledger.events[:9], known)
    with pytest.raises(IntegrityError, match="another run"):
        check_growth(ledger.events, Checkpoint("audit-first-vapo/run/x", 10, known.root))
    report = verify_run(tmp_path / "run", checkpoint=known)
    assert "history was rewritten" in report.findings[0].what
    assert "only added to" in report.findings[0].means


def test_only_an_exact_run_holds_where_nothing_may_be_added(ledger):
    known = checkpoint_of(ledger.events, 10)
    assert verify_run(ledger.path, checkpoint=known).ok
    assert "were added behind" in verify_run(ledger.path, checkpoint=known, exact=True).findings[0].what
    assert verify_run(ledger.path, checkpoint=checkpoint_of(ledger.events), exact=True).ok


def test_the_note_of_a_signed_run_is_about_its_certificate(ledger):
    signed = last_signed(ledger.events)
    assert signed is not None
    assert signed.kind is EventKind.ISSUED
    assert parse_checkpoint(ledger.file(NOTE)) == checkpoint_of(ledger.events, signed.seq + 1)
    for size in (0, len(ledger.events) + 1):
        with pytest.raises(InputError, match="a number of events"):
            checkpoint_of(ledger.events, size)
    for data in (b"\xff", b"\xff\n\n", b"", b"a\n\nb"):
        with pytest.raises(IntegrityError):
            parse_checkpoint(data)
