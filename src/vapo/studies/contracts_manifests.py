"""Contract tables about what other studies did: read off the manifests that stand in the same folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vapo._internal.keyed import canonical_json, sha256_hex
from vapo.studies.contracts_paper import CONFIG, EXPERIMENTS, PROTOCOL, Experiment
from vapo.studies.estimates import exact, said
from vapo.studies.framework import Cell, Context, Paper, Row, Table, Verdict, Where, matching

__all__ = ["LEARNERS", "config", "experiments", "from_manifest", "learner", "metadata", "protocol"]

LEARNERS = ("canonical", "matched", "connectivity", "noise")
"""Studies that train, the first that stands in the folder speaking for all."""

_AWAY = "not run in this folder"


def _behind(study: str, field: str) -> Where:
    """No rows of this study: the number stands in another study's manifest."""
    return {"manifest": study, "field": field}


def learner(context: Context) -> tuple[str, Mapping[str, Any]] | None:
    """The first study that trains and stands finished in the folder, with its manifest.

    Args:
        context: With the manifests.
    """
    return next(((name, context.manifests[name]) for name in LEARNERS if name in context.manifests), None)


def from_manifest(
    row: str,
    quantity: str,
    study: str,
    field: str,
    value: str | int | None,
    paper: str | None = None,
    why: str = "",
) -> Cell:
    """A cell from another study's manifest, or the word that it is not there.

    Args:
        row: The table's line.
        quantity: The table's column.
        study: Whose manifest.
        field: What of it.
        value: What stands there.
        paper: What the paper prints.
        why: What the comparison rests on, where there is more to say than where it was read.
    """
    printed = None if paper is None else Paper(paper)
    where = _behind(study, field)
    if value is None:
        verdict: Verdict | None = None if paper is None else "not comparable"
        missing = f"the study {study} does not stand in this folder, or does not say"
        return Cell(row, quantity, said(_AWAY), where, printed, verdict, missing)
    how = f"`{field}` of {study}/manifest.json"
    shown = said(value, how) if isinstance(value, str) else exact(value, how=how)
    return Cell(row, quantity, shown, where, printed, why=why or f"read off {study}/manifest.json")


def _seeds(manifest: Mapping[str, Any]) -> str:
    return ", ".join(map(str, manifest["seeds"]))


def _argument(manifest: Mapping[str, Any] | None, *names: str) -> str | None:
    """What the tasks of a study were given under these names."""
    given = {} if manifest is None else manifest.get("arguments", {})
    if not all(name in given for name in names):
        return None
    return "; ".join(", ".join(map(str, given[name])) for name in names)


def protocol(context: Context) -> Table:
    """The paper's control families, and the studies that run ours.

    Args:
        context: With the manifests.
    """
    cells = []
    for method, (study, printed) in PROTOCOL.items():
        found = context.manifests.get(study)
        for quantity, (field, names) in {
            "model, task": ("arguments", ("model", "task")),
            "seeds": ("seeds", ()),
            "budget": ("arguments", ("budget",)),
        }.items():
            value = _argument(found, *names) if names else None if found is None else _seeds(found)
            cells.append(from_manifest(method, quantity, study, field, value, printed[quantity]))
        for quantity, field in (("scale", "scale"), ("rows kept", "row_count")):
            cells.append(
                from_manifest(method, quantity, study, field, None if found is None else found[field])
            )
    return Table(
        "future-protocol",
        "tab:future-protocol",
        "Control families and the studies that run them",
        cells,
        "Read off the manifests of studies in the same folder. What the paper asks of every family besides: thresholds "
        "frozen on calibration and no test label before the end are checked on every audit run, see the promises; that "
        "all arms have the same opportunity is a matter of each learner study.",
    )


def config(rows: Sequence[Row], context: Context) -> Table:
    """Configuration of the learners.

    Args:
        rows: Of the audit runs, with the package's constants.
        context: With the manifests.
    """
    study, manifest = learner(context) or (LEARNERS[0], None)
    cells = []
    for field, (paper, argument) in CONFIG.items():
        if argument == "bootstrap resamples":
            where = {"kind": "constant", "constant": argument}
            (drawn,) = matching(rows, where)
            words = f"paired 95 % hierarchical bootstrap over seed and question, {drawn['value']:,} resamples"
            why = "what the package does where it is not told otherwise"
            cells.append(Cell(field, "specification", said(words, "`value`"), where, Paper(paper), why=why))
            continue
        seeds = None if manifest is None else _seeds(manifest)
        value = seeds if argument == "seed" else _argument(manifest, argument)
        source = "seeds" if argument == "seed" else "arguments"
        cells.append(from_manifest(field, "specification", study, source, value, paper))
    printed = {"w_min": 0.10, "epsilon_min": 0.02, "epsilon_max": 0.20, "beta_min": 0.01, "beta_max": 0.50}
    for name, number in printed.items():
        where = {"kind": "constant", "constant": name}
        (constant,) = matching(rows, where)
        ours = exact(constant["value"], how="`value`")
        why = "the actuator's default"
        cells.append(Cell(f"Actuator {name}", "specification", ours, where, Paper(number), why=why))
    return Table(
        "additional-config",
        "tab:additional-config",
        "Configuration of learners",
        cells,
        "From the arguments that a learner study's tasks were given, as its manifest lists them, and from the package.",
    )


def experiments(context: Context) -> Table:
    """The paper's evidence ledger, and what stands here.

    Args:
        context: With the manifests.
    """
    return Table(
        "current-experiments",
        "tab:current-experiments",
        "The paper's evidence ledger, and what stands in this folder",
        [_experiment(each, context) for each in EXPERIMENTS],
        "Agrees: run there and run here, whatever came out; what came out is in each study's own report.",
    )


def _experiment(line: Experiment, context: Context) -> Cell:
    name, status, study, remark = line
    where = _behind(study or "none", "verdicts")
    if not study:
        ours = said("not an experiment")
        return Cell(name, "status", ours, where, Paper(status), "not comparable", "nothing to run")
    # This study is being finished while its own table is made.
    manifest = context.manifests.get(study)
    here = study == "contracts" or manifest is not None
    ran = status.startswith(("completed", "limited", "ready", "source", "evidence"))
    verdict: Verdict = "not comparable" if not here else "agrees" if ran else "differs"
    ours = said(f"completed ({context.scale if manifest is None else manifest['scale']})" if here else _AWAY)
    counts = {} if manifest is None else manifest["verdicts"]
    text = ", ".join(f"{count} {word}" for word, count in counts.items())
    why = f"study {study}" + (f": {text}" if text else "") + (f"; {remark}" if here and remark else "")
    return Cell(name, "status", ours, where, Paper(status), verdict, why)


def metadata(context: Context) -> Table:
    """Run metadata of every study in the folder.

    Args:
        context: With the manifests.
    """
    cells = []
    for name, manifest in context.manifests.items():
        files = {file: data for file, data in manifest["files"].items() if file in set(manifest["rows"])}
        retained = "per-seed rows retained" if len(files) == manifest["tasks"] else "rows missing"
        facts: dict[str, tuple[str, str | int, str | None]] = {
            "scale": ("scale", manifest["scale"], None),
            "seeds": ("seeds", _seeds(manifest), None),
            "tasks": ("tasks", manifest["tasks"], None),
            "rows": ("row_count", manifest["row_count"], None),
            "per-seed result artifact": ("rows", retained, "per-seed rows retained"),
            "raw output digest": ("files", sha256_hex(canonical_json(files))[:16], None),
            "code": ("code", " ".join(code[:12] for code in manifest["code"]), None),
        }
        cells += [
            from_manifest(name, quantity, name, field, value, paper)
            for quantity, (field, value, paper) in facts.items()
        ]
    return Table(
        "run-metadata",
        "",
        "Run metadata of every study in this folder",
        cells,
        "The paper's two ledgers are named update-56 of 768 items and update-64 of 1,319; theirs are other runs, so "
        "that only the form can be compared. Raw output: the SHA-256 of the names and digests of all files of rows; "
        "each manifest holds the SHA-256 of every file. Risk is over all proposals in every study here.",
    )
