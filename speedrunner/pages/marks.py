"""The marks of each kind of panel, and their looks."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from speedrunner.pages.number_texts import exact_number
from speedrunner.pages.panels import Line, Panel
from speedrunner.pages.scales import band, drawable, scale, wrap
from speedrunner.pages.styles import style
from speedrunner.results.conditions import OURS

TEXT, SOFT, BACK = "#1b1b1b", "#8c8c8c", "#ffffff"
"""Colors of text and deviations, of axes, and of the page."""

FAINT = 0.14
"""Opacity of a band."""

FAINTEST, DARKEST = 0.06, 0.5
"""Opacities of the values 0 and 1 of a matrix; texts stay readable on both."""

LETTERS, LONG, SHORT = 18, 28, 14
"""Maximum characters of a line of a name: of a bar, of a dot, and in a matrix."""

SPREAD = 0.5
"""Share of the height of a dot's name over which its series are spread."""


class Drawn(NamedTuple):
    """A panel on its axes.

    Attributes:
        handles: the artist that a legend shows for each name.
        values: for each artist's group id, the text of each of its marks.
    """

    handles: dict[str, Any]
    values: dict[str, list[str]]


def _draw_lines(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    for number, line in enumerate(panel.lines):
        x, y = np.array(line.x, dtype=float), np.array(line.y)
        low, high = np.array(band(line)).T
        if (low < high).any():
            axes.fill_between(x, low, high, color=style(line.name).ink, alpha=FAINT, linewidth=0)
        (drawn.handles[line.name],) = axes.plot(
            x, y, **line_look(line.name), gid=f"line{number}", clip_on=False
        )
        drawn.values[f"line{number}"] = [
            f"{line.name}: {value}\nafter {exact_number(at, '')} {panel.x}"
            for value, at in zip(_values(line, panel.y), x, strict=True)
        ]
    scale(axes, "y", panel.y, _ends(panel.lines))


def _draw_points(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    where = {line.name: (float(line.x[0]), line.y[0]) for line in panel.lines}
    if len(panel.frontier) > 1:
        x, y = zip(*(where[name] for name in panel.frontier), strict=True)
        axes.plot(x, y, color=SOFT, linestyle=(0, (3, 2)), marker="", zorder=1)
    for number, line in enumerate(panel.lines):
        drawn.handles[line.name] = found = axes.errorbar(
            [float(x) for x in line.x], line.y, yerr=_deviations(line), **point_look(line.name),
            ecolor=SOFT, elinewidth=matplotlib.rcParams["axes.linewidth"], clip_on=False,
        )  # fmt: skip
        found.lines[0].set_gid(f"point{number}")
        drawn.values[f"point{number}"] = [
            f"{line.name}: {value}\nat {exact_number(float(x), panel.x)} {panel.x}"
            for value, x in zip(_values(line, panel.y), line.x, strict=True)
        ]
    axes.grid(visible=True, axis="x")
    scale(axes, "x", panel.x, (float(x) for line in panel.lines for x in line.x))
    scale(axes, "y", panel.y, _ends(panel.lines))


def _draw_stack(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw horizontal bars, for long names."""
    names = panel.names
    ends = dict.fromkeys(names, 0.0)
    for number, line in enumerate(panel.lines):
        here = [*map(str, line.x)]
        bars = axes.barh(
            [*map(names.index, here)], line.y, 0.66, [ends[name] for name in here], **fill_look(line.name)
        )
        _note_bars(drawn, bars, number, line, panel.x)
        ends |= {name: ends[name] + length for name, length in zip(here, line.y, strict=True)}
    _name_rows(axes, names, LETTERS)
    axes.grid(visible=True, axis="x")
    scale(axes, "x", panel.x, ends.values())


def _draw_bars(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw groups of bars, and lines of a second measure with an axis on the right."""
    names = panel.names
    width = 0.8 / max(len(panel.lines), 1)
    for number, line in enumerate(panel.lines):
        places = [names.index(str(x)) + (number + 0.5) * width - 0.4 for x in line.x]
        bars = axes.bar(
            places, line.y, width, yerr=_deviations(line), **fill_look(line.name),
            error_kw={"elinewidth": matplotlib.rcParams["axes.linewidth"], "ecolor": TEXT, "clip_on": False},
        )  # fmt: skip
        _note_bars(drawn, bars, number, line, panel.y)
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, names), default=0) > 8 else {}
    axes.set_xticks(range(len(names)), [wrap(name, LETTERS) for name in names], **turned)
    axes.set_xlim(-0.5, max(len(names), 1) - 0.5)
    scale(axes, "y", panel.y, _ends(panel.lines))
    if not panel.over:
        return
    right = axes.twinx()
    right.grid(visible=False)
    right.set_ylabel(textwrap.fill(panel.over_y, LETTERS))
    for number, line in enumerate(panel.over):
        name = name_over(line, panel)
        (drawn.handles[name],) = right.plot(
            [names.index(str(x)) for x in line.x], line.y, **over_look(line.name), gid=f"over{number}",
            clip_on=False,
        )  # fmt: skip
        drawn.values[f"over{number}"] = [
            f"{name}, {x}: {value}" for x, value in zip(line.x, _values(line, panel.over_y), strict=True)
        ]
    scale(right, "y", panel.over_y, _ends(panel.over))


def _draw_dots(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw values with intervals next to their names: a dot with a line from the low to the high end."""
    names = panel.names
    width = matplotlib.rcParams["axes.linewidth"]
    axes.axvline(0, color=matplotlib.rcParams["axes.edgecolor"], linewidth=width, zorder=1)
    for number, line in enumerate(panel.lines):
        shift = SPREAD * ((number + 0.5) / len(panel.lines) - 0.5)
        places = [names.index(str(x)) + shift for x in line.x]
        low, high = zip(*band(line), strict=True)
        axes.hlines(places, low, high, color=style(line.name).ink, linewidth=1.5 * width, zorder=2)
        (drawn.handles[line.name],) = axes.plot(
            line.y, places, gid=f"dot{number}", linestyle="none", color=style(line.name).ink,
            marker=style(line.name).marker, clip_on=False, zorder=3,
        )  # fmt: skip
        drawn.values[f"dot{number}"] = [
            f"{line.name}, {x}: {exact_number(y, panel.x)}"
            + (f" ({' to '.join(exact_number(end, panel.x) for end in ends)})" if ends else "")
            for x, y, ends in zip(line.x, line.y, line.ends, strict=True)
        ]
    _name_rows(axes, names, LONG, 1)
    axes.grid(visible=True, axis="x")
    scale(axes, "x", panel.x, (end for line in panel.lines for pair in band(line) for end in pair))


def _draw_matrix(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw a cell for each row and column, shaded by its value, with texts; missing cells stay empty."""
    columns, ink = sorted(panel.names), style(OURS).ink
    for row, line in enumerate(panel.lines):
        for name, value, note in zip(line.x, line.y, line.notes, strict=True):
            column = columns.index(str(name))
            opacity = FAINTEST + (DARKEST - FAINTEST) * min(max(value, 0.0), 1.0)
            cell = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=ink, alpha=opacity, linewidth=0)
            cell.set_gid(f"cell{row}_{column}")
            axes.add_patch(cell)
            shown = f"{exact_number(value, '')}\n{note}"
            axes.text(column, row, drawable(shown), ha="center", va="center")
            drawn.values[f"cell{row}_{column}"] = [f"{line.name}, {name}: {shown}"]
    axes.set_xticks(range(len(columns)), [wrap(name, SHORT) for name in columns])
    axes.set_xlim(-0.5, max(len(columns), 1) - 0.5)
    _name_rows(axes, [line.name for line in panel.lines], SHORT)
    axes.grid(visible=False)


DRAW: dict[str, Callable[[Axes, Panel, Drawn], None]] = {
    "lines": _draw_lines,
    "points": _draw_points,
    "bars": _draw_bars,
    "stack": _draw_stack,
    "dots": _draw_dots,
    "matrix": _draw_matrix,
}
"""Draws the marks, ticks and grid of a panel, by its kind."""


def _name_rows(axes: Axes, names: Sequence[str], letters: int, lines: int = 2) -> None:
    """Write a name at the y axis for each row, the first one at the top."""
    axes.set_yticks(range(len(names)), [wrap(name, letters, lines) for name in names])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _ends(lines: Sequence[Line]) -> list[float]:
    """Return values and the upper ends of their deviations."""
    return [
        end for line in lines for y, (_, high) in zip(line.y, band(line), strict=True) for end in (y, high)
    ]


def _note_bars(drawn: Drawn, bars: Any, number: int, line: Line, label: str) -> None:
    drawn.handles[line.name] = bars
    for place, (bar, x, value) in enumerate(zip(bars, line.x, _values(line, label), strict=True)):
        bar.set_gid(f"bar{number}_{place}")
        drawn.values[f"bar{number}_{place}"] = [f"{line.name}, {x}: {value}"]


def _values(line: Line, label: str) -> list[str]:
    """Return the text of each value of a line, with its deviation or interval."""
    texts = []
    for y, sd, ends in zip(line.y, line.sd, line.ends or [None] * len(line.y), strict=True):
        around = f" ± {exact_number(sd or 0.0, label)}"
        if sd is None:
            low, high = (exact_number(end, label) for end in ends or (y, y))
            around = " (one seed)" if ends is None else f" ({low} to {high}, one seed)"
        texts.append(exact_number(y, label) + around)
    return texts


def name_over(line: Line, panel: Panel) -> str:
    """Return the name of a series of a second measure over bars."""
    return f"{line.name}, {panel.over_y}"


def _deviations(line: Line) -> list[float]:
    return [float("nan") if sd is None else sd for sd in line.sd]


def _mark(name: str) -> dict[str, Any]:
    own = style(name)
    size = matplotlib.rcParams["lines.markersize"] * {"*": 1.5, "^": 1.15}.get(own.marker, 1)
    return {"color": own.ink, "marker": own.marker, "markersize": size}


def point_look(name: str) -> dict[str, Any]:
    """Return the look of a point."""
    return {**_mark(name), "linestyle": "none", "markeredgecolor": TEXT, "markeredgewidth": 0.5}


def line_look(name: str) -> dict[str, Any]:
    """Return the look of a line with its marks."""
    return {**_mark(name), "linestyle": style(name).dash, "markeredgewidth": 0}


def over_look(name: str) -> dict[str, Any]:
    """Return the look of a line over bars."""
    return {**_mark(name), "linestyle": (0, (1, 1.4)), "markeredgecolor": TEXT, "markeredgewidth": 0.5}


def fill_look(name: str) -> dict[str, Any]:
    """Return the look of a bar."""
    own = style(name)
    dense = 2 if matplotlib.rcParams["font.size"] < 9 else 1  # bars in print are small
    return {"color": own.ink, "hatch": own.hatch * dense, "edgecolor": BACK, "linewidth": 0.8}
