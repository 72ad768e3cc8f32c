"""What a native tool-call format has to offer."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from serving.errors import InvalidCall
from serving.tokens.grammar import Part
from serving.tokens.tools import ToolSpec


class ParsedCall(msgspec.Struct, frozen=True):
    """One complete call whose arguments satisfy its tool's schema."""

    name: str
    arguments: dict[str, Any]


def checked_call(found: ParsedCall, tools: dict[str, ToolSpec], text: str) -> ParsedCall:
    """`found`, once it names one of `tools` and satisfies its schema.

    Raises:
        InvalidCall: it does not; `text` is what the model wrote.
    """
    if found.name not in tools:
        raise InvalidCall(f"there is no tool {found.name!r}; tools: {', '.join(tools)}", text)
    if problem := tools[found.name].problem_with(found.arguments):
        raise InvalidCall(f"{found.name}: {problem}", text)
    return found


class ToolFormat(Protocol):
    """One native format, as a module with these functions."""

    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """The grammar of one call of `tool`, its strings bounded to `string_tokens` each.

        It allows exactly what the model's chat template would write for such a call.

        Raises:
            InvalidTool: the format cannot express some call of `tool`.
        """

    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ParsedCall:
        """Read the one call that `text` consists of. Raises `InvalidCall`."""
