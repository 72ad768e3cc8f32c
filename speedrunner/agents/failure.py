"""Why an episode failed, in one line."""

from __future__ import annotations

from itertools import takewhile

from speedrunner.agents.reading import write_call
from speedrunner.plain.console import shorten
from speedrunner.store.episode_summary import list_exchanges
from speedrunner.store.records import Termination, Trajectory, Turn

CALL_CHARS, ERROR_CHARS = 80, 160
"""Most characters of a call and of an error in the line."""

ROUNDS, PERIODS, SHARE = 3, range(1, 5), 0.1
"""A loop repeats one to four calls at least three times, with the same results, in a tenth of the turns."""


def describe_failure(trajectory: Trajectory) -> str:
    """Return why an episode failed in one line: how it ended, then the most likely cause.

    The cause is a loop of equal calls at the end, or else the first error. "" if the episode succeeded.
    """
    outcome, ended = trajectory.outcome, trajectory.termination
    if ended.is_fault:
        return f"Infrastructure error: {_shorten(trajectory.fault, ERROR_CHARS)}"
    if outcome is not None and outcome.success:
        return ""
    cause = describe_loop(trajectory.turns) or _describe_first_error(trajectory.turns)
    return "; ".join(filter(None, (_describe_end(trajectory), cause)))


def find_first_error(turns: list[Turn]) -> int | None:
    """Return the index of the first turn without a valid call or with a failed one; `None`: no error."""
    return next((index for index, turn in enumerate(turns) if _error_of(turn)), None)


def _describe_end(trajectory: Trajectory) -> str:
    turns, outcome = trajectory.turns, trajectory.outcome
    score = 0.0 if outcome is None else outcome.score
    actions = sum(turn.executed.actions for turn in turns if turn.executed is not None)
    last = next((turn for turn in reversed(turns) if turn.executed is not None), None)
    return {
        Termination.CALL_LIMIT: f"Reached the limit of LLM calls after {len(turns)}",
        Termination.ACTION_LIMIT: f"Reached the limit of actions after {actions}",
        Termination.WALL_CLOCK: f"Reached the time limit after {trajectory.seconds:,.0f} s",
        Termination.CONTEXT_OVERFLOW: f"Outgrew the context after {len(turns)} LLM calls",
        Termination.REPEAT_LIMIT: f"Reached the limit of repeated calls after {len(turns)} LLM calls",
        Termination.SUBMITTED: f"Submitted with score {score:.3g}",
        Termination.FAILURE: "The environment ended the episode" + (f" at {_call_of(last)}" if last else ""),
    }.get(trajectory.termination, f"Ended by {trajectory.termination}")


def describe_loop(turns: list[Turn]) -> str:
    """Return the loop of equal calls that an episode ends with, "" if there is none."""
    latest_first = list_exchanges(turns)[::-1]
    for period in PERIODS:
        pairs = zip(latest_first, latest_first[period:], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0].is_same(pair[1]), pairs))
        rounds = (same + period) // period
        if rounds >= ROUNDS and rounds * period >= SHARE * len(turns):
            calls = ", ".join(map(_call_of, turns[-period:]))
            return f"repeated {calls} {rounds} times with the same results, until the end"
    return ""


def _describe_first_error(turns: list[Turn]) -> str:
    index = find_first_error(turns)
    if index is None:
        return ""
    turn = turns[index]
    return f"first error in turn {index + 1}: {_call_of(turn)}: {_shorten(_error_of(turn), ERROR_CHARS)}"


def _call_of(turn: Turn) -> str:
    node = turn.executed or turn.call
    return "no valid call" if node is None else _shorten(write_call(node.name, node.arguments), CALL_CHARS)


def _error_of(turn: Turn) -> str:
    return turn.error or (turn.executed.error if turn.executed is not None else None) or ""


def _shorten(text: str, limit: int) -> str:
    """Return the first line of a text with single spaces, cut to `limit` characters."""
    return shorten(" ".join(text.strip().partition("\n")[0].split()), limit)
