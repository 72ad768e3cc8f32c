"""Trajectories as an inducer and people read them."""

from __future__ import annotations

from envs import Outcome
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.texts import call_lines, headline, trajectory_lines, turn_lines
from speedrunner.store.records import CallNode, Ending, Message, Turn
from tests.speedrunner.run_samples import trajectory


def turn(**changes: object) -> Turn:
    return Turn(**({"messages": [], "text": "", "usage": Usage(), "seconds": 0.0} | changes))  # type: ignore[arg-type]


class TestCalls:
    def test_what_a_call_called_is_indented_under_it_and_its_result_follows(self) -> None:
        step = CallNode("walk", "primitive", {"steps": 1, "direction": "left"}, result="A wall.\nA door.")
        node = CallNode("fetch", "skill", {"thing": "a key"}, result=["a key"], calls=[step, step])
        assert list(call_lines(node)) == [
            "fetch(thing='a key')",
            "  walk(steps=1, direction='left')",
            "    -> A wall.",
            "    A door.",
            "  walk(steps=1, direction='left')",
            "    -> A wall.",
            "    A door.",
            "  -> ['a key']",
        ]

    def test_errors_stand_where_results_would(self) -> None:
        node = CallNode("go", "skill", {}, error="ValueError: no door\nTraceback:\n  go, line 3")
        assert list(call_lines(node)) == [
            "go()",
            "  error: ValueError: no door",
            "  Traceback:",
            "    go, line 3",
        ]

    def test_what_was_not_recorded_is_said(self) -> None:
        node = CallNode("go", "skill", {}, result="", omitted=12)
        assert list(call_lines(node)) == ["go()", "  [12 further calls were not recorded]", "  -> "]

    def test_a_result_of_nothing(self) -> None:
        assert list(call_lines(CallNode("go", "skill", {}))) == ["go()", "  -> None"]


class TestTurns:
    def test_the_thought_comes_before_the_call(self) -> None:
        made = turn(
            reasoning="A door?\nThrough it.",
            call=ToolCall("go", {}),
            executed=CallNode("go", "primitive", {}, result="A hall."),
        )
        assert list(turn_lines(3, made)) == [
            "[3]",
            "  thought: A door?",
            "  thought: Through it.",
            "  go()",
            "    -> A hall.",
        ]

    def test_an_answer_without_a_call_is_quoted(self) -> None:
        made = turn(error="the answer is not one tool call", text="Let's\ngo")
        assert list(turn_lines(1, made)) == [
            "[1]",
            '  no valid call: the answer is not one tool call; written: "Let\'s\\ngo"',
        ]

    def test_a_call_that_was_interrupted(self) -> None:
        assert list(turn_lines(1, turn(call=ToolCall("go", {"far": True})))) == [
            "[1]",
            "  go({'far': True}) was not completed",
        ]


class TestEpisodes:
    def test_it_begins_with_the_task_as_the_actor_was_shown_it_and_without_the_rules(self) -> None:
        played = trajectory(
            turns=[
                turn(
                    messages=[
                        Message("system", "Rules."),
                        Message("user", "Your task: dig.\n\nYou see mud."),
                    ],
                    executed=CallNode("dig", "primitive", {}, result="You see a bone."),
                ),
                turn(
                    messages=[Message("tool", "You see a bone.")],
                    executed=CallNode("take", "primitive", {}, result="Taken."),
                ),
            ]
        )
        assert list(trajectory_lines(played)) == [
            "train/0000: policy v0000, success, score 1, 2 LLM calls",
            "Your task: dig.",
            "",
            "You see mud.",
            "[1]",
            "  dig()",
            "    -> You see a bone.",
            "[2]",
            "  take()",
            "    -> Taken.",
        ]

    def test_an_episode_without_a_turn(self) -> None:
        assert len(list(trajectory_lines(trajectory(turns=[])))) == 1

    def test_the_headline_names_the_end_and_the_score(self) -> None:
        half = trajectory(ending=Ending.CALL_LIMIT, outcome=Outcome(0.5, False, {}), policy=12)
        assert headline(half) == "train/0000: policy v0012, call_limit, score 0.5, 2 LLM calls"
        broken = trajectory(ending=Ending.ENGINE_ERROR, outcome=None)
        assert headline(broken) == "train/0000: policy v0000, engine_error, unscored, 2 LLM calls"
