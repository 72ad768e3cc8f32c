"""The conformance check passes a sound environment and tells what is wrong with a broken one."""

from __future__ import annotations

import inspect
import itertools
import random
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import pytest

from envs import EpisodeOver, Limits, Opening, Outcome, Primitive, Split, Task, TextEnv, UnknownTask
from envs.conformance import check_env
from envs.random_play import trace


def push(direction: Literal["up", "down"], by: int = 1) -> str: ...  # type: ignore[empty-body]


def read() -> str: ...  # type: ignore[empty-body]


def wait() -> None: ...


class Elevator(TextEnv):
    """Ride to the floor that the task's index names, in at most 20 pushes."""

    def __init__(self) -> None:
        self.description = "An elevator."
        self.limits = Limits(llm_calls=10, actions=None)
        self.primitives: tuple[Primitive, ...] = (
            Primitive("push", inspect.signature(push, eval_str=True), "Ride some floors."),
            Primitive("read", inspect.signature(read, eval_str=True), "Read the display.", advances=False),
            Primitive("wait", inspect.signature(wait, eval_str=True), "Let time pass."),
        )
        self.goal: int | None = None
        self.floor = self.time = 0

    def reset(self, task: Task) -> Opening:
        self.check_task(task, ["default"])
        self.goal, self.floor, self.time = task.index, 0, 0
        return Opening(f"Ride to floor {self.goal}.", self.view())

    def call(self, name: str, **arguments: Any) -> str | None:
        if self.goal is None or self.done:
            raise EpisodeOver("it is over")
        arguments = self.check_call(name, arguments)
        if name == "read":
            return self.view()
        self.time += 1
        if name == "wait":
            return None
        self.floor += arguments["by"] if arguments["direction"] == "up" else -arguments["by"]
        return self.view()

    @property
    def done(self) -> bool:
        return self.goal is not None and (self.floor == self.goal or self.time >= 20)

    def outcome(self) -> Outcome:
        return Outcome(float(self.floor == self.goal), self.floor == self.goal, {"time": self.time})

    def snapshot(self) -> dict[str, Any] | None:
        return {"floor": self.floor}

    def view(self) -> str:
        return f"floor {self.floor}"


def elevator_split(env_name: str) -> Split:
    tasks = [Task(env_name, "default", goal) for goal in (9, 8, 7, 6)]
    return Split(tasks[:2], tasks[2:])


def check(env: TextEnv) -> list[str]:
    return list(check_env(env, elevator_split(env.name)))


def test_a_sound_environment_has_no_findings() -> None:
    assert check(Elevator()) == []


def test_a_trace_tells_plays_and_worlds_apart() -> None:
    task = Task(Elevator.name, "default", 9)
    first = trace(Elevator(), task)
    assert first == trace(Elevator(), task)
    assert first != trace(Elevator(), replace(task, index=8))


class ForgetsToReset(Elevator):
    def reset(self, task: Task) -> Opening:
        time = self.time
        opening = super().reset(task)
        self.time = min(time, 7)
        return opening


class DrawsFromTheGlobalGenerator(Elevator):
    def view(self) -> str:
        return f"floor {self.floor}, {random.random()}"


class CountsAcrossEpisodes(Elevator):
    rides = itertools.count()

    def surroundings(self) -> str | None:
        return f"ride {next(self.rides)}"


class PlaysOnAfterTheEnd(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        return self.view() if self.done else super().call(name, **arguments)


class StartsWithoutReset(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        self.goal = 5 if self.goal is None else self.goal
        return super().call(name, **arguments)


class TakesAnyTask(Elevator):
    def reset(self, task: Task) -> Opening:
        return super().reset(Task(self.name, "default", abs(task.index)))


class TakesNegativeIndices(Elevator):
    def reset(self, task: Task) -> Opening:
        return super().reset(replace(task, index=abs(task.index)))


class FailsOnAnUnknownTask(Elevator):
    def reset(self, task: Task) -> Opening:
        try:
            return super().reset(task)
        except UnknownTask as error:
            raise KeyError(task.name) from error


class TakesAnyArgument(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        known = {key: value for key, value in arguments.items() if key in ("direction", "by")}
        return super().call(name, **known)


class MovesOnAnInvalidCall(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        if name == "push" and self.goal is not None:
            self.floor += 1
        return super().call(name, **arguments)


class ScoresInPercent(Elevator):
    def outcome(self) -> Outcome:
        return replace(super().outcome(), score=100.0 * self.floor)


class HasASetInItsOutcome(Elevator):
    def outcome(self) -> Outcome:
        return replace(super().outcome(), detail={"floors": {self.floor}})


class HasATupleInItsSnapshot(Elevator):
    def snapshot(self) -> dict[str, Any] | None:
        return {"floor": (self.floor,)}


class ReturnsNumbers(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        return self.floor if super().call(name, **arguments) else None  # type: ignore[return-value]


class ReturnsNothing(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        super().call(name, **arguments)
        return None


class MovesWhenRead(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        text = super().call(name, **arguments)
        if name == "read":
            self.floor -= 1
        return text


class ClosesOnce(Elevator):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class CountsItsResets(Elevator):
    resets = 0

    def reset(self, task: Task) -> Opening:
        self.resets += 1
        opening = super().reset(task)
        return replace(opening, observation=f"{opening.observation}, {'ding' * (self.resets % 2)}")


class MovesWhenScored(Elevator):
    def outcome(self) -> Outcome:
        self.floor += self.goal is not None
        return super().outcome()


class TicksWhenScored(Elevator):
    """What its outcome does is seen in a later text alone."""

    ticks = 0

    def reset(self, task: Task) -> Opening:
        self.ticks = 0
        return super().reset(task)

    def call(self, name: str, **arguments: Any) -> str | None:
        text = super().call(name, **arguments)
        return f"{text}, {self.ticks} ticks" if text else None

    def outcome(self) -> Outcome:
        self.ticks += 1
        return super().outcome()


class Crashes(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        text = super().call(name, **arguments)
        if self.time == 3:
            raise ZeroDivisionError("the cable broke\nand the lift fell")
        return text


@pytest.mark.parametrize(
    ("env", "finding"),
    [
        (ForgetsToReset(), "played again, differs in outcome after 0 equal calls"),
        (DrawsFromTheGlobalGenerator(), "played again, differs in opening after 0 equal calls"),
        (CountsAcrossEpisodes(), "played again, differs in surroundings after 0 equal calls"),
        (PlaysOnAfterTheEnd(), "call: must raise EpisodeOver after the end"),
        (StartsWithoutReset(), "call: must raise EpisodeOver before the first reset"),
        (TakesAnyTask(), "reset: must raise UnknownTask for Task(env='another environment'"),
        (TakesNegativeIndices(), "name='default', index=-1)"),
        (FailsOnAnUnknownTask(), "index=9) raised KeyError: 'default' (test_conformance.py, line "),
        (TakesAnyArgument(), "call: must raise InvalidPrimitiveCall for push(direction, no_such_parameter)"),
        (MovesOnAnInvalidCall(), "call: an invalid call changed the world: push(direction"),
        (ScoresInPercent(), "outcome: score must be a number in [0, 1], not"),
        (HasASetInItsOutcome(), "outcome: detail must hold plain JSON values only"),
        (HasATupleInItsSnapshot(), "snapshot: must hold plain JSON values only"),
        (ReturnsNumbers(), "call: push returned int against its signature"),
        (ReturnsNothing(), "call: push returned NoneType against its signature"),
        (MovesWhenRead(), "call: read changed the world although it does not advance"),
        (ClosesOnce(), "close: a second call raised RuntimeError"),
        (CountsItsResets(), "played again, differs in opening after 0 equal calls"),
        (MovesWhenScored(), "outcome: reading it changed snapshot; reading must change nothing"),
        (TicksWhenScored(), "without reading done, outcome, snapshot, surroundings between, differs in text"),
    ],
    ids=lambda value: value.__class__.__name__ if isinstance(value, TextEnv) else "",
)
def test_a_broken_environment_is_told_what_is_wrong(env: TextEnv, finding: str) -> None:
    lines = check(env)
    assert [line for line in lines if finding in line], lines
    assert not any("\n" in line for line in lines)


def test_what_it_raises_is_told_once_with_call_task_and_place() -> None:
    (line,) = check(Crashes())
    assert re.fullmatch(
        r"call: \w+\(.*\) with task\.name=default task\.index=9 raised ZeroDivisionError: the cable broke"
        r" \(test_conformance\.py, line \d+, in call\)",
        line,
    )


def test_what_reading_changes_is_not_blamed_on_invalid_calls() -> None:
    assert not any("invalid call" in line for line in check(MovesWhenScored()))


def test_one_task_can_be_checked_without_a_split() -> None:
    task = Task(Elevator.name, "default", 9)
    assert list(check_env(Elevator(), task)) == []
    assert "differs in opening" in "; ".join(
        check_env(CountsItsResets(), replace(task, env=CountsItsResets.name))
    )


def altered(**changes: Any) -> Elevator:
    env = Elevator()
    for attribute, value in changes.items():
        setattr(env, attribute, value)
    return env


def first_primitive(**changes: Any) -> Elevator:
    env = Elevator()
    return altered(primitives=(replace(env.primitives[0], **changes), *env.primitives[1:]))


def with_parameter(name: str, kind: Any = inspect.Parameter.KEYWORD_ONLY, annotation: Any = int) -> Elevator:
    parameter = inspect.Parameter(name, kind, annotation=annotation)
    return first_primitive(signature=inspect.Signature([parameter], return_annotation=str))


@pytest.mark.parametrize(
    ("env", "finding"),
    [
        (altered(description=" "), "description: must be the rules as text"),
        (altered(limits=Limits(llm_calls=0, actions=None)), "limits: must be Limits of positive numbers"),
        (altered(primitives=()), "primitives: must be a tuple of at least one Primitive"),
        (altered(primitives=Elevator().primitives[:1] * 2), "primitives: a name occurs twice"),
        (first_primitive(name="go up"), "primitive 'go up': its name is no Python identifier"),
        (first_primitive(name="return"), "primitive 'return': its name is no Python identifier"),
        (first_primitive(doc=""), "primitive 'push': has no documentation"),
        (first_primitive(signature=inspect.Signature()), "return type must be str, None or str | None"),
        (with_parameter("by", annotation="int"), "parameter 'by' has no type"),
        (with_parameter("by", annotation=inspect.Parameter.empty), "parameter 'by' has no type"),
        (
            with_parameter("by", annotation=bytes),
            "parameter 'by': nobody can write a value of type bytes; use",
        ),
        (
            with_parameter("by", inspect.Parameter.POSITIONAL_ONLY),
            "parameter 'by' cannot be passed by its name",
        ),
        (with_parameter("name"), "no parameter can be called 'name'"),
    ],
)
def test_what_an_environment_says_of_itself_is_checked(env: TextEnv, finding: str) -> None:
    assert [line for line in check(env) if finding in line]


def test_the_split_is_checked() -> None:
    def found(train: Iterable[Task], test: Iterable[Task]) -> str:
        return "; ".join(check_env(Elevator(), Split(list(train), list(test))))

    sound = elevator_split(Elevator.name)
    assert "held-out tasks are missing" in found(sound.train, [])
    assert "a task occurs twice" in found(sound.train, sound.train[:1])
    stranger = [replace(task, env="lift") for task in sound.test]
    assert "Task.env is 'lift', but the environment's name is" in found(sound.train, stranger)
