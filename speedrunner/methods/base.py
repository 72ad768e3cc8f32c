"""What a method is: how it makes its first policy, its actor, and a new policy in each sleep."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from envs import Task, TextEnv
from serving.model import Model
from serving.tokens.tools import ToolSpec
from serving.usage import Usage
from speedrunner.agents.actor import ActorSpec
from speedrunner.agents.loop import AgentLimits, run_agent
from speedrunner.agents.toolbox import Toolbox
from speedrunner.library.library import Library
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.history import History
from speedrunner.store.labels import Labels
from speedrunner.store.records import AgentRecord, Edit, Ending, Message, Policy


@dataclass
class SleepTools:
    """What a sleep works with; what happens is collected for its record.

    Attributes:
        sleep: number of this sleep, 1 for the first.
        model: what the agents of the sleep are played by.
        check_tool: raises `InvalidTool` where the actor could not call a skill.
        labels: stand in the ledger rows of every request.
        sandbox: how code that an agent writes is confined.
        edits: to be extended with each edit that an agent asked for.
        error: why the sleep changes nothing although it should have.
    """

    sleep: int
    env: TextEnv
    model: Model
    check_tool: Callable[[ToolSpec], None]
    labels: Labels
    sandbox: Sandbox = Sandbox()  # noqa: RUF009 - immutable
    agents: list[AgentRecord] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    error: str | None = None

    def library(self, policy: Policy) -> Library:
        """The policy's skills over this environment's primitives, checked for the model in use."""
        return Library(self.env.primitives, policy.skills, policy.preamble, check=self.check_tool)

    def calls(self, role: str, most: int) -> int:
        """Requests that a role may make: the method's own number, or the model card's if that is less."""
        return self.model.card.role(role).calls(most)

    async def run_agent(self, role: str, messages: list[Message], toolbox: Toolbox, llm_calls: int) -> Ending:
        """Let an agent work with the tools of `toolbox` until it finishes or its calls are used up.

        Each reply states how many calls and tokens are left.

        Raises:
            ServingError: the engine failed.
        """
        record = AgentRecord(role=role, turns=[], ending=Ending.ENGINE_ERROR)
        self.agents.append(record)
        plain = [{"role": message.role, "content": message.content} for message in messages]

        def status(text: str, usage: Usage, calls: int) -> str:
            used = usage.prompt + usage.completion + self.model.count_tokens(text)
            tokens = max(self.model.card.context - used, 0)
            return f"{text}\n\n({calls} calls and {tokens} tokens left)"

        limits = AgentLimits(llm_calls)
        with closing(self.model.converse(role, plain, toolbox.specs, self.labels.plain())) as conversation:
            record.ending = await run_agent(
                conversation, messages, toolbox.execute, limits, record.turns.append, status
            )
        if record.ending is Ending.CONTEXT_OVERFLOW:
            self.error = f"the context of {role} overflowed"
        return record.ending


class Method(Protocol):
    """One way to learn. Its constructor's keyword arguments, all with defaults, are its options.

    A method keeps no state between calls: everything it knows is in the policy, so that a run can be
    resumed from any version.
    """

    trains: bool
    """Whether it plays training rollouts and sleeps; without, it is evaluated only."""

    def initial(self) -> Policy:
        """The policy before any rollout (version 0)."""

    def agent(self, policy: Policy, task: Task, env: TextEnv) -> ActorSpec:
        """What the actor gets for a task."""

    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Turn what happened into the next policy; the same policy when nothing is to change.

        The version is set by the caller. Mistakes of the model end up in the records, never as exceptions.

        Raises:
            ServingError: the engine failed; the sleep is repeated when the run goes on.
        """
