"""How many records each way to certify needs, beside what no test can do without.

    python -m benchmarks.sharpness --page docs/sharpness.md

The three claims come from the planner. For the peers the chance of a certificate is summed here over all
admitted and harmful counts: an exact binomial test and MAPIE's Hoeffding-Bentkus p-value with Bonferroni over
the family, and the empirical Bernstein bound of Maurer and Pontil on harm minus rho times admission.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from vapo.certification.evidence import binary_kl
from vapo.certification.plan import plan
from vapo.certification.power import frozen_power, sequential_power
from vapo.certification.required import records_for_frozen, records_for_hoeffding, records_for_sequential

__all__ = [
    "POINTS",
    "Need",
    "Point",
    "chance",
    "checks",
    "information_limit",
    "main",
    "needs",
    "page",
    "power_floor",
]

Floats = npt.NDArray[np.float64]
Passes = Callable[[Floats, Floats, float, "Point", float], npt.NDArray[np.bool_]]
"""Whether counts certify: admitted, harmful, records, operating point, level."""

DELTA = 0.05
SIZES = (20, 200)
ODDS = (0.5, 0.9)
SUMMARY = (__doc__ or "").split("\n", maxsplit=1)[0]
MAPIE = importlib.util.find_spec("mapie") is not None


@dataclass(frozen=True, slots=True)
class Point:
    """What is tolerated and what is true."""

    rho: float
    risk: float
    coverage: float

    def __str__(self) -> str:
        return f"rho {self.rho:.2f}, R {self.risk:.4f}, C {self.coverage:.4f}"


POINTS = (
    Point(0.10, 0.0838, 0.5031),
    Point(0.08, 0.0697, 0.4125),
    Point(0.06, 0.0554, 0.3018),
    Point(0.08, 0.04, 0.4125),
    Point(0.08, 0.02, 0.4125),
)


@dataclass(frozen=True, slots=True)
class Need:
    """Records that one way needs at even odds and at 90 % power."""

    way: str
    records: tuple[int | None, int | None]


def binomial_passes(k: Floats, h: Floats, n: float, point: Point, level: float) -> npt.NDArray[np.bool_]:
    """The exact binomial test of one candidate."""
    inside = h < k
    tail = special.betainc(np.where(inside, k - h, 1.0), h + 1.0, 1.0 - point.rho)
    return np.asarray(inside & (tail <= level))


def bernstein_passes(k: Floats, h: Floats, n: float, point: Point, level: float) -> npt.NDArray[np.bool_]:
    """Maurer and Pontil's bound for the mean of harm minus rho times admission, whose range is one."""
    total = h - point.rho * k
    squares = h * (1.0 - point.rho) ** 2 + (k - h) * point.rho**2
    variance = np.maximum(squares - total**2 / n, 0.0) / (n - 1.0)
    log = math.log(2.0 / level)
    return np.asarray(total / n + np.sqrt(2.0 * variance * log / n) + 7.0 * log / (3.0 * (n - 1.0)) <= 0)


def mapie_passes(
    k: Floats, h: Floats, n: float, point: Point, level: float, *, binary: bool
) -> npt.NDArray[np.bool_]:
    """MAPIE's p-value on the admitted records; `binary` is how its controller for classifiers calls it."""
    from mapie.risk_control.methods import compute_hoeffding_bentkus_p_value

    found = compute_hoeffding_bentkus_p_value(h / k, k, point.rho, binary)
    return np.asarray(found[:, 0] <= level)


WAYS: dict[str, Passes] = {
    "exact binomial, Bonferroni": binomial_passes,
    "empirical Bernstein, Bonferroni": bernstein_passes,
}
if MAPIE:
    WAYS["MAPIE LTT as for classifiers, Bonferroni"] = functools.partial(mapie_passes, binary=True)
    WAYS["MAPIE LTT for any bounded loss, Bonferroni"] = functools.partial(mapie_passes, binary=False)


def chance(n: int, point: Point, passes: Passes, level: float) -> float:
    """Probability of a certificate with n records, over binomial admitted and harmful counts."""
    law = stats.binom(n, point.coverage)
    first, last = (int(law.ppf(q)) for q in (1e-9, 1 - 1e-9))
    k = np.arange(max(first, 1), last + 1, max((last - first) // 400, 1), dtype=np.float64)
    weights = law.pmf(k)
    low, high = np.full(k.shape, -1.0), np.ceil(k * point.rho)
    while np.any(high - low > 1):
        middle = np.floor((low + high) / 2.0)
        good = passes(k, np.maximum(middle, 0.0), float(n), point, level) & (middle >= 0)
        wide = high - low > 1
        low, high = np.where(wide & good, middle, low), np.where(wide & ~good, middle, high)
    found = np.where(low >= 0, stats.binom.cdf(low, k, point.risk), 0.0)
    return float((weights * found).sum() / weights.sum())


def search(point: Point, passes: Passes, level: float, odds: float) -> int:
    """Smallest n with the wanted chance, to one part in ten thousand."""
    low, high = 1, 64
    while chance(high, point, passes, level) < odds:
        low, high = high, 2 * high
    while high - low > max(1, high // 10_000):
        middle = (low + high) // 2
        low, high = (low, middle) if chance(middle, point, passes, level) >= odds else (middle, high)
    return high


def information_limit(point: Point, chains: int = 1) -> float:
    """Admitted records at which the best bet expects the log evidence that is asked for."""
    return math.log(chains / DELTA) / float(binary_kl(point.risk, point.rho))


def power_floor(point: Point, odds: float, chains: int = 1) -> float:
    """Admitted records without which no test at all has this power, by the data-processing inequality."""
    return float(binary_kl(odds, DELTA / chains)) / float(binary_kl(point.risk, point.rho))


def needs(point: Point, size: int) -> list[Need]:
    """What every way needs for a family of one size."""
    rows = []
    for claim, chains in (("frozen", 1), ("frozen", 10), ("sequential", 1), ("hoeffding", 1)):
        costs = plan(
            rho=point.rho,
            delta=DELTA,
            risk=point.risk,
            coverage=point.coverage,
            candidates=size,
            chains=chains,
            power=ODDS[1],
        )
        name = claim if claim != "frozen" else f"frozen, {chains} chain{'s' if chains > 1 else ''}"
        rows.append(Need(name, (costs.row(claim, ODDS[0]).records, costs.row(claim, ODDS[1]).records)))
    for way, passes in WAYS.items():
        found = [search(point, passes, DELTA / size, odds) for odds in ODDS]
        rows.append(Need(way, (found[0], found[1])))
    return rows


def reference() -> list[tuple[str, list[int | None], list[int]]]:
    """The planner's own reference table: what it gives now and what it must give."""
    rows: list[tuple[str, Callable[[float, float], int | None], list[int]]] = [
        (
            "Clopper-Pearson, one chain",
            lambda risk, odds: records_for_frozen(0.08, risk, 0.4125, DELTA, odds),
            [4604, 13814, 311, 779],
        ),
        (
            "0.9 planned bet + 0.1 mixture, at delta",
            lambda risk, odds: records_for_sequential(0.08, risk, 0.4125, DELTA, odds),
            [9928, 22550, 544, 1197],
        ),
        (
            "the same at delta / 20",
            lambda risk, odds: records_for_sequential(0.08, risk, 0.4125, DELTA / 20, odds),
            [19602, 36268, 1101, 1961],
        ),
        (
            "Hoeffding, 1 candidate",
            lambda risk, odds: records_for_hoeffding(0.08, risk, 0.4125, DELTA, 1, odds),
            [113405, 149082, 7520, 9334],
        ),
        (
            "Hoeffding, 20 candidates",
            lambda risk, odds: records_for_hoeffding(0.08, risk, 0.4125, DELTA, 20, odds),
            [196381, 242559, 13022, 15378],
        ),
    ]
    return [
        (name, [f(risk, odds) for risk in (0.0697, 0.04) for odds in ODDS], want) for name, f, want in rows
    ]


def published_chances() -> list[dict[float, float]]:
    """The chance of a certificate at the published sizes of the binomial test and of the bets, by wanted odds."""
    tests = (
        lambda n, risk: frozen_power(n, 0.4125, risk, 0.08, DELTA),
        lambda n, risk: sequential_power(n, 0.4125, risk, 0.08, DELTA),
        lambda n, risk: sequential_power(n, 0.4125, risk, 0.08, DELTA / 20),
    )
    found = []
    for power, (_, _, want) in zip(tests, reference(), strict=False):
        for risk, sizes in ((0.0697, want[:2]), (0.04, want[2:])):
            found.append({odds: power(size, risk) for odds, size in zip(ODDS, sizes, strict=True)})
    return found


def checks() -> list[tuple[str, bool]]:
    """What is claimed about sharpness, and whether it is so."""
    found = []
    for point in POINTS:
        records = records_for_frozen(point.rho, point.risk, point.coverage, DELTA, ODDS[1])
        admitted = math.inf if records is None else records * point.coverage
        ratio, floor = admitted / information_limit(point), admitted / power_floor(point, ODDS[1])
        text = (
            f"{point}: `frozen` with one chain at 90 % power admits {ratio:.2f} times the information limit "
            f"(wanted: at most 1.5) and {floor:.2f} times what any test needs for that power"
        )
        found.append((text, ratio <= 1.5))
    second = POINTS[1]
    for odds, wanted in ((ODDS[1], 15), (ODDS[0], 40)):
        frozen = records_for_frozen(second.rho, second.risk, second.coverage, DELTA, odds)
        radius = records_for_hoeffding(second.rho, second.risk, second.coverage, DELTA, 20, odds)
        times = (radius or 0) / (frozen or math.inf)
        when = "expected counts (even odds)" if odds == ODDS[0] else "90 % power"
        text = f"{second}, 20 candidates, {when}: `hoeffding` needs {times:.1f} times the records of `frozen`"
        text += f" (wanted: at least {wanted})"
        found.append((text, times >= wanted))
    own = search(second, binomial_passes, DELTA, ODDS[1])
    planned = records_for_frozen(second.rho, second.risk, second.coverage, DELTA, ODDS[1]) or 0
    text = (
        f"the solver of the peers' rows and the planner agree on the exact binomial test: {own} and {planned}"
    )
    found.append((text, abs(own - planned) <= 0.001 * planned))
    return found


def reference_table() -> list[str]:
    """Every published number beside ours, and how far they are apart."""
    rows = reference()
    pairs = [pair for _, got, want in rows for pair in zip(got, want, strict=True)]
    same = sum(a == b for a, b in pairs)
    apart = max(abs((a or 0) - b) / b for a, b in pairs)
    even, high = (
        f"{min(found):.2%} to {max(found):.2%}"
        for found in ([chances[odds] for chances in published_chances()] for odds in ODDS)
    )
    lines = [
        "## The reference table",
        "",
        f"Records, ours (published), at rho 0.08 and C 0.4125. {same} of {len(pairs)} numbers come out to "
        f"the digit; the others are up to {apart:.2%} apart. Ours are the smallest stages at which sums over "
        "all admitted and harmful counts reach the wanted chance (`tests/certification/test_plan.py` adds "
        "them up one by one). At the published sizes of the binomial test and of the bets the same sums give "
        f"{even} for even odds and {high} for 90 %, so that both are the same plan.",
        "",
        "| test | R .0697, even odds | R .0697, 90 % | R .04, even odds | R .04, 90 % |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, got, want in rows:
        cells = [f"{_number(a)} ({b:,})" for a, b in zip(got, want, strict=True)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


HEAD = """# How sharp are the certificates?

Records of a stage, records that the certified candidate admits, labels and secondary calls, at expected
counts (even odds of a certificate) and at 90 % power, delta {delta:g}. `R` is the true harm among admitted
records, `C` the coverage. Assumed: groups of one record; coverage and calls far from their limits, so that
harm decides; the certified candidate is the least selective one, so that it admits whatever any candidate
admits and labels equal admitted records (otherwise labels = union coverage x records); candidates together
appeal {calls:.0%} of the records (`--calls`).

- `frozen` pays for chains, not for candidates: its rows are the same for every family size.
- `sequential` and `hoeffding` hold under any dependence; all other rows need independent labels. Only
  `sequential` may be read at any moment.
- The peers get {delta:g} / candidates each. MAPIE's rows are its own p-value; its Holm variant has the same
  first step.
- **Information limit**: log(chains / delta) / KL(R || rho) admitted records, where the best bet *expects*
  enough evidence. A test that is read once can do with fewer at even odds.
- **Power floor**: kl(power || delta / chains) / KL(R || rho); below it no test of any kind has that power.
- `hoeffding` is planned with normal fluctuations, everything else sums over binomial counts.

Made by `python -m benchmarks.sharpness --page docs/sharpness.md`.
"""


def _number(value: float | None) -> str:
    return "none" if value is None else f"{math.ceil(value):,}"


def page(calls: float) -> tuple[str, bool]:
    """The page, and whether every claim on it is met."""
    results = checks()
    lines = [HEAD.format(delta=DELTA, calls=calls)]
    lines += ["## What is claimed", ""]
    lines += [f"- {'yes' if met else '**NO**'}: {text}" for text, met in results]
    lines += [
        "",
        "For a fixed admitted count the binomial test is the most powerful one there is, so no valid test of "
        "`frozen`'s null at the same level needs fewer records (apart from randomised ones).",
        "",
        *reference_table(),
        "",
    ]
    if not MAPIE:
        lines += ["MAPIE is not installed here: its rows are missing.", ""]
    cells = "records / admitted / labels / calls"
    for size in SIZES:
        for point in POINTS:
            print(f"{point}, {size} candidates", file=sys.stderr)
            limit = information_limit(point)
            lines += [
                f"## {point}, {size} candidates",
                "",
                f"| way | expected counts: {cells} | 90 % power: {cells} | admitted / information limit |",
                "|---|---:|---:|---:|",
            ]
            for need in needs(point, size):
                parts = [_cell(records, point, calls) for records in need.records]
                chains = 10 if "10 chains" in need.way else 1
                ratios = [
                    "none"
                    if records is None
                    else f"{records * point.coverage / information_limit(point, chains):.2f}"
                    for records in need.records
                ]
                lines.append(f"| {need.way} | {parts[0]} | {parts[1]} | {' / '.join(ratios)} |")
            floors = [power_floor(point, odds) for odds in ODDS]
            cells_of = [f"admitted {_number(value)}" for value in (limit, *floors)]
            lines.append(f"| information limit, one chain | {cells_of[0]} | {cells_of[0]} | 1 / 1 |")
            ratio = f"{floors[0] / limit:.2f} / {floors[1] / limit:.2f}"
            lines.append(f"| power floor, one chain | {cells_of[1]} | {cells_of[2]} | {ratio} |")
            lines.append("")
    return "\n".join(lines), all(met for _, met in results)


def _cell(records: int | None, point: Point, calls: float) -> str:
    if records is None:
        return "none"
    admitted = _number(records * point.coverage)
    return f"{records:,} / {admitted} / {admitted} / {_number(records * calls)}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; fail when a claim on it is not met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sharpness", description=SUMMARY)
    parser.add_argument("--page", type=Path, help="where to write the page (default: standard output)")
    parser.add_argument(
        "--calls", type=float, default=0.15, help="share of records that some candidate appeals"
    )
    given = parser.parse_args(arguments)
    text, met = page(given.calls)
    if given.page is None:
        print(text)
    else:
        given.page.parent.mkdir(parents=True, exist_ok=True)
        given.page.write_text(text, encoding="utf-8")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
