"""Draw panels of curves and points with matplotlib: one look for the viewer and the report."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32

import matplotlib
import msgspec
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from speedrunner.config.condition import Choice, Treatment
from speedrunner.plain.console import shorten, visible
from speedrunner.results.conditions import (
    ALL_PUBLIC,
    ASI,
    ASI_REPLAY,
    ASI_STYLE,
    OFF,
    OPO,
    OURS,
    REACT,
    VOYAGER,
)
from speedrunner.results.inference import Estimate
from speedrunner.results.means import Spread

WIDTH, ROW = 7.0, 1.9
"""Inches: width of a figure, and height of a row of panels."""

SMALL = (4.2, 2.7)
"""Size of a single panel on a page, in inches."""

NAME, LEGEND_COLUMN = 28, 1.7
"""Maximum characters of a name in a figure, and inches of a column of its legend."""

SOFT = "#8c8c8c"
"""Color of axes and deviations."""

matplotlib.rcdefaults()  # a user's matplotlibrc has no influence
matplotlib.rc_file(Path(__file__).with_name("figures.mplstyle"))


class Look(NamedTuple):
    """Color, dash and marker of a series: readable without colors, and by color-blind readers."""

    color: str
    dash: Any = "-"
    marker: str = "o"


_DOTTED, _DASHED, _DASH_DOT = (0, (1, 1.4)), (0, (4, 1.6)), (0, (5, 1.4, 1, 1.4))
_LONG, _LONG_DOT = (0, (8, 2)), (0, (8, 1.6, 1, 1.6))
_SHORT, _THREE_DOTS = (0, (2, 1.2)), (0, (5, 1.4, 1, 1.4, 1, 1.4, 1, 1.4))

LOOKS: dict[Treatment | None, Look] = {
    REACT: Look("#797979", _DOTTED, "o"),
    OPO: Look("#d87d24", _DASHED, "s"),
    ASI: Look("#1f8dd0", _DASH_DOT, "D"),
    ASI_REPLAY: Look("#b5528f", _LONG, "P"),
    VOYAGER: Look("#086658", _LONG_DOT, "^"),
    Treatment(Choice("ace")): Look("#662100", _SHORT, "v"),
    Treatment(Choice("prose")): Look("#6b5b00", _THREE_DOTS, "h"),
    OURS: Look("#10306f", "-", "*"),
    OFF: Look("#c44e00", _DASHED, "X"),
    ASI_STYLE: Look("#1f8dd0", _DOTTED, "D"),
    ALL_PUBLIC: Look("#086658", _DASH_DOT, "s"),
}
"""The look of treatments, the same in all figures."""

OTHER_LOOKS = (
    Look("#0b57b0"),
    Look("#d87d24", _DASHED, "s"),
    Look("#00735c", _DOTTED, "X"),
    Look("#b5528f", _DASH_DOT, "P"),
    Look("#8a2f2a", _LONG, "^"),
    Look("#6b5b00", _LONG_DOT, "D"),
)
"""The looks of other treatments."""


class Series(msgspec.Struct, frozen=True):
    """One curve or point of a panel.

    Attributes:
        name: empty for a curve that is alone.
        treatment: has a look; others have one of `OTHER_LOOKS`, chosen by their name.
        runs: for each run, its value at each `x`: thin lines with small points.
        x: ascending.
        values: the mean at each `x`, with the ends of its interval.
    """

    name: str
    x: Sequence[float]
    values: Sequence[Spread | Estimate]
    treatment: Treatment | None = None
    runs: Sequence[Sequence[float]] = ()

    @property
    def y(self) -> list[float]:
        """Return the means."""
        return [value.mean for value in self.values]

    @property
    def intervals(self) -> list[tuple[float, float]]:
        """Return the ends of each value's interval; an unknown one is empty."""
        return [value.ends or (value.mean, value.mean) for value in self.values]


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes.

    Attributes:
        x: what is at the x axis.
        y: the measure, with its unit.
        kind: `curves`, or `points` with the frontier.
        frontier: names of the points on the Pareto frontier.
    """

    title: str
    x: str
    y: str
    series: list[Series]
    kind: Literal["curves", "points"] = "curves"
    frontier: list[str] = []


class ReportFigure(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        name: name of its files, and its anchor on the page; the paper's label if it has one.
        rows: rows of panels.
    """

    name: str
    title: str
    text: str
    rows: list[list[Panel]]


def draw_files(figure: ReportFigure) -> dict[str, bytes]:
    """Return the files of a figure by their paths in the report's folder. The same figure gives the same
    bytes."""
    rows = figure.rows
    if all(len(row) == 1 for row in rows):
        rows = [[*chain(*rows)]]  # the measures of one environment side by side
    canvas = _draw(rows, (WIDTH, ROW * len(rows)))
    return {f"figures/{figure.name}.{kind}": _file_content(canvas, kind) for kind in ("svg", "pdf")}


def show_panel(panel: Panel, title: str) -> Markup:
    """Return a panel as an image within a page; empty without a value.

    Args:
        title: describes the image to those who do not see it.
    """
    if not any(series.values for series in panel.series):
        return Markup()
    return show_svg(_file_content(_draw([[panel]], SMALL), "svg"), title)


def show_svg(content: bytes, title: str) -> Markup:
    """Return an SVG file as an image within a page. It loads nothing and shares no ids with the page."""
    data = base64.b64encode(content).decode()
    return Markup('<img class="plot" alt="{}" src="data:image/svg+xml;base64,{}">').format(title, data)


def choose_looks(series: Iterable[Series]) -> dict[str, Look]:
    """Return the look of each name in a figure: its treatment's, the same in all figures, unless another name
    of the figure has its color."""
    looks: dict[str, Look] = {}
    for one in series:
        first = crc32(str(one.treatment).encode()) % len(OTHER_LOOKS)
        usual = (*OTHER_LOOKS[first:], *OTHER_LOOKS[:first])
        if one.treatment in LOOKS:
            usual = (LOOKS[one.treatment], *usual)
        taken = {look.color for look in looks.values()}
        if one.name not in looks:
            looks[one.name] = next((look for look in usual if look.color not in taken), usual[0])
    return looks


def _file_content(canvas: Canvas, kind: Literal["svg", "pdf"]) -> bytes:
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}[kind]
    content = io.BytesIO()
    canvas.savefig(content, format=kind, transparent=kind == "svg", metadata=metadata)
    canvas.set_layout_engine("none")  # the next file has the same places
    return content.getvalue()


def _draw(rows: Sequence[Sequence[Panel]], size: tuple[float, float]) -> Canvas:
    """Draw panels in rows, and one legend below them."""
    looks = choose_looks(series for panel in chain(*rows) for series in panel.series)
    canvas = Canvas(size)
    grid = canvas.subplots(len(rows), max(map(len, rows)), squeeze=False)
    handles: dict[str, Any] = {}
    for row, places in zip(rows, grid, strict=True):
        for axes in places[len(row) :]:
            axes.remove()
        for panel, axes in zip(row, places, strict=False):
            plot = _plot_points if panel.kind == "points" else _plot_curves
            plot(axes, panel, looks)
            axes.set(title=visible(panel.title), xlabel=panel.x, ylabel=panel.y)
            for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(name, handle)
    names = [shorten(visible(name), NAME) for name in handles if name]
    if names:
        columns = max(1, int(size[0] // LEGEND_COLUMN))
        canvas.set_figheight(size[1] + 0.16 * -(-len(names) // columns))
        canvas.legend([*handles.values()], names, loc="outside lower center", ncols=columns)
    return canvas


def _plot_curves(axes: Axes, panel: Panel, looks: Mapping[str, Look]) -> None:
    """Plot curves with their intervals as bands; the measure begins at zero."""
    for series in panel.series:
        if not series.values:
            continue
        look, x = looks[series.name], series.x
        low, high = zip(*series.intervals, strict=True)
        axes.fill_between(x, low, high, color=look.color, alpha=0.14, linewidth=0)
        if len(x) == 1:
            axes.vlines(x, low, high, color=look.color, linewidth=1)
        axes.plot(x, series.y, color=look.color, linestyle=look.dash, marker=look.marker, label=series.name)
        for run in series.runs:
            axes.plot(x, run, color=look.color, marker=look.marker, markersize=2, linewidth=0.4)
    axes.locator_params(axis="x", nbins=5, integer=True)
    axes.locator_params(axis="y", nbins=5)
    axes.set_ylim(min(axes.dataLim.y0, 0.0), 1.05 * axes.dataLim.y1 or 1.0)


def _plot_points(axes: Axes, panel: Panel, looks: Mapping[str, Look]) -> None:
    where = {series.name: (series.x[0], series.y[0]) for series in panel.series}
    axes.plot(*zip(*(where[name] for name in panel.frontier), strict=True), color=SOFT, linestyle="--")
    for series in panel.series:
        look = looks[series.name]
        deviations = [value.ends[1] - value.mean if value.ends else 0.0 for value in series.values]
        axes.errorbar(
            series.x, series.y, yerr=deviations, color=look.color,
            marker=look.marker, linestyle="none", ecolor=SOFT, elinewidth=0.6, label=series.name,
            clip_on=False,
        )  # fmt: skip
    axes.locator_params(nbins=4)
    axes.set(xlim=(0, None), ylim=(min(axes.dataLim.y0, 0.0), 1.05 * axes.dataLim.y1 or 1.0))
