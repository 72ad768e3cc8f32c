"""Pictures of the world after each primitive of a recorded episode, which is replayed for them.

`minigrid` draws BabyAI. Crafter is put together from the textures of `crafter`. This project contains none of
their images.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import envs
from envs import TextEnv
from speedrunner.runs.stored_setup import usable
from speedrunner.store.records import CallNode, Trajectory, Turn
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    from PIL.Image import Image

TILE = 16
"""Side of a tile in pixels; Crafter's textures have this size."""

OUTSIDE = (127, 127, 127)
"""Crafter's color of cells beyond the map."""

CREDITS = {
    "babyai": "Tiles drawn by minigrid (Apache-2.0)",
    "crafter": "Tiles of crafter (MIT, © 2021 Danijar Hafner)",
}
"""The source and licence of an environment's tiles, for the pages that contain them."""


def draw_babyai(env: Any) -> Image:
    """Draw the grid of BabyAI."""
    from PIL import Image

    return Image.fromarray(env.image())


def draw_crafter(env: Any) -> Image:
    """Draw the player's window in Crafter, without its night."""
    from PIL import Image

    rows = env.textures()
    drawn = Image.new("RGBA", (TILE * len(rows[0]), TILE * len(rows)), OUTSIDE)
    for y, row in enumerate(rows):
        for x, cell in enumerate(row):
            for texture in cell.split("."):  # the material, then the creature or thing on it
                if texture != "out":
                    drawn.alpha_composite(_texture(texture), (TILE * x, TILE * y))
    return drawn


@cache
def _texture(name: str) -> Image:
    from crafter import constants, engine
    from PIL import Image

    pixels = engine.Textures(constants.root / "assets").get(name, (TILE, TILE))  # [column, row, color]
    return Image.fromarray(pixels.transpose((1, 0, 2))).convert("RGBA")


DRAWN: dict[str, Callable[[Any], Image]] = {"babyai": draw_babyai, "crafter": draw_crafter}
"""The environments that can be drawn, by `TextEnv.name`."""


def _picture(env: TextEnv) -> str:
    """Return the world as the data URI of a PNG image."""
    content = io.BytesIO()
    DRAWN[env.name](env).convert("RGB").quantize(64).save(content, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def replay_pictures(data: RunData, trajectory: Trajectory, first: int, count: int) -> list[str]:
    """Replay an episode's recorded primitives in a fresh world of this process. Return the world after
    `first` primitives, and after each of the next `count` ones.

    No skill runs. If the replay fails or differs from the record, there is no picture from there on. Only
    environments of `DRAWN` are created.

    Raises:
        StorageError, InvalidConfig: the run's configuration cannot be read.
    """
    settings, found = usable(data, ()).env, list[str]()
    if settings.name not in DRAWN:
        return found
    # If a world or a damaged record raises anything, there is no picture.
    with suppress(Exception), closing(envs.make(settings.name, **settings.options)) as env:
        env.reset(trajectory.task)
        for number, _ in enumerate(_replay(env, trajectory)):
            if number > first + count:
                break
            if number >= first:
                found.append(_picture(env))
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


def _replay(env: TextEnv, trajectory: Trajectory) -> Iterator[None]:
    """Yield at the start and after each primitive, until the world's answers differ from the record."""
    yield
    for number, asked in enumerate(group_calls(trajectory)):
        calls = [call for _, call in asked]
        if number and _is_unknown(trajectory.turns[number - 1], calls):
            return
        for node in (each for call in calls for each in (call, *call.below()) if each.kind == "primitive"):
            if node.error is None and env.call(node.name, **node.arguments) != node.result:
                return
            yield


def _is_unknown(turn: Turn, calls: list[CallNode]) -> bool:
    """Return whether a turn changed the world in a way that is not completely recorded in these calls."""
    if any(node.omitted for call in calls for node in (call, *call.below())):
        return True
    if turn.executed is None:
        return turn.call is not None
    return not calls and (turn.executed.kind != "tool" or bool(turn.executed.calls))
