"""Define the figures of the report as data; `plots` draws them."""

from __future__ import annotations

from collections.abc import Sequence

from speedrunner.config.condition import Choice, ModelVariant, Treatment
from speedrunner.pages.plots import Panel, ReportFigure, Series
from speedrunner.results.conditions import METHODS, Condition, frontier, places, played_models
from speedrunner.results.means import Spread, average
from speedrunner.results.writing import caption

SCORE, OUTPUT, USD = "score", "output", "cost_usd"
LABELS = {SCORE: "score", OUTPUT: "output tokens per episode", USD: "USD per episode"}

LETTERS = 50
"""Maximum characters of a model's name in names of files, which have at most 255 bytes."""


class ModelRuns:
    """The runs of one model; `groups` are its conditions."""

    def __init__(self, groups: Sequence[Condition], model: ModelVariant) -> None:
        self.groups = [group for group in groups if group.identity.model == model]

    def treatments(self, envs: Sequence[Choice]) -> list[Treatment]:
        """Return the treatments that were played in one of these environments: methods as in the paper, then
        the others by name."""
        played = {group.identity.treatment for group in self.groups if group.identity.env in envs}
        return [*(each for each in METHODS if each in played), *sorted(played - {*METHODS}, key=str)]

    def curve(self, envs: Sequence[Choice], treatment: Treatment, measure: str) -> dict[int, Spread]:
        """Return a treatment's means and deviations over seeds by checkpoint, averaged over environments at
        their common checkpoints; empty if it was not played in all of them, or has no price.

        Args:
            measure: a column of `RunResult.checkpoints`.
        """
        own = [group for group in self.groups if group.identity.treatment == treatment]
        played = {group.identity.env: group for group in own}
        if not played.keys() >= {*envs}:
            return {}
        parts = [played[env].spread(measure) for env in envs]
        common = sorted(set.intersection(*map(set, parts)))
        found = {point: average([part[point] for part in parts]) for point in common}
        if measure == USD and not any(value.mean for value in found.values()):
            return {}
        return found


def figures(groups: Sequence[Condition]) -> list[ReportFigure]:
    """Return the figures of each played model: curves over training, and score against cost, each with a
    column for each environment. A panel without a value is left out, and a figure without a panel."""
    made = []
    for model in sorted(played_models(groups), key=str):
        runs = ModelRuns(groups, model)
        columns = places(runs.groups)
        kinds = {
            "combined_performance": [
                [_curve_panel(runs, title, envs, measure) for title, envs in columns.items()]
                for measure in (SCORE, OUTPUT, USD)
            ],
            "combined_performance_pareto": [
                [_points(runs, title, envs, measure) for title, envs in columns.items()]
                for measure in (USD, OUTPUT)
            ],
        }
        suffix = "".join(letter if letter.isalnum() else "_" for letter in str(model)[:LETTERS])
        for (name, rows), title in zip(kinds.items(), TITLES, strict=True):
            shown = [[panel for panel in row if panel.series] for row in rows]
            if kept := [row for row in shown if row]:
                made.append(ReportFigure(f"{name}_{suffix}", f"{title}, {model}", caption(name), kept))
    return made


TITLES = ("Performance and cost over training", "Score against cost")


def _curve_panel(runs: ModelRuns, title: str, envs: Sequence[Choice], measure: str) -> Panel:
    """Return the curves of all treatments in a measure."""
    found = {treatment: runs.curve(envs, treatment, measure) for treatment in runs.treatments(envs)}
    series = [
        Series(str(treatment), [*points], [*points.values()], treatment)
        for treatment, points in found.items()
        if points
    ]
    return Panel(title, "training rollouts", LABELS[measure], series)


def _points(runs: ModelRuns, title: str, envs: Sequence[Choice], measure: str) -> Panel:
    """Return the score of all treatments by their cost at the last checkpoint; nothing for one treatment."""
    found: dict[Treatment, tuple[Spread, Spread]] = {}
    for treatment in runs.treatments(envs):
        cost, score = runs.curve(envs, treatment, measure), runs.curve(envs, treatment, SCORE)
        last = max(score, default=0)
        if last in cost:  # otherwise no episode there sent a request, or no price is known
            found[treatment] = cost[last], score[last]
    series = [Series(str(each), [cost.mean], [score], each) for each, (cost, score) in found.items()]
    best = frontier({str(each): (cost.mean, score.mean) for each, (cost, score) in found.items()})
    return Panel(title, LABELS[measure], LABELS[SCORE], series if len(series) > 1 else [], "points", best)
