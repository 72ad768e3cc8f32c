"""The list of runs, a run's page, and the index of its episodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from markupsafe import Markup

from speedrunner.agents.reading import summarize_sleep
from speedrunner.pages.number_texts import dollars
from speedrunner.pages.plots import SMALL, Curve, draw_curves, draw_spark
from speedrunner.pages.tables import Column, html_table
from speedrunner.pages.tiles import Form, Tile, make_tile
from speedrunner.pages.view_parts import Context, badge, element, heading, link
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.inference import CONFIDENCE, bootstrap_mean
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import add_costs, average_tests
from speedrunner.results.measures import LIMITS
from speedrunner.results.pricing import price_book
from speedrunner.results.skill_table import skill_history
from speedrunner.results.writing import list_rows
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.run_data import RunData, load

Row = Mapping[str, Any]

CURVES: tuple[tuple[str, str, Form], ...] = (
    ("Score", "score", "score"),
    ("Output tokens", "output", "tokens"),
    ("USD per episode", "cost_usd", "usd"),
    ("Share of the prompt from the cache", "cached_share", "share"),
)
"""Measures per test episode, which have a tile and a curve: title, column of a checkpoint, form."""

ESTIMATED = ("score", "output")
"""Measures of single episodes, whose means have an interval."""

LINKS = 10
"""Links to failed test episodes of each checkpoint."""


def runs_table(found: Mapping[str, Path]) -> Markup:
    """Return the table of runs, by their names in addresses. A run that cannot be read shows its error."""
    top = os.path.commonpath([path.resolve().parent for path in found.values()]) if found else ""
    rows: list[list[Any]] = []
    for slug, path in found.items():
        name = link(f"runs/{slug}/index.html", os.path.relpath(path.resolve(), top))
        try:
            run = load(path)
            points = list_rows(average_tests(frame_episodes(run.rows))) if run.rows else []
            head = heading(run)
        except DAMAGED as error:
            problem = element("p", "problem", damage(path, error))
            rows.append([name, badge("bad", "damaged") + problem, *[None] * 6])
            continue
        last = points[-1] if points else {}
        rows.append(
            [
                name + Markup("<br>") + element("span", "note", head["condition_name"]),
                badge(head["status"]["kind"], head["status"]["text"]),
                len(run.rows),
                last.get("checkpoint"),
                last.get("score"),
                draw_spark(_values(points, "score"), 1),
                last.get("output"),
                draw_spark(_values(points, "output")),
            ]
        )
    columns = (
        *("run", "status", "episodes", "rollouts"),
        *(Column("last score", "{:.3f}".format), "over training"),
        *(Column("output tokens", "{:,.0f}".format), "over training"),
    )
    return html_table(columns, rows, label="Runs", kind="runs")


def episodes_page(run: RunData) -> Context:
    """Return the index of a run: its episodes with the skills that ran in them."""
    history = skill_history(run)
    called = {use.episode: use.calls for use in history.uses}
    stored, rows = set(run.policies.versions()), []
    for row in sorted(run.rows, key=lambda row: row.episode):
        skills = called.get(row.episode, {})
        usage = row.usage
        rows.append(
            [
                link(f"./{row.episode}/1.html", row.episode),
                row.termination.value.replace("_", " "),
                row.score,
                *(row.llm_calls, row.actions, row.invalid_calls, row.repeated_calls),
                *(usage.uncached, usage.cached, usage.completion),
                _library_link(row.policy, stored),
                f"{row.task.name} {row.task.index}",
                ", ".join(f"{name} ×{count}" if count > 1 else name for name, count in skills.items()),
            ]
        )
    columns = (
        *("episode", "termination", Column("score", "{:.3g}".format), "LLM calls", "actions", "invalid"),
        *("repeated", "uncached", "cached", "output tokens", Column("library", numbers=True), "task"),
        "skills that ran",
    )
    return {**heading(run), "table": html_table(columns, rows, label="Episodes"), "count": len(rows)}


def run_page(run: RunData) -> Context:
    """Return a run's page. Reads its ledger, which takes seconds for a large run."""
    problem, prices = "", ""
    try:
        (costs,) = run_costs([run], [price_book(run)])
        episodes, sleeps = frame_episodes(run.rows, costs), frame_sleeps(run, costs)
        frame, prices = add_costs(run, episodes, sleeps), costs.book.name
    except DAMAGED as error:
        problem = f"Costs are unknown: {damage(run.path, error)}" if run.rows else ""
        episodes, sleeps = frame_episodes(run.rows), frame_sleeps(run, None)
        frame = average_tests(episodes)
    points = list_rows(frame)
    for each in points:
        prompt = (each["cached"] or 0) + (each["uncached"] or 0)
        each["cached_share"] = each["cached"] / prompt if prompt else None
    ends: dict[str, list[tuple[float, float] | None]] = {}
    scored = episodes[(episodes["phase"] == "test") & episodes["score"].notna()]
    for name in ESTIMATED:
        values = (scored[scored["checkpoint"] == point][name].dropna() for point in frame.index)
        found = (bootstrap_mean(own.tolist()) for own in values)
        ends[name] = [None if each is None else each.ends for each in found]
    return {
        **heading(run),
        "tiles": list_tiles(points),
        "curves": draw_measures(points, ends),
        "confidence": f"{CONFIDENCE:.0%}",
        "points": points,
        "checkpoints": _checkpoint_table(run, points),
        "prices": prices,
        "problem": problem,
        "sleeps": _sleep_table(run, {each["sleep"]: each for each in list_rows(sleeps)}),
        "terminations": _termination_table(run),
        "failed": _list_failed(run),
        "links": LINKS,
        "processes": run.processes,
        "config": run.config_text,
    }


def list_tiles(points: Sequence[Row]) -> list[Tile]:
    """Return the headline numbers: test episodes, the library and the spend on training."""
    if not points:
        return []
    tiles = [make_tile(title, _values(points, column), form) for title, column, form in CURVES]
    if any(each.get("skills") for each in points):
        public = f"{points[-1]['public']:,} public"
        tiles.append(make_tile("Skills", _values(points, "skills"), "count", public))
    if any(each.get("training_usd") for each in points):
        spent = f"{points[-1]['training_output']:,.0f} output tokens"
        tile = make_tile("Spent on training", _values(points, "training_usd"), "usd")
        tiles.append(msgspec.structs.replace(tile, change=spent))
    return tiles


def draw_measures(
    points: Sequence[Row], ends: Mapping[str, Sequence[tuple[float, float] | None]]
) -> dict[str, Markup]:
    """Return the drawings of `CURVES` that have a value, by title.

    Args:
        ends: by column, the interval of each checkpoint.
    """
    drawn = {}
    for title, column, _ in CURVES:
        intervals = ends.get(column, [None] * len(points))
        known = [
            (each["checkpoint"], each[column], *(around or (None, None)))
            for each, around in zip(points, intervals, strict=True)
            if each.get(column) is not None
        ]
        if any(value for _, value, *_ in known):
            x, y, low, high = zip(*known, strict=True)
            drawn[title] = draw_curves(
                [Curve("", x, y, low, high)],
                title=f"{title} over training rollouts: {_describe(x, y)}",
                x_label="training rollouts",
                y_label="",
                size=SMALL,
            )
    return drawn


def _describe(x: Sequence[float], y: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g} after {rollouts:g}" for rollouts, value in zip(x, y, strict=True))


def _values(points: Sequence[Row], column: str) -> list[tuple[int, float]]:
    """Return (rollouts, value) of the checkpoints that have a value; empty if all USD are zero."""
    found = [(each["checkpoint"], each[column]) for each in points if each.get(column) is not None]
    return found if not column.endswith("usd") or any(value for _, value in found) else []


def _library_link(version: int, stored: set[int]) -> Markup | int:
    return link(f"library/{version:04d}.html", version) if version in stored else version


def _checkpoint_table(run: RunData, points: Sequence[Row]) -> Markup:
    stored, planned = set(run.policies.versions()), run.settings.run.test_episodes
    shown = {name: show for name, show in COLUMNS.items() if any(show(each) for each in points)}
    rows = []
    for each in points:
        episodes = f"{each['episodes']}" + f" of {planned}" * (each["episodes"] < planned)
        episodes += f", {each['unscored']} without a score" if each["unscored"] else ""
        library = _library_link(each["policy"], stored)
        rows.append([each["checkpoint"], library, episodes, *(show(each) or None for show in shown.values())])
    names = ("rollouts", "library", "test episodes", *shown)
    return html_table(
        [Column(name, numbers=True) for name in names], rows, label="Checkpoints", kind="checkpoints"
    )


def _sleep_table(run: RunData, costs: Mapping[int, Row]) -> Markup:
    """Return the sleeps with their edits and costs; empty without any."""
    stored, rows = set(run.policies.versions()), []
    for record in run.sleeps:
        each = summarize_sleep(msgspec.to_builtins(record))
        cost = costs.get(record.sleep, {})
        summary = element("span", "prose", each["summary"])
        rows.append(
            [
                link(f"sleep/{record.sleep:04d}/1.html", f"Sleep {record.sleep}"),
                each["rollouts"],
                ", ".join(each["accepted"]) or "none",
                len(each["refused"]),
                cost.get("output") or None,
                dollars(cost["usd"]) if cost.get("usd") else None,
                _library_link(record.sleep, stored),
                summary + element("p", "problem", each["error"]) if each["error"] else summary,
            ]
        )
    columns = (
        *("sleep", "rollouts", "accepted edits", "refused", "output tokens", Column("USD", numbers=True)),
        *(Column("library", numbers=True), "summary"),
    )
    return html_table(columns, rows, label="Sleeps", kind="sleeps") if rows else Markup()


def _termination_table(run: RunData) -> Markup:
    """Return how many episodes ended by which reason; empty without episodes."""
    counts = Counter((row.termination.value, row.phase) for row in run.rows)
    totals = Counter(row.termination.value for row in run.rows)
    rows = [
        [name.replace("_", " "), counts[name, "train"], counts[name, "test"]]
        for name, _ in totals.most_common()
    ]
    columns = ("termination", "training", "test")
    return html_table(columns, rows, label="Terminations") if rows else Markup()


def _list_failed(run: RunData) -> dict[int, list[tuple[str, str]]]:
    """Return the test episodes without success and their terminations, by checkpoint."""
    failed: dict[int, list[tuple[str, str]]] = {}
    for row in sorted(run.rows, key=lambda row: (row.checkpoint, row.episode)):
        if row.phase == "test" and not row.success:
            reason = row.termination.value.replace("_", " ")
            failed.setdefault(row.checkpoint, []).append((row.episode, reason))
    return failed


def _number(name: str, form: str) -> Callable[[Row], str]:
    return lambda row: "" if row.get(name) is None else format(row[name], form)


def _usd(name: str) -> Callable[[Row], str]:
    return lambda row: dollars(row[name]) if row.get(name) else ""


def _limits(row: Row) -> str:
    """Return the share of test episodes that limits ended, by limit."""
    each = [f"{name.replace('_', ' ')} {row[name]:.0%}" for name in LIMITS if row[name]]
    if len(each) < 2:
        return each[0] if each else "0%"
    return f"{row['limited']:.0%} ({', '.join(each)})"


COLUMNS: dict[str, Callable[[Row], str]] = {
    "score": _number("score", ".3f"),
    "ended by a limit": _limits,
    "thinking cut": lambda row: f"{row['thought_cut']:.0%}" if row.get("thought_cut") else "",
    "LLM calls": _number("llm_calls", ".1f"),
    "actions": _number("actions", ".1f"),
    "repeated calls": _number("repeated_calls", ".1f"),
    "uncached tokens": _number("uncached", ",.0f"),
    "cached tokens": _number("cached", ",.0f"),
    "cached share": _number("cached_share", ".0%"),
    "output tokens": _number("output", ",.0f"),
    "USD per episode": _usd("cost_usd"),
    "of which sleeps": _usd("sleep_usd"),
    "USD per rollout": _usd("rollout_usd"),
    "training USD": _usd("training_usd"),
    "training output": _number("training_output", ",.0f"),
    "public skills": _number("public", "d"),
    "skills": _number("skills", "d"),
    "notes": lambda row: "yes" if row.get("notes") else "",
    "without a request": lambda row: f"{row['silent']}" if row["silent"] else "",
    "unreported requests": lambda row: f"{row['unreported']}" if row["unreported"] else "",
}
"""Columns of the table of checkpoints, which are left out if all are empty."""
