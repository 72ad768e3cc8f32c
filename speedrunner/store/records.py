"""The records of a run, written as plain JSON and read back into the same types.

Each top-level record has `format`, the version of its layout. Token counts are in tokens, times in seconds,
moments in Unix seconds.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, Self

import msgspec

from envs import Outcome, Task
from serving.model_config import ModelConfig
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Integer, Number, Prices, Timestamp, Usage

FORMAT = 3
"""Layout version of every record below."""


Phase = Literal["train", "test"]
"""Training episodes are played in batches. Held-out episodes are played in evaluations, which are identified
by their checkpoint.
"""


class Termination(enum.StrEnum):
    """How an agent's work ended."""

    SUCCESS = "success"
    FAILURE = "failure"
    """The environment ended the episode without success."""
    SUBMITTED = "submitted"
    """The agent reported that it was done (`submit_answer`, or the inducer's `finish`)."""
    CALL_LIMIT = "call_limit"
    ACTION_LIMIT = "action_limit"
    WALL_CLOCK = "wall_clock"
    CONTEXT_OVERFLOW = "context_overflow"
    REPEAT_LIMIT = "repeat_limit"
    """The actor repeated one call `run.stop_after_repeats` times in a row."""
    ENVIRONMENT_ERROR = "environment_error"
    """Infrastructure error: the environment or its process broke. Unscored."""
    ENGINE_ERROR = "engine_error"
    """Infrastructure error: the engine failed every try of the request. Unscored."""
    REFUSED = "refused"
    """Infrastructure error: the provider refused a request for its content. Unscored."""

    @property
    def is_fault(self) -> bool:
        """Return whether this is an infrastructure error, which says nothing about the agent."""
        return self in (Termination.ENVIRONMENT_ERROR, Termination.ENGINE_ERROR, Termination.REFUSED)

    @property
    def is_limit(self) -> bool:
        """Return whether a limit ended the agent's work before the agent or the environment did."""
        return self in (
            Termination.CALL_LIMIT,
            Termination.ACTION_LIMIT,
            Termination.WALL_CLOCK,
            Termination.CONTEXT_OVERFLOW,
            Termination.REPEAT_LIMIT,
        )


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation, as the agent was shown it."""

    role: Literal["system", "user", "tool"]
    content: str


EPISODE_ENDS = ("EpisodeEnded:", "ActionLimitReached:")
"""Starts of the errors of calls that the end of the episode stopped."""


class CallNode(msgspec.Struct):
    """One executed call and the calls that it made, in order.

    Attributes:
        kind: `primitive`, `skill`, or `tool` (any other tool of an agent).
        arguments: by parameter name.
        result: the returned value as JSON; `None` also if there was an error.
        error: the error's text; for a skill with the traceback inside the library.
        actions: primitives that advanced the world, in this call and below it.
        seconds: wall clock, children included.
        omitted: number of calls below this one that ran without being recorded, because there were too many,
            they were too deep, or the record of the episode was full.
        line: line of the calling skill that made the call, counted from its `def` as 1. Unset (and not in
            the JSON) for an agent's own call.

    Arguments, results and errors that did not fit are replaced by short descriptions or by their length.
    """

    name: str
    kind: Literal["primitive", "skill", "tool"]
    arguments: dict[str, Any]
    result: Any = None
    error: str | None = None
    actions: Integer = 0
    seconds: Number = 0.0
    calls: list[CallNode] = []
    omitted: Integer = 0
    line: Integer | msgspec.UnsetType = msgspec.UNSET

    @property
    def failed(self) -> bool:
        """Whether it ended by an error. The end of the episode, which stops all calls, is no failure."""
        return self.error is not None and not self.error.startswith(EPISODE_ENDS)

    def below(self) -> Iterator[CallNode]:
        """Yield every call below this one, in order."""
        waiting = self.calls[::-1]
        while waiting:
            call = waiting.pop()
            yield call
            waiting += reversed(call.calls)


class Turn(msgspec.Struct):
    """One request to the model and its result.

    Attributes:
        messages: messages appended to the conversation since the previous turn.
        text: the model's text after its reasoning, verbatim.
        reasoning: the model's reasoning, verbatim.
        call: the parsed tool call, if it was valid.
        executed: the tree of calls that were executed for it.
        error: why there was no valid call.
        queued_s: seconds that the request waited for room in the engine's cache, or without an engine.
        role: `actor`, or another role of the method that played the episode.
        conversation: number of the role's conversation within the episode, from 0.
        request: id of its rows in the ledger.
        unread: the reply to its call, if it was the last of its conversation in an episode, so that the
            agent did not read it. Unset (and not in the JSON) for all other turns.
    """

    messages: list[Message]
    text: str
    usage: Usage
    seconds: Number
    queued_s: Number = 0.0
    reasoning: str = ""
    call: ToolCall | None = None
    executed: CallNode | None = None
    error: str | None = None
    role: str = "actor"
    conversation: Integer = 0
    request: str = ""
    unread: str | msgspec.UnsetType = msgspec.UNSET


class Hunk(msgspec.Struct, frozen=True):
    """Lines of a text from `first` to before `end`, and their replacement."""

    first: Integer
    end: Integer
    lines: list[str]


class WorldStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One operation on an episode's world. Exactly one attribute is set.

    Attributes:
        turn: number, from 0, of the turn that shows the call, either as its executed call or, for a tool of
            the method, as the first call below that.
        call: a call that no turn shows.
        load: a replacement of the skills; see `apply_hunks`.
    """

    turn: Integer | None = None
    call: CallNode | None = None
    load: list[Hunk] | None = None


class Trajectory(msgspec.Struct, kw_only=True):
    """One whole episode.

    Attributes:
        episode: key within the run: `train/0007`, `test/0050/0012`.
        policy: version of the policy that played it.
        attempt: 1 for the first attempt; interrupted earlier attempts left only ledger rows.
        termination: how it ended; `outcome` is `None` exactly after an infrastructure error.
        error: the failed component and the error in one line, then the traceback.
        method_state: the method's JSON about the episode.
        prompt_hash: SHA-256 of the actor's first prompt: messages and tools.
        seconds: wall clock of the episode.
        started: when it started.
        world: all operations on the world, in order; `None` if these are exactly the executed calls of the
            turns.
        module: for an attempt in a sleep: how its initial skills differ from the policy's.
    """

    episode: str
    task: Task
    policy: Integer
    attempt: Integer
    turns: list[Turn]
    termination: Termination
    outcome: Outcome | None
    error: str | None = None
    method_state: dict[str, Any] = {}
    prompt_hash: str = ""
    seconds: Number = 0.0
    started: Timestamp = 0.0
    world: list[WorldStep] | None = None
    module: list[Hunk] | None = None
    format: Integer = FORMAT

    @property
    def usage(self) -> Usage:
        """Return the tokens of all turns."""
        return sum((turn.usage for turn in self.turns), Usage())

    @property
    def fault(self) -> str:
        """Return an infrastructure error in one line, without its traceback."""
        return (self.error or "").strip().partition("\n")[0] or "unknown cause"

    @property
    def steps(self) -> list[WorldStep]:
        """Return all operations on the world, in order."""
        if self.world is not None:
            return self.world
        acted = (n for n, turn in enumerate(self.turns) if turn.executed and turn.executed.kind != "tool")
        return [WorldStep(turn=number) for number in acted]


class EpisodeRow(msgspec.Struct, kw_only=True):
    """The summary of one episode for tables and reports, without its texts.

    Attributes:
        phase: `train` or `test`.
        checkpoint: number of training rollouts before the batch, or before the evaluation.
        score: in [0, 1]; `None` after an infrastructure error.
        skill_calls: actor calls that named a skill.
        invalid_calls: completions without a valid call.
        repeated_calls: calls that repeat the one before; see `count_repeats`.
    """

    episode: str
    phase: Phase
    checkpoint: Integer
    task: Task
    policy: Integer
    attempt: Integer
    termination: Termination
    score: Number | None
    success: bool | None
    llm_calls: Integer
    actions: Integer
    skill_calls: Integer
    invalid_calls: Integer
    usage: Usage
    seconds: Number
    repeated_calls: Integer
    format: Integer = FORMAT


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a skill that are not in the library's module.

    Attributes:
        public: whether the actor can call it; private skills are called only by other skills.
        created: sleep that added it (1 is the run's first sleep).
        edited: sleep that last changed it.
    """

    name: str
    public: bool
    created: Integer
    edited: Integer


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a method keeps from one phase to the next. Written versions never change.

    Attributes:
        version: number of sleeps before it; 0 is the method's initial policy.
        module: the skill library, one Python module; see `speedrunner.library`.
        skills: its functions, in order.
        notes: prose for the actor's prompt (empty if the method has none).
        method: the method's own JSON.
    """

    version: Integer
    module: str = ""
    skills: tuple[Skill, ...] = ()
    notes: str = ""
    method: dict[str, Any] = {}
    format: Integer = FORMAT


class Module(msgspec.Struct, frozen=True):
    """Executable skills: one Python module.

    Attributes:
        source: its text, which expects the primitives among the globals.
        public: skills that an actor may call.
        private: skills that only other skills may call.
    """

    source: str = ""
    public: tuple[str, ...] = ()
    private: tuple[str, ...] = ()


EditAction = Literal["write", "edit", "rename", "visibility", "delete"]


class Edit(msgspec.Struct, frozen=True):
    """One edit that an inducer requested, with its arguments; `Library.apply` can repeat it.

    Attributes:
        name: the edited definition; several functions are separated by commas.
        error: why it was refused; `None`: accepted.
        new_name: for `rename`.
        source: for `write`: the text.
        public: for `write` and `visibility`, as `Library.write` and `Library.set_visibility` take it.
        old, new: for `edit`: the replaced piece and its replacement.
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
        """Return the names of the edited definitions."""
        return self.name.split(", ")


class AgentRecord(msgspec.Struct):
    """One agent's whole conversation in a sleep: that of the inducer or another role of the method."""

    role: str
    turns: list[Turn]
    termination: Termination


class PrefixChange(msgspec.Struct, frozen=True):
    """How a sleep changed the prompt prefix that all episodes of a policy share (system message, tools).

    Attributes:
        before, after: length under the old and the new policy, in tokens.
        common: length of their common start, in tokens.
        kept: how much of it the prefix cache can give to the new one, by its rule; `None` if it is not known.

    The ledger shows the cached tokens of the first request with the new prefix: role `prefix_warm_up`.
    """

    before: Integer
    after: Integer
    common: Integer
    kept: Integer | None = None

    @property
    def lost(self) -> int:
        """Tokens of the old prefix that the new one does not find in the cache."""
        return self.before - (self.common if self.kept is None else self.kept)


class SleepRecord(msgspec.Struct, kw_only=True):
    """One sleep phase.

    Attributes:
        sleep: 1 for the run's first; the resulting policy has the same number.
        rollouts: training rollouts since the previous sleep, over which its cost is spread.
        error: what ended the work early (a context overflow, for example).
        episodes: those that the method played in the sleep (`SleepTools.play_task`); part of its cost. Files
            call them `attempts`.
        prefix: change of the prompt prefix; `None` on the chat API.
        shown: share of the batch's text that the prompt showed, in tokens; `None`: it was not shown as text.
        changed: what it changed besides skills, in the method's words.
    """

    sleep: Integer
    rollouts: Integer
    attempt: Integer
    agents: list[AgentRecord]
    edits: list[Edit]
    seconds: Number
    error: str | None = None
    episodes: list[Trajectory] = msgspec.field(name="attempts", default_factory=list)
    prefix: PrefixChange | None = None
    shown: Number | None = None
    changed: str = ""
    format: Integer = FORMAT

    @property
    def turns(self) -> list[Turn]:
        """Return the turns of all agents, then those of the played episodes."""
        parts: list[AgentRecord | Trajectory] = [*self.agents, *self.episodes]
        return [turn for part in parts for turn in part.turns]

    @property
    def usage(self) -> Usage:
        """Return the tokens of all turns."""
        return sum((turn.usage for turn in self.turns), Usage())

    @property
    def refused(self) -> int:
        """Return the number of refused edits."""
        return sum(edit.error is not None for edit in self.edits)

    @property
    def accepted(self) -> int:
        """Return the number of accepted edits."""
        return len(self.edits) - self.refused


class OfferedTools(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that a role was offered under a policy. A role may have several lists under one policy."""

    role: str
    policy: Integer | None
    tools: list[ToolSpec]
    format: Integer = FORMAT


class Machine(msgspec.Struct, frozen=True):
    """The hardware of a process.

    Attributes:
        cpu: the processor's name.
        cores: cores that the process may use.
        memory_gb: memory of the machine, in GB of 10^9 bytes.
        gpus: each GPU with its memory, `?` if the driver does not report it.
    """

    cpu: str
    cores: Integer
    memory_gb: Number
    gpus: list[str]


class Process(msgspec.Struct, kw_only=True):
    """One process that worked on a run, with everything that determined its results.

    Digests are the first 12 digits of a SHA-256.

    Attributes:
        started: when it started.
        host, pid: where it ran.
        model: the whole model config after changes by the configuration. Files call it `actor`.
        models: by model, digests of the files of its local folder; weights are sampled.
        prices: by model, the prices of its tokens.
        env: digests of the environment's description, primitives, tools, limits and tasks.
        prompts: digests of the templates of the actor and of the method.
        code: digests of SpeedRunner's packages and of the modules of a user's environment and method.
        versions: of Python, packages, and the checkout.
        machine: the hardware.
        history: digest of the training history that the run carries from another run; empty without one.
        changes: accepted differences from the previous process.
    """

    started: Timestamp
    host: str
    pid: Integer
    model: ModelConfig = msgspec.field(name="actor")
    models: dict[str, dict[str, str]]
    prices: dict[str, Prices]
    env: dict[str, str]
    prompts: dict[str, str]
    code: dict[str, str]
    versions: dict[str, str]
    machine: Machine
    history: str = ""
    changes: list[str] = []
    format: Integer = FORMAT


class Labels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The purpose of a request. `None`: does not apply (readiness checks, probes).

    Attributes:
        phase: `train`, `test` or `sleep`.
        policy: version of the policy in use.
        episode: key of the episode or sleep.
        attempt: number of the attempt, from 1.
        role: the requester: `actor`, `inducer`, `prefix_warm_up` and so on. Set when the conversation is
            opened.
        replica: the replica of the engine that got the request. Set at the same time.
    """

    phase: str | None = None
    policy: int | None = None
    episode: str | None = None
    attempt: int | None = None
    role: str | None = None
    replica: int | None = None

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> Self:
        """Read the labels of a row and ignore other ones."""
        return msgspec.convert(labels, cls, strict=False)

    def plain(self) -> dict[str, str]:
        """Return the labels in the form that a row stores."""
        return {name: str(value) for name, value in msgspec.to_builtins(self).items()}


def attempts(labels: Iterable[Mapping[str, str]], episodes: Iterable[EpisodeRow] = ()) -> dict[str, int]:
    """Return the highest attempt so far for each value of the label `episode`; the next attempt is one more.

    Args:
        labels: of the rows of a ledger.
        episodes: finished episodes, since one that broke at its start has no row in the ledger.
    """
    highest: dict[str, int] = {}
    tried = {*map(attempt_of, labels)} | {(row.episode, str(row.attempt)) for row in episodes}
    for episode, attempt in tried:
        if episode is not None:
            highest[episode] = max(int(attempt or 0), highest.get(episode, 0))
    return highest


def attempt_of(labels: Mapping[str, str]) -> tuple[str | None, str | None]:
    """Return the labels `episode` and `attempt` of a row."""
    return labels.get("episode"), labels.get("attempt")


def hunks(before: Module, after: Module) -> list[Hunk]:
    """Return the changes that turn one module into the other."""
    old, new = _lines(before), _lines(after)
    changes = SequenceMatcher(None, old, new).get_opcodes()
    return [Hunk(first, end, new[start:stop]) for kind, first, end, start, stop in changes if kind != "equal"]


def apply_hunks(before: Module, changes: Sequence[Hunk]) -> Module:
    """Return the module after the changes: the second argument of `hunks`."""
    lines = _lines(before)
    for cut in reversed(changes):
        lines[cut.first : cut.end] = cut.lines
    public, private, source = ([line[1:] for line in lines if line[:1] == mark] for mark in _MARKS)
    return Module("\n".join(source), tuple(public), tuple(private))


_MARKS = "+-="
"""Prefixes of lines with public names, private names and source."""


def _lines(module: Module) -> list[str]:
    parts = (module.public, module.private, module.source.split("\n"))
    return [mark + line for mark, part in zip(_MARKS, parts, strict=True) for line in part]
