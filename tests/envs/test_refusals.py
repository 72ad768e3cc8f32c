"""Tasks, options and calls that our environments refuse; each line says what is allowed."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from envs import EnvironmentFault, Task, UnknownTask, make, splits
from tests.golden_tables import Golden, refusals

STARTED = {"babyai": Task("babyai", "pick_up_seq_go_to", 0), "crafter": Task("crafter", "default", 3)}
"""The environments that start no process, with a task."""

TASKS: dict[str, list[tuple[str, Any]]] = {
    "babyai": [("fly", 0), *(("pick_up_seq_go_to", index) for index in (-1, 1.0, True))],
    "crafter": [("survive", 0), ("default", -1), ("default", "7")],
    "scienceworld": [("fly", 0), ("find-plant", 300), ("find-plant", -1)],
}


def test_an_unknown_task_is_refused_with_what_there_is(golden: Golden) -> None:
    tries = [
        (task, partial(make(env).reset, task))
        for env, tasks in TASKS.items()
        for task in (Task("maze", "default", 0), *(Task(env, *task) for task in tasks))
    ]
    golden("unknown_tasks.txt", refusals(tries, UnknownTask))


def test_a_value_that_is_out_of_range_is_refused(golden: Golden) -> None:
    options: list[tuple[str, dict[str, Any]]] = [
        *(("babyai", {"num_dists": number}) for number in (-1, 13)),
        *(("crafter", {"zombie_frequency": value}) for value in (-0.5, 101.0, float("nan"), float("inf"))),
        ("crafter", {"view": "far"}),
    ]
    tries = [((env, given), partial(make, env, **given)) for env, given in options]
    tries.append(("crafter's split, seed -1", partial(splits, "crafter", seed=-1)))
    golden("out_of_range.txt", refusals(tries, EnvironmentFault))


@pytest.mark.parametrize("name", STARTED)
def test_an_invalid_call_names_what_is_allowed_and_costs_nothing(name: str, golden: Golden) -> None:
    env = make(name)
    env.reset(STARTED[name])
    before = env.outcome()
    known = env.primitives[-1].name
    calls: list[tuple[str, dict[str, Any]]] = [
        ("jump", {}),
        ("", {}),
        ("go\nback", {}),
        (known, {"far": True}),
    ]
    tries = [(call, partial(env.call, call[0], **call[1])) for call in calls]
    golden(f"{name}_calls.txt", refusals(tries, EnvironmentFault))
    assert env.outcome() == before
