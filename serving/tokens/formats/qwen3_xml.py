"""Qwen3.5's native calls (Qwen3-Coder's too): XML tags, each argument on separate lines.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

The grammar is canonical: it allows the bytes that Qwen3.5's chat template writes for the same call. Strings
and options are written unchanged, everything else as JSON. There are three exceptions. They cost no cached
prefix, since nothing is rendered again:

- A boolean is `true`. The template would write Python's `True`, against the schema that it shows the model.
  Both are read.
- A number may have any JSON spelling.
- A string may have an incomplete character, which is read as U+FFFD.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from serving.errors import InvalidCall, InvalidTool
from serving.tokens.formats.json_value import dumps, json_value
from serving.tokens.frame import CHATML
from serving.tokens.grammar import Part, constant, free_text, one_of, optional, sequence
from serving.tokens.tools import Schema, ToolCall, ToolSpec, checked_call

FRAME, BEGIN = CHATML, "<tool_call>"
FORM = """\
<tool_call>
<function=TOOL>
<parameter=PARAMETER>
VALUE
</parameter>
</function>
</tool_call>"""

# A value ends at the first of these, so it may contain a closing tag within a line, and any opening tag.
_END = "\n</parameter>\n"
# Texts that a generated string must not contain. Only the first could be misread. A model that writes one of
# the others has forgotten to end its argument; without this rule it would continue to the string's bound.
_NOT_IN_STRINGS = ("</parameter>", "</function>", *CHATML.controls)

_HEAD = re.compile(r"<tool_call>\s*<function=([^>\n]+)>\n")
_PARAMETER = re.compile(rf"<parameter=([^>\n]+)>\n(.*?){_END}", re.DOTALL)
_TAIL = re.compile(r"\s*</function>\s*</tool_call>")


def call(tool: ToolSpec, string_tokens: int) -> Part:
    """Return the grammar of one call of `tool`. Raises `InvalidTool` if an option contains the end of an
    argument."""
    parameters = [
        (_parameter(tool.name, key, schema, string_tokens), key in tool.parameters["required"])
        for key, schema in tool.parameters["properties"].items()
    ]
    return sequence(
        constant(f"<tool_call>\n<function={tool.name}>\n"),
        *(part if required else optional(part) for part, required in parameters),
        constant("</function>\n</tool_call>"),
    )


def parse(text: str, tools: dict[str, ToolSpec]) -> ToolCall:
    """Read the one call that `text` consists of; see `ToolFormat`."""
    stripped = text.strip()
    head = _HEAD.match(stripped)
    if head is None or not stripped.endswith("</tool_call>"):
        raise InvalidCall("the answer is not one tool call", text)
    name, position = head[1], head.end()
    schemas = tools[name].parameters["properties"] if name in tools else {}
    arguments: dict[str, Any] = {}
    while not _TAIL.fullmatch(stripped, position):
        found = _PARAMETER.match(stripped, position)
        if found is None or found[1] in arguments:
            problem = f"another <parameter=...> or </function> must stand at {stripped[position:][:40]!r}"
            raise InvalidCall(f"the tool call is not readable: {problem}", text)
        key, position = found[1], found.end()
        try:
            arguments[key] = _read(found[2], schemas.get(key, {"type": "string"}))
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidCall(f"the tool call is not readable: {key}: {error}", text) from error
    return checked_call(ToolCall(name, arguments), tools, text)


def _parameter(tool: str, key: str, schema: Schema, string_tokens: int) -> Part:
    begin = f"<parameter={key}>\n"
    if "enum" in schema:
        options = dict.fromkeys(map(_write_value, schema["enum"]))
        for option in options:
            if (option + _END).index(_END) != len(option):
                raise InvalidTool(f"{tool}: {key}: the option {option!r} holds the end of an argument")
        return one_of(*(constant(begin + option + _END) for option in options))
    if schema["type"] == "string":
        value = free_text(string_tokens, _NOT_IN_STRINGS)
    else:
        value = json_value(schema, string_tokens)
    return sequence(constant(begin), value, constant(_END))


def _write_value(option: str | int) -> str:
    return option if isinstance(option, str) else dumps(option)


def _read(text: str, schema: Schema) -> Any:
    data = text.encode()  # refuses lone surrogates in strings too
    if "enum" in schema:
        spellings = {str(option): option for option in schema["enum"]}
        spellings |= {_write_value(option): option for option in schema["enum"]}
        return spellings.get(text, text)
    match schema["type"]:
        case "string":
            return text
        case "boolean" if text in ("True", "False"):
            return text == "True"
    return msgspec.json.decode(data)
