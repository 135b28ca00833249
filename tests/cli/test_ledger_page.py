"""The worked examples on the ledger's page work, in the order in which they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.samples import world

PAGE = Path(__file__).parents[2] / "docs" / "ledger.md"


def examples() -> list[tuple[list[str], str]]:
    """Every command on the page, with the first line that it is said to print."""
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    found = []
    for line, after in zip(lines, [*lines[1:], "$"], strict=True):
        if line.startswith("$ vapo "):
            found.append((line.split()[2:], "" if after.startswith("$") else after))
    return found


def test_every_command_does_what_the_page_says(vapo, tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    table, labels = world(900)
    pq.write_table(table, "records.parquet")
    rows = "".join(f"{name},{z}\n" for name, z in labels.items())
    Path("labels.csv").write_text(f"id,z\n{rows}", encoding="utf-8")
    pq.write_table(world(240, seed=5, prefix="n")[0], "fresh.parquet")
    assert len(examples()) > 15
    for arguments, wanted in examples():
        told = vapo(*arguments)
        assert (told.code == 0) != wanted.startswith("error:"), (arguments, told.err)
        # Keys, and so digests, are new each time.
        said = " ".join((told.out + told.err).split())
        for part in re.split(r"\S*…\S*|age1\w+|example\.\S+|\S*[0-9,.-]{3,}\S*", wanted):
            assert " ".join(part.split()) in said, (arguments, part, said[:500])
