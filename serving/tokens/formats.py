"""Native tool-call formats: how a model writes a call, and the template text around its turns.

The grammars are canonical: they allow the bytes that the models' chat templates write for the same call.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from serving.errors import InvalidCall, InvalidTool
from serving.tokens.grammar import (
    Part,
    constant,
    dumps,
    free_text,
    json_value,
    one_of,
    optional,
    sequence,
)
from serving.tokens.tools import Schema, ToolCall, ToolSpec, checked_call


class Frame(msgspec.Struct, frozen=True):
    """The template text of one family of models.

    Attributes:
        end_of_turn: the control token that ends the model's turn.
        other_ends: control tokens at which an engine could stop as well, and must not.
        user_turn: text before and after a message to the model, up to the model's next turn.
        tool_reply: text before and after the reply to a tool call, up to the model's next turn.
        json_replies: whether the reply itself is written as a JSON string.
        controls: texts that must not occur in reasoning, since they would end it or the turn.
    """

    end_of_turn: str
    other_ends: tuple[str, ...]
    user_turn: tuple[str, str]
    tool_reply: tuple[str, str]
    json_replies: bool = False
    controls: tuple[str, ...] = ()


CHATML = Frame(
    end_of_turn="<|im_end|>",
    other_ends=("<|endoftext|>",),
    user_turn=("\n<|im_start|>user\n", "<|im_end|>\n"),
    tool_reply=("\n<|im_start|>user\n<tool_response>\n", "\n</tool_response><|im_end|>\n"),
    controls=(
        *("<think>", "</think>", "<tool_call>", "</tool_call>"),
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>"),
    ),
)
"""The frame of all Qwen chat templates."""

LLAMA3 = Frame(
    end_of_turn="<|eot_id|>",
    other_ends=("<|eom_id|>", "<|end_of_text|>"),
    user_turn=("<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"),
    tool_reply=("<|start_header_id|>ipython<|end_header_id|>\n\n", "<|eot_id|>"),
    json_replies=True,
    controls=(
        *("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|python_tag|>"),
        *("<|start_header_id|>", "<|end_header_id|>"),
    ),
)
"""The frame of Llama 3.1 to 3.3; their template passes a tool's reply through `tojson`."""


class ToolFormat(ABC):
    """One native format.

    Attributes:
        frame: the frame of its models' turns.
        begin: the text with which each call begins.
        form: how a call is written, for models whose chat template does not say it.
    """

    frame: Frame
    begin: str
    form: str

    @abstractmethod
    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """Return the grammar of one call of `tool`, with each string bounded to `string_tokens`.

        It allows exactly what the model's chat template would write for such a call.

        Raises `InvalidTool`: the format cannot express some call of `tool`.
        """

    @abstractmethod
    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ToolCall:
        """Read the one call that `text` consists of, ignoring surrounding whitespace.

        Raises:
            InvalidCall: no call, more than one, one that cannot be read, an unknown tool, or arguments that
                its schema does not allow.
        """


class JsonFormat(ToolFormat):
    """Calls that are one JSON object: Qwen3's between tags (also called hermes), and Llama 3's alone.

    Args:
        frame: the frame of the turns.
        key: name of the arguments in the object.
        begin, end: text around the object.
    """

    def __init__(self, frame: Frame, key: str, begin: str = "", end: str = "") -> None:
        self.frame = frame
        self.begin = begin.strip() or '{"name"'
        self.form = f'{begin}{{"name": TOOL, "{key}": {{PARAMETER: VALUE, ...}}}}{end}'
        self._key, self._before, self._after = key, begin, end
        fields = [("name", str), ("arguments", dict[str, Any])]
        self._written: type[Any] = msgspec.defstruct(
            "Written", fields, rename={"arguments": key}, forbid_unknown_fields=True
        )

    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """See `ToolFormat`."""
        head = constant(f'{self._before}{{"name": {dumps(tool.name)}, "{self._key}": ')
        return sequence(head, json_value(tool.parameters, string_tokens), constant("}" + self._after))

    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ToolCall:
        """See `ToolFormat`."""
        stripped, begin, end = text.strip(), self._before.strip(), self._after.strip()
        if not (stripped.startswith(begin or "{") and stripped.endswith(end or "}")):
            raise InvalidCall("the answer is not one tool call", text)
        inside = stripped.removeprefix(begin).removesuffix(end)
        try:
            # msgspec rejects what Python's own reader accepts: NaN, lone surrogates, control characters.
            found = msgspec.json.decode(inside.encode(), type=self._written)
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise InvalidCall(f"the tool call is not readable: {error}", text) from error
        return checked_call(ToolCall(found.name, found.arguments), tools, text)


# A value ends at the first of these, so it may contain a closing tag within a line, and any opening tag.
_END = "\n</parameter>\n"
# Texts that a generated string must not contain. Only the first could be misread. A model that writes one of
# the others has forgotten to end its argument; without this rule it would continue to the string's bound.
_NOT_IN_STRINGS = ("</parameter>", "</function>", *CHATML.controls)

_HEAD = re.compile(r"<tool_call>\s*<function=([^>\n]+)>\n")
_PARAMETER = re.compile(rf"<parameter=([^>\n]+)>\n(.*?){_END}", re.DOTALL)
_TAIL = re.compile(r"\s*</function>\s*</tool_call>")


class XmlFormat(ToolFormat):
    """Qwen3.5's native calls (Qwen3-Coder's too): XML tags, each argument on separate lines.

        <tool_call>
        <function=NAME>
        <parameter=KEY>
        VALUE
        </parameter>
        </function>
        </tool_call>

    Strings and options are written unchanged, everything else as JSON. The grammar differs in three ways from
    what Qwen3.5's chat template writes. They cost no cached prefix, since nothing is rendered again:

    - A boolean is `true`. The template would write Python's `True`, against the schema that it shows the
      model. Both are read.
    - A number may have any JSON spelling.
    - A string may have an incomplete character, which is read as U+FFFD.
    """

    frame = CHATML
    begin = "<tool_call>"
    form = """\
<tool_call>
<function=TOOL>
<parameter=PARAMETER>
VALUE
</parameter>
</function>
</tool_call>"""

    def call(self, tool: ToolSpec, string_tokens: int) -> Part:
        """See `ToolFormat`."""
        parameters = [
            (_parameter(tool.name, key, schema, string_tokens), key in tool.parameters["required"])
            for key, schema in tool.parameters["properties"].items()
        ]
        return sequence(
            constant(f"<tool_call>\n<function={tool.name}>\n"),
            *(part if required else optional(part) for part, required in parameters),
            constant("</function>\n</tool_call>"),
        )

    def parse(self, text: str, tools: dict[str, ToolSpec]) -> ToolCall:
        """See `ToolFormat`."""
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


FORMATS: dict[str, ToolFormat] = {
    "qwen3_json": JsonFormat(CHATML, "arguments", "<tool_call>\n", "\n</tool_call>"),
    "qwen3_xml": XmlFormat(),
    "llama3_json": JsonFormat(LLAMA3, "parameters"),
}
"""The formats by their names in model configs."""
