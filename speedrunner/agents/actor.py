"""One episode: an actor plays a task through primitives and public skills (paper, section 3, wake phase)."""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import msgspec

from envs import Opening, Task, TextEnv
from serving.conversation import Conversation
from serving.errors import RequestFailed, RequestRefused
from serving.model import Model
from serving.tokens.tools import ToolSpec
from serving.usage import Usage
from speedrunner.agents.loop import AgentLimits, Reply, run_agent
from speedrunner.agents.replies import actor_view
from speedrunner.agents.templates import render
from speedrunner.hosts.host import Host, HostError, HostFault
from speedrunner.library.library import Library
from speedrunner.store.labels import Labels
from speedrunner.store.records import CallNode, Ending, Message, ToolCall, Trajectory, Turn

SUBMIT_ANSWER = ToolSpec(
    name="submit_answer",
    doc="Declare the task complete. This ends the episode.",
    parameters={"type": "object", "properties": {}, "required": [], "additionalProperties": False},
)


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """What a method gives its actor.

    Attributes:
        library: the skills that it may call.
        notes: prose at the end of its system prompt.
    """

    library: Library
    notes: str = ""


@dataclass(frozen=True, slots=True)
class EpisodeLimits:
    """Budgets of one episode beside the environment's own.

    Attributes:
        wall_clock_s: after which it is ended and scored as it stands.
        call_wall_s: of one tool call; `None` leaves what remains of the episode.
        reply_chars: of one tool result, in the actor's view.
    """

    wall_clock_s: float
    call_wall_s: float | None
    reply_chars: int


@dataclass(frozen=True, slots=True)
class Episode:
    """One planned episode: `key` within the run, the policy that plays it, the number of this attempt."""

    key: str
    task: Task
    policy: int
    attempt: int = 1


Watch = Callable[[Conversation, Turn | None], None]
"""A spectator of an episode."""


class Actor:
    """Plays episodes of one environment with one model.

    Args:
        env: read for its rules only; episodes run in hosts.
    """

    def __init__(self, env: TextEnv, model: Model, limits: EpisodeLimits) -> None:
        self._env = env
        self._model = model
        self._limits = limits

    def tools(self, spec: ActorSpec) -> list[ToolSpec]:
        """What the actor may call: primitives, public skills, and `submit_answer` where the task wants it."""
        return [*spec.library.tools(), *([SUBMIT_ANSWER] if self._env.submits else [])]

    def opening(self, spec: ActorSpec, opening: Opening) -> list[Message]:
        """The first messages. The system message is the same for all episodes of a policy."""
        system = render(
            __package__,
            "system",
            description=self._env.description,
            has_skills=bool(spec.library.public),
            submits=self._env.submits,
            notes=spec.notes,
        )
        return [Message("system", system), Message("user", task_text(opening))]

    def converse(self, spec: ActorSpec, messages: list[Message], labels: Labels) -> Conversation:
        """Open the actor's conversation."""
        return self._model.converse("actor", _plain(messages), self.tools(spec), labels.plain())

    def shared_prefix(self, spec: ActorSpec) -> list[int]:
        """The token ids with which every episode of `spec` begins; none on the chat route."""
        return self._model.shared_prefix("actor", self._any_opening(spec), self.tools(spec))

    async def warm(self, spec: ActorSpec, labels: Labels) -> list[tuple[int, Usage]]:
        """Send that prefix alone, before the episodes begin. See `serving.model.Model.warm`."""
        return await self._model.warm("actor", self._any_opening(spec), self.tools(spec), labels.plain())

    def check_tool(self, tool: ToolSpec) -> None:
        """Raise `InvalidTool` where the actor's model could not call it."""
        self._model.check_tool(tool)

    def _any_opening(self, spec: ActorSpec) -> list[dict[str, str]]:
        return _plain(self.opening(spec, Opening("", "")))

    async def play(
        self,
        episode: Episode,
        spec: ActorSpec,
        host: Host,
        labels: Labels,
        watch: Watch = lambda conversation, turn: None,
    ) -> Trajectory:
        """Play one episode to its end, whatever that is.

        Faults of ours that concern this episode alone are its ending; what concerns the whole run (a dead
        engine, a spending cap, a full disk) is raised.

        Args:
            labels: stand in the ledger rows beside the episode's key and attempt.
            watch: called with the conversation when it is opened (the turn is `None`) and after each turn.

        Raises:
            EngineDead, SpendingCapReached: see `serving.errors`.
        """
        started, began = time.time(), time.monotonic()
        trajectory = Trajectory(
            episode=episode.key,
            task=episode.task,
            policy=episode.policy,
            attempt=episode.attempt,
            turns=[],
            ending=Ending.ENVIRONMENT_ERROR,
            outcome=None,
            started=round(started, 3),
        )
        labels = msgspec.structs.replace(labels, episode=episode.key, attempt=episode.attempt)
        try:
            opening = await host.reset(episode.task, spec.library.module(), self._env.limits.actions)
            messages = self.opening(spec, opening)
            trajectory.prompt_hash = _digest(messages, self.tools(spec))
            calls = self._model.card.role("actor").calls(self._env.limits.llm_calls)
            limits = AgentLimits(calls, began + self._limits.wall_clock_s)

            async def execute(call: ToolCall) -> Reply:
                return await self._execute(host, call, limits)

            def record(turn: Turn) -> None:
                trajectory.turns.append(turn)
                watch(conversation, turn)

            with closing(self.converse(spec, messages, labels)) as conversation:
                watch(conversation, None)
                trajectory.ending = await run_agent(conversation, messages, execute, limits, record)
        except HostError as error:
            trajectory.ending = Ending.ENVIRONMENT_ERROR
            trajectory.error = error.traceback if isinstance(error, HostFault) else str(error)
        except (RequestFailed, RequestRefused) as error:
            trajectory.ending = Ending.ENGINE_ERROR
            trajectory.error = "".join(traceback.format_exception(error))
        if not trajectory.ending.is_fault:
            trajectory.outcome = host.outcome
        trajectory.seconds = round(time.monotonic() - began, 3)
        return trajectory

    async def _execute(self, host: Host, call: ToolCall, limits: AgentLimits) -> Reply:
        if call.name == SUBMIT_ANSWER.name:
            node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
            return Reply("The answer is submitted.", node, Ending.SUBMITTED)
        remaining_s = max(limits.remaining_s, 0.001)
        own_s = self._limits.call_wall_s
        executed = await host.execute(call, remaining_s if own_s is None else min(own_s, remaining_s))
        return Reply(actor_view(executed, self._limits.reply_chars), executed.node, executed.ending)


def task_text(opening: Opening) -> str:
    """What the actor is told of its task."""
    return render(__package__, "user", instruction=opening.instruction, observation=opening.observation)


def _plain(messages: list[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def _digest(messages: list[Message], tools: list[ToolSpec]) -> str:
    return hashlib.sha256(msgspec.json.encode([messages, tools])).hexdigest()
