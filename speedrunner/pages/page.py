"""The report page: one HTML file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from speedrunner.pages.drawn_figure import DrawnFigure
from speedrunner.pages.facts import Facts
from speedrunner.pages.markup import stylesheet, templates
from speedrunner.pages.number_texts import exact_number
from speedrunner.pages.panels import Figure
from speedrunner.pages.styles import palette_css
from speedrunner.pages.summary import Summary
from speedrunner.results.claims import CLAIMS, Judged, JudgedComparison
from speedrunner.results.run_result import count_terminations
from speedrunner.results.writing import Cell, Table

ROWS = 200
"""Maximum rows of a table on the page; the files in tables/ have all."""

VERDICTS = {"supported": "good", "contradicted": "bad", "undecided": "plain"}
"""Kinds of badges by verdict, in the order of the page."""


class Section(NamedTuple):
    """Folded tables of one kind."""

    id: str
    title: str
    tables: list[Table]


def page(
    title: str,
    summary: Summary,
    figures: Sequence[DrawnFigure],
    judged: Sequence[Judged],
    tables: Sequence[Table],
    facts: Facts,
    caveats: Sequence[str],
    problems: Sequence[str],
    records: Sequence[Table] = (),
) -> str:
    """Return the whole page.

    Args:
        judged: the paper's claims; those without a run are left out.
        caveats: notes on the results.
        problems: runs that could not be read, with the reasons.
        records: tables measured by `speedrunner bench gpu`.
    """
    environment = templates()
    environment.filters |= {"cell": _cell, "numbers": _numbers, "moment": _moment}
    here = files(__package__) / "templates"
    script = (here / "report.js").read_text(encoding="utf-8")
    shown = [each for each in judged if each.has_runs]
    return environment.get_template("report.jinja").render(
        title=title,
        written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        summary=summary,
        figures=[(drawn.figure, drawn.inline) for drawn in figures],
        verdicts={verdict: [each for each in shown if each.verdict == verdict] for verdict in VERDICTS},
        badges=VERDICTS,
        interval=_interval,
        sections=[
            *([Section("records", "Measured on this hardware", [*records])] if records else []),
            *_sections(tables),
        ],
        rows=ROWS,
        facts=facts,
        count_terminations=count_terminations,
        caveats=caveats,
        problems=problems,
        missing=_merge(drawn.figure.missing for drawn in figures),
        policy=_digest(script),
        style=Markup(stylesheet() + palette_css()),
        script=Markup(script),
    )


def _merge(parts: Iterable[Mapping[str, Sequence[str]]]) -> dict[str, list[str]]:
    """Return all that is missing, each gap once, by the command that fills it."""
    found: dict[str, dict[str, None]] = {}
    for part in parts:
        for command, missing in part.items():
            found.setdefault(command, {}).update(dict.fromkeys(missing))
    return {command: [*missing] for command, missing in found.items()}


def _sections(tables: Sequence[Table]) -> Iterator[Section]:
    """Yield the sections that have a table with a row. Verdicts are shown apart."""
    shown = [_keep_measured(table) for table in tables if table.name != CLAIMS]
    left = {table.name: table for table in shown if table.rows}
    for id_, title, names in (
        ("cache", "The prefix cache", ("cache_shares", "cache")),
        ("paper", "Compared with the paper", [name for name in left if "paper" in left[name].columns]),
        ("tables", "All numbers", [*left]),
    ):
        found = [left.pop(name) for name in names if name in left]
        if found:
            yield Section(id_, title, found)


def _keep_measured(table: Table) -> Table:
    """Return a table of the paper's values without the rows that no run measured, and without what they
    lack: the page says at its end what is missing."""
    if not {"paper", "ours", "missing"} <= {*table.columns}:
        return table
    ours, missing = table.columns.index("ours"), table.columns.index("missing")
    rows = [row for row in table.rows if row[ours] is not None]
    caption = table.caption
    if others := len(table.rows) - len(rows):
        caption += f" Rows without a run here ({others:,}) are only in tables/{table.name}.csv."
    return msgspec.structs.replace(
        table,
        columns=[each for each in table.columns if each != "missing"],
        rows=[(*row[:missing], *row[missing + 1 :]) for row in rows],
        caption=caption,
    )


def _interval(compared: JudgedComparison) -> str:
    """Return the measured value of a comparison with its interval and seeds; empty if it is unknown."""
    if compared.value is None:
        return ""
    value = _cell(compared.value)
    around = "" if compared.low is None else f" ({_cell(compared.low)} to {_cell(compared.high)})"
    return f"measured {value}{around}, {compared.seeds} seed{'s' if compared.seeds != 1 else ''}"


def _digest(script: str) -> str:
    """Return the digest with which a Content-Security-Policy allows one script and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _cell(cell: Cell, column: str = "") -> str:
    """Return a cell as text: four digits, thousands separated, `$` in columns of USD."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return exact_number(cell, "USD" if "usd" in column else "")
    return f"{cell:,}" if isinstance(cell, int) else cell


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"


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
