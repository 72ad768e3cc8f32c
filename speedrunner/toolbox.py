"""Tools of agents outside episodes, made from typed Python methods."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable

from serving.tools import ToolSpec
from speedrunner.loop import Reply
from speedrunner.records import CallNode, Ending, ToolCall


class ToolError(Exception):
    """A tool refuses what an agent asked for; the text goes back to the agent."""


class Toolbox:
    """Typed functions offered as tools, in their order.

    Each call's reply states how many calls are left. A tool raises `ToolError` for the agent's mistakes;
    everything else it raises is a mistake of ours and is raised again.

    Args:
        tools: documented, annotated functions that return the reply's text.
        finish: the one that ends the agent's work.
        calls: requests that the agent may make.
    """

    def __init__(self, tools: list[Callable[..., str]], finish: Callable[..., str], calls: int) -> None:
        self._finish = finish.__name__
        self._tools = {tool.__name__: tool for tool in [*tools, finish]}
        self._left = calls
        self.specs = [
            ToolSpec.from_signature(name, inspect.signature(tool, eval_str=True), inspect.getdoc(tool) or "")
            for name, tool in self._tools.items()
        ]

    async def execute(self, call: ToolCall) -> Reply:
        """Run one call; see `speedrunner.loop`."""
        self._left -= 1
        node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
        began = time.monotonic()
        try:
            node.result = self._tools[call.name](**call.arguments)
        except ToolError as error:
            node.error = str(error)
        node.seconds = round(time.monotonic() - began, 4)
        text = f"Error: {node.error}" if node.error is not None else node.result
        ending = Ending.SUBMITTED if call.name == self._finish and node.error is None else None
        return Reply(f"{text}\n\n({self._left} calls left)", node, ending)
