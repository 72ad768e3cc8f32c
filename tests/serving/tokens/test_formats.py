"""Every tool format: what its grammar allows is exactly what the template writes and the parser reads."""

from __future__ import annotations

import inspect
import random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from serving.errors import InvalidTool
from serving.tokens.formats import XmlFormat
from serving.tokens.grammar import LIST_ITEMS, Part, regex
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from tests.grammar_walks import avoids, stretches
from tests.serving.conftest import Served
from tests.tool_samples import ANY_TEXT, CHOICE, ENDS_OF_XML_STRINGS, TOOLS
from tests.transcript_samples import transcript_of

TENDENCIES = {
    "evenly": None,
    "towards broken characters": stretches,
    "towards long strings": avoids(b"\n", b'"'),
    "towards long lists": avoids(b"]", b"}"),
    "towards the format's own words": lambda token: any(
        word in token for word in (b"<", b"/", b"\n", b"param", b"func", b"|", b'"', b"{")
    ),
}


def check_walk(served: Served, tool: ToolSpec, string_tokens: int, seed: str, tendency: str) -> None:
    """One walk, checked in every respect."""
    text = served.walk(served.format.call(tool, string_tokens), seed, TENDENCIES[tendency])
    found = served.format.parse(text, TOOLS)
    assert found.name == tool.name
    assert tool.problem_with(found.arguments) is None
    keys = list(found.arguments)
    assert keys == [key for key in tool.parameters["properties"] if key in keys]


@pytest.mark.parametrize("tendency", TENDENCIES)
@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_every_walk_ends_within_the_bound_as_a_valid_call(
    served: Served, tool: ToolSpec, tendency: str
) -> None:
    for number in range(2):
        for string_tokens in (1, 12):
            check_walk(served, tool, string_tokens, f"{tool.name}{number}", tendency)


def test_a_string_can_use_up_its_bound_and_ends_there(served: Served) -> None:
    part = served.format.call(TOOLS["say"], 200)
    long = TENDENCIES["towards long strings"]
    lengths = [len(served.walks.walk(part, random.Random(seed), long)) for seed in range(3)]
    assert min(lengths) > 200


def test_a_model_without_thinking_reasons_in_plain_text_up_to_its_budget(served: Served) -> None:
    said = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Go."}]
    fields = {"tool_format": served.name, "thinking": "none"}
    tools = [TOOLS["say"], TOOLS["nested"]]
    talk = transcript_of(served.tokenizer, said, tools, thinking_tokens=12, string_tokens=8, **fields)
    assert "Play.\n\nReason in plain text before each call, in at most 12 tokens." in talk.text
    for seed in range(24):
        endless = avoids(b"<", b"{") if seed % 2 else None
        ids = served.walks.walk(talk.grammar, random.Random(seed), endless)
        assert len(ids) <= talk.answer_tokens
        read = talk.answer(ids)
        talk.tell("A wall.")
        assert read.call is not None
        assert read.text.startswith(served.format.begin)
        assert talk.written(read.reasoning, read.text) == served.tokenizer.decode(ids[:-1])
        reasoning = served.tokenizer.decode(ids[: read.reasoning_tokens])
        assert reasoning.startswith(read.reasoning)
        # One more token may hold the end of the reasoning and the beginning of the call.
        assert read.reasoning_tokens in ((12, 13) if endless else range(14))
        assert read.thought_cut == (read.reasoning_tokens >= 12)
    call = served.rendered("say", {"text": "a"})
    allowed = [call, f"I walk.\n{call}"]
    assert all(served.walks.accepts(talk.grammar, text) for text in allowed)
    assert not served.walks.accepts(talk.grammar, f"{served.format.begin} I walk. {call}")


def arguments_of(name: str) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    """A tool's name, and arguments for it that a format can write."""
    in_xml = name == "qwen3_xml"
    texts = ANY_TEXT.filter(lambda text: not (in_xml and any(end in text for end in ENDS_OF_XML_STRINGS)))
    small = st.integers(-9, 9)
    numbers = st.one_of(st.floats(1e-99, 1e99), st.floats(-1e99, -1e-99), st.integers(-(10**15), 10**15))
    # The template writes booleans in Python's spelling where they do not stand within JSON.
    booleans = {} if in_xml else {"c": st.booleans()}
    made = {
        "say": st.fixed_dictionaries({"text": texts}),
        "numbers": st.fixed_dictionaries({"a": st.integers(-(10**15) + 1, 10**15 - 1), "b": numbers}),
        "last_optional": st.fixed_dictionaries(
            {"a": small}, optional={"b": texts, "c": st.sampled_from(CHOICE["enum"][:4])}
        ),
        "all_optional": st.fixed_dictionaries({}, optional={"a": texts, "b": small} | booleans),
        "strings": st.fixed_dictionaries({"items": st.lists(ANY_TEXT, max_size=LIST_ITEMS)}),
        "nested": st.builds(
            lambda text, option, items: {"p": {"n": text, "i": {"z": option}}, "l": items},
            ANY_TEXT,
            st.sampled_from([3, True, "plain"]),
            st.lists(st.fixed_dictionaries({"s": ANY_TEXT}), max_size=4),
        ),
    }
    return st.one_of(*(st.tuples(st.just(tool), strategy) for tool, strategy in made.items()))


@given(data=st.data())
def test_the_grammar_allows_what_the_template_writes_and_the_parser_reads_it_back(
    served: Served, data: st.DataObject
) -> None:
    name, unordered = data.draw(arguments_of(served.name))
    arguments = {key: unordered[key] for key in TOOLS[name].parameters["properties"] if key in unordered}
    text = served.rendered(name, arguments)
    assert served.walks.accepts(served.format.call(TOOLS[name], 10_000), text)
    assert served.format.parse(text, TOOLS) == ToolCall(name, arguments)


@pytest.mark.parametrize("tendency", TENDENCIES)
@pytest.mark.parametrize("name", ["nothing", "say", "strings", "grid"])
def test_the_grammar_allows_nothing_that_the_template_would_write_in_another_way(
    served: Served, name: str, tendency: str
) -> None:
    for number in range(5):
        text = served.walk(served.format.call(TOOLS[name], 15), f"{name}{number}", TENDENCIES[tendency])
        assert served.rendered(name, served.format.parse(text, TOOLS).arguments) == text


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


def plain(a: str, b: list[list[int]], d: float = 1.0, e: bool = True) -> None:
    """Types without texts of their own."""


def numbered(a: Literal[1, 2]) -> None:
    """Choices of numbers."""


def spec(function: Any) -> ToolSpec:
    return ToolSpec.from_signature(function.__name__, inspect.signature(function, eval_str=True), "")


@pytest.mark.parametrize(
    ("function", "string_tokens"),
    [
        *((function, tokens) for function in (everything, nothing) for tokens in (1, 80, 3000)),
        *((function, 80) for function in (say, plain, numbered)),
    ],
)
def test_the_engine_can_decode_every_type(served: Served, function: Any, string_tokens: int) -> None:
    compiler = served.tokenizer.grammar_compiler
    served.format.check_decoding(spec(function), string_tokens, compiler)


def test_a_grammar_that_does_not_compile_is_refused(tiny_tokenizer: ChatTokenizer) -> None:
    class Broken(XmlFormat):
        def call(self, tool: ToolSpec, string_tokens: int) -> Part:
            return regex("(", 1)

    with pytest.raises(InvalidTool, match=r"^nothing: its calls cannot be decoded: "):
        Broken().check_decoding(spec(nothing), 80, tiny_tokenizer.grammar_compiler)
