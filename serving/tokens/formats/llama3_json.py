"""Llama 3's native calls: an answer that is one JSON object, without tags around it.

The grammar is canonical: it allows the bytes that the chat templates of Llama 3.1 to 3.3 write for the same
call.
"""

from __future__ import annotations

import msgspec

from serving.errors import InvalidCall
from serving.tokens.formats.json_value import dumps, json_value
from serving.tokens.frame import LLAMA3
from serving.tokens.grammar import Part, constant, sequence
from serving.tokens.tools import ToolCall, ToolSpec, checked_call

FRAME = LLAMA3


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    parameters: dict[str, object]


def call(tool: ToolSpec, string_tokens: int) -> Part:
    """Return the grammar of one call of `tool`."""
    head = constant(f'{{"name": {dumps(tool.name)}, "parameters": ')
    return sequence(head, json_value(tool.parameters, string_tokens), constant("}"))


def parse(text: str, tools: dict[str, ToolSpec]) -> ToolCall:
    """Read the one call that `text` consists of, ignoring surrounding whitespace. Raises `InvalidCall`."""
    try:
        # msgspec rejects what Python's own reader accepts: NaN, lone surrogates, control characters.
        found = msgspec.json.decode(text.strip().encode(), type=_Written)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidCall(f"the answer is not one tool call: {error}", text) from error
    return checked_call(ToolCall(found.name, found.parameters), tools, text)
