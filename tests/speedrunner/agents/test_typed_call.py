"""Typed calls: what is read, and what is said about the rest."""

from __future__ import annotations

from functools import partial

import pytest

from envs.scienceworld import ScienceWorld
from serving.tokens.tools import ToolCall
from speedrunner.agents.typed_call import UnreadableLine, describe_tools, read_call
from tests.golden_tables import Golden, refusals
from tests.toy_env import Corridor

SIGNATURES = {each.name: each.signature for each in (*Corridor().primitives, *ScienceWorld.primitives)}


class TestTypedCalls:
    @pytest.mark.parametrize(
        ("line", "name", "arguments"),
        [
            ("look", "look", {}),
            ("look()", "look", {}),
            ("walk 2", "walk", {"steps": 2}),
            ("walk 2, left", "walk", {"steps": 2, "direction": "left"}),
            ("walk(2, direction='left')", "walk", {"steps": 2, "direction": "left"}),
            ("walk (steps=-1)", "walk", {"steps": -1}),
            ("go door to kitchen", "go", {"location": "door to kitchen"}),
            (
                "connect red wire terminal 1, anode",
                "connect",
                {"obj_a": "red wire terminal 1", "obj_b": "anode"},
            ),
            ("use thermometer", "use", {"obj": "thermometer"}),
            ("disambiguate 0", "disambiguate", {"option": 0}),
            ("pick_up 5, 6", "pick_up", {"obj": "5, 6"}),
            # What the environment refuses, in its own words.
            ("walk far", "walk", {"steps": "far"}),
            ("fly there", "fly", {}),
        ],
    )
    def test_are_read(self, line: str, name: str, arguments: dict[str, object]) -> None:
        assert read_call(line, SIGNATURES) == ToolCall(name, arguments)

    def test_that_cannot_be_read_say_why(self, golden: Golden) -> None:
        lines = (
            *("(look)", "look 3", "walk(2", "go(kitchen)", "walk(2)(3)", "walk(**{'steps': 2})"),
            *("walk(speed=2)", "walk(1, 'left', 3)", f"go({'(' * 5_000}", f"go({'-' * 50_000}1)"),
            *(f"({'x' * 10_000}", f"look {'x' * 10_000}", f"walk({'x' * 10_000}=2)"),
        )
        text = refusals([(line[:30], partial(read_call, line, SIGNATURES)) for line in lines], UnreadableLine)
        assert max(map(len, text.splitlines())) < 320
        golden("tool_calls/invalid_typed.txt", text)


def test_tools_are_described_by_their_calls() -> None:
    assert list(describe_tools(Corridor()))[1] == "look(): Look around."
