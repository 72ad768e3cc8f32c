"""Recording one tool call as the tree of calls that it made, within bounds that no skill can exceed.

The host builds the tree. Primitives are recorded where they run; which skills ran around them is what the
skills' process says, and can be no more than calls of skills that exist, in a tree of bounded size.
Arguments, results and errors are kept whole while there is room for the tool call, and as short descriptions
afterwards.
Pure computation, and calls that were refused, stop being recorded at a stated number and depth of calls;
those that advance the world have a number of their own. What is not recorded is counted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from speedrunner.sandbox.child.bounds import DEPTH_LIMIT, NODE_LIMIT, TEXT_LIMIT
from speedrunner.sandbox.child.values import DESCRIPTION_LIMIT, to_json, valid_text
from speedrunner.store.records import CallNode

ERROR_LIMIT = 20_000
"""Characters of one recorded error, its traceback included."""

MOST_OMITTED = 10**9
"""What the child may say at most of calls that it did not report."""

NOT_KEPT = "<not kept>"
"""Stands for a value when even the descriptions of a tool call have reached `TEXT_LIMIT`."""


class CallTree:
    """Records one tool call while it runs.

    Attributes:
        root: the tool call itself.
    """

    def __init__(
        self, name: str, kind: Literal["primitive", "skill", "tool"], arguments: Mapping[str, Any]
    ) -> None:
        self._room = TEXT_LIMIT
        self._nodes = 1
        self._action_nodes = 0
        self.root = CallNode(name, kind, self._arguments(arguments))
        self._open = [self.root]  # the recorded calls being executed, outermost first
        self._began = [time.perf_counter()]

    def begin(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Record that a skill begins below the one that is running."""
        parent = self._open[-1]
        if self._nodes >= NODE_LIMIT or len(self._open) >= DEPTH_LIMIT:
            parent.omitted += 1
            return
        self._nodes += 1
        node = CallNode(name, "skill", self._arguments(arguments))
        parent.calls.append(node)
        self._open.append(node)
        self._began.append(time.perf_counter())

    def end(self, depth: int, result: Any, error: str | None, omitted: int = 0) -> None:
        """Record how the running call at a depth ended, and with it those below; 0 is the tool call.

        A depth at which none is running stands for a call that was not recorded.
        """
        if depth >= len(self._open):
            return
        now = time.perf_counter()
        node = self._open[depth]
        node.omitted += min(max(omitted, 0), MOST_OMITTED)  # told by the child, which may lie
        if error is None:
            node.result = self._plain(result)
        elif depth == 0:
            node.error = _shortened(valid_text(error), ERROR_LIMIT)  # what the actor reads, and only one
        else:
            node.error = self._error(error)
        for ended, began in zip(self._open[depth:], self._began[depth:], strict=True):
            ended.seconds = now - began
            if ended is not node and error is not None:  # it did not get to say how it ended
                ended.error = self._error(error)
        del self._open[depth:], self._began[depth:]

    def add(
        self,
        name: str,
        arguments: Mapping[str, Any],
        result: str | None,
        error: str | None,
        *,
        seconds: float,
        acted: bool,
    ) -> None:
        """Record a primitive that ran, or was refused, below the call that is running.

        Args:
            name: of the primitive.
            arguments: by parameter name.
            result: what it returned.
            error: why it was refused; `None` where it ran.
            seconds: that it took.
            acted: whether it advanced the world.
        """
        parent = self._open[-1]
        if acted:
            self.count_action()
            full = self._action_nodes >= NODE_LIMIT
            self._action_nodes += 1
        else:
            full = self._nodes >= NODE_LIMIT or len(self._open) >= DEPTH_LIMIT
            self._nodes += not full
        if full:
            parent.omitted += 1
            return
        node = CallNode(name, "primitive", self._arguments(arguments), actions=int(acted), seconds=seconds)
        if error is None:
            node.result = self._plain(result)
        else:
            node.error = self._error(error)
        parent.calls.append(node)

    def count_action(self) -> None:
        """Add one action to every call that is being executed."""
        for node in self._open:
            node.actions += 1

    def _arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments to record; none when even their names would be too much."""
        kept: dict[str, Any] = {}
        for name, value in arguments.items():
            if self._room < -TEXT_LIMIT:
                break
            self._room -= len(name)
            kept[name] = self._plain(value)
        return kept

    def _plain(self, value: Any) -> Any:
        if self._room < -TEXT_LIMIT:  # even descriptions add up
            return NOT_KEPT
        plain, size = to_json(value, self._room)
        self._room -= size
        return plain

    def _error(self, error: str) -> str:
        if self._room < -TEXT_LIMIT:
            return NOT_KEPT
        error = valid_text(error)
        fits = min(len(error), ERROR_LIMIT) <= self._room
        error = _shortened(error, ERROR_LIMIT if fits else DESCRIPTION_LIMIT)
        self._room -= len(error)
        return error


def _shortened(error: str, limit: int) -> str:
    if len(error) <= limit:
        return error
    return f"{error[:limit]}\n  ... {len(error) - limit} more characters ..."
