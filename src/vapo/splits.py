"""Disjoint splits of records, and the manifest that proves them disjoint."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo._internal.keyed import canonical_texts, keyed_fraction, sha256_hex
from vapo.errors import InputError
from vapo.records import Records

__all__ = ["Manifest", "design_rows", "make_manifest"]


def design_rows(
    records: Records, fraction: float, *, seed: int = 0, labelled: pa.Array | None = None
) -> npt.NDArray[np.bool_]:
    """Choose whole groups for the design split.

    Groups without a label go first, for design needs none; if they are fewer than the wanted share of groups, further
    groups are taken by a keyed hash of their name, which is the same on every machine and in every file order.

    Args:
        records: All records.
        fraction: The share of groups that design should have at least.
        seed: The key of the hash.
        labelled: Ids that have a label; None where labels will be asked for after the freeze.

    Returns:
        A mask over the records, true for design.

    Example:
        >>> table = pa.table({"id": ["a", "b"], "group": ["p", "q"], "y": [1, 1], "signal.s": [0.1, 0.2]})
        >>> design_rows(Records.from_arrow(table), 0.5, labelled=pa.array(["b"])).tolist()
        [True, False]
    """
    if not 0 < fraction < 1:
        expected = "design_fraction in (0, 1)"
        raise InputError(expected, str(fraction))
    present, codes = np.unique(records.group, return_inverse=True)
    design = np.zeros(len(present), np.bool_)
    if labelled is not None:
        has_label = np.asarray(pc.is_in(records.id, value_set=labelled).to_numpy(zero_copy_only=False))
        design = np.bincount(codes, weights=has_label) == 0
    missing = int(np.ceil(fraction * len(present))) - int(design.sum())
    if missing > 0:
        names = records.group_names.take(pa.array(present)).to_pylist()
        key = f"vapo design split {seed}".encode()
        draws = np.array(
            [2.0 if taken else keyed_fraction(key, n) for n, taken in zip(names, design, strict=True)]
        )
        design[np.lexsort((np.array(names, dtype=object), draws))[:missing]] = True
    return np.asarray(design[codes], dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What went into which split."""

    splits: Mapping[str, Mapping[str, Any]]
    """For each split: rows, groups, and the SHA-256 of its sorted ids."""
    overlaps: Mapping[str, int]
    """Pairs of splits and what they share, as `a/b id|group|content`: all zero in a sound manifest."""

    def as_dict(self) -> dict[str, Any]:
        """The manifest as plain data."""
        return {
            "splits": {name: dict(rows) for name, rows in self.splits.items()},
            "overlaps": dict(self.overlaps),
        }


def _keys(records: Records) -> dict[str, pa.Array]:
    content = records.content if records.content is not None else pa.nulls(0, pa.string())
    return {
        "id": records.id,
        "group": (
            pc.unique(records.group_named)
            if records.group_named is not None
            else records.group_names.take(pa.array(np.flatnonzero(np.bincount(records.group))))
        ),
        "content": pc.unique(content.drop_null()),
    }


def _holder(records: Records, content: pa.Scalar) -> str:
    """The id of the first record with a content."""
    assert records.content is not None
    return repr(records.id[pc.index(records.content, content).as_py()].as_py())


def make_manifest(splits: Mapping[str, Records], *, allow: Collection[str] = ()) -> Manifest:
    """Count the rows of every split and make sure that no two share an id, a group or a normalised content.

    Args:
        splits: Records by name of split.
        allow: Kinds of overlap (`id`, `group`, `content`) that are only counted.

    Raises:
        InputError: Naming the first thing that two splits share.
    """
    keys = {name: _keys(records) for name, records in splits.items()} if len(splits) > 1 else {}
    rows = {
        name: {
            "rows": len(records),
            "groups": records.groups,
            "ids_sha256": sha256_hex(canonical_texts(sorted(records.id.to_pylist()))),
        }
        for name, records in splits.items()
    }
    overlaps: dict[str, int] = {}
    names = list(splits)
    for left in range(len(names)):
        for right in range(left + 1, len(names)):
            for kind in ("id", "group", "content"):
                ours, theirs = keys[names[left]][kind], keys[names[right]][kind]
                shared = ours.filter(pc.is_in(ours, value_set=theirs))
                overlaps[f"{names[left]}/{names[right]} {kind}"] = len(shared)
                if len(shared) and kind not in allow:
                    expected = f"splits '{names[left]}' and '{names[right]}' to share no {kind}"
                    first = repr(shared[0].as_py())
                    if kind == "content":
                        # Content is known by its digest only, which says nothing to a person.
                        holders = (splits[name] for name in (names[left], names[right]))
                        first = "that of " + " and ".join(_holder(part, shared[0]) for part in holders)
                    raise InputError(expected, f"{len(shared)} shared, the first {first}")
    return Manifest(rows, overlaps)
