"""The engine's own rendering of a conversation's beginning, to compare ours with."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from serving.engine.endpoint import Endpoint
from serving.tokens.tools import ToolSpec


async def rendered(
    endpoint: Endpoint, model: str, messages: list[dict[str, str]], tools: list[ToolSpec], thinking: bool
) -> list[int]:
    """The token ids that the engine makes of messages and tools, as its chat API would send them."""
    body = {
        "model": model,
        "messages": messages,
        "tools": [tool.openai for tool in tools],
        "add_generation_prompt": True,
        "chat_template_kwargs": {"enable_thinking": thinking},
    }
    async with endpoint.client(60) as client:
        reply = await client.send("/tokenize", msgspec.json.encode(body))
    assert reply.status == 200, reply.text
    tokens: list[int] = reply.json()["tokens"]
    return tokens


FIRST_PROMPTS = {
    "plain": [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}],
    "unicode and code": [
        {"role": "system", "content": "Spiele — 世界 🎲\n\n```python\nprint('<tool>')\n```"},
        {"role": "user", "content": "A  wall\tto the <left>;\n<function=x>\n<parameter=y>\n1 & 2"},
    ],
    "long": [{"role": "system", "content": "Rule. " * 300}, {"role": "user", "content": "a wall\n" * 200}],
}
"""Beginnings without a control token written out: to us that is ordinary text, to an engine it is not."""


def without_control_tokens(tools: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Those of the tools in which no control token is written out either."""
    return [tool for tool in tools if "<|" not in str(tool.openai) and "tool_call>" not in str(tool.openai)]
