"""The corruption of each study on the fixture: what the paper states, and the constants inferred from its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from vapo.studies.fixture import Corruption, Part

__all__ = [
    "FRONTIER",
    "PARSER",
    "PRIMES",
    "REPLAY",
    "SEVERITY",
    "Reading",
    "attainable",
    "parts",
    "spread",
]

PRIMES = (
    13, 17, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101,
    103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199,
)  # fmt: skip
"""Seeds, from the paper's own 13, 17 and 23 on."""

REPLAY = Corruption("replay", trigger=0.40, flip=0.35)
"""The fixed replay: four records in ten are corrupted, and each of their views is wrong with chance 0.35."""

PARSER = Corruption("parser", side="right", trigger=0.5, flip=0.5)
"""Parser equivalence: half of the right answers have an equivalent form, which each parser misses every second time."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the paper's names for its corruption cases mean in draws, where it does not say.

    Example:
        >>> [case.name for case in Reading().cases()][-1], len(Reading(clean=False).cases())
        ('none', 5)
        >>> round(sum(case.error for case in Reading().cases()) / 6, 4)
        0.3208
    """

    symmetric: Literal["coin", "turned", "view"] = "coin"
    """At s: a share s of records has coins for views; or each view is turned with chance s; or with chance s/2."""
    one_sided: float = 1.0
    """A view of a wrong (right) answer is turned with this times s, for false positives (negatives)."""
    shortcut: Literal["all", "wrong"] = "all"
    """Whether the shortcut turns views of all records or only of wrong answers."""
    clean: bool = True
    """Whether a sixth case without corruption is there."""
    correlation: float = 0.0
    """Correlation of the flips of two views of a corrupted record."""

    def cases(self) -> tuple[Corruption, ...]:
        """The corruption cases, in the paper's order."""
        found = [self._symmetric(0.55), self._symmetric(0.70)]
        found += [
            Corruption("false-positive-60", "wrong", flip=0.6 * self.one_sided),
            Corruption("false-negative-60", "right", flip=0.6 * self.one_sided),
            Corruption("shortcut-70", self.shortcut, flip=0.7),
        ]
        if self.clean:
            found.append(Corruption("none"))
        return tuple(replace(case, correlation=self.correlation) for case in found)

    def _symmetric(self, severity: float) -> Corruption:
        name = f"symmetric-{severity * 100:.0f}"
        if self.symmetric == "coin":
            return Corruption(name, trigger=severity, flip=0.5)
        return Corruption(name, flip=severity if self.symmetric == "turned" else severity / 2)


FRONTIER = Reading()
"""What reproduces the frontier's static row, its selected risks and the frozen trust threshold."""
SEVERITY = Reading(one_sided=0.5)
"""What reproduces the disjoint-severity rows."""


def parts(cases: tuple[Corruption, ...], size: int, *, first: int = 0) -> list[Part]:
    """The same number of records of every case.

    Args:
        cases: The corruption cases.
        size: Records of each.
        first: The number of the first.

    Example:
        >>> sum(part.size for part in parts(FRONTIER.cases(), 128))
        768
    """
    return [Part(case, size, first) for case in cases]


def spread(cases: tuple[Corruption, ...], total: int, *, first: int = 0) -> list[Part]:
    """A number of records in all, spread over the cases as evenly as it goes.

    Args:
        cases: The corruption cases.
        total: Records altogether.
        first: The number of the first of each case.

    Example:
        >>> [part.size for part in spread(FRONTIER.cases(), 128)]
        [22, 22, 21, 21, 21, 21]
    """
    least, rest = divmod(total, len(cases))
    return [Part(case, least + (place < rest), first) for place, case in enumerate(cases)]


def attainable(printed: float, records: int, decimals: int = 4) -> int | None:
    """The count whose share of the records rounds to the printed number, a half either way; None if no count does.

    Args:
        printed: A share as printed.
        records: The denominator.
        decimals: Digits printed.

    Example:
        >>> attainable(0.2630, 768), attainable(0.2630, 640), attainable(0.1391, 1280)
        (202, None, 178)
    """
    count = round(printed * records)
    near = (count - 1, count, count + 1)
    return next((n for n in near if round(abs(n / records - printed), 12) <= 0.5 * 10.0**-decimals), None)
