"""Define the figures of the report as data; `figure_files` draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from typing import Literal, NamedTuple

import msgspec

from speedrunner.results.conditions import (
    ABLATIONS,
    FAMILIES,
    OFF,
    OURS,
    PLACES,
    REACT,
    ZOMBIES,
    Condition,
    Curve,
    after_third,
    curve,
    frontier,
    methods,
    places,
    returned_to_third,
)
from speedrunner.results.inference import CONFIDENCE, bootstrap_mean
from speedrunner.results.means import Spread
from speedrunner.results.paper import played_models
from speedrunner.results.tables import cache_effects

SCORE, OUTPUT, USD, SPEND = "score", "output", "cost_usd", "training_usd"
LABELS = {
    "actor_usd": "USD per episode, without sleeps",
    SCORE: "score",
    OUTPUT: "output tokens per episode",
    USD: "USD per episode",
    "uncached": "uncached tokens per episode",
    "combat": "share of functions about combat",
    SPEND: "USD spent on training",
    "training_output": "output tokens spent on training",
}
ROLLOUTS = "training rollouts"

LETTERS = 50
"""Maximum characters of a model's name in names of files, which have at most 255 bytes."""

MOST_PLACES, MOST_METHODS = 12, 24
"""Maximum environments of a figure, and methods in addition to the main ones. The tables have all."""

MAIN = (REACT, "opo", "asi", "voyager", OURS)


class Series(msgspec.Struct, frozen=True):
    """One curve, point or set of bars of a panel.

    Attributes:
        x: numbers, or names of bars.
        values: mean and deviation over seeds at each `x`.
        ends: the ends of the interval of each value of one seed over its test episodes; `None` if unknown.
    """

    name: str
    x: list[float | str]
    values: list[Spread]
    ends: list[tuple[float, float] | None] = []

    @property
    def y(self) -> list[float]:
        """Return the means."""
        return [value.mean for value in self.values]

    @property
    def seeds(self) -> int:
        """Return the smallest number of seeds of a value."""
        return min(value.seeds for value in self.values)

    @property
    def intervals(self) -> list[tuple[float | None, float | None]]:
        """Return the ends of each value's interval: one deviation around it, or those of `ends`."""
        known = self.ends or [None] * len(self.values)
        return [value.ends or ends or (None, None) for value, ends in zip(self.values, known, strict=True)]


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes.

    Attributes:
        x: what is at the x axis, or what the names of bars are.
        y: the measure, with its unit.
        kind: `curves` over rollouts, `points` with the frontier, grouped `bars`, or bars in a `stack`.
        frontier: names of the points on the Pareto frontier.
    """

    title: str
    x: str
    y: str
    series: list[Series]
    kind: Literal["curves", "points", "bars", "stack"] = "curves"
    frontier: list[str] = []


class Figure(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        name: name of its files, and its anchor on the page; the paper's label if it has one.
        rows: rows of panels.
        runs: the runs behind it.
        is_experiment: whether it shows the scores and costs of an experiment; see
            `speedrunner.pages.camera_ready`.
    """

    name: str
    title: str
    text: str
    rows: list[list[Panel]]
    runs: list[str]
    is_experiment: bool = False

    @property
    def layout(self) -> list[list[Panel]]:
        """Return the rows as they are drawn: the measures of one environment side by side."""
        if all(len(row) == 1 for row in self.rows):
            return [[panel for row in self.rows for panel in row]]
        return self.rows

    @property
    def columns(self) -> int:
        """Return the number of panels side by side."""
        return max(map(len, self.layout))


class FigureBuilder:
    """Collects the runs of a figure while its panels are made.

    Attributes:
        everything: the conditions of all models; `groups`: those of the figure's model.
    """

    def __init__(self, groups: Sequence[Condition], model: str) -> None:
        self.everything = groups
        self.groups = [group for group in groups if group.condition_name.model == model]
        self.model = model
        self._runs: dict[str, None] = {}

    def methods(self, envs: Sequence[str]) -> list[str]:
        """Return the methods that were played in one of these environments."""
        return methods(self.groups, envs, self.model)

    def curve(self, envs: Sequence[str], method: str, measure: str) -> Curve:
        """Return the curve of one condition; without points if it was not played, or has no price."""
        found = curve(self.groups, envs, method, self.model, measure)
        self.note(found.runs)
        if measure in (USD, SPEND) and not any(value.mean for value in found.points.values()):
            return Curve({}, found.runs)
        return found

    def panel(self, title: str, envs: Sequence[str], names: Iterable[str], measure: str) -> Panel:
        """Return the curves of methods over rollouts."""
        found = {name: self.curve(envs, name, measure).points for name in names}
        series = [
            Series(name, [*points], [*points.values()], self._ends(envs, name, measure, points))
            for name, points in found.items()
            if points
        ]
        return Panel(title, ROLLOUTS, LABELS[measure], series)

    def _ends(
        self, envs: Sequence[str], method: str, measure: str, points: Mapping[int, Spread]
    ) -> list[tuple[float, float] | None]:
        """Return intervals over the test episodes of a condition with one run; empty for others."""
        if len(envs) > 1 or measure not in (SCORE, OUTPUT) or any(each.seeds > 1 for each in points.values()):
            return []
        names = envs[0], method, self.model
        run, *others = next(group.runs.values() for group in self.groups if group.names == names)
        if others:  # only one of several seeds has finished
            return []
        found = (bootstrap_mean(run.values(point, measure).tolist()) for point in points)
        return [None if each is None else each.ends for each in found]

    def note(self, runs: Iterable[str]) -> None:
        """Record the runs of a panel."""
        self._runs |= dict.fromkeys(runs)

    def figure(self, name: str, title: str, text: str, rows: Iterable[Iterable[Panel]]) -> Figure | None:
        """Return the figure with its non-empty panels; `None` if there are none.

        Args:
            name: prefix of its name, before the model's.
            title: prefix of its title, before the model's name.
        """
        kept = [row for row in ([panel for panel in row if panel.series] for row in rows) if row]
        if not kept:
            return None
        panels = [*chain(*kept)]
        if any(panel.title == "ScienceWorld" for panel in panels):
            text += " ScienceWorld is the mean of its two families."
        if len({panel.title for panel in panels}) == MOST_PLACES:
            text += f" At most {MOST_PLACES} environments are drawn; the tables have all."
        single = [series for panel in panels for series in panel.series if series.seeds == 1]
        if names := ", ".join(dict.fromkeys(series.name for series in single)):
            text += (
                f" Only one seed, so bands are {CONFIDENCE:.0%} intervals over its test episodes: {names}."
                if any(series.ends for series in single)
                else f" Only one seed, so no deviation: {names}."
            )
        suffix = "".join(each if each.isalnum() else "_" for each in self.model[:LETTERS])
        return Figure(f"{name}_{suffix}", f"{title}, {self.model}", text, kept, [*self._runs])


def figures(groups: Sequence[Condition]) -> list[Figure]:
    """Return all figures of some runs, for each played model."""
    made: list[Figure] = []
    taken = set()
    for model in sorted(played_models(groups)):
        for make, is_experiment in FIGURES:
            figure = make(FigureBuilder(groups, model))
            if figure is None:
                continue
            # Names of models may differ only in characters that names of files lack.
            names = chain([figure.name], (f"{figure.name}_{number}" for number in count(2)))
            name = next(name for name in names if name not in taken)
            taken.add(name)
            made.append(msgspec.structs.replace(figure, name=name, is_experiment=is_experiment))
    return made


Maker = Callable[[FigureBuilder], Figure | None]

Columns = dict[str, tuple[Sequence[str], Sequence[str]]]
"""Environments and methods of a figure, by the title of their column."""


class CurveFigure(NamedTuple):
    """A figure of curves over rollouts: a row of panels for each measure, a column for each place."""

    name: str
    title: str
    text: str
    measures: tuple[str, ...]
    columns: Callable[[FigureBuilder], Columns]

    def make(self, builder: FigureBuilder) -> Figure | None:
        """Return the figure; `None` if nothing of it was played."""
        columns = self.columns(builder)
        rows = [
            [builder.panel(title, envs, names, measure) for title, (envs, names) in columns.items()]
            for measure in self.measures
        ]
        return builder.figure(self.name, self.title, self.text, rows)


def _main_columns(builder: FigureBuilder) -> Columns:
    """Return the environments of the main experiment, and others that are not variants of it."""
    found = {
        title: (envs, _main_methods(builder, envs))
        for title, envs in places(builder.groups).items()
        if title in PLACES or envs[0] not in ZOMBIES.values()
    }
    return dict(islice(found.items(), MOST_PLACES))


def _main_methods(builder: FigureBuilder, envs: Sequence[str]) -> list[str]:
    """Return the main methods for a place, and other methods that were played in all of it and are not their
    variants."""
    played = sorted(set.intersection(*({*builder.methods([env])} for env in envs)))
    known = [name for name in MAIN if name != "voyager" or envs == ("crafter",) or name in played]
    variants = tuple(f"{name}-" for name in (*MAIN, "asi_replay"))
    others = [name for name in played if name not in MAIN and not name.startswith(variants)]
    return [*known, *others[:MOST_METHODS]]


def _ablation_columns(builder: FigureBuilder) -> Columns:
    is_played = {*ABLATIONS} & {*builder.methods(["babyai"])}
    return {"BabyAI": (["babyai"], [OURS, *ABLATIONS])} if is_played else {}


def _interpreter_columns(builder: FigureBuilder) -> Columns:
    return {
        title: (envs, [OURS, OFF])
        for title, envs in places(builder.groups).items()
        if title in ("Crafter", "ScienceWorld", *FAMILIES) and OFF in builder.methods(envs)
    }


def _replay_columns(builder: FigureBuilder) -> Columns:
    third = FAMILIES[:1]
    is_played = "asi_replay" in builder.methods(third)
    return {"ScienceWorld 3": (third, ["asi", "asi_replay", OURS])} if is_played else {}


def _trained_columns(builder: FigureBuilder) -> Columns:
    """Return the methods that have spent tokens on training at a finished checkpoint."""

    def is_trained(envs: Sequence[str], name: str) -> bool:
        spent = builder.curve(envs, name, "training_output").last
        return spent is not None and spent.mean > 0

    return {
        title: (envs, [name for name in names if is_trained(envs, name)])
        for title, (envs, names) in _main_columns(builder).items()
    }


def _pareto(builder: FigureBuilder) -> Figure | None:
    columns = _main_columns(builder)
    counts = {
        title: {name: _count_silent(builder, envs, name) for name in names}
        for title, (envs, names) in columns.items()
    }
    silent = [
        f"{name} in {title} ({amount:g} of a seed's test episodes)"
        for title, found in counts.items()
        for name, amount in found.items()
        if amount
    ]
    rows = [
        [_points(builder, title, envs, counts[title], measure) for title, (envs, _) in columns.items()]
        for measure in (USD, OUTPUT)
    ]
    text = (
        "Score against cost, both at the last checkpoint. The line joins the methods that no other method"
        " beats in both."
    )
    if silent:
        text += f" Not on the line, since episodes without a request have no cost: {', '.join(silent)}."
    shown = [[panel for panel in row if len(panel.series) > 1] for row in rows]
    return builder.figure("combined_performance_pareto", "Score against cost", text, shown)


def _points(
    builder: FigureBuilder, title: str, envs: Sequence[str], silent: Mapping[str, float], measure: str
) -> Panel:
    found: dict[str, tuple[Spread, Spread]] = {}
    for name in silent:
        cost, score = builder.curve(envs, name, measure), builder.curve(envs, name, SCORE)
        last = max(score.points, default=0)
        if last in cost.points:  # otherwise no episode there sent a request, or no price is known
            found[name] = cost.points[last], score.points[last]
    series = [Series(name, [cost.mean], [score]) for name, (cost, score) in found.items()]
    costed = {name: (cost.mean, score.mean) for name, (cost, score) in found.items() if not silent[name]}
    return Panel(title, LABELS[measure], LABELS[SCORE], series, "points", frontier(costed))


def _count_silent(builder: FigureBuilder, envs: Sequence[str], name: str) -> float:
    """Return the mean number of a seed's test episodes without a request, at the last checkpoint."""
    points = builder.curve(envs, name, "silent").points
    return points[max(points)].mean if points else 0.0


def _zombies(builder: FigureBuilder) -> Figure | None:
    played = {group.condition_name.env for group in builder.groups}
    if not {ZOMBIES["0x"], ZOMBIES["2x"]} & played:
        return None
    panels = []
    for measure, names in ((SCORE, (REACT, "opo", "voyager", OURS)), ("combat", ("voyager", OURS))):
        found = {
            name: {times: builder.curve([env], name, measure).last for times, env in ZOMBIES.items()}
            for name in names
        }
        series = [bars for name, values in found.items() for bars in _bars(name, values)]
        panels.append(Panel("Crafter", "zombies", LABELS[measure], series, "bars"))
    text = (
        "Final score without zombies, with the usual number and with twice as many, and the share of"
        " functions about combat in the library."
    )
    return builder.figure("zombie_sweep", "External randomness", text, [panels])


def _shift(builder: FigureBuilder) -> Figure | None:
    third, fourth = FAMILIES
    if not any(f"-from_{third}" in name for name in builder.methods([fourth])):
        return None
    panels = []
    for measure in (SCORE, USD):
        found = [_shifted(builder, name, measure) for name in (REACT, "opo", "asi", OURS)]
        series = [each for each in found if each.x]
        panels.append([Panel("ScienceWorld 3, then 4, then 3 again", ROLLOUTS, LABELS[measure], series)])
    text = (
        "Training on family 3, then on 4 with the policy of 3: at the switch the same policy is evaluated on"
        " both. The last point is the evaluation on 3 at the end, drawn 50 rollouts later."
    )
    return builder.figure("scienceworld_shift", "Distribution shift", text, panels)


def _shifted(builder: FigureBuilder, name: str, measure: str) -> Series:
    """Return a method's values on family 3, then on 4 with the policy of 3, then on 3 again."""
    third, fourth = FAMILIES
    second = name if name == REACT else after_third(name)
    before, after = builder.curve([third], name, measure), builder.curve([fourth], second, measure)
    end = max(before.points, default=0)
    points = [*before.points.items(), *((end + x, value) for x, value in after.points.items())]
    if name != REACT:
        again = builder.curve([third], returned_to_third(name), measure).last
        if again is not None and points:
            points.append((points[-1][0] + 50, again))
    return Series(name, [x for x, _ in points], [value for _, value in points])


def _tokens(builder: FigureBuilder) -> Figure | None:
    row = []
    for title, (envs, names) in _main_columns(builder).items():
        found = {
            measure: {name: builder.curve(envs, name, measure).last for name in names}
            for measure in ("uncached", "cached", OUTPUT)
        }
        series = [bars for measure, values in found.items() for bars in _bars(measure, values)]
        row.append(Panel(title, "", "tokens per test episode", series, "stack"))
    text = (
        "Tokens per test episode at the last checkpoint: prompt tokens that the engine computed,"
        " prompt tokens from its prefix cache, and generated tokens."
    )
    return builder.figure("tokens", "Cached and uncached tokens", text, [row])


def _cache(builder: FigureBuilder) -> Figure | None:
    found = [each for each in cache_effects(builder.everything) if each.condition_name.model == builder.model]
    builder.note(run for each in found for run in each.runs)
    row = []
    for measure in ("uncached", "actor_usd"):
        with_cache, without = {}, {}
        for each in found:
            if each.measure == measure:
                name = f"{each.condition_name.method}, {each.condition_name.env}"
                with_cache[name], without[name] = each.with_cache, each.without_cache
        series = [*_bars("with prefix cache", with_cache), *_bars("without", without)]
        row.append(Panel("", "", LABELS[measure], series, "bars"))
    text = (
        "The same policies on a server with and without prefix cache: computed prompt tokens and USD"
        " of a test episode, without sleeps."
    )
    return builder.figure("prefix_cache", "What the prefix cache saved", text, [row])


def _bars(name: str, found: Mapping[str, Spread | None]) -> Iterator[Series]:
    """Yield the bars of the names that have a value, if there are any."""
    known = {key: value for key, value in found.items() if value is not None}
    if known:
        yield Series(name, [*known], [*known.values()])


_LEARNING = CurveFigure(
    "combined_performance",
    "Performance and cost over training",
    "Means over test episodes and seeds at each checkpoint, bands one standard deviation over seeds: score,"
    " output tokens and USD per test episode.",
    (SCORE, OUTPUT, USD),
    _main_columns,
)
_ABLATIONS = CurveFigure(
    "babyai_ablations",
    "Ablations on BabyAI",
    "SpeedRunner without one of its parts: its code interpreter, its prompt, private skills.",
    (SCORE, OUTPUT),
    _ablation_columns,
)
_INTERPRETER = CurveFigure(
    "combined_ablations",
    "The code interpreter",
    "SpeedRunner with and without its code interpreter.",
    (SCORE, OUTPUT),
    _interpreter_columns,
)
_REPLAY = CurveFigure(
    "replay_ablation",
    "Verification by replay",
    "Skill induction that verifies skills by replay, which breaks the rule of no replay, compared with the"
    " others.",
    (SCORE, OUTPUT),
    _replay_columns,
)
_SPEND = CurveFigure(
    "training_spend",
    "What learning costs",
    "USD and output tokens that training has taken after so many rollouts, by all roles, induction included:"
    " means over seeds, bands one standard deviation. ReAct trains nothing.",
    (SPEND, "training_output"),
    _trained_columns,
)

FIGURES: tuple[tuple[Maker, bool], ...] = (
    (_LEARNING.make, True),
    (_pareto, False),
    (_ABLATIONS.make, True),
    (_INTERPRETER.make, True),
    (_zombies, True),
    (_shift, True),
    (_REPLAY.make, True),
    (_SPEND.make, False),
    (_tokens, False),
    (_cache, False),
)
"""The figures in the order of the page, and `Figure.is_experiment`."""
