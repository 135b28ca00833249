"""Write docs/cli.md by running every command on the rollouts of `vapo demo`.

    python docs/make_cli.py

What stands in the page is what the commands said. Long lists and digests are shortened, marked by an
ellipsis.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from vapo.cli import _COMMANDS, app, run

PAGE = Path(__file__).with_name("cli.md")
COMMANDS = {room.__name__.rpartition(".")[2]: panel for room, panel in _COMMANDS}

DEMO, RHO = "demo", "--rho 0.04"
SESSION: dict[str, tuple[str, ...]] = {
    "demo": ("vapo demo --out demo --json",),
    "records": ("vapo records import --from verl rollouts --out imported.parquet --json",),
    "models": ("vapo models list --json",),
    "plan": (f"vapo plan demo/rollouts.parquet {RHO} --risk 0.02 --labels 500 --json",),
    "certify": (
        f"vapo certify demo/rollouts.parquet --labels demo/labels.csv {RHO} --c-min 0.25 --b-max 0.2 "
        "--delta 0.05 --claim frozen --out run --json",
    ),
    "design": (f"vapo design demo/rollouts.parquet {RHO} --out steps --json",),
    "freeze": ("vapo freeze steps demo/rollouts.parquet --needs to-label.csv --json",),
    "join": ("vapo join steps demo/labels.csv --json",),
    "gate": ("vapo gate run demo/later.parquet --out decisions.csv --json",),
    "monitor": ("vapo monitor run --wanted to-check.csv --json",),
    "labels": (
        "vapo labels key join.key --json",
        "vapo labels seal demo/labels.csv --to join.key.pub --out labels.sealed --json",
    ),
    "verify": ("vapo verify run --save run.note --json", "vapo verify broken --json"),
    "prove": (
        "vapo prove run --event 0 --out first.proof --json",
        "vapo prove --check first.proof --checkpoint run.note --json",
    ),
    "replay": ("vapo replay run --json",),
    "keys": (
        "vapo keys new signer.pem --name example.org/team --json",
        "vapo keys new witness.pem --name witness.example.net/w1 --json",
        "vapo keys sign run --key signer.pem --out signed.note --json",
        "vapo keys cosign signed.note --key witness.pem --log-key signer.pem.pub --first --out cosigned.note --json",
    ),
    "train": (
        "vapo train examples/embedded.toml updates=50 --out learner --json",
        "vapo train examples/learner_grid.toml updates=5 regime.updates=5 --arms static,rc-vapo --seeds 13 "
        "--conditions exploitable --out grid --json",
    ),
    "verifiers": (
        "vapo verifiers audit demo/rollouts.parquet --labels demo/labels.csv --json",
        "vapo verifiers list --json",
    ),
    "doctor": ("vapo doctor --folder . --json",),
    "study": (
        "vapo study contracts --out studies --json",
        "vapo study show learner-readiness/split-manifest/status --out studies --json",
    ),
}
SHOW = {"freeze": "to-label.csv", "gate": "decisions.csv", "monitor": "to-check.csv"}
# The body of a certificate is shown once, under certify.
FOLDED = {
    "demo": {"certificates", "plan"},
    "join": {"bounds", "nearest", "sources", "candidates_segment"},
    "prove": {"event"},
    "verifiers": {"verifiers", "pairs", "gate"},
    "train": {"rows"},
}
MISTAKE = "vapo gate begun demo/later.parquet --out decisions.csv --json"

HEAD = """# The command line

<!-- Made by docs/make_cli.py: change that file and run it again. -->

Start with `vapo demo`. What it leaves in `demo/` is used in every example below, so all of them can be tried.

{commands}

Every command takes `--json`: one object on stdout and nothing else there. Prose and progress go to stderr.
Long lists and digests are shortened on this page, marked by `…`; the commands print them whole.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a negative verdict: a failed verification, an alarm, a refused certificate under `--strict` |
| 2 | bad input or usage; put right, the same command goes on from there |
| 3 | a defect of vapo itself |
| 130 | interrupted; what was recorded is kept |

With `--json` an error is an object too:

{mistake}

Tab completion of commands, options and values: `vapo --install-completion`, then open a new terminal.
"""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """A new folder in which commands can be run and leave things."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def ask(line: str) -> tuple[int, str, str]:
    """Run one command line and return its exit code and what it said."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(shlex.split(line)[1:])
    return code, out.getvalue(), err.getvalue()


def shorten(value: Any) -> Any:
    """The same data with long lists and digests cut, each cut marked."""
    if isinstance(value, dict):
        return {name: shorten(inner) for name, inner in value.items()}
    if isinstance(value, list):
        kept = [shorten(inner) for inner in (value if len(value) <= 3 else value[:2])]
        return kept if len(value) <= 3 else [*kept, f"… {len(value) - 2} more"]
    if isinstance(value, str):
        return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1…", value)
    return round(value, 6) if isinstance(value, float) else value


def fold(command: str, data: dict[str, Any]) -> dict[str, Any]:
    """The same data with the parts left out that another example shows."""
    hidden = FOLDED.get(command, set())
    return {name: "…" if name in hidden else value for name, value in data.items()}


def example(command: str, line: str) -> str:
    """One command line with everything that it says."""
    code, out, err = ask(line)
    if code not in (0, 1, 2):
        msg = f"{line}: exit code {code}\n{err}"
        raise RuntimeError(msg)
    prose = "\n".join(row.rstrip() for row in err.strip().split("\n"))
    prose = re.sub(r"\n{3,}", "\n\n", re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1…", prose))
    data = json.dumps(fold(command, shorten(json.loads(out))), indent=2, ensure_ascii=False)
    # Short objects read better on one line.
    data = re.sub(r"([{\[])\s+([^{}\[\]]{1,88}?)\s+([}\]])", lambda m: _inline(*m.groups()), data)
    told = f"```console\n$ {line.removesuffix(' --json')}\n{prose}\n```\n\n" if prose else ""
    exits = f", exit code {code}" if code else ""
    return f"{told}With `--json`{exits}:\n\n```json\n{data}\n```\n"


def _inline(left: str, inside: str, right: str) -> str:
    return left + re.sub(r"\s*\n\s*", " ", inside) + right


def options(command: str) -> str:
    """A table of a command's arguments and options; terms have a table of their own."""
    tree: Any = typer.main.get_command(app)
    rows = []
    for parameter in tree.commands[command].params:
        if parameter.name in ("help", "json_output") or _is_term(parameter):
            continue
        rows.append(_row(parameter))
    return _table(rows)


def terms() -> str:
    """A table of the options by which a run's terms are declared."""
    tree: Any = typer.main.get_command(app)
    return _table([_row(parameter) for parameter in tree.commands["certify"].params if _is_term(parameter)])


def _is_term(parameter: Any) -> bool:
    return str(getattr(parameter, "rich_help_panel", None) or "").startswith("Terms")


def _row(parameter: Any) -> str:
    argument = parameter.param_type_name == "argument"
    name = parameter.metavar if argument else ", ".join(parameter.opts)
    text = re.sub(r"\[/?dim\]|\\", "", parameter.help or "")
    shown = parameter.default
    if (
        not argument
        and isinstance(shown, int | float | str)
        and not isinstance(shown, bool)
        and "[default" not in text
    ):
        text += f" [default: {shown}]"
    return f"| `{name}` | {text}{' **Required.**' if parameter.required else ''} |"


def _table(rows: list[str]) -> str:
    return "\n".join(["| | |", "|---|---|", *rows]) + "\n"


def section(command: str, examples: list[str]) -> str:
    """What the page says of one command."""
    room = next(room for room, _ in _COMMANDS if room.__name__.endswith(f".{command}"))
    text = inspect.getdoc(getattr(room, command)) or ""
    title = text.partition("\n")[0]
    body = " ".join(text.partition("\n")[2].split())
    more = "\n".join(f"$ {line}" for line in room.EXAMPLES)
    taken = "\nAnd the [terms](#terms).\n" if command in ("certify", "design") else ""
    parts = [f"## vapo {command}", f"{title} {body}".strip(), *examples]
    if command in SHOW:
        head = Path(SHOW[command]).read_text(encoding="utf-8").split("\n")[:4]
        rest = "\n".join([*head, "…"])
        parts.append(f"`{SHOW[command]}` begins:\n\n```csv\n{rest}\n```")
    parts += [options(command) + taken, f"More ways to call it:\n\n```console\n{more}\n```"]
    return "\n\n".join(part.strip("\n") for part in parts)


def page() -> str:
    """The whole page."""
    os.environ["COLUMNS"] = "100"
    os.environ["VAPO_CACHE"] = os.environ["HF_HUB_CACHE"] = (
        "models"  # none: what is here differs between machines
    )
    sections = []
    with session():
        for command in COMMANDS:
            if command == "records":
                _dump(Path("rollouts"))
            if command == "train":
                shutil.copytree(PAGE.parents[1] / "examples", "examples")
            if command == "verify":
                _break(Path("run"), Path("broken"))
            sections.append(section(command, [example(command, line) for line in SESSION[command]]))
        ask(f"vapo design demo/rollouts.parquet {RHO} --out begun")
        mistake = example("gate", MISTAKE)
    panels = dict.fromkeys(COMMANDS.values())
    names = "\n\n".join(f"{panel}:\n\n{_listed(panel)}" for panel in panels)
    tail = (
        "## Terms\n\nWhat a run declares beforehand, under `vapo certify` and `vapo design`. The file of "
        "`--protocol` may say all of it, under the same names with `_` for `-`; an "
        "option on the command line wins.\n\n" + terms()
    )
    head = HEAD.format(commands=names, mistake=mistake.strip())
    return "\n\n".join([head.strip(), *sections, tail.strip()]) + "\n"


def _listed(panel: str) -> str:
    names = [name for name, its in COMMANDS.items() if its == panel]
    return "\n".join(f"- [`vapo {name}`](#vapo-{name}): {_title(name)}" for name in names)


def _title(command: str) -> str:
    room = next(room for room, _ in _COMMANDS if room.__name__.endswith(f".{command}"))
    title = (inspect.getdoc(getattr(room, command)) or "").partition("\n")[0].rstrip(".")
    return title[0].lower() + title[1:]


def _dump(folder: Path) -> None:
    """A small rollout dump as verl writes one."""
    folder.mkdir()
    for step in (1, 2):
        rows = [
            {
                "input": f"{n // 4} + {step} = ",
                "output": str(n % 3),
                "gts": "1",
                "score": float(n % 3 == 1),
                "step": step,
            }
            for n in range(8)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{step}.jsonl").write_text(lines, encoding="utf-8")


def _break(run_folder: Path, copy: Path) -> None:
    """Copy a run and flip one bit of its labels."""
    from vapo.ledger import EventKind, Ledger

    shutil.copytree(run_folder, copy)
    joined = Ledger.read(copy).last(EventKind.LABELS)
    assert joined is not None
    segment = copy / "segments" / f"{joined.body['labels']['sha256']}.parquet"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
