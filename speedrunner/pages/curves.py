"""Draw learning curves with their uncertainty, one or several in a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from speedrunner.pages.tiles import Form, show_value

SERIES = 8
"""Maximum number of legend entries in a figure: as many have their own color and dash pattern."""

LEFT, RIGHT, TOP, BOTTOM = 60, 14, 14, 42
"""Margins for the labels of the axes."""

RADIUS, NEAR = 3.5, 9
"""Radius of a mark, and of the area in which its value is shown."""


class Size(NamedTuple):
    """Width and height of a figure, in the units of its texts."""

    width: int
    height: int


SMALL, LARGE = Size(310, 184), Size(560, 300)


class Point(msgspec.Struct, frozen=True):
    """A mean at a checkpoint; `ends` are those of its interval, `None` if unknown."""

    rollouts: int
    value: float
    ends: tuple[float, float] | None = None

    def describe(self, form: Form) -> str:
        """Return the value with its interval and checkpoint."""
        ends = (show_value(end, form) for end in self.ends or ())
        around = "" if self.ends is None else f" ({' to '.join(ends)})"
        return f"{show_value(self.value, form)}{around} after {self.rollouts} rollouts"


class Series(msgspec.Struct, frozen=True):
    """One curve; points are ascending.

    Attributes:
        name: empty for a curve that is alone.
        group: its name in the legend, if it shares its color with other curves.
    """

    name: str
    points: Sequence[Point]
    group: str = ""

    @property
    def legend(self) -> str:
        """Return its name in the legend."""
        return self.group or self.name

    def describe(self, *points: str) -> str:
        """Return descriptions of points with its name before them."""
        return f"{self.name}: " * bool(self.name) + ", ".join(points)


def plot_curves(measure: str, series: Sequence[Series], form: Form, size: Size = LARGE) -> Markup:
    """Draw curves over training rollouts with their intervals as shaded bands, and a legend of their names;
    empty without points.

    Args:
        series: with at most `SERIES` different names in the legend.
    """
    points = [point for each in series for point in each.points]
    if not points:
        return Markup()
    last = max(point.rollouts for point in points) or 1
    ends = [end for point in points for end in (point.value, *(point.ends or ()))]
    bottom, step, top = _choose_range(min(ends), max(ends))

    def place(x: float, y: float) -> tuple[float, float]:
        across, down = size.width - LEFT - RIGHT, size.height - TOP - BOTTOM
        share = (y - bottom) / (top - bottom)
        return round(LEFT + across * x / last, 1), round(TOP + down * (1 - share), 1)

    parts = []
    for number in range(round((top - bottom) / step) + 1):
        value = bottom + number * step
        (left, high), (right, _) = place(0, value), place(last, value)
        kind = "axis" if abs(value) < step / 1e6 else "rule"
        line = '<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/><text class="y" x="{}" y="{}">{}</text>'
        tick = _show_tick(0.0 if kind == "axis" else value, form)
        parts.append(Markup(line).format(kind, left, high, right, high, left - 8, high + 4, tick))
    label = '<text class="x" x="{}" y="{}">{}</text>'
    for x in sorted({0, last // 2, last}):
        parts.append(Markup(label).format(place(x, 0)[0], size.height - 24, x))
    middle = (size.width + LEFT - RIGHT) / 2
    parts.append(Markup(label).format(middle, size.height - 6, "training rollouts"))
    colors = {name: number for number, name in enumerate(dict.fromkeys(each.legend for each in series))}
    parts += [_draw_series(colors[each.legend], each, form, place) for each in series]
    texts = "; ".join(each.describe(*(point.describe(form) for point in each.points)) for each in series)
    svg = '<svg class="plot{}" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}'
    title = f"{measure} over training rollouts. {texts}"
    kind = " large" * (size == LARGE)
    return Markup(svg).format(kind, size.width, size.height, title, Markup().join(parts), _legend(colors))


def _draw_series(
    number: int, series: Series, form: Form, place: Callable[[float, float], tuple[float, float]]
) -> Markup:
    parts = []
    banded = [(point.rollouts, *point.ends) for point in series.points if point.ends is not None]
    if len(banded) > 1:
        outline = [place(rollouts, high) for rollouts, _, high in banded]
        outline += [place(rollouts, low) for rollouts, low, _ in reversed(banded)]
        parts.append(Markup('<polygon points="{}"/>').format(_join(outline)))
    for rollouts, low, high in banded if len(banded) == 1 else ():
        (x, bottom), (_, top) = place(rollouts, low), place(rollouts, high)
        parts.append(Markup('<line x1="{}" y1="{}" x2="{}" y2="{}"/>').format(x, bottom, x, top))
    spots = [place(point.rollouts, point.value) for point in series.points]
    parts.append(Markup('<polyline points="{}"/>').format(_join(spots)))
    for (x, y), point in zip(spots, series.points, strict=True):
        mark = (
            '<g class="mark"><title>{}</title><circle class="near" cx="{}" cy="{}" r="{}"/>'
            '<circle cx="{}" cy="{}" r="{}"/></g>'
        )
        parts.append(Markup(mark).format(series.describe(point.describe(form)), x, y, NEAR, x, y, RADIUS))
    return Markup('<g class="series-{}">{}</g>').format(number, Markup().join(parts))


def _join(corners: Sequence[tuple[float, float]]) -> str:
    """Return places as the points of an SVG line."""
    return " ".join(f"{x},{y}" for x, y in corners)


def _legend(colors: Mapping[str, int]) -> Markup:
    if [*colors] == [""]:
        return Markup()
    sample = (
        '<li class="series-{}"><svg viewBox="0 0 34 12" aria-hidden="true"><polyline points="1,6 33,6"/>'
        '<circle cx="17" cy="6" r="3.5"/></svg> {}</li>'
    )
    items = [Markup(sample).format(number, name) for name, number in colors.items()]
    return Markup('<ul class="legend">{}</ul>').format(Markup().join(items))


def _choose_range(least: float, most: float) -> tuple[float, float, float]:
    """Return the lower end, the step and the upper end of an axis that includes zero and has about four
    steps of 1, 2 or 5 times a power of ten."""
    least, most = min(least, 0.0), max(most, 0.0)
    if most == least:
        most = 1.0
    rough = (most - least) / 4
    ten = 10.0 ** floor(log10(rough))
    step = next(factor * ten for factor in (1, 2, 5, 10) if factor * ten >= rough * 0.999)
    return floor(least / step + 1e-9) * step, step, ceil(most / step - 1e-9) * step


def _show_tick(value: float, form: Form) -> str:
    """Return the number at an axis."""
    return show_value(value, form) if form in ("usd", "share") else f"{value:,.7g}"
