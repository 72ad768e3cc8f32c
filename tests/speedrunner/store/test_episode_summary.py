"""An episode's row, and which of its calls repeat the call before them."""

from __future__ import annotations

from typing import Any

import pytest

from envs import Outcome
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.store.episode_summary import count_repeats, list_exchanges, summarize_episode
from speedrunner.store.records import CallNode, EpisodeRow, Message, Termination, Turn
from tests.speedrunner.run_samples import TASK, trajectory


def talk(*steps: tuple[str, str], conversation: int = 0, **changes: Any) -> list[Turn]:
    """Return the turns of a conversation, from its calls and their replies."""
    read = ["Do it.", *(reply for _, reply in steps)]
    return [
        Turn(
            [Message("tool", before)],
            "",
            Usage(),
            0.1,
            conversation=conversation,
            call=ToolCall(name, {}),
            executed=CallNode(name, "primitive", {}, **({"result": reply} | changes)),
        )
        for before, (name, reply) in zip(read, steps, strict=False)
    ]


WALL = ("forward", "A wall is in front of you.")


def test_a_call_with_the_result_of_the_call_before_is_a_repeat() -> None:
    assert count_repeats(talk(WALL, WALL, WALL)) == 2


@pytest.mark.parametrize(
    ("second", "what"),
    [
        (("left", WALL[1]), "another tool"),
        (("forward", "A door is in front of you."), "another result"),
    ],
)
def test_other_calls_and_other_results_are_no_repeats(second: tuple[str, str], what: str) -> None:
    assert count_repeats(talk(WALL, second, WALL)) == 0, what


def test_other_arguments_are_no_repeat() -> None:
    turns = talk(WALL, WALL)
    assert turns[1].executed is not None
    turns[1].executed.arguments = {"steps": 2}
    assert count_repeats(turns) == 0


def test_the_reply_counts_where_the_result_does_not_show_the_world() -> None:
    walk = [("explore", f"False\n\nLast observation:\nroom {number}") for number in range(3)]
    assert count_repeats(talk(*walk, ("submit", ""), result=False)) == 0
    stuck = [("explore", "False\n\nLast observation:\nroom 1")] * 3
    assert count_repeats(talk(*stuck, ("submit", ""), result=False)) == 2


def test_a_call_that_returns_nothing_does_not_repeat_one() -> None:
    assert count_repeats(talk(*[("move_right", "None")] * 5, result=None)) == 0


def test_an_equal_error_is_an_equal_result() -> None:
    refused = [("open", "Error: it is locked")] * 3
    assert count_repeats(talk(*refused, result=None, error="it is locked")) == 2


def test_answers_without_a_call_do_not_count_and_end_a_series() -> None:
    none = Turn([Message("tool", WALL[1])], "", Usage(), 0.1, error="no call")
    assert count_repeats([none, none, none]) == 0
    first, second = talk(WALL, WALL)
    assert count_repeats([first, none, second]) == 0


def test_each_conversation_is_compared_with_itself() -> None:
    one, other = talk(WALL, WALL), talk(WALL, WALL, conversation=1)
    mixed = [one[0], other[0], one[1], other[1]]
    assert count_repeats(mixed) == 2
    assert [each.reply for each in list_exchanges(mixed)] == [WALL[1], WALL[1], None, None]


def test_every_count_of_a_row():
    assert summarize_episode(trajectory("test/0050/3", attempt=2), "test", 50) == EpisodeRow(
        episode="test/0050/3",
        phase="test",
        checkpoint=50,
        task=TASK,
        policy=0,
        attempt=2,
        termination=Termination.SUCCESS,
        score=1.0,
        success=True,
        llm_calls=2,
        actions=3,
        skill_calls=1,
        invalid_calls=1,
        usage=Usage(230, 180, 30, 5),
        seconds=1.5,
        repeated_calls=0,
    )


def test_a_fault_of_ours_is_unscored_and_not_zero():
    row = summarize_episode(
        trajectory(termination=Termination.ENGINE_ERROR, outcome=None, error="gone"), "train", 0
    )
    assert row.score is None
    assert row.success is None
    assert row.llm_calls == 2


def test_a_failure_is_scored():
    row = summarize_episode(
        trajectory(termination=Termination.FAILURE, outcome=Outcome(0.25, False, {})), "train", 0
    )
    assert (row.score, row.success) == (0.25, False)
