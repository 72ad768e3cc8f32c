"""The pages that compare runs: all conditions of a folder, and two runs, checkpoints or conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from speedrunner.config.schema import differences
from speedrunner.pages.plots import Curve, draw_curves
from speedrunner.pages.tables import Column, html_table
from speedrunner.pages.tiles import Tile
from speedrunner.pages.view_parts import Context, badge, link
from speedrunner.results.conditions import REACT, Condition, group_runs
from speedrunner.results.inference import Estimate
from speedrunner.results.means import Spread
from speedrunner.results.measures import MEASURES
from speedrunner.results.pairing import (
    CannotCompare,
    Points,
    TaskDifference,
    estimate_difference,
    list_changes,
    list_task_differences,
    list_world_differences,
    pair_runs,
)
from speedrunner.results.run_result import RunResult, frame_run
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.run_data import load

METRICS = {each.title: each.name for each in MEASURES if each.name not in ("repeated_calls", "usd")}
"""Measures by title. The pages read no ledger, so USD are unknown."""

CONDITION = "condition-"
"""Begins the name of a condition in addresses."""

SERIES = 8
"""Conditions of an environment whose curves are drawn."""

TASKS = 30
"""Tasks that differ most which are shown."""

CURVES = ("score", "output tokens")
"""Metrics that are drawn as curves."""

DIGITS = {each.title: each.digits for each in MEASURES}

BETTER = {"score": True, "LLM calls": False, "uncached prompt tokens": False, "output tokens": False}
"""Metrics of which a higher (or lower) value is better; of the others neither is."""


class Comparable:
    """All readable runs of a folder with the conditions that they form, by their names in addresses.

    Args:
        found: runs by their names in addresses.
        make_address: makes a name for addresses from parts.
    """

    def __init__(self, found: Mapping[str, Path], make_address: Callable[[tuple[str, ...]], str]) -> None:
        self.runs: dict[str, RunResult] = {}
        self.problems: list[str] = []
        for slug, path in found.items():
            try:
                self.runs[slug] = frame_run(load(path), name=slug)
            except DAMAGED as error:
                self.problems.append(damage(path, error))
        groups, self.notes = group_runs([*self.runs.values()])
        self.conditions: dict[str, Condition] = {}
        for group in groups:
            slug = CONDITION + make_address(("-".join(group.names),))
            if slug in self.conditions:
                slug = CONDITION + make_address(group.names)
            self.conditions[slug] = group

    @property
    def choices(self) -> list[str]:
        """Return all that can be compared."""
        return [*self.conditions, *self.runs]

    def find(self, name: str) -> tuple[Condition, int | None]:
        """Return the side that `RUN`, `RUN@CHECKPOINT`, `CONDITION` or `CONDITION@CHECKPOINT` names, with
        its checkpoint. Raises `CannotCompare`.
        """
        slug, _, point = name.partition("@")
        if slug in self.runs:
            run = self.runs[slug]
            side = Condition(run.condition_name, {run.seed: run}, slug)
        elif slug in self.conditions:
            side = self.conditions[slug]
        else:
            raise CannotCompare(f"{slug or 'nothing'} is not a run or condition of this folder")
        if point and (not point.isdecimal() or int(point) not in side.points):
            known = ", ".join(map(str, side.points)) or "none"
            raise CannotCompare(f"{slug} has not finished checkpoint {point}: it has {known}")
        return side, int(point) if point else None


def conditions_page(found: Comparable) -> Context:
    """Return the conditions of each environment with their curves, scores and comparisons: with ReAct if it
    was played, otherwise with the first by name."""
    by_env: dict[str, list[tuple[str, Condition]]] = {}
    for slug, side in found.conditions.items():
        by_env.setdefault(side.condition_name.env, []).append((slug, side))
    places = []
    for env, conditions in sorted(by_env.items()):
        finished = [(slug, side) for slug, side in conditions if side.points]
        finished.sort(key=lambda each: not each[1].condition_name.method.startswith(REACT))
        rows = []
        for slug, side in conditions:
            points, links = side.points, list[Markup]()
            first, one = finished[0] if points else (slug, side)
            if slug != first and not list_world_differences(one.first, side.first):
                links.append(link(f"compare/{first}/{slug}.html", f"with {one.condition_name.method}"))
            if len(points) > 1:
                early, late = points[0], points[-1]
                sides = f"{slug}@{early}/{slug}@{late}"
                links.append(link(f"compare/{sides}.html", f"checkpoint {early} with {late}"))
            last = points[-1] if points else None
            rows.append(
                [
                    side.title,
                    last,
                    *(
                        None if last is None else _show_spread(side.spread(METRICS[each]).get(last), each)
                        for each in CURVES
                    ),
                    Markup(" ").join(
                        link(f"runs/{run.name}/index.html", seed) for seed, run in side.runs.items()
                    ),
                    Markup(", ").join(links),
                ]
            )
        columns = ("condition", "last checkpoint", *CURVES, "runs by seed", "compare")
        drawn = [side for _, side in conditions[:SERIES]]
        places.append(
            {
                "env": env,
                "table": html_table(columns, rows, label=f"Conditions of {env}"),
                "curves": _draw(drawn, lambda side, column: side.spread(column)),
                "omitted": max(len(conditions) - SERIES, 0),
            }
        )
    problems = [*found.problems, *found.notes]
    return {"places": places, "choices": found.choices, "problems": problems}


def comparison_page(found: Comparable, first: str, second: str, root: str) -> Context:
    """Return two sides with their curves, differences, tasks and configurations. Raises `CannotCompare`.

    Args:
        root: the way from the page to the list of runs.
    """
    (one, own_point), (other, other_point) = found.find(first), found.find(second)
    points = _choose_points(one, own_point, other, other_point)
    pairs = [*pair_runs(one, other).values()]
    if not pairs:
        raise CannotCompare(f"{first} and {second} have no seed in common")
    if unlike := list_world_differences(*pairs[0]):
        raise CannotCompare(f"{first} and {second} play different environments: {'; '.join(unlike)}")
    titles = [
        f"{side.title} after {point} rollouts" if points[0] != points[1] else side.title
        for side, point in zip((one, other), points, strict=True)
    ]
    rows = {metric: _difference_row(one, other, points, metric) for metric in METRICS}
    is_same = one.runs == other.runs
    common = [point for point in one.points if point in other.points]
    along = {point: _difference_row(one, other, (point, point), "score") for point in common}
    tasks = list_task_differences(one, other, points)
    lines = [line for own, their in pairs for line in _config_lines(own, their)]
    return {
        "titles": titles,
        "first": first,
        "second": second,
        "points": points,
        "seeds": len(pairs),
        "tiles": [_tile(metric, rows[metric]) for metric in ("score", "LLM calls", "output tokens")],
        "differences": _difference_table("mean per test episode", titles, rows),
        "along": Markup() if is_same or len(along) < 2 else _difference_table("rollouts", titles, along),
        "curves": _draw(
            [one] if is_same else [one, other],
            lambda side, column: {point: side.estimate(point, column) for point in side.points},
        ),
        "tasks": _task_table(titles, tasks[:TASKS], root),
        "omitted": max(len(tasks) - TASKS, 0),
        "paired": [(own.name, their.name) for own, their in pairs],
        "config": list(dict.fromkeys(lines)),
        "choices": found.choices,
    }


def _choose_points(one: Condition, own: int | None, other: Condition, their: int | None) -> Points:
    """Return the given checkpoints; for missing ones the last that both sides have finished."""
    common = [point for point in one.points if point in other.points]
    chosen = [point for point in (own, their) if point is not None] or common[-1:]
    if not chosen:
        raise CannotCompare(f"no checkpoint was finished by both {one.title} and {other.title}")
    points = chosen[0], chosen[-1]
    for side, point in zip((one, other), points, strict=True):
        if point not in side.points:
            raise CannotCompare(f"{side.title} has not finished checkpoint {point}")
    return points


def _draw(
    sides: Iterable[Condition], values: Callable[[Condition, str], Mapping[int, Spread | Estimate | None]]
) -> dict[str, Markup]:
    """Return the curves of sides, by metric; a metric without values has none."""
    found = {}
    for metric in CURVES:
        curves = []
        for side in sides:
            known = [
                (x, each.mean, *(each.ends or (None, None)))
                for x, each in values(side, METRICS[metric]).items()
                if each
            ]
            x, y, low, high = zip(*known, strict=True) if known else ((), (), (), ())
            curves.append(Curve(side.title, x, y, low, high))
        title = f"{metric} over training rollouts"
        found[metric] = draw_curves(curves, title=title, x_label="training rollouts", y_label="")
    return {metric: drawn for metric, drawn in found.items() if drawn}


def _difference_row(one: Condition, other: Condition, points: Points, metric: str) -> list[Any]:
    """Return the means of both sides, their difference, its interval, pairs, and a badge."""
    column = METRICS[metric]
    difference = estimate_difference(one, other, points, column)
    means = one.estimate(points[0], column), other.estimate(points[1], column)
    ends = difference.ends if difference else None
    return [
        *(None if each is None else _show(each.mean, metric) for each in means),
        None if difference is None else _show(difference.mean, metric, "+"),
        None if ends is None else " to ".join(_show(end, metric, "+") for end in ends),
        difference.count if difference else 0,
        badge(*_judge(metric, difference)),
    ]


def _difference_table(head: str, titles: Sequence[str], rows: Mapping[Any, list[Any]]) -> Markup:
    numbers = (*titles, "difference", "95% interval", "pairs")
    columns: list[str | Column] = [head, *(Column(name, numbers=True) for name in numbers), "result"]
    return html_table(columns, [[name, *row] for name, row in rows.items()], label=f"Differences by {head}")


def _task_table(titles: Sequence[str], tasks: Iterable[TaskDifference], root: str) -> Markup:
    """Return the tasks that differ most, with the episodes of both sides."""
    rows = [
        [
            f"{each.task.name} {each.task.index}",
            *each.scores,
            each.difference,
            *each.outputs,
            *(
                Markup(" ").join(link(f"{root}runs/{run}/{key}/1.html", key) for run, key in episodes)
                for episodes in each.episodes
            ),
        ]
        for each in tasks
    ]
    score, output = "{:.3g}".format, "{:,.0f}".format
    columns: list[str | Column] = [
        "task",
        *(Column(f"score: {title}", score, numbers=True) for title in titles),
        Column("difference", lambda value: f"{value:+.3g}".replace("-", "−"), numbers=True),
        *(Column(f"output tokens: {title}", output, numbers=True) for title in titles),
        *(f"episodes: {title}" for title in titles),
    ]
    return html_table(columns, rows, label="Tasks that differ most", kind="differing")


def _show(value: float, metric: str, sign: str = "") -> str:
    return f"{value:{sign},.{DIGITS[metric]}f}".replace("-", "−")


def _show_spread(found: Spread | None, metric: str) -> str | None:
    if found is None:
        return None
    return _show(found.mean, metric) + ("" if found.sd is None else f" ± {_show(found.sd, metric)}")


def _judge(metric: str, difference: Estimate | None) -> tuple[str, str]:
    """Return the kind of a badge and its text."""
    if difference is None or difference.ends is None:
        return "plain", "not known"
    low, high = difference.ends
    if low <= 0 <= high:
        return "plain", "no clear difference"
    higher = difference.mean > 0
    text = "higher" if higher else "lower"
    if metric not in BETTER:
        return "plain", text
    return ("good" if higher == BETTER[metric] else "bad"), text


def _tile(metric: str, row: Sequence[Any]) -> Tile:
    one, other, difference, interval, count, _ = row
    change = f"{difference} ({interval}) over {count} pairs" if interval else difference or "no common task"
    return Tile(metric, f"{one or '–'} → {other or '–'}", change)


def _config_lines(one: RunResult, other: RunResult) -> list[str]:
    """Return the differences of two runs' configurations, models and code."""
    lines = [line for line in differences(one.config, other.config) if not line.startswith("run.start_from")]
    return lines + list_changes(one, other)
