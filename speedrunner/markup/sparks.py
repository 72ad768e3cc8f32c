"""Headline tiles: a value with its label, its change and a sparkline."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from markupsafe import Markup

WIDTH, HEIGHT = 80, 28
"""Size of a sparkline in its own units; the page stretches it."""


class Tile(msgspec.Struct, frozen=True):
    """A headline number.

    Attributes:
        change: how it became so, in a few words.
        spark: the sparkline; empty with fewer than two values.
    """

    label: str
    value: str
    change: str
    spark: Markup = Markup()


def draw_spark(points: Sequence[tuple[float, float]]) -> Markup:
    """Draw a line from the lowest to the highest value, with a dot at the last; empty for one point.

    Args:
        points: (place, value) in ascending order of places. The tile states the values as text, so the
            drawing is hidden from screen readers.
    """
    if len(points) < 2:
        return Markup()
    places, values = zip(*points, strict=True)
    first, span = places[0], (places[-1] - places[0]) or 1
    low, height = min(values), (max(values) - min(values))
    shown = [
        (
            round(WIDTH * (place - first) / span, 1),
            round(HEIGHT * (1 - (value - low) / height), 1) if height else HEIGHT / 2,
        )
        for place, value in points
    ]
    svg = (
        '<svg class="spark" viewBox="0 0 {} {}" aria-hidden="true"><polyline points="{}"/>'
        '<circle cx="{}" cy="{}" r="3"/></svg>'
    )
    line = " ".join(f"{x},{y}" for x, y in shown)
    return Markup(svg).format(WIDTH, HEIGHT, line, *shown[-1])
