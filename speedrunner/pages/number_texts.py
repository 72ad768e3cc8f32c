"""Numbers as texts: at axes, and as exact labels of marks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def short_numbers(values: Sequence[float], label: str) -> list[str]:
    """Return the numbers of an axis, all in one unit: at most three digits, with `$` if the axis
    is in USD."""
    most = max(map(abs, values), default=0.0)
    size, unit = (1e6, "M") if most >= 1e6 else (1e3, "k") if most >= 1e4 else (1.0, "")
    return [f"{_dollar(label)}{_digits(value / size, 3)}{unit if value else ''}" for value in values]


def exact_number(value: float, label: str) -> str:
    """Return a number as an exact label: four digits, commas between thousands."""
    if 1000 <= abs(value) < 1e15:
        return f"{_dollar(label)}{value:,.0f}"
    return f"{_dollar(label)}{_digits(value, 4)}"


def dollars(value: float) -> str:
    """Return USD as a headline: cents from $1 on, two digits below."""
    if abs(value) >= 1:
        return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"
    return f"${_digits(value, 2)}"


def _digits(value: float, precision: int) -> str:
    if value and not 1e-9 < abs(value) < 1e6:
        return f"{value:.{precision}g}"
    return np.format_float_positional(value, precision, unique=False, fractional=False, trim="-")


def _dollar(label: str) -> str:
    return "$" if label.startswith("USD") else ""
