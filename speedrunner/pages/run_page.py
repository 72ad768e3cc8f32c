"""The list of runs, and a run's page: its checkpoints with curves, its sleeps and terminations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas
from markupsafe import Markup

from speedrunner.agents.reading import summarize_sleep
from speedrunner.config.condition import Treatment
from speedrunner.pages.html_parts import (
    Context,
    Share,
    badge,
    count_terminations,
    element,
    fold,
    heading,
    html_table,
    link,
    show_cell,
)
from speedrunner.pages.plots import Panel, Series, show_panel
from speedrunner.plain.plain_records import read_table
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.inference import CONFIDENCE, estimate_mean, estimate_score
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import Spread, add_costs, average_tests
from speedrunner.results.pricing import price_book
from speedrunner.results.writing import list_rows
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.run_data import RunData, load

Row = Mapping[str, Any]

CURVES = {
    "Score": "score",
    "Output tokens": "output",
    "USD per episode": "cost_usd",
    "Prompt from the cache": "cached_share",
}
"""Measures per test episode, which have a tile and a curve: column of a checkpoint by title. Without prices
there is no curve of USD."""

INTERVALS = {"score": estimate_score, "output": estimate_mean}
"""Measures of single episodes, with the functions that estimate their means."""

COLUMNS = {
    row["heading"]: row["column"] for row in read_table(Path(__file__).with_name("checkpoint_columns.csv"))
}
"""Columns of the table of checkpoints by their headings; a column without a value is left out."""

COUNTED = ("checkpoint", "policy", "episodes", "planned")
"""Columns that an unfinished evaluation has, too."""

SHARES = ("limited", "thought_cut", "cached_share")

UNUSUAL = ("unscored", "refused", "thought_cut", "silent")
"""Columns that are also left out if all values are 0."""


def runs_page(runs: Mapping[str, Path]) -> Context:
    """Return the list of runs, by their names in addresses. A run that cannot be read shows its error."""
    top = os.path.commonpath([path.resolve().parent for path in runs.values()]) if runs else ""
    rows: list[list[Any]] = []
    notes = set[str]()
    for slug, path in runs.items():
        name = link(f"runs/{slug}/index.html", os.path.relpath(path.resolve(), top))
        try:
            run = load(path)
            points = list_rows(average_tests(frame_episodes(run.rows), run.settings.run.test_episodes))
            head = heading(run)
        except DAMAGED as error:
            problem = element("p", "problem", damage(path, error))
            rows.append([name, None, None, None, badge("bad", "damaged") + problem, None, None, None])
            continue
        notes.update(head["caveats"])
        last: dict[str, Any] = next((point for point in reversed(points) if point["complete"]), {})
        unfinished = [
            f"{point['episodes']}/{point['planned']} at {point['checkpoint']}"
            for point in points
            if not point["complete"]
        ]
        rows.append(
            [
                name,
                *(last.get(name) for name in ("score", "output", "checkpoint")),
                badge(head["status"]["kind"], head["status"]["text"]),
                head["condition_name"],
                len(run.rows),
                ", ".join(unfinished) or None,
            ]
        )
    columns = ("run", "score", "output tokens", "rollouts", "status", "condition", "episodes", "evaluating")
    table = html_table(columns, rows, label="Runs", kind="runs sortable")
    return {"table": table, "count": len(runs), "caveats": sorted(notes)}


def run_page(run: RunData) -> Context:
    """Return a run's page. Reads its ledger, which takes seconds for a large run."""
    problem, prices = "", ""
    try:
        costs = run_costs(run, price_book(run))
        episodes, sleeps = frame_episodes(run.rows, costs), frame_sleeps(run, costs)
        frame, prices = add_costs(run, episodes, sleeps), costs.book.name
    except DAMAGED as error:
        problem = f"Costs are unknown: {damage(run.path, error)}" if run.rows else ""
        episodes, sleeps = frame_episodes(run.rows), frame_sleeps(run, None)
        frame = average_tests(episodes, run.settings.run.test_episodes)
    rows = [_show_row(row) for row in list_rows(frame)]
    points = [row for row in rows if row["complete"]]
    head = heading(run)
    return {
        **head,
        "tiles": _list_tiles(points),
        "curves": _draw_measures(head["treatment"], points, episodes),
        "confidence": f"{CONFIDENCE:.0%}",
        "points": points,
        "checkpoints": _checkpoint_table(rows) if rows else Markup(),
        "prices": prices,
        "problem": problem,
        "sleeps": _sleep_table(run, {row["sleep"]: row for row in list_rows(sleeps)}),
        "terminations": count_terminations(row.termination.value for row in run.rows),
        "processes": run.processes,
        "config": run.config_text,
    }


def _show_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with its shares in percent; an unfinished one without means."""
    if not row["complete"]:
        counts = {"episodes": f"{row['episodes']}/{row['planned']}", "complete": False}
        return dict.fromkeys(row) | {name: row[name] for name in COUNTED} | counts
    return row | {name: Share(row[name]) for name in SHARES if row[name] is not None}


def _list_tiles(points: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Return name, value and note of the headline numbers at the last checkpoint."""
    if not points:
        return []
    first, last = points[0], points[-1]
    tiles = {**CURVES, "Skills": "skills", "USD spent on training": "training_usd"}
    return [
        (
            title,
            show_cell(last[column], title),
            f"{show_cell(first.get(column), title)} after {first['checkpoint']} rollouts",
        )
        for title, column in tiles.items()
        if last.get(column) is not None
    ]


def _draw_measures(
    treatment: Treatment | None, points: Sequence[Row], episodes: pandas.DataFrame
) -> dict[str, Markup]:
    """Return the drawings of `CURVES` that have a value, by title."""
    scored = episodes[(episodes["phase"] == "test") & episodes["score"].notna()]
    drawn = {}
    for title, column in CURVES.items():
        values = {
            row["checkpoint"]: Spread(row[column], None, 1) for row in points if row.get(column) is not None
        }
        if column in INTERVALS:
            values |= {
                point: estimate
                for point in values
                if (
                    estimate := INTERVALS[column]({0: scored[scored["checkpoint"] == point][column].dropna()})
                )
            }
        if column != "cost_usd" or any(value.mean for value in values.values()):
            series = Series("", [*values], [*values.values()], treatment)
            panel = Panel("", "training rollouts", "", [series])
            drawn[title] = show_panel(panel, f"{title} over training rollouts")
    return drawn


def _checkpoint_table(points: Sequence[Row]) -> Markup:
    shown = {
        name: column
        for name, column in COLUMNS.items()
        if any(row.get(column) if column in UNUSUAL else row.get(column) is not None for row in points)
    }
    rows = [[row.get(column) for column in shown.values()] for row in points]
    return html_table([*shown], rows, label="Checkpoints", kind="checkpoints")


def _sleep_table(run: RunData, costs: Mapping[int, Row]) -> Markup:
    """Return the sleeps with their edits and costs; empty without any."""
    rows = []
    for record in run.sleeps:
        summarized = summarize_sleep(msgspec.to_builtins(record))
        cost = costs.get(record.sleep, {})
        summary = fold(summarized["summary"])
        number = record.sleep
        rows.append(
            [
                link(f"sleep/{number:04d}/1.html", f"Sleep {number}"),
                summarized["rollouts"],
                ", ".join(summarized["accepted"]) or "none",
                len(summarized["refused"]),
                cost.get("output") or None,
                cost.get("usd") or None,
                summary + element("p", "problem", summarized["error"]) if summarized["error"] else summary,
            ]
        )
    columns = ("sleep", "rollouts", "accepted edits", "refused", "output tokens", "USD", "summary")
    return html_table(columns, rows, label="Sleeps", kind="sleeps") if rows else Markup()
