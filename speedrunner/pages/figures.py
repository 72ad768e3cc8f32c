"""Define the figures of the report as data; `plots` draws them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from speedrunner.config.condition import Choice, ModelVariant, Treatment
from speedrunner.pages.plots import Panel, ReportFigure, Series
from speedrunner.results.conditions import (
    ABLATIONS,
    ASI,
    ASI_REPLAY,
    BABYAI,
    FAMILIES,
    FOURTH,
    OFF,
    OPO,
    OURS,
    PLACES,
    REACT,
    THIRD,
    VOYAGER,
    ZOMBIES,
    Condition,
    continue_in,
    frontier,
    places,
    played_models,
)
from speedrunner.results.means import Spread, average
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

MAIN = (REACT, OPO, ASI, VOYAGER, OURS)

Columns = dict[str, tuple[Sequence[Choice], Sequence[Treatment]]]
"""Environments and treatments of a figure, by the title of their column."""


class ModelRuns:
    """The runs of one model; `groups` are its conditions."""

    def __init__(self, groups: Sequence[Condition], model: ModelVariant) -> None:
        self.groups = [group for group in groups if group.identity.model == model]

    def treatments(self, envs: Sequence[Choice]) -> list[Treatment]:
        """Return the treatments that were played in one of these environments, by name."""
        played = {group.identity.treatment for group in self.groups if group.identity.env in envs}
        return sorted(played, key=str)

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

    def last(self, envs: Sequence[Choice], treatment: Treatment, measure: str) -> Spread | None:
        """Return the value at the last checkpoint of a curve; `None` without points."""
        return next(reversed(self.curve(envs, treatment, measure).values()), None)


class FigurePlan(NamedTuple):
    """One kind of figure; `rows` returns its panels, which may be empty."""

    name: str
    title: str
    rows: Callable[[ModelRuns], list[list[Panel]]]


def figures(groups: Sequence[Condition]) -> list[ReportFigure]:
    """Return all figures of some runs, for each played model. A figure without a value is left out."""
    made = []
    for model in sorted(played_models(groups), key=str):
        runs = ModelRuns(groups, model)
        suffix = "".join(each if each.isalnum() else "_" for each in str(model)[:LETTERS])
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
            [_curve_panel(runs, title, envs, own, measure) for title, (envs, own) in found.items()]
            for measure in measures
        ]

    return rows


def _curve_panel(
    runs: ModelRuns, title: str, envs: Sequence[Choice], treatments: Sequence[Treatment], measure: str
) -> Panel:
    found = {treatment: runs.curve(envs, treatment, measure) for treatment in treatments}
    series = [
        Series(str(treatment), [*points], [*points.values()], treatment)
        for treatment, points in found.items()
        if points
    ]
    return Panel(title, ROLLOUTS, LABELS[measure], series)


def _main_columns(runs: ModelRuns) -> Columns:
    """Return the environments of the main experiment, and others that are not variants of it, each with its
    methods."""
    return {
        title: (envs, _main_treatments(runs, envs))
        for title, envs in places(runs.groups).items()
        if title in PLACES or envs[0] not in ZOMBIES.values()
    }


def _main_treatments(runs: ModelRuns, envs: Sequence[Choice]) -> list[Treatment]:
    """Return the main treatments, and other played ones that are not their variants."""
    others = [each for each in runs.treatments(envs) if each not in MAIN and not _is_variant(each)]
    return [*MAIN, *others]


def _is_variant(treatment: Treatment) -> bool:
    """Return whether a treatment is one of the paper's methods with other options, skills or wording."""
    plain = Treatment(Choice(treatment.method.name))
    return plain in (*MAIN, ASI_REPLAY) and treatment != replace(plain, letter=treatment.letter)


def _ablation_columns(runs: ModelRuns) -> Columns:
    is_played = {*ABLATIONS} & {*runs.treatments([BABYAI])}
    return {"BabyAI": ([BABYAI], [OURS, *ABLATIONS])} if is_played else {}


def _interpreter_columns(runs: ModelRuns) -> Columns:
    return {
        title: (envs, [OURS, OFF])
        for title, envs in places(runs.groups).items()
        if title in ("Crafter", "ScienceWorld", *map(str, FAMILIES)) and OFF in runs.treatments(envs)
    }


def _replay_columns(runs: ModelRuns) -> Columns:
    is_played = ASI_REPLAY in runs.treatments([THIRD])
    return {"ScienceWorld 3": ([THIRD], [ASI, ASI_REPLAY, OURS])} if is_played else {}


def _pareto(runs: ModelRuns) -> list[list[Panel]]:
    rows = [
        [_points(runs, title, envs, own, measure) for title, (envs, own) in _main_columns(runs).items()]
        for measure in (USD, OUTPUT)
    ]
    return [[panel for panel in row if len(panel.series) > 1] for row in rows]


def _points(
    runs: ModelRuns, title: str, envs: Sequence[Choice], treatments: Sequence[Treatment], measure: str
) -> Panel:
    found: dict[Treatment, tuple[Spread, Spread]] = {}
    for treatment in treatments:
        cost, score = runs.curve(envs, treatment, measure), runs.curve(envs, treatment, SCORE)
        last = max(score, default=0)
        if last in cost:  # otherwise no episode there sent a request, or no price is known
            found[treatment] = cost[last], score[last]
    series = [Series(str(each), [cost.mean], [score], each) for each, (cost, score) in found.items()]
    best = frontier({str(each): (cost.mean, score.mean) for each, (cost, score) in found.items()})
    return Panel(title, LABELS[measure], LABELS[SCORE], series, "points", best)


def _zombies(runs: ModelRuns) -> list[list[Panel]]:
    played = {group.identity.env for group in runs.groups}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return []
    panels = []
    for measure, treatments in ((SCORE, (REACT, OPO, VOYAGER, OURS)), ("combat", (VOYAGER, OURS))):
        series = []
        for treatment in treatments:
            values = {int(times[:-1]): runs.last([env], treatment, measure) for times, env in ZOMBIES.items()}
            known = {times: value for times, value in values.items() if value is not None}
            series += [Series(str(treatment), [*known], [*known.values()], treatment)] if known else []
        panels.append(Panel("Crafter", "zombies, times the usual number", LABELS[measure], series))
    return [panels]


def _shift(runs: ModelRuns) -> list[list[Panel]]:
    starts = [treatment.start for treatment in runs.treatments([FOURTH])]
    if not any(start is not None and start.env == THIRD for start in starts):
        return []
    panels = []
    for measure in (SCORE, USD):
        found = [_shifted(runs, name, measure) for name in (REACT, OPO, ASI, OURS)]
        series = [each for each in found if each.x]
        panels.append([Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], series)])
    return panels


def _shifted(runs: ModelRuns, treatment: Treatment, measure: str) -> Series:
    """Return a treatment's values on family 3, then on 4 with the policy of 3, then on 3 again."""
    second = treatment if treatment == REACT else continue_in(THIRD, treatment)
    before, after = runs.curve([THIRD], treatment, measure), runs.curve([FOURTH], second, measure)
    end = max(before, default=0)
    points = [*before.items(), *((end + x, value) for x, value in after.items())]
    if treatment != REACT:
        again = runs.last([THIRD], continue_in(FOURTH, second), measure)
        if again is not None and points:
            points.append((points[-1][0] + 50, again))
    return Series(str(treatment), [x for x, _ in points], [value for _, value in points], treatment)


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
