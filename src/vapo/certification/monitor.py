"""Watching a deployed policy: evidence that harm among checked records has risen above what was certified."""

from __future__ import annotations

import hashlib
import hmac
import math
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from vapo.certification.binomial import Floats, check_rate
from vapo.errors import InputError, ProtocolError

__all__ = ["Monitor", "is_checked", "mirrored_bets"]

_GRID_POINTS = 48
_FORMAT = 1


class Bets(NamedTuple):
    """A fixed set of bets: how much each stakes on harm, and its share of the capital."""

    stakes: Floats
    """Stake per unit of excess harm, in ``(0, pi_min / rho)``."""

    log_weights: Floats
    """Logarithm of each share; the shares add up to 1."""


class _Check(NamedTuple):
    admitted: bool
    harmful: bool | None
    probability: float


def is_checked(key: bytes, record_id: str, rate: float) -> bool:
    """Draw a spot check from a secret key and the record's name alone, so before any outcome is known.

    Args:
        key: Secret of at least 16 bytes.
        record_id: Name of the record.
        rate: Probability of a check.

    Example:
        >>> is_checked(b"0123456789abcdef", "q1", 1.0), is_checked(b"0123456789abcdef", "q1", 0.0)
        (True, False)
    """
    if len(key) < 16:
        expected = "at least 16 bytes"
        raise InputError(expected, f"{len(key)}", where="key")
    if not 0.0 <= rate <= 1.0:
        expected = "a number between 0 and 1"
        raise InputError(expected, repr(rate), where="rate")
    digest = hmac.new(key, b"vapo spot check\x00" + record_id.encode(), hashlib.sha256).digest()
    return int.from_bytes(digest[:8], "big") < rate * 2.0**64


def mirrored_bets(rho: float, pi_min: float = 1.0, planned_harm: float | None = None) -> Bets:
    """Bets on harm above ``rho``: one for the harm to be found, the others closer together near ``rho``.

    Args:
        rho: Certified harm.
        pi_min: Smallest probability with which a record is checked; 1 when evidence is about the checked
            records only.
        planned_harm: Harm that must be noticed soonest; twice ``rho`` when absent.

    Example:
        >>> bets = mirrored_bets(0.08)
        >>> round(float(np.exp(bets.log_weights).sum()), 12), bool(bets.stakes.max() < 1 / 0.08)
        (1.0, True)
    """
    check_rate(rho, "rho")
    if not 0.0 < pi_min <= 1.0:
        expected = "a number in (0, 1]"
        raise InputError(expected, repr(pi_min), where="pi_min")
    harm = min(2.0 * rho, (1.0 + rho) / 2.0) if planned_harm is None else planned_harm
    if not rho < harm < 1.0:
        expected = f"a harm between rho = {rho} and 1"
        raise InputError(expected, repr(planned_harm), where="planned_harm")
    nodes, weights = np.polynomial.legendre.leggauss(_GRID_POINTS)
    # cubing puts half of the bets within an eighth of the way from rho to 1, where slow drifts are found
    harms = np.append(rho + (1.0 - rho) * ((nodes + 1.0) / 2.0) ** 3, harm)
    shares = np.append(0.5 * weights / weights.sum(), 0.5)
    return Bets(pi_min * (harms - rho) / (rho * (1.0 - rho)), np.log(shares))


class Monitor:
    """Raises an alarm when checked records show more harm than was certified, wrongly with chance ``delta``.

    Two forms of evidence share ``delta`` equally. The first looks at the average since the start; the alarm
    is wrong with probability at most ``delta / 2`` as long as that running average of conditional excess
    harm has never been positive. The second starts afresh every ``block`` checks, so that a long good spell
    cannot hide a sudden change; its null is that no average since any of these starts has been positive.
    Work and memory for a check do not grow with time.

    Args:
        rho: Certified harm among admitted records.
        delta: Probability of a false alarm over the whole deployment.
        pi_min: Smallest declared probability of a check. Pass the probability of each check to `update`
            when they differ.
        planned_harm: Harm that must be noticed soonest.
        block: Checks between fresh starts.
        max_pending: Draws kept open behind the oldest unlabelled one; beyond it that one counts as harmless
            for good.

    Example:
        >>> monitor = Monitor(rho=0.08, delta=0.01)
        >>> for _ in range(20):
        ...     alarm = monitor.update(admitted=True, harmful=True)
        >>> monitor.alarm
        True
    """

    def __init__(
        self,
        rho: float,
        delta: float,
        *,
        pi_min: float = 1.0,
        planned_harm: float | None = None,
        block: int = 64,
        max_pending: int = 10_000,
    ) -> None:
        check_rate(delta, "delta")
        if block < 1 or max_pending < 1:
            expected = "at least 1"
            raise InputError(expected, f"block={block}, max_pending={max_pending}")
        self.rho, self.delta, self.pi_min = float(rho), float(delta), float(pi_min)
        self.planned_harm, self.block, self.max_pending = planned_harm, block, max_pending
        self._bets = mirrored_bets(rho, pi_min, planned_harm)
        self._steady: Floats = self._bets.log_weights.copy()
        self._fresh: Floats = np.full_like(self._steady, -np.inf)
        self._picked: Floats = self._bets.log_weights.copy()
        self._checks = 0
        self._alarm = self._picked_alarm = False
        self._queue: OrderedDict[str, _Check] = OrderedDict()

    @property
    def alarm(self) -> bool:
        """Whether the guaranteed alarm has been raised; once raised it stays."""
        return self._alarm

    @property
    def picked_alarm(self) -> bool:
        """Whether records that people picked have raised one; how often it is wrong is not promised."""
        return self._picked_alarm

    @property
    def closed(self) -> bool:
        """Whether the gate has to fail closed: either alarm."""
        return self._alarm or self._picked_alarm

    @property
    def checks(self) -> int:
        """Settled checks so far."""
        return self._checks

    @property
    def pending(self) -> int:
        """Draws that still wait for their own or an earlier label."""
        return len(self._queue)

    @property
    def log_evidence(self) -> float:
        """Evidence of the form that never restarts, settled checks only."""
        return float(special.logsumexp(self._steady))

    @property
    def log_fresh_evidence(self) -> float:
        """Evidence of the restarting form, settled checks only."""
        return _fresh_total(self._fresh, self._starts(self._checks))

    @property
    def log_threshold(self) -> float:
        """Log evidence at which either form raises the alarm."""
        return math.log(2.0 / self.delta)

    def update(self, admitted: bool, harmful: bool | None, probability: float = 1.0) -> bool:  # noqa: FBT001
        """Count one check whose label is known, or missing (None, which counts as harmless).

        Args:
            admitted: Whether the policy admitted the record.
            harmful: Whether its final sign is wrong.
            probability: The declared probability with which this record was checked; at least ``pi_min``.

        Returns:
            Whether the alarm has been raised.
        """
        if self._queue:
            msg = "an earlier draw waits for its label; use draw and settle to keep the order of the draws"
            raise ProtocolError(msg)
        self._apply(self._check(_Check(admitted, harmful, probability)))
        return self._alarm

    def draw(self, record_id: str, admitted: bool, probability: float = 1.0) -> None:  # noqa: FBT001
        """Announce a check whose label is still to come. Until it comes it counts as harmless.

        Args:
            record_id: Name of the record; `settle` refers to it.
            admitted: Whether the policy admitted it.
            probability: The declared probability with which it was checked.
        """
        if record_id in self._queue:
            expected = "a record that is not waiting already"
            raise InputError(expected, record_id, where="record_id")
        self._queue[record_id] = self._check(_Check(admitted, None if admitted else False, probability))
        self._advance()
        while len(self._queue) > self.max_pending:
            oldest = next(iter(self._queue))
            self._queue[oldest] = self._queue[oldest]._replace(harmful=False)
            self._advance()

    def settle(self, record_id: str, harmful: bool | None) -> bool:  # noqa: FBT001
        """Give a drawn record its label, or None to say that it will never come.

        Args:
            record_id: Name given to `draw`.
            harmful: Whether its final sign is wrong.

        Returns:
            Whether the alarm has been raised.
        """
        if record_id not in self._queue:
            expected = "a drawn record that waits for its label"
            raise InputError(expected, record_id, where="record_id")
        check = self._queue[record_id]
        self._queue[record_id] = check._replace(harmful=check.admitted and bool(harmful))
        self._advance()
        if harmful and self._queue:
            self._look_ahead()
        return self._alarm

    def update_picked(self, admitted: bool, harmful: bool) -> bool:  # noqa: FBT001
        """Count a record that a person chose: it can raise an alarm of its own and never touches the other.

        Args:
            admitted: Whether the policy admitted it.
            harmful: Whether its final sign is wrong.

        Returns:
            Whether this alarm has been raised.
        """
        self._picked = self._picked + self._gains(_Check(admitted, harmful, 1.0))
        self._picked_alarm |= float(special.logsumexp(self._picked)) >= math.log(1.0 / self.delta)
        return self._picked_alarm

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to go on later, as JSON types.

        Returns:
            Settings and state.
        """
        return {
            "format": _FORMAT,
            "settings": {
                "rho": self.rho,
                "delta": self.delta,
                "pi_min": self.pi_min,
                "planned_harm": self.planned_harm,
                "block": self.block,
                "max_pending": self.max_pending,
            },
            "checks": self._checks,
            "steady": self._steady.tolist(),
            "fresh": [None if np.isneginf(value) else float(value) for value in self._fresh],
            "picked": self._picked.tolist(),
            "alarm": self._alarm,
            "picked_alarm": self._picked_alarm,
            "queue": [[name, *check] for name, check in self._queue.items()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state that `state_dict` returned under the same settings.

        Args:
            state: The dictionary.
        """
        try:
            known = state["format"] == _FORMAT and state["settings"] == self.state_dict()["settings"]
            arrays = [
                np.array([-np.inf if value is None else value for value in state[name]], dtype=np.float64)
                for name in ("steady", "fresh", "picked")
            ]
            checks, alarm, picked_alarm = (
                int(state["checks"]),
                bool(state["alarm"]),
                bool(state["picked_alarm"]),
            )
            queue = OrderedDict((name, self._check(_Check(*check))) for name, *check in state["queue"])
        except (KeyError, TypeError, ValueError) as error:
            expected = "what state_dict returned"
            raise InputError(expected, repr(error), where="state") from error
        if not known or any(part.shape != self._steady.shape for part in arrays):
            expected = "a state with the settings of this monitor"
            raise InputError(expected, "other settings", where="state")
        self._steady, self._fresh, self._picked = arrays
        self._checks, self._alarm, self._picked_alarm, self._queue = checks, alarm, picked_alarm, queue

    def _check(self, check: _Check) -> _Check:
        if not self.pi_min <= check.probability <= 1.0:
            got = repr(check.probability)
            expected = f"a probability between pi_min = {self.pi_min} and 1"
            raise InputError(expected, got, where="probability")
        return check

    def _gains(self, check: _Check) -> Floats | float:
        if not check.admitted:
            return 0.0
        excess = (float(bool(check.harmful)) - self.rho) / check.probability
        return np.asarray(np.log1p(self._bets.stakes * excess), dtype=np.float64)

    def _starts(self, checks: int) -> int:
        return -(-checks // self.block)

    def _step(self, steady: Floats, fresh: Floats, checks: int, check: _Check) -> tuple[Floats, Floats]:
        if checks % self.block == 0:
            start = checks // self.block + 1
            share = -math.log(start * (start + 1.0))
            fresh = np.logaddexp(fresh, self._bets.log_weights + share)
        gains = self._gains(check)
        return steady + gains, fresh + gains

    def _apply(self, check: _Check) -> None:
        self._steady, self._fresh = self._step(self._steady, self._fresh, self._checks, check)
        self._checks += 1
        self._judge(self._steady, self._fresh, self._checks)

    def _judge(self, steady: Floats, fresh: Floats, checks: int) -> None:
        best = max(float(special.logsumexp(steady)), _fresh_total(fresh, self._starts(checks)))
        self._alarm |= best >= self.log_threshold

    def _advance(self) -> None:
        """Settle the front of the queue as far as labels are known."""
        while self._queue:
            name, check = next(iter(self._queue.items()))
            if check.harmful is None:
                return
            del self._queue[name]
            self._apply(check)

    def _look_ahead(self) -> None:
        """Judge the draws behind a pending one with everything pending counted as harmless."""
        steady, fresh, checks = self._steady, self._fresh, self._checks
        for check in self._queue.values():
            steady, fresh = self._step(steady, fresh, checks, check)
            checks += 1
            self._judge(steady, fresh, checks)


def _fresh_total(fresh: Floats, starts: int) -> float:
    """Log capital of all starts, those that have not begun included."""
    return float(np.logaddexp(special.logsumexp(fresh), -math.log(starts + 1.0)))
