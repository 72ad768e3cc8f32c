"""Draw figures for the page and for papers: PDF, SVG and PNG, as wide as one column or two."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from speedrunner.config.console import shorten
from speedrunner.pages.camera_ready import METHODS, stack_places, table_text
from speedrunner.pages.figures import Figure, Panel
from speedrunner.pages.plots import (
    SOFT,
    TEXT,
    Curve,
    Look,
    add_legend,
    choose_looks,
    clip,
    drawable,
    drawing,
    file_content,
    label_axes,
    plot_curves,
    start_at_zero,
)

COLUMN, PAGE, PANEL, ROW = 3.25, 7.0, 2.0, 1.6
"""Inches: widths of one column and of two, minimum width of one of several panels, height of a row."""

BAR = 0.11
"""Height of a bar, in inches."""

FONT = 7
"""Size of texts, in points."""

NAME, UP = 24, 18
"""Maximum characters of the name of a bar, and of a line at a y axis."""


def draw(figure: Figure) -> dict[str, bytes]:
    """Return the files of a figure by their paths in the report's folder: figures/NAME.pdf, .svg and .png;
    of an experiment also paper/NAME.tex and .pdf. The same figure gives the same bytes."""
    with drawing(FONT):
        canvas = _canvas(figure)
        files = {
            f"figures/{figure.name}.{kind}": file_content(canvas, kind) for kind in ("pdf", "svg", "png")
        }
        if figure.is_experiment:
            column = _canvas(stack_places(figure), COLUMN, METHODS)
            files[f"paper/{figure.name}.pdf"] = file_content(column, "pdf")
            files[f"paper/{figure.name}.tex"] = table_text(figure).encode()
    return files


def _canvas(figure: Figure, width: float | None = None, new_names: Mapping[str, str] = {}) -> Canvas:
    """Draw all panels and one legend; titles and names of axes appear once in each column and row.

    Args:
        width: in inches; `None`: one column for one panel, two columns or more for several.
        new_names: names in the legend, by the names of series. Others stay as they are.
    """
    rows = figure.rows if width else figure.layout
    columns = max(map(len, rows))
    width = width or (COLUMN if columns == 1 else max(PAGE, PANEL * columns))
    heights = [max(map(_height, row)) for row in rows]
    canvas = Canvas((width, sum(heights)))
    grid = canvas.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    looks = choose_looks(series.name for panel in chain(*rows) for series in panel.series)
    letters = int(16 * width / columns)
    for number, row in enumerate(rows):
        for place, axes in enumerate(grid[number]):
            if place >= len(row):
                axes.remove()
                continue
            panel = row[place]
            above = rows[number - 1][place : place + 1] if number else []
            below = rows[number + 1][place : place + 1] if number + 1 < len(rows) else []
            title = "" if above and above[0].title == panel.title else panel.title
            x, y = (panel.y, panel.x) if panel.kind in BARS else (panel.x, panel.y)
            if below and panel.kind not in BARS and below[0].x == panel.x:
                x = ""
            if place and panel.kind not in BARS and row[place - 1].y == panel.y:
                y = ""
            _plot(axes, panel, looks)
            label_axes(axes, x, y, title, across=letters, up=UP)
    canvas.align_ylabels()
    lines = add_legend(canvas, new_names)
    canvas.set_figheight(sum(heights) + 0.14 * lines)
    return canvas


BARS = ("bars", "stack")
"""Kinds of panels with horizontal bars, which have room for long names."""


def _height(panel: Panel) -> float:
    """Return the height of a panel in inches."""
    if panel.kind not in BARS:
        return ROW
    names = len(_bar_names(panel))
    return max(ROW / 2, 0.6 + BAR * names * (1.6 if panel.kind == "stack" else len(panel.series) + 0.8))


def _bar_names(panel: Panel) -> list[str]:
    return list(dict.fromkeys(str(x) for series in panel.series for x in series.x))


def _plot(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    if panel.kind == "curves":
        curves = []
        for series in panel.series:
            low, high = zip(*series.intervals, strict=True)
            curves.append(Curve(series.name, [float(x) for x in series.x], series.y, low, high))
        plot_curves(axes, curves, looks)
    elif panel.kind == "points":
        _plot_points(axes, panel, looks)
    else:
        _plot_bars(axes, panel, looks)


def _plot_points(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    where = {series.name: (float(series.x[0]), series.y[0]) for series in panel.series}
    if len(panel.frontier) > 1:
        x, y = zip(*(where[name] for name in panel.frontier), strict=True)
        axes.plot(clip(x), clip(y), color=SOFT, linestyle=(0, (3, 2)), zorder=1)
    for series in panel.series:
        axes.errorbar(
            clip(series.x), clip(series.y), yerr=clip([value.sd for value in series.values]),
            color=looks[series.name].color, marker=looks[series.name].marker, linestyle="none",
            markeredgecolor=TEXT, markeredgewidth=0.5, ecolor=SOFT, elinewidth=0.6, clip_on=False,
            label=series.name,
        )  # fmt: skip
    start_at_zero(axes, "x")
    start_at_zero(axes)


def _plot_bars(axes: Axes, panel: Panel, looks: dict[str, Look]) -> None:
    """Plot horizontal bars with their names at the y axis, in groups or stacked."""
    names = _bar_names(panel)
    is_stack = panel.kind == "stack"
    height = 0.66 if is_stack else 0.8 / len(panel.series)
    ends = dict.fromkeys(names, 0.0)
    for number, series in enumerate(panel.series):
        here = [*map(str, series.x)]
        shift = 0.0 if is_stack else (number + 0.5) * height - 0.4
        axes.barh(
            [names.index(name) + shift for name in here], clip(series.y), height,
            left=[ends[name] for name in here] if is_stack else 0.0,
            xerr=None if is_stack else clip([value.sd for value in series.values]),
            error_kw={"elinewidth": 0.6, "ecolor": TEXT}, label=series.name, **looks[series.name].bar,
        )  # fmt: skip
        ends |= {name: ends[name] + length for name, length in zip(here, clip(series.y), strict=True)}
    axes.set_yticks(range(len(names)), [shorten(drawable(name), NAME) for name in names])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    start_at_zero(axes, "x")
