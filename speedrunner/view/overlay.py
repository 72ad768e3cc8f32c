"""Draw several learning curves in one figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10

import msgspec
from markupsafe import Markup

from speedrunner.view.curve import Point, join_corners

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 44
"""Margins for the labels of the axes."""

SERIES = 8
"""Maximum number of legend entries in a figure: as many have their own color and dash pattern."""

RADIUS = 3.5


class Series(msgspec.Struct, frozen=True):
    """One curve; points are ascending.

    Attributes:
        group: its name in the legend, if it shares its color with other curves.
    """

    name: str
    points: Sequence[Point]
    group: str = ""

    @property
    def legend(self) -> str:
        """Return its name in the legend."""
        return self.group or self.name


def draw_overlay(measure: str, series: Sequence[Series]) -> Markup:
    """Draw curves with their intervals as shaded bands, and a legend; empty without points.

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
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        share = (y - bottom) / (top - bottom)
        return round(LEFT + across * x / last, 1), round(TOP + down * (1 - share), 1)

    parts = []
    for number in range(round((top - bottom) / step) + 1):
        value = bottom + number * step
        (left, high), (right, _) = place(0, value), place(last, value)
        kind = "axis" if abs(value) < step / 1e6 else "rule"
        line = '<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}"/><text class="y" x="{}" y="{}">{}</text>'
        parts.append(Markup(line).format(kind, left, high, right, high, left - 8, high + 4, _label(value)))
    for x in sorted({0, last // 2, last}):
        parts.append(Markup('<text class="x" x="{}" y="{}">{}</text>').format(place(x, 0)[0], HEIGHT - 24, x))
    label = '<text class="x" x="{}" y="{}">training rollouts</text>'
    parts.append(Markup(label).format(WIDTH / 2, HEIGHT - 6))
    colors = {name: number for number, name in enumerate(dict.fromkeys(each.legend for each in series))}
    for each in series:
        parts.append(_draw_series(colors[each.legend], each, place))
    texts = "; ".join(f"{each.name}: {', '.join(map(_describe, each.points))}" for each in series)
    svg = '<svg class="overlay" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}'
    return Markup(svg).format(
        WIDTH, HEIGHT, f"{measure} over training rollouts. {texts}", Markup().join(parts), _legend(colors)
    )


def _draw_series(number: int, series: Series, place: Callable[[float, float], tuple[float, float]]) -> Markup:
    parts = []
    banded = [(point.rollouts, *point.ends) for point in series.points if point.ends is not None]
    if len(banded) > 1:
        outline = [place(rollouts, high) for rollouts, _, high in banded]
        outline += [place(rollouts, low) for rollouts, low, _ in reversed(banded)]
        parts.append(Markup('<polygon points="{}"/>').format(join_corners(outline)))
    for rollouts, low, high in banded if len(banded) == 1 else ():
        (x, bottom), (_, top) = place(rollouts, low), place(rollouts, high)
        parts.append(Markup('<line x1="{}" y1="{}" x2="{}" y2="{}"/>').format(x, bottom, x, top))
    spots = [place(point.rollouts, point.value) for point in series.points]
    parts.append(Markup('<polyline points="{}"/>').format(join_corners(spots)))
    for (x, y), point in zip(spots, series.points, strict=True):
        dot = '<circle cx="{}" cy="{}" r="{}"><title>{}: {}</title></circle>'
        parts.append(Markup(dot).format(x, y, RADIUS, series.name, _describe(point)))
    return Markup('<g class="series-{}">{}</g>').format(number, Markup().join(parts))


def _describe(point: Point) -> str:
    return f"{point.describe('{:.4g}'.format)} rollouts"


def _legend(colors: Mapping[str, int]) -> Markup:
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


def _label(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:,.4g}k"
    return f"{value:.4g}" if abs(value) > 1e-12 else "0"
