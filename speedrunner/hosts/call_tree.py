"""Recording one tool call as the tree of calls that it made, within bounds that no skill can exceed.

The host builds the tree. Primitives are recorded where they run; which skills ran around them is what the
skills' process says, and can be no more than calls of skills that exist, in a tree of bounded size. Arguments
and results are kept whole while there is room for the tool call, and as short descriptions afterwards; pure
computation stops being recorded at a stated number and depth of calls. Calls that advance the world are
always recorded.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from speedrunner.records import CallNode
from speedrunner.sandbox.child.bounds import DEPTH_LIMIT, NODE_LIMIT, TEXT_LIMIT
from speedrunner.sandbox.child.values import to_json, valid_text

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
        self.root = CallNode(name, kind, self._arguments(arguments))
        self._open = [self.root]  # the recorded calls being executed, outermost first
        self._began = [time.perf_counter()]

    def begin(
        self,
        name: str,
        kind: Literal["primitive", "skill"],
        arguments: Mapping[str, Any],
        *,
        always: bool = False,
    ) -> int | None:
        """Record that a call begins below the one that is running.

        Args:
            name: of the call.
            kind: of the call.
            arguments: by parameter name.
            always: record it beyond the limits, too.

        Returns:
            Its depth, for `end`; `None` when it is counted only.
        """
        parent = self._open[-1]
        if not always and (self._nodes >= NODE_LIMIT or len(self._open) >= DEPTH_LIMIT):
            parent.omitted += 1
            return None
        self._nodes += 1
        node = CallNode(name, kind, self._arguments(arguments))
        parent.calls.append(node)
        self._open.append(node)
        self._began.append(time.perf_counter())
        return len(self._open) - 1

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
        else:
            error = valid_text(error)
            if len(error) > ERROR_LIMIT:
                error = f"{error[:ERROR_LIMIT]}\n  ... {len(error) - ERROR_LIMIT} more characters ..."
            node.error = error
        for ended, began in zip(self._open[depth:], self._began[depth:], strict=True):
            ended.seconds = now - began
            if ended is not node:  # it did not get to say how it ended
                ended.error = error
        del self._open[depth:], self._began[depth:]

    def count_action(self) -> None:
        """Add one action to every call that is being executed."""
        for node in self._open:
            node.actions += 1

    def _arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._plain(value) for name, value in arguments.items()}

    def _plain(self, value: Any) -> Any:
        if self._room < -TEXT_LIMIT:  # even descriptions add up
            return NOT_KEPT
        plain, size = to_json(value, self._room)
        self._room -= size
        return plain
