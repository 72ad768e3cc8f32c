"""Draw a learning curve with its uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, log10

import msgspec
from markupsafe import Markup

from speedrunner.markup.tiles import Form, show_value

WIDTH, HEIGHT = 300, 176
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 38
"""Margins for the labels of the axes."""

NEAR = 12
"""Radius around a mark in which its value is shown."""


class Point(msgspec.Struct, frozen=True):
    """A mean at a checkpoint; `ends` are those of its interval, `None` if unknown."""

    rollouts: int
    value: float
    ends: tuple[float, float] | None = None

    def describe(self, show: Callable[[float], str]) -> str:
        """Return the value with its interval and checkpoint."""
        around = "" if self.ends is None else f" ({' to '.join(map(show, self.ends))})"
        return f"{show(self.value)}{around} after {self.rollouts}"


def join_corners(corners: Iterable[tuple[float, float]]) -> str:
    """Return places as the points of an SVG line."""
    return " ".join(f"{x},{y}" for x, y in corners)


def curve(measure: str, points: Sequence[Point], form: Form) -> Markup:
    """Draw a line over training rollouts, from zero, with a band between the ends; empty without points."""
    if not points:
        return Markup()
    last = max(point.rollouts for point in points) or 1
    most = _round_up(max(end for point in points for end in (point.value, *(point.ends or ()))))
    if form in ("score", "share") and most <= 1:
        most = 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + across * x / last, 1), round(TOP + down * (1 - y / most), 1)

    def show(value: float) -> str:
        return show_value(value, form)

    parts = [
        Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(*place(0, 0), *place(last, 0))
    ]
    for share in (0.0, 0.5, 1.0):
        (left, high), (right, _) = place(0, share * most), place(last, 0)
        line = '<line class="lines" x1="{}" y1="{}" x2="{}" y2="{}"/><text class="y" x="{}" y="{}">{}</text>'
        parts.append(
            Markup(line).format(left, high, right, high, left - 7, high + 4, _tick(share * most, form))
        )
    for x in sorted({0, last // 2, last} if last > 1 else {0, last}):
        parts.append(Markup('<text class="x" x="{}" y="{}">{}</text>').format(place(x, 0)[0], HEIGHT - 22, x))
    known = [(point.rollouts, *point.ends) for point in points if point.ends is not None]
    if len(known) > 1:
        band = [place(x, low) for x, low, _ in known] + [place(x, high) for x, _, high in reversed(known)]
        parts.append(Markup('<polygon points="{}"/>').format(join_corners(band)))
    shown = [place(point.rollouts, point.value) for point in points]
    parts.append(Markup('<polyline points="{}"/>').format(join_corners(shown)))
    for (across, down), point in zip(shown, points, strict=True):
        mark = (
            '<g class="mark"><title>{}</title><circle class="near" cx="{}" cy="{}" r="{}"/>'
            '<circle cx="{}" cy="{}" r="3.5"/></g>'
        )
        text = f"{point.describe(show)} rollouts"
        parts.append(Markup(mark).format(text, across, down, NEAR, across, down))
    parts.append(
        Markup('<text class="x" x="{}" y="{}">training rollouts</text>').format(
            (WIDTH + LEFT - RIGHT) / 2, HEIGHT - 5
        )
    )
    values = ", ".join(point.describe(show) for point in points)
    svg = '<svg class="curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    label = f"{measure} over training rollouts: {values}"
    return Markup(svg).format(WIDTH, HEIGHT, label, Markup().join(parts))


def _tick(value: float, form: Form) -> str:
    """Return the number at an axis."""
    if form in ("usd", "share"):
        return show_value(value, form)
    return f"{value:,g}"


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 3 to 9, 10, 20, 30 and so on, or of a tenth of these."""
    if value <= 0:
        return 1.0
    ten = 10.0 ** floor(log10(value))
    return ceil(round(value / ten, 9)) * ten
