"""The report page: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from speedrunner.markup import stylesheet, templates
from speedrunner.report.facts import Facts
from speedrunner.report.inline import draw_inline
from speedrunner.report.panels import Figure
from speedrunner.report.styles import palette_css
from speedrunner.results.claim_tables import CLAIMS, COMPARISONS
from speedrunner.results.writing import Cell, Table

ROWS = 200
"""Maximum rows of a table on the page; the files in tables/ have all."""

OPEN = 20
"""Maximum rows of a table that is open initially."""


NO_EFFECT = "The cache's savings are unknown, because no policy was also evaluated on a server without it: "
NO_FORECAST = (
    "No finished run has a forecast from before its start; make one with speedrunner forecast and the"
    " settings of a sweep"
)


class Section(NamedTuple):
    """Tables of one kind; `missing` is shown if one of the expected tables has no row."""

    id: str
    title: str
    tables: list[Table]
    missing: str


def page(
    title: str,
    figures: Sequence[Figure],
    tables: Sequence[Table],
    facts: Facts,
    caveats: Sequence[str],
    problems: Sequence[str],
    not_begun: Sequence[str],
    cache: Sequence[str],
    records: Sequence[Table] = (),
) -> str:
    """Return the whole page.

    Args:
        caveats: notes on the results.
        problems: runs that could not be read, with the reasons.
        not_begun: commands that play experiments without any run.
        cache: commands that evaluate policies without prefix cache.
        records: tables measured by `speedrunner bench gpu`.
    """
    environment = templates(__package__)
    environment.filters |= {"cell": _cell, "numbers": _numbers}
    here = files(__package__)
    script = (here / "report.js").read_text(encoding="utf-8")
    return environment.get_template("report.jinja").render(
        title=title,
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        figures=[(figure, draw_inline(figure)) for figure in figures],
        sections=[
            *([Section("records", "Measured on this hardware", [*records], "")] if records else []),
            *_claims({table.name: table for table in tables}),
            *_sections(tables, NO_EFFECT + "; ".join(cache)),
        ],
        rows=ROWS,
        open=OPEN,
        facts=facts,
        caveats=caveats,
        problems=problems,
        not_begun=not_begun,
        policy=_digest(script),
        style=Markup(stylesheet() + palette_css() + (here / "report.css").read_text(encoding="utf-8")),
        script=Markup(script),
    )


def _claims(tables: Mapping[str, Table]) -> Iterator[Section]:
    """Yield the section of the claims: those with a run, then the number of the others, by command."""
    if CLAIMS not in tables:
        return
    table = tables[CLAIMS]
    has_runs, command = (table.columns.index(name) for name in ("has_runs", "command"))
    shown = [row for row in table.rows if row[has_runs]]
    hidden = Counter(row[command] for row in table.rows if not row[has_runs])
    found = [msgspec.structs.replace(table, rows=shown), tables[COMPARISONS]] if shown else []
    missing = "; ".join(f"{count}: {command}" for command, count in hidden.items())
    text = f"{hidden.total()} claims have no run yet. These commands play theirs: {missing}" if hidden else ""
    yield Section("claims", "The paper's claims", found, text)


def _sections(tables: Sequence[Table], no_effect: str) -> Iterator[Section]:
    claims = (CLAIMS, COMPARISONS)
    left = {table.name: table for table in tables if table.rows and table.name not in claims}
    for id_, title, names, missing in (
        ("cache", "The prefix cache", ("cache_shares", "cache"), no_effect),
        ("forecast", "Forecast beside truth", ("forecast",), NO_FORECAST),
        ("paper", "Compared with the paper", [name for name in left if "paper" in left[name].columns], ""),
        ("tables", "Our numbers", [*left], ""),
    ):
        found = [left.pop(name) for name in names if name in left]
        yield Section(id_, title, found, missing if len(found) < len(names) else "")


def _digest(script: str) -> str:
    """Return the digest with which a Content-Security-Policy allows one script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 10_000 else f"{cell:,.0f}"
    return f"{cell:,}" if isinstance(cell, int) else cell


def _numbers(figure: Figure) -> list[tuple[Any, ...]]:
    """Return the figure's content as a table, for screen readers: panel, measure, name, place, value,
    deviation."""
    return [
        (panel.title, measure, line.name, x, y, sd)
        for row in figure.rows
        for panel in row
        for measure, lines in ((panel.y or panel.x, panel.lines), (panel.over_y, panel.over))
        for line in lines
        for x, y, sd in zip(line.x, line.y, line.sd, strict=True)
    ]
