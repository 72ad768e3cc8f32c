"""Figures for papers: PDF, SVG and PNG, as wide as one column or two."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure as Canvas

from speedrunner.pages.drawing import TICKS, draw_panel, drawing_settings
from speedrunner.pages.panels import Figure, Panel
from speedrunner.pages.scales import drawable

COLUMN, PAGE, ROW = 3.25, 7.0, 1.55
"""Inches: widths of one column and of two, height of a row of panels."""

NARROW = 2.0
"""Inches of a panel, below which fewer checkpoints have a number."""

NAME = 0.14
"""Inches of a line of names or of texts in cells."""

LETTERS = 10
"""Characters of a panel's title per inch."""

COLUMNS = 8
"""Maximum columns of a legend."""

DPI = 300
"""Pixels per inch in a PNG."""

PAPER = {
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "xtick.major.size": 2,
    "xtick.minor.width": 0.6,
    "xtick.minor.size": 2,
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "hatch.linewidth": 0.5,
    "errorbar.capsize": 1.5,
}

METADATA: dict[str, dict[str, Any]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
"""Metadata of the files; without dates, so that the same figures give the same bytes."""


def print_figure(figure: Figure) -> dict[str, bytes]:
    """Return NAME.pdf, NAME.svg and NAME.png of a figure by their names. The same figure gives the same
    bytes."""
    found = {}
    with drawing_settings(PAPER):
        canvas = _canvas(figure)
        for kind, metadata in METADATA.items():
            content = io.BytesIO()
            canvas.savefig(content, format=kind, dpi=DPI, metadata=metadata)
            found[f"{figure.name}.{kind}"] = content.getvalue()
    return found


def column_pdf(figure: Figure, names: Mapping[str, str]) -> bytes:
    """Return a figure as a PDF that is one column wide. The same figure gives the same bytes.

    Args:
        names: names in the legend, by the names of lines. Others stay as they are.
    """
    content = io.BytesIO()
    with drawing_settings(PAPER):
        canvas = _canvas(figure, COLUMN, names)
        canvas.savefig(content, format="pdf", metadata=METADATA["pdf"])
    return content.getvalue()


def _canvas(figure: Figure, width: float | None = None, names: Mapping[str, str] = {}) -> Canvas:
    """Draw all panels and one legend; titles and names of axes appear once in each column and row.

    Args:
        width: inches; `None`: one column or the page, for one column of panels or several.
        names: as for `column_pdf`.
    """
    columns = max(map(len, figure.rows))
    width = width or (COLUMN if columns == 1 else PAGE)
    ticks = TICKS if width / columns >= NARROW else TICKS - 2
    canvas = Canvas((width, ROW), layout="constrained")
    handles: dict[str, Any] = {}
    for number, (row, next_row) in enumerate(pairwise([*figure.rows, []])):
        for place, panel in enumerate(row):
            axes = canvas.add_subplot(len(figure.rows), columns, number * columns + place + 1)
            for name, handle in draw_panel(axes, panel, ticks).handles.items():
                handles.setdefault(names.get(name, name), handle)
            if panel.kind == "lines":
                axes.set_xticks(sorted({x for line in panel.lines for x in line.x}), minor=True)
            above = figure.rows[number - 1][place : place + 1] if number else []
            if not above or above[0].title != panel.title:
                axes.set_title(textwrap.fill(drawable(panel.title), int(LETTERS * width / columns)))
            below = next_row[place : place + 1]
            if not below or below[0].x != panel.x:
                axes.set_xlabel(panel.x)
            if not place or row[place - 1].y != panel.y:
                axes.set_ylabel(panel.y)
    canvas.align_ylabels()
    height = sum(max(map(_height, row)) for row in figure.rows)
    canvas.set_size_inches(width, height + _add_legend(canvas, handles, width))
    # Arrange the panels once: each format would do it again, with the same result.
    canvas.draw_without_rendering()
    canvas.set_layout_engine(None)  # "none" would still draw each file twice
    return canvas


def _height(panel: Panel) -> float:
    """Return the height of a panel in inches."""
    rows = {"dots": len(panel.names), "matrix": 3 * len(panel.lines)}.get(panel.kind, 0)
    return max(ROW, 0.4 + NAME * rows)


def _add_legend(canvas: Canvas, handles: Mapping[str, Any], width: float) -> float:
    """Add a legend with as few rows as fit into a width. Return its height; both are in inches."""
    names = [*map(drawable, handles)]
    if not names:
        return 0.0
    for columns in range(min(len(names), COLUMNS), 0, -1):
        legend = canvas.legend(
            handles.values(), names, loc="outside upper center", ncols=columns, columnspacing=1.5
        )
        box = legend.get_window_extent()
        if box.width <= width * canvas.dpi or columns == 1:
            break
        legend.remove()
    return float(box.height / canvas.dpi)
