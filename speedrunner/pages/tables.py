"""Tables of pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from markupsafe import Markup, escape

from speedrunner.config.console import visible
from speedrunner.pages.number_texts import exact_number

UNKNOWN = "–"


class Column(msgspec.Struct, frozen=True):
    """A column of a table.

    Attributes:
        show: returns the text of a known cell; `None`: as `show_cell` does.
        numbers: whether it is aligned to the right; `None`: if all known cells are numbers.
    """

    name: str
    show: Callable[[Any], str] | None = None
    numbers: bool | None = None


def html_table(
    columns: Sequence[str | Column], rows: Sequence[Sequence[Any]], *, label: str, kind: str = ""
) -> Markup:
    """Return a table for a page, which scrolls if it is wider than its place.

    Args:
        rows: cells: texts, numbers, `Markup`, or `None` if unknown.
        label: what the table shows, for screen readers.
        kind: classes of the table in the stylesheet.
    """
    known = [each if isinstance(each, Column) else Column(each) for each in columns]
    right = [_is_right(column, [row[place] for row in rows]) for place, column in enumerate(known)]
    head = [
        _element("th", visible(column.name).replace("_", " "), is_right, Markup(' scope="col"'))
        for column, is_right in zip(known, right, strict=True)
    ]
    body = [
        [
            _element("td", _show(cell, column), is_right)
            for cell, column, is_right in zip(row, known, right, strict=True)
        ]
        for row in rows
    ]
    return Markup(
        '<div class="wide" tabindex="0" role="region" aria-label="{}">\n<table{}>\n<thead>{}</thead>\n'
        "<tbody>\n{}\n</tbody>\n</table>\n</div>"
    ).format(
        visible(label),
        Markup(' class="{}"').format(kind) if kind else "",
        _row(head),
        Markup("\n").join(map(_row, body)),
    )


def show_cell(cell: Any, column: str = "") -> str:
    """Return a cell as text: four digits, thousands separated, `$` in columns of USD; markup stays."""
    if cell is None:
        return UNKNOWN
    if isinstance(cell, float):
        return exact_number(cell, "USD" if "usd" in column.lower() else "")
    return f"{cell:,}" if isinstance(cell, int) else cell if isinstance(cell, Markup) else visible(str(cell))


def _is_right(column: Column, cells: Sequence[Any]) -> bool:
    if column.numbers is not None:
        return column.numbers
    known = [cell for cell in cells if cell is not None]
    return bool(known) and all(isinstance(cell, int | float) for cell in known)


def _show(cell: Any, column: Column) -> str:
    return show_cell(cell, column.name) if cell is None or column.show is None else column.show(cell)


def _element(tag: str, content: str, is_right: bool, more: Markup = Markup()) -> Markup:  # noqa: B008
    kind = Markup(' class="number"') if is_right else ""
    return Markup("<{}{}{}>{}</{}>").format(tag, more, kind, escape(content), tag)


def _row(cells: Sequence[Markup]) -> Markup:
    return Markup("<tr>{}</tr>").format(Markup().join(cells))
