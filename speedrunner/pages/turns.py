"""Trees of calls as pages show them, within bounds that no record can exceed."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import msgspec
from markupsafe import Markup, escape

from speedrunner.agents.reading import result_text, write_call
from speedrunner.config.console import visible
from speedrunner.store.records import CallNode

CALLS = 100
"""Maximum calls below a turn's call on the page of its turn; pages of their own show all."""

ROOM_CHARS = 100_000
"""Characters of calls and results on a page; texts after them are cut to `CUT_CHARS`."""

CUT_CHARS, LONG_CHARS = 200, 80
"""Characters of a cut text; most characters of an argument that is shown within its call."""


@dataclass
class Room:
    """Characters that still fit a page.

    Attributes:
        cut: whether a text was cut.
    """

    chars: int = ROOM_CHARS
    cut: bool = False

    def fit(self, text: str) -> str:
        """Return a text, cut if the page has no room for it."""
        most = max(self.chars, CUT_CHARS)
        self.chars -= min(len(text), most)
        if len(text) <= most:
            return text
        self.cut = True
        return f"{text[:most]} … ({len(text):,} characters)"


class Shown(msgspec.Struct, frozen=True):
    """One call, or equal calls in a row without calls below them.

    Attributes:
        call: in Python syntax, without its long texts.
        texts: these texts, by parameter.
        came: its return value or error.
        calls: number of calls below it, including those that are not shown.
        unrecorded: number of calls directly below it that are not in the record.
        is_cut: whether recorded calls below it are not shown.
    """

    name: str
    kind: str
    call: str
    texts: dict[str, Markup]
    came: str
    failed: bool
    times: int
    actions: int
    below: list[Shown]
    calls: int
    unrecorded: int
    is_cut: bool

    @property
    def hidden(self) -> int:
        """Return the number of calls below it that are not shown."""
        return self.calls - sum(each.times * (1 + each.calls) for each in self.below)


def show_calls(node: CallNode, room: Room | None = None) -> Shown:
    """Return a call with those below it, up to the limits of a page."""
    return _show_call(node, room or Room(), iter(range(CALLS)), _count_calls(node))


def show_call(node: CallNode, room: Room) -> Shown:
    """Return a call without those below it."""
    return _show(node, room, [], 1, 0, False)


def highlight(text: str) -> Markup:
    """Return a text as HTML, with syntax highlighting if it is Python."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return escape(visible(text))
    return Markup(highlight(visible(text), PythonLexer(), HtmlFormatter(nowrap=True)))


def write_call_without(texts: Collection[str], name: str, arguments: Mapping[str, object]) -> str:
    """Return a call in Python syntax, without the arguments `texts`, which are shown elsewhere."""
    given = (f"{each}={'…' if each in texts else repr(value)}" for each, value in arguments.items())
    return f"{name}({', '.join(given)})"


def describe_result(node: CallNode) -> str:
    """Return the result of a call, or its error."""
    return result_text(node.result) if node.error is None else node.error


def _show_call(
    node: CallNode, room: Room, left: Iterator[int], counts: dict[int, int], times: int = 1
) -> Shown:
    below: list[Shown] = []
    is_cut = False
    for _, run in groupby(enumerate(node.calls), key=lambda each: _likeness(*each)):
        if next(left, None) is None:
            is_cut = True
            break
        same = [call for _, call in run]
        below.append(_show_call(same[0], room, left, counts, len(same)))
    is_cut = is_cut or any(each.is_cut for each in below)
    return _show(node, room, below, times, counts[id(node)], is_cut)


def _show(node: CallNode, room: Room, below: list[Shown], times: int, calls: int, is_cut: bool) -> Shown:
    texts = {
        name: value if isinstance(value, str) and "\n" in value else repr(value)
        for name, value in node.arguments.items()
        if _is_long(value)
    }
    return Shown(
        name=node.name,
        kind=node.kind,
        call=room.fit(write_call_without(texts, node.name, node.arguments)),
        texts={name: highlight(room.fit(text)) for name, text in texts.items()},
        came=room.fit(describe_result(node)),
        failed=node.error is not None,
        times=times,
        actions=node.actions * times,
        below=below,
        calls=calls,
        unrecorded=node.omitted,
        is_cut=is_cut,
    )


def _is_long(value: Any) -> bool:
    return len(repr(value)) > LONG_CHARS or (isinstance(value, str) and "\n" in value)


def _likeness(place: int, node: CallNode) -> tuple[int, str, str]:
    """Return a key that is equal for calls that are merged; a call with calls below it is never merged."""
    return (
        place + 1 if node.calls or node.omitted else 0,
        write_call(node.name, node.arguments),
        describe_result(node),
    )


def _count_calls(node: CallNode) -> dict[int, int]:
    """Return the number of calls below each call of a tree, unrecorded ones included, by its id."""
    counts: dict[int, int] = {}
    for each in reversed([node, *node.below()]):
        counts[id(each)] = each.omitted + sum(1 + counts[id(below)] for below in each.calls)
    return counts
