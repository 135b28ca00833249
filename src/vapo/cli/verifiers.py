"""`vapo verifiers`: what there is to verify with, and what a file of verdicts says about its verifiers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vapo.cli import _files as files
from vapo.cli import _shared as shared

EXAMPLES = (
    "vapo verifiers audit rollouts.parquet --labels labels.csv",
    "vapo verifiers audit verdicts.jsonl --primary judge --rho 0.05",
    "vapo verifiers list",
)

What = Annotated[
    Literal["audit", "list"],
    typer.Argument(metavar="audit|list", help="Audit a file of verdicts, or list the verifiers there are."),
]
VerdictFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="Verdicts: .parquet, .jsonl, .csv or .arrow, as records or as recorded verdicts."
    ),
]
LabelsFile = Annotated[
    Path | None, typer.Option("--labels", help="Labels (id, z), where they are not in FILE itself.")
]
Primary = Annotated[
    str | None, typer.Option(help="The verifier in use, by name; FILE's own primary by default.")
]
Rho = Annotated[float, typer.Option(min=0, max=1, help="Share of harm that a gate would have to keep to.")]
Level = Annotated[float, typer.Option(min=0.5, max=0.9999, help="Confidence of every interval.")]


def verifiers(
    what: What,
    path: VerdictFile = None,
    labels: LabelsFile = None,
    primary: Primary = None,
    rho: Rho = 0.08,
    level: Level = 0.95,
    json_output: shared.Json = False,
) -> None:
    """Audit verifiers by their verdicts, or list them.

    An audit says how often each verifier errs and by which sign, how much of it they have in common, whether their
    scores mean what they say, what they cost, and what follows: which to put first, which to appeal to, whether a
    gate has anything to select on. Without labels it estimates (Dawid and Skene).
    """
    if what == "list":
        if path is not None:
            shared.refuse("no FILE with 'list'", str(path))
        shared.emit(_list(), json_output=json_output)
        return
    if path is None:
        shared.refuse("a FILE of verdicts to audit", "none")
    from vapo.verifiers.audit import audit
    from vapo.verifiers.audit_file import read_verdicts

    named = None if labels is None else files.existing(labels, "labels")
    found = read_verdicts(files.existing(path, "verdicts"), named)
    answer = audit(found if primary is None else found.with_primary(primary), rho=rho, level=level)
    _tell(answer)
    shared.emit(answer, json_output=json_output)


def _plain(share: float | None) -> str:
    return "none" if share is None else f"{share:.1%}"


def _percent(rate: dict[str, Any]) -> str:
    if rate["rate"] is None:
        return "none"
    return f"{rate['rate']:.1%} ({rate['low']:.1%}-{rate['high']:.1%})"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _tell(found: dict[str, Any]) -> None:
    shared.say(
        f"{found['items']:,} answers to {found['groups']:,} questions, {found['labelled']:,} of them labelled "
        f"({found['right']:,} right, {found['wrong']:,} wrong).\n"
    )
    if found["unused"]:
        shared.say(
            f"Columns that are no verdict, score, signal, cost or label: {', '.join(found['unused'])}.\n"
        )
    if found["labelled"]:
        _tell_rates(found)
    elif found["estimated"] is not None:
        rows = [
            [name, f"{verifier['judged']:,}", *(f"{value:.1%}" for value in verifier["estimated"].values())]
            for name, verifier in found["verifiers"].items()
        ]
        shared.show_table(
            ("verifier", "judged", "error", "wrong accepted", "right rejected"), rows, title="Estimated"
        )
    _tell_costs(found)
    for entry in found["advice"]:
        shared.say(f"- {entry['says']}")


def _tell_rates(found: dict[str, Any]) -> None:
    rows = []
    for name, verifier in found["verifiers"].items():
        rates = [verifier[kind] for kind in ("error", "false_positive", "false_negative")]
        rows.append([name, f"{verifier['judged']:,}", *map(_percent, rates), _number(verifier["icc"])])
    columns = ("verifier", "judged", "error", "wrong accepted", "right rejected", "ICC")
    shared.show_table(
        columns, rows, title=f"Error rates, {found['level']:.0%} intervals that allow for groups"
    )
    shared.say("ICC: how far answers to one question are judged wrong together, 0 for not at all.\n")
    rows = [
        [
            f"{pair['first']} + {pair['second']}",
            _plain(pair["joint_failures"]["rate"]),
            *(_number(pair[f"correlation_{side}"]["value"]) for side in ("right", "wrong")),
            _plain(pair["wrong_when_confirmed"]["rate"]),
            pair["distinct"],
        ]
        for pair in found["pairs"]
    ]
    if rows:
        columns = ("pair", "both err", "r if right", "r if wrong", "wrong if they agree", "in effect")
        shared.show_table(columns, rows, title="Errors in common")
        shared.say(
            "r: correlation of both verifiers' errors among right and among wrong answers. In effect: 'alike' if "
            "measurably more than half of the errors of the one that errs less are the other's too (beyond chance), "
            "'distinct' if fewer, 'copies' if they never differ.\n"
        )
    _tell_scores(found)


def _tell_scores(found: dict[str, Any]) -> None:
    rows = [
        [name, f"{graded['items']:,}", _number(graded["brier"]), _number(graded["auroc"]["value"])]
        for name, graded in ((name, verifier["calibration"]) for name, verifier in found["verifiers"].items())
        if graded is not None
    ]
    if rows:
        shared.show_table(("verifier", "scored", "Brier", "AUROC"), rows, title="Scores")
        shared.say(
            "Brier: mean squared distance from the truth, 0 at best, 0.25 for a constant one half. AUROC: how often a "
            "right answer has a higher score than a wrong one, 0.5 for chance.\n"
        )
    rows = [
        [
            name,
            f"{part['low']:.1f}-{part['high']:.1f}",
            f"{part['items']:,}",
            *map(_plain, (part["said"], part["right"])),
        ]
        for name, verifier in found["verifiers"].items()
        for part in (verifier["calibration"] or {"bins": []})["bins"]
    ]
    if rows:
        columns = ("verifier", "score", "answers", "mean score", "right")
        shared.show_table(columns, rows, title="Reliability of scores")


def _tell_costs(found: dict[str, Any]) -> None:
    rows = [
        [
            name,
            *(
                f"{verifier['cost'][kind]['total']:,.0f}" if kind in verifier["cost"] else ""
                for kind in _COSTS
            ),
        ]
        for name, verifier in found["verifiers"].items()
        if verifier["cost"] is not None
    ]
    if rows:
        shared.show_table(("verifier", "calls", "tokens in", "tokens out", "seconds"), rows, title="Cost")


_COSTS = ("calls", "tokens_in", "tokens_out", "seconds")


def _list() -> dict[str, Any]:
    """Every verifier class of the package, by module, and the templates of judges."""
    from vapo.verifiers.templates import TEMPLATES

    found = list(_classes())
    rows = [[entry["name"], entry["module"], entry["about"]] for entry in found]
    shared.show_table(("verifier", "module", ""), rows)
    forms = [
        {
            "name": form.name,
            "digest": form.digest,
            "reference": form.needs_reference,
            "tokens": form.most_tokens,
        }
        for form in TEMPLATES.values()
    ]
    columns = ("template of a judge", "needs a reference", "tokens", "digest")
    rows = [
        [str(f["name"]), "yes" if f["reference"] else "no", str(f["tokens"]), str(f["digest"])[:16]]
        for f in forms
    ]
    shared.show_table(columns, rows)
    return {"verifiers": found, "templates": forms}


def _classes() -> Iterator[dict[str, str]]:
    """Public classes with a source and a method `verify`, which is what makes a verifier."""
    import importlib
    import inspect
    import pkgutil

    import vapo.verifiers as room

    for module in sorted(info.name for info in pkgutil.iter_modules(room.__path__)):
        name = f"{room.__name__}.{module}"
        part = importlib.import_module(name)
        for public in getattr(part, "__all__", ()):
            thing = getattr(part, public)
            ours = (
                inspect.isclass(thing)
                and thing.__module__ == name
                and not getattr(thing, "_is_protocol", False)
            )
            if ours and hasattr(thing, "verify") and hasattr(thing, "source"):
                about = (inspect.getdoc(thing) or "").partition("\n")[0]
                yield {"name": public, "module": name, "about": about}
