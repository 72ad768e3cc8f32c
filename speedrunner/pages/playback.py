"""Data for an episode's playback: every primitive with its callers, their source, and the world after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from speedrunner.library.definition import read_module
from speedrunner.library.library import Library
from speedrunner.library.rules import InvalidSkill
from speedrunner.pages.shown_calls import cut, describe_result, highlight
from speedrunner.pages.worlds import group_calls
from speedrunner.plain.console import shorten, visible
from speedrunner.store.policies import InvalidPolicy
from speedrunner.store.records import CallNode, Module, Trajectory, apply_hunks
from speedrunner.store.run_data import RunData

ARGUMENT_CHARS, CALL_CHARS, RESULT_CHARS, SOURCE_CHARS = 60, 300, 800, 20_000
"""Most characters of an argument, of a call, of its result, and of a skill's source."""

Json = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
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


def list_steps(trajectory: Trajectory) -> list[Step]:
    """Return all recorded primitives of an episode in order; see `group_calls`."""
    return [
        step
        for turn, calls in enumerate(group_calls(trajectory))
        for module, call in calls
        for step in _walk(turn, module, call, ())
    ]


def _walk(turn: int, module: int, node: CallNode, callers: tuple[CallNode, ...]) -> Iterator[Step]:
    if node.kind == "primitive":
        yield Step(turn, node, callers, module)
    below = (*callers, node)
    for each in node.calls:
        yield from _walk(turn, module, each, below)


def list_modules(run: RunData, trajectory: Trajectory) -> list[Module]:
    """Return the modules of skills that an episode loaded, in order; none if its policy cannot be read."""
    try:
        module = Library(()).of(run.policies.load(trajectory.policy)).module()
    except InvalidPolicy:
        return []
    found = [apply_hunks(module, trajectory.module or [])]
    for step in trajectory.steps:
        if step.load is not None:
            found.append(apply_hunks(found[-1], step.load))
    return found


def make_playback(steps: Sequence[Step], modules: Sequence[Module], pictures: Sequence[str]) -> Json:
    """Return the playback of some steps as plain JSON.

    Its keys: `positions`, one for the start and one for each step, with the number of its `image`, if known;
    `frames`, the calls around them, with the number of the frame `up`; `sources` of the skills; `images`.

    Args:
        pictures: the world at the start and after each step; may end early.
    """
    return _Playback(modules).make(steps, pictures)


class _Playback:
    """Collects what the positions share."""

    def __init__(self, modules: Sequence[Module]) -> None:
        self._modules = modules
        self._frames: dict[int, int] = {}
        self._sources: dict[tuple[int, str], int] = {}
        self._shared: dict[str, list[Any]] = {"frames": [], "sources": []}

    def make(self, steps: Sequence[Step], pictures: Sequence[str]) -> Json:
        start = {"turn": max(steps[0].turn, 1), "call": "", "result": ""}
        positions = [start, *map(self._describe, steps)]
        images = {picture: number for number, picture in enumerate(dict.fromkeys(pictures))}
        for position, picture in zip(positions, pictures, strict=False):
            position["image"] = images[picture]
        return {"positions": positions, "images": [*images], **self._shared}

    def _describe(self, step: Step) -> Json:
        """Return a step without its picture."""
        node = step.node
        return {
            "turn": max(step.turn, 1),
            "frame": self._frame(step.callers, step.module),
            "call": _write_call(node),
            "result": visible(cut(describe_result(node), RESULT_CHARS)),
        } | _mark(node)

    def _frame(self, callers: tuple[CallNode, ...], module: int) -> int | None:
        """Return the number of the innermost call around a step; `None` if the agent called it itself."""
        if not callers:
            return None
        node = callers[-1]
        if id(node) not in self._frames:
            up = self._frame(callers[:-1], module)
            frame = {
                "up": up,
                "call": _write_call(node),
                "source": self._source(node.name, module),
            }
            self._shared["frames"].append(frame | _mark(node))
            self._frames[id(node)] = len(self._shared["frames"]) - 1
        return self._frames[id(node)]

    def _source(self, name: str, module: int) -> int | None:
        """Return the number of a skill's source; `None` if it is unknown."""
        if (module, name) not in self._sources:
            text = _functions(self._modules[module].source).get(name) if module < len(self._modules) else None
            if text is None:
                return None
            lines = str(highlight(text[:SOURCE_CHARS])).rstrip("\n").split("\n")
            self._shared["sources"].append({"name": name, "lines": lines})
            self._sources[module, name] = len(self._shared["sources"]) - 1
        return self._sources[module, name]


def _mark(node: CallNode) -> Json:
    """Return the line that made a call, if it is recorded, and whether the call failed."""
    line = {} if isinstance(node.line, msgspec.UnsetType) else {"line": node.line}
    return line | ({} if node.error is None else {"failed": True})


@lru_cache(maxsize=32)
def _functions(source: str) -> dict[str, str]:
    """Return the sources of a module's functions by name."""
    try:
        return {each.name: each.source for each in read_module(source) if each.kind == "function"}
    except InvalidSkill:
        return {}


def _write_call(node: CallNode) -> str:
    """Return a call in Python syntax with short arguments."""
    given = (f"{name}={shorten(repr(value), ARGUMENT_CHARS)}" for name, value in node.arguments.items())
    return visible(cut(f"{node.name}({', '.join(given)})", CALL_CHARS))
