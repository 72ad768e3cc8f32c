"""Reconstruct the world at each turn of a recorded episode by replaying its primitives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import envs
from envs import TextEnv
from speedrunner.runs.stored_setup import usable
from speedrunner.store.records import CallNode, Trajectory, Turn
from speedrunner.store.run_data import RunData
from speedrunner.view.pictures import PICTURED


def snapshots(data: RunData, trajectory: Trajectory) -> dict[int, dict[str, Any]]:
    """Return `TextEnv.snapshot()` before the first turn (0) and after the call of each turn (1 for the
    first).

    Records contain no snapshots, so the recorded primitives are replayed in a fresh world of this process; no
    skill runs. If a replay fails or differs, there is no snapshot from there on. A turn without an operation
    on the world has the previous snapshot. Only environments of `PICTURED` are created.

    Raises:
        StorageError, InvalidConfig: the run's configuration cannot be read.
    """
    settings, found = usable(data, ()).env, dict[int, dict[str, Any]]()
    if settings.name not in PICTURED:
        return found
    # If a world or a damaged record raises anything, there is no picture.
    with suppress(Exception), closing(envs.make(settings.name, **settings.options)) as env:
        env.reset(trajectory.task)
        for number, state in _states(env, trajectory):
            found[number] = state
        ended = trajectory.outcome
        if len(found) > len(trajectory.turns) and ended is not None and env.outcome().score != ended.score:
            found.clear()  # its calls, which may be wrong, had other results
    return found


def _states(env: TextEnv, trajectory: Trajectory) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the snapshots until the world's answers differ from the record."""
    for number, calls in enumerate(_group_calls_by_turn(trajectory)):
        if number and _is_unknown(trajectory.turns[number - 1], calls):
            return
        if not all(_repeats(env, call) for call in calls) or (state := env.snapshot()) is None:
            return
        yield number, state


def _group_calls_by_turn(trajectory: Trajectory) -> list[list[CallNode]]:
    """Return the calls before the first turn and in each turn; calls that no turn shows belong to the
    previous turn. Ends early if turns are not in the order of their calls."""
    asked: list[list[CallNode]] = [[] for _ in range(len(trajectory.turns) + 1)]
    number = 0
    for step in trajectory.steps:
        if step.call is not None:
            asked[number].append(step.call)
        elif step.turn is not None:
            if step.turn < number:
                return asked[: step.turn + 1]
            number = step.turn + 1
            node = trajectory.turns[step.turn].executed
            if node is not None:
                asked[number].append(node.calls[0] if node.kind == "tool" and node.calls else node)
    return asked


def _is_unknown(turn: Turn, calls: list[CallNode]) -> bool:
    """Return whether a turn changed the world in a way that is not among these calls."""
    if turn.executed is None:
        return turn.call is not None
    return not calls and (turn.executed.kind != "tool" or bool(turn.executed.calls))


def _repeats(env: TextEnv, call: CallNode) -> bool:
    """Replay a call's primitives. Return whether all of them are recorded and have the same results."""
    nodes = [call, *call.below()]
    if any(node.omitted for node in nodes):
        return False
    granted = (node for node in nodes if node.kind == "primitive" and node.error is None)
    return all(env.call(node.name, **node.arguments) == node.result for node in granted)
