"""Reconstruct the world after each primitive of a recorded episode by replaying it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import envs
from envs import TextEnv
from speedrunner.pages.pictures import Picture, draw_babyai, draw_crafter
from speedrunner.runs.stored_setup import usable
from speedrunner.store.records import CallNode, Trajectory, Turn
from speedrunner.store.run_data import RunData

STEPS = 20_000
"""Primitives of an episode with a picture each."""

DRAWN: dict[str, Callable[[Any], Picture]] = {
    "babyai": lambda env: draw_babyai(env.snapshot()),
    "crafter": lambda env: draw_crafter(env.snapshot(), env.textures()),
}
"""The environments that can be drawn, by `TextEnv.name`."""


def replay_pictures(data: RunData, trajectory: Trajectory) -> list[Picture]:
    """Replay an episode's recorded primitives in a fresh world of this process. Return the world at the start
    and after each primitive, up to `STEPS`.

    No skill runs. If the replay fails or differs from the record, there is no picture from there on. Only
    environments of `DRAWN` are created.

    Raises:
        StorageError, InvalidConfig: the run's configuration cannot be read.
    """
    settings, found = usable(data, ()).env, list[Picture]()
    if settings.name not in DRAWN:
        return found
    # If a world or a damaged record raises anything, there is no picture.
    with suppress(Exception), closing(envs.make(settings.name, **settings.options)) as env:
        env.reset(trajectory.task)
        found.append(DRAWN[env.name](env))
        ended = trajectory.outcome
        if _replay(env, trajectory, found) and ended is not None and env.outcome().score != ended.score:
            return []  # its calls, which may be wrong, had other results
    return found


def group_calls(trajectory: Trajectory) -> list[list[tuple[int, CallNode]]]:
    """Return the calls on the world before the first turn and in each turn, each with the number of modules
    that the episode had loaded before. Calls that no turn shows belong to the previous turn. Ends early if
    turns are not in the order of their calls."""
    asked: list[list[tuple[int, CallNode]]] = [[] for _ in range(len(trajectory.turns) + 1)]
    number = module = 0
    for step in trajectory.steps:
        if step.load is not None:
            module += 1
        elif step.call is not None:
            asked[number].append((module, step.call))
        elif step.turn is not None:
            if step.turn < number:
                return asked[: step.turn + 1]
            number = step.turn + 1
            node = trajectory.turns[step.turn].executed
            if node is not None:
                asked[number].append((module, node.calls[0] if node.kind == "tool" and node.calls else node))
    return asked


def _replay(env: TextEnv, trajectory: Trajectory, found: list[Picture]) -> bool:
    """Add the pictures until the world's answers differ from the record. Return whether none differed."""
    picture = found[0]
    for number, asked in enumerate(group_calls(trajectory)):
        calls = [call for _, call in asked]
        if number and _is_unknown(trajectory.turns[number - 1], calls):
            return False
        for node in (each for call in calls for each in (call, *call.below()) if each.kind == "primitive"):
            if node.error is None:
                if env.call(node.name, **node.arguments) != node.result:
                    return False
                picture = DRAWN[env.name](env)
            if len(found) <= STEPS:
                found.append(picture)
    return True


def _is_unknown(turn: Turn, calls: list[CallNode]) -> bool:
    """Return whether a turn changed the world in a way that is not completely recorded in these calls."""
    if any(node.omitted for call in calls for node in (call, *call.below())):
        return True
    if turn.executed is None:
        return turn.call is not None
    return not calls and (turn.executed.kind != "tool" or bool(turn.executed.calls))
