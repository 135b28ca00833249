"""`vapo replay`: do the work again and compare."""

from __future__ import annotations

import dataclasses

from vapo.cli import _files as files
from vapo.cli import _shared as shared

EXAMPLES = ("vapo replay run", "vapo replay run --json")


def replay(run: shared.RunFolder, json_output: shared.Json = False) -> None:
    """Do a run's work again and compare.

    Recomputes score, candidates, actions, counts, certificate and the gate's decisions from the recorded
    observations. Exits with 1 at the first event that comes out differently.
    """
    from vapo.gate import replay_run
    from vapo.ledger.limited import LimitedReader

    files.open_run(run)
    # Who replays a run may have it from anywhere, so nothing in it is trusted.
    with shared.progress() as progress, LimitedReader() as tables:
        done = replay_run(run, progress=progress, tables=tables)
    stages = "1 stage" if done.stages == 1 else f"{done.stages} stages"
    batches = "1 batch" if done.batches == 1 else f"{done.batches} batches"
    shared.say(f"The same, byte for byte: {stages} ({done.events} events) and {batches} of the gate.")
    shared.emit({"ok": True, **dataclasses.asdict(done)}, json_output=json_output)
