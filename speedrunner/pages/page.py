"""The report page: one HTML file that loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from markupsafe import Markup

from speedrunner.pages.collected import (
    Collected,
    choose_leading,
    count_contents,
    list_shared_facts,
    show_terminations,
    summarize,
)
from speedrunner.pages.figures import Figure
from speedrunner.pages.markup import stylesheet, templates
from speedrunner.pages.plots import show_svg
from speedrunner.pages.tables import html_table, show_cell
from speedrunner.results.claims import CLAIMS, Compared
from speedrunner.results.run_result import RunResult, count_terminations
from speedrunner.results.writing import Table
from speedrunner.store.process_notes import process_lines

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
    title: str, found: Collected, figures: Sequence[tuple[Figure, bytes]], records: Sequence[Table] = ()
) -> str:
    """Return the whole page. Claims of the paper that have no run are left out.

    Args:
        figures: with their SVG.
        records: tables measured by `speedrunner bench gpu`.
    """
    runs = [run for condition in found.conditions for run in condition.runs.values()]
    summaries = summarize(found.conditions)
    judged = [each for each in found.judged if each.has_runs]
    return (
        templates()
        .get_template("report.jinja")
        .render(
            title=title,
            written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
            counts=count_contents(found.conditions),
            leading=choose_leading(summaries),
            summaries=summaries,
            figures=[(figure, show_svg(svg, figure.title), _numbers(figure)) for figure, svg in figures],
            verdicts={verdict: [each for each in judged if each.verdict == verdict] for verdict in VERDICTS},
            badges=VERDICTS,
            interval=_interval,
            sections=[
                *([Section("records", "Measured on this hardware", [*records])] if records else []),
                *_sections(found.tables),
            ],
            rows=ROWS,
            html_table=html_table,
            runs=runs,
            run_table=_run_table(runs),
            shared=list_shared_facts(runs),
            changes=[f"{run.path}: {line}" for run in runs for line in process_lines(run.processes)],
            caveats=[*found.caveats, *found.notes],
            problems=found.problems,
            style=Markup(stylesheet()),
        )
    )


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
    lack."""
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


def _interval(compared: Compared) -> str:
    """Return the measured value of a comparison with its interval and seeds; empty if it is unknown."""
    if compared.value is None:
        return ""
    value = show_cell(compared.value)
    around = "" if compared.low is None else f" ({show_cell(compared.low)} to {show_cell(compared.high)})"
    return f"measured {value}{around}, {compared.seeds} seed{'s' if compared.seeds != 1 else ''}"


def _run_table(runs: Sequence[RunResult]) -> Markup:
    columns = (
        *("run", "environment", "method", "model", "seed", "started", "evaluated after", "not yet"),
        "terminations",
    )
    rows = [
        (
            run.path,
            *(run.condition_name.env, run.condition_name.method, run.condition_name.model),
            run.seed,
            "not yet" if run.started is None else f"{datetime.fromtimestamp(run.started):%Y-%m-%d %H:%M}",
            ", ".join(map(str, run.points)),
            ", ".join(map(str, run.unfinished)),
            show_terminations(count_terminations([run])),
        )
        for run in runs
    ]
    return html_table(columns, rows, label="Runs")


def _numbers(figure: Figure) -> Markup:
    """Return the figure's content as a table, which screen readers can read."""
    columns = ("panel", "measure", "name", "at", "mean", "deviation")
    rows = [
        (panel.title, panel.y, series.name, x, value.mean, value.sd)
        for row in figure.rows
        for panel in row
        for series in panel.series
        for x, value in zip(series.x, series.values, strict=True)
    ]
    return html_table(columns, rows, label=f"Numbers of {figure.title}")
