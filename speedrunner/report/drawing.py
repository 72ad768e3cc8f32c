"""Draw panels with matplotlib. The page and the files for papers share this code, at different sizes."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil
from typing import Any, NamedTuple

import matplotlib
import msgspec
import numpy as np
from matplotlib.axes import Axes
from matplotlib.rcsetup import cycler
from matplotlib.ticker import MaxNLocator

from speedrunner.console import visible
from speedrunner.markup.number_texts import exact_number, short_numbers
from speedrunner.report.dots import draw_dots
from speedrunner.report.matrices import draw_matrix
from speedrunner.report.panels import Figure, Line, Panel
from speedrunner.report.styles import style

GRID, TEXT, SOFT, BACK = "#dcdcdc", "#1b1b1b", "#8c8c8c", "#ffffff"
"""Colors of grid lines, of text and deviations, of axes, and of the page."""

FAINT = 0.14
"""Opacity of a band."""

TICKS = 6
"""Maximum number of checkpoints with a number at the axis."""

MOST = 1e30
"""Values of at least this size are not drawn."""

LETTERS = 18
"""Maximum characters of a line of a bar's name; a name has at most two lines."""

BASE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # included in matplotlib, so the same everywhere
    "text.parse_math": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "ytick.major.size": 0,
    "axes.prop_cycle": cycler(color=[SOFT]),
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "grid.color": GRID,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
    "svg.fonttype": "none",
    "svg.hashsalt": "speedrunner",
    "pdf.fonttype": 42,
}


class Drawn(NamedTuple):
    """A panel on its axes.

    Attributes:
        handles: the artist that a legend shows for each name.
        values: for each artist's group id, the text of each of its marks.
    """

    handles: dict[str, Any]
    values: dict[str, list[str]]


@contextmanager
def drawing_settings(own: Mapping[str, Any]) -> Iterator[None]:
    """Apply the shared settings and those of a medium, independent of any `matplotlibrc`."""
    with matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # other scripts: a browser has fonts for them
        matplotlib.rcdefaults()
        settings: Any = {**BASE, **own}
        matplotlib.rcParams.update(settings)
        yield


def draw_panel(axes: Axes, panel: Panel, ticks: int = TICKS) -> Drawn:
    """Draw the marks, ticks and grid of a panel. The caller adds its title and the names of its axes.

    Args:
        ticks: maximum number of checkpoints with a number at the axis.
    """
    panel, drawn = _without_extremes(panel), Drawn({}, {})
    if panel.kind == "dots":
        return Drawn(*draw_dots(axes, panel))
    if panel.kind == "matrix":
        return Drawn({}, draw_matrix(axes, panel))
    if panel.kind == "lines":
        _draw_lines(axes, panel, drawn, ticks)
        return drawn
    draw = {"points": _draw_points, "bars": _draw_bars, "stack": _draw_stack}[panel.kind]
    draw(axes, panel, drawn)
    return drawn


def drawable(text: str) -> str:
    """Return a text without control characters and without characters that XML forbids."""
    return visible(text).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})


def legend_entries(figure: Figure) -> dict[str, tuple[str, str]]:
    """Return the entries of a figure's legend: for each name, a series and the kind of its marks."""
    entries: dict[str, tuple[str, str]] = {}
    for panel in (panel for row in figure.rows for panel in row if panel.kind != "matrix"):
        for line in panel.lines:
            entries.setdefault(line.name, (line.name, panel.kind))
        for line in panel.over:
            entries.setdefault(_name_over(line, panel), (line.name, "over"))
    return entries


def draw_sample(axes: Axes, series: str, kind: str) -> None:
    """Draw a series' sample for a legend, on axes without a frame."""
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    if kind in ("bars", "stack"):
        axes.bar([0.5], [0.8], 0.8, bottom=0.1, **_fill(series), clip_on=False)
    elif kind in ("points", "dots"):
        axes.plot([0.5], [0.5], **_point(series), clip_on=False)
    else:
        look = _over(series) if kind == "over" else _line(series)
        axes.plot([0.0, 0.5, 1.0], [0.5] * 3, markevery=[1], **look, clip_on=False)


def _without_extremes(panel: Panel) -> Panel:
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


def _draw_lines(axes: Axes, panel: Panel, drawn: Drawn, most_ticks: int) -> None:
    for number, line in enumerate(panel.lines):
        x, y = np.array(line.x, dtype=float), np.array(line.y)
        low, high = np.array(_band(line)).T
        if (low < high).any():
            axes.fill_between(x, low, high, color=style(line.name).ink, alpha=FAINT, linewidth=0)
        (drawn.handles[line.name],) = axes.plot(x, y, **_line(line.name), gid=f"line{number}", clip_on=False)
        drawn.values[f"line{number}"] = [
            f"{line.name}: {value}\nafter {exact_number(at, '')} {panel.x}"
            for value, at in zip(_values(line, panel.y), x, strict=True)
        ]
    ticks = _checkpoint_ticks([float(x) for line in panel.lines for x in line.x], most_ticks)
    axes.set_xticks(ticks, short_numbers(ticks, panel.x))
    _scale(axes, panel.lines, panel.y, "y")


def _draw_points(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    where = {line.name: (float(line.x[0]), line.y[0]) for line in panel.lines}
    if len(panel.frontier) > 1:
        x, y = zip(*(where[name] for name in panel.frontier), strict=True)
        axes.plot(x, y, color=SOFT, linestyle=(0, (3, 2)), marker="", zorder=1)
    for number, line in enumerate(panel.lines):
        drawn.handles[line.name] = found = axes.errorbar(
            [float(x) for x in line.x], line.y, yerr=_deviations(line), **_point(line.name),
            ecolor=SOFT, elinewidth=matplotlib.rcParams["axes.linewidth"], clip_on=False,
        )  # fmt: skip
        found.lines[0].set_gid(f"point{number}")
        drawn.values[f"point{number}"] = [
            f"{line.name}: {value}\nat {exact_number(float(x), panel.x)} {panel.x}"
            for value, x in zip(_values(line, panel.y), line.x, strict=True)
        ]
    axes.grid(visible=True, axis="x")
    _scale(axes, [Line(line.name, [], [float(x) for x in line.x], [None] * len(line.x), 1)
                  for line in panel.lines], panel.x, "x")  # fmt: skip
    _scale(axes, panel.lines, panel.y, "y")


def _draw_stack(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw horizontal bars, for long names."""
    names = _bar_names(panel.lines)
    ends = dict.fromkeys(names, 0.0)
    for number, line in enumerate(panel.lines):
        here = [*map(str, line.x)]
        bars = axes.barh(
            [*map(names.index, here)], line.y, 0.66, [ends[name] for name in here], **_fill(line.name)
        )
        _note_bars(drawn, bars, number, line, panel.x)
        ends |= {name: ends[name] + length for name, length in zip(here, line.y, strict=True)}
    axes.set_yticks(range(len(names)), [*map(_wrap, names)])
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    _scale(axes, [Line("", [], [*ends.values()], [None] * len(ends), 1)], panel.x, "x")


def _draw_bars(axes: Axes, panel: Panel, drawn: Drawn) -> None:
    """Draw groups of bars, and lines of a second measure with an axis on the right."""
    names = _bar_names([*panel.lines, *panel.over])
    width = 0.8 / max(len(panel.lines), 1)
    for number, line in enumerate(panel.lines):
        places = [names.index(str(x)) + (number + 0.5) * width - 0.4 for x in line.x]
        bars = axes.bar(
            places, line.y, width, yerr=_deviations(line), **_fill(line.name),
            error_kw={"elinewidth": matplotlib.rcParams["axes.linewidth"], "ecolor": TEXT, "clip_on": False},
        )  # fmt: skip
        _note_bars(drawn, bars, number, line, panel.y)
    turned: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, names), default=0) > 8 else {}
    axes.set_xticks(range(len(names)), [*map(_wrap, names)], **turned)
    axes.set_xlim(-0.5, max(len(names), 1) - 0.5)
    _scale(axes, panel.lines, panel.y, "y")
    if not panel.over:
        return
    right = axes.twinx()
    right.grid(visible=False)
    right.set_ylabel(textwrap.fill(panel.over_y, LETTERS))
    for number, line in enumerate(panel.over):
        name = _name_over(line, panel)
        (drawn.handles[name],) = right.plot(
            [names.index(str(x)) for x in line.x], line.y, **_over(line.name), gid=f"over{number}",
            clip_on=False,
        )  # fmt: skip
        drawn.values[f"over{number}"] = [
            f"{name}, {x}: {value}" for x, value in zip(line.x, _values(line, panel.over_y), strict=True)
        ]
    _scale(right, panel.over, panel.over_y, "y")


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


def _band(line: Line) -> list[tuple[float, float]]:
    """Return the ends of each value's band: one deviation around it, or its interval, or the value."""
    return [
        ends if sd is None and ends is not None else (y - (sd or 0.0), y + (sd or 0.0))
        for y, sd, ends in zip(line.y, line.sd, line.ends or [None] * len(line.y), strict=True)
    ]


def _scale(axes: Axes, lines: Sequence[Line], label: str, which: str) -> None:
    """Start an axis at zero, and end it at a round number above all values and deviations."""
    low = min([0.0, *(y for line in lines for y in line.y)])
    high = max([0.0, *(end for line in lines for _, end in _band(line))])
    ticks = MaxNLocator(4 if which == "y" else 3, steps=[1, 2, 2.5, 5, 10]).tick_values(
        low, high or (0.0 if low else 1.0)
    )
    set_ticks, set_limits = (
        (axes.set_xticks, axes.set_xlim) if which == "x" else (axes.set_yticks, axes.set_ylim)
    )
    set_ticks(ticks, short_numbers([float(tick) for tick in ticks], label))
    set_limits(ticks[0], ticks[-1])


def _checkpoint_ticks(places: Sequence[float], most: int) -> list[float]:
    """Return the checkpoints that get a number: evenly thinned, with the last one, and none too close
    together."""
    known = sorted(set(places))
    known = known[:: -ceil(len(known) / most)] if known else []
    ticks: list[float] = []
    for place in known:
        if not ticks or ticks[-1] - place >= (max(places) - min(places)) / (most + 1):
            ticks.append(place)
    return ticks[::-1]


def _bar_names(lines: Sequence[Line]) -> list[str]:
    return list(dict.fromkeys(str(x) for line in lines for x in line.x))


def _wrap(name: str) -> str:
    """Return a bar's name on at most two lines, shortened if it is longer."""
    return "\n".join(textwrap.wrap(drawable(name), LETTERS, max_lines=2, placeholder=" …"))


def _name_over(line: Line, panel: Panel) -> str:
    return f"{line.name}, {panel.over_y}"


def _deviations(line: Line) -> list[float]:
    return [float("nan") if sd is None else sd for sd in line.sd]


def _mark(name: str) -> dict[str, Any]:
    own = style(name)
    size = matplotlib.rcParams["lines.markersize"] * {"*": 1.5, "^": 1.15}.get(own.marker, 1)
    return {"color": own.ink, "marker": own.marker, "markersize": size}


def _point(name: str) -> dict[str, Any]:
    return {**_mark(name), "linestyle": "none", "markeredgecolor": TEXT, "markeredgewidth": 0.5}


def _line(name: str) -> dict[str, Any]:
    return {**_mark(name), "linestyle": style(name).dash, "markeredgewidth": 0}


def _over(name: str) -> dict[str, Any]:
    return {**_mark(name), "linestyle": (0, (1, 1.4)), "markeredgecolor": TEXT, "markeredgewidth": 0.5}


def _fill(name: str) -> dict[str, Any]:
    own = style(name)
    dense = 2 if matplotlib.rcParams["font.size"] < 9 else 1  # bars in print are small
    return {"color": own.ink, "hatch": own.hatch * dense, "edgecolor": BACK, "linewidth": 0.8}
