"""The options by which several commands take the terms of a run."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from vapo.cli._files import existing, is_run, open_run, to_be_run
from vapo.cli._shared import refuse

if TYPE_CHECKING:
    from vapo.policy import Family
    from vapo.protocol import Protocol
    from vapo.records import Records

__all__ = ["Claim", "Signs", "Terms", "complete_score", "takes_terms"]

# Spelled out here and not taken from the library, which would have to be loaded to show a line of help.
Claim = Literal["frozen", "sequential", "hoeffding"]
Reach = Literal["stage", "population"]
Signs = Literal["plain", "specific", "both"]
OnMissing = Literal["error", "harmful"]

_ASKED = "Terms: what is asked"
_SPLIT = "Terms: candidates and their score"
_MEANS = "Terms: labels and secondary calls"
_FILES = "Terms: files and waivers"

_BESIDE = ("design", "family")
"""Files that options and the protocol file name beside the terms."""

SCORES = (
    ("mean", "mean of all signals and verdicts"),
    ("signal:", "one signal or verifier alone: signal:NAME"),
    ("rank-mean", "mean of their ranks on the design split"),
    ("dawid-skene", "latent-class posterior, fitted without labels"),
    ("weighted:", "weighted mean: weighted:A=1,B=2"),
)


def complete_score(incomplete: str) -> Iterable[tuple[str, str]]:
    """What may stand behind --score."""
    return [score for score in SCORES if score[0].startswith(incomplete)]


def _option(panel: str, text: str, *names: str, default: str = "", **more: Any) -> Any:
    """An option whose default shows, though None stands for it: the protocol file may say something else."""
    shown = f"{text} [dim]\\[default: {default}][/dim]" if default else text
    return typer.Option(*names, help=shown, rich_help_panel=panel, **more)


def _stages(text: str | None) -> str | None:
    if text is not None and text != "open" and not (text.isdigit() and int(text)):
        msg = f"'{text}' is neither a count from 1 on nor 'open'."
        raise typer.BadParameter(msg)
    return text


@dataclass(frozen=True, slots=True)
class Terms:
    """What the options of a command line declare."""

    flags: dict[str, Any]
    """Fields of the protocol that were given."""
    protocol_file: Path | None
    written: dict[str, Any]
    """Fields of the protocol that the file has."""
    design: Path | None
    family_file: Path | None

    @property
    def given(self) -> list[str]:
        """The options that were used."""
        return [*self.flags, *(["protocol"] if self.protocol_file else [])]

    def protocol(self) -> Protocol:
        """The protocol of file and options together; an option wins."""
        from vapo.protocol import Protocol
        from vapo.scores import score_needs_fit

        _refuse_unknown(self.written, [*Protocol.__dataclass_fields__, *_BESIDE], str(self.protocol_file))
        terms = self.written | self.flags
        if "rho" not in terms:
            refuse("--rho, or rho in the file of --protocol", "neither")
        if self.design is not None and self.family_file is None and "design_fraction" in self.flags:
            refuse("either --design or --design-fraction", "both")
        if self.family_file is not None:
            for name in ("design_fraction", "signs"):
                if name in self.flags:
                    refuse(f"no --{name.replace('_', '-')} beside --family, which leaves nothing to build")
        protocol = Protocol.from_dict(terms, where=str(self.protocol_file or "terms"))
        score_needs_fit(protocol.score)
        return protocol

    def family(self, protocol: Protocol, records: Records) -> Family | None:
        """The user's own candidates, if there are any."""
        from vapo.certification.candidates import default_budget
        from vapo.policy import Family

        if self.family_file is None:
            return None
        path = existing(self.family_file, "candidates in JSON")
        return Family.read(path, budget=default_budget(protocol, records))

    def refuse_other(self, out: Path, protocol: Protocol) -> None:
        """Make sure that a run that is already there was declared with these terms."""
        from vapo.certification.stage import declared_protocol

        if not is_run(to_be_run(out)):
            return
        declared, asked = declared_protocol(open_run(out)).as_dict(), protocol.as_dict()
        for name, value in declared.items():
            if asked[name] != value:
                refuse(
                    f"the terms that this run was declared with ({name} = {_plain(value)}), or another --out",
                    f"{name} = {_plain(asked[name])}",
                    where=str(out),
                )


def _plain(value: Any) -> str:
    return "unset" if value is None else str(value)


def _refuse_unknown(terms: dict[str, Any], known: Iterable[str], where: str) -> None:
    fields = list(known)
    for name in terms:
        if name not in fields:
            close = difflib.get_close_matches(name, fields, 1)
            hint = f" (did you mean '{close[0]}'?)" if close else f"; they are {', '.join(fields)}"
            refuse("only fields of a protocol", f"'{name}'{hint}", where=where)


def _collect(
    rho: Annotated[
        float | None, _option(_ASKED, "Largest share of harmful records among the admitted. Must be given.")
    ] = None,
    c_min: Annotated[
        float | None, _option(_ASKED, "Least share of records to admit.", default="0.25")
    ] = None,
    b_max: Annotated[
        float | None, _option(_ASKED, "Largest share of records that cost a secondary call.", default="0.2")
    ] = None,
    delta: Annotated[float | None, _option(_ASKED, "Chance of a false certificate.", default="0.05")] = None,
    claim: Annotated[
        Claim | None,
        _option(
            _ASKED, "The claim that decides; all three are reported.", default="frozen", show_choices=True
        ),
    ] = None,
    reach: Annotated[
        Reach | None,
        _option(
            _ASKED,
            "'population' declares that groups are drawn as deployment will draw them.",
            default="stage",
        ),
    ] = None,
    stages: Annotated[
        str | None,
        _option(
            _ASKED,
            "Over how many stages delta is spread, or 'open'.",
            default="1",
            metavar="N|open",
            callback=_stages,
        ),
    ] = None,
    renew_after: Annotated[
        int | None,
        _option(
            _ASKED,
            "Windows that the gate may decide on under one certificate; beyond them it is closed.",
            default="any number",
        ),
    ] = None,
    score: Annotated[
        str | None,
        _option(
            _SPLIT,
            "Trust score: mean, signal:NAME, rank-mean, dawid-skene or weighted:A=1,B=2.",
            default="mean",
            autocompletion=complete_score,
        ),
    ] = None,
    signs: Annotated[
        Signs | None, _option(_SPLIT, "Thresholds for each sign of the verdict.", default="plain")
    ] = None,
    design_fraction: Annotated[
        float | None, _option(_SPLIT, "Share of groups on which candidates are built.", default="0.3")
    ] = None,
    design: Annotated[
        Path | None, _option(_SPLIT, "Build candidates on this file instead; then all RECORDS certify.")
    ] = None,
    family: Annotated[
        Path | None,
        _option(_SPLIT, "JSON file with your own candidates; then all RECORDS certify.", "--family"),
    ] = None,
    seed: Annotated[
        int | None, _option(_SPLIT, "Key of the hashes that split and draw.", default="0")
    ] = None,
    budget: Annotated[
        int | None, _option(_MEANS, "Secondary calls a window.", default="b_max x window size")
    ] = None,
    secondary: Annotated[
        list[str] | None,
        _option(
            _MEANS, "Source id whose secondary answers count; repeatable.", default="all", metavar="SOURCE"
        ),
    ] = None,
    missing_label: Annotated[
        OnMissing | None,
        _option(_MEANS, "What a missing label of an admitted record means.", default="error"),
    ] = None,
    group_cap: Annotated[
        int | None,
        _option(_MEANS, "Most admitted records of one group, for claim sequential.", default="from design"),
    ] = None,
    max_labels: Annotated[int | None, _option(_MEANS, "Stop before asking for more labels.")] = None,
    max_secondary_calls: Annotated[
        int | None, _option(_MEANS, "Stop before asking for more secondary calls.")
    ] = None,
    protocol: Annotated[
        Path | None, _option(_FILES, "TOML file with any of these terms, and the sources.", "--protocol")
    ] = None,
    waive: Annotated[
        list[str] | None,
        _option(
            _FILES, "Field that the scan for answers in disguise lets through; repeatable.", metavar="FIELD"
        ),
    ] = None,
    oracle_word: Annotated[
        list[str] | None,
        _option(
            _FILES, "Further word that this scan looks for in names of fields; repeatable.", metavar="WORD"
        ),
    ] = None,
    waive_redundancy: Annotated[
        bool | None,
        _option(
            _FILES,
            "Let signals pass of which one is a function of another.",
            "--waive-redundancy",
            show_default=False,
        ),
    ] = None,
) -> Terms:
    given = dict(locals())
    file = given.pop("protocol")
    written, beside = _read_terms(file)
    named = [given.pop(name) or beside[name] for name in _BESIDE]
    given["waivers"], given["oracle_words"] = given.pop("waive"), given.pop("oracle_word")
    flags = {name: value for name, value in given.items() if value not in (None, [])}
    if str(flags.get("stages", "")).isdigit():
        flags["stages"] = int(flags["stages"])
    return Terms(flags, file, written, *named)


def _read_terms(file: Path | None) -> tuple[dict[str, Any], dict[str, Path | None]]:
    """What a protocol file declares, and the files that it names; they are sought from where it lies."""
    from vapo.protocol import read_toml

    named: dict[str, Path | None] = dict.fromkeys(_BESIDE)
    if file is None:
        return {}, named
    terms = read_toml(existing(file, "terms in TOML"))
    for name in named:
        if name in terms and not isinstance(terms[name], str):
            refuse("the name of a file", repr(terms[name]), where=f"{file}: field '{name}'")
        if name in terms:
            named[name] = file.parent / terms.pop(name)
    return terms, named


def takes_terms(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `Terms`, in place of its argument `terms`."""
    own = inspect.signature(function, eval_str=True).parameters
    options = inspect.signature(_collect, eval_str=True).parameters
    hints = {
        **get_type_hints(function, include_extras=True),
        **get_type_hints(_collect, include_extras=True),
    }

    def wrapped(**arguments: Any) -> None:
        terms = _collect(**{name: arguments.pop(name) for name in options})
        function(**arguments, terms=terms)

    mine = [parameter for name, parameter in own.items() if name != "terms"]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*mine, *options.values())]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {name: hint for name, hint in hints.items() if name not in ("terms", "return")}
    wrapped.__name__, wrapped.__doc__ = function.__name__, function.__doc__
    return wrapped
