"""Draw a matrix: a cell for each row and column, shaded by its value, with texts."""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from speedrunner.console import visible
from speedrunner.markup.number_texts import exact_number
from speedrunner.report.panels import Panel
from speedrunner.report.styles import style

LETTERS = 14
"""Maximum characters of a line of a name."""

FAINTEST, DARKEST = 0.06, 0.5
"""Opacities of the values 0 and 1; texts stay readable on both."""


def draw_matrix(axes: Axes, panel: Panel) -> dict[str, list[str]]:
    """Draw the cells and names of a panel of the kind `matrix`; missing cells stay empty.

    Returns:
        The text of each cell by the group id of its artist.
    """
    columns, texts = sorted(panel.names), {}
    ink = style("speedrunner").ink
    for row, line in enumerate(panel.lines):
        for name, value, note in zip(line.x, line.y, line.notes, strict=True):
            column = columns.index(str(name))
            opacity = FAINTEST + (DARKEST - FAINTEST) * min(max(value, 0.0), 1.0)
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=ink, alpha=opacity, linewidth=0)
            cell.set_gid(f"cell{row}_{column}")
            axes.add_patch(cell)
            shown = f"{exact_number(value, '')}\n{note}"
            axes.text(column, row, visible(shown), ha="center", va="center")
            texts[f"cell{row}_{column}"] = [f"{line.name}, {name}: {shown}"]
    axes.set_xticks(range(len(columns)), [_wrap(name) for name in columns])
    axes.set_yticks(range(len(panel.lines)), [_wrap(line.name) for line in panel.lines])
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(len(panel.lines) - 0.5, -0.5)
    axes.grid(visible=False)
    return texts


def _wrap(name: str) -> str:
    return "\n".join(textwrap.wrap(visible(name), LETTERS, max_lines=2, placeholder="…"))
