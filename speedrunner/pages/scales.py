"""Scales and texts of axes: what can be drawn, where ticks are, and how names fit."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from math import ceil
from typing import Literal

import msgspec
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from speedrunner.config.console import shorten, visible
from speedrunner.pages.number_texts import short_numbers
from speedrunner.pages.panels import Line, Panel

MOST = 1e30
"""Values of at least this size are not drawn."""


def drawable(text: str) -> str:
    """Return a text without control characters and without characters that XML forbids."""
    return visible(text).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})


def wrap(name: str, letters: int, lines: int = 2) -> str:
    """Return a name on a few lines of at most `letters` characters, shortened if it is longer."""
    text = shorten(drawable(name), letters * lines)
    return "\n".join(textwrap.wrap(text, letters, max_lines=lines, placeholder=" …"))


def without_extremes(panel: Panel) -> Panel:
    """Return the panel without values that are too large for axes. The figure's table still has them."""
    lines, over = ([*filter(None, map(_keep_drawable, own))] for own in (panel.lines, panel.over))
    names = {line.name for line in lines}
    frontier = [name for name in panel.frontier if name in names]
    return msgspec.structs.replace(panel, lines=lines, over=over, frontier=frontier)


def _keep_drawable(line: Line) -> Line | None:
    kept = [
        place
        for place, (x, y) in enumerate(zip(line.x, line.y, strict=True))
        if abs(y) < MOST and (isinstance(x, str) or abs(x) < MOST)
    ]
    if not kept:
        return None
    deviations = [line.sd[place] for place in kept]
    return msgspec.structs.replace(
        line,
        x=[line.x[place] for place in kept],
        y=[line.y[place] for place in kept],
        sd=[sd if sd is not None and sd < MOST else None for sd in deviations],
        ends=[_finite(line.ends[place]) for place in kept] if line.ends else [],
        notes=[line.notes[place] for place in kept] if line.notes else [],
    )


def _finite(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    return ends if ends is not None and all(abs(end) < MOST for end in ends) else None


def band(line: Line) -> list[tuple[float, float]]:
    """Return the ends of each value's band: one deviation around it, or its interval, or the value."""
    return [
        ends if sd is None and ends is not None else (y - (sd or 0.0), y + (sd or 0.0))
        for y, sd, ends in zip(line.y, line.sd, line.ends or [None] * len(line.y), strict=True)
    ]


def scale(axes: Axes, which: Literal["x", "y"], label: str, values: Iterable[float]) -> None:
    """Let an axis show zero and all values, from one round number to another."""
    known = [0.0, *values]
    low, high = min(known), max(known)
    ticks = MaxNLocator(4 if which == "y" else 3, steps=[1, 2, 2.5, 5, 10]).tick_values(
        low, high or (0.0 if low else 1.0)
    )
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_ticks(ticks, short_numbers([float(tick) for tick in ticks], label))
    axes.set(**{f"{which}lim": (ticks[0], ticks[-1])})


def mark_checkpoints(axes: Axes, panel: Panel, most: int) -> None:
    """Write numbers at checkpoints: evenly thinned to at most `most`, with the last one, and none too close
    together."""
    known = sorted({float(x) for line in panel.lines for x in line.x})
    ticks: list[float] = []
    for place in known[:: -ceil(len(known) / most)] if known else []:
        if not ticks or ticks[-1] - place >= (known[-1] - known[0]) / (most + 1):
            ticks.append(place)
    ticks.reverse()
    axes.set_xticks(ticks, short_numbers(ticks, panel.x))
