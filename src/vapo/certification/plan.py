"""What a certificate will cost, and what a given number of labels can certify at best."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from vapo.certification.binomial import check_rate, clopper_pearson_upper
from vapo.certification.evidence import PLANNED_SHARE, binary_kl, planned_bet
from vapo.certification.power import frozen_critical_count
from vapo.certification.required import (
    LARGEST_STAGE,
    least_admitted,
    records_for_frozen,
    records_for_group_bets,
    records_for_hoeffding,
    records_for_sequential,
)
from vapo.certification.tables import CLAIMS
from vapo.errors import InputError

__all__ = ["AtHand", "Plan", "PlanRow", "plan", "reach_of_labels"]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What one claim needs at one probability of success.

    Example:
        >>> PlanRow("frozen", 0.9, None, 0, 0, 0, 0, "risk").records is None
        True
    """

    claim: str
    """Which claim."""

    power: float
    """Probability of a certificate if the expectations are right."""

    records: int | None
    """Records in the stage; None when no practical number would do."""

    groups: int
    """Groups these records come in."""

    admitted: int
    """Records that one candidate is expected to admit."""

    labels: int
    """Labels needed: the union of what all candidates admit."""

    secondary_calls: int
    """Secondary calls needed: the union of what all candidates appeal."""

    binding: str
    """Which requirement asks for most: ``risk``, ``coverage`` or ``calls``."""


@dataclass(frozen=True, slots=True)
class AtHand:
    """What a number of labels can certify at best under ``frozen``.

    Example:
        >>> reach_of_labels(500, 0.05, rho=0.08).smallest_rho
        0.005974
    """

    labels: int
    """Labelled admitted records."""

    smallest_rho: float
    """Tolerance that would be certified if no harm at all were found."""

    expected_rho: float | None
    """Tolerance to be certified at even odds at the expected risk; None without one."""

    largest_risk: float | None
    """Largest true risk certified at the wanted tolerance at even odds; None when no labels would do."""

    chance: float | None
    """Probability of a certificate at the expected risk and wanted tolerance."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Costs of all three claims, with the expectations they rest on.

    Example:
        >>> plan(rho=0.08, delta=0.05, risk=0.04, coverage=0.4125).row("frozen", 0.5).records
        311
    """

    rows: tuple[PlanRow, ...]
    """Every claim at even odds and at the wanted power."""

    design_effect: float
    """Variance of the harm over that of independent records, from group size and correlation."""

    candidates: int
    """Candidates of the family."""

    chains: int
    """Chains among which ``frozen`` shares its failure probability."""

    information_limit: int
    """Admitted records at which the best possible bet expects log evidence ``log(chains / delta)``."""

    least_admitted: dict[str, int]
    """By claim: admitted records below which nothing certifies, even if none of them is harmful."""

    at_hand: AtHand | None = None
    """What the labels at hand can do, when their number was given."""

    def row(self, claim: str, power: float) -> PlanRow:
        """Return the row of one claim at one power."""
        for row in self.rows:
            if row.claim == claim and row.power == power:
                return row
        expected = f"one of {sorted({(row.claim, row.power) for row in self.rows})}"
        raise InputError(expected, f"{(claim, power)}", where="claim, power")


def plan(
    *,
    rho: float,
    delta: float,
    risk: float,
    coverage: float,
    calls: float = 0.0,
    c_min: float = 0.0,
    b_max: float = 1.0,
    candidates: int = 1,
    chains: int = 1,
    power: float = 0.9,
    group_size: int = 1,
    icc: float = 0.0,
    union_coverage: float | None = None,
    union_calls: float | None = None,
    split: tuple[float, float, float] = (0.90, 0.05, 0.05),
    labels: int | None = None,
) -> Plan:
    """Say what each claim needs before anything is labelled.

    Records of single-record groups are counted exactly: the chance of a certificate is summed over the
    numbers of admitted and harmful records. With larger groups the normal law of the group bets' log
    capital is used, with a beta-binomial harm inside a group. Coverage and calls enter at their expected
    values.

    Args:
        rho: Tolerated harm.
        delta: Failure probability of the stage.
        risk: Expected harm among admitted records.
        coverage: Expected coverage of the candidate to be certified.
        calls: Its expected rate of secondary calls.
        c_min: Required coverage.
        b_max: Allowed rate of secondary calls.
        candidates: Candidates of the family.
        chains: Chains of the family.
        power: Wanted probability of a certificate, beside even odds.
        group_size: Records of a group.
        icc: Correlation of harm inside a group.
        union_coverage: Share of records that some candidate admits; ``coverage`` when absent.
        union_calls: Share of records that some candidate appeals; ``calls`` when absent.
        split: Shares of ``delta`` for risk, coverage and calls under the sequential claim.
        labels: Labels at hand, to be told what they can certify at best.

    Returns:
        The plan.

    Example:
        >>> costs = plan(rho=0.08, delta=0.05, risk=0.0697, coverage=0.4125, candidates=20)
        >>> [costs.row(claim, 0.5).records for claim in ("frozen", "hoeffding")]
        [4604, 196381]
    """
    check_rate(rho, "rho")
    check_rate(delta, "delta")
    for name, value in (("candidates", candidates), ("chains", chains), ("group_size", group_size)):
        if value < 1:
            expected = "at least 1"
            raise InputError(expected, repr(value), where=name)
    for name, rate in (("calls", calls), ("c_min", c_min), ("b_max", b_max), ("icc", icc)):
        if not 0.0 <= rate <= 1.0:
            expected = "a number between 0 and 1"
            raise InputError(expected, repr(rate), where=name)
    effect = 1.0 + max(coverage * group_size - 1.0, 0.0) * icc
    case = _Case(
        rho, delta, risk, coverage, calls, c_min, b_max, candidates, chains, group_size, icc, split, effect
    )
    shares = (
        coverage if union_coverage is None else union_coverage,
        calls if union_calls is None else union_calls,
    )
    rows = [_row(case, claim, odds, shares) for claim in CLAIMS for odds in dict.fromkeys((0.5, power))]
    limit = LARGEST_STAGE
    if risk < rho:
        limit = math.ceil(math.log(chains / delta) / float(binary_kl(risk, rho)))
    at_hand = None if labels is None else reach_of_labels(labels, delta, rho=rho, chains=chains, risk=risk)
    least = {claim: _least(case, claim) for claim in CLAIMS}
    return Plan(tuple(rows), effect, candidates, chains, limit, least, at_hand)


def reach_of_labels(
    labels: int, delta: float, *, rho: float, chains: int = 1, risk: float | None = None
) -> AtHand:
    """Say what a number of labelled admitted records can certify at best under ``frozen``.

    Args:
        labels: Labels on admitted records.
        delta: Failure probability of the stage.
        rho: Wanted tolerance.
        chains: Chains among which ``delta`` is shared.
        risk: Expected harm.

    Returns:
        What they can do.

    Example:
        >>> reach_of_labels(35, 0.05, rho=0.08).largest_risk is None
        True
    """
    check_rate(delta, "delta")
    check_rate(rho, "rho")
    if labels < 0 or chains < 1:
        expected = "no negative number of labels and at least one chain"
        raise InputError(expected, f"labels={labels}, chains={chains}")
    alpha = delta / chains
    smallest = float(np.asarray(clopper_pearson_upper(labels, 0, alpha)))
    critical = float(frozen_critical_count(np.array([float(labels)]), rho, alpha)[0])
    largest = float(special.betaincinv(critical + 1.0, labels - critical, 0.5)) if critical >= 0 else None
    expected_rho = chance = None
    if risk is not None:
        found = min(math.floor(labels * risk + 0.5), labels)
        expected_rho = float(np.asarray(clopper_pearson_upper(labels, found, alpha)))
        chance = (
            float(special.betainc(labels - critical, critical + 1.0, 1.0 - risk)) if critical >= 0 else 0.0
        )
    return AtHand(labels, round(smallest, 6), expected_rho, largest, chance)


@dataclass(frozen=True, slots=True)
class _Case:
    rho: float
    delta: float
    risk: float
    coverage: float
    calls: float
    c_min: float
    b_max: float
    candidates: int
    chains: int
    group_size: int
    icc: float
    split: tuple[float, float, float]
    effect: float


def _row(case: _Case, claim: str, power: float, shares: tuple[float, float]) -> PlanRow:
    needs = {"risk": _risk_records(case, claim, power), **_rate_records(case, claim)}
    binding = max(needs, key=lambda name: math.inf if needs[name] is None else needs[name] or 0)
    records = needs[binding]
    if records is None or records > LARGEST_STAGE:
        return PlanRow(claim, power, None, 0, 0, 0, 0, binding)
    return PlanRow(
        claim,
        power,
        records,
        groups=math.ceil(records / case.group_size),
        admitted=round(records * case.coverage),
        labels=math.ceil(records * shares[0] - 1e-9),
        secondary_calls=math.ceil(records * shares[1] - 1e-9),
        binding=binding,
    )


def _risk_records(case: _Case, claim: str, power: float) -> int | None:
    rho, risk, coverage = case.rho, case.risk, case.coverage
    if claim == "hoeffding":
        return records_for_hoeffding(
            rho, risk, coverage, case.delta, case.candidates, power, design_effect=case.effect
        )
    alpha = _level(case, claim)
    if case.group_size == 1:
        if claim == "frozen":
            return records_for_frozen(rho, risk, coverage, alpha, power)
        return records_for_sequential(rho, risk, coverage, alpha, power)
    level = -math.log(alpha)

    def frozen_stake(groups: float, square: float) -> float:
        return min(0.99 / (1.0 - rho), math.sqrt(2.0 * level / (rho * (1.0 - rho) * groups * square)))

    def sequential_stake(groups: float, square: float) -> float:
        eps = planned_bet(groups * coverage, rho, level - math.log(PLANNED_SHARE))
        return float(np.asarray(eps)) / (1.0 - rho)

    frozen = claim == "frozen"
    return records_for_group_bets(
        rho,
        risk,
        coverage,
        alpha,
        power,
        group_size=case.group_size,
        icc=case.icc,
        stake=frozen_stake if frozen else sequential_stake,
        log_loss=0.0 if frozen else -math.log(PLANNED_SHARE),
    )


def _least(case: _Case, claim: str) -> int:
    if claim == "hoeffding":
        return math.ceil(math.log(3.0 * case.candidates / case.delta) / (2.0 * case.rho**2 * case.coverage))
    return least_admitted(case.rho, _level(case, claim), sequential=claim == "sequential")


def _level(case: _Case, claim: str) -> float:
    """The level at which one candidate is tested for harm."""
    return case.delta / case.chains if claim == "frozen" else case.delta * case.split[0] / case.candidates


def _rate_records(case: _Case, claim: str) -> dict[str, int | None]:
    """Records at which coverage and calls, at their expected values, are known well enough."""
    if claim == "frozen":
        return {
            "coverage": 1 if case.coverage >= case.c_min else None,
            "calls": 1 if case.calls <= case.b_max else None,
        }
    out: dict[str, int | None] = {}
    rates = (("coverage", 1.0 - case.coverage, 1.0 - case.c_min), ("calls", case.calls, case.b_max))
    for place, (name, rate, bound) in enumerate(rates, start=1):
        if bound >= 1.0 and claim != "hoeffding":
            out[name] = 1
        elif rate >= bound:
            out[name] = None
        elif claim == "hoeffding":
            level = math.log(3.0 * case.candidates / case.delta)
            out[name] = math.ceil(level / (2.0 * (bound - rate) ** 2))
        else:
            level = -math.log(PLANNED_SHARE * case.delta * case.split[place] / case.candidates)
            scale = case.group_size if name == "coverage" else 1
            out[name] = math.ceil(scale * level / float(binary_kl(rate, bound)))
    return out
