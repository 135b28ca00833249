"""A made-up world, a finished run on it, and the command line called from inside."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from vapo._internal.files import write_table
from vapo.cli import run
from vapo.ledger import Ledger
from vapo.simulate import simulate

QUESTIONS = 300


@dataclass
class Said:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on stdout; fails if there is anything else."""
        return json.loads(self.out)


Vapo = Callable[..., Said]


@pytest.fixture
def vapo(capsys: pytest.CaptureFixture[str]) -> Vapo:
    """Run a command as a user would, without the cost of a new process."""

    def call(*arguments: object) -> Said:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return Said(code, *capsys.readouterr())

    return call


@dataclass(frozen=True)
class World:
    """Where the files and runs of the world are."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        return next(path for path in self.folder.iterdir() if path.stem == name)


@pytest.fixture(scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files, a run with a certificate, and one at every step before it."""
    folder = tmp_path_factory.mktemp("world")
    world = simulate(QUESTIONS, 4, seed=3)
    fresh = simulate(QUESTIONS // 2, 4, seed=4, prefix="fresh-")
    pq.write_table(world.records, folder / "rollouts.parquet")
    pq.write_table(fresh.records, folder / "fresh.parquet")
    write_table(world.labels, folder / "labels.csv")
    write_table(fresh.labels, folder / "freshlabels.csv")
    rollouts = folder / "rollouts.parquet"

    def done(*arguments: object) -> None:
        assert run([str(argument) for argument in arguments]) == 0

    done("design", rollouts, "--rho", 0.1, "--out", folder / "designed")
    shutil.copytree(folder / "designed", folder / "frozen")
    done("freeze", folder / "frozen", rollouts)
    shutil.copytree(folder / "frozen", folder / "certified")
    done("join", folder / "certified", folder / "labels.csv", "--strict")
    shutil.copytree(folder / "certified", folder / "deployed")
    done("gate", folder / "deployed", folder / "fresh.parquet", "--out", folder / "decisions.csv")
    done("certify", rollouts, "--labels", folder / "labels.csv", "--rho", 0.002, "--out", folder / "refused")
    return folder


@pytest.fixture(scope="session")
def seen(_built: Path) -> World:
    """The world, to look at only."""
    return World(_built)


@pytest.fixture
def world(_built: Path, tmp_path: Path) -> World:
    """A copy of the world, to do with as one likes."""
    return World(Path(shutil.copytree(_built, tmp_path / "world")))


@pytest.fixture
def edited(tmp_path: Path, seen: World) -> Callable[..., Path]:
    """The rollouts with columns changed (None removes one), in any format."""

    def edit(name: str, **columns: Any) -> Path:
        table = pq.read_table(seen.rollouts)
        for column, value in columns.items():
            place = table.schema.get_field_index(column)
            if value is None:
                table = table.drop_columns([column])
            elif place < 0:
                table = table.append_column(column, pa.array(value))
            else:
                table = table.set_column(place, column, pa.array(value))
        path = tmp_path / name
        write_table(table, path)
        return path

    return edit


@pytest.fixture
def stop_after() -> Callable[[int], AbstractContextManager[None]]:
    """Press Ctrl-C when so many events of a run have been recorded."""

    @contextmanager
    def stopping(events: int) -> Iterator[None]:
        commit = Ledger.commit

        def counted(ledger: Ledger, *arguments: Any) -> Any:
            if len(ledger.events) == events:
                raise KeyboardInterrupt
            return commit(ledger, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ledger, "commit", counted)
            yield

    return stopping


def rows(path: Path) -> pa.Table:
    """A table in any format that commands write."""
    from vapo._internal.files import read_table

    return read_table(path)


def labels_of(path: Path, ids: list[str], target: Path) -> Path:
    """Write the labels of some ids to a file of their own."""
    table = rows(path)
    write_table(table.filter(pc.is_in(table.column("id"), value_set=pa.array(ids))), target)
    return target
