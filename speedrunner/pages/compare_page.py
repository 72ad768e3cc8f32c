"""The pages that compare runs: all conditions of a folder, and two runs, checkpoints or conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speedrunner.config.schema import differences
from speedrunner.pages.comparable import Comparable
from speedrunner.pages.curves import SERIES, Point, Series, plot_curves
from speedrunner.pages.pages import Context
from speedrunner.pages.tiles import Form, Tile
from speedrunner.results.conditions import REACT, Condition
from speedrunner.results.inference import Estimate
from speedrunner.results.means import Spread
from speedrunner.results.measures import MEASURES
from speedrunner.results.pairing import (
    CannotCompare,
    Points,
    estimate_difference,
    list_changes,
    list_task_differences,
    list_world_differences,
    pair_runs,
)
from speedrunner.results.run_result import RunResult

METRICS = {each.title: each.name for each in MEASURES if each.name not in ("repeated_calls", "usd")}
"""Measures by title. The pages read no ledger, so USD are unknown."""

LINKS = 100
"""Maximum number of comparisons that the list of conditions links to, so that static pages are bounded."""

TASKS = 30
"""Tasks that differ most which are shown."""

CURVES: dict[str, Form] = {"score": "score", "output tokens": "tokens"}
"""Metrics that are drawn as curves, and the forms of their values."""

DIGITS = {"score": 3, "LLM calls": 1, "actions": 1}
"""Decimals of a metric; other metrics have none."""

BETTER = {"score": True, "LLM calls": False, "uncached prompt tokens": False, "output tokens": False}
"""Metrics of which a higher (or lower) value is better; of the others neither is."""


def conditions_page(found: Comparable, *, by_run: bool = False) -> Context:
    """Return the conditions of each environment with their curves, scores and comparisons: with ReAct if it
    was played, otherwise with the first by name.

    Args:
        by_run: whether each run has its own curve, in the color of its condition.
    """
    places: dict[str, list[tuple[str, Condition]]] = {}
    for slug, side in found.conditions.items():
        places.setdefault(side.condition_name.env, []).append((slug, side))
    room = LINKS
    shown = []
    for env, conditions in sorted(places.items()):
        rows = []
        finished = [(slug, side.condition_name.method) for slug, side in conditions if side.points]
        finished.sort(key=lambda each: not each[1].startswith(REACT))
        for slug, side in conditions:
            points, links = side.points, []
            if points and slug != finished[0][0]:
                first, method = finished[0]
                links.append((f"with {method}", f"{first}/{slug}"))
            if len(points) > 1:
                early, late = points[0], points[-1]
                links.append((f"checkpoint {early} with {late}", f"{slug}@{early}/{slug}@{late}"))
            links, room = links[:room], max(room - len(links), 0)
            last = points[-1] if points else None
            score, output = (
                None if last is None else side.spread(METRICS[each]).get(last) for each in CURVES
            )
            rows.append(
                {
                    "name": side.title,
                    "runs": [(run.name, seed) for seed, run in side.runs.items()],
                    "last": last,
                    "score": _show_spread(score, 3),
                    "output": _show_spread(output, 0),
                    "links": links,
                }
            )
        curves = {
            metric: plot_curves(
                f"{metric} of test episodes, {env}",
                [
                    each
                    for _, side in conditions[:SERIES]
                    for each in _list_curves(side, METRICS[metric], by_run)
                ],
                form,
            )
            for metric, form in CURVES.items()
        }
        shown.append(
            {"env": env, "rows": rows, "curves": curves, "omitted": max(len(conditions) - SERIES, 0)}
        )
    return {
        "places": shown,
        "by_run": by_run,
        "choices": [*found.conditions, *found.runs],
        "problems": found.problems,
        "notes": found.notes,
    }


def comparison_page(found: Comparable, first: str, second: str) -> Context:
    """Return two sides with their curves, differences, tasks and configurations. Raises `CannotCompare`."""
    (one, own_point), (other, other_point) = found.find(first), found.find(second)
    points = _choose_points(one, own_point, other, other_point)
    pairs = [*pair_runs(one, other).values()]
    if not pairs:
        raise CannotCompare(f"{first} and {second} have no seed in common")
    if unlike := list_world_differences(*pairs[0]):
        raise CannotCompare(f"{first} and {second} play different environments: {'; '.join(unlike)}")
    titles = [_title(side, point, points) for side, point in zip((one, other), points, strict=True)]
    rows = [_metric_row(one, other, points, metric) for metric in METRICS]
    same = one.runs == other.runs
    sides = [one] if same else [one, other]
    tasks = list_task_differences(one, other, points)
    return {
        "titles": titles,
        "first": first,
        "second": second,
        "points": points,
        "rows": rows,
        "tiles": [_tile(rows, metric) for metric in ("score", "LLM calls", "output tokens")],
        "curves": {
            metric: plot_curves(metric, [_interval_curve(side, METRICS[metric]) for side in sides], form)
            for metric, form in CURVES.items()
        },
        "along": [] if same else _score_rows(one, other),
        "tasks": tasks[:TASKS],
        "omitted": max(len(tasks) - TASKS, 0),
        "paired": [(own.name, their.name) for own, their in pairs],
        "config": list(dict.fromkeys(line for own, their in pairs for line in _config_lines(own, their))),
        "choices": [*found.conditions, *found.runs],
        "problems": [line for pair in pairs for run in pair for line in run.left_out],
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


def _title(side: Condition, point: int, points: Points) -> str:
    return f"{side.title} after {point} rollouts" if points[0] != points[1] else side.title


def _metric_row(one: Condition, other: Condition, points: Points, metric: str) -> Context:
    column = METRICS[metric]
    found = one.estimate(points[0], column), other.estimate(points[1], column)
    difference = estimate_difference(one, other, points, column)
    digits = DIGITS.get(metric, 0)
    return {
        "metric": metric,
        "means": [_cell(each, digits) for each in found],
        "difference": _cell(difference, digits, "+"),
        "verdict": _judge(metric, difference),
    }


def _score_rows(one: Condition, other: Condition) -> list[Context]:
    """Return the paired difference of scores at each common checkpoint."""
    common = [point for point in one.points if point in other.points]
    return [
        {"point": point, **_metric_row(one, other, (point, point), "score")}
        for point in common[-12:]  # the pages of long runs stay fast
    ]


def _cell(estimate: Estimate | None, digits: int, sign: str = "") -> Context | None:
    if estimate is None:
        return None

    def show(value: float) -> str:
        return f"{value:{sign},.{digits}f}".replace("-", "−")

    return {
        "mean": show(estimate.mean),
        "interval": " to ".join(map(show, estimate.ends or ())),
        "count": estimate.count,
    }


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


def _tile(rows: Sequence[Context], metric: str) -> Tile:
    row = next(row for row in rows if row["metric"] == metric)
    one, other = row["means"]
    difference = row["difference"]
    change = "no task was played by both"
    if difference:
        interval = f" ({difference['interval']})" if difference["interval"] else ""
        change = f"{difference['mean']}{interval} over {difference['count']} pairs"
    return Tile(metric, f"{one['mean'] if one else '–'} → {other['mean'] if other else '–'}", change)


def _interval_curve(side: Condition, column: str) -> Series:
    return _curve(side, {point: side.estimate(point, column) for point in side.points})


def _curve(side: Condition, found: Mapping[int, Spread | Estimate | None]) -> Series:
    return Series(side.title, [Point(x, each.mean, each.ends) for x, each in found.items() if each])


def _list_curves(side: Condition, column: str, by_run: bool) -> list[Series]:
    if not by_run:
        return [_curve(side, side.spread(column))]
    return [
        Series(run.name, [Point(x, mean) for x, mean in run.average(column).items()], side.title)
        for run in side.runs.values()
    ]


def _show_spread(found: Spread | None, digits: int) -> str:
    if found is None:
        return "–"
    deviation = "" if found.sd is None else f" ± {found.sd:,.{digits}f}"
    return f"{found.mean:,.{digits}f}{deviation}"


def _config_lines(one: RunResult, other: RunResult) -> list[str]:
    """Return the differences of two runs' configurations, models and code."""
    lines = [line for line in differences(one.config, other.config) if not line.startswith("run.start_from")]
    return lines + list_changes(one, other)
