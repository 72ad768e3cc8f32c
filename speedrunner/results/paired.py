"""Compare the test episodes of two runs, checkpoints or conditions, paired by seed and task.

Everything is computed from summary rows, which are small: no ledger and no episode is read. Tokens are those
of the episodes' own turns; `speedrunner.results.comparison` has the costs of all roles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from envs import Task
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import Config
from speedrunner.results.inference import Estimate, bootstrap_seeds
from speedrunner.store.records import EpisodeRow
from speedrunner.store.run_data import RunData

Value = Callable[[EpisodeRow], float | None]


def _used(value: Callable[[EpisodeRow], int]) -> Value:
    """Return a value that is missing for an episode without a request."""
    return lambda row: value(row) if row.llm_calls else None


METRICS: dict[str, Value] = {
    "score": lambda row: row.score,
    "LLM calls": _used(lambda row: row.llm_calls),
    "actions": lambda row: row.actions,
    "uncached prompt tokens": _used(lambda row: row.usage.uncached),
    "cached prompt tokens": _used(lambda row: row.usage.cached),
    "output tokens": _used(lambda row: row.usage.completion),
}
"""Values of a test episode that are compared; an episode without a score is in none."""

SUCCESS = "success"
"""One more value: whether the task was completed."""

VALUES: dict[str, Value] = {**METRICS, SUCCESS: lambda row: row.success}


@dataclass(frozen=True)
class EvaluatedRun:
    """The test episodes of one run; `name` identifies the run in links."""

    name: str
    run: RunData

    @property
    def path(self) -> str:
        """Return its directory."""
        return str(self.run.path)

    @property
    def config(self) -> Config:
        """Return its configuration."""
        return self.run.settings

    @cached_property
    def condition_name(self) -> ConditionName:
        """Return its condition."""
        return condition_name(self.run.settings)

    @property
    def seed(self) -> int:
        """Return its seed."""
        return self.run.settings.run.seed

    @cached_property
    def rows(self) -> dict[int, list[EpisodeRow]]:
        """Return the rows of test episodes, by checkpoint, ascending."""
        found: dict[int, list[EpisodeRow]] = {}
        for row in self.run.rows:
            if row.phase == "test":
                found.setdefault(row.checkpoint, []).append(row)
        return dict(sorted(found.items()))

    @cached_property
    def checkpoints(self) -> list[int]:
        """Return the checkpoints with all test episodes played."""
        planned = self.run.settings.run.test_episodes
        return [point for point, rows in self.rows.items() if len(rows) >= planned]

    def scored(self, point: int) -> dict[Task, list[EpisodeRow]]:
        """Return the rows of a checkpoint's episodes that have a score, by task."""
        found: dict[Task, list[EpisodeRow]] = {}
        for row in self.rows.get(point, ()):
            if row.score is not None:
                found.setdefault(row.task, []).append(row)
        return found

    def average_tasks(self, point: int, metric: str) -> dict[Task, float]:
        """Return the mean of one of `VALUES` over the scored episodes of each task."""
        means = {task: _average(metric, rows) for task, rows in self.scored(point).items()}
        return {task: mean for task, mean in means.items() if mean is not None}


@dataclass(frozen=True)
class Side:
    """One run, or the runs of a condition, by seed."""

    title: str
    runs: dict[int, EvaluatedRun]

    @cached_property
    def checkpoints(self) -> list[int]:
        """Return the checkpoints that at least one run has finished, ascending."""
        return sorted({point for run in self.runs.values() for point in run.checkpoints})

    def estimate(self, point: int, metric: str) -> Estimate | None:
        """Return the mean over tasks (and seeds) with its bootstrap interval; `None` without values."""
        values = {
            seed: [*run.average_tasks(point, metric).values()]
            for seed, run in self.runs.items()
            if point in run.checkpoints
        }
        return bootstrap_seeds({seed: own for seed, own in values.items() if own})


class TaskDifference(msgspec.Struct, frozen=True):
    """A test task that both sides played.

    Attributes:
        scores: mean score of the first and the second side.
        outputs: mean output tokens of both; `None` if unknown.
        episodes: of each side: the names of runs with their episodes' keys.
    """

    task: Task
    scores: tuple[float, float]
    outputs: tuple[float | None, float | None]
    episodes: tuple[list[tuple[str, str]], list[tuple[str, str]]]

    @property
    def difference(self) -> float:
        """Return the second side's score minus the first's."""
        return self.scores[1] - self.scores[0]


Points = tuple[int, int]
"""The checkpoints at which the first and the second side are compared."""


def pair_runs(first: Side, second: Side) -> dict[int, tuple[EvaluatedRun, EvaluatedRun]]:
    """Return the runs to compare: the only run of each side, or else those with equal seeds."""
    if len(first.runs) == len(second.runs) == 1:
        (one,), (other,) = first.runs.values(), second.runs.values()
        return {0: (one, other)}
    return {seed: (run, second.runs[seed]) for seed, run in first.runs.items() if seed in second.runs}


def estimate_difference(first: Side, second: Side, points: Points, metric: str) -> Estimate | None:
    """Return the second side's mean minus the first's, over pairs of equal seed and task, with its bootstrap
    interval; `None` without pairs."""
    values: dict[int, list[float]] = {}
    for seed, runs in pair_runs(first, second).items():
        one, other = (run.average_tasks(point, metric) for run, point in zip(runs, points, strict=True))
        values[seed] = [value - one[task] for task, value in other.items() if task in one]
    return bootstrap_seeds({seed: own for seed, own in values.items() if own})


def list_task_differences(first: Side, second: Side, points: Points) -> list[TaskDifference]:
    """Return the tasks that both sides played, the largest difference in score first, then in output."""
    played: dict[Task, tuple[list[_Played], list[_Played]]] = {}
    for runs in pair_runs(first, second).values():
        one, other = (run.scored(point) for run, point in zip(runs, points, strict=True))
        for task in one.keys() & other.keys():
            sides = played.setdefault(task, ([], []))
            for side, run, rows in zip(sides, runs, (one[task], other[task]), strict=True):
                side += [(run.name, row) for row in rows]
    return sorted((_compare_task(task, *sides) for task, sides in played.items()), key=_by_size)


_Played = tuple[str, EpisodeRow]
"""The name of a run with one of its episodes."""


def _compare_task(task: Task, first: list[_Played], second: list[_Played]) -> TaskDifference:
    def average(metric: str, side: list[_Played]) -> float | None:
        return _average(metric, [row for _, row in side])

    def list_keys(side: list[_Played]) -> list[tuple[str, str]]:
        return [(name, row.episode) for name, row in side]

    return TaskDifference(
        task,
        scores=(average("score", first) or 0.0, average("score", second) or 0.0),
        outputs=(average("output tokens", first), average("output tokens", second)),
        episodes=(list_keys(first), list_keys(second)),
    )


def _average(metric: str, rows: Iterable[EpisodeRow]) -> float | None:
    """Return the mean of the known values of a metric, `None` without any."""
    known = [value for row in rows if (value := VALUES[metric](row)) is not None]
    return sum(known) / len(known) if known else None


def _by_size(each: TaskDifference) -> tuple[float, float, str, int]:
    one, other = each.outputs
    more = abs(other - one) if one is not None and other is not None else 0.0
    return -abs(each.difference), -more, each.task.name, each.task.index
