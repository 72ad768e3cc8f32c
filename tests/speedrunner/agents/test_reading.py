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
from speedrunner.store.records import CallNode, Message, Termination, Trajectory, Turn
from speedrunner.workers.sandbox.child.tracebacks import TRACEBACK
from tests.golden_tables import Golden, table
from tests.speedrunner.agents.test_actor import executed
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


def called(name: str, result: Any = None, error: str | None = None, **more: Any) -> CallNode:
    return CallNode(name, "skill", more.pop("arguments", {}), result, error, **more)


STEP = CallNode("walk", "primitive", {"steps": 1, "direction": "left"}, result="A wall.")
LOOK = CallNode("look", "primitive", {}, result="A wall.\nA door.")
NORTH = CallNode("move", "primitive", {"to": "north"})
REFUSED = CallNode("noop", "primitive", {}, error="ActionLimitReached: stopped")
HALL = CallNode("go", "primitive", {}, result="A hall.")
CALLS = {
    "calls of a skill": called("fetch", ["a key"], arguments={"thing": "a key"}, calls=[STEP, LOOK]),
    "an error": called("go", error="ValueError: no door\nTraceback:\n  go, line 3"),
    "calls that were not recorded": called("go", "", omitted=12),
    "a primitive that returns nothing": NOOP,
    "equal calls in a row": called("rest", calls=[*[NOOP] * 37, NORTH, NOOP, NOOP, REFUSED]),
}
TURNS = {
    "a thought": turn(reasoning="A door?\nThrough it.", call=ToolCall("go", {}), executed=HALL),
    "text with the call": turn(text="Through the door.", call=ToolCall("go", {}), executed=NOOP),
    "a call as text": turn(text='<tool_call>\n{"name": "go"}', call=ToolCall("go", {}), executed=NOOP),
    "a call as JSON": turn(text='\n{"name": "go", "arguments": {}}', call=ToolCall("go", {}), executed=NOOP),
    "no call": turn(error="the answer is not one tool call", text="Let's\ngo"),
    "a thought that was cut": turn(error="the answer was cut", reasoning="A door?"),
    "a call that was interrupted": turn(call=ToolCall("go", {"far": True})),
}


def test_calls_and_turns_are_indented_lines(golden: Golden) -> None:
    lines = {name: call_lines(node) for name, node in CALLS.items()}
    lines |= {name: turn_lines(1, made, "") for name, made in TURNS.items()}
    golden("actor/read_turns.txt", table({name: "\n".join(shown) for name, shown in lines.items()}))


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
        made = turn(call=ToolCall("do", {}), executed=node)
        shown = turn_lines(1, made, actor_view(executed(node, observation, free_observation), 20))
        assert shown[1 + len(call_lines(node)) :] == told

    def test_it_stands_in_the_next_turn_of_the_same_conversation(self) -> None:
        look = CallNode("look", "primitive", {}, result="ok")
        made = [
            turn(call=ToolCall("look", {}), executed=look),
            turn(messages=[Message("user", "Judge.")], executed=look, role="critic", conversation=1),
            turn(messages=[Message("tool", "ok\n\nA kitchen.")], executed=look),
        ]
        assert trajectory_lines(trajectory(turns=made, termination=Termination.CALL_LIMIT))[1:] == [
            "[1]",
            "  look() -> ok",
            "  reply: A kitchen.",
            "[2]",
            "  look() -> ok",
            "[3]",
            "  look() -> ok",
        ]

    def test_after_the_last_turn_it_is_the_reply_that_the_actor_did_not_read(self) -> None:
        look = CallNode("look", "primitive", {}, result="ok")
        made = [
            turn(executed=look),
            turn(messages=[Message("tool", "ok")], executed=look, unread="ok\n\nMud."),
        ]
        assert trajectory_lines(trajectory(turns=made, termination=Termination.CALL_LIMIT))[1:] == [
            *("[1]", "  look() -> ok", "[2]", "  look() -> ok", "  reply: Mud."),
        ]


class TestTheCallThatEndedTheEpisode:
    """It is marked, since it returned normally and its skill went on."""

    DIG = CallNode("dig", "skill", {}, result="The episode goes on.", calls=[NOOP, NOOP, NORTH, NOOP])

    def lines(self, node: CallNode, termination: Termination = Termination.FAILURE) -> list[str]:
        return trajectory_lines(trajectory(turns=[turn(executed=node)], termination=termination))[1:]

    def test_it_is_the_last_primitive_that_was_not_refused(self) -> None:
        ended = msgspec.structs.replace(self.DIG, calls=[*self.DIG.calls, REFUSED])
        assert self.lines(ended) == [
            "[1]",
            "  dig()",
            "    noop() x2",
            "    move(to='north')",
            "    noop() [this call ended the episode]",
            "    noop() error: ActionLimitReached: stopped",
            "    -> The episode goes on.",
        ]
        assert self.lines(LOOK)[-1] == "    A door. [this call ended the episode]"

    @pytest.mark.parametrize(
        ("node", "termination"),
        [
            (DIG, Termination.CALL_LIMIT),
            (msgspec.structs.replace(DIG, omitted=3), Termination.FAILURE),
            (CallNode("submit_answer", "tool", {}), Termination.SUBMITTED),
        ],
        ids=["a limit ended it", "it may not be recorded", "the actor ended it"],
    )
    def test_without_one_nothing_is_marked(self, node: CallNode, termination: Termination) -> None:
        assert reading.ENDED not in "\n".join(self.lines(node, termination))


def task(text: str) -> Trajectory:
    return trajectory(turns=[turn(messages=[Message("user", text)])])


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

    def test_it_begins_with_a_headline_and_the_task_and_without_the_rules(self, golden: Golden) -> None:
        half = trajectory(termination=Termination.CALL_LIMIT, outcome=Outcome(0.5, False, {}), policy=12)
        shown = {
            "two turns": "\n".join(trajectory_lines(self.PLAYED)),
            "no turn": "\n".join(trajectory_lines(trajectory(turns=[]))),
            "half the score": headline(half),
            "no score": headline(trajectory(termination=Termination.ENGINE_ERROR, outcome=None)),
            "a task of two paragraphs": headline(task("Your task: Task description:\nDig.\n\nYou see mud.")),
            "a long task": headline(task("x" * 1000)),
        }
        golden("actor/read_episodes.txt", table(shown))
