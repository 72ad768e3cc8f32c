"""The JSON calls of Qwen3 and Llama 3, and the turns around Llama's, which are not Qwen's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from serving.errors import TruncatedCall
from serving.tokens.formats import FORMATS
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall
from serving.tokens.transcript import Transcript
from tests.golden_tables import Golden, table
from tests.grammar_walks import stretches
from tests.serving.conftest import Served
from tests.tool_samples import TOOLS, invalid_calls
from tests.transcript_samples import transcript_of

QWEN, LLAMA = FORMATS["qwen3_json"], FORMATS["llama3_json"]

CALL = '{"name": "say", "parameters": {"text": "a"}}'


@pytest.mark.parametrize("tendency", [None, stretches], ids=["evenly", "towards broken characters"])
@pytest.mark.parametrize("name", ["first_optional", "all_optional"])
def test_the_grammar_allows_booleans_as_the_template_writes_them(
    qwen_json: Served, name: str, tendency: Callable[[bytes], bool] | None
) -> None:
    for number in range(10):
        text = qwen_json.walk(QWEN.call(TOOLS[name], 15), f"{name}{number}", tendency)
        assert text == qwen_json.rendered(name, QWEN.parse(text, TOOLS).arguments)


FORBIDDEN = [
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


@pytest.mark.parametrize(("name", "arguments"), FORBIDDEN)
def test_other_spellings_are_not_allowed(qwen_json: Served, name: str, arguments: str) -> None:
    text = f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'
    assert not qwen_json.walks.accepts(QWEN.call(TOOLS[name], 50), text)


READ = [
    ("qwen3_json", '<tool_call>\n{"name": "say", "arguments": {"text": "a"}}\n</tool_call>'),
    ("qwen3_json", '\n<tool_call>{"arguments":{"text":"a"},"name":"say"}</tool_call>\n '),
    ("qwen3_json", '<tool_call>\n{"name": "say", "arguments": {"text": "\\u0061"}}\n</tool_call>'),
    ("llama3_json", CALL),
    ("llama3_json", f"\n {CALL} "),
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
    "llama3_json": [
        "",
        "go left",
        f"I say: {CALL}",
        CALL + CALL,
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


@pytest.fixture(scope="module")
def tokenizer(llama3: Served) -> ChatTokenizer:
    return llama3.tokenizer


@pytest.fixture
def transcript(tokenizer: ChatTokenizer) -> Transcript:
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "go"}]
    tools = list(TOOLS.values())
    return transcript_of(tokenizer, messages, tools, tool_format="llama3_json", thinking="none")


def test_a_conversation_is_what_the_template_writes_of_it(
    transcript: Transcript, tokenizer: ChatTokenizer
) -> None:
    end = tokenizer.control_id("<|eot_id|>")
    for answer, reply in ((CALL, 'a "wall"\n<|eot_id|>'), ("a", "call a tool")):
        transcript.answer([*tokenizer.outside_text(answer), end])
        transcript.tell(reply)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Play."},
        {"role": "user", "content": "go"},
        {"role": "assistant", "tool_calls": [{"function": {"name": "say", "arguments": {"text": "a"}}}]},
        {"role": "tool", "content": 'a "wall"\n<|eot_id|>'},
        {"role": "assistant", "content": "a"},
        {"role": "user", "content": "call a tool"},
    ]
    assert transcript.text == tokenizer.huggingface.apply_chat_template(
        messages, [tool.openai for tool in TOOLS.values()], tokenize=False, add_generation_prompt=True
    )
    assert transcript.ids.count(end) == 6  # and none for the reply's text


def test_an_answer_ends_with_the_end_of_its_turn_alone(
    transcript: Transcript, tokenizer: ChatTokenizer
) -> None:
    others = [tokenizer.control_id(text) for text in ("<|end_of_text|>", "<|eom_id|>")]
    assert transcript.other_ends == set(others)
    read = transcript.answer([*tokenizer.outside_text(CALL), others[0]])
    assert isinstance(read.problem, TruncatedCall)
