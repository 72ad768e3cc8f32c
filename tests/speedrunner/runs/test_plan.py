"""What a run consists of."""

from __future__ import annotations

from typing import Any

import pytest

from envs import Split, Task
from speedrunner.config.schema import RunConfig
from speedrunner.runs.plan import Evaluate, InvalidPlan, Sleep, Step, Wake, plan_run, step_key

SPLIT = Split(
    train=[Task("toy", "default", number) for number in range(200)],
    test=[Task("toy", "default", 1000 + number) for number in range(30)],
)


def plan(split: Split = SPLIT, *, trains: bool = True, **changes: Any) -> list[Step]:
    """A plan with the paper's numbers, which are the defaults."""
    return plan_run(split, RunConfig("runs/one", **changes), trains=trains)


def outline(**changes: Any) -> list[str]:
    """The steps in short: `wake 0-9 v0`, `sleep v1`, `test@50 v5`."""
    lines = []
    for step in plan(**changes):
        match step:
            case Wake():
                numbers = [int(key.removeprefix("train/")) for key in step.tasks]
                lines.append(f"wake {numbers[0]}-{numbers[-1]} v{step.policy}")
            case Sleep():
                lines.append(f"sleep v{step.number}")
            case Evaluate():
                lines.append(f"test@{step.checkpoint} v{step.policy}")
    return lines


def test_the_papers_schedule_has_a_sleep_after_every_ten_of_two_hundred_rollouts() -> None:
    learning = [line for line in outline() if not line.startswith("test")]
    pairs = [(f"wake {10 * n}-{10 * n + 9} v{n}", f"sleep v{n + 1}") for n in range(20)]
    assert learning == [line for pair in pairs for line in pair]
    assert outline(trains=False) == [f"test@{n} v0" for n in (0, 50, 100, 150, 200)]


def test_a_partial_last_batch_is_followed_by_a_sleep_that_says_so() -> None:
    assert outline(rollouts=25, eval_every=25) == [
        "test@0 v0",
        *("wake 0-9 v0", "sleep v1"),
        *("wake 10-19 v1", "sleep v2"),
        *("wake 20-24 v2", "sleep v3"),
        "test@25 v3",
    ]
    assert [step.rollouts for step in plan(rollouts=25) if isinstance(step, Sleep)] == [10, 10, 5]


def test_a_checkpoint_between_two_sleeps_gets_the_newest_policy_made_from_at_most_its_rollouts() -> None:
    assert outline(rollouts=20, sleep_every=10, eval_every=5) == [
        *("test@0 v0", "test@5 v0", "wake 0-9 v0", "sleep v1"),
        *("test@10 v1", "test@15 v1", "wake 10-19 v1", "sleep v2"),
        "test@20 v2",
    ]
    assert outline(rollouts=10, sleep_every=4, eval_every=3) == [
        *("test@0 v0", "test@3 v0", "wake 0-3 v0", "sleep v1"),
        *("test@6 v1", "wake 4-7 v1", "sleep v2"),
        *("test@9 v2", "wake 8-9 v2", "sleep v3"),
        "test@10 v3",
    ]


def test_without_rollouts_the_initial_policy_is_evaluated_once() -> None:
    assert outline(rollouts=0) == outline(rollouts=0, trains=False) == ["test@0 v0"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rollouts": 201}, "run.rollouts=201, but the split has only 200 of these tasks: lower it"),
        ({"test_episodes": 31}, "run.test_episodes=31, but the split has only 30 of these tasks: lower it"),
    ],
)
def test_more_tasks_than_there_are_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidPlan) as error:
        plan(**changes)
    assert str(error.value) == message


def test_are_the_same_for_the_same_plan_and_differ_within_it() -> None:
    keys = [step_key(step) for step in plan()]
    assert keys == [step_key(step) for step in plan()]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(("rollouts", "longer"), [(0, 10), (50, 60), (50, 100), (100, 200)])
def test_a_longer_plan_begins_with_the_whole_shorter_one(rollouts: int, longer: int, trains: bool) -> None:
    short, long = plan(rollouts=rollouts, trains=trains), plan(rollouts=longer, trains=trains)
    assert long[: len(short)] == short
    assert len(long) > len(short)


@pytest.mark.parametrize(("train", "test"), [([1, 2, 1], [3]), ([1, 2], [2]), ([1], [3, 3])])
def test_no_task_is_trained_on_twice_or_held_out_and_trained_on(train: list[int], test: list[int]) -> None:
    split = Split(*([Task("toy", "default", index) for index in each] for each in (train, test)))
    with pytest.raises(InvalidPlan, match=r"the environment's split has Task\(.*\) twice"):
        plan(split, rollouts=1, test_episodes=1)
