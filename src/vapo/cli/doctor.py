"""`vapo doctor`: is this machine fit for it?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from vapo.cli import _shared as shared

EXAMPLES = ("vapo doctor", "vapo doctor --folder runs")

Folder = Annotated[Path, typer.Option(help="Folder in which runs will be kept.")]
HERE = Path()
_PACKAGES = ("numpy", "scipy", "pyarrow", "pydantic", "cryptography", "rfc8785", "typer", "rich")
_EXTRAS = ("pandas", "crowdkit", "mapie", "torch", "transformers", "trl")


def _checks(folder: Path) -> Iterator[tuple[str, bool, str]]:
    import importlib.util
    import platform
    import sys
    import tempfile
    from importlib.metadata import PackageNotFoundError, version

    yield "python", sys.version_info >= (3, 11), platform.python_version()
    for package in _PACKAGES:
        try:
            yield package, True, version(package)
        except PackageNotFoundError:
            yield package, False, "missing"
    for package in _EXTRAS:
        there = importlib.util.find_spec(package) is not None
        yield f"extra {package}", True, "there" if there else "not installed (optional)"
    from vapo.certification.evidence import log_uniform_mixture
    from vapo.errors import VapoError
    from vapo.ledger.disk import Disk

    value = float(log_uniform_mixture(200, 2, 0.08))
    yield "arithmetic", abs(value - 8.8849556101) < 1e-9, f"a known bound comes out as {value:.10f}"
    try:
        with tempfile.TemporaryDirectory(dir=folder) as place, Disk(Path(place) / "run") as disk:
            disk.write("probe", b"ok")
            disk.append("log", b"ok\n")
        yield f"durable writes in {folder}", True, "flushed, renamed and locked"
    except (OSError, VapoError) as error:
        yield f"durable writes in {folder}", False, str(error)


def doctor(folder: Folder = HERE, json_output: shared.Json = False) -> None:
    """Check Python, packages, arithmetic and disk.

    Exits with 1 if anything is not fit for it.
    """
    if not folder.is_dir():
        shared.refuse("a folder that exists", "none of that name", where=str(folder))
    checks = list(_checks(folder))
    for name, fine, said in checks:
        shared.say(f"{'ok   ' if fine else 'WRONG'}  {name}: {said}")
    answer = {
        "ok": all(fine for _, fine, _ in checks),
        "checks": {name: {"ok": fine, "said": said} for name, fine, said in checks},
    }
    shared.emit(answer, json_output=json_output)
    if not answer["ok"]:
        raise typer.Exit(shared.NEGATIVE)
