"""Tools of every argument type, and texts for their arguments, for the tests of tool formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from hypothesis import strategies as st

from serving.errors import InvalidCall
from serving.tokens.formats import CHATML
from serving.tokens.tools import ToolCall, ToolSpec

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
CHOICE = {"enum": ["plain", 'a "b"\n', "é <|im_end|></tool_call>", 3, True]}


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(required: str = "", /, **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key in required.split()],
        "additionalProperties": False,
    }


INNER = record("z", y=NUMBER, z=CHOICE)
TOOLS = {
    name: ToolSpec(name=name, doc="", parameters=parameters)
    for name, parameters in {
        "nothing": record(),
        "say": record("text", text=STRING),
        "numbers": record("a b", a=INTEGER, b=NUMBER),
        "first_optional": record("c", a=STRING, b=INTEGER, c=BOOLEAN),
        "middle_optional": record("a d", a=CHOICE, b=NUMBER, c=STRING, d=BOOLEAN),
        "last_optional": record("a", a=INTEGER, b=STRING, c=CHOICE),
        "all_optional": record(a=STRING, b=INTEGER, c=BOOLEAN),
        "strings": record("items", items=array(STRING)),
        "grid": record("rows", rows=array(array(INTEGER))),
        "nested": record(
            "p l", p=record("n i", x=INTEGER, n=STRING, i=INNER), l=array(record("s", s=STRING))
        ),
    }.items()
}

ENDS_OF_XML_STRINGS = ("</parameter>", "</function>", *CHATML.controls)
"""What no argument of Qwen's XML format that is a string may hold."""

PIECES = [
    *('"', "\\", "/", "\n", "\n\n", "\r\n", "\t", "\b", "\f", "\x00", "\x1f", "\x7f", "\u2028"),
    *("\ue000", "\ufffd", "\uffff", "😀", "<", ">", "<|", "im_end|>", "think>", "<tool_", "tool_call>"),
    *("</param", "</parameter\n>", "<parameter=text>\n", "<function=say>\n", "</func", '{"a": "b"}'),
    *("def f(x: list[int]) -> str:\n\treturn {'a': x < 1}\n", "&lt;", "<!-- -->", "\\n"),
]
ANY_TEXT = st.lists(
    st.one_of(
        st.sampled_from([*PIECES, *ENDS_OF_XML_STRINGS]), st.text(st.characters(exclude_categories=["Cs"]))
    )
).map("".join)
"""Texts in which the formats' own words and signs are frequent."""


def invalid_calls(
    parse: Callable[[str, Mapping[str, ToolSpec]], ToolCall], texts: Iterable[str]
) -> list[tuple[str, str]]:
    """Return each text with what is wrong with it. None may be a call, and each error keeps its text."""
    found = []
    for text in texts:
        with pytest.raises(InvalidCall) as caught:
            parse(text, TOOLS)
        assert caught.value.text == text
        assert "\n" not in str(caught.value)
        found.append((repr(text), str(caught.value)))
    return found
