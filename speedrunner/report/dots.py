"""Draw values with intervals next to their names: a dot with a line from the low to the high end."""

from __future__ import annotations

import textwrap
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from speedrunner.console import visible
from speedrunner.markup.number_texts import exact_number, short_numbers
from speedrunner.report.panels import Line, Panel
from speedrunner.report.styles import style

LETTERS = 28
"""Maximum characters of a name."""

SPREAD = 0.5
"""Share of a name's height over which its series are spread."""


def draw_dots(axes: Axes, panel: Panel) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Draw the marks, ticks and names of a panel of `dots`.

    Returns:
        The artist of each series for a legend, and the text of each mark by the group id of its artist.
    """
    names, handles, texts = panel.names, {}, {}
    width = matplotlib.rcParams["axes.linewidth"]
    axes.axvline(0, color=matplotlib.rcParams["axes.edgecolor"], linewidth=width, zorder=1)
    for number, line in enumerate(panel.lines):
        shift = SPREAD * ((number + 0.5) / len(panel.lines) - 0.5)
        places = [names.index(str(x)) + shift for x in line.x]
        low, high = zip(*_ends(line), strict=True)
        axes.hlines(places, low, high, color=style(line.name).ink, linewidth=1.5 * width, zorder=2)
        (handles[line.name],) = axes.plot(
            line.y, places, gid=f"dot{number}", linestyle="none", color=style(line.name).ink,
            marker=style(line.name).marker, clip_on=False, zorder=3,
        )  # fmt: skip
        texts[f"dot{number}"] = [
            f"{line.name}, {x}: {exact_number(y, panel.x)}" + (f" ({_range(ends, panel.x)})" if ends else "")
            for x, y, ends in zip(line.x, line.y, line.ends, strict=True)
        ]
    axes.set_yticks(range(len(names)), [_shorten(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    ends_of_all = [0.0, *(value for line in panel.lines for pair in _ends(line) for value in pair)]
    low_end, high_end = min(ends_of_all), max(ends_of_all)
    if low_end == high_end:  # all values are 0
        high_end = 1.0
    ticks = MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(low_end, high_end)
    axes.set_xticks(ticks, short_numbers([float(tick) for tick in ticks], panel.x))
    axes.set_xlim(ticks[0], ticks[-1])
    return handles, texts


def _ends(line: Line) -> list[tuple[float, float]]:
    """Return the ends of each interval; the value itself if the interval is unknown."""
    return [ends or (y, y) for y, ends in zip(line.y, line.ends, strict=True)]


def _range(ends: tuple[float, float], label: str) -> str:
    return f"{exact_number(ends[0], label)} to {exact_number(ends[1], label)}"


def _shorten(name: str) -> str:
    text = visible(name)
    return text if len(text) <= LETTERS else textwrap.shorten(text[: LETTERS - 2] + "…", LETTERS)
