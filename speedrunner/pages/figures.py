"""Define the figures of the report as data; `plots` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from speedrunner.pages.plots import Panel, ReportFigure, Series
from speedrunner.results.conditions import (
    ABLATIONS,
    FAMILIES,
    OFF,
    OURS,
    PLACES,
    REACT,
    ZOMBIES,
    Condition,
    after_third,
    frontier,
    places,
    returned_to_third,
)
from speedrunner.results.means import Spread, average
from speedrunner.results.paper import played_models
from speedrunner.results.writing import caption

SCORE, OUTPUT, USD = "score", "output", "cost_usd"
LABELS = {
    SCORE: "score",
    OUTPUT: "output tokens per episode",
    USD: "USD per episode",
    "combat": "share of functions about combat",
}
ROLLOUTS = "training rollouts"

LETTERS = 50
"""Maximum characters of a model's name in names of files, which have at most 255 bytes."""

MAIN = (REACT, "opo", "asi", "voyager", OURS)

Columns = dict[str, tuple[Sequence[str], Sequence[str]]]
"""Environments and methods of a figure, by the title of their column."""


class ModelRuns:
    """The runs of one model; `groups` are its conditions."""

    def __init__(self, groups: Sequence[Condition], model: str) -> None:
        self.groups = [group for group in groups if group.condition_name.model == model]

    def methods(self, envs: Sequence[str]) -> list[str]:
        """Return the methods that were played in one of these environments, by `ConditionName.method`."""
        names = (group.condition_name for group in self.groups)
        return sorted({each.method for each in names if each.env in envs})

    def curve(self, envs: Sequence[str], method: str, measure: str) -> dict[int, Spread]:
        """Return a method's means and deviations over seeds by checkpoint, averaged over environments at
        their common checkpoints; empty if it was not played in all of them, or has no price.

        Args:
            measure: a column of `RunResult.checkpoints`.
        """
        played = {
            group.condition_name.env: group for group in self.groups if group.condition_name.method == method
        }
        if not played.keys() >= {*envs}:
            return {}
        parts = [played[env].spread(measure) for env in envs]
        common = sorted(set.intersection(*map(set, parts)))
        found = {point: average([part[point] for part in parts]) for point in common}
        if measure == USD and not any(value.mean for value in found.values()):
            return {}
        return found

    def last(self, envs: Sequence[str], method: str, measure: str) -> Spread | None:
        """Return the value at the last checkpoint of a curve; `None` without points."""
        return next(reversed(self.curve(envs, method, measure).values()), None)


class FigurePlan(NamedTuple):
    """One kind of figure; `rows` returns its panels, which may be empty."""

    name: str
    title: str
    rows: Callable[[ModelRuns], list[list[Panel]]]


def figures(groups: Sequence[Condition]) -> list[ReportFigure]:
    """Return all figures of some runs, for each played model. A figure without a value is left out."""
    made = []
    for model in sorted(played_models(groups)):
        runs = ModelRuns(groups, model)
        suffix = "".join(each if each.isalnum() else "_" for each in model[:LETTERS])
        for plan in FIGURES:
            rows = [[panel for panel in row if panel.series] for row in plan.rows(runs)]
            if kept := [row for row in rows if row]:
                made.append(
                    ReportFigure(f"{plan.name}_{suffix}", f"{plan.title}, {model}", caption(plan.name), kept)
                )
    return made


def _curves(
    *measures: str, columns: Callable[[ModelRuns], Columns]
) -> Callable[[ModelRuns], list[list[Panel]]]:
    """Return curves over rollouts: a row of panels for each measure, a column for each place."""

    def rows(runs: ModelRuns) -> list[list[Panel]]:
        found = columns(runs)
        return [
            [_curve_panel(runs, title, envs, names, measure) for title, (envs, names) in found.items()]
            for measure in measures
        ]

    return rows


def _curve_panel(
    runs: ModelRuns, title: str, envs: Sequence[str], names: Sequence[str], measure: str
) -> Panel:
    found = {name: runs.curve(envs, name, measure) for name in names}
    series = [Series(name, [*points], [*points.values()]) for name, points in found.items() if points]
    return Panel(title, ROLLOUTS, LABELS[measure], series)


def _main_columns(runs: ModelRuns) -> Columns:
    """Return the environments of the main experiment, and others that are not variants of it, each with its
    methods."""
    return {
        title: (envs, _main_methods(runs, envs))
        for title, envs in places(runs.groups).items()
        if title in PLACES or envs[0] not in ZOMBIES.values()
    }


def _main_methods(runs: ModelRuns, envs: Sequence[str]) -> list[str]:
    """Return the main methods, and other played methods that are not their variants."""
    variants = tuple(f"{name}-" for name in (*MAIN, "asi_replay"))
    others = [name for name in runs.methods(envs) if name not in MAIN and not name.startswith(variants)]
    return [*MAIN, *others]


def _ablation_columns(runs: ModelRuns) -> Columns:
    is_played = {*ABLATIONS} & {*runs.methods(["babyai"])}
    return {"BabyAI": (["babyai"], [OURS, *ABLATIONS])} if is_played else {}


def _interpreter_columns(runs: ModelRuns) -> Columns:
    return {
        title: (envs, [OURS, OFF])
        for title, envs in places(runs.groups).items()
        if title in ("Crafter", "ScienceWorld", *FAMILIES) and OFF in runs.methods(envs)
    }


def _replay_columns(runs: ModelRuns) -> Columns:
    third = FAMILIES[:1]
    is_played = "asi_replay" in runs.methods(third)
    return {"ScienceWorld 3": (third, ["asi", "asi_replay", OURS])} if is_played else {}


def _pareto(runs: ModelRuns) -> list[list[Panel]]:
    rows = [
        [_points(runs, title, envs, names, measure) for title, (envs, names) in _main_columns(runs).items()]
        for measure in (USD, OUTPUT)
    ]
    return [[panel for panel in row if len(panel.series) > 1] for row in rows]


def _points(runs: ModelRuns, title: str, envs: Sequence[str], names: Sequence[str], measure: str) -> Panel:
    found: dict[str, tuple[Spread, Spread]] = {}
    for name in names:
        cost, score = runs.curve(envs, name, measure), runs.curve(envs, name, SCORE)
        last = max(score, default=0)
        if last in cost:  # otherwise no episode there sent a request, or no price is known
            found[name] = cost[last], score[last]
    series = [Series(name, [cost.mean], [score]) for name, (cost, score) in found.items()]
    best = frontier({name: (cost.mean, score.mean) for name, (cost, score) in found.items()})
    return Panel(title, LABELS[measure], LABELS[SCORE], series, "points", best)


def _zombies(runs: ModelRuns) -> list[list[Panel]]:
    played = {group.condition_name.env for group in runs.groups}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return []
    panels = []
    for measure, names in ((SCORE, (REACT, "opo", "voyager", OURS)), ("combat", ("voyager", OURS))):
        found = {
            name: {times: runs.last([env], name, measure) for times, env in ZOMBIES.items()} for name in names
        }
        series = [bars for name, values in found.items() for bars in _bars(name, values)]
        panels.append(Panel("Crafter", "zombies", LABELS[measure], series, "bars"))
    return [panels]


def _shift(runs: ModelRuns) -> list[list[Panel]]:
    third, fourth = FAMILIES
    if not any(f"-from_{third}" in name for name in runs.methods([fourth])):
        return []
    panels = []
    for measure in (SCORE, USD):
        found = [_shifted(runs, name, measure) for name in (REACT, "opo", "asi", OURS)]
        series = [each for each in found if each.x]
        panels.append([Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], series)])
    return panels


def _shifted(runs: ModelRuns, name: str, measure: str) -> Series:
    """Return a method's values on family 3, then on 4 with the policy of 3, then on 3 again."""
    third, fourth = FAMILIES
    second = name if name == REACT else after_third(name)
    before, after = runs.curve([third], name, measure), runs.curve([fourth], second, measure)
    end = max(before, default=0)
    points = [*before.items(), *((end + x, value) for x, value in after.items())]
    if name != REACT:
        again = runs.last([third], returned_to_third(name), measure)
        if again is not None and points:
            points.append((points[-1][0] + 50, again))
    return Series(name, [x for x, _ in points], [value for _, value in points])


def _bars(name: str, found: Mapping[str, Spread | None]) -> Iterator[Series]:
    """Yield the bars of the names that have a value, if there are any."""
    known = {key: value for key, value in found.items() if value is not None}
    if known:
        yield Series(name, [*known], [*known.values()])


FIGURES = (
    FigurePlan(
        "combined_performance",
        "Performance and cost over training",
        _curves(SCORE, OUTPUT, USD, columns=_main_columns),
    ),
    FigurePlan("combined_performance_pareto", "Score against cost", _pareto),
    FigurePlan("babyai_ablations", "Ablations on BabyAI", _curves(SCORE, OUTPUT, columns=_ablation_columns)),
    FigurePlan(
        "combined_ablations", "The code interpreter", _curves(SCORE, OUTPUT, columns=_interpreter_columns)
    ),
    FigurePlan("zombie_sweep", "External randomness", _zombies),
    FigurePlan("scienceworld_shift", "Distribution shift", _shift),
    FigurePlan("replay_ablation", "Verification by replay", _curves(SCORE, OUTPUT, columns=_replay_columns)),
)
"""The figures in the order of the page."""
