"""Records tool calls as trees of their calls, within bounds that no skill can exceed.

The worker builds the tree. Primitives are recorded where they run. The skills' process reports which skills
ran around them; the worker accepts only calls of existing skills. Pure computation and refused calls are
recorded up to a fixed number and depth of calls; calls beyond these limits are only counted.

Values and errors are kept up to `CALL_LIMIT` for each tool call. All tool calls of an episode share
`EPISODE_LIMIT`. After it is reached, only the tool calls themselves are recorded, with short results, and the
calls below them are counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from speedrunner.store.records import CallNode
from speedrunner.workers.sandbox.child.values import (
    DEPTH_LIMIT,
    NODE_LIMIT,
    VALUE_LIMIT,
    to_json,
    valid_text,
)

ERROR_LIMIT = 20_000
"""Characters of one recorded error, including its traceback."""

MOST_OMITTED = 10**9
"""Largest number of unreported calls that the child may claim."""

NOT_KEPT = "<not kept: the record is full>"
"""The record of a value or an error after one of the limits."""

CALL_LIMIT = 4_000_000
"""Characters of the values and errors that one tool call may record."""

EPISODE_LIMIT = 16_000_000
"""Characters that the tool calls of one episode may record. Each call below them counts `CALL_CHARS`. A text
counts as its bytes of JSON if these are more than its characters. Readers reject much larger episodes:
`files.RECORD_BYTES`."""

CALL_CHARS = 150
"""Characters that each recorded call counts in addition to its texts, for the rest of its JSON."""

TOOL_CALL_CHARS = 4_000
"""Characters of a tool call's own result or error that are kept for the actor after `EPISODE_LIMIT`."""


@dataclass
class EpisodeRoom:
    """Characters that an episode may still record; negative after the limit is exceeded."""

    left: int = EPISODE_LIMIT


class CallTree:
    """Records one tool call while it runs.

    Args:
        arguments: the model's arguments, bounded by its token limits. They are kept whole, since a replay
            needs them.
        episode: the episode's remaining room, shared by its tool calls.

    Attributes:
        root: the tool call itself.
    """

    def __init__(
        self,
        name: str,
        kind: Literal["primitive", "skill", "tool"],
        arguments: Mapping[str, Any],
        episode: EpisodeRoom,
    ) -> None:
        self._episode = episode
        self._least = max(episode.left - CALL_LIMIT, 0)  # what this call leaves to later ones
        self._nodes = 1
        self.root = CallNode(name, kind, self._arguments(arguments, sys.maxsize))
        self._open = [self.root]  # the recorded calls being executed, outermost first
        self._began = [time.perf_counter()]

    def begin(self, name: str, arguments: Mapping[str, Any], line: int | None = None) -> None:
        """Record that a skill starts below the running call, which calls it in this line."""
        parent = self._open[-1]
        if self._nodes >= NODE_LIMIT or len(self._open) >= DEPTH_LIMIT or self._episode.left <= 0:
            parent.omitted += 1
            return
        self._nodes += 1
        self._episode.left -= CALL_CHARS + len(name)
        node = CallNode(name, "skill", self._arguments(arguments), line=_recorded_line(line))
        parent.calls.append(node)
        self._open.append(node)
        self._began.append(time.perf_counter())

    def end(self, depth: int, result: Any, error: str | None, omitted: int = 0) -> None:
        """Record how the running call at `depth` ended, and with it those below; 0 is the tool call.

        If no call is running at that depth, it was a call that is not recorded.
        """
        if depth >= len(self._open):
            return
        now = time.perf_counter()
        node = self._open[depth]
        node.omitted += min(max(omitted, 0), MOST_OMITTED)  # reported by the child, which may lie
        least = 0 if depth else TOOL_CALL_CHARS  # the actor reads this much
        if error is None:
            node.result = self._plain(result, least)
        else:
            node.error = self._error(error, least)
        for ended, began in zip(self._open[depth:], self._began[depth:], strict=True):
            ended.seconds = now - began
            if ended is not node and error is not None:  # it could not report its own end
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
        line: int | None = None,
    ) -> None:
        """Record a primitive that ran, or was refused, below the running call.

        Args:
            name: the primitive's name.
            arguments: arguments by parameter name.
            result: the primitive's result.
            error: why it was refused; `None` if it ran.
            seconds: time that it took.
            acted: whether it advanced the world.
            line: line of the running skill that called it.
        """
        parent = self._open[-1]
        if acted:
            self.count_action()
        is_over = not acted and (self._nodes >= NODE_LIMIT or len(self._open) >= DEPTH_LIMIT)
        if is_over or self._episode.left <= 0:
            parent.omitted += 1
            return
        self._nodes += not acted
        self._episode.left -= CALL_CHARS + len(name)
        node = CallNode(
            name,
            "primitive",
            self._arguments(arguments),
            actions=int(acted),
            seconds=seconds,
            line=_recorded_line(line),
        )
        if error is None:
            node.result = self._plain(result)
        else:
            node.error = self._error(error)
        parent.calls.append(node)

    def count_action(self) -> None:
        """Add one action to every running call."""
        for node in self._open:
            node.actions += 1

    def _arguments(self, arguments: Mapping[str, Any], least: int = 0) -> dict[str, Any]:
        for name in arguments:
            self._take(len(name), name)
        return {name: self._plain(value, least) for name, value in arguments.items()}

    def _plain(self, value: Any, least: int = 0) -> Any:
        """Return the value to record, of which `least` characters are kept even without room."""
        room = max(min(self._episode.left - self._least, VALUE_LIMIT), least)
        if room <= 0:
            return NOT_KEPT
        plain, size = to_json(value, room)
        self._take(size, plain)
        return plain

    def _error(self, error: str, least: int = 0) -> str:
        limit = ERROR_LIMIT if self._episode.left > self._least else least
        error = valid_text(error) if limit else NOT_KEPT
        if len(error) > limit > 0:
            error = f"{error[:limit]}\n  ... {len(error) - limit} more characters ..."
        self._take(len(error), error)
        return error

    def _take(self, characters: int, plain: Any) -> None:
        self._episode.left -= max(characters, len(msgspec.json.encode(plain)))


def _recorded_line(line: int | None) -> int | msgspec.UnsetType:
    return msgspec.UNSET if line is None else line
