"""Trees of calls as pages show them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import msgspec

from speedrunner.agents.reading import result_text, write_call
from speedrunner.store.records import CallNode

CALLS = 500
"""Maximum calls below a turn's call on a page; `speedrunner show` prints all."""


class Shown(msgspec.Struct, frozen=True):
    """One call, or equal calls in a row without calls below them.

    Attributes:
        call: in Python syntax, without its multi-line texts.
        texts: these texts, by parameter.
        came: its return value or error.
        calls: number of calls below it, including those that are not shown.
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
        """Return the number of calls below it that are not shown."""
        return self.calls - sum(each.times * (1 + each.calls) for each in self.below)


def show_calls(node: CallNode) -> Shown:
    """Return a call with those below it, up to the limit of a page."""
    return _show_call(node, iter(range(CALLS)))


def _show_call(node: CallNode, room: Iterator[int], times: int = 1) -> Shown:
    below: list[Shown] = []
    for _, run in groupby(enumerate(node.calls), key=lambda each: _likeness(*each)):
        same = [call for _, call in run]
        if next(room, None) is None:
            break
        below.append(_show_call(same[0], room, len(same)))
    texts = {name: text for name, text in node.arguments.items() if isinstance(text, str) and "\n" in text}
    given = ", ".join(
        f"{name}={'…' if name in texts else repr(each)}" for name, each in node.arguments.items()
    )
    return Shown(
        name=node.name,
        kind=node.kind,
        call=f"{node.name}({given})",
        texts=texts,
        came=describe_result(node),
        failed=node.error is not None,
        times=times,
        actions=node.actions * times,
        below=below,
        calls=_count(node),
    )


def _likeness(place: int, node: CallNode) -> tuple[int, str, str]:
    """Return a key that is equal for calls that are merged; a call with calls below it is never merged."""
    return (
        place + 1 if node.calls or node.omitted else 0,
        write_call(node.name, node.arguments),
        describe_result(node),
    )


def describe_result(node: CallNode) -> str:
    """Return the result of a call, or its error."""
    return result_text(node.result) if node.error is None else node.error


def _count(node: CallNode) -> int:
    return sum(1 + each.omitted for each in node.below()) + node.omitted
