"""Tools of agents outside episodes, made from typed Python methods."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence

from serving.tokens.tools import ToolSpec
from speedrunner.agents.loop import Reply
from speedrunner.store.records import CallNode, Ending, ToolCall

Tool = Callable[..., str] | Callable[..., Awaitable[str]]


class ToolError(Exception):
    """A tool refuses what an agent asked for; the text goes back to the agent."""


class Toolbox:
    """Typed functions offered as tools, in their order.

    A tool raises `ToolError` for the agent's mistakes; everything else it raises is a mistake of ours and is
    raised again.

    Args:
        tools: documented, annotated functions, async or not, that return the reply's text.
        finish: the one that ends the agent's work.
    """

    def __init__(self, tools: Sequence[Tool], finish: Tool) -> None:
        self._finish = finish.__name__
        self._tools = {tool.__name__: tool for tool in [*tools, finish]}
        self.specs = [
            ToolSpec.from_signature(name, inspect.signature(tool, eval_str=True), inspect.getdoc(tool) or "")
            for name, tool in self._tools.items()
        ]

    async def execute(self, call: ToolCall) -> Reply:
        """Run one call; see `speedrunner.agents.loop`."""
        node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
        began = time.monotonic()
        try:
            result = self._tools[call.name](**call.arguments)
            node.result = result if isinstance(result, str) else await result
        except ToolError as error:
            node.error = str(error)
        node.seconds = round(time.monotonic() - began, 4)
        text = f"Error: {node.error}" if node.error is not None else node.result
        ending = Ending.SUBMITTED if call.name == self._finish and node.error is None else None
        return Reply(str(text), node, ending)
