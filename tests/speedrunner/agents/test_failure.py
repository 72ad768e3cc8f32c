"""One line says why an episode failed."""

from __future__ import annotations

from typing import Any

import pytest

from envs import Outcome
from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.agents.failure import describe_failure, find_first_error
from speedrunner.store.records import CallNode, Message, Termination, Trajectory, Turn
from tests.speedrunner.run_samples import trajectory


def called(name: str, result: Any = None, error: str | None = None, **arguments: Any) -> Turn:
    """Return a turn that called a primitive."""
    node = CallNode(name, "primitive", arguments, result, error, actions=1)
    return Turn([], "", Usage(), 0.1, call=ToolCall(name, arguments), executed=node)


def without_call(problem: str) -> Turn:
    return Turn([], "", Usage(), 0.1, error=problem)


def failed(*turns: Turn, by: Termination = Termination.CALL_LIMIT, **changes: Any) -> Trajectory:
    return trajectory(turns=[*turns], termination=by, **({"outcome": Outcome(0.0, False, {})} | changes))


STEPS = [called("go", result=f"room {number}", to=number) for number in range(4)]


@pytest.mark.parametrize("by", [Termination.SUCCESS, Termination.SUBMITTED, Termination.CALL_LIMIT])
def test_a_success_has_no_failure_whatever_ended_it(by: Termination) -> None:
    assert describe_failure(trajectory(termination=by)) == ""


@pytest.mark.parametrize(
    ("by", "line"),
    [
        (Termination.CALL_LIMIT, "Reached the limit of LLM calls after 4"),
        (Termination.ACTION_LIMIT, "Reached the limit of actions after 4"),
        (Termination.WALL_CLOCK, "Reached the time limit after 1,801 s"),
        (Termination.CONTEXT_OVERFLOW, "Outgrew the context after 4 LLM calls"),
        (Termination.REPEAT_LIMIT, "Reached the limit of repeated calls after 4 LLM calls"),
        (Termination.SUBMITTED, "Submitted with score 0.25"),
        (Termination.FAILURE, "The environment ended the episode at go(to=3)"),
    ],
)
def test_each_ending_is_named_with_its_figure(by: Termination, line: str) -> None:
    assert describe_failure(failed(*STEPS, by=by, seconds=1801.2, outcome=Outcome(0.25, False, {}))) == line


def test_an_infrastructure_error_shows_the_first_line_of_its_error() -> None:
    lost = failed(*STEPS, by=Termination.ENGINE_ERROR, outcome=None, error="engine: no answer\n\nTraceback")
    assert describe_failure(lost) == "Infrastructure error: engine: no answer"


def test_the_first_error_follows_the_ending_without_its_traceback() -> None:
    broken = called("fetch", error="ValueError: no door (in fetch, line 3)\nTraceback: ...", thing="a key")
    played = failed(*STEPS, broken, without_call("no call"))
    assert find_first_error(played.turns) == 4
    assert describe_failure(played) == (
        "Reached the limit of LLM calls after 6; first error in turn 5: fetch(thing='a key'): "
        "ValueError: no door (in fetch, line 3)"
    )


def test_an_answer_without_a_valid_call_is_an_error_too() -> None:
    played = failed(without_call("no call"), *STEPS, by=Termination.FAILURE)
    assert describe_failure(played).endswith("; first error in turn 1: no valid call: no call")


@pytest.mark.parametrize(
    ("loop", "text"),
    [
        ([called("left")] * 3, "repeated left() 3 times"),
        ([called("left"), called("right")] * 4, "repeated left(), right() 4 times"),
        ([without_call("no call")] * 5, "repeated no valid call 5 times"),
    ],
)
def test_a_loop_at_the_end_is_the_cause_rather_than_an_earlier_error(loop: list[Turn], text: str) -> None:
    played = failed(called("go", error="no"), *STEPS, *loop)
    assert describe_failure(played).endswith(f"; {text} with the same results, until the end")


@pytest.mark.parametrize(
    "turns",
    [
        [called("left")] * 2,
        [*[called("left")] * 5, STEPS[0]],
        [called("look", result=f"step {number}") for number in range(9)],
        [*STEPS * 10, *[called("left")] * 3],
    ],
    ids=["too short", "left again", "other results", "a small part"],
)
def test_equal_calls_are_no_loop_if_they_are_few_or_end_or_give_other_results(turns: list[Turn]) -> None:
    assert "repeated" not in describe_failure(failed(*turns))


def test_actions_that_return_nothing_are_no_loop() -> None:
    walk = [called("move_right") for _ in range(5)]
    for turn in walk[1:]:
        turn.messages = [Message("tool", "None")]
    assert "repeated" not in describe_failure(failed(*walk))


def test_the_line_stays_one_short_line_whatever_the_call_holds() -> None:
    code = "\n".join(["print('a long program')"] * 1000)
    line = describe_failure(failed(called("run", error=f"{'x' * 5000}\nmore", code=code)))
    assert "\n" not in line
    assert len(line) < 350


def test_an_episode_without_turns_is_described() -> None:
    line = describe_failure(failed(by=Termination.CONTEXT_OVERFLOW))
    assert line == "Outgrew the context after 0 LLM calls"
