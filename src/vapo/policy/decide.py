"""The one decision function: certification, deployment, training and replay all call it.

Deciding has two halves with the paid answer between them. `ask` looks at scores and budgets only and says which records
each candidate wants the secondary for; `settle` takes the answers and says what became of every record. A call is spent
when it is asked for, whatever comes back, so the first half never needs the second.

Both halves look at scores only through the cells into which the family's thresholds cut them, and what candidates
have in common, a threshold or a rule for asking, is worked out once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from vapo.errors import InputError
from vapo.policy.cells import Cells, Cut, Cuts
from vapo.policy.model import Family, Policy, Reason
from vapo.records import Records, Secondary

__all__ = ["Actions", "Answers", "Requests", "ask", "decide", "settle"]

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_FAILED = (
    Reason.SECONDARY_MISSING,
    Reason.SECONDARY_DISAGREES,
    Reason.SECONDARY_PROVENANCE,
    Reason.SECONDARY_INVALID,
    Reason.SECONDARY_LOST,
)
_ADMITTED = np.uint8(Reason.CONFIRMED)
_FIRST_APPEAL, _APPEAL_SPAN = np.uint8(Reason.CONFIRMED), np.uint8(Reason.SECONDARY_LOST - Reason.CONFIRMED)
_ACCEPTED, _BELOW = np.uint8(Reason.ACCEPTED), np.uint8(Reason.BELOW_THRESHOLD)
_LOW_CONFIDENCE = np.uint8(Reason.SECONDARY_LOW_CONFIDENCE)
_TILE = 32_768


@dataclass(frozen=True, slots=True)
class Answers:
    """What the secondary said, or why it said nothing, for each record (only asked ones are looked at)."""

    verdict: npt.NDArray[np.int8]
    confidence: Floats
    failure: Bytes
    """A reason among the `SECONDARY_*` failures that overrides the verdict; 0 where there is none."""

    @classmethod
    def none(cls, records: int) -> Answers:
        """No answer for anyone."""
        return cls(np.zeros(records, np.int8), np.zeros(records), np.zeros(records, np.uint8))

    @classmethod
    def of(cls, secondary: Secondary | None, records: int, sources: tuple[str, ...] | None = None) -> Answers:
        """Answers that came with the records; one from a source outside `sources` fails on provenance.

        Answers of which nobody said where they come from are those of a source named `y2`.
        """
        if secondary is None:
            return cls.none(records)
        failure = np.zeros(records, np.uint8)
        if sources is not None and secondary.source is None and "y2" not in sources:
            failure[secondary.verdict != 0] = Reason.SECONDARY_PROVENANCE
        elif sources is not None and secondary.source is not None:
            known = pc.is_in(secondary.source, value_set=pa.array(sources, pa.string()))
            foreign = ~np.asarray(known.to_numpy(zero_copy_only=False), dtype=np.bool_)
            failure[foreign & (secondary.verdict != 0)] = Reason.SECONDARY_PROVENANCE
        return cls(secondary.verdict, secondary.confidence, failure)

    def only(self, asked: npt.NDArray[np.bool_]) -> Answers:
        """The answers to what was asked, everything else blank."""
        return Answers(
            np.where(asked, self.verdict, 0).astype(np.int8),
            np.where(asked, self.confidence, 0.0),
            np.where(asked, self.failure, 0).astype(np.uint8),
        )


@dataclass(frozen=True, slots=True)
class Actions:
    """What every candidate did with every record: one byte each, a `Reason`."""

    codes: Bytes
    """Reasons, candidates by records."""
    calls: npt.NDArray[np.int32]
    """Secondary calls, candidates by windows of these records."""
    window: npt.NDArray[np.int32]
    """The window of each record."""
    starts: Ints
    """The record at which each window begins."""

    def admitted(self, candidate: int = 0) -> npt.NDArray[np.bool_]:
        """Which records a candidate admits."""
        return np.asarray(self.codes[candidate] <= _ADMITTED)

    def appealed(self, candidate: int = 0) -> npt.NDArray[np.bool_]:
        """Which records a candidate spent a call on."""
        return np.asarray((self.codes[candidate] - _FIRST_APPEAL) <= _APPEAL_SPAN)

    def sign(self, y: npt.NDArray[np.int8], candidate: int = 0) -> npt.NDArray[np.int8]:
        """The final sign: the primary's where admitted, else 0."""
        return np.where(self.admitted(candidate), y, 0).astype(np.int8)

    def spent_before(self, candidate: int = 0, carried: npt.NDArray[np.integer] | int = 0) -> Ints:
        """Calls already spent in a record's window when the record's turn came.

        Args:
            candidate: Which candidate.
            carried: Calls made in each window (a number: in the first one) before these records.
        """
        appealed = self.appealed(candidate).astype(np.int64)
        running = np.cumsum(appealed) - appealed
        base = np.zeros(len(self.starts), np.int64)
        base[: 1 if np.ndim(carried) == 0 else None] = carried
        sizes = np.diff([*self.starts, len(running)])
        return np.asarray(running + np.repeat(base - running[self.starts], sizes))


@dataclass(frozen=True, slots=True)
class Requests:
    """Which records each candidate asks the secondary for; made without any answer."""

    family: Family
    cells: Cells
    """Where each score lies among the family's thresholds."""
    rows: npt.NDArray[np.bool_]
    """Records that at least one candidate asks for."""
    key: Ints
    """Candidates with one key ask for the same records."""
    exhausted: tuple[npt.NDArray[np.intp], ...]
    """By key: records that were refused because the window's budget was spent."""
    calls: npt.NDArray[np.int32]
    """Calls by key and window."""
    window: npt.NDArray[np.int32]
    starts: Ints


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A family as places among its thresholds; made once for each family."""

    scores: Cuts
    seconds: Cuts
    low: list[Cut]
    high: list[Cut]
    second: list[Cut]
    last: list[tuple[Cut | None, Cut | None, Cut | None]]
    """By candidate: those of its three places that no later candidate shares."""
    wishes: Ints
    """By candidate: its places `low` and `high`, and its budget."""


@lru_cache(maxsize=16)
def _compiled(family: Family) -> _Compiled:
    lows = [(policy.pos.low, policy.neg.low) for policy in family.policies]
    highs = [(policy.pos.high, policy.neg.high) for policy in family.policies]
    seconds = [(policy.pos.second, policy.neg.second) for policy in family.policies]
    scores, second = Cuts.of([*lows, *highs]), Cuts.of(seconds)
    low, high = ([scores.place(*pair) for pair in pairs] for pairs in (lows, highs))
    budgets = [policy.budget for policy in family.policies]
    wishes = [(*a, *b, budget) for a, b, budget in zip(low, high, budgets, strict=True)]
    sure = [second.place(*pair) for pair in seconds]
    last = list(zip(_last(low), _last(high), _last(sure), strict=True))
    return _Compiled(scores, second, low, high, sure, last, np.array(wishes, np.int64))


def _last(places: list[Cut]) -> list[Cut | None]:
    final = {place: number for number, place in enumerate(places)}
    return [place if final[place] == number else None for number, place in enumerate(places)]


def _ineligible(records: Records) -> Bytes | None:
    """By record: the reason for which it can never be admitted, or 0; None if there is no such record."""
    silent = records.y == 0
    idle = None if records.delta_r is None else ~(records.delta_r > 0)
    if not silent.any() and (idle is None or not idle.any()):
        return None
    reasons = np.zeros(len(records), np.uint8)
    if idle is not None:
        reasons[idle] = Reason.NO_PROPOSAL
    reasons[silent] = Reason.NO_PRIMARY
    return reasons


def _answered(compiled: _Compiled, y: npt.NDArray[np.int8], answers: Answers) -> tuple[Bytes, Cells]:
    """What an appeal of each record would come to if any confidence were enough, and the confidence's cell."""
    known = np.isin(answers.failure, np.array(_FAILED, np.uint8))
    invalid = ~((answers.confidence >= 0) & (answers.confidence <= 1)) & (answers.verdict != 0)
    invalid |= (answers.verdict < -1) | (answers.verdict > 1) | (~known & (answers.failure != 0))
    reason = np.full(len(y), Reason.CONFIRMED, np.uint8)
    reason[answers.verdict != y] = Reason.SECONDARY_DISAGREES
    reason[answers.verdict == 0] = Reason.SECONDARY_MISSING
    reason[invalid] = Reason.SECONDARY_INVALID
    np.copyto(reason, answers.failure, where=known)
    cells = compiled.seconds.cells(y, answers.confidence)
    compiled.seconds.put_beyond(cells, reason != Reason.CONFIRMED)
    return reason, cells


def _over_budget(wants: npt.NDArray[np.bool_], counts: Ints, allowed: Ints) -> npt.NDArray[np.intp]:
    """The wanting records of each window beyond the first `allowed` ones."""
    kept = np.minimum(counts, allowed)
    dropped = counts - kept
    total = int(dropped.sum())
    if not total:
        return np.zeros(0, np.intp)
    places = np.flatnonzero(wants)
    begin = np.cumsum(counts) - counts + kept
    run = np.arange(total) - np.repeat(np.cumsum(dropped) - dropped, dropped)
    return places[np.repeat(begin, dropped) + run]


def ask(
    family: Family | Policy,
    records: Records,
    score: Floats,
    *,
    spent: npt.NDArray[np.integer] | None = None,
) -> Requests:
    """Say which records every candidate asks the secondary for, spending each window's budget in order.

    Args:
        family: The candidates.
        records: Records in their declared order; their secondary's answers are not looked at.
        score: One trust score a record.
        spent: Calls that each candidate has already made in the window of the first record, or (candidates by
            windows) in every window.
    """
    if isinstance(family, Policy):
        family = Family.of([family])
    if len(score) != len(records):
        expected = f"{len(records)} scores"
        raise InputError(expected, str(len(score)))
    fits = (score >= 0) & (score <= 1)
    if not fits.all():
        expected = "a score in [0, 1]"
        row = int(np.argmin(fits))
        raise InputError(expected, str(score[row]), where=f"{records.where}: row {records.row[row] + 1}")
    compiled = _compiled(family)
    cells = compiled.scores.cells(records.y, score)
    ineligible = _ineligible(records)
    if ineligible is not None:
        compiled.scores.put_below(cells, ineligible != 0)
    starts = records.window_starts()
    carried = _carried(spent, len(family), len(starts))
    touched = np.flatnonzero(carried.any(axis=0))
    wishes, key = np.unique(
        np.concatenate([compiled.wishes, carried[:, touched]], axis=1), axis=0, return_inverse=True
    )
    low, high, budget, before = wishes[:, :2], wishes[:, 2:4], wishes[:, 4:5], wishes[:, 5:]
    allowed = np.repeat(budget, len(starts), axis=1)
    allowed[:, touched] = np.maximum(0, budget - before)
    counts = cells.count_between(low, high, starts)
    short = (counts > allowed).any(axis=1)

    rows = cells.in_any(low[~short], high[~short])
    exhausted = [np.zeros(0, np.intp)] * len(wishes)
    for number in np.flatnonzero(short).tolist():
        (a, b), (c, d) = low[number].tolist(), high[number].tolist()
        wanted = cells.between((a, b), (c, d))
        over = exhausted[number] = _over_budget(wanted, counts[number], allowed[number])
        wanted[over] = False
        rows |= wanted
    calls = np.minimum(counts, allowed).astype(np.int32)
    return Requests(family, cells, rows, key.ravel(), tuple(exhausted), calls, records.window, starts)


def _carried(spent: npt.NDArray[np.integer] | None, candidates: int, windows: int) -> Ints:
    carried = np.zeros((candidates, windows), np.int64)
    if spent is not None and windows:
        given = np.asarray(spent, np.int64)
        if given.shape not in ((candidates,), (candidates, windows)) or (given < 0).any():
            expected = f"calls >= 0 spent so far, shape ({candidates},) or ({candidates}, {windows})"
            raise InputError(expected, str(given.shape))
        carried[:, : 1 if given.ndim == 1 else windows] = given.reshape(candidates, -1)
    return carried


def settle(
    requests: Requests, records: Records, answers: Answers | None = None, *, out: Bytes | None = None
) -> Actions:
    """Say what became of every record, given the secondary's answers to what was asked.

    Args:
        requests: What `ask` said about these records.
        records: The same records.
        answers: The answers; without any, every appeal goes unanswered.
        out: Where to put the reasons (candidates by records), to save memory.
    """
    family = requests.family
    compiled = _compiled(family)
    given = Answers.none(len(records)) if answers is None else answers
    sizes = {len(column) for column in (given.verdict, given.confidence, given.failure, requests.window)}
    if sizes != {len(records)}:
        expected = f"requests and answers of {len(records)} records"
        raise InputError(expected, f"of {', '.join(map(str, sorted(sizes)))}")
    reason, confidence = _answered(compiled, records.y, given)
    ineligible = _ineligible(records)
    codes = np.empty((len(family), len(records)), np.uint8) if out is None else out[:, : len(records)]
    for rows in records.slices(_TILE):
        _settle_tile(
            compiled,
            requests.cells[rows],
            reason[rows],
            confidence[rows],
            None if ineligible is None else ineligible[rows],
            codes[:, rows],
        )
    for candidate, key in enumerate(requests.key):
        codes[candidate][requests.exhausted[key]] = Reason.BUDGET_EXHAUSTED
    return Actions(codes, requests.calls[requests.key], requests.window, requests.starts)


def _settle_tile(
    compiled: _Compiled, cells: Cells, reason: Bytes, confidence: Cells, ineligible: Bytes | None, out: Bytes
) -> None:
    """Put every candidate's reasons into `out`, as if budgets never ran out.

    Reasons are numbered so that `ACCEPTED` lies below all answers to an appeal and these below all abstentions: the
    larger of what the answer says and what the lower threshold says, capped by what the upper one says, is the reason.
    """
    floors: dict[Cut, Bytes] = {}
    caps: dict[Cut, Bytes] = {}
    answers: dict[Cut, Bytes] = {}
    for number, row in enumerate(out):
        low, high, second = compiled.low[number], compiled.high[number], compiled.second[number]
        if low not in floors:
            floors[low] = cells.below(low).view(np.uint8) * _BELOW
            if ineligible is not None:
                np.maximum(floors[low], ineligible, out=floors[low])
        if low == high:
            np.maximum(floors[low], _ACCEPTED, out=row)
        else:
            if high not in caps:
                caps[high] = np.negative(cells.below(high).view(np.uint8)) | _ACCEPTED
            if second not in answers:
                unsure = confidence.below(second).view(np.uint8) * _LOW_CONFIDENCE
                answers[second] = np.maximum(reason, unsure, out=unsure)
            np.maximum(answers[second], floors[low], out=row)
            np.minimum(row, caps[high], out=row)
        # What no later candidate needs makes room for what comes next, so that little memory is walked through.
        for held, last in zip((floors, caps, answers), compiled.last[number], strict=True):
            if last is not None:
                held.pop(last, None)


def decide(
    family: Family | Policy,
    records: Records,
    score: Floats,
    *,
    spent: npt.NDArray[np.integer] | None = None,
    sources: tuple[str, ...] | None = None,
) -> Actions:
    """Decide on records whose secondary answers, if any were wanted, are already there.

    Args:
        family: One policy or a family.
        records: Records in their declared order.
        score: One trust score a record.
        spent: Calls that each candidate has already made in the window of the first record, or (candidates by
            windows) in every window.
        sources: The secondary verifiers whose answers count; None for all.

    Example:
        >>> import numpy as np, pyarrow as pa
        >>> records = Records.from_arrow(pa.table({
        ...     "id": ["a", "b", "c", "d"], "group": ["p", "q", "r", "s"], "y": [1, 1, -1, 1],
        ...     "signal.conf": [0.9, 0.6, 0.7, 0.2], "y2": [0, 1, -1, 1]}))
        >>> actions = decide(Policy.plain(0.5, 0.8, 0.5, budget=1), records, records.signals["conf"])
        >>> [Reason(code).text for code in actions.codes[0]]
        ['accepted', 'confirmed', 'budget_exhausted', 'below_threshold']
    """
    requests = ask(family, records, score, spent=spent)
    return settle(requests, records, Answers.of(records.secondary, len(records), sources))
