"""Figures as data, and a builder that makes them from curves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from speedrunner.results.conditions import Condition, Curve, curve, methods
from speedrunner.results.inference import CONFIDENCE, bootstrap_mean
from speedrunner.results.means import Spread
from speedrunner.results.paper import sweep_command

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


class Line(msgspec.Struct, frozen=True):
    """One line, bar or point of a panel.

    Attributes:
        name: a method, which has its own color, dash and marker.
        x: numbers, or names of bars.
        sd: over seeds; `None` for one seed.
        ends: the ends of the interval of each value, `None` if unknown: of `dots`, and of `lines` of one
            seed, whose interval is over test episodes.
        notes: of a `matrix`, further lines of text in each cell.
    """

    name: str
    x: list[float | str]
    y: list[float]
    sd: list[float | None]
    seeds: int
    ends: list[tuple[float, float] | None] = []
    notes: list[str] = []


class Panel(msgspec.Struct, frozen=True):
    """One pair of axes.

    Attributes:
        kind: `lines` over rollouts, `points` with the frontier, grouped `bars`, a `stack` of horizontal
            bars with their names at the y axis, `dots` with intervals and names in the same place, or a
            `matrix`, of which each line is a row with values from 0 to 1.
        over: lines of a second measure over bars, with an axis on the right.
        frontier: names of the points on the Pareto frontier.
    """

    title: str
    x: str
    y: str
    lines: list[Line]
    kind: Literal["lines", "points", "bars", "stack", "dots", "matrix"] = "lines"
    over: list[Line] = []
    over_y: str = ""
    frontier: list[str] = []

    @property
    def names(self) -> list[str]:
        """Return the names of bars (and points over them), dots or columns, each once."""
        return list(dict.fromkeys(str(x) for line in (*self.lines, *self.over) for x in line.x))


class Figure(msgspec.Struct, frozen=True):
    """One figure.

    Attributes:
        name: name of its files, and its anchor on the page; the paper's label if it has one.
        rows: rows of panels.
        runs: the runs behind it.
        missing: what is missing, by the command that fills it.
        is_experiment: whether it shows the scores and costs of an experiment; see
            `speedrunner.pages.camera_ready`.
    """

    name: str
    title: str
    text: str
    rows: list[list[Panel]]
    runs: list[str]
    missing: dict[str, list[str]]
    is_experiment: bool = False


class FigureBuilder:
    """Collects the runs and the gaps of a figure while its panels are made.

    Args:
        experiment: the experiment that fills gaps.
        options: further options of its command, such as ` scale=smoke`.

    Attributes:
        everything: the conditions of all models; `groups`: those of the figure's model.
    """

    def __init__(self, groups: Sequence[Condition], model: str, experiment: str, options: str) -> None:
        self.everything = groups
        self.groups = [group for group in groups if group.condition_name.model == model]
        self.model = model
        self._command = sweep_command(experiment, self.groups[0].first.config.model, options)
        self._runs: dict[str, None] = {}
        self._gaps: dict[str, None] = {}
        self._unpriced = False

    def methods(self, envs: Sequence[str]) -> list[str]:
        """Return the methods that were played in one of these environments."""
        return methods(self.groups, envs, self.model)

    def curve(self, envs: Sequence[str], method: str, measure: str) -> Curve:
        """Return the curve of one condition; record a gap if it was not played, or has no price."""
        found = curve(self.groups, envs, method, self.model, measure)
        self._runs |= dict.fromkeys(found.runs)
        if not curve(self.groups, envs, method, self.model, SCORE).points:
            self._gaps[f"{method} on {' and '.join(envs)}"] = None
        elif measure in (USD, SPEND) and not any(each.mean for each in found.points.values()):
            self._unpriced = True
            return Curve({}, found.runs)
        return found

    def line(self, envs: Sequence[str], method: str, measure: str) -> Line | None:
        """Return the same curve as a line over checkpoints; one seed's values get intervals over episodes."""
        points = self.curve(envs, method, measure).points
        line = line_of(method, points.items())
        if line is None or line.seeds > 1 or len(envs) > 1 or measure not in (SCORE, OUTPUT):
            return line
        names = envs[0], method, self.model
        run, *others = next(group.runs.values() for group in self.groups if group.names == names)
        if others:  # only one of several seeds has finished
            return line
        found = (bootstrap_mean(run.values(point, measure).tolist()) for point in points)
        return msgspec.structs.replace(line, ends=[None if each is None else each.ends for each in found])

    def note(self, runs: Iterable[str], gaps: Iterable[str] = ()) -> None:
        """Record the runs and gaps of a panel that has no curve."""
        self._runs |= dict.fromkeys(runs)
        self._gaps |= dict.fromkeys(gaps)

    def figure(self, name: str, title: str, text: str, rows: Iterable[Iterable[Panel]]) -> Figure | None:
        """Return the figure with its non-empty panels; `None` if there are none.

        Args:
            name: prefix of its name, before the model's.
            title: prefix of its title, before the model's name.
        """
        kept = [row for row in ([panel for panel in row if panel.lines] for row in rows) if row]
        if not kept:
            return None
        lines = [line for row in kept for panel in row for line in panel.lines if line.seeds == 1]
        if alone := ", ".join(dict.fromkeys(line.name for line in lines)):
            text += (
                f" Only one seed, so bands are {CONFIDENCE:.0%} intervals over its test episodes: {alone}."
                if any(line.ends for line in lines)
                else f" Only one seed, so no deviation: {alone}."
            )
        missing = {self._command: [*self._gaps]} if self._gaps else {}
        if self._unpriced:
            missing["speedrunner report DIR --prices NAME"] = ["prices: USD are unknown or all zero"]
        suffix = "".join(each if each.isalnum() else "_" for each in self.model[:LETTERS])
        return Figure(f"{name}_{suffix}", f"{title}, {self.model}", text, kept, [*self._runs], missing)


def line_of(name: str, points: Iterable[tuple[int, Spread]]) -> Line | None:
    """Return a line over checkpoints; `None` without points. A checkpoint may occur twice."""
    rollouts, values = [], []
    for point, value in points:
        rollouts.append(point)
        values.append(value)
    if not values:
        return None
    return Line(
        name,
        [*rollouts],
        [each.mean for each in values],
        [each.sd for each in values],
        min(each.seeds for each in values),
    )


def bars_of(name: str, found: Mapping[str, Spread | None]) -> Iterator[Line]:
    """Yield a bar for each name that has a value."""
    known = {key: each for key, each in found.items() if each is not None}
    if known:
        values = known.values()
        seeds = min(each.seeds for each in values)
        yield Line(name, [*known], [each.mean for each in values], [each.sd for each in values], seeds)
