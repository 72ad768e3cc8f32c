"""A run's page: headline numbers, learning curves, all columns of its checkpoints, and its sleeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from speedrunner.agents.reading import summarize_sleep
from speedrunner.pages.curves import SMALL, Point, Series, plot_curves
from speedrunner.pages.number_texts import dollars
from speedrunner.pages.pages import Context, heading
from speedrunner.pages.tiles import Form, Tile, make_tile
from speedrunner.results.frames import frame_episodes, frame_sleeps
from speedrunner.results.inference import CONFIDENCE, bootstrap_mean
from speedrunner.results.ledger import run_costs
from speedrunner.results.means import add_costs, average_tests
from speedrunner.results.measures import LIMITS
from speedrunner.results.pricing import price_book
from speedrunner.results.writing import list_rows
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.run_data import RunData

Row = Mapping[str, Any]

CURVES: tuple[tuple[str, str, Form], ...] = (
    ("Score", "score", "score"),
    ("Output tokens", "output", "tokens"),
    ("USD per episode", "cost_usd", "usd"),
    ("Prompt cached", "cached_share", "share"),
)
"""Measures per test episode, which have a tile and a curve: title, column of a checkpoint, form."""

DRAWN = ("score", "output")
"""Measures of single episodes, whose means have an interval."""


LINKS = 10
"""Links to failed test episodes of each checkpoint."""


class RunNumbers(msgspec.Struct, frozen=True):
    """The numbers of a run's page.

    Attributes:
        points: checkpoints, ascending, by column; costs are missing if the ledger cannot be read.
        ends: by column of `DRAWN`, the interval of each checkpoint.
        sleeps: rows of `frame_sleeps`.
        prices: name of the price list; empty if costs are unknown.
        problem: why costs are unknown; otherwise empty.
    """

    points: list[dict[str, Any]]
    ends: dict[str, list[tuple[float, float] | None]]
    sleeps: list[dict[str, Any]]
    prices: str
    problem: str


def read_numbers(run: RunData) -> RunNumbers:
    """Return the numbers of a run. Reads its ledger, which takes seconds for a large run."""
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
    for name in DRAWN:
        values = (scored[scored["checkpoint"] == point][name].dropna() for point in frame.index)
        found = (bootstrap_mean(own.tolist()) for own in values)
        ends[name] = [None if each is None else each.ends for each in found]
    return RunNumbers(points, ends, list_rows(sleeps), prices, problem)


def run_page(run: RunData, numbers: RunNumbers) -> Context:
    """Return a run's page."""
    points = numbers.points
    failed: dict[int, list[tuple[str, str]]] = {}
    for row in sorted(run.rows, key=lambda row: (row.checkpoint, row.episode)):
        if row.phase == "test" and not row.success:
            reason = row.termination.value.replace("_", " ")
            failed.setdefault(row.checkpoint, []).append((row.episode, reason))
    endings: dict[str, dict[str, int]] = {}
    for row in run.rows:
        counts = endings.setdefault(row.termination.value, {"train": 0, "test": 0})
        counts[row.phase] += 1
    costs = {each["sleep"]: each for each in numbers.sleeps}
    return {
        **heading(run, grows=True),
        "tiles": list_tiles(points),
        "curves": draw_curves(numbers),
        "confidence": f"{CONFIDENCE:.0%}",
        "points": points,
        "columns": {name: show for name, show in COLUMNS.items() if any(show(each) for each in points)},
        "prices": numbers.prices,
        "problem": numbers.problem,
        "sleeps": [
            summarize_sleep(msgspec.to_builtins(record)) | {"costs": costs.get(record.sleep, {})}
            for record in run.sleeps
        ],
        "dollars": dollars,
        "endings": dict(sorted(endings.items(), key=lambda each: -sum(each[1].values()))),
        "failed": failed,
        "links": LINKS,
        "versions": run.policies.versions(),
        "episodes": len(run.rows),
        "processes": run.processes,
        "config": run.config_text,
        "planned": run.settings.run.test_episodes,
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


def draw_curves(numbers: RunNumbers) -> dict[str, Any]:
    """Return the drawings of `CURVES` that have a value, by title."""
    drawn = {}
    for title, column, form in CURVES:
        ends = numbers.ends.get(column, [None] * len(numbers.points))
        points = [
            Point(each["checkpoint"], each[column], around)
            for each, around in zip(numbers.points, ends, strict=True)
            if each.get(column) is not None
        ]
        if any(point.value for point in points):
            drawn[title] = plot_curves(title, [Series("", points)], form, SMALL)
    return drawn


def _values(points: Sequence[Row], column: str) -> list[tuple[int, float]]:
    """Return (rollouts, value) of the checkpoints that have a value; empty if all USD are zero."""
    found = [(each["checkpoint"], each[column]) for each in points if each.get(column) is not None]
    return found if not column.endswith("usd") or any(value for _, value in found) else []


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
