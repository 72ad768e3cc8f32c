"""The pages of a folder: its runs, all conditions, and a comparison of two of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from speedrunner.config.schema import differences
from speedrunner.pages.html_parts import (
    UNKNOWN,
    Context,
    Share,
    badge,
    count_decimals,
    element,
    heading,
    html_table,
    link,
)
from speedrunner.pages.plots import Panel, Series, show_panel
from speedrunner.results.conditions import REACT, Condition, group_runs
from speedrunner.results.frames import frame_episodes
from speedrunner.results.means import average_tests
from speedrunner.results.pairing import (
    CannotCompare,
    Compared,
    TaskDifference,
    compare,
    find_common_points,
    list_changes,
    list_task_differences,
    pair_runs,
)
from speedrunner.results.run_result import RunResult, frame_run
from speedrunner.results.writing import list_rows
from speedrunner.store.discovery import DAMAGED, damage
from speedrunner.store.process_notes import has_caveat
from speedrunner.store.run_data import load

CURVES = {"score": "score", "output tokens": "output", "cached share": "cached_share"}
"""Metrics that are drawn as curves: column of a checkpoint by title."""

CONDITION = "condition-"
"""Begins the name of a condition in addresses."""

TASKS = 30
"""Tasks that differ most which are shown."""


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


class Comparable:
    """All readable runs of a folder with the conditions that they form, by their names in addresses.

    Args:
        paths: runs by their names in addresses.
        make_address: makes a name for addresses from parts.
    """

    def __init__(self, paths: Mapping[str, Path], make_address: Callable[[tuple[str, ...]], str]) -> None:
        self.runs: dict[str, RunResult] = {}
        self.problems: list[str] = []
        for slug, path in paths.items():
            try:
                self.runs[slug] = frame_run(load(path), name=slug)
            except DAMAGED as error:
                self.problems.append(damage(path, error))
        groups, notes = group_runs([*self.runs.values()])
        self.notes = notes
        self.conditions = {CONDITION + make_address(("-".join(group.names),)): group for group in groups}

    def find(self, slug: str) -> Condition:
        """Return a condition by its name in addresses. Raises `CannotCompare`."""
        if slug not in self.conditions:
            raise CannotCompare(f"{slug} is not a condition of this folder")
        return self.conditions[slug]


def conditions_page(compared: Comparable) -> Context:
    """Return the conditions of each environment with their curves, scores and comparisons: with ReAct if it
    was played, otherwise with the first by name."""
    by_env: dict[str, list[tuple[str, Condition]]] = {}
    for slug, side in compared.conditions.items():
        by_env.setdefault(side.names[0], []).append((slug, side))
    places = []
    for env, conditions in sorted(by_env.items()):
        finished = [condition for condition in conditions if condition[1].points]
        react = [each for each in finished if each[1].identity.treatment.method == REACT.method]
        first = next(iter(react or finished), None)
        columns = ("condition", *CURVES, "last checkpoint", "runs", "compare")
        rows = [_condition_row(slug, side, first) for slug, side in finished]
        places.append(
            {
                "env": env,
                "table": html_table(columns, rows, label=f"Conditions of {env}"),
                "curves": _draw([side for _, side in finished]),
            }
        )
    sides = list(compared.conditions.values())
    return {"places": places, "problems": compared.problems, "notes": compared.notes, **_caution(sides)}


def _caution(sides: Sequence[Condition]) -> Context:
    """Return the caveats of the conditions of a page, and whether it is grey for a model with one."""
    runs = [run for side in sides for run in side.runs.values()]
    return {
        "caveats": sorted({line for run in runs for line in run.caveats}),
        "is_grey": any(has_caveat(run.processes) for run in runs),
    }


def _condition_row(slug: str, side: Condition, first: tuple[str, Condition] | None) -> list[Any]:
    """Return a condition's row. `first`: the one that others are compared with."""
    last, compared = side.points[-1], Markup()
    if first is not None and slug != first[0]:
        name = f"with {first[1].names[1]}"
        try:
            find_common_points([first[1], side])
            compared = link(f"compare/{first[0]}/{slug}.html", name)
        except CannotCompare as error:
            compared = Markup("not {}: {}").format(name, str(error))
    spreads = {column: side.spread(column).get(last) for column in CURVES.values()}
    means = [None if spread is None else spread.mean for spread in spreads.values()]
    return [
        side.title,
        *means[:-1],
        None if means[-1] is None else Share(means[-1]),
        last,
        Markup(" ").join(
            link(f"runs/{run.name}/index.html", f"seed {run.seed}{' (behind)' * (last not in run.points)}")
            for run in side.runs.values()
        ),
        compared,
    ]


def comparison_page(compared: Comparable, first: str, second: str, root: str) -> Context:
    """Return two conditions with their curves, and their differences, tasks and configurations at the last
    checkpoint that both have finished. Raises `CannotCompare`.

    Args:
        root: the way from the page to the list of runs.
    """
    one, other = compared.find(first), compared.find(second)
    found = compare([one, other])
    point = found[-1].rollouts
    pairs = [*pair_runs(one, other, point).values()]
    names = [side.names[1] for side in (one, other)]
    if names[0] == names[1]:
        names = [one.title, other.title]
    columns = ("mean per test episode", *names, "difference", "95% interval", "pairs")
    last = [row for row in found if row.rollouts == point and row.measure.name != "usd"]
    rows = [_difference_row(*pair) for pair in zip(last[::2], last[1::2], strict=True)]
    tasks = list_task_differences(one, other, point)
    differing = [task for task in tasks if task.difference] or tasks
    lines = [line for own, their in pairs for line in _config_lines(own, their)]
    return {
        "titles": [one.title, other.title],
        "names": names,
        "point": point,
        "differences": html_table(columns, rows, label="Paired differences", kind="differences"),
        "curves": _draw((one, other)),
        "tasks": _task_table(differing[:TASKS], names, compared, root),
        "differing": sum(task.difference != 0 for task in tasks),
        "count": len(tasks),
        "shown": min(len(differing), TASKS),
        "paired": [(own.name, their.name) for own, their in pairs],
        "config": list(dict.fromkeys(lines)),
        **_caution((one, other)),
    }


def _draw(sides: Sequence[Condition]) -> dict[str, Markup]:
    """Return the curves of conditions, by metric."""
    curves = {}
    for metric, column in CURVES.items():
        spreads = {side.title: (side.spread(column), side.identity.treatment) for side in sides}
        series = [
            Series(title, [*own], [*own.values()], treatment) for title, (own, treatment) in spreads.items()
        ]
        curves[metric] = show_panel(
            Panel("", "training rollouts", "", series), f"{metric} over training rollouts"
        )
    return curves


def _difference_row(first: Compared, second: Compared) -> list[Any]:
    """Return a measure, the means of both sides, their difference, its interval, and the number of pairs."""
    found = second.difference
    if first.mean is None or second.mean is None or found is None:
        return [first.measure.title, *[UNKNOWN] * 4, "0"]
    decimals = count_decimals([found.mean])
    means = (f"{value.mean:,.{decimals}f}" for value in (first.mean, second.mean, found))
    ends = UNKNOWN if found.ends is None else " to ".join(f"{end:,.{decimals}f}" for end in found.ends)
    return [first.measure.title, *means, ends, str(found.count)]


def _task_table(
    tasks: Iterable[TaskDifference], names: Sequence[str], compared: Comparable, root: str
) -> Markup:
    """Return the tasks that differ most, with the episodes of both sides."""
    rows = [
        [
            f"{task.task.name} {task.task.index}",
            *(*task.scores, *task.outputs),
            *(
                Markup(", ").join(
                    link(f"{root}runs/{run}/{key}/1.html", f"seed {compared.runs[run].seed}")
                    for run, key in episodes
                )
                for episodes in task.episodes
            ),
        ]
        for task in tasks
    ]
    columns = [
        "task",
        *(f"{what}: {name}" for what in ("score", "output tokens", "episode") for name in names),
    ]
    return html_table(columns, rows, label="Tasks that differ most")


def _config_lines(one: RunResult, other: RunResult) -> list[str]:
    """Return the differences of two runs' configurations, models and code."""
    lines = [line for line in differences(one.config, other.config) if not line.startswith("run.start_from")]
    return lines + list_changes(one, other)
