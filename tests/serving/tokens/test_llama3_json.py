"""Llama 3's JSON calls, and the turns around them, which are not Qwen's."""

from __future__ import annotations

from typing import Any

import pytest

from serving.errors import TruncatedCall
from serving.tokens.formats.json_calls import LLAMA
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall
from serving.tokens.transcript import Transcript
from tests.golden_tables import Golden, table
from tests.serving.conftest import Served
from tests.tool_samples import TOOLS, invalid_calls
from tests.transcript_samples import transcript_of

CALL = '{"name": "say", "parameters": {"text": "a"}}'


@pytest.fixture(scope="module")
def tokenizer(llama3: Served) -> ChatTokenizer:
    return llama3.tokenizer


@pytest.fixture
def transcript(tokenizer: ChatTokenizer) -> Transcript:
    messages = [{"role": "system", "content": "Play."}, {"role": "user", "content": "go"}]
    tools = list(TOOLS.values())
    return transcript_of(tokenizer, messages, tools, tool_format="llama3_json", thinking="none")


@pytest.mark.parametrize("text", [CALL, f"\n {CALL} ", '{"parameters":{"text":"\\u0061"},"name":"say"}'])
def test_calls_that_no_grammar_constrained_are_read_too(text: str) -> None:
    assert LLAMA.parse(text, TOOLS) == ToolCall("say", {"text": "a"})


UNREADABLE = [
    "",
    "go left",
    f"I say: {CALL}",
    CALL + CALL,
    '{"name": "say", "arguments": {"text": "a"}}',
    '{"name": "say", "parameters": []}',
    '{"name": "say", "parameters": {"text": "\ud800"}}',
    '{"name": "fly", "parameters": {}}',
    '{"name": "say", "parameters": {}}',
]


def test_everything_else_is_an_invalid_call_that_keeps_its_text(golden: Golden) -> None:
    golden("tool_calls/invalid_llama3_json.txt", table(invalid_calls(LLAMA.parse, UNREADABLE)))


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
