"""Draw a learning curve."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10

from markupsafe import Markup

WIDTH, HEIGHT = 440, 190
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 34
"""Margins for the labels of the axes."""


def curve(measure: str, points: Sequence[tuple[int, float]]) -> Markup:
    """Draw a line of (training rollouts, value) from zero; empty without points."""
    if not points:
        return Markup()
    last, most = max(x for x, _ in points) or 1, _round_up(max(y for _, y in points))

    def place(x: float, y: float) -> tuple[float, float]:
        across, down = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + across * x / last, 1), round(TOP + down * (1 - y / most), 1)

    parts = [
        Markup('<line class="axis" x1="{}" y1="{}" x2="{}" y2="{}"/>').format(*place(0, 0), *place(last, 0))
    ]
    for share in (0.0, 0.5, 1.0):
        (left, high), (right, _) = place(0, share * most), place(last, 0)
        line = (
            '<line class="lines" x1="{}" y1="{}" x2="{}" y2="{}"/><text class="y" x="{}" y="{}">{:g}</text>'
        )
        parts.append(Markup(line).format(left, high, right, high, left - 6, high + 4, share * most))
    for x in sorted({0, last // 2, last} if last > 1 else {0, last}):
        parts.append(Markup('<text class="x" x="{}" y="{}">{}</text>').format(place(x, 0)[0], HEIGHT - 20, x))
    shown = [place(*point) for point in points]
    parts.append(Markup('<polyline points="{}"/>').format(" ".join(f"{x},{y}" for x, y in shown)))
    for (across, down), (rollouts, value) in zip(shown, points, strict=True):
        dot = '<circle cx="{}" cy="{}" r="3.5"><title>{} after {} rollouts</title></circle>'
        parts.append(Markup(dot).format(across, down, f"{value:.4g}", rollouts))
    parts.append(
        Markup('<text class="x" x="{}" y="{}">training rollouts</text>').format(WIDTH / 2, HEIGHT - 5)
    )
    values = ", ".join(f"{value:.4g} after {rollouts}" for rollouts, value in points)
    svg = '<svg class="curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    return Markup(svg).format(
        WIDTH, HEIGHT, f"{measure} over training rollouts: {values}", Markup().join(parts)
    )


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 3 to 9, 10, 20, 30 and so on, or of a tenth of these."""
    if value <= 0:
        return 1.0
    ten = 10.0 ** floor(log10(value))
    return ceil(value / ten) * ten
