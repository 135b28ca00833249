"""Notes and checkpoints: what is signed, who counts, and what is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.damage import damaged, refuses
from tests.ledger.shared import OWN
from vapo.errors import InputError, IntegrityError, VapoError
from vapo.ledger.keys import SigningKey, VerifierKey
from vapo.ledger.merkle import EMPTY_ROOT, Tree
from vapo.ledger.note import Checkpoint, Note, NoteSignature, cosign, open_checkpoint, run_origin

LOG = SigningKey.from_seed("example.org/runs", bytes([1]) * 32)
WITNESS = SigningKey.from_seed("witness.example.net/w1", bytes([2]) * 32)
OTHER = SigningKey.from_seed("other.example.com", bytes([3]) * 32)
VECTORS = json.loads((OWN / "checkpoint.json").read_text(encoding="utf-8"))
TREE = Tree([str(n).encode() for n in range(20)])


def point(size):
    return Checkpoint("example.org/a-run", size, TREE.root(size))


def signed(size):
    return point(size).sign(LOG).data


def grown(old, new, *, data=None, previous=None, proof=None, key=WITNESS):
    return cosign(
        data or signed(new),
        key,
        log_keys=[LOG.verifier],
        time=5,
        previous=previous or point(old),
        proof=TREE.prove_consistency(old, new) if proof is None else proof,
    )


def test_the_published_checkpoint_is_signed_and_cosigned_as_published():
    log, witness = VerifierKey.parse(VECTORS["log_key"]), VerifierKey.parse(VECTORS["witness_key"])
    opened = open_checkpoint(VECTORS["cosigned"].encode(), [log], witnesses=[witness])
    assert opened.checkpoint.size == 13
    assert [entry.key for entry in opened.log] == [log]
    assert [(entry.key, entry.time) for entry in opened.witnesses] == [(witness, 1_700_000_000)]


@pytest.mark.parametrize("name", VECTORS["must_fail"])
def test_the_published_wrong_checkpoint_is_refused(name):
    log, witness = VerifierKey.parse(VECTORS["log_key"]), VerifierKey.parse(VECTORS["witness_key"])
    with pytest.raises(IntegrityError):
        open_checkpoint(VECTORS["must_fail"][name].encode(), [log], witnesses=[witness])


def test_what_is_written_is_what_is_read():
    note = point(7).sign(LOG).sign(OTHER)
    assert Note.parse(note.data) == note
    assert Checkpoint.parse(note.text) == point(7)
    assert [entry.key for entry in note.verify([OTHER.verifier, LOG.verifier])] == [
        LOG.verifier,
        OTHER.verifier,
    ]
    assert note.sign(LOG) == note


def test_a_text_may_have_empty_lines_and_any_letters():
    text = "\n\nOgnuno\n\n— not a signature\n\n"
    note = Note(text).sign(LOG)
    assert Note.parse(note.data).text == text
    assert Note.parse(note.data).verify([LOG.verifier])


def test_signatures_by_unknown_keys_are_passed_over_even_if_they_share_name_or_id():
    namesake = SigningKey.from_seed(LOG.name, bytes([9]) * 32)
    same_id = NoteSignature("example.org/else", LOG.verifier.key_id, bytes(64))
    note = Note(point(3).text, (same_id, *point(3).sign(namesake).signatures)).sign(LOG)
    assert [entry.key for entry in Note.parse(note.data).verify([LOG.verifier])] == [LOG.verifier]


def test_one_bad_signature_by_a_known_key_spoils_the_note():
    bad = NoteSignature(OTHER.name, OTHER.verifier.key_id, bytes(64))
    note = Note(point(3).text, (bad,)).sign(LOG)
    assert note.verify([LOG.verifier])
    with pytest.raises(IntegrityError, match=r"by other.example.com is not good"):
        note.verify([LOG.verifier, OTHER.verifier])


def test_a_note_that_no_known_key_signed_is_refused():
    note = point(3).sign(OTHER)
    with pytest.raises(IntegrityError, match=r"not signed by example.org/runs"):
        note.verify([LOG.verifier])
    with pytest.raises(IntegrityError, match="none is trusted"):
        note.verify([])


def test_sixteen_long_signatures_are_read():
    note = Note(point(3).text, tuple(NoteSignature(f"k{n}", bytes(4), bytes(5000)) for n in range(16))).sign(
        LOG
    )
    assert Note.parse(note.data).verify([LOG.verifier])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda text: text.replace("\n\n", "\n"),
        lambda text: text + "\n",
        lambda text: text[:-1],
        lambda text: text.replace("— ", "—"),
        lambda text: text.replace("— ", "—  "),
        lambda text: text.replace("— ", "—\u00a0"),
        lambda text: text.replace("runs ", "runs  "),
        lambda text: text.replace("runs ", "ru+ns "),
        lambda text: text.replace("runs ", "runs\t"),
        lambda text: text.replace("\n\n", "\n\r\n"),
        lambda text: text.replace("=\n", "\n"),
        lambda text: text + "— x AAAAAA==\n",
        lambda text: text + "— x \n",
        lambda text: text + "—  AAAAAAAA\n",
        lambda text: text + "— x AAAAAAAB=\n",
        lambda text: text + "— x AAAAAAAA \n",
        lambda text: text + "\x00",
        lambda text: text + "— x AAAAAAAA\n" * 100,
        lambda text: text + f"— x {'A' * (1 << 18)}\n",
    ],
)
def test_a_note_of_nearly_the_right_form_is_refused(wrong):
    text = signed(5).decode()
    assert wrong(text) != text
    with pytest.raises(IntegrityError, match=r"^note: "):
        Note.parse(wrong(text).encode())


def test_bytes_that_are_not_utf_8_are_refused():
    with pytest.raises(IntegrityError, match="UTF-8"):
        Note.parse(signed(5).replace(b"a-run", b"a-r\xffn"))


ROOT = point(5).text.splitlines()[2]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "o\n5\n",
        f"o\n5\n{ROOT}",
        f"\n5\n{ROOT}\n",
        f"o\n05\n{ROOT}\n",
        f"o\n+5\n{ROOT}\n",
        f"o\n5 \n{ROOT}\n",
        f"o\n\u0665\n{ROOT}\n",
        f"o\n-5\n{ROOT}\n",
        f"o\n{2**63}\n{ROOT}\n",
        f"o\n0\n{ROOT}\n",
        "o\n5\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n",
        f"o\n5\n{ROOT[:-1]}\n",
        f"o\n5\n{ROOT[:-4]}\n",
        f"o\n5\n{ROOT.replace('+', '-').replace('/', '_')}=\n",
        f"o\n5\n{ROOT}\n\n",
        f"o\n5\n{ROOT}\nmore\n\n",
        f"o\x9b\n5\n{ROOT}\n",
    ],
)
def test_a_checkpoint_of_nearly_the_right_form_is_refused(text):
    with pytest.raises(IntegrityError, match=r"^checkpoint: "):
        Checkpoint.parse(text)


def test_further_lines_are_kept_and_signed():
    more = Checkpoint("o", 5, TREE.root(5), ("a line", "another"))
    assert Checkpoint.parse(more.text) == more
    assert Checkpoint.parse(Checkpoint("o", 0, EMPTY_ROOT).text).size == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Checkpoint("", 5, TREE.root(5)),
        lambda: Checkpoint("a\nb", 5, TREE.root(5)),
        lambda: Checkpoint("o", -1, TREE.root(5)),
        lambda: Checkpoint("o", 5, b"short"),
        lambda: Checkpoint("o", 5, EMPTY_ROOT),
        lambda: Checkpoint("o", 5, TREE.root(5), ("",)),
        lambda: Checkpoint("o", 5, TREE.root(5), ("a\nb",)),
        lambda: Note("no newline"),
        lambda: Note("a\ttab\n"),
        lambda: Note("\ud800\n"),
        lambda: run_origin("no digest"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(make):
    with pytest.raises(InputError):
        make()


def test_a_checkpoint_of_another_run_is_refused():
    assert open_checkpoint(signed(5), [LOG.verifier], origin="example.org/a-run").checkpoint == point(5)
    with pytest.raises(IntegrityError, match=r"expected example.org/b-run"):
        open_checkpoint(signed(5), [LOG.verifier], origin="example.org/b-run")


def test_a_witness_signs_what_only_grew():
    for old in range(1, 21):
        for new in range(old, 21):
            opened = open_checkpoint(grown(old, new), [LOG.verifier], witnesses=[WITNESS.witness])
            assert opened.checkpoint.size == new
            assert [entry.time for entry in opened.witnesses] == [5]


def test_a_witness_signs_a_first_checkpoint_on_trust():
    data = cosign(signed(5), WITNESS, log_keys=[LOG.verifier], time=0, previous=None)
    assert open_checkpoint(data, [LOG.verifier], witnesses=[WITNESS.witness]).witnesses[0].time == 0


def test_a_witness_does_not_sign_a_log_that_shrank_changed_or_is_another():
    with pytest.raises(IntegrityError, match="had 9 events and has 5 now"):
        grown(5, 5, previous=point(9), proof=())
    with pytest.raises(IntegrityError, match="consistency proof"):
        grown(5, 9, previous=Checkpoint("example.org/a-run", 5, TREE.root(6)))
    with pytest.raises(IntegrityError, match="consistency proof"):
        grown(5, 9, proof=())
    with pytest.raises(IntegrityError, match=r"expected example.org/b-run"):
        grown(5, 9, previous=Checkpoint("example.org/b-run", 5, TREE.root(5)))
    with pytest.raises(IntegrityError, match="consistency proof"):
        grown(5, 5, previous=Checkpoint("example.org/a-run", 5, TREE.root(6)), proof=())


def test_a_witness_does_not_sign_what_the_log_did_not():
    with pytest.raises(IntegrityError, match=r"not signed by example.org/runs"):
        grown(5, 9, data=point(9).sign(OTHER).data)


def test_a_log_cannot_be_its_own_witness():
    with pytest.raises(InputError, match="cannot be its own witness"):
        grown(5, 9, key=LOG)
    same = SigningKey("witness.example.net/fake", LOG._private)
    with pytest.raises(InputError, match="cannot be its own witness"):
        grown(5, 9, key=same)
    with pytest.raises(IntegrityError, match="0 of 1 independent witnesses"):
        open_checkpoint(signed(9), [LOG.verifier], witnesses=[LOG.verifier])


def test_as_many_witnesses_must_have_signed_as_were_asked_for():
    data = grown(5, 9)
    trusted = {"witnesses": [WITNESS.witness, OTHER.witness]}
    with pytest.raises(IntegrityError, match="1 of 2 independent witnesses"):
        open_checkpoint(data, [LOG.verifier], **trusted)
    assert len(open_checkpoint(data, [LOG.verifier], quorum=1, **trusted).witnesses) == 1
    both = grown(5, 9, data=data, key=OTHER)
    assert len(open_checkpoint(both, [LOG.verifier], **trusted).witnesses) == 2
    again = grown(5, 9, data=data)
    with pytest.raises(IntegrityError, match="1 of 2 independent witnesses"):
        open_checkpoint(again, [LOG.verifier], **trusted)


def test_a_plain_signature_by_a_second_key_counts_as_a_witness_if_it_is_trusted_as_one():
    data = Note.parse(signed(9)).sign(OTHER).data
    opened = open_checkpoint(data, [LOG.verifier], witnesses=[OTHER.verifier])
    assert opened.witnesses[0].time is None
    with pytest.raises(IntegrityError, match="0 of 1"):
        open_checkpoint(data, [LOG.verifier], witnesses=[OTHER.witness])


def test_a_cosignature_does_not_stand_for_the_log():
    data = Note(point(9).text, Note.parse(grown(5, 9)).signatures[1:]).data
    for keys in ([LOG.verifier], [WITNESS.witness]):
        with pytest.raises(IntegrityError, match="not signed by the log's own key"):
            open_checkpoint(data, keys, witnesses=[WITNESS.witness])


@pytest.mark.parametrize("time", [-1, 2**63])
def test_a_time_that_cannot_be_written_is_refused(time):
    with pytest.raises(InputError, match="time"):
        cosign(signed(5), WITNESS, log_keys=[LOG.verifier], time=time, previous=None)


def test_a_time_beyond_the_allowed_is_no_good_signature():
    signature = (2**63).to_bytes(8) + bytes(64)
    note = Note(point(5).text, (NoteSignature(WITNESS.name, WITNESS.witness.key_id, signature),))
    with pytest.raises(IntegrityError, match="is not good"):
        note.verify([WITNESS.witness])


GOOD = grown(5, 9)


@given(data=damaged(GOOD))
def test_a_damaged_checkpoint_is_refused_or_says_the_same(data):
    try:
        opened = open_checkpoint(data, [LOG.verifier], witnesses=[WITNESS.witness])
    except VapoError:
        return
    assert opened.checkpoint == point(9)


@given(data=st.one_of(st.binary(max_size=300), st.text(alphabet="—ab \n+0=A", max_size=80).map(str.encode)))
def test_bytes_that_were_never_a_note_are_refused(data):
    refuses(open_checkpoint, data, [LOG.verifier])
