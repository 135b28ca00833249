"""The command line: one file a command."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated, Any

import typer

from vapo.cli import _shared as shared
from vapo.cli import (
    certify,
    demo,
    design,
    doctor,
    freeze,
    gate,
    join,
    keys,
    labels,
    models,
    monitor,
    plan,
    prove,
    records,
    replay,
    study,
    train,
    verifiers,
    verify,
)

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="vapo",
    help="Decide which updates of imperfectly verified rollouts may enter a learner, with a certificate.",
    epilog="Every command takes --json. Exit codes: 0 done, 1 a negative verdict, 2 bad input, "
    "3 a defect of vapo, 130 interrupted.",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_START, _STEPS, _DEPLOY, _AUDIT, _PAPER = (
    "Start here",
    "The same flow in steps, for labels that come later",
    "Deploy a certificate",
    "Check",
    "Compare with the paper",
)
_COMMANDS: tuple[tuple[ModuleType, str], ...] = (
    (demo, _START),
    (records, _START),
    (plan, _START),
    (certify, _START),
    (train, _START),
    (models, _START),
    (design, _STEPS),
    (freeze, _STEPS),
    (join, _STEPS),
    (labels, _STEPS),
    (gate, _DEPLOY),
    (monitor, _DEPLOY),
    (verify, _AUDIT),
    (replay, _AUDIT),
    (prove, _AUDIT),
    (keys, _AUDIT),
    (verifiers, _AUDIT),
    (doctor, _AUDIT),
    (study, _PAPER),
)


def _add(room: ModuleType, panel: str) -> None:
    name = room.__name__.rpartition(".")[2]
    command: Callable[..., Any] = getattr(room, name)
    # A blank line between examples keeps each on a line of its own.
    # Typer keeps line breaks of a docstring, so its paragraphs are made one line each.
    text = "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))
    examples = "\n\n".join(["[bold]Examples[/bold]", *(f"[cyan]{line}[/cyan]" for line in room.EXAMPLES)])
    app.command(name, help=text, epilog=examples, rich_help_panel=panel)(command)


for _room, _panel in _COMMANDS:
    _add(_room, _panel)

# Bad usage has no public name of its own that all releases of typer share.
_USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__base__ is Exception)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("audit-first-vapo")
        except PackageNotFoundError:
            number = "(not installed)"
        sys.stdout.write(f"vapo {number}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Args:
        arguments: What stands behind `vapo` on the command line.

    Returns:
        The exit code: 0 done, 1 a negative verdict, 2 bad input, 3 a defect of ours, 130 interrupted.

    Example:
        >>> run(["--version"]) # doctest: +ELLIPSIS
        vapo ...
        0
    """
    from vapo.errors import IntegrityError, VapoError

    json_output = "--json" in arguments
    try:
        code = app(list(arguments) or ["--help"], prog_name="vapo", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = shared.INTERRUPTED
    except VapoError as error:
        shared.emit_error(type(error).__name__, str(error), json_output=json_output)
        return shared.NEGATIVE if isinstance(error, IntegrityError) else shared.BAD_INPUT
    except _USAGE as error:
        shared.emit_error("UsageError", _usage(error), json_output=json_output)
        return shared.BAD_INPUT
    except OSError as error:
        shared.emit_error("FileError", str(error), json_output=json_output)
        return shared.BAD_INPUT
    except Exception as error:
        shared.say(traceback.format_exc())
        message = f"this is a defect of vapo; please report the lines above ({error!r})"
        shared.emit_error("Defect", message, json_output=json_output)
        return shared.DEFECT
    if code == shared.INTERRUPTED:
        message = "interrupted; what was recorded is kept, and the same command goes on from there"
        shared.emit_error("Interrupted", message, json_output=json_output)
    return int(code)


def _usage(error: Any) -> str:
    """What is wrong with a command line, and where to read how it is written."""
    said = str(error.format_message()).replace("\n", " ").rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{said}; see {'vapo' if context is None else context.command_path} --help"


def main() -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))
