"""What the actor reads after a call."""

from __future__ import annotations

from typing import Any

import pytest

from envs import Outcome
from speedrunner.agents.actor import actor_view
from speedrunner.store.records import CallNode
from speedrunner.workers.worker_messages import Executed


def view(
    result: Any = None,
    error: str | None = None,
    observation: str | None = None,
    free_observation: str | None = None,
    limit: int = 1_000,
) -> str:
    node = CallNode("skill", "skill", {}, result=result, error=error)
    return actor_view(
        Executed(
            node=node,
            observation=observation,
            free_observation=free_observation,
            outcome=Outcome(0.0, False, {}),
            actions=0,
            termination=None,
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
    assert view("ok", observation="moved", free_observation="A kitchen.") == (
        "ok\n\nLast observation:\nmoved\n\nA kitchen."
    )


def test_long_results_are_cut_and_say_so() -> None:
    assert view("x" * 25, limit=20) == f"{'x' * 20}\n[cut here: 5 of 25 characters are not shown]"


def test_a_last_observation_that_was_cut_away_follows() -> None:
    shown = view("x" * 25 + "You see a flag.", observation="You see a flag.", limit=20)
    assert shown.endswith("\n\nLast observation:\nYou see a flag.")


def test_what_was_cut_is_not_said_again() -> None:
    room = "You are in the kitchen, and a door leads on."
    told = view(room, observation=room, free_observation=room, limit=20)
    assert told == f"{room[:20]}\n[cut here: 24 of 44 characters are not shown]"
    assert view(True, observation=room, free_observation=room, limit=20).count(room[:20]) == 1


def test_surroundings_that_a_result_contains_are_not_repeated() -> None:
    assert view("You stay. A kitchen.", free_observation="A kitchen.") == "You stay. A kitchen."


def test_each_part_is_cut_by_itself() -> None:
    shown = view("X" * 30, observation="Y" * 30, free_observation="Z" * 30, limit=20)
    assert [part.count(letter) for part, letter in zip(shown.split("\n\n"), "XYZ", strict=True)] == [20] * 3


class TestASkillThatFails:
    """The actor is told what it had done until then."""

    STEP = CallNode("go_forward", "primitive", {}, "a wall", actions=1)

    def failed(self, *calls: CallNode, omitted: int = 0, limit: int = 1_000) -> list[str]:
        actions = sum(each.actions for each in calls)
        node = CallNode("fetch", "skill", {}, error="E: no", actions=actions, calls=[*calls], omitted=omitted)
        executed = Executed(
            node=node,
            observation="A flag." if calls else None,
            free_observation=None,
            outcome=Outcome(0.0, False, {}),
            actions=0,
            termination=None,
        )
        return actor_view(executed, limit).split("\n\n")

    def test_primitive_calls_are_counted_the_last_ones_named_and_the_last_text_follows(self) -> None:
        look = CallNode("look", "primitive", {"at": "it"}, "A flag.")
        refused = CallNode("fly", "primitive", {}, error="TypeError: fly")
        walk = CallNode("walk", "skill", {}, actions=3, calls=[self.STEP] * 3)
        assert self.failed(walk, refused, look) == [
            "Error: E: no",
            "Before that it made 4 primitive calls (3 actions);"
            " the last calls: go_forward() x3, look(at='it')",
            "Last observation:\nA flag.",
        ]

    def test_of_many_only_the_last_ones_are_named(self) -> None:
        calls = [CallNode(f"step{number}", "primitive", {}, "", actions=1) for number in range(50)]
        _, done, _ = self.failed(*calls)
        assert done.startswith(
            "Before that it made 50 primitive calls (50 actions); the last calls: step40(), "
        )
        assert done.endswith(", step49()")

    def test_that_some_were_not_recorded_is_said(self) -> None:
        assert self.failed(self.STEP, omitted=3)[1] == (
            "Before that it made at least 1 primitive call (1 actions); the last recorded calls: go_forward()"
        )

    def test_it_is_cut_as_every_part_is(self) -> None:
        long = CallNode("say", "primitive", {"text": "x" * 500}, "")
        assert self.failed(long, limit=100)[1].partition("\n[cut here: ")[0][-10:] == "x" * 10

    def test_one_that_had_done_nothing_is_an_error_alone(self) -> None:
        assert self.failed() == ["Error: E: no"]
