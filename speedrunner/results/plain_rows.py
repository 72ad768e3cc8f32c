"""Rows of data frames as plain values; missing ones are `None`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas


def plain_value(value: Any) -> Any:
    """Return a value of a frame as a Python value: text, number, boolean, `None`, or unchanged if it is
    another type."""
    if value is None or isinstance(value, str):
        return value
    if str(value) in ("nan", "<NA>"):
        return None
    return value.item() if hasattr(value, "item") else value


def list_rows(frame: pandas.DataFrame) -> list[dict[str, Any]]:
    """Return a frame's rows by column, a named index included."""
    whole = frame.reset_index() if frame.index.name else frame
    return [
        {name: plain_value(value) for name, value in zip(whole.columns, row, strict=True)}
        for row in whole.itertuples(index=False, name=None)
    ]
