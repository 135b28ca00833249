"""`vapo records`: records out of what trainers write down."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from vapo.train.dumps import Imported, RewardScale

EXAMPLES = (
    "vapo records import --from trl out/completions --reward accuracy_reward --out records.parquet",
    "vapo records import --from verl rollouts --range -1,1 --out records.parquet",
    "vapo records import --from jsonl dump.jsonl --prompt question --reward score --threshold 0.8 --out records.csv",
)

What = Annotated[Literal["import"], typer.Argument(metavar="import", help="Make records of a rollout dump.")]
Dump = Annotated[
    Path, typer.Argument(metavar="IN", help="The dump: a file, or a folder with one file an update.")
]
From = Annotated[
    Literal["trl", "verl", "openrlhf", "jsonl"], typer.Option("--from", help="What wrote the dump.")
]
Out = Annotated[Path, typer.Option(metavar="RECORDS", help="The records: .parquet, .jsonl, .csv or .arrow.")]
Reward = Annotated[str | None, typer.Option(help="The field with the primary verifier's reward.")]
Ends = Annotated[str, typer.Option("--range", metavar="LOW,HIGH", help="The ends between which rewards lie.")]
Threshold = Annotated[
    float | None,
    typer.Option(help="From here on a reward says that the answer is right [default: the middle]."),
]
Verdict = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FIELD", help="Another verifier's reward, as its verdict; several times if needed."
    ),
]
Signal = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=FIELD", help="A field in [0, 1] that speaks for the answer; several times if needed."
    ),
]
Prompt = Annotated[str | None, typer.Option(metavar="FIELD", help="The field with the prompt.")]
Completion = Annotated[str | None, typer.Option(metavar="FIELD", help="The field with the completion.")]
Step = Annotated[str | None, typer.Option(metavar="FIELD", help="The field with the learner's update.")]
Advantage = Annotated[str | None, typer.Option(metavar="FIELD", help="The field with the advantage.")]
Finished = Annotated[
    str | None,
    typer.Option(metavar="FIELD", help="The field that says whether the completion ended by itself."),
]
Reading = Annotated[
    Literal["number", "bare", "text"],
    typer.Option(help="How final answers are read, for self-consistency: see docs/tasks.md."),
]


def records(
    what: What,
    path: Dump,
    source: From,
    out: Out,
    reward: Reward = None,
    ends: Ends = "0,1",
    threshold: Threshold = None,
    verdict: Verdict = None,
    signal: Signal = None,
    prompt: Prompt = None,
    completion: Completion = None,
    step: Step = None,
    advantage: Advantage = None,
    finished: Finished = None,
    reading: Reading = "number",
    json_output: shared.Json = False,
) -> None:
    """Make records of the rollouts that a trainer wrote down.

    Knows the dumps of TRL, verl and OpenRLHF, and plain JSON lines. The prompt becomes the group, the learner's
    update the window, the advantage the proposal; self-consistency becomes a signal, and the margin of graded
    rewards another. Gold answers and all fields that are not asked for stay behind, and are listed.
    """
    from vapo.train.dumps import LAYOUTS, read_dump

    del what
    if not path.exists():
        shared.refuse("a dump", "nothing of that name", where=str(path))
    given = {
        "prompt": prompt,
        "completion": completion,
        "step": step,
        "advantage": advantage,
        "finished": finished,
    }
    layout = dataclasses.replace(LAYOUTS[source], **{name: value for name, value in given.items() if value})
    output = files.Output(out, inputs=(path,) if path.is_file() else ())
    found = read_dump(
        path,
        layout,
        reward=reward or "",
        scale=_scale(ends, threshold),
        verdicts=_named("--verdict", verdict),
        signals=_named("--signal", signal),
        reading=reading,
    )
    output.write(found.table)
    _tell(found, out, json_output=json_output)


def _scale(ends: str, threshold: float | None) -> RewardScale:
    from vapo.train.dumps import RewardScale

    low, comma, high = ends.partition(",")
    try:
        return RewardScale(float(low), float(high if comma else "none"), threshold)
    except ValueError:
        shared.refuse("two numbers, LOW,HIGH, with the threshold between them", repr(ends), where="--range")


def _named(option: str, given: list[str] | None) -> dict[str, str]:
    """Fields by the names that records give them."""
    found: dict[str, str] = {}
    for text in given or ():
        name, equals, field = text.partition("=")
        if not (name and equals and field) or name in found:
            shared.refuse("NAME=FIELD, each name once", repr(text), where=option)
        found[name] = field
    return found


def _tell(found: Imported, out: Path, *, json_output: bool) -> None:
    table = found.table
    y = table.column("y").to_pylist()
    counts = {"right": y.count(1), "wrong": y.count(-1), "no_verdict": y.count(0)}
    groups = len(set(table.column("group").to_pylist()))
    windows = len(set(table.column("window").to_pylist())) if "window" in table.column_names else 1
    kept = [name for name in table.column_names if name.startswith(("signal.", "verdict."))]
    shared.say(
        f"{table.num_rows:,} records of {groups:,} prompts in {windows:,} updates in {out}: by '{found.reward}' "
        f"{counts['right']:,} are right, {counts['wrong']:,} wrong, {counts['no_verdict']:,} without a verdict."
    )
    shared.say(f"To trust them by: {', '.join(kept)}.")
    proposed = f"the field '{found.advantage}'" if found.advantage else "the rewards of each prompt's group"
    shared.say(f"Proposals (delta_r) come from {proposed}.")
    if found.against:
        shared.say(
            f"{found.against:,} advantages push against their verdict: a certificate of these records is about "
            "the verdict, and the learner would go the other way. A trainer behind the gate takes the advantage's sign."
        )
    if found.left_out:
        shared.say(f"Left out: {', '.join(found.left_out)}.")
    answer = {
        "records": table.num_rows,
        "groups": groups,
        "windows": windows,
        "verdicts": counts,
        "trust": kept,
        "reward": found.reward,
        "graded": found.graded,
        "advantage": found.advantage or None,
        "against_verdict": found.against,
        "left_out": list(found.left_out),
        "files": len(found.files),
        "out": str(out),
    }
    shared.emit(answer, json_output=json_output)
