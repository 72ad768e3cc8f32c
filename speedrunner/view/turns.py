"""Trees of calls as pages show them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from speedrunner.agents.reading import result_text, written
from speedrunner.store.records import CallNode

CALLS = 500
"""Calls below one of a turn that a page shows; `speedrunner show` prints all."""


class Shown(msgspec.Struct, frozen=True):
    """One call, or equal ones in a row that made none themselves.

    Attributes:
        call: as Python writes it, without its texts of several lines.
        texts: these, by parameter.
        came: what it returned, or its error.
        calls: how many there are below it; those that are not shown are the rest.
    """

    name: str
    kind: str
    call: str
    texts: dict[str, str]
    came: str
    failed: bool
    times: int
    actions: int
    below: list[Shown]
    calls: int

    @property
    def hidden(self) -> int:
        """Calls below it that are not shown."""
        return self.calls - sum(each.times * (1 + each.calls) for each in self.below)


def shown(node: CallNode) -> Shown:
    """A call with those below it, as many as a page shows."""
    return _shown(node, iter(range(CALLS)))


def _shown(node: CallNode, room: Iterator[int], times: int = 1) -> Shown:
    below: list[Shown] = []
    for _, run in groupby(enumerate(node.calls), key=lambda each: _likeness(*each)):
        same = [call for _, call in run]
        if next(room, None) is None:
            break
        below.append(_shown(same[0], room, len(same)))
    texts = {name: text for name, text in node.arguments.items() if isinstance(text, str) and "\n" in text}
    given = ", ".join(
        f"{name}={'…' if name in texts else repr(each)}" for name, each in node.arguments.items()
    )
    return Shown(
        name=node.name,
        kind=node.kind,
        call=f"{node.name}({given})",
        texts=texts,
        came=came(node),
        failed=node.error is not None,
        times=times,
        actions=node.actions * times,
        below=below,
        calls=_count(node),
    )


def _likeness(place: int, node: CallNode) -> tuple[int, str, str]:
    """What is equal in calls that are shown as one: of those that made others, nothing."""
    return (place + 1 if node.calls or node.omitted else 0, written(node.name, node.arguments), came(node))


def came(node: CallNode) -> str:
    """What a call returned, or its error."""
    return result_text(node.result) if node.error is None else node.error


def _count(node: CallNode) -> int:
    return sum(1 + each.omitted for each in node.below()) + node.omitted
