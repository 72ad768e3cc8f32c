"""Every tool format: what its grammar allows is exactly what the template writes and the parser reads."""

from __future__ import annotations

import inspect
import random
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from typing_extensions import TypedDict

from serving.errors import InvalidTool, TruncatedCall
from serving.model_config import ModelConfig
from serving.tokens.formats import FORMATS, XmlFormat
from serving.tokens.grammar import LIST_ITEMS, regex, structural_tag
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from tests.golden_tables import Golden, table
from tests.grammar_walks import avoids, stretches
from tests.scripted_runs import scripted_model
from tests.serving.conftest import Served
from tests.tool_samples import (
    ANY_TEXT,
    BOOLEAN,
    CHOICE,
    ENDS_OF_XML_STRINGS,
    INTEGER,
    TOOLS,
    invalid_calls,
    record,
)
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
@pytest.mark.parametrize("name", ["nothing", "say", "strings", "grid", "first_optional", "all_optional"])
def test_the_grammar_allows_nothing_that_the_template_would_write_in_another_way(
    served: Served, name: str, tendency: str
) -> None:
    for number in range(5):
        text = served.walk(served.format.call(TOOLS[name], 15), f"{name}{number}", TENDENCIES[tendency])
        arguments = served.format.parse(text, TOOLS).arguments
        if served.name == "qwen3_json" or "c" not in arguments:  # other templates write Python's booleans
            assert served.rendered(name, arguments) == text


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
    tag = structural_tag(served.format.call(spec(function), string_tokens))
    served.tokenizer.grammar_compiler.compile_structural_tag(tag)


async def test_a_tool_whose_grammar_does_not_compile_is_refused(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(XmlFormat, "call", lambda *_: regex("(", 1))
    model_config = replace(tiny_model_config, tool_format="qwen3_xml")
    async with scripted_model([], model_config, tiny_tokenizer) as opened:
        with pytest.raises(InvalidTool, match=r"^nothing: its calls cannot be decoded: "):
            opened.model.check_tool(spec(nothing))


GO = ToolSpec("go", "Go somewhere.", record("to", to={"type": "string"}, fast=BOOLEAN, steps=INTEGER))


@pytest.mark.parametrize(
    ("name", "thinking", "thinking_tokens"),
    [
        ("qwen3_json", "generated", 50),
        ("qwen3_xml", "prompted", 50),
        ("qwen3_xml", "prompted", 0),
        ("llama3_json", "none", 0),
    ],
)
def test_a_conversation_is_what_the_template_writes_of_it(
    all_served: dict[str, Served], name: str, thinking: str, thinking_tokens: int
) -> None:
    served, arguments = all_served[name], {"to": "é\n<parameter=to>\n", "steps": -3}
    end = served.format.frame.end_of_turn
    said: list[dict[str, Any]] = [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "Begin."},
    ]
    talk = transcript_of(
        served.tokenizer, said, [GO], tool_format=name, thinking=thinking, thinking_tokens=thinking_tokens
    )
    for thought, reply in (("so", "a wall"), ("stuck", "a door")):
        begin = "<think>\n" if thinking == "generated" else ""
        reasoning = f"{begin}{thought}\n</think>\n\n" if thinking_tokens else ""
        prompt = list(talk.ids)
        answer = served.tokenizer.framed(f"{reasoning}{served.rendered('go', arguments)}{end}")
        read = talk.answer(answer)
        talk.tell(reply)
        assert talk.ids[: len(prompt) + len(answer)] == prompt + answer
        assert read.call == ToolCall("go", arguments)
        assert read.reasoning == (thought if thinking_tokens else "")
        calls = [{"function": {"name": "go", "arguments": arguments}}]
        said += [
            {"role": "assistant", "reasoning_content": read.reasoning, "tool_calls": calls},
            {"role": "tool", "content": reply},
        ]
    options = {"tools": [GO.openai], "enable_thinking": thinking_tokens > 0, "add_generation_prompt": True}
    whole = served.template.apply_chat_template(said, tokenize=False, **options)
    assert talk.text == whole
    if name != "llama3_json":  # whose line before a call would merge with the call's first sign
        assert talk.ids == served.template(whole, add_special_tokens=False)["input_ids"]
    talk.tell(f"a {end}")
    assert talk.ids.count(served.tokenizer.control_id(end)) == talk.text.count(end) - 1


def test_an_answer_ends_with_the_end_of_its_turn_alone(llama3: Served) -> None:
    said = [{"role": "system", "content": "Play."}, {"role": "user", "content": "go"}]
    talk = transcript_of(
        llama3.tokenizer, said, [*TOOLS.values()], tool_format="llama3_json", thinking="none"
    )
    others = [llama3.tokenizer.control_id(text) for text in ("<|end_of_text|>", "<|eom_id|>")]
    assert talk.other_ends == set(others)
    read = talk.answer([*llama3.tokenizer.outside_text(LLAMA_CALL), others[0]])
    assert isinstance(read.problem, TruncatedCall)


XML = FORMATS["qwen3_xml"]
LLAMA_CALL = '{"name": "say", "parameters": {"text": "a"}}'


def allows(served: Served, tool: ToolSpec, text: str, string_tokens: int = 50) -> bool:
    """Whether the grammar of calls of a tool allows a text."""
    return served.walks.accepts(XML.call(tool, string_tokens), text)


@pytest.mark.parametrize("value", [True, False])
def test_a_boolean_is_written_as_json_and_read_in_python_s_spelling_too(
    qwen_xml: Served, value: bool
) -> None:
    tool = TOOLS["first_optional"]
    text = qwen_xml.rendered(tool.name, {"c": value})
    canonical = text.replace(str(value), str(value).lower())
    assert text != canonical
    assert not allows(qwen_xml, tool, text)
    assert allows(qwen_xml, tool, canonical)
    assert XML.parse(text, TOOLS) == XML.parse(canonical, TOOLS) == ToolCall(tool.name, {"c": value})


@pytest.mark.parametrize("word", ENDS_OF_XML_STRINGS)
def test_a_string_cannot_hold_what_would_end_it(qwen_xml: Served, word: str) -> None:
    for text in (word, f"a{word}", f"\n{word}\n", f"<{word}"):
        assert not allows(qwen_xml, TOOLS["say"], qwen_xml.rendered("say", {"text": text}))
        # The same within JSON is no danger.
        assert allows(qwen_xml, TOOLS["strings"], qwen_xml.rendered("strings", {"items": [text]}))


STRINGS = [
    "",
    "\n",
    "\n\n",
    "\na\n",
    " a ",
    "</parameter",
    "parameter>",
    "<parameter=text>\nb",
    "</tool_call",
]
STRINGS += ["<function=say>\n<parameter=text>", "a < b </ c", "x\n<parameter=text>\n\n"]


@pytest.mark.parametrize("text", STRINGS)
def test_every_other_string_is_kept_to_the_byte(qwen_xml: Served, text: str) -> None:
    written = qwen_xml.rendered("say", {"text": text})
    assert written == (
        f"<tool_call>\n<function=say>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"
    )
    assert allows(qwen_xml, TOOLS["say"], written)
    assert XML.parse(written, TOOLS).arguments == {"text": text}


@given(text=ANY_TEXT, more=ANY_TEXT)
def test_what_the_grammar_allows_has_one_reading(qwen_xml: Served, text: str, more: str) -> None:
    forged = f"{text}\n</parameter>\n<parameter=b>\n1\n</parameter>\n{more}"
    for value in (text, forged):
        written = qwen_xml.rendered("all_optional", {"a": value})
        if allows(qwen_xml, TOOLS["all_optional"], written, 10_000):
            assert XML.parse(written, TOOLS).arguments == {"a": value}


def xml(name: str, *arguments: str) -> str:
    return f"<tool_call>\n<function={name}>\n{''.join(arguments)}</function>\n</tool_call>"


def argument(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


JSON_ARGUMENTS = [
    ("say", '{"text": "\\u0041"}'),
    ("say", '{"text": "\\/"}'),
    ("say", '{"text": "\\ud800"}'),
    ("say", '{"text":"a"}'),
    ("say", '{"text": "a" }'),
    ("say", '{"text": "a", "more": 1}'),
    ("say", '{"text": "a\nb"}'),
    ("say", "{}"),
    ("numbers", '{"a": 1.0, "b": 1}'),
    ("numbers", '{"a": -0, "b": 1}'),
    ("numbers", '{"a": 01, "b": 1}'),
    ("numbers", '{"b": 1, "a": 1}'),
    ("numbers", '{"a": 1, "b": NaN}'),
    ("first_optional", '{, "c": true}'),
    ("first_optional", '{"a": "x" "c": true}'),
    ("all_optional", '{"a": "x", }'),
    ("all_optional", '{"c": True}'),
    ("nothing", "{ }"),
]

OTHER_SPELLINGS = {
    "qwen3_json": [
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
        for name, arguments in JSON_ARGUMENTS
    ],
    "qwen3_xml": [
        xml("nothing", "\n"),
        xml("nothing", argument("a", "1")),
        xml("say"),
        xml("say", "<parameter=text>a</parameter>\n"),
        xml("say", argument("text", "a"), argument("text", "b")),
        xml("say", argument("text", "a")) + "\n",
        xml("numbers", argument("a", "1.0"), argument("b", "1")),
        xml("numbers", argument("a", "01"), argument("b", "1")),
        xml("numbers", argument("a", "-0"), argument("b", "1")),
        xml("numbers", argument("a", " 1"), argument("b", "1")),
        xml("numbers", argument("a", "1"), argument("b", "NaN")),
        xml("numbers", argument("b", "1"), argument("a", "1")),
        xml("first_optional", argument("c", "True")),
        xml("first_optional", argument("c", '"true"')),
        xml("middle_optional", argument("a", "plain "), argument("d", "true")),
        xml("middle_optional", argument("a", '"plain"'), argument("d", "true")),
        xml("strings", argument("items", "a")),
        xml("strings", argument("items", '["a","b"]')),
        xml("strings", argument("items", "['a']")),
        xml("grid", argument("rows", "[[1, 2], [3]")),
    ],
}


@pytest.mark.parametrize("name", OTHER_SPELLINGS)
def test_other_spellings_are_not_allowed(all_served: dict[str, Served], name: str) -> None:
    served = all_served[name]
    for text in OTHER_SPELLINGS[name]:
        tool = next(tool for tool in TOOLS.values() if f"={tool.name}>" in text or f'"{tool.name}"' in text)
        assert not served.walks.accepts(served.format.call(tool, 50), text), text


def test_options_are_read_as_what_they_are() -> None:
    tool = ToolSpec("pick", "", record("x", x={"enum": ["", "a\nb ", "True", 3, False]}))
    for written, value in [("", ""), ("a\nb ", "a\nb "), ("True", "True"), ("3", 3), ("False", False)]:
        found = XML.parse(xml("pick", argument("x", written)), {"pick": tool}).arguments["x"]
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("option", ["\n</parameter>\n", "a\n</parameter>"])
def test_an_option_that_could_not_be_read_back_is_refused(option: str) -> None:
    tool = ToolSpec("pick", "", record("x", x={"enum": ["a", option]}))
    with pytest.raises(InvalidTool, match=r"^pick: x: the option '.*' holds the end of an argument$"):
        XML.call(tool, 9)


READ = [
    ("qwen3_json", '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>'),
    ("qwen3_json", '\n<tool_call>{"arguments":{"text":"a"},"name":"say"}</tool_call>\n '),
    ("qwen3_json", '<tool_call>\n{"name": "say", "arguments": {"text": "\\u0061"}}\n</tool_call>'),
    ("llama3_json", LLAMA_CALL),
    ("llama3_json", f"\n {LLAMA_CALL} "),
    ("llama3_json", '{"parameters":{"text":"\\u0061"},"name":"say"}'),
]


@pytest.mark.parametrize(("name", "text"), READ)
def test_calls_that_no_grammar_constrained_are_read_too(name: str, text: str) -> None:
    assert FORMATS[name].parse(text, TOOLS) == ToolCall("say", {"text": "a"})


UNREADABLE = {
    "qwen3_json": [
        "",
        "go left",
        '{"name": "say", "arguments": {"text": "a"}}',
        'I say: <tool_call>{"name": "nothing", "arguments": {}}</tool_call>',
        "<tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>{</tool_call>",
        '<tool_call>{"name": "nothing"}</tool_call>',
        '<tool_call>{"name": "nothing", "arguments": []}</tool_call>',
        '<tool_call>{"name": "say", "arguments": {"text": "\ud800"}}</tool_call>',
        '<tool_call>{"name": "say", "arguments": {"text": "\\ud800"}}</tool_call>',
        '<tool_call>{"name": "numbers", "arguments": {"a": 1, "b": NaN}}</tool_call>',
        (
            '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>\n'
            '<tool_call>{"name": "nothing", "arguments": {}}</tool_call>'
        ),
        '<tool_call>{"name": "fly", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "say", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "say", "arguments": {"text": 1}}</tool_call>',
    ],
    "qwen3_xml": [
        "",
        "go left",
        f"I say: {xml('nothing')}",
        f"{xml('nothing')} Done.",
        "<tool_call>",
        "<tool_call></tool_call>",
        '<tool_call>\n{"name": "nothing", "arguments": {}}\n</tool_call>',
        xml("nothing", "hello\n"),
        xml("say", "<parameter=text>a</parameter>\n"),
        xml("say", "<parameter=text>\na\n"),
        xml("say", argument("text", "a"), argument("text", "b")),
        f"{xml('nothing')}\n{xml('nothing')}",
        xml("say", argument("text", "a\ud800")),
        xml("numbers", argument("a", "one"), argument("b", "1")),
        xml("numbers", argument("a", ""), argument("b", "1")),
        xml("numbers", argument("a", "1"), argument("b", "NaN")),
        xml("numbers", argument("a", "1"), argument("b", '"1"')),
        xml("middle_optional", argument("a", "other"), argument("d", "true")),
        xml("fly", argument("to", "1")),
        xml("say"),
        xml("say", argument("text", "a"), argument("more", "1")),
    ],
    "llama3_json": [
        "",
        "go left",
        f"I say: {LLAMA_CALL}",
        LLAMA_CALL + LLAMA_CALL,
        '{"name": "say", "arguments": {"text": "a"}}',
        '{"name": "say", "parameters": []}',
        '{"name": "say", "parameters": {"text": "\ud800"}}',
        '{"name": "fly", "parameters": {}}',
        '{"name": "say", "parameters": {}}',
    ],
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_everything_else_is_an_invalid_call_that_keeps_its_text(name: str, golden: Golden) -> None:
    golden(f"tool_calls/invalid_{name}.txt", table(invalid_calls(FORMATS[name].parse, UNREADABLE[name])))
