"""Two drawings of the flow: where labels may enter, and how a stage is certified and renewed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vapo.studies import style
from vapo.studies.framework import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["drawings"]

_BLUE, _ORANGE, _GREEN, _PURPLE = "#DCEBF7", "#FDE3CF", "#D8F0E6", "#F3DFEA"
_EDGES = {_BLUE: "#0072B2", _ORANGE: "#D55E00", _GREEN: "#009E73", _PURPLE: "#CC79A7"}


class _Board:
    """A panel of one column's width on which boxes and arrows are placed in hundredths of that width."""

    def __init__(self, panel: Axes, height: float) -> None:
        self.panel = panel
        panel.set_xlim(0, 100)
        panel.set_ylim(-height, 0)
        panel.axis("off")

    def box(self, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
        """A box with its upper left corner at x, y (downwards); the first line of its text is its name."""
        from matplotlib.patches import FancyBboxPatch

        shape = FancyBboxPatch(
            (x, -y - height), width, height, boxstyle="round,pad=0,rounding_size=1.2", linewidth=0.9,
            facecolor=colour, edgecolor=_EDGES[colour],
        )  # fmt: skip
        self.panel.add_patch(shape)
        name, _, rest = text.partition("\n")
        middle, lines = x + width / 2, rest.count("\n") + 1 if rest else 0
        top = -y - height / 2 + 2.05 * lines
        self.panel.text(
            middle, top, name, ha="center", va="center", fontsize=6.6, weight="bold", color=style.BLACK
        )
        if rest:
            self.panel.text(
                middle,
                top - 2.4,
                rest,
                ha="center",
                va="top",
                fontsize=6.1,
                color=style.BLACK,
                linespacing=1.25,
            )

    def arrow(self, *points: tuple[float, float], dashed: bool = False) -> None:
        """A line through points, with a head at its end."""
        line = "--" if dashed else "-"
        xs, ys = [x for x, _ in points], [-y for _, y in points]
        self.panel.plot(xs[:-1], ys[:-1], line, color=style.BLACK, linewidth=0.9, solid_capstyle="butt")
        head = {"arrowstyle": "-|>", "color": style.BLACK, "linewidth": 0.9, "linestyle": line}
        whole = {"shrinkA": 0, "shrinkB": 0, "mutation_scale": 7}
        self.panel.annotate("", (xs[-1], ys[-1]), (xs[-2], ys[-2]), arrowprops={**head, **whole})

    def note(
        self, x: float, y: float, text: str, *, align: str = "center", colour: str = style.BLACK
    ) -> None:
        """Words beside the boxes."""
        self.panel.text(x, -y, text, ha=align, va="center", fontsize=6.1, color=colour, style="italic")


def drawings() -> Iterator[Drawing]:
    """Both drawings, which need no rows."""
    yield _algorithm()
    yield _certification()


def _algorithm() -> Drawing:
    figure, (panel,) = style.canvas(height=3.9)
    board = _Board(panel, 116)
    board.box(1, 1, 30, 17, "Primary verifier\nsign y\nsignals, sources", _BLUE)
    board.box(35, 1, 30, 17, "Other signals\nconfidence,\nother verdicts", _BLUE)
    board.box(69, 1, 30, 17, "Frozen proposal\nsize Δr\nmeasured KL k", _BLUE)
    accept, appeal = r"$s \geq \tau_\mathrm{high}$", r"$\tau_\mathrm{low} \leq s < \tau_\mathrm{high}$"
    board.box(
        1, 26, 44, 20, f"Score s and policy g\naccept: {accept}\nappeal: {appeal}\nelse: abstain", _ORANGE
    )
    board.box(55, 26, 40, 20, "Secondary verifier\nfinite calls a window;\nconfirms, or nothing", _ORANGE)
    board.arrow((16, 18), (16, 26))
    board.arrow((40, 18), (40, 26))
    board.arrow((45, 32), (55, 32))
    board.arrow((55, 40), (45, 40))
    board.note(50, 29.5, "asks")
    board.note(50, 42.8, "y₂, c₂")
    board.box(1, 53, 44, 16, "Final sign ȳ ∈ {−1, 0, +1}\ndirection; 0 is abstain", _ORANGE)
    board.arrow((23, 46), (23, 53))
    board.box(55, 53, 40, 16, "Magnitude m ≥ 0\nmax(0, w·min(Δr, ε) − β·k)\nw, ε, β bounded, from s", _ORANGE)
    board.arrow((97.5, 18), (97.5, 61), (95, 61))
    board.box(19, 75, 62, 12, "Frozen trace\nupdate ũ = ȳ·m: m cannot turn ȳ round", _PURPLE)
    board.arrow((24, 69), (24, 75))
    board.arrow((76, 69), (76, 75))
    panel.plot([0, 100], [-92, -92], color=style.BLACK, linewidth=1.1, linestyle=(0, (4, 2)))
    board.note(1, 89.8, "no label above", align="left")
    board.note(99, 94.4, "labels enter below", align="right")
    board.box(1, 98, 30, 14, "Clean sign z\na file of its own", _GREEN)
    board.box(41, 98, 58, 14, "Evaluation of z·ũ\n" r"U, R, Z, C; selected risk $R_\mathrm{sel}$", _GREEN)
    board.arrow((31, 105), (41, 105))
    board.arrow((70, 87), (70, 98))
    return Drawing(
        "vapo-algorithm",
        "fig:vapo-algorithm",
        "What is known when. Blue: observations and the frozen proposal. Orange: what decides direction (left) and "
        "magnitude (right). Purple: the trace, frozen before any label. Green: evaluation, which alone sees labels.",
        figure,
    )


def _certification() -> Drawing:
    figure, (panel,) = style.canvas(height=3.6)
    board = _Board(panel, 107)
    left, right, width = 9, 56, 43
    board.box(left, 1, width, 17, "Design split\nobservations only:\nscore and thresholds", _BLUE)
    board.box(
        right,
        1,
        width,
        17,
        "Family frozen\ncandidates, budget, chains;\n" r"ρ, $C_\mathrm{min}$, $B_\mathrm{max}$, δ",
        _BLUE,
    )
    board.arrow((left + width, 9.5), (right, 9.5))
    board.box(
        right, 26, width, 17, "Certification sequence\nrecords in declared order,\na budget a window", _ORANGE
    )
    board.box(
        left,
        26,
        width,
        17,
        "Every candidate decides\naccept, appeal, abstain;\ncalls spent when asked",
        _ORANGE,
    )
    board.arrow((right + width / 2, 18), (right + width / 2, 26))
    board.arrow((right, 34.5), (left + width, 34.5))
    board.box(left, 51, width, 17, "Trace frozen\nactions, sources,\nbudget before and after", _PURPLE)
    board.box(right, 51, width, 17, "Labels joined\nonly with the digest\nof the frozen trace", _PURPLE)
    board.arrow((left + width / 2, 43), (left + width / 2, 51))
    board.arrow((left + width, 59.5), (right, 59.5))
    board.box(right, 76, width, 17, "Certificate\nrisk, coverage, calls;\nor refused: abstain", _PURPLE)
    board.box(left, 76, width, 17, "Deployed policy\ngate, bounded magnitude,\nspot checks", _GREEN)
    board.arrow((right + width / 2, 68), (right + width / 2, 76))
    board.arrow((right, 84.5), (left + width, 84.5))
    board.arrow((left, 84.5), (3, 84.5), (3, 9.5), (left, 9.5), dashed=True)
    board.note(
        50,
        100,
        "dashed: rollouts, verifier, prompt or task change:\na new stage with fresh records and its share of δ",
    )
    return Drawing(
        "sequential-certification",
        "fig:sequential-certification",
        "Certification of one stage, and its renewal. Blue: built from observations. Orange: executed by every "
        "candidate under a shared budget. Purple: bound to the frozen trace. Green: at work. The dashed way back opens "
        "a new stage.",
        figure,
    )
