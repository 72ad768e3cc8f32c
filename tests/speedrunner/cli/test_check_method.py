"""`check_method`: any method against its contract, without a model."""

from __future__ import annotations

import random

import msgspec
import pytest

from envs import Opening
from speedrunner.cli.scaffold.check_method import check_method
from speedrunner.methods import ActorSpec, History, Library, Policy, SleepTools, Task, TextEnv
from speedrunner.methods.react import ReAct
from speedrunner.runs.executor import RunStopped
from tests.scripted_runs import CORRIDOR
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


def test_ours_conforms() -> None:
    options = ("method.inducer_calls=12", f"env={CORRIDOR}", "env.pit=-50")
    assert check_method("speedrunner", *options) == []


class Remembers(ReAct):
    sleeps = 0

    def __init__(self) -> None:
        super().__init__(train=True)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        self.sleeps += 1
        return msgspec.structs.replace(policy, notes=f"Sleep {self.sleeps}.")


class Draws(Remembers):
    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        return ActorSpec(Library(env.primitives), str(random.random()))


class Stumbles(Remembers):
    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        raise IndexError("nothing there")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "problem"),
    [
        (Remembers, "sleep: the new policy differs with a new instance of the method, at the policy v0002"),
        (Draws, "agent: the actor's prompt differs with a new instance of the method, at the policy v0000"),
    ],
)
def test_a_broken_promise_is_a_line(method: type[ReAct], problem: str) -> None:
    assert check_method(f"{__name__}:{method.__name__}", f"env={CORRIDOR}") == [problem]


class Collapses(Corridor):
    def reset(self, task: Task) -> Opening:
        raise RuntimeError("the corridor caved in")


def test_an_error_of_the_method_or_the_environment_shows_whose_it_is() -> None:
    with pytest.raises(IndexError, match="nothing there"):
        check_method(f"{__name__}:Stumbles", f"env={CORRIDOR}")
    with pytest.raises(RunStopped, match=r"ended by environment_error: .*the corridor caved in"):
        check_method(f"{__name__}:Remembers", f"env={Collapses.name}")
