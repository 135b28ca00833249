"""`vapo train`: a learner trained through the gate, or a grid of learners side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vapo.cli import _learner_pictures as pictures
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vapo.train.config import TrainConfig
    from vapo.train.runner_grid import Job, Outcome
    from vapo.train.runner_table import Summary

EXAMPLES = (
    "vapo train examples/embedded.toml --out run",
    "vapo train examples/embedded.toml arm=static seed=17 learner.learning_rate=3e-5 --out plain",
    "vapo train examples/learner_grid.toml --workers 2 --out grid --json",
)

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="Configuration: .toml, .yaml or .yml.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY.SUB=VALUE]...", help="Fields to change, read as in TOML.")
]
Out = Annotated[
    Path, typer.Option("--out", metavar="FOLDER", help="Folder of the run, or one folder a run of a grid.")
]
Arms = Annotated[
    str | None,
    typer.Option("--arms", help="Train these arms side by side (a,b,... or all), not CONFIG's one."),
]
Seeds = Annotated[str | None, typer.Option("--seeds", help="Seeds of a grid, separated by commas.")]
Conditions = Annotated[
    str | None, typer.Option("--conditions", help="Only these of the grid's conditions, separated by commas.")
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes of a grid, one run each.")]


def train(
    config: Config,
    out: Out,
    overrides: Overrides = None,
    arms: Arms = None,
    seeds: Seeds = None,
    conditions: Conditions = None,
    workers: Workers = 1,
    json_output: shared.Json = False,
) -> None:
    """Train a language model on what the gate lets through.

    Opens a stage with a fresh calibration buffer for every regime of rollouts, trains nothing where the certificate is
    refused, and keeps a ledger of what every update used and did. Killed at any moment, the same command goes on and
    ends with the same bytes. Check the folder with vapo verify.

    With --arms, --seeds, or a [grid] table in CONFIG, trains every arm, seed and condition and compares them.
    """
    grid = _grid(config, overrides or [], arms, seeds, conditions)
    if grid.single:
        _one(grid.base, out, json_output=json_output)
    else:
        _many(grid, out, workers, json_output=json_output)


@dataclass(frozen=True, slots=True)
class _Grid:
    base: TrainConfig
    arms: list[str]
    seeds: list[int]
    conditions: dict[str, list[str]]
    single: bool


def _grid(
    file: Path, overrides: list[str], arms: str | None, seeds: str | None, conditions: str | None
) -> _Grid:
    from vapo.train.arms import ARMS
    from vapo.train.config import TrainConfig
    from vapo.train.config_files import apply_override, read_tables

    tables = read_tables(file)
    given = tables.pop("grid", None)
    for text in overrides:
        apply_override(tables, text)
    single = given is None and arms is None and seeds is None
    if given is not None and not _is_grid(given):
        expected = (
            "a table [grid] with a list of arms, and of seeds if wanted, and a list of overrides a condition"
        )
        shared.refuse(expected, str(given)[:80], where=str(file))
    fixed = (
        [] if single else [text for text in overrides if text.partition("=")[0].strip() in ("arm", "seed")]
    )
    if fixed:
        shared.refuse("the arms and seeds of a grid under --arms and --seeds", fixed[0])
    grid: dict[str, Any] = given or {}
    named = {"arm": "static"} if not single else {}
    base = TrainConfig.from_dict({**tables, **named}, where=str(file))
    chosen = grid.get("arms", [tables.get("arm", "rc-vapo")]) if arms is None else arms.split(",")
    known = {"all": list(ARMS)}.get(",".join(chosen), chosen)
    numbers = grid.get("seeds", [base.seed]) if seeds is None else _whole(seeds)
    some = grid.get("conditions", {"all": []})
    if conditions is not None:
        wanted = conditions.split(",")
        if not set(wanted) <= set(some):
            shared.refuse(f"conditions among {', '.join(some)}", conditions, where="option '--conditions'")
        some = {name: some[name] for name in wanted}
    return _Grid(base, known, numbers, some, single)


def _is_grid(given: Any) -> bool:
    """Whether a table is one of arms, seeds and conditions, each of its kind."""
    if not isinstance(given, dict) or not {"arms"} <= set(given) <= {"arms", "seeds", "conditions"}:
        return False
    conditions = given.get("conditions", {})
    lists = [given["arms"], *(conditions.values() if isinstance(conditions, dict) else [None])]
    seeds = given.get("seeds", [])
    texts = all(isinstance(some, list) and all(isinstance(text, str) for text in some) for some in lists)
    return texts and isinstance(seeds, list) and all(type(seed) is int for seed in seeds)


def _whole(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        shared.refuse("whole numbers separated by commas", repr(text), where="option '--seeds'")
    return [int(word) for word in words]


def _one(config: TrainConfig, out: Path, *, json_output: bool) -> None:
    from vapo.train.runner import train as run

    with shared.progress() as progress:
        result = run(config, out, progress=progress)
    test, totals = result["test"], result["totals"]
    shared.say(
        f"{result['arm']}, seed {result['seed']}: {test['accuracy']:.1%} of {test['questions']} test questions right, "
        f"{test['unparsable']} unparsable, {test['truncated']} cut off."
    )
    if totals["certified"] or totals["refused"]:
        shared.say(
            f"{totals['certified']} certificates issued, {totals['refused']} refused; they cost "
            f"{totals['certificate_labels']:,} labels and {totals['buffer_tokens']:,} tokens of calibration rollouts."
        )
    shared.say(
        f"{totals['steps']} of {result['updates']} updates moved the learner. Check: vapo verify {out}"
    )
    shared.emit(result, json_output=json_output)


def _many(grid: _Grid, out: Path, workers: int, *, json_output: bool) -> None:
    import json

    from vapo.train.runner_grid import plan_jobs, run_jobs
    from vapo.train.runner_table import summarise

    jobs = plan_jobs(grid.base, out, arms=grid.arms, seeds=grid.seeds, conditions=grid.conditions)

    def tell(outcome: Outcome) -> None:
        if outcome.error:
            shared.say(f"FAILED {outcome.job.name}: {outcome.error}")

    with shared.progress() as progress:
        outcomes = run_jobs(jobs, workers=workers, progress=progress, tell=tell)
    summary = summarise(jobs)
    (out / "summary.json").write_text(json.dumps(summary.as_dict(), indent=1) + "\n", encoding="utf-8")
    show_arms(summary)
    failed = {outcome.job.name: outcome.error for outcome in outcomes if outcome.error}
    drawn = draw(jobs, out)
    shared.say(
        f"One row a run and one an arm: {out / 'summary.json'}. Pictures: {', '.join(drawn) or 'none'}"
    )
    shared.emit({**summary.as_dict(), "failed": failed, "pictures": drawn}, json_output=json_output)
    if failed:
        raise typer.Exit(shared.NEGATIVE)


def draw(jobs: Sequence[Job], out: Path) -> list[str]:
    """Where every arm ends, and how it came there as long as a person can tell the lines apart."""
    import json

    from vapo.train.arms import ARMS
    from vapo.train.runner_files import RESULT

    ends: dict[str, dict[str, list[float]]] = {}
    curves: dict[str, dict[str, list[pictures.Curve]]] = {}
    for job in sorted(jobs, key=lambda job: list(ARMS).index(job.config.arm)):
        file = job.folder / RESULT
        if file.is_file():
            condition, arm = job.condition, job.config.arm
            accuracy = json.loads(file.read_bytes())["test"]["accuracy"]
            ends.setdefault(condition, {}).setdefault(arm, []).append(accuracy)
            curves.setdefault(condition, {}).setdefault(arm, []).append(pictures.curve(job.folder))
    if not ends:
        return []
    found = [pictures.draw_ends(ends, out / "accuracy.png")]
    most = max(len(arms) for arms in curves.values())
    looked = all(len(one) > 1 for arms in curves.values() for some in arms.values() for one in some)
    if found[0] and looked and most <= pictures.MOST_CURVES:
        found.append(pictures.draw_curves(curves, out / "curves.png"))
    return [name for name in found if name]


def show_arms(summary: Summary) -> None:
    """Show the arms of a grid, one table a condition: test accuracy with its paired 95 % interval, what it cost."""
    columns = (
        "arm",
        "right",
        "over static",
        "gap",
        "harm + / -",
        "kept",
        "calls",
        "labels",
        "tokens",
        "stages",
    )
    for condition in dict.fromkeys(row["condition"] for row in summary.arms):
        rows = [_cells(row) for row in summary.arms if row["condition"] == condition]
        shared.show_table(columns, rows, title=condition)


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    apart = row.get("versus_control")
    over = "" if not apart else f"{apart['estimate']:+.3f} [{apart['low']:+.3f}, {apart['high']:+.3f}]"
    stages = (row["certified"] or 0) + (row["refused"] or 0)
    harm = [_number(row[f"admitted_risk_{sign}"], ".3f") or "none" for sign in ("positive", "negative")]
    return (
        row["arm"],
        f"{row['accuracy']:.3f}",
        over,
        _number(row.get("gap_closed"), ".0%"),
        " / ".join(harm),
        _number(row["coverage"], ".2f"),
        _number(row["secondary_calls"], ",.0f"),
        _number(row["labels"], ",.0f"),
        _number(row.get("relative_tokens"), ".2f"),
        f"{row['certified']:g} of {stages:g}" if stages else "",
    )


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
