"""Numbers as texts."""

from __future__ import annotations

import numpy as np


def exact_number(value: float, label: str) -> str:
    """Return a number with four digits, commas between thousands, and `$` if the label starts with USD."""
    dollar = "$" if label.startswith("USD") else ""
    if 1000 <= abs(value) < 1e15:
        return f"{dollar}{value:,.0f}"
    return f"{dollar}{_digits(value, 4)}"


def dollars(value: float) -> str:
    """Return USD as a headline: cents from $1 on, two digits below."""
    if abs(value) >= 1:
        return f"${value:,.2f}" if abs(value) < 1000 else f"${value:,.0f}"
    return f"${_digits(value, 2)}"


def _digits(value: float, precision: int) -> str:
    if value and not 1e-9 < abs(value) < 1e6:
        return f"{value:.{precision}g}"
    return np.format_float_positional(value, precision, unique=False, fractional=False, trim="-")
