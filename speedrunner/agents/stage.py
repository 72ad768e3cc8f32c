"""One episode in play: its world, its conversations and its budgets, as a method sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from envs import Opening
from serving.conversation import Conversation
from serving.tokens.tools import ToolSpec
from speedrunner.agents.actor import SUBMIT_ANSWER, Actor, ActorSpec
from speedrunner.agents.loop import AgentLimits, Execute, ToolReply, plain_messages, run_agent
from speedrunner.agents.replies import actor_view
from speedrunner.agents.toolbox import Toolbox
from speedrunner.hosts.host import Host
from speedrunner.library.library import Library
from speedrunner.store.labels import Labels
from speedrunner.store.records import CallNode, Ending, Message, Policy, ToolCall, Trajectory, Turn

Watch = Callable[[str, Conversation, Turn | None], None]
"""A spectator: called with the episode's key and its conversation when one is opened (the turn is `None`),
and after each turn."""


class Stage:
    """What a method plays one episode with. Made by `speedrunner.agents.episode.play_episode`.

    Every conversation draws on the same budgets and counts as cost of the episode. Every turn is recorded
    when it is complete: one in whose tool call another role worked stands behind that role's.

    Attributes:
        task: the world.
        opening: its first texts.
        training: whether it is a training rollout; what is held out says nothing to any sleep.
        limits: what is left of the episode's requests and time.
        observation: the last text of the world.
    """

    def __init__(
        self,
        actor: Actor,
        host: Host,
        trajectory: Trajectory,
        opening: Opening,
        limits: AgentLimits,
        labels: Labels,
        watch: Watch,
    ) -> None:
        self.task = trajectory.task
        self.opening = opening
        self.limits = limits
        self.training = labels.phase == "train"
        self.observation = opening.observation
        self._kept = trajectory.kept
        self._actor = actor
        self._host = host
        self._key = trajectory.episode
        self._turns = trajectory.turns
        self._labels = labels
        self._watch = watch
        self._conversations = 0
        self._open: list[Conversation] = []  # each but the last waits for the next one

    @property
    def kept(self) -> dict[str, Any]:
        """The method's own JSON about the episode, recorded with it for the sleep to read; to be filled."""
        return self._kept

    def library(self, policy: Policy) -> Library:
        """The policy's skills, to be edited; see `Actor.library`."""
        return self._actor.library(policy)

    async def act(self, spec: ActorSpec, execute: Execute | None = None) -> Ending:
        """Let the actor play on, in a conversation of its own: the task, and the world as it is now.

        Args:
            execute: runs its calls; `None` runs them in the world.

        Raises:
            ServingError, HostError: ours; not to be caught.
        """
        now = Opening(self.opening.instruction, self.observation)
        messages = self._actor.messages(spec, now)
        return await self._converse("actor", messages, self._actor.tools(spec), execute or self.execute)

    async def run_agent(
        self, role: str, messages: list[Message], toolbox: Toolbox, llm_calls: int | None = None
    ) -> Ending:
        """Let another role work with its own tools until it finishes.

        Args:
            role: `curriculum`, `critic` and so on; chooses sampling and budgets from the model's card.
            llm_calls: requests that it may make at most; `None`: all that are left of the episode.

        Returns:
            `SUBMITTED` when it finished; `CALL_LIMIT`, `WALL_CLOCK` or `CONTEXT_OVERFLOW` when it could not;
            how the episode ended when one of its tools ended that.

        Raises:
            ServingError, HostError: ours; not to be caught.
        """
        return await self._converse(role, messages, toolbox.specs, toolbox.execute, llm_calls)

    async def execute(self, call: ToolCall) -> ToolReply:
        """Run a primitive or a public skill in the world; what is wrong with the call is in the reply.

        A tool of a role that acts here returns this reply as its own: so the call is recorded.

        Raises:
            HostError: the environment broke.
        """
        if call.name == SUBMIT_ANSWER.name:
            node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
            return ToolReply("The answer is submitted.", node, Ending.SUBMITTED)
        limits = self._actor.limits
        left_s = max(self.limits.remaining_s, 0.001)
        limit_s = left_s if limits.call_wall_s is None else min(limits.call_wall_s, left_s)
        executed = await self._host.execute(call, limit_s)
        self.observation = executed.observation or self.observation
        return ToolReply(actor_view(executed, limits.reply_chars), executed.node, executed.ending)

    async def load(self, library: Library) -> None:
        """Make another library's skills the ones that can be called, at once; the world goes on.

        Raises:
            InvalidSkill: it cannot be loaded (told of a library that `library` has made); nothing is changed.
            HostError, SandboxError: the host or the sandbox failed.
        """
        await library.check_loading()
        await self._host.load(library.module())

    async def _converse(
        self,
        role: str,
        messages: list[Message],
        tools: Sequence[ToolSpec],
        execute: Execute,
        llm_calls: int | None = None,
    ) -> Ending:
        number, self._conversations = self._conversations, self._conversations + 1
        model, labels = self._actor.model(role), self._labels.plain()

        def record(turn: Turn) -> None:
            turn.role, turn.conversation = role, number
            self._turns.append(turn)
            self._watch(self._key, conversation, turn)

        with closing(model.converse(role, plain_messages(messages), list(tools), labels)) as conversation:
            self._watch(self._key, conversation, None)
            if self._open:
                self._open[-1].rest()
            self._open.append(conversation)
            try:
                return await run_agent(conversation, messages, execute, self.limits, record, most=llm_calls)
            finally:
                self._open.pop()
