"""Parts of pages: templates, links, badges, numbers and tables.

All of them escape every text and remove control characters.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from speedrunner.plain.console import visible

UNKNOWN = "–"

LONG = 160
"""Characters of a text that a page shows whole."""


@cache
def templates() -> jinja2.Environment:
    """Return the templates of all pages. All callers share one environment, so each is compiled once."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    found.globals |= {"badge": badge, "fold": fold}
    return found


def stylesheet() -> str:
    """Return the CSS of all pages."""
    return (files(__package__) / "templates" / "style.css").read_text(encoding="utf-8")


def link(address: str, text: object) -> Markup:
    """Return a link."""
    return Markup('<a href="{}">{}</a>').format(address, visible(str(text)))


def element(tag: str, kind: str, text: str) -> Markup:
    """Return a text in an element of a class."""
    return Markup('<{0} class="{1}">{2}</{0}>').format(tag, kind, visible(text))


def fold(text: str) -> Markup:
    """Return a text of which a page shows two lines and a link to the rest, if it is long."""
    if len(text) <= LONG:
        return Markup("{}").format(visible(text))
    long = '<details class="long"><summary><span>{}</span> <b>more</b></summary></details>'
    return Markup(long).format(visible(text))


def badge(kind: str, text: str) -> Markup:
    """Return a text in a colored frame: `good`, `bad`, `warn` or `plain`."""
    return element("span", f"badge {kind}", text)


def show_number(value: float | None, column: str = "") -> str:
    """Return a number with four digits, commas between thousands, and `$` if the column is of USD."""
    if value is None:
        return UNKNOWN
    dollar = "$" if "usd" in column.lower() else ""
    return f"{dollar}{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{dollar}{value:.4g}"


def show_cell(cell: Any, column: str = "") -> str:
    """Return a cell as text; markup stays."""
    if cell is None or isinstance(cell, int | float):
        return show_number(cell, column)
    return cell if isinstance(cell, Markup) else visible(str(cell))


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, label: str, kind: str = ""
) -> Markup:
    """Return a table for a page, which scrolls if it is wider than its place. Columns of numbers are aligned
    to the right.

    Args:
        rows: cells: texts, numbers, `Markup`, or `None` if unknown.
        label: what the table shows, for screen readers.
        kind: classes of the table in the stylesheet.
    """
    kinds = []
    for place in range(len(columns)):
        known = [row[place] for row in rows if row[place] is not None]
        is_number = bool(known) and all(isinstance(cell, int | float) for cell in known)
        kinds.append("number" if is_number else "text")
    head = (
        Markup('<th scope="col" class="{}">{}</th>').format(kind, visible(column).replace("_", " "))
        for kind, column in zip(kinds, columns, strict=True)
    )
    body = (
        Markup("").join(
            Markup('<td class="{}">{}</td>').format(kind, show_cell(cell, column))
            for kind, column, cell in zip(kinds, columns, row, strict=True)
        )
        for row in rows
    )
    return Markup(
        '<div class="wide" tabindex="0" role="region" aria-label="{}">\n<table class="{}">\n'
        "<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table>\n</div>"
    ).format(
        visible(label),
        kind,
        Markup("").join(head),
        Markup("").join(Markup("<tr>{}</tr>\n").format(row) for row in body),
    )
