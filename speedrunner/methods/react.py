"""ReAct (paper, section 4.1): primitives and the episode's own context, nothing learnt between episodes."""

from __future__ import annotations

from envs import Task, TextEnv
from speedrunner.agents.actor import ActorSpec
from speedrunner.library.library import Library
from speedrunner.methods.base import Method, SleepTools
from speedrunner.store.data import History
from speedrunner.store.records import Policy


class ReAct(Method):
    """The control: its policy stays empty.

    Args:
        train: play the training rollouts all the same, from which nothing is learnt.
    """

    def __init__(self, *, train: bool = False) -> None:
        self.trains = train

    @property
    def sleep_calls(self) -> int:
        """It sleeps without a request."""
        return 0

    def initial(self) -> Policy:
        """An empty policy."""
        return Policy(version=0)

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """The primitives alone."""
        return ActorSpec(Library(env.primitives))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Change nothing."""
        return policy
