"""Native calls that are one JSON object: Qwen3's between tags (also called hermes), and Llama 3's alone.

The grammars are canonical: they allow the bytes that the models' chat templates write for the same call.
"""

from __future__ import annotations

from typing import Any

import msgspec

from serving.errors import InvalidCall
from serving.tokens.formats.json_value import dumps, json_value
from serving.tokens.frame import CHATML, LLAMA3, Frame
from serving.tokens.grammar import Part, constant, sequence
from serving.tokens.tools import ToolCall, ToolSpec, checked_call


class JsonFormat:
    """A format of calls that are one JSON object; see `ToolFormat`.

    Args:
        frame: the frame of the turns.
        key: name of the arguments in the object.
        begin, end: text around the object.
    """

    def __init__(self, frame: Frame, key: str, begin: str = "", end: str = "") -> None:
        self.FRAME = frame
        self.BEGIN = begin.strip() or '{"name"'
        self.FORM = f'{begin}{{"name": TOOL, "{key}": {{PARAMETER: VALUE, ...}}}}{end}'
        self._key, self._begin, self._end = key, begin, end
        fields = [("name", str), ("arguments", dict[str, Any])]
        self._form: type[Any] = msgspec.defstruct(
            "Written", fields, rename={"arguments": key}, forbid_unknown_fields=True
        )

    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """Return the grammar of one call of `tool`."""
        head = constant(f'{self._begin}{{"name": {dumps(tool.name)}, "{self._key}": ')
        return sequence(head, json_value(tool.parameters, string_tokens), constant("}" + self._end))

    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ToolCall:
        """Read the one call that `text` consists of. Raises `InvalidCall`."""
        stripped, begin, end = text.strip(), self._begin.strip(), self._end.strip()
        if not (stripped.startswith(begin or "{") and stripped.endswith(end or "}")):
            raise InvalidCall("the answer is not one tool call", text)
        inside = stripped.removeprefix(begin).removesuffix(end)
        try:
            # msgspec rejects what Python's own reader accepts: NaN, lone surrogates, control characters.
            found = msgspec.json.decode(inside.encode(), type=self._form)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidCall(f"the tool call is not readable: {error}", text) from error
        return checked_call(ToolCall(found.name, found.arguments), tools, text)


QWEN = JsonFormat(CHATML, "arguments", "<tool_call>\n", "\n</tool_call>")
LLAMA = JsonFormat(LLAMA3, "parameters")
