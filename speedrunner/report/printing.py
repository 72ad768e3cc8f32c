"""Figures for papers: SVG and PNG, as wide as one column or as both."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from speedrunner.console import visible
from speedrunner.report.panels import Figure, Line, Panel
from speedrunner.report.styles import FAINT, Style, style
from speedrunner.store import files

COLUMN, PAGE, ROW = 3.3, 7.0, 1.75
"""Inches: widths of one column and of two, height of a row of panels."""

DPI = 300

DASHES: dict[str, Any] = {
    "solid": "-", "dot": ":", "dash": "--", "dashdot": "-.",
    "longdash": (0, (8, 3)), "longdashdot": (0, (8, 3, 2, 3)),
}  # fmt: skip
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "cross": "P", "triangle-up": "^", "star": "*", "x": "X",
}  # fmt: skip

PAPER: Any = {
    "font.family": "DejaVu Sans",  # the library's own: the same everywhere
    "font.size": 7,
    "axes.titlesize": 7,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#e0e0e0",
    "grid.linewidth": 0.4,
    "lines.linewidth": 1.0,
    "hatch.linewidth": 0.4,
    "legend.frameon": False,
    "legend.handlelength": 3,
    "errorbar.capsize": 1.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "speedrunner",
    "text.parse_math": False,
}


def print_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write NAME.svg and NAME.png of each figure into a folder, which is made if it is missing.

    The same figures give the same bytes. Raises `StorageError`.
    """
    with files.explained(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # whatever a `matplotlibrc` in the current directory says
        matplotlib.rcParams.update(PAPER)
        for figure in figures:
            canvas = _canvas(figure)
            for kind, metadata in (("svg", {"Date": None}), ("png", {})):
                content = io.BytesIO()
                canvas.savefig(content, format=kind, dpi=DPI, metadata=metadata)
                written.append(folder / f"{figure.name}.{kind}")
                files.write_atomic(written[-1], content.getvalue())
    return written


def _canvas(figure: Figure) -> Canvas:
    columns = max(map(len, figure.rows))
    width = COLUMN if columns == 1 else PAGE
    canvas = Canvas((width, 0.5 + ROW * len(figure.rows)), layout="constrained")
    handles: dict[str, Any] = {}
    for number, (row, next_row) in enumerate(pairwise([*figure.rows, []])):
        for place, panel in enumerate(row):
            axes = canvas.add_subplot(len(figure.rows), columns, number * columns + place + 1)
            for name, handle in _panel(axes, panel).items():
                handles.setdefault(name, handle)
            above = figure.rows[number - 1][place : place + 1] if number else []
            if not above or above[0].title != panel.title:
                axes.set_title(visible(panel.title))
            below = next_row[place : place + 1]
            if not below or below[0].x != panel.x:
                axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
    names = [*map(visible, handles)]
    beside = int(width / (0.5 + 0.06 * max(map(len, names))))  # inches of a handle and of a letter
    canvas.legend(handles.values(), names, loc="outside upper center", ncols=max(beside, 1))
    return canvas


def _panel(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Draw one pair of axes; returns what stands for each name in the legend."""
    if panel.kind == "stack":
        found = _stack(axes, panel)
        axes.xaxis.set_major_formatter(_short)
        return found
    if panel.kind == "bars":
        found = _bars(axes, panel)
    else:
        draw = _curve if panel.kind == "lines" else _point
        found = {line.name: draw(axes, line) for line in panel.lines}
        axes.xaxis.set_major_formatter(_short)
    if len(panel.frontier) > 1:
        where = {line.name: (line.x[0], line.y[0]) for line in panel.lines}
        x, y = zip(*(where[name] for name in panel.frontier), strict=True)
        axes.plot(x, y, color="#888888", linestyle=":", linewidth=0.8, zorder=1)
    if panel.kind == "points":
        axes.set_xlim(0, 1.1 * max((float(x) for line in panel.lines for x in line.x), default=1))
    axes.set_ylim(0, axes.get_ylim()[1])
    axes.yaxis.set_major_formatter(_short)
    return found


def _short(value: float, _: object = None) -> str:
    """A number at an axis."""
    if abs(value) >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if abs(value) >= 1e4 else f"{value:g}"


def _mark(own: Style, size: float) -> dict[str, Any]:
    marker = MARKERS[own.marker]
    large = size * (1.5 if marker == "*" else 1)
    return {"color": own.color, "marker": marker, "markersize": large, "clip_on": False}


def _curve(axes: Axes, line: Line) -> Any:
    own = style(line.name)
    around = [each or 0.0 for each in line.sd]
    if any(around):
        low, high = zip(*((y - sd, y + sd) for y, sd in zip(line.y, around, strict=True)), strict=True)
        axes.fill_between(line.x, low, high, color=own.color, alpha=FAINT, linewidth=0)
    (drawn,) = axes.plot(line.x, line.y, linestyle=DASHES[own.dash], **_mark(own, 3.5))
    return drawn


def _point(axes: Axes, line: Line) -> Any:
    return axes.errorbar(
        line.x, line.y, yerr=_deviations(line), **_mark(style(line.name), 5), linestyle="none",
        markeredgecolor="black", markeredgewidth=0.5, ecolor="black", elinewidth=0.6,
    )  # fmt: skip


def _stack(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Bars that lie, as their names are long."""
    names = _names(panel.lines)
    ends = dict.fromkeys(names, 0.0)
    found = {}
    for line in panel.lines:
        here = [*map(str, line.x)]
        found[line.name] = axes.barh(
            [*map(names.index, here)], line.y, 0.7, [ends[name] for name in here], **_filled(line.name)
        )
        ends |= {name: ends[name] + length for name, length in zip(here, line.y, strict=True)}
    axes.set_yticks(range(len(names)), [*map(visible, names)])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    return found


def _bars(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Bars beside each other, and lines over them by an axis to the right."""
    names = _names([*panel.lines, *panel.over])
    width = 0.8 / len(panel.lines)
    found: dict[str, Any] = {}
    for number, line in enumerate(panel.lines):
        places = [names.index(str(x)) + (number + 0.5) * width - 0.4 for x in line.x]
        found[line.name] = axes.bar(
            places, line.y, width, yerr=_deviations(line), error_kw={"elinewidth": 0.6}, **_filled(line.name)
        )
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, names)) > 6 else {}
    axes.set_xticks(range(len(names)), [*map(visible, names)], **turned)
    axes.grid(visible=False, axis="x")
    if panel.over:
        right = axes.twinx()
        right.grid(visible=False)
        right.spines["right"].set_visible(True)
        right.set_ylabel(panel.over_y)
        for line in panel.over:
            (found[f"{line.name}, combat"],) = right.plot(
                [names.index(str(x)) for x in line.x], line.y, linestyle=":", **_mark(style(line.name), 4),
                markeredgecolor="black", markeredgewidth=0.4,
            )  # fmt: skip
        right.set_ylim(0, 1.05 * right.get_ylim()[1])  # markers are large
    return found


def _names(lines: Sequence[Line]) -> list[str]:
    """Of bars, each once."""
    return list(dict.fromkeys(str(x) for line in lines for x in line.x))


def _filled(name: str) -> dict[str, Any]:
    own = style(name)
    return {"color": own.color, "hatch": own.hatching * 3, "edgecolor": "black", "linewidth": 0.5}


def _deviations(line: Line) -> list[float]:
    return [float("nan") if sd is None else sd for sd in line.sd]
