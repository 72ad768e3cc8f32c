"""ReAct (paper, section 4.1): primitives and the episode's own context; nothing is learned
between episodes."""

from __future__ import annotations

from speedrunner.methods import ActorSpec, History, Library, Method, Policy, SleepTools, Task, TextEnv


class ReAct(Method):
    """The control method: its policy stays empty.

    Args:
        train: whether to play the training rollouts, although nothing is learned from them.
    """

    def __init__(self, *, train: bool = False) -> None:
        self.trains = train

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return an actor with the primitives only."""
        return ActorSpec(Library(env.primitives))

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Change nothing."""
        return policy
