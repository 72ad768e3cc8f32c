"""The check of an environment accepts a sound one and reports what is wrong with a broken one."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

from envs import InvalidPrimitiveCall, Opening, Outcome, Primitive, Split, Task
from speedrunner.cli.scaffold.check_environment import check_environment
from tests.golden_tables import Golden
from tests.toy_env import Corridor


class PlaysOnAfterTheEnd(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        return self._view() if self.done else super().call(name, **arguments)


class TakesAnyCall(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        try:
            return super().call(name, **arguments)
        except InvalidPrimitiveCall:
            return self._view()


class ScoresInPercent(Corridor):
    def outcome(self) -> Outcome:
        return replace(super().outcome(), score=100.0 * self._position)


class HasASetInItsOutcome(Corridor):
    def outcome(self) -> Outcome:
        return replace(super().outcome(), detail={"fields": {self._position}})


class ReturnsNothing(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        super().call(name, **arguments)
        return None  # type: ignore[return-value]


class MovesWhenSeen(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        text = super().call(name, **arguments)
        self._position += name == "look"
        return text


class Crashes(Corridor):
    def call(self, name: str, **arguments: Any) -> str:
        text = super().call(name, **arguments)
        if self._position:
            raise ZeroDivisionError("the floor broke\nand the ceiling fell")
        return text


class LeavesOutTypes(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.primitives = (Primitive("walk", inspect.signature(lambda steps: None), "Walk."),)


class DrawsOneTaskTwice(Corridor):
    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        return Split([Task(cls.name, "default", 9)], [Task(cls.name, "default", 9)])


class NamesAnotherEnvironment(Corridor):
    @classmethod
    def splits(cls, *_: Any, **options: Any) -> Split:
        return Split([Task("lift", "default", 9)], [Task("lift", "default", 8)])


class ForgetsToReset(Corridor):
    resets = 0

    def reset(self, task: Task) -> Opening:
        self.resets += 1
        return super().reset(task)

    def call(self, name: str, **arguments: Any) -> str:
        return f"{super().call(name, **arguments)} {self.resets}"


BROKEN = (
    *(PlaysOnAfterTheEnd, TakesAnyCall, ScoresInPercent, HasASetInItsOutcome, ReturnsNothing),
    *(MovesWhenSeen, Crashes, LeavesOutTypes, DrawsOneTaskTwice, NamesAnotherEnvironment, ForgetsToReset),
)


def test_a_broken_environment_is_told_what_is_wrong(golden: Golden) -> None:
    lines = []
    for kind in BROKEN:
        problems = check_environment(kind.name, calls=30)
        assert problems, kind
        assert not any("\n" in line for line in problems)
        lines += [kind.__name__, *(f"    {re.sub('line [0-9]+', 'line N', line)}" for line in problems)]
    golden("broken_environments.txt", "\n".join([*lines, ""]))


def test_a_sound_environment_has_no_problems_and_gets_its_options() -> None:
    assert check_environment(Corridor.name, {"pit": -50}, calls=20) == []
