"""The check of an environment accepts a sound one and reports what is wrong with a broken one."""

from __future__ import annotations

import inspect
import os
import random
import re
from dataclasses import replace
from typing import Any, Literal

import pytest

from envs import EpisodeOver, Limits, Opening, Outcome, Primitive, Split, Task, TextEnv
from speedrunner.cli.scaffold.check_environment import check_environment
from tests.golden_tables import Golden
from tests.toy_env import Corridor


def push(direction: Literal["up", "down"], by: int = 1) -> str: ...  # type: ignore[empty-body]


def read() -> str: ...  # type: ignore[empty-body]


def wait() -> None: ...


class Elevator(TextEnv):
    """Ride to the floor that the task's index names, in at most 20 pushes."""

    description = "An elevator."
    limits = Limits(llm_calls=10, actions=None)
    primitives = (
        Primitive("push", inspect.signature(push, eval_str=True), "Ride some floors."),
        Primitive("read", inspect.signature(read, eval_str=True), "Read the display.", advances=False),
        Primitive("wait", inspect.signature(wait, eval_str=True), "Let time pass."),
    )

    def __init__(self) -> None:
        self.goal: int | None = None
        self.floor = self.time = 0

    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        tasks = [Task(cls.name, "default", goal) for goal in (9, 8, 7, 6)]
        return Split(tasks[:2], tasks[2:])

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


class TakesAnyArgument(Elevator):
    def call(self, name: str, **arguments: Any) -> str | None:
        known = {key: value for key, value in arguments.items() if key in ("direction", "by")}
        return super().call(name, **known)


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


class HasNoPrimitive(Elevator):
    primitives = ()


class LeavesOutTypes(Elevator):
    primitives = (Primitive("push", inspect.signature(lambda by: None), "Push."),)


class DrawsOneTaskTwice(Elevator):
    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        return Split([Task(cls.name, "default", 9)], [Task(cls.name, "default", 9)])


class NamesAnotherEnvironment(Elevator):
    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        return Split([Task("lift", "default", 9)], [])


BROKEN = (
    *(PlaysOnAfterTheEnd, TakesAnyArgument, ScoresInPercent, HasASetInItsOutcome),
    *(ReturnsNothing, MovesWhenRead, Crashes, HasNoPrimitive, LeavesOutTypes, DrawsOneTaskTwice),
    NamesAnotherEnvironment,
)


def test_a_broken_environment_is_told_what_is_wrong(golden: Golden) -> None:
    lines = []
    for kind in BROKEN:
        problems = check_environment(kind.name)
        assert problems, kind
        assert not any("\n" in line for line in problems)
        lines += [kind.__name__, *(f"    {re.sub('line [0-9]+', 'line N', line)}" for line in problems)]
    golden("broken_environments.txt", "\n".join([*lines, ""]))


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
        (ForgetsToReset, "in another process and order, ends after 30 calls"),
        (DrawsFromTheGlobalGenerator, "differs in opening after 0 equal calls"),
        (TicksWhenScored, "differs in text after 1 equal calls"),
        (ShowsAHash, "replayed in another process and order, differs in opening after 0 equal calls"),
        (EndsItsProcess, "in another process, it raised BrokenProcessPool: "),
        (CannotBeLoaded, "in another process, it raised RuntimeError: no mortar"),
    ],
)
def test_another_process_must_play_alike(
    kind: type[TextEnv], finding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECKING_PROCESS", str(os.getpid()))
    problem, *_ = check_environment(kind.name, calls=30)
    assert finding in problem


@pytest.mark.process
def test_a_sound_environment_has_no_problems_and_gets_its_options() -> None:
    assert check_environment(Elevator.name) == []
    assert check_environment(Corridor.name, {"pit": -50}, calls=20) == []
