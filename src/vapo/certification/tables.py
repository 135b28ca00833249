"""What a claim is evaluated on, and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from vapo.certification.binomial import Floats, check_rate
from vapo.errors import InputError
from vapo.policy.model import check_weights

__all__ = ["CLAIMS", "ClaimTable", "Requirements", "Tally", "Units", "Verdict", "check_tallies"]

CLAIMS = ("hoeffding", "sequential", "frozen")


@dataclass(frozen=True, slots=True)
class Units:
    """Counts by group; groups that look alike share one row.

    Example:
        >>> units = Units(np.array([2, 0]), np.array([1, 0]), np.array([0, 0]), np.array([3, 5]))
        >>> units.groups, units.largest
        (8, 2)
    """

    admitted: npt.NDArray[np.int64]
    """Admitted records of each such group."""

    harmful: npt.NDArray[np.int64]
    """Harmful admitted records of each such group."""

    appealed: npt.NDArray[np.int64]
    """Appealed records of each such group."""

    count: npt.NDArray[np.int64]
    """How many groups look like this; groups that admit nothing are rows too."""

    def __post_init__(self) -> None:
        shapes = {part.shape for part in (self.admitted, self.harmful, self.appealed, self.count)}
        if len(shapes) != 1 or self.count.ndim != 1:
            expected = "four one-dimensional arrays of one length"
            raise InputError(expected, f"shapes {sorted(shapes)}", where="units")
        if np.any(self.count < 0) or np.any(self.harmful < 0) or np.any(self.harmful > self.admitted):
            expected = "0 <= harmful <= admitted and count >= 0"
            raise InputError(expected, "others", where="units")

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self.count.sum())

    @property
    def largest(self) -> int:
        """Largest number of admitted records in one group of this stage."""
        used = self.admitted[self.count > 0]
        return int(used.max()) if used.size else 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What one candidate did on the stage and how much harm came of it.

    Example:
        >>> Tally(records=100, admitted=40, harmful=2, appealed=5).units is None
        True
    """

    records: int
    """Records in the stage, admitted or not."""

    admitted: int
    """Records with a final sign."""

    harmful: int
    """Admitted records whose final sign is wrong."""

    appealed: int
    """Records on which the candidate asked the secondary verifier."""

    units: Units | None = None
    """Counts by group; None says that every group has one record."""

    def __post_init__(self) -> None:
        if not 0 <= self.harmful <= self.admitted <= self.records or not 0 <= self.appealed <= self.records:
            got = f"{self.harmful}, {self.admitted} and {self.records}; {self.appealed} appealed"
            expected = "0 <= harmful <= admitted <= records and 0 <= appealed <= records"
            raise InputError(expected, got, where="tally")
        if self.units is not None:
            parts = (self.units.admitted, self.units.harmful, self.units.appealed)
            sums = tuple(int((part * self.units.count).sum()) for part in parts)
            if sums != (self.admitted, self.harmful, self.appealed):
                got = f"admitted, harmful, appealed of the groups add up to {sums}"
                expected = f"{(self.admitted, self.harmful, self.appealed)}"
                raise InputError(expected, got, where="tally.units")

    @property
    def clustered(self) -> bool:
        """Whether some group has more than one admitted record."""
        return self.units is not None and self.units.largest > 1


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the protocol asks of a policy and how it spends the failure probability.

    Example:
        >>> Requirements(rho=0.08, c_min=0.25, b_max=0.2, delta=0.05).claim
        'frozen'
    """

    rho: float
    """Tolerated harm among admitted records."""

    c_min: float
    """Smallest acceptable coverage."""

    b_max: float
    """Largest acceptable rate of secondary calls."""

    delta: float
    """Failure probability of this stage."""

    claim: str = "frozen"
    """The deciding claim; the other two are reported beside it without carrying ``1 - delta``."""

    split: tuple[float, float, float] = (0.90, 0.05, 0.05)
    """Shares of ``delta`` for risk, coverage and calls under the sequential claim."""

    weights: tuple[float, ...] | None = None
    """Share of each candidate under the sequential claim; None shares equally."""

    group_cap: int | None = None
    """Declared largest number of admitted records in a group; None keeps records as units."""

    planned_squares: tuple[float, ...] | None = None
    """Mean square of admitted records a group on the design split, by candidate.

    With it the frozen claim bets on groups with the declared cap and a stake planned from these, as a statement about
    the population needs; without it, with what was realised.
    """

    def __post_init__(self) -> None:
        check_rate(self.rho, "rho")
        check_rate(self.delta, "delta")
        for name, value in (("c_min", self.c_min), ("b_max", self.b_max)):
            if not 0.0 <= value <= 1.0:
                expected = "a number between 0 and 1"
                raise InputError(expected, repr(value), where=name)
        if self.claim not in CLAIMS:
            expected = f"one of {', '.join(CLAIMS)}"
            raise InputError(expected, repr(self.claim), where="claim")
        if len(self.split) != 3 or min(self.split) <= 0 or sum(self.split) > 1 + 1e-12:
            expected = "three positive shares that add up to at most 1"
            raise InputError(expected, repr(self.split), where="split")
        if self.weights is not None:
            check_weights(self.weights, len(self.weights))
        if self.group_cap is not None and self.group_cap < 1:
            expected = "at least 1"
            raise InputError(expected, repr(self.group_cap), where="group_cap")

    def candidate_weights(self, size: int) -> Floats:
        """Return the weight of every candidate, equal where none were declared."""
        if self.weights is None:
            return np.full(size, 1.0 / size)
        check_weights(self.weights, size)
        return np.asarray(self.weights, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class ClaimTable:
    """One claim about every candidate; all arrays run over candidates.

    Example:
        >>> from vapo.certification.claims import evaluate
        >>> tally = Tally(records=1000, admitted=500, harmful=10, appealed=0)
        >>> table = evaluate([tally], [[0]], Requirements(0.08, 0.25, 0.2, 0.05)).claims["frozen"]
        >>> bool(table.feasible[0]), table.constraint[0]
        (True, '')
    """

    excess_upper: Floats
    """Upper limit for the average of harm minus ``rho`` times admission, per record."""

    risk_upper: Floats
    """Upper limit for harm among admitted records; 1 where the claim says nothing."""

    coverage_lower: Floats
    """Lower limit for coverage; the coverage itself where it is a fact."""

    calls_upper: Floats
    """Upper limit for the rate of secondary calls; the rate itself where it is a fact."""

    radius: Floats
    """Width that the claim adds to the observed average of the excess harm."""

    feasible: npt.NDArray[np.bool_]
    """Whether every requirement is met under this claim."""

    constraint: tuple[str, ...]
    """What stopped each candidate; empty where it is feasible."""

    margin: Floats
    """Distance from feasible in rates per record: positive is short of it, at most 0 has room."""

    own_limit: Floats
    """Clopper-Pearson limit of each candidate alone. Not valid for a selected one: descriptive only."""

    met: npt.NDArray[np.int64]
    """How many of the three requirements (risk, coverage, calls) each candidate meets."""

    unit: str
    """What one bet is about: ``record`` or ``group``."""

    selected: int | None = field(default=None)
    """The candidate this claim alone would select."""

    nearest: int = field(default=0)
    """The selected candidate, or the one that came closest."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """All three claims; the deciding one selects.

    Example:
        >>> from vapo.certification.claims import evaluate
        >>> tally = Tally(records=10, admitted=0, harmful=0, appealed=0)
        >>> evaluate([tally], [[0]], Requirements(0.08, 0.25, 0.2, 0.05)).selected is None
        True
    """

    deciding: str
    """Name of the claim that carries the certificate."""

    selected: int | None
    """Index of the selected candidate; None abstains from everything."""

    nearest: int
    """The selected candidate, or, when refused, the one that came closest."""

    claims: dict[str, ClaimTable]
    """One table for each claim."""


def check_tallies(tallies: Sequence[Tally]) -> None:
    """Refuse an empty family and candidates that saw different stages.

    Example:
        >>> check_tallies([Tally(5, 1, 0, 0)])
    """
    if not tallies:
        expected = "at least one candidate"
        raise InputError(expected, "none", where="tallies")
    sizes = {tally.records for tally in tallies}
    if len(sizes) != 1 or min(sizes) < 1:
        expected = "one number of records, at least 1, for all candidates"
        raise InputError(expected, f"{sorted(sizes)}", where="tallies")
    groups = {tally.units.groups for tally in tallies if tally.units is not None}
    if len(groups) > 1:
        expected = "one number of groups for all candidates"
        raise InputError(expected, f"{sorted(groups)}", where="tallies")
