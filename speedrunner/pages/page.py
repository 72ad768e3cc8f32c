"""The report page: one HTML file that loads nothing and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from markupsafe import Markup

from speedrunner.pages.collected import Collected, count_contents, show_terminations
from speedrunner.pages.html_parts import html_table, show_cell, stylesheet, templates
from speedrunner.pages.plots import Figure, show_svg
from speedrunner.results.claims import CLAIMS, JudgedClaim
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Table
from speedrunner.store.process_notes import process_lines

ROWS = 200
"""Maximum rows of a table on the page; the files in tables/ have all."""

VERDICTS = {"supported": "good", "contradicted": "bad", "undecided": "plain"}
"""Kinds of badges by verdict, in the order of the page."""


def page(title: str, found: Collected, figures: Sequence[tuple[Figure, bytes]]) -> str:
    """Return the whole page. Claims of the paper that have no run are left out.

    Args:
        figures: with their SVG.
    """
    runs = [run for condition in found.conditions for run in condition.runs.values()]
    judged = [each for each in found.judged if each.has_runs]
    tables = [each for each in map(_keep_measured, found.tables) if each.rows and each.name != CLAIMS]
    sections = (
        ("paper", "Compared with the paper", [each for each in tables if "paper" in each.columns]),
        ("tables", "All numbers", [each for each in tables if "paper" not in each.columns]),
    )
    return (
        templates()
        .get_template("report.jinja")
        .render(
            title=title,
            written=datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
            counts=count_contents(found.conditions),
            conditions=html_table(*found.overview, label="All conditions"),
            figures=[(figure, show_svg(svg, figure.title)) for figure, svg in figures],
            verdicts={verdict: [each for each in judged if each.verdict == verdict] for verdict in VERDICTS},
            badges=VERDICTS,
            interval=_interval,
            sections=[section for section in sections if section[2]],
            rows=ROWS,
            html_table=html_table,
            runs=runs,
            run_table=_run_table(runs),
            changes=[f"{run.path}: {line}" for run in runs for line in process_lines(run.processes)],
            caveats=[*found.caveats, *found.notes],
            problems=found.problems,
            style=Markup(stylesheet()),
        )
    )


def _keep_measured(table: Table) -> Table:
    """Return a table of the paper's values without the rows that no run measured."""
    if not {"paper", "ours"} <= {*table.columns}:
        return table
    ours = table.columns.index("ours")
    return msgspec.structs.replace(table, rows=[row for row in table.rows if row[ours] is not None])


def _interval(judged: JudgedClaim) -> str:
    """Return the measured value of a claim with its interval and seeds, the number of comparisons in the
    paper's direction, and the paper's test and values; empty if it is unknown."""
    row = judged.deciding
    if row.measured is None:
        return ""
    value = show_cell(row.measured)
    around = "" if row.low is None else f" ({show_cell(row.low)} to {show_cell(row.high)})"
    texts = [f"measured {value}{around}, {row.seeds} seed{'s' if row.seeds != 1 else ''}"]
    texts.append(f"{judged.direction} in the paper's direction")
    texts += [] if row.paper_p is None else [f"the paper's test: p = {row.paper_p:.2g}"]
    return "; ".join([*texts, f"the paper: {judged.paper}"] if judged.paper else texts)


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
            show_terminations([run]),
        )
        for run in runs
    ]
    return html_table(columns, rows, label="Runs")
