"""Classes by name, made from options. Environments and methods show the rest."""

from __future__ import annotations

import abc
import re
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from envs.class_registry import Parameters, Registry, parameters
from tests.golden_tables import Golden, refusals


class Unknown(Exception):
    """No such animal."""


class Invalid(Exception):
    """It does not take that."""


class Own(Exception):
    """What an animal raises itself."""


class Animal(abc.ABC):
    @abc.abstractmethod
    def speak(self) -> str: ...


class Dog(Animal):
    def __init__(self, *, age: int = 1) -> None:
        if age < 0:
            raise Own("not born")
        if age > 30:
            raise RuntimeError("no dog\nis so old")
        self.age = age

    def speak(self) -> str:
        return "wuff"

    @staticmethod
    def paint(
        *,
        colour: str = "red",
        height: float = 2.5,
        dark: bool = False,
        shape: Literal["round", "square"] = "round",
        owner: str | None = None,
    ) -> str:
        return colour


class Fish(Animal):
    """It does not speak."""


class Cow(Dog):
    def __init__(self, age: int) -> None: ...


def options(kind: type[Animal]) -> Parameters:
    return parameters(kind, Dog.paint)


PLACE = f"{__name__}:Dog"
ANIMALS = Registry("animal", {"dog": PLACE}, Animal, Unknown, Invalid, options)  # type: ignore[type-abstract]


@pytest.mark.parametrize("name", ["dog", PLACE])
def test_a_name_stands_for_what_is_registered_and_a_path_for_itself(name: str) -> None:
    assert ANIMALS.find(name) is Dog


def test_what_cannot_be_found_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    (tmp_path / "broken_house.py").write_text("raise RuntimeError('no roof\\nno walls')")
    monkeypatch.syspath_prepend(tmp_path)
    here = [f"{__name__}:{name}" for name in ("Cat", "Own", "Fish", "Cow")]
    names = ("cat", 3, "no.such:Cat", "broken_house:Cat", *here)
    tries = [(name, partial(ANIMALS.find, name)) for name in names]
    golden("classes.txt", refusals(tries, Unknown, FOLDER=Path.cwd()))


def test_options_are_checked_and_those_that_it_takes_passed_on() -> None:
    dog = ANIMALS.call(Dog, Dog, {"age": 3, "colour": "blue"}, whose="dog", own=Own)
    assert dog.age == 3
    assert ANIMALS.call(Dog, Dog.paint, {"age": 3, "colour": "blue"}, whose="dog", own=Own) == "blue"


def test_what_it_does_not_take_is_told_in_one_line(golden: Golden) -> None:
    options: list[dict[str, object]] = [
        *(
            {"agge": 3},
            {"size": 3},
            {"age": "3"},
            {"age": 2.0},
            {"age": True},
            {"colour": 3},
            {"height": "tall"},
        ),
        *({"dark": 1}, {"shape": "oval"}, {"owner": 1}, {"age": 31}, {"age": -1}),
    ]
    tries = [(given, partial(ANIMALS.call, Dog, Dog, given, whose="dog", own=Own)) for given in options]
    text = refusals(tries, (Invalid, Own))
    golden("class_options.txt", re.sub(r"line \d+", "line N", text))
