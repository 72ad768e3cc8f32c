"""The check of an environment passes a sound one and reports what is wrong with a broken one."""

from __future__ import annotations

import inspect
import os
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import pytest

from envs import EpisodeOver, Limits, Opening, Outcome, Primitive, Split, Task, TextEnv
from envs.environment_check import check_environment, check_here
from tests.golden_tables import Golden
from tests.toy_env import Corridor


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

    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        return elevator_split(cls.name)

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
    return check_here(env, elevator_split(env.name))[0]


def test_a_sound_environment_has_no_findings() -> None:
    assert check(Elevator()) == []


class ForgetsToReset(Elevator):
    def reset(self, task: Task) -> Opening:
        time = self.time
        opening = super().reset(task)
        self.time = min(time, 7)
        return opening


class DrawsFromTheGlobalGenerator(Elevator):
    def view(self) -> str:
        return f"floor {self.floor}, {random.random()}"


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


BROKEN = (
    *(PlaysOnAfterTheEnd, StartsWithoutReset, TakesAnyTask, TakesAnyArgument, MovesOnAnInvalidCall),
    *(ScoresInPercent, HasASetInItsOutcome, ReturnsNothing, MovesWhenRead, ClosesOnce, MovesWhenScored),
    Crashes,
)


def test_a_broken_environment_is_told_what_is_wrong(golden: Golden) -> None:
    golden("broken_environments.txt", listed({kind.__name__: kind() for kind in BROKEN}))


def listed(envs: Mapping[str, TextEnv]) -> str:
    """Return the findings of each environment, one line each, without line numbers."""
    lines = []
    for what, env in envs.items():
        found = check(env)
        assert found, what
        assert not any("\n" in line for line in found)
        lines += [what, *(f"    {re.sub('line [0-9]+', 'line N', line)}" for line in found)]
    return "\n".join([*lines, ""])


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


MISDESCRIBED = {
    "no primitive": altered(primitives=()),
    "a name twice": altered(primitives=Elevator().primitives[:1] * 2),
    "a name of two words": first_primitive(name="go up"),
    "no documentation": first_primitive(doc=""),
    "no return type": first_primitive(signature=inspect.Signature()),
    "a type as text": with_parameter("by", annotation="int"),
    "no type": with_parameter("by", annotation=inspect.Parameter.empty),
    "a type that nobody can write": with_parameter("by", annotation=bytes),
    "a parameter by position": with_parameter("by", inspect.Parameter.POSITIONAL_ONLY),
    "a parameter of call's own": with_parameter("name"),
}


def test_what_an_environment_says_of_itself_is_checked(golden: Golden) -> None:
    golden("misdescribed_environments.txt", listed(MISDESCRIBED))


def test_the_split_is_checked() -> None:
    def found(train: Iterable[Task], test: Iterable[Task]) -> str:
        return "; ".join(check_here(Elevator(), Split(list(train), list(test)))[0])

    sound = elevator_split(Elevator.name)
    assert "held-out tasks are missing" in found(sound.train, [])
    assert "a task occurs twice" in found(sound.train, sound.train[:1])
    stranger = [replace(task, env="lift") for task in sound.test]
    assert "Task.env is 'lift', but the environment's name is" in found(sound.train, stranger)


class ShowsAHash(Corridor):
    """It looks the same all through one process."""

    def _view(self) -> str:
        return f"{super()._view()} A sign says {hash('flag')}."


class EndsItsProcess(Corridor):
    """It ends a process in which it was not checked before."""

    def call(self, name: str, **arguments: Any) -> str:
        if os.environ["CHECKING_PROCESS"] != str(os.getpid()):
            os._exit(7)
        return super().call(name, **arguments)


class CannotBeLoaded(Corridor):
    @classmethod
    def preload(cls) -> None:
        raise RuntimeError("no mortar")


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "finding"),
    [
        (ForgetsToReset, "in another process and order, differs in"),
        (DrawsFromTheGlobalGenerator, "differs in opening after 0 equal calls"),
        (TicksWhenScored, "differs in text after 1 equal calls"),
        (ShowsAHash, "replayed in another process and order, differs in opening after 0 equal calls"),
        (EndsItsProcess, "in another process, it ended with status 7"),
        (CannotBeLoaded, "in another process, it ended with status 1: RuntimeError: no mortar"),
    ],
)
def test_another_process_must_play_alike(
    kind: type[TextEnv], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKING_PROCESS", str(os.getpid()))
    found, *_ = check_environment(kind.name, calls=30)
    assert finding in found


@pytest.mark.process
def test_options_are_passed_on() -> None:
    assert check_environment(Corridor.name, {"pit": -50}, calls=20) == []
