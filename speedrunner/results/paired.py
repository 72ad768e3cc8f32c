"""Compare the test episodes of two runs, checkpoints or conditions, paired by seed and task."""

from __future__ import annotations

from typing import Any

import msgspec
import pandas

from envs import Task
from speedrunner.results.conditions import Side
from speedrunner.results.evaluated_run import EvaluatedRun
from speedrunner.results.inference import Estimate, bootstrap_seeds
from speedrunner.results.writing import list_rows

METRICS = {
    "score": "score",
    "LLM calls": "llm_calls",
    "actions": "actions",
    "uncached prompt tokens": "uncached",
    "cached prompt tokens": "cached",
    "output tokens": "output",
}
"""Values of a test episode that pages compare, and their columns in `frame_episodes`."""


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
    return first.pair(second)


def subtract_values(first: EvaluatedRun, second: EvaluatedRun, points: Points, column: str) -> list[float]:
    """Return the second run's value minus the first's of each test episode that has a value in both."""
    one, other = first.values(points[0], column), second.values(points[1], column)
    return (other - one.reindex(other.index)).dropna().tolist()


def estimate_difference(first: Side, second: Side, points: Points, column: str) -> Estimate | None:
    """Return the second side's mean minus the first's, over pairs of equal seed and task, with its bootstrap
    interval; `None` without pairs."""
    pairs = pair_runs(first, second)
    return bootstrap_seeds({seed: subtract_values(*runs, points, column) for seed, runs in pairs.items()})


def list_task_differences(first: Side, second: Side, points: Points) -> list[TaskDifference]:
    """Return the tasks that both sides played, the largest difference in score first, then in output."""
    both = pandas.concat(
        pandas.merge(
            one.tests(points[0]).assign(run=one.name),
            other.tests(points[1]).assign(run=other.name),
            on="task",
            suffixes=("_0", "_1"),
        )
        for one, other in pair_runs(first, second).values()
    )
    tasks = both.groupby(level="task", sort=False)
    return sorted((_compare_task(task, played) for task, played in tasks), key=_by_size)


def _compare_task(task: Any, played: pandas.DataFrame) -> TaskDifference:
    """Return the difference of a task from its pairs, whose columns end with the number of their side."""
    (means,) = list_rows(played[["score_0", "score_1", "output_0", "output_1"]].mean().to_frame().T)
    one, other = (list(zip(played[f"run_{side}"], played[f"episode_{side}"], strict=True)) for side in (0, 1))
    scores, outputs = ((means[f"{name}_0"], means[f"{name}_1"]) for name in ("score", "output"))
    return TaskDifference(task, scores, outputs, (one, other))


def _by_size(each: TaskDifference) -> tuple[float, float, str, int]:
    one, other = each.outputs
    more = abs(other - one) if one is not None and other is not None else 0.0
    return -abs(each.difference), -more, each.task.name, each.task.index
