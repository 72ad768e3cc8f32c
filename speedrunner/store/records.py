"""The records that a run is made of: written as plain JSON, read back into the same types.

Each top-level record carries `format`, the version of its layout. Token counts are tokens, times are
seconds, moments are Unix seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, Literal, Self

import msgspec

from envs import Outcome, Task
from serving.model_config import ModelConfig
from serving.tokens.tools import ToolCall
from serving.usage import Prices, Usage
from typed.numbers import Moment, Real, Whole

FORMAT = 2
"""Version of the layout of every record below."""


Phase = Literal["train", "test"]
"""Training episodes are played in batches, held-out ones in evaluations, known by their checkpoint."""


class Termination(enum.StrEnum):
    """How an agent's work on one thing ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    """The environment ended the episode, without success."""
    SUBMITTED = "submitted"
    """The agent said that it was done (`submit_answer`, or the inducer's `finish`)."""
    CALL_LIMIT = "call_limit"
    ACTION_LIMIT = "action_limit"
    WALL_CLOCK = "wall_clock"
    CONTEXT_OVERFLOW = "context_overflow"
    ENVIRONMENT_ERROR = "environment_error"
    """Ours: the environment or its process broke. Unscored."""
    ENGINE_ERROR = "engine_error"
    """Ours: the engine failed the request on every try. Unscored."""

    @property
    def is_fault(self) -> bool:
        """Whether the ending says something about our machinery and nothing about the agent."""
        return self in (Termination.ENVIRONMENT_ERROR, Termination.ENGINE_ERROR)


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as the agent was shown it."""

    role: Literal["system", "user", "tool"]
    content: str


class CallNode(msgspec.Struct):
    """One executed call, and the calls that it made in turn, in their order.

    Attributes:
        kind: `primitive`, `skill`, or `tool` (everything else that an agent may call).
        arguments: by parameter name.
        result: the returned value as JSON; `None` also where there was an error.
        error: the error's text, for a skill with the traceback inside the library.
        actions: primitives that advanced the world, in this call and below it.
        seconds: wall clock, children included.
        omitted: calls below this one that ran but are not recorded, when there were too many or too deep, or
            the record of the episode was full.

    Arguments, results and errors for which there was no room are short descriptions, or say how long they
    were.
    """

    name: str
    kind: Literal["primitive", "skill", "tool"]
    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None
    actions: Whole = 0
    seconds: Real = 0.0
    calls: list[CallNode] = []
    omitted: Whole = 0

    def below(self) -> Iterator[CallNode]:
        """Every call below this one, in their order."""
        for each in self.calls:
            yield each
            yield from each.below()


class Turn(msgspec.Struct):
    """One request to the model and what came of it.

    Attributes:
        messages: what was appended to the conversation since the previous turn.
        text: what the model wrote after its reasoning, verbatim.
        reasoning: what it wrote while thinking, verbatim.
        call: the tool call that was parsed, if it was valid.
        executed: the tree of what was run for it.
        error: why there was no valid call.
        queued_s: how long the request was queued before, until the engine's cache had room, in seconds.
        role: whose turn it was: `actor`, or another role of the method that played the episode.
        conversation: number of the role's conversation within the episode, from 0.
    """

    messages: list[Message]
    text: str
    usage: Usage
    seconds: Real
    queued_s: Real = 0.0
    reasoning: str = ""
    call: ToolCall | None = None
    executed: CallNode | None = None
    error: str | None = None
    role: str = "actor"
    conversation: Whole = 0


class Hunk(msgspec.Struct, frozen=True):
    """Lines of a text, from `first` to before `end`, and those that take their place."""

    first: Whole
    end: Whole
    lines: list[str]


class WorldStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was asked of an episode's world. Exactly one attribute is set.

    Attributes:
        turn: number of the turn, from 0, that shows the call: as what it executed, or as the first call of
            that, where a tool of the method's made it.
        call: a call that no turn shows.
        load: other skills took the place of those before; see `speedrunner.store.modules`.
    """

    turn: Whole | None = None
    call: CallNode | None = None
    load: list[Hunk] | None = None


class Trajectory(msgspec.Struct, kw_only=True):
    """One whole episode.

    Attributes:
        episode: key within the run: `train/0007`, `test/0050/0012`.
        policy: version of the policy that generated it.
        attempt: 1 for the first try; earlier attempts were interrupted and left only ledger rows.
        ending: see `Termination`; `outcome` is `None` exactly when it is a fault.
        error: whose fault it was and what it was, in a line; then its traceback.
        method_state: the JSON that the method keeps of it.
        prompt_hash: SHA-256 of the actor's first prompt: messages and tools.
        seconds: wall clock of the episode.
        started: when it began.
        world: all that was asked of the world, in its order; `None` where that is what the turns executed.
        module: of an attempt in a sleep: how the skills that it began with differ from the policy's.
    """

    episode: str
    task: Task
    policy: Whole
    attempt: Whole
    turns: list[Turn]
    termination: Termination
    outcome: Outcome | None
    error: str | None = None
    method_state: dict[str, Any] = {}
    prompt_hash: str = ""
    seconds: Real = 0.0
    started: Moment = 0.0
    world: list[WorldStep] | None = None
    module: list[Hunk] | None = None
    format: Whole = FORMAT

    @property
    def usage(self) -> Usage:
        """Tokens of all turns."""
        return sum((turn.usage for turn in self.turns), Usage())

    @property
    def steps(self) -> list[WorldStep]:
        """All that was asked of the world, in its order."""
        if self.world is not None:
            return self.world
        acted = (n for n, turn in enumerate(self.turns) if turn.executed and turn.executed.kind != "tool")
        return [WorldStep(turn=number) for number in acted]


class EpisodeRow(msgspec.Struct, kw_only=True):
    """The summary of one episode: what tables and reports need, without its texts.

    Attributes:
        phase: `train` or `test`.
        checkpoint: training rollouts played before: the batch's start, or the evaluation's point.
        score: in [0, 1]; `None` when the episode ended by an infrastructure error.
        skill_calls: actor calls that named a skill.
        invalid_calls: completions without a valid call.
    """

    episode: str
    phase: Phase
    checkpoint: Whole
    task: Task
    policy: Whole
    attempt: Whole
    termination: Termination
    score: Real | None
    success: bool | None
    llm_calls: Whole
    actions: Whole
    skill_calls: Whole
    invalid_calls: Whole
    usage: Usage
    seconds: Real
    format: Whole = FORMAT

    @classmethod
    def of(cls, trajectory: Trajectory, phase: Phase, checkpoint: int) -> Self:
        """Summarise a whole episode."""
        executed = [turn.executed for turn in trajectory.turns if turn.executed is not None]
        outcome = trajectory.outcome
        return cls(
            episode=trajectory.episode,
            phase=phase,
            checkpoint=checkpoint,
            task=trajectory.task,
            policy=trajectory.policy,
            attempt=trajectory.attempt,
            termination=trajectory.termination,
            score=None if outcome is None else outcome.score,
            success=None if outcome is None else outcome.success,
            llm_calls=len(trajectory.turns),
            actions=sum(node.actions for node in executed),
            skill_calls=sum(node.kind == "skill" for node in executed),
            invalid_calls=sum(turn.call is None for turn in trajectory.turns),
            usage=trajectory.usage,
            seconds=trajectory.seconds,
        )


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """What a library's module does not say of one of its functions.

    Attributes:
        public: callable by the actor; private ones only by other skills.
        created: sleep that added it (1 is the run's first sleep).
        edited: sleep that last changed it.
    """

    name: str
    public: bool
    created: Whole
    edited: Whole


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """All that a method keeps from one phase to the next. Versions never change once written.

    Attributes:
        version: number of sleeps that led to it; 0 is the method's initial policy.
        module: the skill library, one Python module; see `speedrunner.library`.
        skills: its functions, in their order.
        notes: prose for the actor's prompt (empty where a method keeps none).
        method: the method's own JSON.
    """

    version: Whole
    module: str = ""
    skills: tuple[Skill, ...] = ()
    notes: str = ""
    method: dict[str, Any] = {}
    format: Whole = FORMAT


class Module(msgspec.Struct, frozen=True):
    """Skills as they run: one Python module.

    Attributes:
        source: its text, in which primitives are expected among the globals.
        public: skills that an actor may call.
        private: skills that only other skills may call.
    """

    source: str = ""
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


EditAction = Literal["write", "edit", "rename", "visibility", "delete"]


class Edit(msgspec.Struct, frozen=True):
    """One edit that an inducer asked for, with its arguments: `apply_edit` makes it again.

    Attributes:
        name: the edited definition; several functions are separated by commas.
        error: why it was refused; `None` means accepted.
        new_name: of `rename`.
        source: of `write`: the text.
        public: of `write` and `visibility`, as `Library.write` and `Library.set_visibility` take it.
        old, new: of `edit`: the piece that was replaced, and its replacement.
    """

    action: EditAction
    name: str
    error: str | None = None
    new_name: str | None = None
    source: str | None = None
    public: bool | tuple[str, ...] | None = None
    old: str | None = None
    new: str | None = None

    @property
    def names(self) -> list[str]:
        """The names of the edited definitions."""
        return self.name.split(", ")

    @property
    def is_complete(self) -> bool:
        """Whether it has the arguments of its action; refused edits and older runs may lack them."""
        return {
            "write": self.source is not None,
            "edit": self.old is not None and self.new is not None,
            "rename": self.new_name is not None,
            "visibility": isinstance(self.public, bool),
            "delete": True,
        }[self.action]


class AgentRecord(msgspec.Struct):
    """One agent's whole conversation in a sleep: the inducer's, or that of another role of the method."""

    role: str
    turns: list[Turn]
    termination: Termination


class PrefixChange(msgspec.Struct, frozen=True):
    """What a sleep did to the prompt prefix that all episodes of a policy share (system message, tools).

    Attributes:
        before, after: its length under the old and the new policy, in tokens.
        common: first tokens that both have in common: what an edit leaves valid of the prefix cache.

    What the engine's cache gave when the new prefix was sent first stands in the ledger, role
    `prefix_warm_up`.
    """

    before: Whole
    after: Whole
    common: Whole


class SleepRecord(msgspec.Struct, kw_only=True):
    """One sleep phase.

    Attributes:
        sleep: 1 for the run's first; the policy it leads to has the same number.
        rollouts: training rollouts since the sleep before, over which its cost is spread.
        error: what kept it from all that it should have done (a context overflow, say).
        attempts: episodes that the method played in it (`SleepTools.attempt`); part of its cost.
        prefix: what it invalidated of the prompt prefix; `None` on chat and responses APIs.
    """

    sleep: Whole
    rollouts: Whole
    attempt: Whole
    agents: list[AgentRecord]
    edits: list[Edit]
    seconds: Real
    error: str | None = None
    attempts: list[Trajectory] = []
    prefix: PrefixChange | None = None
    format: Whole = FORMAT


class TrainingEnd(msgspec.Struct, frozen=True):
    """Where training ended before its plan did: after so many rollouts and sleeps its tokens were spent."""

    rollouts: Whole
    sleeps: Whole


class Machine(msgspec.Struct, frozen=True):
    """What a process ran on.

    Attributes:
        cpu: the processor's name.
        cores: that the process may use.
        memory_gb: of the machine, in GB of 10^9 bytes.
        gpus: each, with its memory, as `nvidia-smi` has them.
    """

    cpu: str
    cores: Whole
    memory_gb: Real
    gpus: list[str]


class Process(msgspec.Struct, kw_only=True):
    """One process that worked on a run, and all that determined what came of it.

    Digests are the first 12 digits of a SHA-256.

    Attributes:
        started: when it began.
        host, pid: where it ran.
        actor, inducer: the whole model configs, as the configuration changed them.
        models: by model, digests of the files of its local folder; weights are sampled.
        prices: by model, what its tokens cost.
        env: digests of the environment's description, primitives, tools, limits and tasks.
        prompts: digests of the templates of the actor and of the method.
        code: digests of our packages, and of the modules of somebody's own environment and method.
        versions: of Python, packages, and the checkout.
        machine: it ran on; `None` in older runs.
        sandbox: what confined skills and inducer code, and what from; empty in older runs.
        changes: what differs from the process before; somebody has accepted it.
        checksums: whether it checksums what it records.
    """

    started: Moment
    host: str
    pid: Whole
    actor: ModelConfig
    inducer: ModelConfig
    models: dict[str, dict[str, str]]
    prices: dict[str, Prices]
    env: dict[str, str]
    prompts: dict[str, str]
    code: dict[str, str]
    versions: dict[str, str]
    machine: Machine | None = None
    sandbox: str = ""
    changes: list[str] = []
    checksums: bool = False
    format: Whole = FORMAT
