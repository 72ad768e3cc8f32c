"""One line says why an episode failed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from envs import Outcome
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.texts import describe_failure, describe_skill_calls, find_first_error
from speedrunner.store.records import EPISODE_ENDS, CallNode, Message, Termination, Trajectory, Turn
from tests.golden_tables import Golden, table
from tests.speedrunner.run_samples import trajectory


def called(name: str, result: Any = None, error: str | None = None, **arguments: Any) -> Turn:
    """Return a turn that called a primitive."""
    node = CallNode(name, "primitive", arguments, result, error, actions=1)
    return Turn([], "", Usage(), 0.1, call=ToolCall(name, arguments), executed=node)


def without_call(problem: str) -> Turn:
    return Turn([], "", Usage(), 0.1, error=problem)


def failed(*turns: Turn, by: Termination = Termination.CALL_LIMIT, **changes: Any) -> Trajectory:
    return trajectory(turns=[*turns], termination=by, **({"outcome": Outcome(0.0, False, {})} | changes))


def without_reply(name: str) -> Turn:
    """Return a turn whose call returned nothing, after another one that did."""
    return msgspec.structs.replace(called(name), messages=[Message("tool", "None")])


STEPS = [called("go", result=f"room {number}", to=number) for number in range(4)]


BROKEN = called("fetch", error="ValueError: no door (in fetch, line 3)\nTraceback: ...", thing="a key")
WITHOUT = without_call("no call")
LOST = {"by": Termination.ENGINE_ERROR, "outcome": None, "error": "engine: no answer\n\nTraceback"}


def test_a_failure_is_told_by_its_end_and_its_first_error_or_its_loop(golden: Golden) -> None:
    ends = (
        *(Termination.CALL_LIMIT, Termination.ACTION_LIMIT, Termination.WALL_CLOCK),
        *(Termination.CONTEXT_OVERFLOW, Termination.REPEAT_LIMIT, Termination.SUBMITTED, Termination.FAILURE),
    )
    after_error = (called("go", error="no"), *STEPS)
    played = {
        **{by.value: failed(*STEPS, by=by, seconds=1801.2, outcome=Outcome(0.25, False, {})) for by in ends},
        "an infrastructure error": failed(*STEPS, **LOST),
        "an episode without turns": failed(by=Termination.CONTEXT_OVERFLOW),
        "a skill's error": failed(*STEPS, BROKEN, WITHOUT),
        "an invalid call": failed(WITHOUT, *STEPS, by=Termination.FAILURE),
        "a loop of one call": failed(*after_error, *[called("left")] * 3),
        "a loop of two calls": failed(*after_error, *[called("left"), called("right")] * 4),
        "a loop of invalid calls": failed(*after_error, *[WITHOUT] * 5),
    }
    golden(
        "actor/failed_episodes.txt", table({name: describe_failure(each) for name, each in played.items()})
    )
    assert find_first_error(played["a skill's error"].turns) == 4


@pytest.mark.parametrize(
    "turns",
    [
        [called("left")] * 2,
        [*[called("left")] * 5, STEPS[0]],
        [called("look", result=f"step {number}") for number in range(9)],
        [*STEPS * 10, *[called("left")] * 3],
        [called("left"), *[without_reply("left")] * 4],
    ],
    ids=["too short", "left again", "other results", "a small part", "nothing returned"],
)
def test_equal_calls_are_no_loop_if_they_are_few_or_end_or_give_other_results(turns: list[Turn]) -> None:
    assert "repeated" not in describe_failure(failed(*turns))


def test_skills_are_counted_with_their_failures_which_the_end_of_an_episode_is_not() -> None:
    errors = None, "ValueError: no door", "EpisodeEnded: stopped", "ActionLimitReached: stopped", None
    nodes = [
        CallNode("fetch", "skill", {}, error=error, calls=[CallNode("_go", "skill", {})]) for error in errors
    ]
    nodes[-1] = CallNode("walk", "skill", {}, error="CallActionLimitReached: stopped")
    turns = [Turn([], "", Usage(), 0.1, executed=node) for node in nodes]
    assert describe_skill_calls([*STEPS, *turns]) == "skills: fetch x4 (1 failed), walk x1 (1 failed)"
    assert describe_skill_calls([*STEPS, WITHOUT]) == ""


@pytest.mark.parametrize("end", EPISODE_ENDS)
def test_a_call_that_the_end_of_the_episode_stopped_is_no_error(end: str) -> None:
    turns = [*STEPS, called("fetch", error=f"{end} stopped")]
    assert find_first_error(turns) is None
    assert "first error" not in describe_failure(failed(*turns, by=Termination.ACTION_LIMIT))
    assert find_first_error([*turns, WITHOUT]) == len(turns)
