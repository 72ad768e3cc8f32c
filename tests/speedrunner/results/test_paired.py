"""Two sides, paired by seed and task, with numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas
import pytest

from speedrunner.results.conditions import Condition
from speedrunner.results.pairing import estimate_difference, list_task_differences, pair_runs
from speedrunner.results.run_result import RunResult, frame_run
from speedrunner.store.run_data import load
from tests.speedrunner.results.small_runs import TURN, SmallRun


def evaluated(path: Path, *scores: list[float | None], seed: int = 0) -> RunResult:
    """A run with these scores at checkpoints 0, 2, ..."""
    run = SmallRun(path, run={"seed": seed})
    run.policy(0, {})
    for number, own in enumerate(scores):
        run.test(2 * number, 0, own)
    return frame_run(load(path), name=path.name)


def side(*runs: RunResult) -> Condition:
    return Condition(runs[0].condition_name, {run.seed: run for run in runs}, runs[0].name)


def test_tasks_are_paired_and_an_unscored_one_is_in_no_pair(tmp_path: Path) -> None:
    one = evaluated(tmp_path / "one", [0.0, 0.5, 1.0])
    other = evaluated(
        tmp_path / "other", [1.0, None, 0.5], seed=1
    )  # two runs are a pair whatever their seeds
    found = estimate_difference(side(one), side(other), (0, 0), "score")
    assert found is not None
    assert (found.mean, found.count) == (0.25, 2)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= 0.25 <= found.high


def test_checkpoints_of_one_run_are_compared_by_task(tmp_path: Path) -> None:
    run = side(evaluated(tmp_path / "run", [0.0, 0.5], [0.5, 1.0]))
    found = estimate_difference(run, run, (0, 2), "score")
    assert found is not None
    assert found.mean == 0.5
    assert [(each.task.index, each.difference) for each in list_task_differences(run, run, (0, 2))] == [
        (100, 0.5),
        (101, 0.5),
    ]


def test_conditions_are_paired_by_seed(tmp_path: Path) -> None:
    one = side(evaluated(tmp_path / "a0", [0.0, 0.0]), evaluated(tmp_path / "a1", [1.0, 1.0], seed=1))
    other = side(
        evaluated(tmp_path / "b1", [0.5, 0.5], seed=1), evaluated(tmp_path / "b2", [9.0, 9.0], seed=2)
    )
    assert [*pair_runs(one, other)] == [1]
    found = estimate_difference(one, other, (0, 0), "score")
    assert found is not None
    assert found.mean == -0.5


def test_the_largest_differences_come_first_with_the_episodes_behind_them(tmp_path: Path) -> None:
    one, other = evaluated(tmp_path / "one", [0.5, 0.0, 1.0]), evaluated(tmp_path / "other", [0.5, 1.0, 0.75])
    found = list_task_differences(side(one), side(other), (0, 0))
    assert [each.difference for each in found] == [1.0, -0.25, 0.0]
    assert found[0].episodes == ([("one", "test/0000/0001")], [("other", "test/0000/0001")])
    assert found[0].outputs == (TURN.completion, TURN.completion)


def test_a_task_that_a_damaged_run_has_twice_counts_once(tmp_path: Path) -> None:
    run = evaluated(tmp_path / "run", [0.0, 0.5], [1.0, 1.0])
    again = run.episodes.assign(score=0.75)
    twice = replace(run, episodes=pandas.concat([run.episodes, again], ignore_index=True))
    found = estimate_difference(side(twice), side(run), (0, 2), "score")
    assert found is not None
    assert (found.mean, found.count) == (0.75, 2)
    assert twice.average("score") == {0: 0.25, 2: 1.0}
    assert [each.scores for each in list_task_differences(side(twice), side(run), (0, 2))] == [
        (0.0, 1.0),
        (0.5, 1.0),
    ]


def test_without_a_common_task_there_is_no_difference(tmp_path: Path) -> None:
    one, other = evaluated(tmp_path / "one", [None, 0.5]), evaluated(tmp_path / "other", [0.5, None])
    assert estimate_difference(side(one), side(other), (0, 0), "score") is None
    assert list_task_differences(side(one), side(other), (0, 0)) == []


def test_an_unfinished_checkpoint_counts_in_no_mean(tmp_path: Path) -> None:
    run = side(evaluated(tmp_path / "run", [0.0, 1.0], [1.0]))
    assert run.points == [0]
    again = replace(run.first, episodes=pandas.concat([run.first.episodes] * 2, ignore_index=True))
    assert again.points == [0]
    assert run.estimate(2, "score") is None
    found = run.estimate(0, "score")
    assert found is not None
    assert found.mean == pytest.approx(0.5)
