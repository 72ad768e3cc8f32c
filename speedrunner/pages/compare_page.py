"""The pages that compare runs: all conditions of a folder, and two runs, checkpoints or conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from speedrunner.config.schema import differences
from speedrunner.pages.html_parts import html_table, link
from speedrunner.pages.plots import Panel, Series, show_panel
from speedrunner.pages.view_parts import Context
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

CURVES = ("score", "output tokens")
"""Metrics that are drawn as curves."""

CONDITION = "condition-"
"""Begins the name of a condition in addresses."""

TASKS = 30
"""Tasks that differ most which are shown."""


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
        groups, notes = group_runs([*self.runs.values()])
        self.problems += notes
        self.conditions = {CONDITION + make_address(("-".join(group.names),)): group for group in groups}

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
            raise CannotCompare(f"{slug} is not a run or condition of this folder")
        return side, int(point) if point else None


def conditions_page(found: Comparable) -> Context:
    """Return the conditions of each environment with their curves, scores and comparisons: with ReAct if it
    was played, otherwise with the first by name."""
    by_env: dict[str, list[tuple[str, Condition]]] = {}
    for slug, side in found.conditions.items():
        by_env.setdefault(side.condition_name.env, []).append((slug, side))
    places = []
    for env, conditions in sorted(by_env.items()):
        finished = [each for each in conditions if each[1].points]
        first = min(
            finished, key=lambda each: not each[1].condition_name.method.startswith(REACT), default=None
        )
        columns = ("condition", "last checkpoint", *CURVES, "runs", "compare")
        rows = [_condition_row(slug, side, first) for slug, side in conditions]
        places.append(
            {
                "env": env,
                "table": html_table(columns, rows, label=f"Conditions of {env}"),
                "curves": _draw((side for _, side in finished), lambda side, column: side.spread(column)),
            }
        )
    return {"places": places, "problems": found.problems}


def _condition_row(slug: str, side: Condition, first: tuple[str, Condition] | None) -> list[Any]:
    """Return a condition's row. `first`: the one that others are compared with."""
    last, links = None, list[Markup]()
    if side.points and first is not None:
        early, last = side.points[0], side.points[-1]
        if slug != first[0] and not list_world_differences(first[1].first, side.first):
            links.append(link(f"compare/{first[0]}/{slug}.html", f"with {first[1].condition_name.method}"))
        if early != last:
            sides = f"{slug}@{early}/{slug}@{last}"
            links.append(link(f"compare/{sides}.html", f"checkpoint {early} with {last}"))
    spreads = (side.spread(METRICS[each]) if last is not None else {} for each in CURVES)
    return [
        side.title,
        last,
        *(spread[last].mean if last in spread else None for spread in spreads),
        Markup(" ").join(
            link(f"runs/{run.name}/index.html", f"seed {seed}") for seed, run in side.runs.items()
        ),
        Markup(", ").join(links),
    ]


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
        f"{side.title} after {point} rollouts" for side, point in zip((one, other), points, strict=True)
    ]
    numbers = (*titles, "difference", "low", "high", "pairs")
    rows = [[metric, *_difference_row(one, other, points, column)] for metric, column in METRICS.items()]
    tasks = list_task_differences(one, other, points)
    lines = [line for own, their in pairs for line in _config_lines(own, their)]
    return {
        "titles": titles,
        "differences": html_table(("mean per test episode", *numbers), rows, label="Paired differences"),
        "curves": _draw(
            {side.title: side for side in (one, other)}.values(),
            lambda side, column: {point: side.estimate(point, column) for point in side.points},
        ),
        "tasks": _task_table(titles, tasks[:TASKS], root),
        "omitted": max(len(tasks) - TASKS, 0),
        "paired": [(own.name, their.name) for own, their in pairs],
        "config": list(dict.fromkeys(lines)),
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
            known = ", ".join(map(str, side.points)) or "none"
            raise CannotCompare(f"{side.title} has not finished checkpoint {point}: it has {known}")
    return points


def _draw(
    sides: Iterable[Condition], values: Callable[[Condition, str], Mapping[int, Spread | Estimate | None]]
) -> dict[str, Markup]:
    """Return the curves of sides, by metric."""
    shown, found = [*sides], {}
    for metric in CURVES:
        series = []
        for side in shown:
            known = {x: each for x, each in values(side, METRICS[metric]).items() if each}
            series.append(Series(side.title, [*known], [*known.values()]))
        found[metric] = show_panel(
            Panel("", "training rollouts", "", series), f"{metric} over training rollouts"
        )
    return found


def _difference_row(one: Condition, other: Condition, points: Points, column: str) -> list[float | None]:
    """Return the means of both sides, their difference, its interval, and the number of pairs."""
    difference = estimate_difference(one, other, points, column)
    means = (side.estimate(point, column) for side, point in zip((one, other), points, strict=True))
    found = [None if each is None else each.mean for each in means]
    if difference is None:
        return [*found, None, None, None, 0]
    return [*found, difference.mean, difference.low, difference.high, difference.count]


def _task_table(titles: list[str], tasks: Iterable[TaskDifference], root: str) -> Markup:
    """Return the tasks that differ most, with the episodes of both sides."""
    rows = [
        [
            f"{each.task.name} {each.task.index}",
            *(*each.scores, each.difference, *each.outputs),
            *(
                Markup(" ").join(link(f"{root}runs/{run}/{key}/1.html", key) for run, key in episodes)
                for episodes in each.episodes
            ),
        ]
        for each in tasks
    ]
    columns = [
        *("task", *(f"score: {title}" for title in titles), "difference"),
        *(f"{what}: {title}" for what in ("output tokens", "episodes") for title in titles),
    ]
    return html_table(columns, rows, label="Tasks that differ most")


def _config_lines(one: RunResult, other: RunResult) -> list[str]:
    """Return the differences of two runs' configurations, models and code."""
    lines = [line for line in differences(one.config, other.config) if not line.startswith("run.start_from")]
    return lines + list_changes(one, other)
