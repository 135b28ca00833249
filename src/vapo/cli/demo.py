"""`vapo demo`: the main job end to end, on rollouts made for the purpose, and then with a learner behind it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vapo.cli import _shared as shared
from vapo.cli._demo_learner import FOLDER, PICTURE

if TYPE_CHECKING:
    from collections.abc import Callable

    from vapo.certification.certificate import Certificate
    from vapo.gate import Decisions
    from vapo.simulate import Simulated

EXAMPLES = ("vapo demo", "vapo demo --out demo --json")

Out = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Keep files and runs here; by default they are deleted.")
]
Seed = Annotated[int, typer.Option(help="Another seed, another world.")]
Questions = Annotated[int, typer.Option(help="Questions to certify on, four completions each.", min=60)]
Updates = Annotated[int, typer.Option(help="Updates of the learners at the end; 0 for no learners.", min=0)]

RHO, COMPLETIONS = 0.04, 4
CLAIMS = ("frozen", "sequential", "hoeffding")
_MEANING = {
    "frozen": "labels independent across questions",
    "sequential": "nothing; may be read at any time",
    "hoeffding": "nothing; size fixed beforehand",
}
_FILES = ("rollouts.parquet", "labels.csv", "later.parquet", "drifted.parquet")
_RUNS = ("run-frozen", "run-sequential", "run-hoeffding", "run-drifted")


def demo(
    out: Out = None,
    seed: Seed = 7,
    questions: Questions = 1500,
    updates: Updates = 50,
    json_output: shared.Json = False,
) -> None:
    """Watch the whole flow on made-up rollouts, then with learners.

    Plans, certifies under all three claims, deploys the gate, watches it, verifies and replays the run, and
    says at each step what happens and with which command you would do it. Then trains a small language model
    on a verifier with a fault that it can learn to use, once on everything and once through the gate.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="vapo-demo-") as folder:
            facts = _story(Path(folder), seed, questions, updates)
        if facts["learners"]:
            facts["learners"]["picture"] = ""  # gone with the rest
        shared.say("\nTo keep files, runs and a picture, and try the commands on them: vapo demo --out demo")
    else:
        _make_room(out)
        facts = _story(out, seed, questions, updates)
        picture = (facts["learners"] or {}).get("picture")
        seen = f" How the learners did: {picture}." if picture else ""
        shared.say(f"\nEverything is in {out}.{seen} Try: vapo verify {out}/run-frozen")
    shared.emit(facts, json_output=json_output)


def _make_room(out: Path) -> None:
    """Use a new folder, or one that an earlier demo left; never a folder with somebody's own files."""
    if out.exists() and not out.is_dir():
        shared.refuse("a folder", "a file", where=str(out))
    out.mkdir(parents=True, exist_ok=True)
    others = sorted({path.name for path in out.iterdir()} - {*_FILES, *_RUNS, FOLDER, PICTURE})
    if others:
        shared.refuse(
            "a new or empty folder, or one of an earlier demo", f"'{others[0]}' in it", where=str(out)
        )
    for name in (*_RUNS, FOLDER):
        shutil.rmtree(out / name, ignore_errors=True)


def _story(folder: Path, seed: int, questions: int, updates: int) -> dict[str, Any]:
    from vapo.simulate import simulate

    world = simulate(questions, COMPLETIONS, seed=seed)
    later = simulate(questions, COMPLETIONS, seed=seed + 1, prefix="later-")
    drifted = simulate(questions, COMPLETIONS, seed=seed + 2, prefix="drifted-", traps=0.7)
    facts = {"rho": RHO, "rollouts": _rollouts(folder, world, later, drifted), "plan": _plan()}
    facts["certificates"] = {claim: _certify(folder, claim) for claim in CLAIMS}
    shutil.copytree(folder / "run-frozen", folder / "run-drifted")
    facts["gate"] = _deploy(folder, later)
    facts["drift"] = _drift(folder, drifted)
    facts["audit"] = _audit(folder)
    _conclude(facts)
    facts["learners"] = _learn(folder, seed, updates) if updates else None
    return facts


def _heading(text: str) -> None:
    shared.say()
    shared.console().rule(f"[bold]{text}[/bold]", align="left", style="dim")


def _command(text: str) -> None:
    shared.console().print(f"[cyan]$ {text}[/cyan]", soft_wrap=True)


def _rollouts(folder: Path, world: Simulated, later: Simulated, drifted: Simulated) -> dict[str, Any]:
    import pyarrow.parquet as pq

    from vapo._internal.files import write_table

    _heading("1  Rollouts whose rewards cannot be trusted")
    for name, table in zip(_FILES, (world.records, None, later.records, drifted.records), strict=True):
        if table is not None:
            pq.write_table(table, folder / name)
    write_table(world.labels, folder / "labels.csv")
    y, z = world.records["y"].to_numpy(), world.labels["z"].to_numpy()
    wrong = float((y != z).mean())
    shared.say(
        f"{len(z):,} rollouts: {len(z) // COMPLETIONS:,} questions, {COMPLETIONS} completions each. The "
        "primary verifier is "
        f"wrong on {wrong:.1%} of them, in clusters: some questions mislead it, and often the judge "
        "beside it too.\n"
        f"A learner that applies every update applies those too. We allow {RHO:.0%} harmful ones among "
        "what we apply, and "
        "want to know, not to hope, that it is no more."
    )
    return {"records": len(z), "groups": len(z) // COMPLETIONS, "harm_of_applying_all": wrong}


def _plan() -> dict[str, Any]:
    import dataclasses

    from vapo.certification.plan import plan

    _heading("2  What will it cost? Asked before a label is bought")
    _command(
        f"vapo plan --rho {RHO:g} --risk 0.02 --coverage 0.75 --candidates 40 --chains 2 --group-size 4 "
        "--icc 0.3"
    )
    costs = plan(
        rho=RHO,
        delta=0.05,
        risk=0.02,
        coverage=0.75,
        c_min=0.25,
        b_max=0.2,
        candidates=40,
        chains=2,
        group_size=COMPLETIONS,
        icc=0.3,
    )
    rows = []
    for claim in CLAIMS:
        needs = [costs.row(claim, power).records for power in (0.5, 0.9)]
        rows.append((claim, *("never" if need is None else f"{need:,}" for need in needs), _MEANING[claim]))
    shared.say(
        "If some gate admits 75% of the rollouts with 2% harm, certifying it takes about this many records:"
    )
    shared.show_table(("claim", "even odds", "90% chance", "what it assumes"), rows)
    return {"rows": [dataclasses.asdict(row) for row in costs.rows]}


def _certify(folder: Path, claim: str) -> dict[str, Any]:
    from vapo.certification.flow import certify

    if claim == CLAIMS[0]:
        _heading("3  Freeze every action, then join the labels, then certify")
        shared.say(
            "Candidate gates are built on a design split, without labels. All of them decide on all "
            "other records. The trace "
            "of that is frozen. Only then do labels come in. We do it once for each claim."
        )
    _command(
        f"vapo certify rollouts.parquet --labels labels.csv --rho {RHO:g} --claim {claim} --out run-{claim}"
    )
    with shared.progress() as progress:
        certificate = certify(
            folder / "rollouts.parquet",
            folder / "labels.csv",
            out=folder / f"run-{claim}",
            progress=progress,
            rho=RHO,
            claim=claim,
        )
    shared.say(f"{certificate}\n{_bill(certificate)}")
    return dict(certificate.body)


def _bill(certificate: Certificate) -> str:
    body = certificate.body
    if body["claim"] != "frozen":
        return ""
    labels, calls = (f"{body['bill'][name]:,}" for name in ("labels", "secondary_calls"))
    return f"The bill, for all candidates together: {labels} labels and {calls} secondary calls.\n"


def _look(decisions: Decisions, world: Simulated) -> dict[str, Any]:
    """What the gate did, beside the truth, which nobody has outside of a made-up world."""
    z = dict(zip(world.labels["id"].to_pylist(), world.labels["z"].to_pylist(), strict=True))
    rows = decisions.table.select(["id", "sign"]).to_pylist()
    harmful = sum(z[row["id"]] * row["sign"] < 0 for row in rows)
    return {
        "records": len(rows),
        "admitted": decisions.admitted,
        "secondary_calls": decisions.appealed,
        "harmful": harmful,
        "risk": harmful / decisions.admitted if decisions.admitted else None,
        "closed": decisions.closed,
    }


def _gate_and_watch(
    folder: Path, run: str, records: str, world: Simulated
) -> tuple[Decisions, dict[str, Any]]:
    from vapo.gate import Gate, join_spotchecks, watch
    from vapo.ledger import Ledger
    from vapo.records import Labels

    _command(f"vapo gate {run} {records} --out decisions.csv")
    with Gate.open(folder / run) as gate:
        decisions = gate.decide(folder / records)
    facts = _look(decisions, world)
    if decisions.closed:
        shared.say(f"The gate is closed ({decisions.closed}): nothing enters the learner.")
        return decisions, facts | {"alarm": None}
    z = dict(zip(world.labels["id"].to_pylist(), world.labels["z"].to_pylist(), strict=True))
    shared.say(
        f"{facts['admitted']:,} of {facts['records']:,} updates enter the learner "
        f"({facts['admitted'] / facts['records']:.0%}), at {facts['secondary_calls']:,} secondary calls."
    )
    with Ledger.write(folder / run) as ledger:
        wanted = watch(ledger).wanted
        state = join_spotchecks(ledger, Labels.from_mapping({name: z[name] for name in wanted}))
    facts |= {"checked": state.labelled, "harmful_of_checked": state.harmful, "alarm": state.monitor.closed}
    return decisions, facts


def _deploy(folder: Path, later: Simulated) -> dict[str, Any]:
    _heading("4  The gate at work on the rollouts of later updates")
    decisions, facts = _gate_and_watch(folder, "run-frozen", "later.parquet", later)
    for reason, count in decisions.counts().items():
        shared.say(f"{count:9,}  {reason.replace('_', ' ')}")
    if facts["alarm"] is not None:
        _command("vapo monitor run-frozen checked.csv")
        shared.say(
            f"Of {facts['checked']:,} admitted updates, drawn by a keyed hash and labelled, "
            f"{facts['harmful_of_checked']:,} are "
            f"harmful: {'ALARM, the gate closes' if facts['alarm'] else 'no alarm'}."
        )
    return facts


def _drift(folder: Path, drifted: Simulated) -> dict[str, Any]:
    _heading("5  And if the world changes?")
    shared.say(
        "Suppose that most questions now mislead the verifiers. The certificate was not about such rollouts:"
    )
    _, facts = _gate_and_watch(folder, "run-drifted", "drifted.parquet", drifted)
    if facts["alarm"] is not None:
        _command("vapo monitor run-drifted checked.csv")
        said = (
            "ALARM. The gate closes, and a new stage with fresh labels is needed."
            if facts["alarm"]
            else "no alarm yet."
        )
        shared.say(f"Of {facts['checked']:,} drawn, {facts['harmful_of_checked']:,} are harmful: {said}")
    return facts


def _audit(folder: Path) -> dict[str, Any]:
    from vapo.gate import replay_run
    from vapo.ledger import verify_run

    _heading("6  What an outsider can check")
    run = folder / "run-frozen"
    _command("vapo verify run-frozen")
    report = verify_run(run)
    said = "every byte is as it was written" if report.ok else report.findings[0].what
    shared.say(f"{report.events} events; {said}.")
    _command("vapo replay run-frozen")
    with shared.progress() as progress:
        redone = replay_run(run, progress=progress)
    shared.say(
        f"Done again from the observations, {redone.events} events and the gate's decisions come out "
        "the same."
    )
    shared.say("Now on copies that somebody has been at:")
    forgeries = {
        "rho raised tenfold afterwards": _forge(run, _raise_rho),
        "one bit of the joined labels flipped": _forge(run, _touch_labels),
        "certificate deleted": _forge(run, lambda copy: (copy / "certificate.json").unlink()),
    }
    for name, found in forgeries.items():
        shared.say(f"  {name}:\n    {found}")
    return {"verified": report.ok, "replayed_events": redone.events, "forgeries_found": forgeries}


def _forge(run: Path, deed: Callable[[Path], object]) -> str:
    """What verify says first about a copy of a run after a deed."""
    from vapo.ledger import verify_run

    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(run, Path(place) / "forged"))
        deed(copy)
        findings = verify_run(copy).findings
    if not findings:
        return ""
    found = findings[0]
    return found.what if found.what.startswith(found.where) else f"{_short(found.where)}: {found.what}"


def _short(name: str) -> str:
    return name if len(name) < 30 else f"{name[:18]}….{name.rpartition('.')[2]}"


def _raise_rho(copy: Path) -> None:
    log = copy / "log.jsonl"
    # Written the canonical way, as a careful forger would.
    log.write_bytes(log.read_bytes().replace(b'"rho":0.04', b'"rho":0.4', 1))


def _touch_labels(copy: Path) -> None:
    from vapo.ledger import EventKind, Ledger

    joined = Ledger.read(copy).last(EventKind.LABELS)
    assert joined is not None
    segment = copy / "segments" / f"{joined.body['labels']['sha256']}.parquet"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)


def _conclude(facts: dict[str, Any]) -> None:
    _heading("In short")
    rows = [("apply everything", "100%", f"{facts['rollouts']['harm_of_applying_all']:.1%}", "")]
    for claim, body in facts["certificates"].items():
        counts, certified = body["counts"], body["status"] == "certified"
        kept = f"{counts['admitted'] / counts['n']:.0%}" if certified else "0%"
        harm = f"{counts['harmful'] / max(counts['admitted'], 1):.1%}" if certified else "none"
        promise = f"at most {body['bounds'][claim]['risk_upper']:.1%}" if certified else "refused"
        rows.append((f"gate by {claim}", kept, harm, promise))
    gate = facts["gate"]
    if gate["risk"] is not None:
        kept = f"{gate['admitted'] / gate['records']:.0%}"
        rows.append(("frozen, later on", kept, f"{gate['risk']:.1%}", ""))
    columns = ("", "updates kept", "harmful of them", "promised, with 95%")
    shared.show_table(columns, rows)


def _learn(folder: Path, seed: int, updates: int) -> dict[str, Any] | None:
    from importlib.util import find_spec

    from vapo.cli._demo_learner import NEEDS, learners

    _heading("7  And a learner behind it")
    missing = [extra for library, extra in NEEDS.items() if find_spec(library) is None]
    if missing:
        shared.say(f"Something is missing to train one: pip install 'audit-first-vapo[{','.join(missing)}]'.")
        return None
    shared.say(
        "A character-level transformer learns to add. Its primary verifier is math-verify, which accepts 12+34 where "
        "the answer is 46, and the model sometimes copies the question. The secondary, a strict numeric check, may be "
        "asked about 12 of the 64 completions of an update. Each arm sees the same questions."
    )
    _command("vapo train examples/nature.toml --out gated")
    facts = learners(folder, seed, updates)
    runs = [name for name in facts if isinstance(facts[name], dict)]
    sound = all(facts[name]["verified"] for name in runs)
    shared.say(f"Every run verifies: {'yes' if sound else 'NO'}.")
    return facts
