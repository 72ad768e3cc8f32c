"""Headline tiles: a value at the last checkpoint with its change since the first one and a sparkline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from markupsafe import Markup

from speedrunner.pages.number_texts import dollars
from speedrunner.pages.plots import draw_spark
from speedrunner.pages.tables import UNKNOWN

Form = Literal["score", "tokens", "usd", "share", "count"]


class Tile(msgspec.Struct, frozen=True):
    """A headline number.

    Attributes:
        change: the first value and the difference, as text; empty for one checkpoint.
        spark: the sparkline; empty for one checkpoint.
    """

    label: str
    value: str
    change: str = ""
    spark: Markup = Markup()


def make_tile(
    label: str, points: Sequence[tuple[int, float]], form: Form, note: str = "", top: float = 0
) -> Tile:
    """Return the tile of a measure.

    Args:
        points: (training rollouts, value), ascending; may be empty.
        note: follows the change.
        top: see `draw_spark`.
    """
    if not points:
        return Tile(label, UNKNOWN, note or ("no price is known" if form == "usd" else "not measured"))
    (start, first), (_, last) = points[0], points[-1]
    change = ""
    if len(points) > 1:
        when = "before training" if start == 0 else f"after {start} rollouts"
        change = f"{show_value(first, form)} {when}, {_difference(first, last, form)}"
    return Tile(
        label, show_value(last, form), "; ".join(filter(None, (change, note))), draw_spark(points, top)
    )


def show_value(value: float, form: Form) -> str:
    """Return a value as text: three decimals of a score, whole tokens, dollars, percent."""
    if form == "usd":
        return dollars(value)
    if form == "share":
        return f"{value:.0%}"
    if form == "score":
        return f"{value:.3f}"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def _difference(first: float, last: float, form: Form) -> str:
    if form in ("tokens", "usd") and first:
        text = f"{(last - first) / first:+.0%}"
    elif form == "share":
        points = round(100 * (last - first))
        text = f"{points:+} point{'s' if abs(points) != 1 else ''}"
    else:
        text = f"{'-' if last < first else '+'}{show_value(abs(last - first), form)}"
    return "unchanged" if not text.strip("+-0.%$ points") else text.replace("-", "−")
