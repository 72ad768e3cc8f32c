"""A battery of probes that together ask for every kind of tool call.

Each probe is a short message that asks for one call, with the tools that it offers. Whatever the model makes
of the message, its answer must be one call of an offered tool with arguments that the tool's schema allows.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

import msgspec
from typing_extensions import TypedDict  # that of Python 3.11 lacks what pydantic needs

from serving.tokens.tools import ToolSpec

MANY_TOOLS = 60

CODE_TOKENS = 1024
"""Bound of a string that must hold 2 kB of code: tokenizers need one token for about three bytes of it."""

SYSTEM = "You answer every message with one tool call and nothing else."


@dataclass(frozen=True)
class ToolProbe:
    """One probe.

    Attributes:
        kind: what it tries, in a word or two.
        message: what the model is told.
        tools: what it is offered.
        string_tokens: room that its strings need, in tokens; 0 where any will do.
    """

    kind: str
    message: str
    tools: tuple[ToolSpec, ...]
    string_tokens: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation's beginning."""
        return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.message}]


class Point(TypedDict):
    """A place."""

    x: int
    y: float


class Route(TypedDict):
    """Places in a row."""

    name: str
    points: list[Point]
    pace: NotRequired[Literal["walk", "run"]]


def probe_wait() -> None:
    """Do nothing for a while."""


def probe_say(text: str) -> None:
    """Say something, word for word."""


def probe_run(code: str) -> None:
    """Run a Python program."""


def probe_turn(direction: Literal["left", "right", 'into the "old" mill', "über die Brücke", 180]) -> None:
    """Turn around."""


def probe_count(number: int) -> None:
    """Note a whole number."""


def probe_weigh(kilograms: float) -> None:
    """Note a weight."""


def probe_switch(on: bool, blinking: bool) -> None:
    """Switch the lamp."""


def probe_search(
    query: str, limit: int = 10, order: Literal["newest", "oldest"] = "newest", exact: bool = False
) -> None:
    """Search the notes."""


def probe_plan(routes: list[Route], start: Point, grid: list[list[int]], tags: list[str]) -> None:
    """Keep a plan of routes."""


@functools.cache
def battery() -> tuple[ToolProbe, ...]:
    """Twelve probes, one of each kind; the last offers 60 tools."""
    wait, say, run = _tool(probe_wait), _tool(probe_say), _tool(probe_run)
    turn, count, weigh = _tool(probe_turn), _tool(probe_count), _tool(probe_weigh)
    switch, search, plan = _tool(probe_switch), _tool(probe_search), _tool(probe_plan)
    kinds = itertools.cycle((say, turn, count, weigh, switch, search, plan, wait))
    many = tuple(
        msgspec.structs.replace(tool, name=f"{tool.name}_{number:02}")
        for number, tool in zip(range(MANY_TOOLS), kinds, strict=False)
    )
    return (
        ToolProbe("no argument", "Wait.", (wait,)),
        ToolProbe("quotes", """Say: "Don't," she wrote, "type 'C:\\new' or \\"\\" there.\"""", (say, wait)),
        ToolProbe("newlines", "Say a poem of four lines,\n\n\tthe second one indented.", (say, wait)),
        ToolProbe("unicode", "Say: Grüße, 世界! naïve 🎲 Ω — ¿qué?", (say, wait)),
        ToolProbe(
            "2 kB of code",
            "Write a Python program of about sixty lines that plays tic-tac-toe against itself, and run it.",
            (run, wait),
            CODE_TOKENS,
        ),
        ToolProbe("enum", "Turn into the old mill.", (turn,)),
        ToolProbe("integer", "Note the number minus seventeen thousand and four.", (count,)),
        ToolProbe("float", "Note a weight of three and a half grams.", (weigh,)),
        ToolProbe("boolean", "Switch the lamp on; it must not blink.", (switch,)),
        ToolProbe("optional", "Search for red doors and show me the five oldest.", (search,)),
        ToolProbe("nested", "Plan two routes of three points each, on a grid of two by two.", (plan,)),
        ToolProbe(f"{MANY_TOOLS} tools", f"Turn left with {many[-3].name}, or wait.", many),
    )


def _tool(function: Callable[..., Any]) -> ToolSpec:
    signature = inspect.signature(function, eval_str=True)
    return ToolSpec.from_signature(function.__name__, signature, inspect.getdoc(function) or "")
