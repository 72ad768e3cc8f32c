"""Methods that ask for what no bundled method does, for tests of what carries them out."""

from __future__ import annotations

import asyncio

import msgspec

from speedrunner.methods import (
    ActorSpec,
    History,
    Library,
    Method,
    Policy,
    SleepTools,
    Task,
    TextEnv,
)


class Replaying(Method):
    """Plays each task of the batch again, and notes what came of it."""

    replays = True

    def initial(self) -> Policy:
        """No notes."""
        return Policy(version=0)

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """The notes."""
        return ActorSpec(Library(env.primitives), policy.notes)

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Play again."""
        tasks = [played.task for played in history.batch(history.batches()[-1])]
        again = await asyncio.gather(
            *(tools.play_task(task, self.agent(policy, task, tools.env)) for task in tasks)
        )
        lines = (f"Task {task.index}: {each.termination}.\n" for task, each in zip(tasks, again, strict=True))
        return msgspec.structs.replace(policy, notes=policy.notes + "".join(lines))


class Cheating(Replaying):
    """Asks for a world that it has not trained on."""

    def __init__(self, *, index: int = 0) -> None:
        self._index = index

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Play it."""
        task = Task("tests.toy_env:Corridor", "default", self._index)
        await tools.play_task(task, self.agent(policy, task, tools.env))
        return policy
