"""Qwen3.5's XML calls: what the grammar allows is exactly what the template writes and the parser reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from serving.errors import InvalidTool
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from serving.tokens.transcript import Transcript
from tests.golden_tables import Golden, table
from tests.serving.conftest import Served
from tests.tool_samples import ANY_TEXT, BOOLEAN, ENDS_OF_XML_STRINGS, INTEGER, TOOLS, invalid_calls, record
from tests.transcript_samples import transcript_of

call, parse = FORMATS["qwen3_xml"].call, FORMATS["qwen3_xml"].parse


@pytest.fixture(scope="module")
def tokenizer(qwen_xml: Served) -> ChatTokenizer:
    return qwen_xml.tokenizer


def allows(served: Served, tool: ToolSpec, text: str, string_tokens: int = 50) -> bool:
    """Whether the grammar of calls of a tool allows a text."""
    return served.walks.accepts(call(tool, string_tokens), text)


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
    assert parse(text, TOOLS) == parse(canonical, TOOLS) == ToolCall(tool.name, {"c": value})


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
    assert parse(written, TOOLS).arguments == {"text": text}


@given(text=ANY_TEXT, more=ANY_TEXT)
def test_what_the_grammar_allows_has_one_reading(qwen_xml: Served, text: str, more: str) -> None:
    forged = f"{text}\n</parameter>\n<parameter=b>\n1\n</parameter>\n{more}"
    for value in (text, forged):
        written = qwen_xml.rendered("all_optional", {"a": value})
        if allows(qwen_xml, TOOLS["all_optional"], written, 10_000):
            assert parse(written, TOOLS).arguments == {"a": value}


def xml(name: str, *arguments: str) -> str:
    return f"<tool_call>\n<function={name}>\n{''.join(arguments)}</function>\n</tool_call>"


def argument(key: str, value: str) -> str:
    return f"<parameter={key}>\n{value}\n</parameter>\n"


FORBIDDEN = [
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
]


@pytest.mark.parametrize("text", FORBIDDEN)
def test_other_spellings_are_not_allowed(qwen_xml: Served, text: str) -> None:
    assert not allows(qwen_xml, TOOLS[text.partition("<function=")[2].partition(">")[0]], text)


def test_options_are_read_as_what_they_are() -> None:
    tool = ToolSpec("pick", "", record("x", x={"enum": ["", "a\nb ", "True", 3, False]}))
    for written, value in [("", ""), ("a\nb ", "a\nb "), ("True", "True"), ("3", 3), ("False", False)]:
        found = parse(xml("pick", argument("x", written)), {"pick": tool}).arguments["x"]
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("option", ["\n</parameter>\n", "a\n</parameter>"])
def test_an_option_that_could_not_be_read_back_is_refused(option: str) -> None:
    tool = ToolSpec("pick", "", record("x", x={"enum": ["a", option]}))
    with pytest.raises(InvalidTool, match=r"^pick: x: the option '.*' holds the end of an argument$"):
        call(tool, 9)


UNREADABLE = [
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
]


def test_everything_else_is_an_invalid_call_that_keeps_its_text(golden: Golden) -> None:
    golden("tool_calls/invalid_qwen3_xml.txt", table(invalid_calls(parse, UNREADABLE)))


GO = ToolSpec("go", "Go somewhere.", record("to", to={"type": "string"}, fast=BOOLEAN, steps=INTEGER))
MESSAGES = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}]


def conversation(tokenizer: ChatTokenizer, thinks: bool) -> Transcript:
    fields = {"tool_format": "qwen3_xml", "thinking": "prompted"}
    return transcript_of(tokenizer, MESSAGES, [GO], thinking_tokens=50 if thinks else 0, **fields)


@pytest.mark.parametrize("thinks", [True, False])
def test_the_whole_reads_as_the_template_would_write_it(
    tokenizer: ChatTokenizer, qwen_xml: Served, thinks: bool
) -> None:
    plain = qwen_xml.template

    def prompt(said: list[dict[str, Any]]) -> str:
        options = {"tools": [GO.openai], "enable_thinking": thinks}
        return str(plain.apply_chat_template(said, tokenize=False, add_generation_prompt=True, **options))

    thoughts = ["so\n</think>\n\n", "stuck\n</think>\n\n"] if thinks else ["", ""]
    talk = conversation(tokenizer, thinks)
    assert talk.ids == plain(prompt([*MESSAGES]), add_special_tokens=False)["input_ids"]
    arguments = {"to": "é\n<parameter=to>\n", "steps": -3}
    written = qwen_xml.rendered("go", arguments)
    first = talk.answer(tokenizer.framed(f"{thoughts[0]}{written}<|im_end|>"))
    talk.tell("a wall")
    second = talk.answer(tokenizer.framed(f"{thoughts[1]}{written}<|im_end|>"))
    talk.tell("a door")
    assert first.call == second.call == ToolCall("go", arguments)
    assert (first.reasoning, second.reasoning) == (("so", "stuck") if thinks else ("", ""))
    calls = [{"function": {"name": "go", "arguments": arguments}}]
    whole = prompt(
        [
            *MESSAGES,
            {"role": "assistant", "reasoning_content": first.reasoning, "tool_calls": calls},
            {"role": "tool", "content": "a wall"},
            {"role": "assistant", "reasoning_content": second.reasoning, "tool_calls": calls},
            {"role": "tool", "content": "a door"},
        ]
    )
    assert talk.text == whole
    assert talk.ids == plain(whole, add_special_tokens=False)["input_ids"]
