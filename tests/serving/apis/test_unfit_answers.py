"""Answers that no engine should give: a failed try with one line, or a record that can be read again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from serving.conversation import Completion, Conversation
from serving.errors import RequestFailed, RequestRefused
from serving.meter import LedgerRow
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from speedrunner.store import json_records
from speedrunner.store.records import Turn
from tests.scripted_engine import Answer, call
from tests.scripted_runs import scripted_model
from tests.tool_samples import record

WAIT = ToolSpec("wait", "Wait.", record())
Edit = Callable[[dict[str, Any]], Any]
DEEP = b'{"error": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def put(path: str, value: Any) -> Edit:
    """Replace a value of the answer; the path has its keys and indices with dots."""

    def edit(content: dict[str, Any]) -> Any:
        *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
        place: Any = content
        for key in way:
            place = place[key]
        place[last] = value
        return content

    return edit


def drop(path: str) -> Edit:
    """Remove a key of the answer."""

    def edit(content: dict[str, Any]) -> Any:
        *way, last = path.split(".")
        place: Any = content
        for key in way:
            place = place[int(key) if key.isdigit() else key]
        del place[last]
        return content

    return edit


def count(**counts: Any) -> Edit:
    """Replace token counts; two underscores stand for a dot."""

    def edit(content: dict[str, Any]) -> Any:
        for name, value in counts.items():
            outer, _, inner = name.partition("__")
            content["usage"][outer] = {inner: value} if inner else value
        return content

    return edit


COUNTS: dict[str, Edit] = {
    "prompt_tokens": count(prompt_tokens=None),
    "prompt_tokens  ": count(prompt_tokens=2**60),
    "completion_tokens": count(completion_tokens=None),
    "completion_tokens ": count(completion_tokens="8"),
    "completion_tokens  ": count(completion_tokens=2**70),
    "completion_tokens    ": drop("usage.completion_tokens"),
    "cached_tokens": count(prompt_tokens_details__cached_tokens=-1),
    "cannot be cached": count(prompt_tokens_details__cached_tokens=100_000),
    "reasoning tokens cannot be part of": count(completion_tokens_details__reasoning_tokens=100_000),
    "usage": put("usage", []),
    "choices": put("choices", []),
    "choices  ": put("choices", [None]),
    "recursion": lambda content: DEEP,
    "malformed": lambda content: b'{"usage": NaN}',
    "Expected `object`": lambda content: [content],
    "utf-8": lambda content: b'{"error": "\xff"}',
}
"""Edits by what the failure must name."""


def lengthen(content: dict[str, Any]) -> Any:
    """Let the answer have more tokens than it may."""
    content["usage"]["completion_tokens"] = 9999
    return put("choices.0.token_ids", [7] * 9999)(content)


COMPLETIONS = COUNTS | {
    "9999 tokens, but at most": lengthen,
    "token_ids": put("choices.0.token_ids", "1, 2"),
    "token_ids[0]": put("choices.0.token_ids", [-1]),
    "token_ids[0]  ": put("choices.0.token_ids", [2**31]),
    "but token_ids has 1": put("choices.0.token_ids", [7]),
    "but token_ids has 0": put("choices.0.token_ids", []),
    "text": put("choices.0.text", 7),
    "finish_reason": put("choices.0.finish_reason", ["stop"]),
    "time_to_first_token_ms": put("metrics", {"time_to_first_token_ms": -1e300}),
    "token_logprobs": put("choices.0.logprobs", {"token_logprobs": "x"}),
}

CHAT = COUNTS | {
    "tool_calls": put("choices.0.message.tool_calls", "wait"),
    "tool_calls[0]": put("choices.0.message.tool_calls", [None]),
    "function": put("choices.0.message.tool_calls.0.function", "wait"),
    "function.name": put("choices.0.message.tool_calls.0.function.name", ["wait"]),
    "function.arguments": put("choices.0.message.tool_calls.0.function.arguments", []),
    "id": put("choices.0.message.tool_calls.0.id", 7),
    "content": put("choices.0.message.content", 7),
    "content[0]": put("choices.0.message.content", [{"type": "video"}]),
    "content[0].text": put("choices.0.message.content", [{"type": "text", "text": None}]),
    "reasoning": put("choices.0.message.reasoning", ["hm"]),
    "message": put("choices.0.message", None),
}


@asynccontextmanager
async def conversation(
    answer: Answer, api: str, tokenizer: ChatTokenizer, model_config: ModelConfig
) -> AsyncIterator[tuple[Conversation, list[LedgerRow], list[dict[str, Any]]]]:
    """A conversation with an engine that always answers so, its ledger, and the bodies of its requests."""
    role = Role(string_tokens=40)
    config = msgspec.structs.replace(model_config, api=api, roles=Roles(actor=role, inducer=role))
    bodies: list[dict[str, Any]] = []

    def script(request: Any) -> Answer:
        bodies.append(request.body)
        return answer

    async with scripted_model(script, config, tokenizer) as opened:
        messages = [{"role": "user", "content": "Begin."}]
        yield opened.model.converse("actor", messages, [WAIT], {}), opened.rows, bodies


def edited(edit: Edit) -> Answer:
    return replace(call("wait"), edit=edit)


@pytest.mark.parametrize(
    ("api", "named", "edit"),
    [("completions", *mode) for mode in COMPLETIONS.items()] + [("chat", *mode) for mode in CHAT.items()],
)
async def test_what_does_not_fit_is_a_failed_try_that_names_the_field(
    api: str, named: str, edit: Edit, tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    async with conversation(edited(edit), api, tiny_tokenizer, tiny_model_config) as (talk, rows, _):
        with pytest.raises(RequestFailed, match="failed 2 times") as caught:
            await talk.ask()
        assert named.strip() in str(caught.value)
        assert "\n" not in str(caught.value)
        assert [row.status for row in rows] == ["failed", "failed"]
        for row in rows:
            assert json_records.make_decoder(LedgerRow)(json_records.encode(row), "row") == row


PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}], "closed": True},
    {"type": "text", "text": "I "},
    {"type": "text", "text": "wait"},
]

FIT: dict[str, tuple[Edit, dict[str, Any]]] = {
    "content in parts": (put("choices.0.message.content", PARTS), {"text": "I wait", "reasoning": "hm"}),
    "a call without an id": (drop("choices.0.message.tool_calls.0.id"), {}),
    "a call whose id is null": (put("choices.0.message.tool_calls.0.id", None), {}),
    "no arguments": (put("choices.0.message.tool_calls.0.function.arguments", None), {}),
    "arguments as an object": (put("choices.0.message.tool_calls.0.function.arguments", {}), {}),
    "details that are not reported": (count(prompt_tokens_details__cached_tokens=None), {}),
}


@pytest.mark.parametrize("name", FIT)
async def test_what_providers_do_is_read_and_sent_back_as_it_came(
    name: str, tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    edit, expected = FIT[name]
    async with conversation(edited(edit), "chat", tiny_tokenizer, tiny_model_config) as (talk, _, bodies):
        answer = await talk.ask()
        assert answer.call == ToolCall("wait", {})
        assert msgspec.structs.asdict(answer).items() >= expected.items()
        read_again(answer)
        talk.tell("nothing happens")
        await talk.ask()
        sent, reply = bodies[1]["messages"][1:]
        assert sent["content"] == (PARTS if expected else "")
        assert reply["tool_call_id"] == sent["tool_calls"][0]["id"] == answer.open_calls[0]
        assert answer.open_calls[0]


def read_again(answer: Completion) -> None:
    """Record the answer as a turn, and read it."""
    turn = Turn([], answer.text, answer.usage, answer.seconds, reasoning=answer.reasoning, call=answer.call)
    assert json_records.make_decoder(Turn)(json_records.encode(turn), "turn") == turn


@pytest.mark.parametrize("arguments", ['{"to": "fa', "[1]", "null", "[" * 40, '{"a": NaN}'])
async def test_arguments_that_cannot_be_read_are_quoted_in_the_reply_and_leave_the_history(
    arguments: str, tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    answer = Answer(calls=(("wait", arguments),), finish="tool_calls")
    async with conversation(answer, "chat", tiny_tokenizer, tiny_model_config) as (talk, _, bodies):
        first = await talk.ask()
        assert first.call is None
        assert arguments[:40] in str(first.problem)
        read_again(first)
        talk.tell(f"Error: {first.problem}")
        await talk.ask()
        sent, reply = bodies[1]["messages"][1:]
        assert "tool_calls" not in sent
        assert (reply["role"], reply["content"]) == ("user", f"Error: {first.problem}")


async def test_a_filtered_answer_is_a_refusal(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    answer = Answer("I", finish="content_filter")
    async with conversation(answer, "chat", tiny_tokenizer, tiny_model_config) as (talk, rows, _):
        with pytest.raises(RequestRefused, match="content filter"):
            await talk.ask()
        assert [row.wasted for row in rows] == [True]
