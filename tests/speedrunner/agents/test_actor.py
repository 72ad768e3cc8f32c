"""What the actor reads after a call."""

from __future__ import annotations

from typing import Any

import pytest

from envs import Outcome
from speedrunner.agents.actor import actor_view
from speedrunner.hosts.messages import Executed
from speedrunner.store.records import CallNode


def view(
    result: Any = None,
    error: str | None = None,
    observation: str | None = None,
    surroundings: str | None = None,
    limit: int = 1_000,
) -> str:
    node = CallNode("skill", "skill", {}, result=result, error=error)
    return actor_view(
        Executed(
            node=node,
            observation=observation,
            surroundings=surroundings,
            outcome=Outcome(0.0, False, {}),
            actions=0,
            ending=None,
        ),
        limit,
    )


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("done", "done"),
        ("", ""),
        (3, "3"),
        (True, "true"),
        (["ä", {"x": 1.5}], '["ä",{"x":1.5}]'),
        (None, "None"),
    ],
)
def test_a_result_is_its_own_text_or_json(result: Any, text: str) -> None:
    assert view(result) == text


def test_a_primitives_text_is_not_said_twice() -> None:
    assert view("You see a flag.", observation="You see a flag.") == "You see a flag."


def test_a_result_that_contains_the_last_observation_stands_alone() -> None:
    assert view("Walked twice. You see a flag.", observation="You see a flag.") == (
        "Walked twice. You see a flag."
    )


def test_the_last_observation_follows_a_result_without_it() -> None:
    assert view(True, observation="You see a flag.") == "true\n\nLast observation:\nYou see a flag."


def test_nothing_is_said_of_a_skill_that_returned_nothing_but_acted() -> None:
    assert view(None, observation="You see a flag.") == "Last observation:\nYou see a flag."


def test_an_error_is_shown_without_its_traceback() -> None:
    error = "ValueError: no door (in go, line 3)\nTraceback (outermost call first):\n  go, line 3: raise ..."
    assert view(error=error, observation="You see a wall.") == (
        "Error: ValueError: no door (in go, line 3)\n\nLast observation:\nYou see a wall."
    )


def test_surroundings_come_last() -> None:
    assert view("ok", observation="moved", surroundings="A kitchen.") == (
        "ok\n\nLast observation:\nmoved\n\nA kitchen."
    )


def test_long_results_are_cut_and_say_so() -> None:
    assert view("x" * 25, limit=20) == f"{'x' * 20}\n[cut here: 5 of 25 characters are not shown]"


def test_a_last_observation_that_was_cut_away_follows() -> None:
    shown = view("x" * 25 + "You see a flag.", observation="You see a flag.", limit=20)
    assert shown.endswith("\n\nLast observation:\nYou see a flag.")


def test_what_was_cut_is_not_said_again() -> None:
    room = "You are in the kitchen, and a door leads on."
    told = view(room, observation=room, surroundings=room, limit=20)
    assert told == f"{room[:20]}\n[cut here: 24 of 44 characters are not shown]"
    assert view(True, observation=room, surroundings=room, limit=20).count(room[:20]) == 1


def test_surroundings_that_a_result_contains_are_not_repeated() -> None:
    assert view("You stay. A kitchen.", surroundings="A kitchen.") == "You stay. A kitchen."


def test_each_part_is_cut_by_itself() -> None:
    shown = view("X" * 30, observation="Y" * 30, surroundings="Z" * 30, limit=20)
    assert [part.count(letter) for part, letter in zip(shown.split("\n\n"), "XYZ", strict=True)] == [20] * 3
