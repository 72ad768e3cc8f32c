"""An episode's playback: every primitive with its callers, their source, and a picture of the world after it.

For the pictures, the episode is replayed. `minigrid` draws BabyAI. Crafter is put together from the textures
of `crafter`. This project contains none of their images.
"""

# mypy: disable-error-code="import-untyped"

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

import envs
from envs import TextEnv
from speedrunner.library.definition import read_module
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.pages.shown_code import cut, describe_result, highlight, list_functions
from speedrunner.plain.console import shorten, visible
from speedrunner.runs.stored_setup import usable
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode, Module, Trajectory, Turn, apply_hunks
from speedrunner.store.run_data import RunData

if TYPE_CHECKING:
    from PIL.Image import Image

ARGUMENT_CHARS, CALL_CHARS, RESULT_CHARS, SOURCE_CHARS = 60, 300, 800, 20_000
"""Most characters of an argument, of a call, of its result, and of a skill's source."""

Json = dict[str, Any]


class PlaybackStep(msgspec.Struct, frozen=True):
    """One primitive that was called.

    Attributes:
        turn: number of its turn, from 1; 0: before the first one.
        node: the call.
        callers: the calls around it, outermost first.
        module: number of the skills' module that it ran with, from 0.
    """

    turn: int
    node: CallNode
    callers: tuple[CallNode, ...]
    module: int


def list_steps(trajectory: Trajectory) -> list[PlaybackStep]:
    """Return all recorded primitives of an episode in order; see `group_calls`."""
    return [
        step
        for turn, calls in enumerate(group_calls(trajectory))
        for module, call in calls
        for step in _walk(turn, module, call, ())
    ]


def _walk(turn: int, module: int, node: CallNode, callers: tuple[CallNode, ...]) -> Iterator[PlaybackStep]:
    if node.kind == "primitive":
        yield PlaybackStep(turn, node, callers, module)
    below = (*callers, node)
    for call in node.calls:
        yield from _walk(turn, module, call, below)


def list_modules(run: RunData, trajectory: Trajectory) -> list[Module]:
    """Return the modules of skills that an episode loaded, in order; none if its policy cannot be read."""
    try:
        module = Library(()).of(run.policies.load(trajectory.policy)).module()
    except InvalidPolicy:
        return []
    modules = [apply_hunks(module, trajectory.module or [])]
    for step in trajectory.steps:
        if step.load is not None:
            modules.append(apply_hunks(modules[-1], step.load))
    return modules


def make_playback(steps: Sequence[PlaybackStep], modules: Sequence[Module], pictures: Sequence[str]) -> Json:
    """Return the playback of some steps as plain JSON.

    Its keys: `positions`, one for the start and one for each step, with the number of its `image`, if known;
    `frames`, the calls around them, with the number of the frame `up`; `sources` of the skills; `images`.

    Args:
        pictures: the world at the start and after each step; may end early.
    """
    frames: dict[int, Json] = {}
    numbers: dict[int, int] = {}
    sources: dict[tuple[int, str], Json] = {}
    positions: list[Json] = [{"turn": max(steps[0].turn, 1), "call": "", "result": ""}]
    for step in steps:
        up = None
        for caller in step.callers:
            if id(caller) not in numbers:
                key = step.module, caller.name
                if key not in sources and (source := _read_source(modules, *key)):
                    sources[key] = source
                frames[id(caller)] = {
                    "up": up,
                    "call": _write_call(caller),
                    "source": [*sources].index(key) if key in sources else None,
                    **_mark(caller),
                }
                numbers[id(caller)] = len(numbers)
            up = numbers[id(caller)]
        result = visible(describe_result(step.node, RESULT_CHARS))
        position = {"turn": max(step.turn, 1), "frame": up, "call": _write_call(step.node), "result": result}
        positions.append(position | _mark(step.node))
    images = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
    for position, picture in zip(positions, pictures, strict=False):
        position["image"] = images[picture]
    shared = {"frames": [*frames.values()], "sources": [*sources.values()], "images": [*images]}
    return {"positions": positions, **shared}


def _read_source(modules: Sequence[Module], number: int, name: str) -> Json | None:
    """Return a skill's name and highlighted lines; `None` if its source is unknown."""
    text = _functions(modules[number].source).get(name) if number < len(modules) else None
    if text is None:
        return None
    return {"name": name, "lines": str(highlight(text[:SOURCE_CHARS])).rstrip("\n").split("\n")}


def _mark(node: CallNode) -> Json:
    """Return the line that made a call, if it is recorded, and whether the call failed."""
    line = {} if isinstance(node.line, msgspec.UnsetType) else {"line": node.line}
    return line | ({"failed": True} if node.failed else {})


@lru_cache(maxsize=32)
def _functions(source: str) -> dict[str, str]:
    """Return the sources of a module's functions by name."""
    try:
        return list_functions(read_module(source))
    except InvalidSkill:
        return {}


def _write_call(node: CallNode) -> str:
    """Return a call in Python syntax with short arguments."""
    given = (f"{name}={shorten(repr(value), ARGUMENT_CHARS)}" for name, value in node.arguments.items())
    return visible(cut(f"{node.name}({', '.join(given)})", CALL_CHARS))


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
    settings, pictures = usable(data).env, list[str]()
    if settings.name not in DRAWN:
        return pictures
    # If a world or a damaged record raises anything, there is no picture.
    with suppress(Exception), closing(envs.make(settings.name, **settings.options)) as env:
        env.reset(trajectory.task)
        for number, _ in enumerate(_replay(env, trajectory)):
            if number > first + count:
                break
            if number >= first:
                pictures.append(_picture(env))
    return pictures


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
        for node in (below for call in calls for below in (call, *call.below()) if below.kind == "primitive"):
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
