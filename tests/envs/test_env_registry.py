"""Environments are made by name, with options that are checked before anything starts."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from envs import (
    InvalidOption,
    Limits,
    Opening,
    Outcome,
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


class Unsplit(TextEnv):
    """An environment for single episodes, with one option of each type: it says nothing of splits."""

    primitives = ()
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
        self.made_with = (doors, height, dark, title, shape, owner)

    def reset(self, task: Task) -> Opening:
        return Opening("Rest.", self.description)

    def call(self, name: str, **arguments: object) -> None:
        self.check_call(name, arguments)

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

    def test_a_module_that_breaks_on_import_is_named_with_its_cause(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "broken_house.py").write_text("raise RuntimeError('no roof\\nno walls')")
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(
            UnknownEnvironment, match=r"cannot import broken_house \(RuntimeError: no roof; broken_house.py, "
        ):
            make("broken_house:House")
        assert "broken_house" not in sys.modules

    def test_an_environment_without_a_split_says_so(self) -> None:
        with pytest.raises(UnknownTask, match=r":Unsplit has no split"):
            splits(f"{__name__}:Unsplit")


class TestOptions:
    def test_values_of_every_supported_type_reach_the_constructor(self) -> None:
        room = make(ROOM, doors=2, height=3, dark=True, title="den", shape="square", owner="me")
        assert isinstance(room, Room)
        assert room.made_with == (2, 3.0, True, "den", "square", "me")

    def test_a_value_of_another_type_is_refused(self, golden: Golden) -> None:
        values = [("doors", "2"), ("doors", 2.0), ("doors", True), ("height", "tall"), ("dark", 1)]
        values += [("title", 5), ("title", None), ("shape", "oval"), ("owner", 1)]
        said = {
            refusals(((each, partial(function, ROOM, **dict([each]))) for each in values), InvalidOption)
            for function in (make, splits)
        }
        golden("environment_options.txt", "".join(said))
