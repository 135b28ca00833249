"""Following a recorded run: what it admitted in each update, and which labels its certificates cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vapo._internal.strict import strict_json
from vapo.errors import InputError
from vapo.train.arms_rules import Followed
from vapo.train.config import TrainConfig
from vapo.train.resources import read_chain

__all__ = ["Recorded", "read_recorded"]

_FREE = ("arm", "controls", "evaluation", "checkpoint_every", "sinks", "threads")
"""What may differ between a run and the one that it is matched to."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A finished run, as far as others are matched to it."""

    updates: dict[str, Followed]
    quota: dict[str, int]
    """Labels that its certificates cost, spread evenly over the windows of their regimes."""
    head: str
    """Digest of its ledger's last line, which names the run in the ledger of those that follow it."""


def read_recorded(folder: str | Path, config: TrainConfig) -> Recorded:
    """Read the run that a configuration follows.

    Args:
        folder: Its folder.
        config: The configuration of the run that is matched to it.

    Raises:
        InputError: It is not an rc-vapo run of the same configuration and seed, or is not finished.
    """
    path = Path(folder)
    entries = read_chain(path / "ledger.jsonl")
    declared = entries[0].body if entries else {}
    theirs = strict_json((path / "config.json").read_bytes(), str(path / "config.json"))
    _demand_same(theirs, config, str(path))
    done = {entry.body["update"]: entry.body for entry in entries if entry.kind == "update.done"}
    if declared.get("arm") != "rc-vapo" or len(done) < config.updates:
        expected = f"a recorded rc-vapo run of {config.updates} updates"
        raise InputError(expected, f"{declared.get('arm')!r} with {len(done)}", where=str(path))
    names = {update: f"u{update:06d}" for update in done}
    followed = {names[update]: _followed(body["decided"]) for update, body in done.items()}
    quota = dict.fromkeys(names.values(), 0)
    for entry in entries:
        if entry.kind == "regime.opened":
            labels = int(entry.body["stage"].get("bill", {}).get("labels", 0))
            first = int(entry.body["first_update"])
            count = min(config.regime.fresh, int(entry.body["updates"]))
            for place in range(count):
                quota[f"u{first + place:06d}"] = labels * (place + 1) // count - labels * place // count
    return Recorded(followed, quota, entries[-1].line_digest)


def _followed(decided: dict[str, Any]) -> Followed:
    return Followed(
        admitted=int(decided["admitted"]),
        accepted=int(decided["accepted"]),
        appealed=int(decided["appealed"]),
        magnitude=float(decided["magnitude"] or 0.0),
    )


def _demand_same(theirs: Any, config: TrainConfig, where: str) -> None:
    ours = config.as_dict()
    changed = [name for name in ours if name not in _FREE and theirs.get(name) != ours[name]]
    if changed:
        expected = f"a run with the same '{changed[0]}'"
        raise InputError(expected, "another", where=where)
