"""Trees, their proofs, and the refusal of everything that is nearly a proof."""

from __future__ import annotations

import base64
import hashlib
import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ledger.shared import public
from vapo.errors import InputError, IntegrityError, VapoError
from vapo.ledger.merkle import (
    EMPTY_ROOT,
    Frontier,
    Tree,
    leaf_hash,
    node_hash,
    verify_consistency,
    verify_inclusion,
    verify_subtree,
    verify_subtree_inclusion,
)

EXPECTED_CASES = {"inclusion": 98, "consistency": 98, "subtreeinclusion": 204, "subtreeconsistency": 118}


def vector_check(kind, case):
    def hashes(name):
        return base64.b64decode(case[name] or "")

    proof = [base64.b64decode(value) for value in case["proof"] or []]
    if kind == "inclusion":
        verify_inclusion(hashes("leafHash"), case["leafIdx"], case["treeSize"], proof, hashes("root"))
    elif kind == "consistency":
        verify_consistency(case["size1"], case["size2"], hashes("root1"), hashes("root2"), proof)
    elif kind == "subtreeinclusion":
        verify_subtree_inclusion(
            hashes("leafHash"), case["leafIdx"], case["start"], case["end"], proof, hashes("root")
        )
    else:
        verify_subtree(case["start"], case["end"], case["size"], hashes("root1"), hashes("root2"), proof)


@pytest.mark.parametrize("kind", EXPECTED_CASES)
def test_every_public_vector_is_judged_as_published(kind):
    folder = public("merkle", kind)
    cases = {str(path.relative_to(folder)): json.loads(path.read_text()) for path in folder.rglob("*.json")}
    assert len(cases) == EXPECTED_CASES[kind]
    for name, case in cases.items():
        try:
            vector_check(kind, case)
        except IntegrityError:
            assert case["wantErr"], name
        else:
            assert not case["wantErr"], name


def split(leaves):
    size = 1
    while size * 2 < len(leaves):
        size *= 2
    return leaves[:size], leaves[size:]


def slow_root(leaves):
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    left, right = split(leaves)
    return hashlib.sha256(b"\x01" + slow_root(left) + slow_root(right)).digest()


def slow_path(index, leaves):
    if len(leaves) == 1:
        return []
    left, right = split(leaves)
    if index < len(left):
        return [*slow_path(index, left), slow_root(right)]
    return [*slow_path(index - len(left), right), slow_root(left)]


def slow_growth(old, leaves, whole=True):
    if old == len(leaves):
        return [] if whole else [slow_root(leaves)]
    left, right = split(leaves)
    if old <= len(left):
        return [*slow_growth(old, left, whole), slow_root(right)]
    return [*slow_growth(old - len(left), right, False), slow_root(left)]


some_leaves = st.lists(st.binary(max_size=4), min_size=1, max_size=70)


@given(leaves=some_leaves)
def test_a_growing_tree_and_its_frontier_have_the_root_of_the_recursive_definition_at_every_size(leaves):
    tree, frontier = Tree(), Frontier()
    assert tree.root() == frontier.root() == EMPTY_ROOT == slow_root([])
    for size, leaf in enumerate(leaves, 1):
        tree.append(leaf)
        frontier.append(leaf)
        assert tree.root() == frontier.root() == slow_root(leaves[:size])
        assert len(frontier.peaks) == size.bit_count()
        frontier = Frontier(frontier.size, frontier.peaks)
    assert all(tree.root(size) == slow_root(leaves[:size]) for size in range(len(leaves) + 1))


@given(leaves=some_leaves, data=st.data())
def test_an_inclusion_proof_is_the_recursive_path_and_is_accepted(leaves, data):
    size = data.draw(st.integers(1, len(leaves)))
    index = data.draw(st.integers(0, size - 1))
    tree = Tree(leaves)
    proof = tree.prove_inclusion(index, size)
    assert list(proof) == slow_path(index, leaves[:size])
    verify_inclusion(leaf_hash(leaves[index]), index, size, proof, tree.root(size))


@given(leaves=some_leaves, data=st.data())
def test_a_consistency_proof_is_the_recursive_one_and_is_accepted(leaves, data):
    size = data.draw(st.integers(1, len(leaves)))
    old = data.draw(st.integers(1, size))
    tree = Tree(leaves)
    proof = tree.prove_consistency(old, size)
    assert list(proof) == slow_growth(old, leaves[:size])
    verify_consistency(old, size, tree.root(old), tree.root(size), proof)


@given(leaves=some_leaves, data=st.data())
def test_a_subtree_is_proved_in_its_tree_and_a_leaf_in_its_subtree(leaves, data):
    size = data.draw(st.integers(1, len(leaves)))
    start = data.draw(st.integers(0, size - 1))
    ends = [e for e in range(start + 1, size + 1) if start % (1 << (e - start - 1).bit_length()) == 0]
    end = data.draw(st.sampled_from(ends))
    index = data.draw(st.integers(start, end - 1))
    tree, inside = Tree(leaves), Tree(leaves[start:end])
    part = tree.subtree_root(start, end)
    assert part == slow_root(leaves[start:end])
    verify_subtree(start, end, size, part, tree.root(size), tree.prove_subtree(start, end, size))
    proof = inside.prove_inclusion(index - start)
    verify_subtree_inclusion(leaf_hash(leaves[index]), index, start, end, proof, part)


@given(leaves=some_leaves, data=st.data())
def test_no_proof_survives_a_changed_bit_a_lost_hash_or_an_added_one(leaves, data):
    size = len(leaves)
    tree = Tree(leaves)
    old = data.draw(st.integers(1, size))
    proof, root, old_root = tree.prove_consistency(old), tree.root(), tree.root(old)
    everything = [*proof, root, old_root]
    place = data.draw(st.integers(0, len(everything) - 1))
    bit = data.draw(st.integers(0, 255))
    value = bytearray(everything[place])
    value[bit // 8] ^= 1 << bit % 8
    everything[place] = bytes(value)
    wrong = [
        (old, size, everything[-1], everything[-2], everything[:-2]),
        (old, size, old_root, root, [*proof, root]),
        (old, size, old_root, root, [old_root, *proof]),
    ]
    if proof:
        wrong += [(old, size, old_root, root, proof[:-1]), (old, size, old_root, root, proof[1:])]
    for case in wrong:
        with pytest.raises(IntegrityError, match="consistency proof: "):
            verify_consistency(*case)


@given(
    start=st.integers(-2, 2**64),
    end=st.integers(-2, 2**64),
    size=st.integers(-2, 2**64),
    part=st.binary(max_size=33),
    root=st.binary(max_size=33),
    proof=st.lists(st.binary(min_size=31, max_size=33), max_size=70),
)
def test_whatever_numbers_and_bytes_come_the_answer_is_an_integrity_error(
    start, end, size, part, root, proof
):
    for check in (
        lambda: verify_subtree(start, end, size, part, root, proof),
        lambda: verify_inclusion(part, start, size, proof, root),
        lambda: verify_consistency(end, size, part, root, proof),
        lambda: verify_subtree_inclusion(part, start, end, size, proof, root),
    ):
        # Chance finds no proof; only what proves nothing (equal roots of one tree) may pass.
        with suppress(IntegrityError):
            check()
            assert part in (root, EMPTY_ROOT)


def test_a_leaf_cannot_be_passed_off_as_a_node():
    tree = Tree([b"a", b"b"])
    forged = leaf_hash(leaf_hash(b"a") + leaf_hash(b"b"))
    assert forged != tree.root() == node_hash(leaf_hash(b"a"), leaf_hash(b"b"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda tree: tree.root(4),
        lambda tree: tree.prove_inclusion(3),
        lambda tree: tree.prove_inclusion(-1),
        lambda tree: tree.prove_consistency(0),
        lambda tree: tree.prove_consistency(3, 2),
        lambda tree: tree.prove_subtree(1, 3),
        lambda tree: tree.subtree_root(0, 4),
        lambda tree: Frontier(3, tree.root()),
        lambda tree: Frontier(1, [b"short"]),
        lambda tree: Frontier(-1),
    ],
)
def test_asking_for_what_a_tree_of_three_does_not_have_is_an_input_error(ask):
    with pytest.raises(InputError) as caught:
        ask(Tree([b"a", b"b", b"c"]))
    assert isinstance(caught.value, VapoError)
