"""Does it keep to what an environment promises?"""

from __future__ import annotations

from envs import Task
from speedrunner.cli.scaffold.check_environment import check_environment
from speedrunner.cli.scaffold.my_env import MyEnv


def test_it_conforms() -> None:
    assert check_environment(MyEnv.name) == []


def test_the_treasure_is_found_and_scored() -> None:
    env = MyEnv(width=2)
    env.reset(Task(env.name, "beach", 7))
    assert env.call("dig") == "Only sand. The treasure lies to the east."
    env.call("walk", steps=1)
    assert env.call("dig") == "Here it is!"
    assert env.done
    assert env.outcome().score == 0.5
