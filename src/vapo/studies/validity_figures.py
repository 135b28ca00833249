"""The picture of the validity study: false certificates against δ, and how many records a certificate needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from vapo.studies import style
from vapo.studies.framework import Drawing, Estimate, Row, Table
from vapo.studies.validity_paper import DELTA, LONG, SHORT, TARGETS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["figures"]

_NAMES = {"hoeffding": "the paper's (Hoeffding)", "sequential": "sequential", "frozen": "frozen"}
_SHORT = {
    "No shared-budget coupling": "no coupling",
    "Shared budget": "shared budget",
    "Shared budget + permutation": "permuted",
    "Correlated verifiers": "correlated",
}


def figures(rows: Sequence[Row], tables: Sequence[Table]) -> Iterator[Drawing]:
    """The study's one picture.

    Args:
        rows: Not looked at: every number is a cell of a table.
        tables: As the study made them.
    """
    del rows
    found = {table.name: table for table in tables}
    figure, (above, below) = style.canvas(1, 2, height=4.5)
    cells = {(cell.row, cell.quantity): cell.ours for cell in found["primary-checks-sensitivity"].cells}
    tallest = 0.0
    for number, claim in enumerate(_NAMES):
        for place, setting in enumerate(_SHORT):
            ours = cells[f"{setting}, 0.08", f"boundary, {claim}"]
            tallest = max(tallest, _rate(above, place + 0.2 * (number - 1), ours, number))
    above.axhline(DELTA, color=style.BLACK, linestyle="--", linewidth=1.0)
    above.set_xticks(range(len(_SHORT)), list(_SHORT.values()))
    above.grid(visible=False, axis="x")
    above.set_xlim(-0.45, 3.45)
    # At small scales intervals reach far beyond δ, and nothing of them may be cut off.
    above.set_ylim(0.0, max(0.062, 1.05 * tallest))
    above.text(3.5, DELTA, "δ", va="center", color=style.BLACK)
    above.set_ylabel("share of stages")
    above.set_title("No policy is safe, yet one is certified")
    for number, (claim, name) in enumerate(_NAMES.items()):
        line = [cell for cell in found["stage-sizes"].cells if cell.quantity == claim]
        # Claims stand a little beside each other, so that no interval hides another.
        sizes = [
            int(cell.row.partition(" ")[0].replace(",", "")) * 2 ** (0.14 * (number - 1)) for cell in line
        ]
        shares: list[Any] = [cell.ours.value for cell in line]
        below.plot(sizes, shares, color=style.COLOURS[number], linewidth=0.9, zorder=1)
        for size, cell in zip(sizes, line, strict=True):
            _rate(below, size, cell.ours, number, name if size == sizes[0] else None)
    below.axvline(SHORT, color=style.BLACK, linestyle=":", linewidth=1.0)
    below.plot(
        [SHORT], [TARGETS[0.08].satisfied / 60], "X", color=style.BLACK, clip_on=False, zorder=4, linestyle="none"
    )  # fmt: skip
    below.text(
        SHORT * 1.25, 1.0, f"the paper's\n{TARGETS[0.08].satisfied} of 60,\n512 records", va="top", fontsize=7,
        color=style.BLACK,
    )  # fmt: skip
    below.set_xscale("log", base=2)
    below.set_xticks([512, 4096, LONG, 65_536, 262_144], ["512", "4,096", "16,384", "65,536", "262,144"])
    below.set_ylim(-0.03, 1.03)
    below.set_xlabel("records of the certification stage")
    below.set_ylabel("share of stages")
    below.set_title("A safe policy (R = .0697) is certified")
    style.legend(figure, below, columns=3)
    yield Drawing(
        "validity",
        "",
        "How often a certificate is issued; bars are 95 % intervals over stages. Above: laws under which no eligible "
        "policy is safe (ρ = .08), so that it is false; dashed, δ, the share allowed; frozen and sequential on 16,384 "
        "records, the paper's on 262,144. Below: the candidate at the paper's operating point is safe; how often each "
        "claim can say so depends on the number of records. The paper reports 58 of 60 (cross); at its 512 records its "
        "own certificate never can, and it needs some 200,000.",
        figure,
    )


def _rate(panel: Axes, x: float, ours: Estimate, number: int, label: str | None = None) -> float:
    """A rate with its interval; the interval's upper end."""
    assert isinstance(ours.value, float)
    assert ours.low is not None
    assert ours.high is not None
    arms = [[ours.value - ours.low], [ours.high - ours.value]]
    panel.errorbar(
        [x], [ours.value], yerr=arms, fmt=style.MARKERS[number], color=style.COLOURS[number], capsize=2,
        label=label, clip_on=False,
    )  # fmt: skip
    return ours.high
