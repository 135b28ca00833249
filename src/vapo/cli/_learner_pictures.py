"""Pictures of learners: held-out accuracy over updates, and where every arm ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vapo.cli import _shared as shared

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_CURVES", "Curve", "curve", "draw_curves", "draw_ends"]

Curve = Sequence[tuple[int, float]]
"""Accuracy by update."""

MOST_CURVES = 6
"""Arms that one panel of curves can tell apart."""


def curve(run: Path) -> list[tuple[int, float]]:
    """Held-out accuracy over a run, by update."""
    from vapo.train.resources import read_chain
    from vapo.train.runner_files import LEDGER

    entries = read_chain(run / LEDGER)
    return [(e.body["update"], e.body["accuracy"]) for e in entries if e.kind == "evaluation.done"]


def draw_curves(panels: Mapping[str, Mapping[str, Sequence[Curve]]], picture: Path) -> str:
    """Accuracy over updates: a panel a condition, a line an arm, its seeds' range around their mean.

    Args:
        panels: Curves of every seed, by condition and arm.
        picture: The file.

    Returns:
        The file's name; empty without matplotlib, and then it is said.
    """
    if not _can_draw():
        return ""
    from vapo.studies.style import COLUMN, applied, canvas, legend

    with applied():
        columns = min(2, len(panels))
        rows = -(-len(panels) // columns)
        size = {"width": COLUMN * (1.0 if columns == 1 else 1.7), "height": 0.5 + 1.9 * rows}
        figure, axes = canvas(columns, rows, **size, sharex=True, sharey=True)
        for panel, (condition, arms) in zip(axes, panels.items(), strict=False):
            _lines(panel, arms)
            panel.set_title(condition)
        for panel in axes[len(panels) :]:
            panel.set_visible(False)
        for panel in axes[::columns]:
            panel.set_ylabel("held-out accuracy")
        for panel in axes[max(0, len(panels) - columns) : len(panels)]:
            panel.set_xlabel("updates")
            panel.tick_params(labelbottom=True)
        legend(figure, axes[0], columns=min(len(next(iter(panels.values()))), 2 * columns))
        figure.savefig(picture, dpi=200)
    return str(picture)


def _lines(panel: Axes, arms: Mapping[str, Sequence[Curve]]) -> None:
    import numpy as np

    from vapo.studies.style import COLOURS, MARKERS

    for number, (arm, curves) in enumerate(arms.items()):
        updates = [update for update, _ in curves[0]]
        values = np.array([[accuracy for _, accuracy in one] for one in curves])
        look: dict[str, Any] = {"color": COLOURS[number], "marker": MARKERS[number], "markersize": 3}
        panel.plot(updates, values.mean(axis=0), label=arm, **look)
        if len(curves) > 1:
            ends = (values.min(axis=0), values.max(axis=0))
            panel.fill_between(updates, *ends, color=COLOURS[number], alpha=0.12, linewidth=0)


def draw_ends(
    panels: Mapping[str, Mapping[str, Sequence[float]]], picture: Path, *, control: str = "static"
) -> str:
    """Test accuracy of every arm: a panel a condition, a row an arm, a small dot a seed and a large one their mean.

    Args:
        panels: Accuracies of every seed, by condition and arm.
        picture: The file.
        control: The arm that a line goes down from.

    Returns:
        The file's name; empty without matplotlib, and then it is said.
    """
    if not _can_draw():
        return ""
    import numpy as np

    from vapo.studies.style import BLACK, COLOURS, COLUMN, GREY, applied, canvas

    names = list(dict.fromkeys(arm for arms in panels.values() for arm in arms))
    with applied():
        columns = min(4, len(panels))
        rows = -(-len(panels) // columns)
        size = {
            "width": max(COLUMN, 1.3 + 1.25 * columns),
            "height": 0.45 + rows * (0.35 + 0.16 * len(names)),
        }
        figure, axes = canvas(columns, rows, **size, sharey=True, sharex=True)
        for panel, (condition, arms) in zip(axes, panels.items(), strict=False):
            for place, name in enumerate(names):
                ends = list(arms.get(name, ()))
                panel.plot(ends, [place] * len(ends), "o", color=GREY, markersize=2, alpha=0.7, zorder=2)
                if ends:
                    panel.plot(np.mean(ends), place, "o", color=COLOURS[0], markersize=4.5, zorder=3)
            if arms.get(control):
                panel.axvline(
                    float(np.mean(arms[control])), color=BLACK, linewidth=0.7, linestyle=":", zorder=1
                )
            panel.set_title(condition)
            panel.set_yticks(range(len(names)), names)
            panel.grid(visible=False, axis="y")
        axes[0].invert_yaxis()
        told = f"test accuracy: a small dot a seed, a large one their mean; dotted: {control}"
        figure.supxlabel(told, fontsize=7)
        for panel in axes[len(panels) :]:
            panel.set_visible(False)
        figure.savefig(picture, dpi=200)
    return str(picture)


def _can_draw() -> bool:
    from vapo.errors import InputError
    from vapo.studies.style import require

    try:
        require()
    except InputError as error:
        shared.say(f"No picture: {error}")
        return False
    return True
