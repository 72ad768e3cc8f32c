"""Trajectories as an inducer and people read them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from envs import Outcome
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents import reading
from speedrunner.agents.actor import actor_view
from speedrunner.sandbox.child.tracebacks import TRACEBACK
from speedrunner.store.records import CallNode, Message, Termination, Trajectory, Turn
from speedrunner.workers.worker_messages import Executed
from tests.speedrunner.run_samples import trajectory

NOOP = CallNode("noop", "primitive", {}, actions=1)


def turn(**changes: Any) -> Turn:
    return Turn(**({"messages": [], "text": "", "usage": Usage(), "seconds": 0.0} | changes))


def call_lines(node: CallNode) -> list[str]:
    return list(reading.call_lines(msgspec.to_builtins(node)))


def turn_lines(number: int, made: Turn, reply: str | None = None) -> list[str]:
    return list(reading.turn_lines(number, msgspec.to_builtins(made), reply))


def trajectory_lines(played: Trajectory) -> list[str]:
    return list(reading.trajectory_lines(msgspec.to_builtins(played)))


def headline(played: Trajectory) -> str:
    return reading.headline(msgspec.to_builtins(played))


class TestCalls:
    def test_what_a_call_called_is_indented_under_it_and_its_result_follows(self) -> None:
        step = CallNode("walk", "primitive", {"steps": 1, "direction": "left"}, result="A wall.")
        look = CallNode("look", "primitive", {}, result="A wall.\nA door.")
        node = CallNode("fetch", "skill", {"thing": "a key"}, result=["a key"], calls=[step, look])
        assert call_lines(node) == [
            "fetch(thing='a key')",
            "  walk(steps=1, direction='left') -> A wall.",
            "  look()",
            "    -> A wall.",
            "    A door.",
            '  -> ["a key"]',
        ]

    def test_errors_stand_where_results_would(self) -> None:
        node = CallNode("go", "skill", {}, error="ValueError: no door\nTraceback:\n  go, line 3")
        assert call_lines(node) == [
            "go()",
            "  error: ValueError: no door",
            "  Traceback:",
            "    go, line 3",
        ]

    def test_what_was_not_recorded_is_said(self) -> None:
        node = CallNode("go", "skill", {}, result="", omitted=12)
        assert call_lines(node) == ["go()", "  [12 further calls were not recorded]", "  -> "]

    def test_a_result_of_nothing_is_not_said_and_equal_moves_in_a_row_are_one_line(self) -> None:
        north = CallNode("move", "primitive", {"to": "north"})
        refused = CallNode("noop", "primitive", {}, error="ActionLimitReached: stopped")
        node = CallNode("rest", "skill", {}, calls=[*[NOOP] * 37, north, NOOP, NOOP, refused])
        assert call_lines(NOOP) == ["noop()"]
        assert call_lines(node) == [
            "rest()",
            "  noop() x37",
            "  move(to='north')",
            "  noop() x2",
            "  noop() error: ActionLimitReached: stopped",
            "  -> None",
        ]


class TestTurns:
    def test_the_thought_comes_before_the_call(self) -> None:
        made = turn(
            reasoning="A door?\nThrough it.",
            call=ToolCall("go", {}),
            executed=CallNode("go", "primitive", {}, result="A hall."),
        )
        assert turn_lines(3, made) == [
            "[3]",
            "  thought: A door?",
            "    Through it.",
            "  go() -> A hall.",
        ]

    @pytest.mark.parametrize("text", ['<tool_call>\n{"name": "go"}', '\n{"name": "go", "arguments": {}}'])
    def test_so_does_what_was_said_beside_it_but_not_the_call_as_text(self, text: str) -> None:
        made = turn(text="Through the door.", call=ToolCall("go", {}), executed=NOOP)
        assert turn_lines(1, made, "") == ["[1]", "  text: Through the door.", "  noop()"]
        made.text = text
        assert turn_lines(1, made, "") == ["[1]", "  noop()"]

    def test_an_answer_without_a_call_is_quoted(self) -> None:
        made = turn(error="the answer is not one tool call", text="Let's\ngo")
        assert turn_lines(1, made) == [
            "[1]",
            "  no valid call: the answer is not one tool call; written: Let's",
            "    go",
        ]

    def test_a_call_that_was_interrupted(self) -> None:
        assert turn_lines(1, turn(call=ToolCall("go", {"far": True}))) == [
            "[1]",
            "  go({'far': True}) was not completed",
        ]


class TestWhatTheActorWasTold:
    """The reply that it read, in full, without what the call's own result says already."""

    @pytest.mark.parametrize(
        ("result", "error", "observation", "free_observation", "told"),
        [
            ("moved", None, "moved", None, []),
            (None, None, None, None, []),
            ("moved", None, "moved", "A kitchen.\nA sink.", ["  reply: A kitchen.", "    A sink."]),
            (["ä"], None, "You see mud.", None, ["  reply: Last observation:", "    You see mud."]),
            (None, None, "You see mud.", None, ["  reply: Last observation:", "    You see mud."]),
            ("", None, "You see mud.", None, ["  reply: Last observation:", "    You see mud."]),
            (None, f"E: no\n{TRACEBACK}\n  f, line 1", None, None, []),
            (None, f"E: no\n{TRACEBACK}\n  f", "mud", None, ["  reply: Last observation:", "    mud"]),
            ("x" * 30, None, None, None, ["  reply: [cut here: 10 of 30 characters are not shown]"]),
        ],
    )
    def test_it_is_told_beyond_the_result(
        self,
        result: object,
        error: str | None,
        observation: str | None,
        free_observation: str | None,
        told: list[str],
    ) -> None:
        node = CallNode("do", "skill", {}, result=result, error=error)
        executed = Executed(
            node=node,
            observation=observation,
            free_observation=free_observation,
            outcome=Outcome(0.0, False, {}),
            actions=0,
            termination=None,
        )
        made = turn(call=ToolCall("do", {}), executed=node)
        shown = turn_lines(1, made, actor_view(executed, 20))
        assert shown[1 + len(call_lines(node)) :] == told

    def test_it_stands_in_the_next_turn_of_the_same_conversation(self) -> None:
        look = CallNode("look", "primitive", {}, result="ok")
        made = [
            turn(call=ToolCall("look", {}), executed=look),
            turn(messages=[Message("user", "Judge.")], executed=look, role="critic", conversation=1),
            turn(messages=[Message("tool", "ok\n\nA kitchen.")], executed=look),
        ]
        assert trajectory_lines(trajectory(turns=made))[1:] == [
            "[1]",
            "  look() -> ok",
            "  reply: A kitchen.",
            "[2]",
            "  look() -> ok",
            "[3]",
            "  look() -> ok",
        ]


class TestEpisodes:
    PLAYED = trajectory(
        turns=[
            turn(
                messages=[
                    Message("system", "Rules."),
                    Message("user", "Your task: dig.\n\nYou see mud."),
                ],
                usage=Usage(90, 80, 12, 8),
                executed=CallNode("dig", "primitive", {}, result="You see a bone.", actions=1),
            ),
            turn(
                messages=[Message("tool", "You see a bone.")],
                usage=Usage(99, 90, 5, 0),
                executed=CallNode("take", "primitive", {}, result="Taken.", actions=1),
            ),
        ]
    )

    def test_it_begins_with_the_task_as_the_actor_was_shown_it_and_without_the_rules(self) -> None:
        assert trajectory_lines(self.PLAYED) == [
            'train/0000: policy v0000, success, score 1 {"steps": 3}, 2 LLM calls, 2 actions,'
            " 17 output tokens; Your task: dig.",
            "Your task: dig.",
            "",
            "You see mud.",
            "[1]",
            "  dig() -> You see a bone.",
            "[2]",
            "  take() -> Taken.",
        ]

    def test_an_episode_without_a_turn(self) -> None:
        assert len(trajectory_lines(trajectory(turns=[]))) == 1

    def test_the_headline_names_the_end_the_score_and_what_it_took(self) -> None:
        half = trajectory(termination=Termination.CALL_LIMIT, outcome=Outcome(0.5, False, {}), policy=12)
        took = "2 LLM calls, 3 actions, 30 output tokens; go"
        assert headline(half) == f"train/0000: policy v0012, call_limit, score 0.5, {took}"
        broken = trajectory(termination=Termination.ENGINE_ERROR, outcome=None)
        assert headline(broken) == f"train/0000: policy v0000, engine_error, unscored, {took}"

    def test_of_the_task_it_shows_the_first_paragraph_in_a_line(self) -> None:
        made = [turn(messages=[Message("user", "Your task: Task description:\nDig.\n\nYou see mud.")])]
        assert headline(trajectory(turns=made)).endswith("; Your task: Task description: Dig.")

    def test_of_a_long_task_it_shows_the_beginning(self) -> None:
        made = [turn(messages=[Message("user", "x" * 1000)])]
        assert headline(trajectory(turns=made)).endswith(f"; {'x' * reading.TASK_CHARS} ...")
