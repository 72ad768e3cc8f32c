"""`check_method`: any method against its contract, without a model."""

from __future__ import annotations

import random

import msgspec
import pytest

from envs import Opening
from speedrunner.cli.scaffold.check_method import check_method
from speedrunner.methods import ActorSpec, History, Library, Method, Policy, SleepTools, Task, TextEnv
from speedrunner.methods.react import ReAct
from speedrunner.store.policies import InvalidPolicy
from speedrunner.workers.env_worker import WorkerError
from tests.scripted_runs import CORRIDOR
from tests.toy_env import Corridor

pytestmark = pytest.mark.process


def test_ours_conforms() -> None:
    options = ("method.inducer_calls=12", f"env={CORRIDOR}", "env.pit=-50")
    assert check_method("speedrunner", *options) == []


class Learner(ReAct):
    """Sound: notes how many turns it has read of."""

    def __init__(self, *, train: bool = True) -> None:
        super().__init__(train=train)

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        return ActorSpec(Library(env.primitives), policy.notes)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        turns = sum(len(each.turns) for each in history.batch(history.batches()[-1]))
        return msgspec.structs.replace(policy, notes=f"{policy.notes}Read {turns}.{self.more(policy)}\n")

    def more(self, policy: Policy) -> str:
        return ""


class Remembers(Learner):
    sleeps = 0

    def more(self, policy: Policy) -> str:
        self.sleeps += 1
        return f" Sleep {self.sleeps}."


class Draws(Learner):
    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        policy.method["seen"] = True
        return ActorSpec(Library(env.primitives), str(random.random()))


class Stumbles(Learner):
    def more(self, policy: Policy) -> str:
        return str([][policy.version])


class KeepsASet(Learner):
    def initial(self) -> Policy:
        return Policy(version=0, method={"seen": {1}})


@pytest.mark.slow
def test_each_broken_promise_is_a_line() -> None:
    assert check_method(f"{__name__}:Remembers", f"env={CORRIDOR}") == [
        "sleep: the new policy differs with a new instance of the method, at the policy v0002"
    ]
    assert check_method(f"{__name__}:Draws", f"env={CORRIDOR}") == [
        "agent: changed the policy that was passed to it",
        "agent: the actor's prompt differs with a new instance of the method, at the policy v0000",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "error"), [(Stumbles, IndexError), (KeepsASet, InvalidPolicy)])
def test_an_error_of_the_method_shows_its_own_traceback(kind: type[Method], error: type[Exception]) -> None:
    with pytest.raises(error):
        check_method(f"{__name__}:{kind.__name__}", f"env={CORRIDOR}")


class Collapses(Corridor):
    def reset(self, task: Task) -> Opening:
        raise RuntimeError("the corridor caved in")


def test_a_fault_of_the_environment_is_not_attributed_to_the_method() -> None:
    with pytest.raises(WorkerError, match=r"ended by environment_error: .*the corridor caved in"):
        check_method(f"{__name__}:Stumbles", f"env={Collapses.name}")
