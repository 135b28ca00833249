"""Splits by whole groups, the same everywhere, with an overlap check that cannot be talked round."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.samples import world
from vapo.errors import InputError
from vapo.records import Records
from vapo.splits import design_rows, make_manifest


def grouped(groups=40, per_group=3, **options):
    return Records.from_arrow(world(groups * per_group, per_group=per_group, **options)[0])


def chosen(records, design):
    names = records.declared_groups.to_numpy(zero_copy_only=False)
    return set(names[design]), set(names[~design])


def test_groups_are_never_cut_in_two():
    records = grouped()
    inside, outside = chosen(records, design_rows(records, 0.3))
    assert not inside & outside
    assert len(inside) == 12


def test_groups_without_labels_form_the_design_split_first():
    records = grouped()
    unlabelled = {f"g{i}" for i in range(5)}
    names = records.declared_groups.to_pylist()
    ids = [one for one, group in zip(records.id.to_pylist(), names, strict=True) if group not in unlabelled]
    inside, _ = chosen(records, design_rows(records, 0.3, labelled=pa.array(ids)))
    assert unlabelled < inside
    assert len(inside) == 12
    few = design_rows(records, 0.1, labelled=pa.array(ids))
    assert chosen(records, few)[0] == unlabelled


def test_a_group_of_which_one_record_is_labelled_counts_as_labelled():
    records = grouped()
    first_of_each = records.id.take(pa.array(np.arange(0, len(records), 3)))
    assert np.array_equal(design_rows(records, 0.3, labelled=first_of_each), design_rows(records, 0.3))


def test_the_split_depends_on_group_names_and_seed_and_not_on_the_order_of_the_file():
    table, _ = world(120, per_group=3, window=None)
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(120)))
    one, other = Records.from_arrow(table), Records.from_arrow(shuffled)
    assert chosen(one, design_rows(one, 0.3)) == chosen(other, design_rows(other, 0.3))
    assert chosen(one, design_rows(one, 0.3, seed=1)) != chosen(one, design_rows(one, 0.3))


@pytest.mark.parametrize("fraction", [0, 1, -0.1, float("nan")])
def test_a_design_fraction_is_a_share(fraction):
    with pytest.raises(InputError, match="design_fraction"):
        design_rows(grouped(), fraction)


def test_a_manifest_holds_counts_digests_and_the_overlap_check():
    left, right = grouped(content=True), grouped(prefix="x", content=True)
    manifest = make_manifest({"design": left, "certification": right}).as_dict()
    assert manifest["splits"]["design"]["rows"] == 120
    assert manifest["splits"]["design"]["groups"] == 40
    assert len(manifest["splits"]["design"]["ids_sha256"]) == 64
    assert manifest["overlaps"] == {f"design/certification {kind}": 0 for kind in ("id", "group", "content")}
    shuffled = left.take(np.arange(len(left))[::-1].copy())
    digest = make_manifest({"a": shuffled}).splits["a"]["ids_sha256"]
    assert digest == manifest["splits"]["design"]["ids_sha256"]


def row(ident, group, content):
    return {"id": ident, "group": group, "y": 1, "signal.s": 0.5, "content": content}


def build(*rows):
    return Records.from_arrow(pa.Table.from_pylist([row(*one) for one in rows]))


@pytest.mark.parametrize(
    ("kind", "other", "named"),
    [
        ("id", ("a", "h", "else"), "'a'"),
        ("group", ("b", "g", "else"), "'g'"),
        ("content", ("b", "h", " One\tTEXT "), "that of 'a' and 'b'"),
    ],
)
def test_splits_that_share_an_id_a_group_or_a_content_are_refused(kind, other, named):
    left = build(("a", "g", "one text"))
    with pytest.raises(InputError, match=f"share no {kind}, got 1 shared, the first {named}$"):
        make_manifest({"left": left, "right": build(other)})
    counted = make_manifest({"left": left, "right": build(other)}, allow=[kind])
    assert counted.overlaps[f"left/right {kind}"] == 1


def test_a_group_that_was_joined_to_another_is_still_seen_under_its_own_name():
    left = build(("a", "g1", "same"), ("b", "g2", "same"))
    assert left.groups == 1
    with pytest.raises(InputError, match="share no group"):
        make_manifest({"left": left, "right": build(("c", "g2", "other"))})
