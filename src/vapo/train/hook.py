"""The admission hook: what a trainer asks before it learns from a window of completions.

Four methods, so that any trainer can be fitted with it: `admit`, `state_dict`, `load_state_dict`, `metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from vapo.actuator import Actuator
from vapo.errors import InputError, IntegrityError, ProtocolError
from vapo.gate import Gate
from vapo.gate.admit import AskSecondary
from vapo.ledger import EventKind, Ledger
from vapo.policy import Answers, Reason
from vapo.records import Records, Source
from vapo.train.batch import Admission, Window
from vapo.verifiers import Item, Verifier
from vapo.verifiers.appeals import as_answers

__all__ = [
    "AcceptAll",
    "AdmissionHook",
    "Closed",
    "GateHook",
    "actuated",
    "answers",
    "eligible",
    "window_metrics",
]

_REASONS = {reason.text: reason for reason in Reason}


class AdmissionHook(Protocol):
    """Decides what a learner may learn from; one window of completions at a time, in their declared order."""

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Decide on one window.

        Args:
            window: Its records and advantages.
            items: Its completions as verifiers read them, one a record, for hooks that ask a secondary verifier.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep, ready for JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; refuses one that this hook did not write."""
        ...

    def metrics(self) -> dict[str, float]:
        """Numbers about the last window; those that are undefined are left out."""
        ...


def window_metrics(admission: Admission) -> dict[str, float]:
    """What is worth a curve about one decided window; rates without a denominator are left out.

    Example:
        >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, -1], advantage=[0.7, -0.7],
        ...                    signals={"confidence": [0.9, 0.2]})
        >>> window_metrics(AcceptAll().admit(window))["coverage"]
        1.0
    """
    updates, rows = admission.updates, len(admission.reason)
    found = {
        "coverage": updates.coverage,
        "applied_rate": updates.applied_rate,
        "zero_magnitude_rate": updates.zero_magnitude_rate,
        "appeal_rate": admission.calls / rows if rows else None,
        "admitted": float(np.count_nonzero(updates.admitted)),
        "kept": float(np.count_nonzero(admission.kept)),
        "secondary_calls": float(admission.calls),
        "closed": float(bool(admission.closed)),
    }
    return {name: value for name, value in found.items() if value is not None}


class CountingHook:
    """The part of a hook that only remembers: how many windows it saw, and what became of the last one."""

    def __init__(self) -> None:
        self._windows = 0
        self._metrics: dict[str, float] = {}

    def count(self, admission: Admission) -> Admission:
        """Remember an admission and give it back."""
        self._windows += 1
        self._metrics = window_metrics(admission)
        return admission

    def metrics(self) -> dict[str, float]:
        """Numbers about the last window."""
        return dict(self._metrics)

    def state_dict(self) -> dict[str, Any]:
        """The number of windows so far."""
        return {"hook": type(self).__name__, "windows": self._windows}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting."""
        self._windows = _own_state(self, state)


def _own_state(hook: object, state: Mapping[str, Any]) -> int:
    name, windows = state.get("hook"), state.get("windows")
    if (
        name != type(hook).__name__
        or isinstance(windows, bool)
        or not isinstance(windows, int)
        or windows < 0
    ):
        expected = f"the state of a {type(hook).__name__} and its number of windows"
        raise InputError(expected, f"hook={name!r}, windows={windows!r}", where="argument 'state'")
    return windows


class AcceptAll(CountingHook):
    """Applies every proposal, as a plain learner would unless it is given another actuator; keeps no record of it.

    Args:
        actuator: How far a proposal moves the learner; as far as it wants by default.

    Example:
        >>> window = Window.of(ids=["a", "b"], groups=["q", "q"], window="u0", y=[1, -1], advantage=[0.7, -0.7],
        ...                    signals={"confidence": [0.9, 0.2]})
        >>> AcceptAll().admit(window).coefficient.round(9).tolist()
        [0.7, -0.7]
    """

    def __init__(self, actuator: Actuator | None = None) -> None:
        super().__init__()
        self._actuator = actuator or Actuator("identity")

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Accept whatever proposes something."""
        del items
        return self.count(actuated(self._actuator, window, eligible(window), np.ones(len(window))))


class Closed(CountingHook):
    """Abstains from everything, as a gate does that has no certificate.

    Example:
        >>> window = Window.of(ids=["a"], groups=["q"], window="u0", y=[1], advantage=[0.7],
        ...                    signals={"confidence": [0.9]})
        >>> Closed("nothing was certified").admit(window).trains
        False
    """

    def __init__(self, why: str = "no certificate") -> None:
        super().__init__()
        if not why:
            expected = "the reason why nothing is admitted"
            raise InputError(expected, "an empty text", where="argument 'why'")
        self._why = why

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Abstain."""
        del items
        reason = np.full(len(window), Reason.FAIL_CLOSED, np.uint8)
        score = np.zeros(len(window))
        return self.count(actuated(Actuator("identity"), window, reason, score, closed=self._why))


class GateHook(CountingHook):
    """The certified policy of a run folder, and the actuator behind it.

    Every window is in the run's ledger before its decisions come back. Without a valid certificate, after an alarm, for
    records of other sources than the certified ones, or with another secondary verifier, everything is abstained from.

    Args:
        gate: An open gate; this process is the run's only writer while it is.
        actuator: How far an admitted proposal moves the learner.
        secondary: Answers appeals. Without one, appeals end in abstaining.
        repeatable: Whether asking it again is free and gives the same.

    Example:
        >>> import tempfile
        >>> from vapo.certification.flow import certify
        >>> import pyarrow as pa
        >>> table = pa.table({"id": [str(i) for i in range(400)], "group": [str(i) for i in range(400)],
        ...                   "y": [1] * 400, "signal.s": [i / 400 for i in range(400)]})
        >>> truth = {str(i): 1 if i > 100 else -1 for i in range(400)}
        >>> window = Window.of(ids=["n1", "n2"], groups=["h", "h"], window="u0", y=[1, -1], advantage=[0.7, -0.7],
        ...                    signals={"s": [0.99, 0.01]})
        >>> with tempfile.TemporaryDirectory() as run:
        ...     certificate = certify(table, truth, out=run, rho=0.08, c_min=0.25)
        ...     with GateHook.open(run, Actuator("identity")) as hook:
        ...         hook.admit(window).coefficient.round(9).tolist()
        [0.7, 0.0]
    """

    def __init__(
        self,
        gate: Gate,
        actuator: Actuator | None = None,
        *,
        secondary: Verifier | None = None,
        repeatable: bool = False,
    ) -> None:
        super().__init__()
        self._gate = gate
        self._actuator = actuator or Actuator()
        self._secondary = secondary
        self._repeatable = repeatable
        self._foreign = "" if secondary is None else _foreign_secondary(gate.sources, secondary.source)
        issued = gate.ledger.last(EventKind.ISSUED, EventKind.REFUSED)
        self._certificate = "" if issued is None else str(issued.body["envelope"]["sha256"])

    @classmethod
    def open(
        cls,
        run: str | Path,
        actuator: Actuator | None = None,
        *,
        secondary: Verifier | None = None,
        repeatable: bool = False,
    ) -> GateHook:
        """Open the gate of a run folder, as its one writer; arguments as for the class."""
        gate = Gate.open(run)
        try:
            return cls(gate, actuator, secondary=secondary, repeatable=repeatable)
        except BaseException:
            gate.close()
            raise

    def __enter__(self) -> GateHook:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write to the run."""
        self._gate.close()

    @property
    def gate(self) -> Gate:
        """The gate behind the hook."""
        return self._gate

    def admit(self, window: Window, items: Sequence[Item] = ()) -> Admission:
        """Let the certified policy decide, and put the decisions down before they are acted on."""
        if items and len(items) != len(window):
            expected = f"{len(window)} items, one a record"
            raise InputError(expected, str(len(items)), where="argument 'items'")
        if self._foreign:
            reason = np.full(len(window), Reason.FAIL_CLOSED, np.uint8)
            score = np.zeros(len(window))
            return self.count(actuated(self._actuator, window, reason, score, closed=self._foreign))
        decisions = self._gate.decide(
            window.records, secondary=self._asking(list(items)), repeatable=self._repeatable
        )
        # The gate answers in the declared order, which is the window's.
        words = decisions.table.column("reason").to_pylist()
        reason = np.array([_REASONS[word] for word in words], np.uint8)
        score = np.asarray(decisions.table.column("score").to_numpy(), np.float64)
        admission = actuated(
            self._actuator,
            window,
            reason,
            score,
            calls=decisions.appealed,
            closed=decisions.closed,
            certificate=self._certificate,
        )
        return self.count(admission)

    def _asking(self, texts: list[Item]) -> AskSecondary | None:
        """How the gate asks the secondary about these items; None where there is nobody or nothing to ask about."""
        secondary = self._secondary
        if secondary is None or not texts:
            return None

        def ask(records: Records, asked: npt.NDArray[np.bool_]) -> Answers:
            return answers(secondary, [texts[row] for row in records.row.tolist()], asked)

        return ask

    def state_dict(self) -> dict[str, Any]:
        """Where in its ledger the hook stands, and what its actuator is."""
        ledger = self._gate.ledger
        place = {"events": len(ledger.events), "head": ledger.head}
        return {**super().state_dict(), **place, "actuator": self._actuator.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint of the same run; windows decided after it are given back as they were decided.

        Raises:
            ProtocolError: The actuator is another one.
            IntegrityError: The run's log does not hold the place at which the checkpoint was taken.
        """
        windows = _own_state(self, state)
        if state.get("actuator") != self._actuator.state_dict():
            msg = f"{self._gate.ledger.path}: the checkpoint was taken with another actuator: {state.get('actuator')}"
            raise ProtocolError(msg)
        _demand_place(self._gate.ledger, state)
        self._windows = windows


def _demand_place(ledger: Ledger, state: Mapping[str, Any]) -> None:
    size, head = state.get("events"), state.get("head")
    events = ledger.events
    if not isinstance(size, int) or not 0 < size <= len(events) or events[size - 1].digest != head:
        msg = (
            f"{ledger.path}: the log does not hold the place of the checkpoint (event {size}, digest {head})"
        )
        raise IntegrityError(msg)


def _foreign_secondary(certified: Mapping[str, Source], source: Source) -> str:
    """Why a secondary verifier is not the one that was certified; empty if it is, or if none was named."""
    trusted = ("primary", "signal.", "verdict.")
    named = [s for name, s in certified.items() if not name.startswith(trusted) and s.declared]
    if not named or any(s.digest == source.digest for s in named):
        return ""
    return f"the secondary verifier '{source.id}' is not the one that was certified"


def answers(secondary: Verifier, items: Sequence[Item], asked: npt.NDArray[np.bool_]) -> Answers:
    """Ask a verifier about some of the items; a failure is no answer, never a no.

    Args:
        secondary: The verifier.
        items: One for each record.
        asked: Which of them it is asked about.
    """
    outcomes = secondary.verify([items[row] for row in np.flatnonzero(asked).tolist()])
    return as_answers(outcomes, asked)


def eligible(window: Window) -> npt.NDArray[np.uint8]:
    """What becomes of each record if nothing is held back: accepted, unless it has no verdict or proposes nothing.

    Example:
        >>> window = Window.of(ids=["a", "b"], groups=["q", "r"], window="u0", y=[1, 0], advantage=[0.0, 0.0],
        ...                    signals={"confidence": [0.9, 0.2]})
        >>> [Reason(code).text for code in eligible(window)]
        ['no_proposal', 'no_primary']
    """
    records = window.records
    reason = np.full(len(window), Reason.ACCEPTED, np.uint8)
    if records.delta_r is not None:
        reason[~(records.delta_r > 0)] = Reason.NO_PROPOSAL
    reason[records.y == 0] = Reason.NO_PRIMARY
    return reason


def actuated(
    actuator: Actuator,
    window: Window,
    reason: npt.NDArray[np.uint8],
    score: npt.NDArray[np.float64],
    *,
    calls: int = 0,
    closed: str = "",
    certificate: str = "",
) -> Admission:
    """Turn what was decided into an admission, the actuator saying how far each admitted proposal moves the learner.

    Args:
        actuator: The actuator.
        window: What was decided on.
        reason: What was decided, as a `vapo.policy.Reason` a record.
        score: The score on which it was decided.
        calls: Secondary calls that were spent.
        closed: Why the gate is closed; empty while it is open.
        certificate: Digest of the certificate behind it.

    Raises:
        InputError: If an admitted record's verdict and advantage point in different directions.
    """
    records = window.records
    sign = np.where(np.isin(reason, (Reason.ACCEPTED, Reason.CONFIRMED)), records.y, 0)
    against = (sign != 0) & (sign * window.advantage < 0)
    if against.any():
        row = int(np.argmax(against))
        expected = (
            "a verdict of the sign that the advantage pushes in (give graded rewards the advantage's sign)"
        )
        where = f"{records.where}: row {records.row[row] + 1}: field 'y'"
        raise InputError(expected, f"{records.y[row]} at advantage {window.advantage[row]:g}", where=where)
    updates = actuator.magnitude(score, records.delta_r, records.kl, sign)
    return Admission(reason, score, updates, calls, closed, certificate)
