"""Does it keep to what an environment promises, and does it score well?"""

from __future__ import annotations

import random
from typing import Any

import pytest

from envs import EpisodeOver, InvalidPrimitiveCall, Task
from speedrunner.cli.scaffold.my_env import MyEnv


def play(env: MyEnv, index: int) -> list[Any]:
    """Play a task at random, and return all that the world says."""
    opening, rng = env.reset(Task(env.name, "beach", index)), random.Random(0)
    texts: list[Any] = [opening.instruction, opening.observation]
    for _ in range(20):
        if not env.done:
            name, arguments = rng.choice([("walk", {"steps": rng.randrange(-3, 4)}), ("dig", {})])
            texts += [env.call(name, **arguments), env.outcome().score]
    return texts


def test_a_task_is_the_same_world_whenever_it_is_played() -> None:
    first, second = MyEnv(), MyEnv()
    assert [play(first, index) for index in (7, 8)] == [play(second, index) for index in (8, 7)][::-1]


def test_the_treasure_is_found_and_scored_and_other_calls_are_refused() -> None:
    env = MyEnv(width=2)
    env.reset(Task(env.name, "beach", 7))
    with pytest.raises(InvalidPrimitiveCall):
        env.call("fly")
    assert env.call("dig") == "Only sand. The treasure lies to the east."
    env.call("walk", steps=1)
    assert env.call("dig") == "Here it is!"
    assert env.outcome().score == 0.5
    with pytest.raises(EpisodeOver):
        env.call("dig")
