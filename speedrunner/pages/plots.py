"""Draw curves with matplotlib: one look for the viewer, the report and the figures of papers."""

from __future__ import annotations

import base64
import io
import textwrap
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import matplotlib
import msgspec
import numpy
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import FuncFormatter, MaxNLocator

from speedrunner.config.console import shorten, visible
from speedrunner.results.conditions import ALL_PUBLIC, ASI_STYLE, OFF, OURS, REACT

TEXT, SOFT, GRID = "#1b1b1b", "#8c8c8c", "#dcdcdc"
"""Colors of texts, of axes and deviations, and of grid lines."""

LIMIT = 1e30
"""Larger values are drawn as this one: matplotlib cannot choose ticks for them."""

STEPS = [1, 2, 2.5, 5, 10]
"""Steps of ticks, times a power of ten."""

LEGEND_LETTERS = 40
"""Maximum characters of a name in a legend."""

SMALL, LARGE = (3.9, 2.5), (5.2, 3.2)
"""Sizes of drawings, in inches."""

SPARK_WIDTH, SPARK_HEIGHT = 80, 28
"""Size of a sparkline in its own units; the page stretches it."""

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # included in matplotlib, so the same everywhere
    "text.parse_math": False,
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": SOFT,
    "axes.linewidth": 0.6,
    "axes.titleweight": "bold",
    "axes.titlesize": "medium",
    "axes.labelsize": "medium",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "xtick.labelsize": "medium",
    "ytick.labelsize": "medium",
    "grid.color": GRID,
    "grid.linewidth": 0.4,
    "legend.frameon": False,
    "legend.fontsize": "medium",
    "legend.handlelength": 3.2,
    "lines.linewidth": 1.2,
    "lines.markersize": 4,
    "hatch.linewidth": 0.5,
    "errorbar.capsize": 1.5,
    "figure.constrained_layout.use": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "speedrunner",
    "pdf.fonttype": 42,
}


class Look(NamedTuple):
    """Color, dash, marker and hatch of a series in matplotlib's notation: readable without colors, and by
    color-blind readers."""

    color: str
    dash: Any = "-"
    marker: str = "o"
    hatch: str = ""

    @property
    def line(self) -> dict[str, Any]:
        """Return the arguments of a line with markers."""
        return {"color": self.color, "linestyle": self.dash, "marker": self.marker}

    @property
    def bar(self) -> dict[str, Any]:
        """Return the arguments of a bar."""
        return {"color": self.color, "hatch": self.hatch * 2, "edgecolor": "white", "linewidth": 0.8}


_DOTTED, _DASHED, _DASH_DOT = (0, (1, 1.4)), (0, (4, 1.6)), (0, (5, 1.4, 1, 1.4))
_LONG, _LONG_DOT = (0, (8, 2)), (0, (8, 1.6, 1, 1.6))

LOOKS = {
    REACT: Look("#797979", _DOTTED, "o", ".."),
    "opo": Look("#d87d24", _DASHED, "s", "//"),
    "asi": Look("#1f8dd0", _DASH_DOT, "D", "\\\\"),
    "asi_replay": Look("#b5528f", _LONG, "P", "xx"),
    "voyager": Look("#086658", _LONG_DOT, "^", "--"),
    OURS: Look("#10306f", "-", "*"),
    OFF: Look("#c44e00", _DASHED, "X", "++"),
    ASI_STYLE: Look("#1f8dd0", _DOTTED, "D", "\\\\"),
    ALL_PUBLIC: Look("#086658", _DASH_DOT, "s", "//"),
    "uncached": Look("#c44e00"),
    "cached": Look("#b5b5b5", _DOTTED, "s", "//"),
    "output": Look("#10306f", _DASHED, "D", "xx"),
    "with prefix cache": Look("#b5b5b5", _DOTTED, "s", "//"),
    "without": Look("#c44e00"),
}
"""The look of methods and token classes, the same in all figures."""

OTHER_LOOKS = (
    Look("#0b57b0"),
    Look("#d87d24", _DASHED, "s", "//"),
    Look("#00735c", _DOTTED, "X", "xx"),
    Look("#b5528f", _DASH_DOT, "P", "--"),
    Look("#8a2f2a", _LONG, "^", "++"),
    Look("#6b5b00", _LONG_DOT, "D", "\\\\"),
    Look("#5d5f66", _DASHED, "v", ".."),
    Look("#2f6f8f", _DOTTED, "h", "oo"),
)
"""The looks of other names, in the order in which a figure has them."""


class Curve(msgspec.Struct, frozen=True):
    """One curve; `x` ascends.

    Attributes:
        name: its name in the legend, which chooses its look; curves with one name share both. Empty for a
            curve that is alone.
        low, high: the ends of each value's interval, `None` where it is unknown; empty without intervals.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()


def draw_curves(
    curves: Iterable[Curve], *, title: str, x_label: str, y_label: str, size: tuple[float, float] = LARGE
) -> Markup:
    """Return curves with shaded intervals, and a legend if they have names, as an image for a page; empty
    without a point.

    Args:
        title: describes the image to those who do not see it.
        x_label, y_label: what is at the axes, with units.
        size: width and height in inches.
    """
    shown = [curve for curve in curves if len(curve.x)]
    if not shown:
        return Markup()
    with drawing(8):
        canvas = Canvas(size)
        axes = canvas.add_subplot()
        plot_curves(axes, shown, choose_looks(curve.name for curve in shown))
        label_axes(axes, x_label, y_label)
        add_legend(canvas)
        return show_image(canvas, title)


def plot_curves(axes: Axes, curves: Sequence[Curve], looks: dict[str, Look]) -> None:
    """Plot curves with their intervals on axes that begin at zero."""
    for curve in curves:
        look, y = looks[curve.name], clip(curve.y)
        low, high = (clip(ends) if len(ends) else y for ends in (curve.low, curve.high))
        if len(curve.x) == 1:
            low, high = (numpy.where(numpy.isnan(ends), y, ends) for ends in (low, high))
            axes.vlines(curve.x, low, high, color=look.color, linewidth=1)
        axes.fill_between(curve.x, low, high, color=look.color, alpha=0.14, linewidth=0)
        axes.plot(curve.x, y, **look.line, label=curve.name or "_", clip_on=False)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=STEPS))
    if len(places := {x for curve in curves for x in curve.x}) == 1:
        axes.set_xticks([*places])
    start_at_zero(axes)


def clip(values: Sequence[Any]) -> Any:
    """Return values as an array that matplotlib can draw; unknown ones are NaN."""
    return numpy.clip(numpy.array(values, dtype=float), -LIMIT, LIMIT)


def start_at_zero(axes: Axes, which: Literal["x", "y"] = "y") -> None:
    """Let an axis begin at zero, or end there if all values are negative, with plain numbers at its ticks."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_data_interval()
    known = bool(numpy.isfinite([low, high]).all())
    low, high = (min(low, 0.0), max(high, 0.0)) if known else (0.0, 0.0)
    space = (high - low or 1.0) * 0.06
    ends = low - space if low else 0.0, high + space if high or not low else 0.0
    axes.set(**{f"{which}lim": ends if low or high else (0.0, 1.0)})
    axis.set_major_locator(MaxNLocator(5, steps=STEPS))
    axis.set_major_formatter(FuncFormatter(_show_tick))


def _show_tick(value: float, _: object) -> str:
    if 1e6 <= abs(value) < 1e12:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if 1e4 <= abs(value) < 1e6 else f"{value:,.6g}"


def label_axes(
    axes: Axes, x_label: str, y_label: str, title: str = "", *, across: int = 34, up: int = 30
) -> None:
    """Write names at the axes and a title above them.

    Args:
        across, up: maximum characters of their lines, horizontally and vertically; they have at most two.
    """
    axes.set_xlabel(_wrap(x_label, across))
    axes.set_ylabel(_wrap(y_label, up))
    axes.set_title(_wrap(title, across))


def _wrap(text: str, letters: int) -> str:
    return "\n".join(textwrap.wrap(drawable(text), letters, max_lines=2, placeholder=" ..."))


def choose_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each name in a figure. Names that are not in `LOOKS` differ from each other."""
    different = list(dict.fromkeys(names))
    others = [name for name in different if name not in LOOKS]
    return {name: LOOKS.get(name) or OTHER_LOOKS[others.index(name) % len(OTHER_LOOKS)] for name in different}


def add_legend(canvas: Canvas, new_names: Mapping[str, str] = {}) -> int:
    """Add one legend for all axes of a figure below them, in as many columns as fit. Return its lines.

    Args:
        new_names: names to show instead of those of series.
    """
    handles: dict[str, Any] = {}
    for axes in canvas.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(new_names.get(name, name), handle)
    if not handles:
        return 0
    names = [shorten(drawable(name), LEGEND_LETTERS) for name in handles]
    letters = canvas.get_figwidth() * 72 / matplotlib.rcParams["font.size"] * 1.6
    columns = max(1, int(letters // (max(map(len, names)) + 9)))
    canvas.legend([*handles.values()], names, loc="outside lower center", ncols=columns, columnspacing=1.5)
    return -(-len(names) // columns)


def drawable(text: str) -> str:
    """Return a text without control characters and without characters that XML forbids."""
    return visible(text).translate({0xFFFE: "\ufffd", 0xFFFF: "\ufffd"})


_LOCK = threading.Lock()


@contextmanager
def drawing(font_size: float) -> Iterator[None]:
    """Apply this project's settings, independent of any `matplotlibrc`. One thread draws at a time, because
    matplotlib's settings are global."""
    with _LOCK, matplotlib.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # other scripts: a browser has fonts for them
        matplotlib.rcdefaults()
        settings: Any = {**SETTINGS, "font.size": font_size}
        matplotlib.rcParams.update(settings)
        yield


def file_content(canvas: Canvas, kind: Literal["svg", "pdf", "png"]) -> bytes:
    """Return a drawing as a file. The same drawing gives the same bytes."""
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    content = io.BytesIO()
    canvas.savefig(content, format=kind, dpi=300, transparent=kind == "svg", metadata=metadata)
    return content.getvalue()


def show_image(canvas: Canvas, title: str) -> Markup:
    """Return a drawing as an image within a page, with a title for those who do not see it."""
    return show_svg(file_content(canvas, "svg"), title)


def show_svg(content: bytes, title: str) -> Markup:
    """Return an SVG file as an image within a page. It loads nothing and shares no ids with the page."""
    data = base64.b64encode(content).decode()
    return Markup('<img class="plot" alt="{}" src="data:image/svg+xml;base64,{}">').format(
        visible(title), data
    )


def draw_spark(points: Sequence[tuple[float, float]], top: float = 0) -> Markup:
    """Draw a line over a zero baseline, with a dot at the last value; empty for one point.

    Screen readers skip it, because the text next to it has the values.

    Args:
        points: (place, value), ascending.
        top: value at the upper edge, unless a point is higher: sparklines with one scale can be compared.
    """
    if len(points) < 2:
        return Markup()
    places, values = zip(*points, strict=True)
    low = min(0, *values)
    width, height = (places[-1] - places[0]) or 1, (max(top, *values) - low) or 1
    shown = [
        (
            round(SPARK_WIDTH * (place - places[0]) / width, 1),
            round(SPARK_HEIGHT * (1 - (value - low) / height), 1),
        )
        for place, value in points
    ]
    svg = (
        '<svg class="spark" viewBox="0 0 {} {}" aria-hidden="true"><polyline points="{}"/>'
        '<circle cx="{}" cy="{}" r="3"/></svg>'
    )
    line = " ".join(f"{x},{y}" for x, y in shown)
    return Markup(svg).format(SPARK_WIDTH, SPARK_HEIGHT, line, *shown[-1])
