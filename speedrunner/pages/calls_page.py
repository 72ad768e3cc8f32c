"""The pages with all recorded calls of one turn, in the order in which they started."""

from __future__ import annotations

from collections.abc import Iterator

from speedrunner.agents.reading import write_call
from speedrunner.pages.episode_page import ViewedEpisode
from speedrunner.pages.pages import Context, NotFound, heading, turn_link
from speedrunner.pages.turns import Room, describe_result, show_call
from speedrunner.store.records import CallNode
from speedrunner.store.run_data import RunData

PAGE_CALLS, PAGE_CHARS = 500, 150_000
"""Most calls on one page, and characters of calls and results after which a page ends."""

DEEPEST = 12
"""Levels of calls that are indented further than the level before."""


def calls_page(run: RunData, seen: ViewedEpisode, turn: int, page: int) -> Context:
    """Return one page of a turn's calls. Raises `NotFound`."""
    turns = seen.trajectory.turns
    executed = turns[turn - 1].executed if turn <= len(turns) else None
    if executed is None:
        raise NotFound("the turn has no calls")
    pages = list(_split(list(_walk(executed))))
    if page > len(pages):
        raise NotFound(f"it has {len(pages)} pages")
    first, calls = pages[page - 1]
    room = Room(PAGE_CHARS)
    shown = [(min(depth, DEEPEST), show_call(node, room)) for depth, node in calls]
    return {
        **heading(run),
        "trajectory": seen.trajectory,
        "number": turn,
        "back": turn_link(turn),
        "first": first,
        "calls": shown,
        "count": sum(len(calls) for _, calls in pages),
        "page": page,
        "pages": len(pages),
    }


def _walk(root: CallNode) -> Iterator[tuple[int, CallNode]]:
    """Yield each call with its depth."""
    waiting = [(0, root)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting += [(depth + 1, each) for each in reversed(node.calls)]


def _split(calls: list[tuple[int, CallNode]]) -> Iterator[tuple[int, list[tuple[int, CallNode]]]]:
    """Yield the calls of each page, after the number of its first call."""
    first, chars = 0, 0
    for at, (_, node) in enumerate(calls):
        took = len(write_call(node.name, node.arguments)) + len(describe_result(node))
        if at - first >= PAGE_CALLS or (at > first and chars + took > PAGE_CHARS):
            yield first + 1, calls[first:at]
            first, chars = at, 0
        chars += took
    yield first + 1, calls[first:]
