"""What a method is: its first policy, its actor, how it plays an episode, and a new policy in each sleep."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, TypeVar

from envs import Task, TextEnv
from serving.model import Model
from serving.usage import Usage
from speedrunner.agents.actor import ActorSpec, EpisodeLimits
from speedrunner.agents.episode import EpisodeContext
from speedrunner.agents.loop import AgentLimits, plain_messages, run_agent
from speedrunner.agents.toolbox import Tool, Toolbox
from speedrunner.library.library import Library
from speedrunner.sandbox.settings import Sandbox
from speedrunner.store.data import History
from speedrunner.store.labels import Labels
from speedrunner.store.records import AgentRecord, Edit, Message, Policy, Termination, Trajectory

Returned = TypeVar("Returned")


TRIES = 3
"""Requests that a role may make which is to answer once: more than one only after answers without a valid
call, or with one that its tool has refused."""

FEW_TOKENS = 16_000
"""Tokens of context below which an agent of a sleep is told to finish, or a quarter of it if that is less."""


class MethodBroke(Exception):
    """A method returned what its contract does not allow."""


class UnfitEnvironment(Exception):
    """A method cannot play in the environment that it was given."""


@dataclass
class SleepTools:
    """What a sleep works with; what happens is collected for its record.

    Attributes:
        sleep: number of this sleep, 1 for the first.
        model: what the agents of the sleep are played by.
        library: returns a policy's skills, to be edited; see `Actor.library`.
        labels: of the ledger rows of every request.
        limits: what limits the episodes that the actor plays.
        sandbox: how code that an agent writes is confined.
        attempt: plays a training task by an actor with this spec; its tokens are the sleep's. It returns no
            episode that ended by an infrastructure error. A method that says `replays` may play again, in a
            fresh world, what was trained on; others only what is in `fresh`. `None` for methods of neither
            kind.
        fresh: training tasks that nobody has played, for this sleep; see `Method.fresh_tasks`.
        edits: to be extended with each edit that an agent asked for.
        error: what kept the sleep from all that it should have done; see `fell_short`.
    """

    sleep: int
    env: TextEnv
    model: Model
    library: Callable[[Policy], Library]
    labels: Labels
    limits: EpisodeLimits
    sandbox: Sandbox = Sandbox()  # noqa: RUF009 - immutable
    attempt: Callable[[Task, ActorSpec], Awaitable[Trajectory]] | None = None
    fresh: tuple[Task, ...] = ()
    agents: list[AgentRecord] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    error: str | None = None

    def calls(self, role: str, most: int) -> int:
        """Requests that a role may make: the method's own number, or the model config's if that is less."""
        return self.model.model_config.role(role).calls(most)

    def fell_short(self, why: str) -> None:
        """Note in the sleep's record what kept it from all that it should have done."""
        self.error = why if self.error is None else f"{self.error}; {why}"

    async def run_agent(
        self, role: str, messages: list[Message], toolbox: Toolbox, llm_calls: int
    ) -> Termination:
        """Let an agent work with the tools of `toolbox` until it finishes or its calls are used up, those of
        the model's config for the role if these are fewer.

        Each reply states how many calls and tokens are left.

        Raises:
            ServingError: the engine failed.
        """
        record = AgentRecord(role=role, turns=[], termination=Termination.ENGINE_ERROR)
        self.agents.append(record)
        limits = AgentLimits(self.calls(role, llm_calls))

        context = self.model.model_config.context

        def status(text: str, usage: Usage) -> str:
            used = usage.prompt + usage.completion + self.model.count_tokens(text)
            tokens = max(context - used, 0)
            warning = "; finish soon" if tokens < min(FEW_TOKENS, context // 4) else ""
            return f"{text}\n\n({limits.llm_calls} calls and {tokens} tokens left{warning})"

        execute = partial(toolbox.execute, string_tokens=self.model.model_config.role(role).string_tokens)
        opened = self.model.converse(role, plain_messages(messages), toolbox.specs, self.labels.plain())
        with closing(opened) as conversation:
            record.termination = await run_agent(
                conversation, messages, execute, limits, record.turns.append, status
            )
        if record.termination is Termination.CONTEXT_OVERFLOW:
            calls = len(record.turns)
            self.fell_short(f"the context of the {role} overflowed after {calls} call{'s' * (calls != 1)}")
        return record.termination

    async def ask(self, role: str, messages: list[Message], tool: Tool) -> None:
        """Let a role answer once, by a call of its one tool. That it did not is noted.

        Raises:
            ServingError: the engine failed.
        """
        if await self.run_agent(role, messages, Toolbox([], tool), TRIES) is Termination.CALL_LIMIT:
            self.fell_short(f"the {role} made no valid call of {tool.__name__}")


class Method(abc.ABC):
    """One way to learn; a subclass is a method. Keyword arguments of its constructor, all with defaults, are
    its options.

    State: a method keeps none between calls. All that it knows is in the policy (skills, notes, its own JSON)
    and in the history, so that a run goes on from any version, in another process. It changes nothing that it
    is given but what is said here: `EpisodeContext.method_state`, `SleepTools.edits` and `SleepTools.error`.

    Determinism: `initial` and `agent` return equal values for equal arguments, in any process; `agent` is
    called several times for one task. `play` and `sleep` may do what they like with what the model says; they
    draw no random numbers but from a seed in the policy.

    Records: each turn of each conversation with the call in it, each edit, each replayed attempt is recorded
    without the method's doing, and its tokens with it: those of `play`, of whatever role, as the rollout's,
    those of `sleep` as the sleep's, spread over the rollouts of its batch (paper, Appendix A.3).

    Errors: a model's mistakes are data: told to it, recorded, never raised. What the engine, a worker or the
    sandbox raises is passed on: the episode ends by a fault then, or the sleep is done again when the run
    goes on. Anything else that a method raises is a bug and ends the run with its traceback.

    Attributes:
        trains: whether it plays training rollouts and sleeps; without, it is evaluated only.
        replays: whether its sleeps play tasks again, which no online method may (paper, section 2).
    """

    trains: bool = True
    replays: ClassVar[bool] = False

    @property
    def sleep_calls(self) -> int | None:
        """Requests that one sleep sends at most; `None` where that cannot be told."""
        return None

    @property
    def fresh_tasks(self) -> int:
        """New training tasks that each sleep wants to play (`SleepTools.fresh`), each once."""
        return 0

    @abc.abstractmethod
    def initial(self) -> Policy:
        """The policy before any rollout (version 0)."""

    def check(self, env: TextEnv) -> None:  # noqa: B027 - most methods play in any environment
        """Raise `UnfitEnvironment` where the method cannot play in this environment."""

    @abc.abstractmethod
    def agent(self, policy: Policy, task: Task, env: TextEnv, *, training: bool = False) -> ActorSpec:
        """What the actor gets for a task: skills, notes.

        Where several tasks get the same, their common prompt prefix is computed once.

        Args:
            training: whether it is for a training rollout, where a method may let it act otherwise.
        """

    async def play(self, policy: Policy, spec: ActorSpec, stage: EpisodeContext) -> Termination:
        """Play one episode, training or held out (`EpisodeContext.training`). Here the actor plays alone.

        A method may hold several conversations (`EpisodeContext.run_agent`, `EpisodeContext.act`), act itself
        (`EpisodeContext.execute`), make programs callable at once (`EpisodeContext.load`), and leave what
        its sleep needs in `EpisodeContext.method_state`. The episodes of a batch are played side by side,
        each with the batch's
        policy: what one learns, others get after the sleep.

        Args:
            spec: what `agent` returned; its library can be called already.

        Returns:
            How the episode ended: what a conversation's end or a reply says, or `SUBMITTED`.
        """
        return await stage.act(spec)

    @abc.abstractmethod
    async def sleep(self, policy: Policy, history: History, tools: SleepTools) -> Policy:
        """Turn what happened into the next policy; the same policy when nothing is to change.

        The caller sets the version. What is in `history` is training only; nothing held out is ever seen.

        Raises:
            ServingError, WorkerError, SandboxError: the sleep is repeated when the run goes on.
        """


def returned(method: Method, call: str, value: object, kind: type[Returned]) -> Returned:
    """Return what a method's call has returned, if that is of its kind. Raises `MethodBroke`."""
    if not isinstance(value, kind):
        raise MethodBroke(f"{called(method)}: {call} must return {kind.__name__}, and returned {value!r:.80}")
    return value


def called(method: Method) -> str:
    """How a method is named in an error."""
    return f"method {type(method).__module__}:{type(method).__qualname__}"
