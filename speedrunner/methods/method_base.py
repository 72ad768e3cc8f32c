"""The contract of a method: its first policy, its actor, its way to play, and its sleep."""

from __future__ import annotations

import abc
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from contextlib import closing
from math import inf
from typing import ClassVar

import msgspec

from envs import Task, TextEnv
from serving.conversation import Completion
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.actor import Actor, ActorSpec
from speedrunner.agents.episode import EpisodeContext
from speedrunner.agents.loop import Clock, Tool, Toolbox, ToolReply, run_agent
from speedrunner.library.library import Library
from speedrunner.store.history import History, Sees, visible_outcome
from speedrunner.store.records import (
    AgentRecord,
    Edit,
    Labels,
    Message,
    Policy,
    Termination,
    Trajectory,
    Turn,
)
from speedrunner.store.sleep_journal import SleepJournal

TRIES = 3
"""Maximum requests of a role that is to answer once. A retry follows an answer without a valid call, or with
a call that its tool has refused."""

FEW_TOKENS = 16_000
"""Context tokens below which an agent of a sleep is asked to finish, or a quarter of the context if that is
less."""


class MethodBroke(Exception):
    """A method made a request that its contract does not allow."""


class UnfitEnvironment(Exception):
    """A method cannot play in the given environment."""


class ChangedSleep(Exception):
    """A sleep does not repeat its journal, so it has to start over."""


class EpisodeBroke(Exception):
    """An episode of a sleep ended by an infrastructure error twice; `played` is the second try."""

    def __init__(self, played: Trajectory) -> None:
        super().__init__(played.episode)
        self.played = played


PlayEpisode = Callable[[int, Task, ActorSpec], Awaitable[Trajectory]]
"""Plays the sleep's episode of this number, from 0."""


class SleepTools:
    """The tools of a sleep; they also collect its record.

    Args:
        labels: labels of the ledger rows of every request.
        journal: what another process did in this sleep, and what this one does.
        tasks: training tasks that the method may play, any number of times.
        play_episode: plays them.

    Attributes:
        actor: the run's actor; it opens the conversations of the sleep's agents.
        sleep: number of this sleep, 1 for the first.
        agents: the record of each agent that worked, in order.
        edits: extend it with each edit that an agent requested.
        episodes: the episodes that the method played, faulty ones included.
        error: why the sleep did not do all its work; see `fell_short`.
        changed: what the sleep changed besides skills, in the method's words.
        shown: share of the batch's text that the prompt showed, in tokens; `None`: it was not shown as text.
        env: the actor's environment. Read only its rules: episodes play in workers.
        model: the model of every role except `actor`, which the actor's own model plays.
        library: returns a policy's skills for editing; see `Actor.library`.
        limits: limits of the actor's episodes.
        wording: paraphrase of prompts, `run.wording`.
    """

    def __init__(
        self,
        method: Method,
        actor: Actor,
        sleep: int,
        labels: Labels,
        journal: SleepJournal,
        tasks: Collection[Task] = (),
        play_episode: PlayEpisode | None = None,
    ) -> None:
        self.actor = actor
        self.sleep = sleep
        self.agents: list[AgentRecord] = []
        self.edits: list[Edit] = []
        self.episodes: list[Trajectory] = []
        self.error: str | None = None
        self.changed = ""
        self.shown: float | None = None
        self.env = actor.env
        self.model = actor.model
        self.library = actor.library
        self.limits = actor.limits
        self._wall_s = actor.config.run.sleep_wall_s
        self.wording = actor.config.run.wording
        self._method = method
        self._labels = labels
        self._journal = journal
        self._tasks = tasks
        self._play_episode = play_episode
        self._episode_numbers = itertools.count()

    def fell_short(self, why: str) -> None:
        """Record why the sleep did not do all its work."""
        self.error = why if self.error is None else f"{self.error}; {why}"

    def take_back(self, why: str) -> None:
        """Mark the accepted edits as refused, because the sleep's policy does not have them."""
        self.edits[:] = [msgspec.structs.replace(edit, error=edit.error or why) for edit in self.edits]

    async def run_agent(
        self, role: str, messages: list[Message], toolbox: Toolbox, llm_calls: int
    ) -> Termination:
        """Let an agent work with the tools of `toolbox` until it finishes, or its calls or the sleep's time
        are used up. The model config may set fewer calls for the role.

        Each reply states the remaining calls and tokens. If the sleep was interrupted, the recorded answers
        come first. Their tools run again, so the method's state becomes what it was, but the agent gets the
        recorded replies: code need not print the same twice.

        Raises:
            ServingError: the engine failed.
            ChangedSleep: the agent does not repeat what the journal has.
        """
        number, record = len(self.agents), AgentRecord(role, [], Termination.ENGINE_ERROR)
        self.agents.append(record)
        model, left = self.model, deque(self._journal.turns(number))
        context, settings = model.model_config.context, model.model_config.role(role)
        # Recorded turns were in time, and their edits count, however late they are repeated.
        clock = Clock(settings.calls(llm_calls), inf if left else self._deadline())

        async def execute(call: ToolCall) -> ToolReply:
            reply = await toolbox.execute(call, settings.string_tokens)
            if not left:
                return reply
            node = left[0].turn.executed
            if node is None or node.error != reply.executed.error:
                raise ChangedSleep(f"its call of {call.name} did not end as recorded")
            text = str(node.result) if node.error is None else f"Error: {node.error}"
            return ToolReply(text, node, reply.termination)

        def add(turn: Turn, answer: Completion, reply: str) -> None:
            if turn.call is not None and turn.executed is None:
                return  # an exception stopped the call: the answer is asked for again
            if not left:
                self._journal.add_turn(number, turn, answer)
            elif turn.messages != left[0].turn.messages:
                raise ChangedSleep("a recorded turn was not repeated")
            else:
                turn = left.popleft().turn
                if not left:
                    self._journal.skip_repetition()
            record.turns.append(turn)
            if clock.deadline == inf and not left:
                clock.deadline = self._deadline()

        def status(text: str, usage: Usage) -> str:
            used = usage.prompt + usage.completion + model.count_tokens(text, conversation.bytes_per_token)
            tokens = max(context - used, 0)
            warning = "; finish soon" if tokens < min(FEW_TOKENS, context // 4) else ""
            return f"{text}\n\n({clock.llm_calls} calls and {tokens} tokens left{warning})"

        place = f"{self._labels.episode}/{self._labels.attempt}/{role}/{number}"
        with closing(self.actor.converse(role, messages, toolbox.specs, self._labels, place)) as conversation:
            conversation.recorded = [recorded.answer for recorded in left]
            record.termination = await run_agent(conversation, messages, execute, clock, add, status)
        calls = f"{len(record.turns)} call{'s' * (len(record.turns) != 1)}"
        if record.termination is Termination.CONTEXT_OVERFLOW:
            self.fell_short(f"the context of the {role} overflowed after {calls}")
        if record.termination is Termination.WALL_CLOCK:
            self.fell_short(f"the sleep's {self._wall_s:g} s were over after {calls} of the {role}")
        return record.termination

    def _deadline(self) -> float:
        """Return when the sleep's time is over, in monotonic seconds."""
        queued_s = sum(turn.queued_s for agent in self.agents for turn in agent.turns)
        return time.monotonic() + self._wall_s + queued_s - self._journal.seconds

    async def ask(self, role: str, system: str, user: str, tool: Tool) -> None:
        """Let a role answer these two messages once, with a call of its one tool. The sleep's error records a
        missing answer.

        Raises `ServingError`: the engine failed.
        """
        messages = [Message("system", system), Message("user", user)]
        if await self.run_agent(role, messages, Toolbox([], tool), TRIES) is Termination.CALL_LIMIT:
            self.fell_short(f"the {role} made no valid call of {tool.__name__}")

    async def play_task(self, task: Task, spec: ActorSpec) -> Trajectory:
        """Play a training task with an actor of this spec; only for a method with `replays`. Its tokens count
        for the sleep. An episode that another process has played is not played again.

        Raises:
            MethodBroke: the method may not play this task.
            EpisodeBroke: two infrastructure errors. One says nothing about the policy, and is retried.
        """
        if task not in self._tasks or self._play_episode is None:
            kind = type(self._method)
            name = f"{kind.__module__}:{kind.__qualname__}"
            raise MethodBroke(
                f"method {name}: sleep asked for {task}, which it may not play; choose another task"
            )
        number = next(self._episode_numbers)
        if (played := self._journal.episode(number)) is not None:
            self.episodes.append(played)
            self._journal.skip_repetition()
        else:
            played = await self._play_episode(number, task, spec)
            self.episodes.append(played)
            if played.termination.is_fault:
                played = await self._play_episode(number, task, spec)
                self.episodes.append(played)
            if played.termination.is_fault:
                raise EpisodeBroke(played)
            self._journal.add_episode(number, played)
        return msgspec.structs.replace(played, outcome=visible_outcome(played.outcome, self._method.sees))


class Method(abc.ABC):
    """A way to learn; each subclass is a method. The keyword arguments of its constructor are its options and
    all have defaults.

    State: a method keeps no state between calls. The policy (skills, notes, the method's JSON) and the
    history contain everything that it knows, so that a run can resume from any version in another process. A
    method modifies none of its arguments, except `EpisodeContext.method_state`, `SleepTools.edits`,
    `SleepTools.error` and `SleepTools.changed`.

    Determinism: `initial` and `agent` return equal values for equal arguments in any process; `agent` is
    called several times for one task. `play` and `sleep` may depend on the model's answers in any way, but
    draw random numbers only from a seed in the policy. An interrupted `sleep` is called again and gets the
    same answers and episodes, so it must ask for them in the same order.

    Records: every turn of every conversation, every edit and every replayed attempt is recorded
    automatically, with its tokens. Those of `play`, in any role, count for the rollout. Those of `sleep`
    count for the sleep and are spread over the rollouts of its batch (paper, Appendix A.3).

    Errors: a model's mistakes are data. They are reported to the model and recorded, never raised. Do not
    catch the errors of the engine, a worker or the sandbox: the episode then ends with an infrastructure
    error, or the sleep continues when the run resumes. Any other exception is a bug and ends the run with
    its traceback.

    Attributes:
        trains: whether it plays training rollouts and sleeps; if not, it is only evaluated.
        replays: whether its sleeps play tasks again, which no online method may (paper, section 2).
        sees: what its sleeps may see of an episode's outcome. A method may make it an option.
        sleep_calls: maximum requests of one sleep; `None` if unknown.
    """

    trains: bool = True
    sees: Sees = "score"
    replays: ClassVar[bool] = False
    sleep_calls: int | None = None

    def initial(self) -> Policy:
        """Return the policy before any rollout (version 0). By default it is empty."""
        return Policy(version=0)

    def check(self, env: TextEnv) -> None:  # noqa: B027 - most methods play in any environment
        """Raise `UnfitEnvironment` if the method cannot play in this environment."""

    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """Return the actor's specification for a task. By default it has the policy's skills and notes.

        If several tasks get the same one, their common prompt prefix is computed once.

        Args:
            training: whether it is for a training rollout, in which the actor may work differently.
        """
        return ActorSpec(Library(env.primitives).of(policy), policy.notes)

    async def play(self, policy: Policy, spec: ActorSpec, context: EpisodeContext) -> Termination:
        """Play one episode, training or held out (`EpisodeContext.training`). By default the actor plays
        alone.

        A method may open several conversations (`EpisodeContext.run_agent`, `EpisodeContext.act`), act itself
        (`EpisodeContext.execute`), make programs callable at once (`EpisodeContext.load`), and store data for
        its sleep in `EpisodeContext.method_state`. The episodes of a batch run concurrently, each with the
        batch's policy: an episode's lessons reach others only after the sleep.

        Args:
            spec: the value that `agent` returned; its library can already be called.

        Returns:
            How the episode ended: the termination of a conversation or a reply, or `SUBMITTED`.
        """
        return await context.act(spec)

    @abc.abstractmethod
    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Return the next policy, learned from `history`; the same policy if nothing changes.

        The caller sets the version. `history` contains training data only; no sleep sees held-out episodes.
        It is not called after a batch without a scored episode.

        Raises:
            ServingError, WorkerError, SandboxError: the sleep continues when the run resumes.
        """


def newest_batch(history: History) -> list[Trajectory]:
    """Return the newest batch's scored episodes; an infrastructure error says nothing about a method."""
    return [episode for episode in history.batch(history.batches()[-1]) if episode.outcome is not None]
