"""Files and run folders that commands are given: looked at before anything is done with them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from vapo.cli._shared import refuse, say

if TYPE_CHECKING:
    import pyarrow as pa

    from vapo.ledger import EventKind, Ledger
    from vapo.ledger.keys import VerifierKey
    from vapo.records import Records

__all__ = [
    "Output",
    "demand",
    "existing",
    "is_run",
    "load_witnesses",
    "open_run",
    "say_kept",
    "to_be_run",
    "what_next",
    "write_out",
]

LOG = "log.jsonl"


def existing(path: Path, what: str) -> Path:
    """Make sure that a file is there, is a file, and is not a run folder taken for one."""
    where = str(path)
    if path.is_dir():
        refuse(f"a file with {what}", "a run folder" if is_run(path) else "a folder", where=where)
    if not path.is_file():
        refuse(f"a file with {what}", f"nothing of that name{_nearest(path)}", where=where)
    return path


def _nearest(path: Path) -> str:
    import difflib

    if not path.parent.is_dir():
        return f", nor a folder {path.parent}"
    names = [neighbour.name for neighbour in path.parent.iterdir() if neighbour.is_file()]
    close = difflib.get_close_matches(path.name, names, 1)
    return f" (did you mean {path.with_name(close[0])}?)" if close else ""


def is_run(path: Path) -> bool:
    """Whether there is a run with at least one event at this place."""
    return (path / LOG).is_file() and (path / LOG).stat().st_size > 0


def open_run(run: Path) -> Ledger:
    """Open a run for reading, or say what is there instead of one."""
    from vapo.ledger import Ledger

    expected, where = "a run folder, as vapo certify or vapo design makes it", str(run)
    if not run.exists():
        refuse(expected, "nothing of that name", where=where)
    if not run.is_dir():
        refuse(expected, "a file", where=where)
    if not (run / LOG).is_file():
        refuse(expected, f"a folder without {LOG}", where=where)
    ledger = Ledger.read(run)
    if not ledger.events:
        refuse(expected, f"an empty {LOG}: delete the folder and begin again", where=where)
    return ledger


def say_kept(records: Records) -> None:
    """Report the columns that nothing reads."""
    names = records.extra.column_names
    if names:
        say(f"Kept in the run and read by nothing: {', '.join(names)}.")


def to_be_run(out: Path) -> Path:
    """Make sure that a run can be made, or taken up, at this place."""
    if out.exists() and not out.is_dir():
        refuse("a run folder, new or begun", "a file", where=str(out))
    return out


def what_next(ledger: Ledger) -> str:
    """The command that takes a run one step further."""
    from vapo.ledger import EventKind

    run = ledger.path
    if ledger.deployed:
        return f"vapo gate {run} RECORDS --out DECISIONS"
    last = ledger.events[-1].kind
    if last in (EventKind.REFUSED, EventKind.ALARM):
        return _after_no(ledger, refused=last is EventKind.REFUSED)
    return {
        EventKind.PROTOCOL: f"the vapo design or vapo certify that began {run}, once more",
        EventKind.STAGE: f"the vapo certify that opened this stage of {run}, once more",
        EventKind.FROZEN: f"vapo join {run} LABELS",
        EventKind.LABELS: f"vapo join {run} LABELS, once more",
        EventKind.ISSUED: f"vapo gate {run} RECORDS --out DECISIONS",
        EventKind.CLOSED: f"the vapo certify that renews {run}, once more",
    }.get(last, f"vapo freeze {run} RECORDS")


def _after_no(ledger: Ledger, *, refused: bool) -> str:
    """How to come to a certificate after a refusal or an alarm."""
    from vapo.certification.stage import declared_protocol

    run, protocol = ledger.path, declared_protocol(ledger)
    if refused and protocol.claim == "sequential":
        return f"vapo certify MORE --labels LABELS --out {run} --extend"
    if protocol.stages == "open" or ledger.stage < protocol.stages:
        return f"vapo certify FRESH --labels LABELS --out {run} --renew WHY"
    return "a new run on fresh records, for the stages that this one declared are spent"


def load_witnesses(path: Path | None) -> tuple[VerifierKey, ...]:
    """The public keys of witnesses, from a file of public keys, if there is one."""
    from vapo.ledger.keys import load_verifiers

    if path is None:
        return ()
    return tuple(key.as_witness for key in load_verifiers(existing(path, "public keys of witnesses")))


def write_out(path: Path, data: bytes, *, run: Path | None = None) -> None:
    """Write a small file, whole or not at all, outside of the run that it is about."""
    if run is not None and path.resolve().is_relative_to(run.resolve()):
        refuse(f"a place outside {run}, where every file is accounted for", "one in it", where=str(path))
    temporary = path.with_name(f".writing-{path.name}")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except OSError as error:
        refuse("a place that can be written", error.strerror or str(error), where=str(path))
    finally:
        temporary.unlink(missing_ok=True)


def demand(ledger: Ledger, missing: str, *kinds: EventKind, anywhere: bool = False) -> None:
    """Make sure that something has happened in a run's current stage (or in any), or say what comes first."""
    from vapo.errors import ProtocolError

    start = 0 if anywhere else ledger.stage_start()
    if not any(event.kind in kinds for event in ledger.events[start:]):
        last = ledger.events[-1].kind
        msg = f"{ledger.path}: {missing} (the last event is '{last}'); next: {what_next(ledger)}"
        raise ProtocolError(msg)


class Output:
    """A table to be written: its place is tried before the work, and it appears whole or not at all."""

    def __init__(self, path: Path, *, run: Path | None = None, inputs: tuple[Path | None, ...] = ()) -> None:
        """Look at the name, the folder and the permission; nothing stays behind."""
        import pyarrow as pa

        from vapo._internal.files import table_format

        self.path = path
        where = str(path)
        if path.is_dir():
            refuse("the name of a file to write", "a folder", where=where)
        table_format(path)
        if run is not None and path.resolve().is_relative_to(run.resolve()):
            refuse(f"a place outside {run}, where every file is accounted for", "one in it", where=where)
        if any(given is not None and path.exists() and path.samefile(given) for given in inputs):
            refuse("another file than the one that is read", "the same", where=where)
        if not path.parent.is_dir():
            refuse("a folder that exists, to write into", str(path.parent), where=where)
        self.write(pa.table({"id": pa.array([], pa.string())}), keep=False)

    def write(self, table: pa.Table, *, keep: bool = True) -> None:
        """Write the table, complete or not at all."""
        from vapo._internal.files import write_table

        temporary = self.path.with_name(f".writing-{self.path.name}")
        try:
            write_table(table, temporary)
            if keep:
                temporary.replace(self.path)
        except OSError as error:
            refuse("a place that can be written", error.strerror or str(error), where=str(self.path))
        finally:
            temporary.unlink(missing_ok=True)
