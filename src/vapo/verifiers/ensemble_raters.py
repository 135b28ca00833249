"""How often several verifiers err, learnt from their verdicts alone (Dawid and Skene's latent classes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vapo.errors import InputError
from vapo.scores.latent import estimate

__all__ = ["FEWEST", "Raters", "as_votes", "fit_raters"]

FEWEST = 3
"""Below this number error rates cannot be told from verdicts: two verifiers that disagree do not say who is wrong."""


def as_votes(votes: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Verdicts of several verifiers (columns) on some items (rows): +1, -1, or 0 for none."""
    table = np.asarray(votes)
    if table.ndim != 2 or not np.isin(table, (-1, 0, 1)).all():
        expected = "rows of signs in {-1, 0, +1}, one column a verifier"
        raise InputError(
            expected, f"shape {table.shape}, values {np.unique(table)[:5].tolist()}", where="votes"
        )
    return table.astype(np.int8)


@dataclass(frozen=True, slots=True)
class Raters:
    """What is believed of some verifiers: they err independently of each other, given whether an answer is right.

    Example:
        >>> raters = Raters(0.5, (0.9, 0.9, 0.8), (0.1, 0.1, 0.2))
        >>> raters.posterior([[1, 1, -1], [0, 0, 0]]).round(3).tolist()
        [0.953, 0.5]
    """

    prior: float
    """Share of right answers."""
    yes_if_right: tuple[float, ...]
    """For each verifier, how often it accepts a right answer."""
    yes_if_wrong: tuple[float, ...]
    """For each verifier, how often it accepts a wrong answer."""

    def __post_init__(self) -> None:
        rates = (self.prior, *self.yes_if_right, *self.yes_if_wrong)
        if len(self.yes_if_right) != len(self.yes_if_wrong) or not all(0.0 < rate < 1.0 for rate in rates):
            expected = "two rates strictly between 0 and 1 for each verifier, and such a prior"
            raise InputError(expected, repr(self), where="raters")

    def as_dict(self) -> dict[str, Any]:
        """The rates as plain data."""
        right, wrong = list(self.yes_if_right), list(self.yes_if_wrong)
        return {"prior": self.prior, "yes_if_right": right, "yes_if_wrong": wrong}

    def posterior(self, votes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The chance that each answer is right, given the verdicts that there are."""
        table = as_votes(votes)
        if table.shape[1] != len(self.yes_if_right):
            expected = f"verdicts of {len(self.yes_if_right)} verifiers"
            raise InputError(expected, str(table.shape[1]), where="votes")
        sides = []
        for share, rates in ((self.prior, self.yes_if_right), (1 - self.prior, self.yes_if_wrong)):
            weight = np.full(len(table), share)
            for column, rate in enumerate(rates):
                said = table[:, column]
                weight = weight * np.select([said > 0, said < 0], [rate, 1 - rate], 1.0)
            sides.append(weight)
        return np.asarray(sides[0] / (sides[0] + sides[1]))


def fit_raters(votes: npt.ArrayLike) -> Raters:
    """Estimate error rates without labels, starting from the majority.

    Args:
        votes: Verdicts, items by verifiers; 0 for none. Of two solutions that mirror each other the one is found in
            which most verifiers are better than chance.

    Example:
        >>> votes = [[1, 1, 1]] * 45 + [[1, 1, -1]] * 5 + [[-1, -1, -1]] * 45 + [[-1, -1, 1]] * 5
        >>> found = fit_raters(votes)
        >>> round(found.prior, 2), [round(rate, 2) for rate in found.yes_if_right]
        (0.5, [0.99, 0.99, 0.89])
    """
    table = as_votes(votes)
    heard = table[(table != 0).any(axis=1)]
    if table.shape[1] < FEWEST or not len(heard):
        expected = f"verdicts of at least {FEWEST} verifiers"
        raise InputError(expected, f"{len(heard)} items judged by {table.shape[1]}", where="votes")
    distinct, counts = np.unique(heard, axis=0, return_counts=True)
    levels = np.where(distinct == 0, -1, distinct > 0).astype(np.int64)
    # The first observer of the estimate must always speak; one that always says the same says nothing.
    patterns = np.column_stack([np.zeros(len(levels), np.int64), levels])
    start = np.clip((distinct > 0).sum(axis=1) / (distinct != 0).sum(axis=1), 0.05, 0.95)
    columns = table.shape[1]
    prior, tables = estimate(patterns, counts, start, [True] * columns, [1] + [2] * columns)
    wrong, right = (tuple(float(t[side, 1]) for t in tables[1:]) for side in (0, 1))
    return Raters(prior, right, wrong)
