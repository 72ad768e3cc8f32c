"""Qwen3's native calls: one JSON object between `<tool_call>` and `</tool_call>` (also called hermes).

The grammar is canonical: it allows the bytes that Qwen3's chat template writes for the same call.
"""

from __future__ import annotations

import msgspec

from serving.errors import InvalidCall
from serving.tokens.formats.json_value import dumps, json_value
from serving.tokens.frame import CHATML
from serving.tokens.grammar import Part, constant, sequence
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

FRAME = CHATML
BEGIN, END = "<tool_call>\n", "\n</tool_call>"


def call(tool: ToolSpec, string_tokens: int) -> Part:
    """Return the grammar of one call of `tool`."""
    head = constant(f'{BEGIN}{{"name": {dumps(tool.name)}, "arguments": ')
    return sequence(head, json_value(tool.parameters, string_tokens), constant("}" + END))


def parse(text: str, tools: dict[str, ToolSpec]) -> ToolCall:
    """Read the one call that `text` consists of; see `ToolFormat`."""
    stripped = text.strip()
    if not (stripped.startswith("<tool_call>") and stripped.endswith("</tool_call>")):
        raise InvalidCall("the answer is not one tool call", text)
    inside = stripped.removeprefix("<tool_call>").removesuffix("</tool_call>")
    try:
        # msgspec rejects what Python's own reader accepts: NaN, lone surrogates, control characters.
        found = msgspec.json.decode(inside.encode(), type=ToolCall)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidCall(f"the tool call is not readable: {error}", text) from error
    return checked_call(found, tools, text)
