"""Compare the test episodes of two runs, checkpoints or conditions, paired by seed and task.

Without a priced ledger, everything is computed from summary rows, which are small: no ledger and no episode
is read, and tokens are those of the episodes' own turns. `speedrunner.results.comparison` passes the ledger.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from envs import Task
from speedrunner.config.names import ConditionName, condition_name
from speedrunner.config.schema import Config
from speedrunner.results.checkpoints import frame_episodes, select_tests
from speedrunner.results.inference import Estimate, bootstrap_seeds
from speedrunner.results.ledger import RunCosts
from speedrunner.results.plain_rows import plain_value
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    import pandas
    from pandas.api.typing import DataFrameGroupBy

METRICS = {
    "score": "score",
    "LLM calls": "llm_calls",
    "actions": "actions",
    "uncached prompt tokens": "uncached",
    "cached prompt tokens": "cached",
    "output tokens": "output",
}
"""Values of a test episode that pages compare, and their columns in `frame_episodes`."""

SUCCESS = "success"
"""One more value, and its column: whether the task was completed."""

COLUMNS = {**METRICS, SUCCESS: SUCCESS}


@dataclass(frozen=True)
class EvaluatedRun:
    """The test episodes of one run.

    Attributes:
        name: identifies the run in links.
        costs: its priced ledger, with the tokens of all roles; `None`: tokens of the episodes' own turns.
    """

    name: str
    run: RunData
    costs: RunCosts | None = None

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
    def tests(self) -> pandas.DataFrame:
        """Return the test episodes, as rows of `frame_episodes`."""
        rows = self.run.rows if self.costs is None else self.run.episodes
        return frame_episodes([row for row in rows if row.phase == "test"], self.costs)

    @cached_property
    def checkpoints(self) -> list[int]:
        """Return the checkpoints with all test episodes played."""
        counts = self.tests["checkpoint"].value_counts(sort=False).sort_index()
        return counts.index[counts >= self.config.run.test_episodes].tolist()

    def scored(self, point: int) -> pandas.DataFrame:
        """Return a checkpoint's episodes that have a score."""
        return select_tests(self.tests, point)

    def average_tasks(self, point: int, column: str) -> pandas.Series[float]:
        """Return a column's mean over the scored episodes of each task with a value."""
        return self.scored(point).groupby("task", sort=False)[column].mean().dropna()


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
        runs = {seed: run for seed, run in self.runs.items() if point in run.checkpoints}
        return bootstrap_seeds(
            {seed: run.average_tasks(point, COLUMNS[metric]).tolist() for seed, run in runs.items()}
        )


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


def subtract_tasks(
    first: EvaluatedRun, second: EvaluatedRun, points: Points, column: str
) -> pandas.Series[float]:
    """Return the second run's mean minus the first's for each task with a value in both."""
    one, other = first.average_tasks(points[0], column), second.average_tasks(points[1], column)
    return (other - one.reindex(other.index)).dropna()


def estimate_difference(first: Side, second: Side, points: Points, metric: str) -> Estimate | None:
    """Return the second side's mean minus the first's, over pairs of equal seed and task, with its bootstrap
    interval; `None` without pairs."""
    return bootstrap_seeds(
        {
            seed: subtract_tasks(*runs, points, COLUMNS[metric]).tolist()
            for seed, runs in pair_runs(first, second).items()
        }
    )


def list_task_differences(first: Side, second: Side, points: Points) -> list[TaskDifference]:
    """Return the tasks that both sides played, the largest difference in score first, then in output."""
    import pandas

    parts: tuple[list[pandas.DataFrame], list[pandas.DataFrame]] = [], []
    for runs in pair_runs(first, second).values():
        played = [run.scored(point).assign(run=run.name) for run, point in zip(runs, points, strict=True)]
        common = set(played[0]["task"]).intersection(played[1]["task"])
        for part, own in zip(parts, played, strict=True):
            part.append(own[own["task"].isin(common)])
    sides = [pandas.concat(part).groupby("task", sort=False) for part in parts]
    return sorted((_compare_task(task, *sides) for task in sides[0].groups), key=_by_size)


def _compare_task(task: Any, *sides: DataFrameGroupBy[Any, Any]) -> TaskDifference:
    one, other = (side.get_group(task) for side in sides)
    score, output = (
        (plain_value(one[name].mean()), plain_value(other[name].mean())) for name in ("score", "output")
    )
    return TaskDifference(task, score, output, (_list_keys(one), _list_keys(other)))


def _list_keys(played: pandas.DataFrame) -> list[tuple[str, str]]:
    return list(zip(played["run"], played["episode"], strict=True))


def _by_size(each: TaskDifference) -> tuple[float, float, str, int]:
    one, other = each.outputs
    more = abs(other - one) if one is not None and other is not None else 0.0
    return -abs(each.difference), -more, each.task.name, each.task.index
