"""How all pictures look: one column wide, told apart without colour, the same bytes for the same data."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from vapo.errors import InputError
from vapo.studies.framework import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "BLACK",
    "COLOURS",
    "COLUMN",
    "GREY",
    "MARKERS",
    "applied",
    "canvas",
    "interval",
    "legend",
    "render",
    "require",
    "two_ticks",
]

COLUMN = 3.35
"""Width of one column of a two-column page, in inches."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours that people with any kind of colour vision tell apart (Okabe and Ito), strongest first."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""A shape for each colour, for print without any."""

BLACK, GREY = "#222222", "#8A8A8A"

_RC: Any = {
    "axes.edgecolor": "#666666",
    "axes.grid": True,
    "axes.labelcolor": BLACK,
    "axes.labelsize": 7.5,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "grid.alpha": 0.6,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "lines.markersize": 4.5,
    "savefig.facecolor": "white",
    # Identifiers in an SVG are random unless they are salted.
    "svg.hashsalt": "vapo",
    "svg.fonttype": "path",
    "xtick.color": "#444444",
    "xtick.labelsize": 7,
    "xtick.major.size": 2.5,
    "ytick.color": "#444444",
    "ytick.labelsize": 7,
    "ytick.major.size": 2.5,
}


def require() -> None:
    """Make sure that pictures can be drawn before hours go into their rows.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        expected = "matplotlib, which draws the figures: pip install 'audit-first-vapo[studies]'"
        raise InputError(expected, "none installed", where="vapo study") from None


@contextmanager
def applied() -> Iterator[None]:
    """Draw and save inside this."""
    import matplotlib as mpl

    with mpl.rc_context(_RC):
        yield


def canvas(
    columns: int = 1, rows: int = 1, *, width: float = COLUMN, height: float = 2.2, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure that no global state knows, and its panels from left to right and top to bottom.

    Args:
        columns: Panels beside each other.
        rows: Panels above each other.
        width: In inches.
        height: In inches.
        options: For `Figure.subplots`.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(panels.flat)


def legend(figure: Figure, panel: Axes, columns: int = 2) -> None:
    """One legend below all panels, from what one of them shows."""
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.2, handletextpad=0.4
    )


def interval(panel: Axes, place: float, ends: Sequence[float], number: int, label: str | None = None) -> None:
    """One line of a dot plot: a bar from the first to the last of three values, and a mark on the one between.

    Args:
        panel: Where.
        place: Height of the line.
        ends: Lower limit, value, upper limit, in either direction.
        number: Which colour and marker; those after the first are drawn hollow, so that print tells them apart.
        label: For the legend.
    """
    colour, fill = COLOURS[number], "white" if number else COLOURS[number]
    panel.plot([ends[0], ends[2]], [place, place], color=colour, linewidth=1.6, alpha=0.6, zorder=2)
    panel.plot(
        ends[1], place, MARKERS[number], color=colour, markerfacecolor=fill, linestyle="none", label=label, zorder=3
    )  # fmt: skip


def two_ticks(panel: Axes) -> None:
    """Two round numbers below a narrow panel, as far apart as they can be, so that their labels never touch."""
    from matplotlib.ticker import MaxNLocator

    low, high = panel.get_xlim()
    for most in range(1, 10):
        ticks = [
            tick
            for tick in MaxNLocator(most, steps=[1, 2, 5, 10]).tick_values(low, high)
            if low <= tick <= high
        ]
        if len(ticks) > 1:
            digits = max(0, -math.floor(math.log10((ticks[1] - ticks[0]) * 1.0001)))
            panel.set_xticks([ticks[0], ticks[-1]], [f"{tick:.{digits}f}" for tick in (ticks[0], ticks[-1])])
            return


def render(drawing: Drawing) -> dict[str, bytes]:
    """The files of a picture, by name below the study's folder."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    # The canvas settles the layout; without it the first format saved would differ from a second saving.
    FigureCanvasAgg(drawing.figure)
    files = {}
    for ending, metadata in (("svg", {"Date": None, "Creator": None}), ("png", {"Software": None})):
        stream = io.BytesIO()
        drawing.figure.savefig(stream, format=ending, metadata=metadata, dpi=200)
        files[f"figures/{drawing.name}.{ending}"] = stream.getvalue()
    return files
