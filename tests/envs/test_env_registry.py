"""Environments are made by name, with options that are checked before anything starts."""

from __future__ import annotations

import inspect
import re
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest

from envs import (
    EnvironmentFault,
    InvalidPrimitiveCall,
    Limits,
    Opening,
    Outcome,
    Primitive,
    Split,
    Task,
    TextEnv,
    UnknownEnvironment,
    UnknownTask,
    make,
    splits,
)
from envs.env_registry import ENVIRONMENTS
from tests.golden_tables import Golden, refusals


def move(steps: int, pace: Literal["slow", "fast"] = "slow", load: float | None = None) -> str: ...  # type: ignore[empty-body]


class NoDoor(EnvironmentFault):
    """What a room raises itself."""


class Unsplit(TextEnv):
    """An environment for single episodes, with one option of each type: it says nothing of splits."""

    primitives = (
        Primitive("move", inspect.signature(move, eval_str=True), "Move."),
        Primitive("rest", inspect.Signature(), "Rest."),
    )
    description = "A room."
    limits = Limits(llm_calls=1, actions=None)

    def __init__(
        self,
        *,
        doors: int = 1,
        height: float = 2.5,
        dark: bool = False,
        title: str = "hall",
        shape: Literal["round", "square"] = "round",
        owner: str | None = None,
    ) -> None:
        if doors < 0:
            raise NoDoor("a room needs a door")
        if doors > 30:
            raise RuntimeError("no room\nhas so many doors")
        self.made_with = (doors, height, dark, title, shape, owner)

    def reset(self, task: Task) -> Opening:
        return Opening("Rest.", self.description)

    def call(self, name: str, **arguments: object) -> str:
        return repr(self.check_call(name, arguments))

    @property
    def done(self) -> bool:
        return False

    def outcome(self) -> Outcome:
        return Outcome(0.0, False, {})


class Room(Unsplit):
    """The same with a split that shares one option and has one of its own."""

    @classmethod
    def splits(cls, *, seed: int = 0, doors: int = 1) -> Split:
        return Split([Task(cls.name, "default", seed)], [Task(cls.name, "default", seed + doors)])


class Hall(Room):
    """Its option has no default."""

    def __init__(self, doors: int) -> None: ...


class Unfinished(TextEnv):
    """It defines nothing."""


ROOM = f"{__name__}:Room"


class TestNames:
    def test_registered_environments_are_known_by_their_own_name(self) -> None:
        needed = {"scienceworld": {"family": 3}}  # its split is one family's
        for name in ENVIRONMENTS:
            assert make(name).name == name
            assert {task.env for task in splits(name, **needed.get(name, {})).train} == {name}

    def test_another_packages_class_is_named_by_its_path(self) -> None:
        assert isinstance(make(ROOM), Room)
        assert Room.name == ROOM
        assert splits(ROOM).train == [Task(ROOM, "default", 0)]

    def test_an_environment_without_a_split_says_so(self) -> None:
        with pytest.raises(UnknownTask, match=r":Unsplit has no split"):
            splits(f"{__name__}:Unsplit")

    def test_what_cannot_be_found_is_told(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        (tmp_path / "broken_house.py").write_text("raise RuntimeError('no roof\\nno walls')")
        monkeypatch.syspath_prepend(tmp_path)
        here = [f"{__name__}:{name}" for name in ("Cat", "NoDoor", "Unfinished", "Hall")]
        names: tuple[Any, ...] = ("cat", 3, "no.such:Cat", "broken_house:Cat", *here)
        tries = [(name, partial(make, name)) for name in names]
        golden("classes.txt", refusals(tries, UnknownEnvironment, FOLDER=Path.cwd()))


class TestOptions:
    def test_values_of_every_supported_type_reach_the_constructor(self) -> None:
        room = make(ROOM, doors=2, height=3, dark=True, title="den", shape="square", owner="me", seed=3)
        assert isinstance(room, Room)
        assert room.made_with == (2, 3.0, True, "den", "square", "me")
        assert splits(ROOM, doors=2, height=3, seed=3).test == [Task(ROOM, "default", 5)]

    def test_what_it_does_not_take_is_told_in_one_line(self, golden: Golden) -> None:
        options: list[dict[str, Any]] = [
            *({"dors": 3}, {"size": 3}, {"doors": "3"}, {"doors": 2.0}, {"doors": True}, {"title": 3}),
            *({"height": "tall"}, {"dark": 1}, {"shape": "oval"}, {"owner": 1}, {"doors": 31}, {"doors": -1}),
        ]
        tries = [(given, partial(make, ROOM, **given)) for given in options]
        golden("class_options.txt", re.sub(r"line \d+", "line N", refusals(tries, EnvironmentFault)))


def test_arguments_come_back_complete_and_of_their_types() -> None:
    room = make(ROOM)
    assert room.check_call("move", {"steps": 2}) == {"steps": 2, "pace": "slow", "load": None}
    assert repr(room.check_call("move", {"steps": 2, "load": 1})["load"]) == "1.0"
    assert room.check_call("rest", {}) == {}


def test_a_call_against_its_signature_is_refused_with_the_signature(golden: Golden) -> None:
    moves: list[dict[str, Any]] = [
        *({}, {"steps": 1, "far": True}, {"steps": "1"}, {"steps": True}),
        *({"steps": 1, "pace": "warp"}, {"steps": 1, "load": "heavy"}),
    ]
    calls = [("fly", {}), *(("move", arguments) for arguments in moves), ("rest", {"long": True})]
    tries = [((name, given), partial(make(ROOM).call, name, **given)) for name, given in calls]
    golden("primitive_calls.txt", refusals(tries, InvalidPrimitiveCall))
