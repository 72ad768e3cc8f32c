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
            executed=CallNode(name, "primitive", **({"arguments": {}, "result": reply} | changes)),
        )
        for before, (name, reply) in zip(read, steps, strict=False)
    ]


WALL = ("forward", "A wall is in front of you.")


ROOMS = [("explore", f"False\n\nLast observation:\nroom {number}") for number in (0, 1, 2)]
NO_CALL = Turn([Message("tool", WALL[1])], "", Usage(), 0.1, error="no call")


@pytest.mark.parametrize(
    ("what", "turns", "repeats"),
    [
        ("the result of the call before", talk(WALL, WALL, WALL), 2),
        ("another tool", talk(WALL, ("left", WALL[1]), WALL), 0),
        ("another result", talk(WALL, ("forward", "A door is in front of you."), WALL), 0),
        ("other arguments", [*talk(WALL), *talk(WALL, arguments={"steps": 2})], 0),
        ("another reply, where the result shows nothing", talk(*ROOMS, ("submit", ""), result=False), 0),
        ("the same reply", talk(*[ROOMS[1]] * 3, ("submit", ""), result=False), 2),
        ("no result", talk(*[("move_right", "None")] * 5, result=None), 0),
        ("the same error", talk(*[("open", "Error: locked")] * 3, result=None, error="locked"), 2),
        ("no call", [NO_CALL, NO_CALL, NO_CALL], 0),
        ("a series that an answer without a call ends", [*talk(WALL), NO_CALL, *talk(WALL)], 0),
    ],
)
def test_a_call_with_the_result_of_the_call_before_is_a_repeat(
    what: str, turns: list[Turn], repeats: int
) -> None:
    assert count_repeats(turns) == repeats, what


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
