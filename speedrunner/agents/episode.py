"""One episode from start to termination, and the context that a method plays it with."""

from __future__ import annotations

import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import msgspec

from envs import Opening, Task
from serving.conversation import Completion, Conversation
from serving.errors import ContentRefused, RequestFailed, RequestRefused
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.agents.actor import SUBMIT_ANSWER, Actor, ActorSpec, actor_view
from speedrunner.agents.loop import Clock, Execute, Toolbox, ToolReply, run_agent
from speedrunner.agents.skill_search import SkillSearch
from speedrunner.library.library import Library
from speedrunner.store.records import (
    CallNode,
    Hunk,
    Labels,
    Message,
    Module,
    Termination,
    Trajectory,
    Turn,
    WorldStep,
    hunks,
)
from speedrunner.workers.env_worker import EnvWorker, WorkerError, WorkerFault
from speedrunner.workers.sandbox.isolation import SandboxError

Watch = Callable[[str, Conversation, Turn | None], None]
"""A spectator. It is called with the episode's key and its conversation when one is opened (the turn is
`None`), and after each turn.
"""


class EpisodeContext:
    """A method's access to one episode. `play_episode` creates it.

    All conversations share the same budgets and count as cost of the episode. A turn is recorded when it is
    complete. If another role worked inside a tool call, the caller's turn comes after that role's turns.

    Attributes:
        task: the world.
        env: its environment; only read its rules.
        opening: its first texts.
        training: whether this is a training rollout; no sleep sees held-out episodes.
        clock: requests and time that are left.
        observation: the last text of the world.
        actions: primitive calls so far that advanced the world.
        method_state: the method's JSON about the episode, filled by the method and recorded for the sleep.
        library: returns a policy's skills for editing; see `Actor.library`.
    """

    def __init__(
        self,
        spec: ActorSpec,
        opening: Opening,
        actor: Actor,
        worker: EnvWorker,
        trajectory: Trajectory,
        labels: Labels,
        watch: Watch,
    ) -> None:
        limits = actor.limits
        self.task = trajectory.task
        self.env = actor.env
        self.opening = opening
        self.training = labels.phase == "train"
        self.clock = Clock(limits.llm_calls, time.monotonic() + limits.wall_s, limits.answers_count)
        self.observation = opening.observation
        self.actions = 0
        self.method_state = trajectory.method_state
        self.library = actor.library
        self._actor = actor
        self._worker = worker
        self._trajectory = trajectory
        self._labels = labels
        self._watch = watch
        self._spec = spec
        self._module = spec.library.module()
        self._first_messages = spec.messages(actor.env, opening, actor.config.run.wording)
        trajectory.prompt_hash = spec.prompt_hash(actor.env, self._first_messages)
        self._conversations = 0
        self._open: list[Conversation] = []  # all but the last wait for the next one
        self._asked: list[CallNode | list[Hunk]] = []  # calls to the world and loads of libraries, in order

    async def act(
        self,
        spec: ActorSpec,
        toolbox: Toolbox | None = None,
        instruction: str | None = None,
        llm_calls: int | None = None,
    ) -> Termination:
        """Let the actor play in a separate conversation that starts with the task and the current world.

        Args:
            toolbox: runs the calls of its tools, if the spec names tools of the method.
            instruction: what the actor is to do; `None`: the task's instruction.
            llm_calls: maximum number of requests; `None`: all requests left in the episode.

        Returns:
            How the episode ended, or the termination that a tool set for the conversation; `CALL_LIMIT` after
            `llm_calls` requests.

        Raises:
            ServingError, WorkerError: infrastructure errors; do not catch them.
        """
        now = Opening(instruction or self.opening.instruction, self.observation)
        run, messages = self._actor.config.run, self._first_messages
        if spec is not self._spec or now != self.opening:
            messages = spec.messages(self.env, now, run.wording)
        if spec.searches:
            toolbox = SkillSearch(spec.library, self.execute)
        execute = self.execute if toolbox is None else self._tools(toolbox, spec.role)
        tools = spec.list_tools(self.env)
        return await self._converse(spec.role, messages, tools, execute, llm_calls, run.stop_after_repeats)

    async def run_agent(
        self, role: str, messages: list[Message], toolbox: Toolbox, llm_calls: int | None = None
    ) -> Termination:
        """Let another role work with its own tools until it finishes.

        Args:
            role: `curriculum`, `critic` and so on; selects sampling and budgets from the model config.
            llm_calls: maximum number of requests, or the model config's number if that is smaller; `None`:
                all requests left in the episode.

        Returns:
            `SUBMITTED` if it finished; `CALL_LIMIT`, `WALL_CLOCK` or `CONTEXT_OVERFLOW` if it could not; how
            the episode ended if one of its tools ended that.

        Raises:
            ServingError, WorkerError: infrastructure errors; do not catch them.
        """
        execute = self._tools(toolbox, role)
        return await self._converse(role, messages, toolbox.specs, execute, llm_calls)

    async def execute(self, call: ToolCall) -> ToolReply:
        """Run a primitive or a public skill in the world, or `submit_answer`. The reply contains any error of
        the call.

        If a role's tool acts through this method, it returns this reply as its own, so that the call is
        recorded.

        Raises `WorkerError`: the environment broke.
        """
        if call.name == SUBMIT_ANSWER.name:
            node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
            return ToolReply("The answer is submitted.", node, Termination.SUBMITTED)
        config, left_s = self._actor.config, max(self.clock.remaining_s, 0.001)
        limit_s = min(config.sandbox.call_wall_s or left_s, left_s)
        executed = await self._worker.execute(call, limit_s, config.sandbox.call_actions)
        self._asked.append(executed.node)
        self.observation = executed.observation or self.observation
        self.actions = executed.actions
        text = actor_view(executed, config.run.reply_chars)
        return ToolReply(text, executed.node, executed.termination)

    async def load(self, library: Library) -> None:
        """Replace the callable skills with another library's, at once; the world stays as it is.

        Raises `WorkerError`: the worker or the sandbox failed.
        """
        before, self._module = self._module, library.module()
        await self._worker.load(self._module)
        self._asked.append(hunks(before, self._module))

    def world(self) -> list[WorldStep]:
        """Return everything done in the world so far. Calls that a turn shows are references to the turn."""
        shown: dict[int, int] = {}
        for number, turn in enumerate(self._trajectory.turns):
            if turn.executed is not None:  # for a tool of the method, its call is the call in the world
                shown |= {id(node): number for node in (turn.executed, *turn.executed.calls[:1])}

        def step(asked: CallNode | list[Hunk]) -> WorldStep:
            if isinstance(asked, list):
                return WorldStep(load=asked)
            turn = shown.get(id(asked))
            return WorldStep(call=asked) if turn is None else WorldStep(turn=turn)

        return [step(asked) for asked in self._asked]

    def _tools(self, toolbox: Toolbox, role: str) -> Execute:
        """Return the function that runs a role's calls: the toolbox its own tools, the world all others."""
        most = self._actor.model.model_config.role(role).string_tokens
        own = {tool.name for tool in toolbox.specs}

        async def execute(call: ToolCall) -> ToolReply:
            return await (toolbox.execute(call, most) if call.name in own else self.execute(call))

        return execute

    async def _converse(
        self,
        role: str,
        messages: list[Message],
        tools: Sequence[ToolSpec],
        execute: Execute,
        llm_calls: int | None = None,
        most_repeats: int = 0,
    ) -> Termination:
        number, self._conversations = self._conversations, self._conversations + 1
        key, settings = self._trajectory.episode, self._actor.model.model_config.role(role)
        most = settings.calls(self.clock.llm_calls if llm_calls is None else llm_calls)
        place = f"{key}/{self._trajectory.attempt}/{role}/{number}"

        last: tuple[Turn, str] | None = None

        def record(turn: Turn, answer: Completion, reply: str) -> None:
            nonlocal last
            last = turn, reply
            turn.role, turn.conversation = role, number
            self._trajectory.turns.append(turn)
            self._watch(key, conversation, turn)

        with closing(self._actor.converse(role, messages, tools, self._labels, place)) as conversation:
            self._watch(key, conversation, None)
            if self._open:
                self._open[-1].rest()
            self._open.append(conversation)
            try:
                return await run_agent(
                    conversation, messages, execute, self.clock, record, most=most, most_repeats=most_repeats
                )
            finally:
                self._open.pop()
                turn, reply = last or (None, "")
                node = None if turn is None else turn.executed
                if turn is not None and node is not None and (node.kind != "tool" or node.calls):
                    turn.unread = reply


@dataclass(frozen=True, slots=True)
class Episode:
    """One planned episode.

    Attributes:
        key: unique within the run.
        policy: version of the policy that plays it.
        attempt: number of this attempt.
        stored: the policy's skills, if the episode may be played with different ones.
        seed: seed of the skills' random numbers.
    """

    key: str
    task: Task
    policy: int
    attempt: int = 1
    stored: Module | None = None
    seed: str = ""


Play = Callable[[ActorSpec, EpisodeContext], Awaitable[Termination]]
"""Plays an episode in its open world."""


def ignore_turn(key: str, conversation: Conversation, turn: Turn | None) -> None:
    """Ignore all turns; the default `Watch`."""


async def play_episode(
    actor: Actor,
    episode: Episode,
    spec: ActorSpec,
    worker: EnvWorker,
    labels: Labels,
    *,
    play: Play = lambda spec, context: context.act(spec),
    watch: Watch = ignore_turn,
) -> Trajectory:
    """Play one episode to its end.

    An infrastructure error that affects only this episode becomes its termination. One that affects the whole
    run (a dead engine, a spending cap, a full disk) is raised.

    Args:
        spec: the actor's specification; its library can be called from the start.
        labels: labels of the ledger rows; the episode's key and attempt are added if they are missing.
        play: the method's way to play; by default the actor plays alone.

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
        termination=Termination.ENVIRONMENT_ERROR,
        outcome=None,
        started=round(started, 3),
    )
    if labels.episode is None:
        labels = msgspec.structs.replace(labels, episode=episode.key, attempt=episode.attempt)
    context: EpisodeContext | None = None
    try:
        module = spec.library.module()
        if episode.stored is not None:
            trajectory.module = hunks(episode.stored, module)
        opening = await worker.reset(episode.task, module, actor.limits.actions, episode.seed)
        context = EpisodeContext(spec, opening, actor, worker, trajectory, labels, watch)
        trajectory.termination = await play(spec, context)
    except WorkerError as error:
        trajectory.error = f"environment {episode.task.env}: {error}"
        if isinstance(error, WorkerFault):
            trajectory.error += f"\n\n{error.traceback}"
    except SandboxError as error:
        trajectory.error = f"sandbox: {error}\n\n{''.join(traceback.format_exception(error))}"
    except (RequestFailed, RequestRefused) as error:
        is_refused = isinstance(error, ContentRefused)
        trajectory.termination = Termination.REFUSED if is_refused else Termination.ENGINE_ERROR
        trajectory.error = f"engine: {error}\n\n{''.join(traceback.format_exception(error))}"
    if context is not None and (world := context.world()) != trajectory.steps:
        trajectory.world = world
    if not trajectory.termination.is_fault:
        trajectory.outcome = worker.outcome
    trajectory.seconds = round(time.monotonic() - began, 3)
    return trajectory
