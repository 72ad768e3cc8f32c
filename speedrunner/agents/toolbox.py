"""Tools of agents, made from typed Python functions."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Sequence

from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.agents.loop import ToolReply
from speedrunner.store.records import CallNode, Termination

Tool = Callable[..., str | ToolReply] | Callable[..., Awaitable[str | ToolReply]]
"""A documented, annotated function that an agent calls. It returns the reply as text or as `ToolReply`."""


class ToolError(Exception):
    """Refuses an agent's request; the agent reads the text."""


class Toolbox:
    """Typed functions offered as tools, in this order.

    A tool raises `ToolError` for the agent's mistakes. Any other exception is a bug or an infrastructure
    error and is re-raised.

    Args:
        tools: documented, annotated functions, async or not, that return the reply's text. A tool that acts
            in an episode returns the `ToolReply` of that action.
        finish: the tool that ends the agent's work; `None`: a `ToolReply` with a termination ends it.
    """

    def __init__(self, tools: Sequence[Tool], finish: Tool | None = None) -> None:
        self._finish = finish and finish.__name__
        self._tools = {tool.__name__: tool for tool in [*tools, *([finish] if finish else [])]}
        self.specs = [
            ToolSpec.from_signature(name, inspect.signature(tool, eval_str=True), inspect.getdoc(tool) or "")
            for name, tool in self._tools.items()
        ]

    async def execute(self, call: ToolCall, string_tokens: int) -> ToolReply:
        """Run one call; see `speedrunner.agents.loop`.

        Args:
            string_tokens: maximum tokens of a string argument, used to report a truncated one.
        """
        node = CallNode(name=call.name, kind="tool", arguments=call.arguments)
        began = time.monotonic()
        termination = Termination.SUBMITTED if call.name == self._finish else None
        try:
            if call.cut:
                names, verb = " and ".join(call.cut), "was" if len(call.cut) == 1 else "were"
                in_parts = self._finish not in (None, call.name)  # work continues after this call
                advice = "Send it in parts." if in_parts else "Write less."
                why = f"a string can have at most {string_tokens:,} tokens"
                raise ToolError(f"{names} {verb} cut, and the call was not executed: {why}. {advice}")
            result = self._tools[call.name](**call.arguments)
            said = await result if inspect.isawaitable(result) else result
            if isinstance(said, ToolReply):
                node.calls, node.actions = [said.executed], said.executed.actions
                termination, said = said.termination or termination, said.text
            text = node.result = said
        except ToolError as error:
            node.error, termination = str(error), None
            text = f"Error: {error}"
        node.seconds = round(time.monotonic() - began, 4)
        return ToolReply(text, node, termination)
