"""The interface that every environment implements, its records, and its errors.

An environment is synchronous, owns no process that outlives `close()`, and is deterministic: the same task
and the same primitive calls give the same texts and outcome in any process.
"""

from __future__ import annotations

import inspect
import random
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from speedrunner.plain.plain_records import convert_value, format_value


class EnvironmentFault(Exception):
    """Base of every error that an environment raises on purpose."""


class UnknownEnvironment(EnvironmentFault):
    """No environment has the given name."""


class InvalidOption(EnvironmentFault):
    """An environment was created with an option that it does not have, or with a value of the wrong type."""


class UnknownTask(EnvironmentFault):
    """The environment does not have this task or world."""


class InvalidPrimitiveCall(EnvironmentFault):
    """An unknown primitive was called, or one with arguments that its signature does not allow."""


class EpisodeOver(EnvironmentFault):
    """A primitive was called after the episode's end (or before its first reset)."""


@dataclass(frozen=True, slots=True)
class Task:
    """One playable world. Two tasks are the same world exactly when they are equal.

    Attributes:
        env: registry name of the environment (`babyai`), or `package.module:Class`.
        name: the task within it (BabyAI: `pick_up_seq_go_to`).
        index: world seed (BabyAI, Crafter) or variation (ScienceWorld).
    """

    env: str
    name: str
    index: Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]  # exact as a float, too


@dataclass(frozen=True, slots=True)
class Opening:
    """The agent's first view of an episode, before its first action."""

    instruction: str
    observation: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The current result of an episode. `score` is in [0, 1]; `detail` has plain JSON values."""

    score: Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
    success: bool
    detail: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Budgets of one episode (paper, Appendices B to D). `None` means unlimited.

    Attributes:
        llm_calls: requests that the actor may make.
        actions: primitive calls that advance the world.
    """

    llm_calls: int
    actions: int | None


Description = Literal["paper", "full"]
"""How much agents learn about an environment from their prompts: as much as the paper's agents, who had to
find out the rest, or all of its rules."""

TRAIN_SIZE, TEST_SIZE = 200, 30
"""The paper's numbers of training and of held-out worlds."""


@dataclass(frozen=True, slots=True)
class Split:
    """Training and held-out tasks, disjoint, each in its fixed order."""

    train: list[Task]
    test: list[Task]

    @classmethod
    def drawn(cls, env: str, name: str, worlds: range, seed: int) -> Split:
        """Draw 230 worlds without replacement, `random.Random(seed).sample(worlds, 230)`: the first 200 are
        for training, the last 30 for testing."""
        drawn = random.Random(seed).sample(worlds, TRAIN_SIZE + TEST_SIZE)
        tasks = [Task(env, name, index) for index in drawn]
        return cls(train=tasks[:TRAIN_SIZE], test=tasks[TRAIN_SIZE:])


@dataclass(frozen=True, slots=True)
class Primitive:
    """One atomic action, as the actor, skills and documentation see it.

    Attributes:
        name: a Python identifier.
        signature: typed parameters and return type; every parameter can be passed by keyword.
        doc: one short paragraph for the actor.
        advances: whether a call advances the world (and counts against `Limits.actions`).
    """

    name: str
    signature: inspect.Signature
    doc: str
    advances: bool = True


class TextEnv(ABC):
    """One environment instance; it plays many episodes, one after another.

    A constructor takes keyword-only options, each with a default and a type. `primitives`, `description`,
    `limits` and `submits` are fixed for an instance and readable before the first `reset`.
    """

    name: ClassVar[str]
    """The environment's name in `Task.env`: the registry name, by default `package.module:Class`."""
    primitives: tuple[Primitive, ...]
    description: str
    """The description of the world in agents' prompts."""
    limits: Limits
    skills_read: ClassVar[str] = ""
    """Describes what a skill can and cannot read of the world. It is for the skill's author, who already
    knows that the skill has its arguments and the results of primitives."""
    ends: ClassVar[str] = "the environment ended the episode."
    """How the environment ends an episode, for the roles that learn from it; empty if it never does."""
    goals: ClassVar[tuple[str, ...]] = ()
    """Goals that every episode has, whatever its task; empty if tasks have different goals."""
    submits: ClassVar[bool] = False
    """Whether the actor ends the episode itself, with the extra tool `submit_answer`."""
    memory_mb: ClassVar[int] = 300
    """Most memory of one instance, in megabytes: the processes that it starts, and its own process without
    the memory shared with the one that ran `preload`. No more instances are created than fit into the
    machine's memory."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in vars(cls):
            cls.name = f"{cls.__module__}:{cls.__qualname__}"

    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        """Return the training and held-out tasks.

        An environment for training overrides this. The override may have its own keyword-only options, typed
        and with defaults as in a constructor.

        Raises `UnknownTask`: the environment has no split.
        """
        raise UnknownTask(f"{cls.name} has no split; define a classmethod `splits` in its class")

    @classmethod  # noqa: B027 - most environments need nothing
    def preload(cls) -> None:
        """Load what instances can share, such as modules that are imported late.

        Processes that play are forked from one in which this has run, so it must leave no process, thread or
        connection behind.
        """

    def warm_up(self) -> None:  # noqa: B027 - most environments need nothing
        """Start what the first `reset` would otherwise wait for, such as a process of the instance."""

    @abstractmethod
    def reset(self, task: Task) -> Opening:
        """Start the task's episode from its beginning. Raises `UnknownTask`."""

    @abstractmethod
    def call(self, name: str, **arguments: Any) -> str | None:
        """Run one primitive and return the result that the paper defines.

        Raises:
            EpisodeOver: after the end, and before the first `reset`.
            InvalidPrimitiveCall: no such primitive, or arguments that its signature does not allow; the world
                is unchanged.
        """

    def free_observation(self) -> str | None:
        """Return text to add to each reply that the actor reads, at no cost in moves; `None` for none."""
        return None

    @property
    @abstractmethod
    def done(self) -> bool:
        """Whether the environment itself has ended the episode."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """Return the current score of the episode. Allowed at any time after a `reset`."""

    def close(self) -> None:  # noqa: B027 - most environments hold nothing to release
        """Release everything that the instance holds. A second call does nothing."""

    def check_task(self, task: Task, names: Collection[str]) -> None:
        """Reject a task of another environment, an unknown name, or an index that is not a whole number from
        0.

        Raises `UnknownTask`: the message says what is allowed.
        """
        if task.env != self.name:
            raise UnknownTask(f"{self.name!r} got a task of environment {format_value(task.env)}")
        if task.name not in names:
            raise UnknownTask(
                f"unknown task {format_value(task.name)} of {self.name}; known: {', '.join(names)}"
            )
        if type(task.index) is not int or task.index < 0:
            given = format_value(task.index)
            raise UnknownTask(f"a {self.name} task's index must be a whole number from 0, not {given}")

    def check_call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Check a call against the primitives' signatures; every `call` starts with this.

        Returns:
            The arguments, with defaults for those left out.

        Raises `InvalidPrimitiveCall`: the message says what is allowed.
        """
        primitive = next((known for known in self.primitives if known.name == name), None)
        if primitive is None:
            names = ", ".join(known.name for known in self.primitives)
            raise InvalidPrimitiveCall(f"no primitive {format_value(name)}; available: {names}")
        signature = primitive.signature
        try:
            bound = signature.bind(**arguments)
        except TypeError as error:
            problem = textwrap.shorten(str(error), 200, placeholder=" ...")  # it may quote an argument
            raise InvalidPrimitiveCall(f"{name}{signature}: {problem}") from None
        bound.apply_defaults()
        for parameter, value in bound.arguments.items():
            try:
                bound.arguments[parameter] = convert_value(value, signature.parameters[parameter].annotation)
            except ValueError as error:
                raise InvalidPrimitiveCall(f"{name}{signature}: {parameter} {error}") from None
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise InvalidPrimitiveCall(
                    f"{name}{signature}: {parameter} must be a number of at most 64 bits"
                )
        return dict(bound.arguments)


def read_description(module: str, description: Description) -> str:
    """Return the text file with that name next to a module's file, such as `babyai_paper.txt`."""
    path = Path(module)
    return path.with_name(f"{path.stem}_{description}.txt").read_text(encoding="utf-8").strip()


def steps(count: int, direction: str) -> str:
    """Return a distance in words: `2 steps north`."""
    return f"{count} step{'s' if count > 1 else ''} {direction}"


def describe_offset(*parts: tuple[int, str, str]) -> str:
    """Return an offset in words: `2 steps north and 1 step west`. A part has a number of steps and
    the directions of a positive and of a negative one; a part with 0 steps is left out."""
    return " and ".join(steps(abs(count), way if count > 0 else back) for count, way, back in parts if count)
