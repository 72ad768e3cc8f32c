"""Which tools are refused before a model meets them."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest
from typing_extensions import TypedDict

from serving.errors import InvalidTool
from serving.tokens.formats import ToolFormat
from serving.tokens.grammar import Part, regex
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tool_check import ToolCheck
from serving.tokens.tools import ToolSpec
from tests.serving.conftest import Served


class Point(TypedDict):
    x: int
    name: str


def everything(
    a: str,
    b: list[Point],
    c: Literal["é", "<|im_end|>", 3],
    d: float = 1.0,
    e: bool = True,
    f: list[str] = [],  # noqa: B006 - the type is what matters
) -> None:
    """All types."""


def say(text: str) -> None:
    """A text."""


def nothing() -> None:
    """No arguments."""


def spec(function: Any) -> ToolSpec:
    return ToolSpec.from_signature(function.__name__, inspect.signature(function, eval_str=True), "")


@pytest.mark.parametrize("function", [everything, nothing])
@pytest.mark.parametrize("string_tokens", [1, 80, 3000])
def test_every_type_passes_in_every_format(served: Served, function: Any, string_tokens: int) -> None:
    ToolCheck(served.tokenizer, served.format, string_tokens).check(spec(function))


class Odd(TypedDict):
    größe: int


def plain(a: str, b: list[list[int]], d: float = 1.0, e: bool = True) -> None:
    """Types without texts of their own."""


def chosen(a: list[Literal["left", "right"]]) -> None:
    """Choices of texts."""


def numbered(a: Literal[1, 2]) -> None:
    """Choices of numbers."""


def oddly_named(a: list[Odd]) -> None:
    """A field whose name is not ASCII."""


@pytest.mark.parametrize("function", [say, plain, numbered])
def test_plain_tools_pass_in_every_format(served: Served, function: Any) -> None:
    ToolCheck(served.tokenizer, served.format, 80).check(spec(function))


def test_a_grammar_that_does_not_compile_is_refused(tiny_tokenizer: ChatTokenizer) -> None:
    def call(tool: ToolSpec, string_tokens: int) -> Part:
        return regex("(", 1)

    with pytest.raises(InvalidTool, match=r"^nothing: its calls cannot be decoded: "):
        ToolCheck(tiny_tokenizer, cast(ToolFormat, SimpleNamespace(call=call)), 80).check(spec(nothing))
