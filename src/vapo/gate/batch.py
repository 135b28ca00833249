"""What the gate does with one batch, when it decides and when its work is done again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo.certification.issue import decision_rows
from vapo.certification.monitor import is_checked
from vapo.certification.stage import Stage
from vapo.errors import InputError
from vapo.ledger import Ledger
from vapo.ledger.rows import row_tree
from vapo.policy import ABOVE_ALL, Actions, Answers, Policy, Reason, Requests, ask, settle
from vapo.records import Records

__all__ = [
    "NOTHING",
    "Decisions",
    "add_calls",
    "batch_facts",
    "check_key",
    "decide_batch",
    "foreign_source",
    "overdue",
    "request_batch",
    "window_calls",
    "window_keys",
]

NOTHING = Policy.plain(ABOVE_ALL, ABOVE_ALL)
"""The policy of a closed gate."""


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the gate did with one batch."""

    table: pa.Table
    """One row a record, in declared order: id, action, sign, reason, budget before and after, score, check."""
    closed: str
    """Why the gate is closed; empty while it is open."""
    batch: int
    """Number of the batch in this deployment; -1 where nothing was recorded because nothing may be."""

    @property
    def admitted(self) -> int:
        """How many records may enter the learner."""
        return int(pc.sum(pc.not_equal(self.table.column("sign"), 0)).as_py() or 0)

    @property
    def appealed(self) -> int:
        """How many secondary calls the batch took."""
        return int(pc.sum(pc.equal(self.table.column("action"), "appeal")).as_py() or 0)

    def counts(self) -> dict[str, int]:
        """Records by reason."""
        counted = pc.value_counts(self.table.column("reason")).to_pylist()
        return {row["values"]: row["counts"] for row in sorted(counted, key=lambda row: -row["counts"])}


def foreign_source(stage: Stage, batch: Records) -> str:
    """Why a batch is not what was certified, by the sources of what is read of it; empty if it is."""
    missing = [name for name in stage.score.inputs if name not in batch.trust_names]
    if missing:
        expected = f"a column 'signal.{missing[0]}' or 'verdict.{missing[0]}'"
        raise InputError(expected, "none", where=batch.where)
    for name in ["primary", *(batch.trust_column(name) for name in stage.score.inputs)]:
        ours, theirs = stage.sources.get(name), batch.sources.get(name)
        if ours is None or theirs is None or ours.digest != theirs.digest:
            return f"the source of '{name}' is not the one that was certified"
    return ""


def overdue(stage: Stage, known: Collection[str], keys: Sequence[str]) -> str:
    """Why a batch goes beyond the windows for which a certificate was declared good; empty if it does not.

    Args:
        stage: The certified stage.
        known: The windows that were decided on under its certificate.
        keys: Those of the batch.
    """
    most = stage.protocol.renew_after
    if most is None or len({*known, *keys}) <= most:
        return ""
    return f"the certificate was declared for {most} windows (renew_after), and this batch goes beyond them"


def batch_facts(ledger: Ledger, batch: Records, decisions: Decisions) -> dict[str, Any]:
    """What the log says about a decided batch."""
    return {
        "rows": ledger.put_table(decisions.table),
        "rows_tree": row_tree(decisions.table),
        "windows": ledger.put_table(window_calls(batch, decisions.table, decisions.batch)),
        "closed": decisions.closed,
        "admitted": decisions.admitted,
        "calls": decisions.appealed,
    }


def check_key(ledger: Ledger, opened: int) -> bytes:
    """The key that draws spot checks: fixed by everything up to the opening of the deployment."""
    line = ledger.events[opened].digest if opened < len(ledger.events) else ledger.head
    return bytes.fromhex(line)


def window_keys(batch: Records, number: int) -> list[str]:
    """The names of a batch's windows; a batch without windows is one of its own."""
    if not batch.windowed:
        return [f"batch {number}"]
    return [
        f"window {name}"
        for name in batch.window_names.take(pa.array(batch.window[batch.window_starts()])).to_pylist()
    ]


def window_calls(batch: Records, table: pa.Table, number: int) -> pa.Table:
    """How many secondary calls were made in each window of a batch."""
    appealed = np.asarray(pc.equal(table.column("action"), "appeal").to_numpy(zero_copy_only=False), np.int64)
    starts = batch.window_starts()
    return pa.table({"window": window_keys(batch, number), "calls": np.add.reduceat(appealed, starts)})


def add_calls(spent: dict[str, int], windows: pa.Table) -> None:
    """Count the calls of a batch's windows among those that were made before."""
    columns = (windows.column(name).to_pylist() for name in ("window", "calls"))
    for name, calls in zip(*columns, strict=True):
        spent[name] = spent.get(name, 0) + calls


def request_batch(stage: Stage, policy: Policy, batch: Records, carried: npt.NDArray[np.int64]) -> Requests:
    """What a policy asks the secondary for in one batch."""
    return ask(policy, batch, stage.score.apply(batch), spent=carried[None, :])


def decide_batch(
    stage: Stage,
    policy: Policy,
    batch: Records,
    answers: Answers | None,
    carried: npt.NDArray[np.int64],
    closed: str,
    key: bytes,
) -> pa.Table:
    """The rows that the gate writes for one batch."""
    score = stage.score.apply(batch)
    if closed:
        codes = np.full(len(batch), Reason.FAIL_CLOSED, np.uint8)
    else:
        actions: Actions = settle(ask(policy, batch, score, spent=carried[None, :]), batch, answers)
        codes = actions.codes[0]
    table = decision_rows(policy, batch, codes, score, carried)
    rate = stage.protocol.monitor_rate
    named = zip(table.column("id").to_pylist(), table.column("sign").to_pylist(), strict=True)
    drawn = [sign != 0 and is_checked(key, name, rate) for name, sign in named]
    return table.append_column("check", pa.array(drawn, pa.bool_()))
