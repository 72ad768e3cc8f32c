"""The responses API, against a server that refuses what OpenAI's own types do not allow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from serving.apis.responses import ResponsesConversation
from serving.conversation import Conversation
from serving.errors import InvalidCall, RequestFailed, RequestRefused, TruncatedCall
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Usage
from tests import scripted_engine as scripted
from tests.scripted_engine import Answer, Script, call, say
from tests.scripted_runs import ScriptedModel, scripted_model
from tests.strict_responses import find_faults
from tests.tool_samples import STRING, record

GO = ToolSpec("go", "Go somewhere.", record("to", to=STRING))
MESSAGES = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}]


def thinking(answer: Answer) -> Answer:
    return replace(answer, thinking="I think.")


@asynccontextmanager
async def hosted(
    script: Script, tokenizer: ChatTokenizer, model_config: ModelConfig, **role: Any
) -> AsyncIterator[ScriptedModel]:
    """A strict provider with a model that reasons."""
    actor = Role(string_tokens=40, **{"reasoning_effort": "low", **role})
    config = msgspec.structs.replace(model_config, api="responses", roles=Roles(actor=actor, inducer=actor))
    async with scripted_model(script, config, tokenizer) as opened:
        opened.server.find_faults = find_faults
        opened.model.engine.hosted = True
        yield opened


def converse(opened: ScriptedModel, **labels: str) -> Conversation:
    return opened.model.converse("actor", MESSAGES, [GO], labels)


async def test_a_request_carries_all_items_and_no_state_is_kept_at_the_provider(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    async with hosted([thinking(call("go", to="x"))] * 2, tiny_tokenizer, tiny_model_config) as opened:
        talk = converse(opened)
        answer = await talk.ask()
        assert (answer.call, answer.reasoning) == (ToolCall("go", {"to": "x"}), "I think.")
        talk.tell("a wall")
        await talk.ask()
        first, second = (request.body for request in opened.server.requests)
        assert first == {
            "model": "tiny-random",
            "input": MESSAGES,
            "tools": [{"type": "function", "name": "go", "description": "Go somewhere.",
                       "parameters": GO.parameters, "strict": False}],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "max_output_tokens": 40 + 1024,
            "store": False,
            "prompt_cache_key": first["prompt_cache_key"],
            "reasoning": {"effort": "low"},
            "include": ["reasoning.encrypted_content"],
        }  # fmt: skip
        reasoning, made, output = second["input"][2:]
        assert reasoning["encrypted_content"] == "gAAA="
        assert made["arguments"] == '{"to": "x"}'
        assert output == {"type": "function_call_output", "call_id": made["call_id"], "output": "a wall"}
        assert second["prompt_cache_key"] == first["prompt_cache_key"]


async def test_each_conversation_has_its_own_key_of_the_provider_s_cache(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    async with hosted([], tiny_tokenizer, tiny_model_config) as opened:
        talks = [converse(opened, episode=episode) for episode in ("1", "2", "1")]
        keys = [talk.options["prompt_cache_key"] for talk in talks if isinstance(talk, ResponsesConversation)]
        assert keys[0] == keys[2] != keys[1]


MISTAKES = {
    "no call": (say("I would go."), InvalidCall),
    "reasoning alone": (say(""), InvalidCall),
    "two calls": (scripted.two_calls(call("go", to="x"), call("go", to="y")), InvalidCall),
    "unreadable arguments": (scripted.cut_arguments("go", '{"to": "fa'), InvalidCall),
    "an unknown tool": (call("fly"), InvalidCall),
    "a limit while it reasons": (scripted.cut(call("go", to="far away")), TruncatedCall),
    "a limit within the arguments": (
        Answer(calls=(("go", '{"to": "fa'),), finish="length"),
        TruncatedCall,
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_after_each_mistake_the_provider_takes_the_history(
    name: str, tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    answer, kind = MISTAKES[name]
    answers = [thinking(answer), thinking(call("go", to="x")), thinking(call("go", to="y"))]
    async with hosted(answers, tiny_tokenizer, tiny_model_config) as opened:
        talk = converse(opened)
        assert isinstance((await talk.ask()).problem, kind)
        for _ in range(2):
            talk.tell("go on")
            assert (await talk.ask()).call is not None
        assert opened.server.requests[1].last == "go on"


async def test_recorded_answers_are_sent_back_by_another_process(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    answers = [thinking(call("go", to="x"))] * 3
    async with hosted(answers, tiny_tokenizer, tiny_model_config) as opened:
        first, second = converse(opened), converse(opened)
        second.recorded = [await first.ask()]
        await second.ask()
        for talk in (first, second):
            talk.tell("a wall")
            await talk.ask()
        bodies = [request.body for request in opened.server.requests]
        assert bodies[1] == bodies[2]


async def test_the_usage_has_the_provider_s_classes(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    def count(content: dict[str, Any]) -> dict[str, Any]:
        content["usage"] = {
            "input_tokens": 100,
            "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 15},
            "total_tokens": 120,
        }
        return content

    async with hosted([replace(call("go", to="x"), edit=count)], tiny_tokenizer, tiny_model_config) as opened:
        answer = await converse(opened).ask()
        assert answer.usage == Usage(prompt=100, cached=64, completion=20, reasoning=15)
        assert [row.usage for row in opened.rows] == [answer.usage]


def put(**values: Any) -> Answer:
    return replace(thinking(call("go", to="x")), edit=lambda content: {**content, **values})


UNFIT = {
    "$.status": put(status="queued"),
    "The model had an error": put(
        status="failed",
        output=[],
        usage=None,
        error={"code": "server_error", "message": "The model had an error."},
    ),
    "input_tokens": put(usage={"output_tokens": 3}),
    "output_tokens": put(usage={"input_tokens": 3, "output_tokens": None}),
    "cannot be cached": put(
        usage={"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 4}}
    ),
    "cannot be part of": put(
        usage={"input_tokens": 3, "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 4}}
    ),
    "[0].type": put(output=[{"type": "video"}]),
    "[0].arguments": put(output=[{"type": "function_call", "name": "go", "arguments": {}}]),
    "[0].content": put(output=[{"type": "message", "content": "I go."}]),
    "[0].summary": put(output=[{"type": "reasoning", "summary": None}]),
    "$.output": put(output={}),
}


@pytest.mark.parametrize("named", UNFIT)
async def test_what_does_not_fit_is_a_failed_try_that_names_the_field(
    named: str, tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    async with hosted(lambda request: UNFIT[named], tiny_tokenizer, tiny_model_config) as opened:
        with pytest.raises(RequestFailed, match="failed 2 times") as caught:
            await converse(opened).ask()
        assert named in str(caught.value)


async def test_a_filtered_answer_is_a_refusal(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    async with hosted([Answer("I", finish="content_filter")], tiny_tokenizer, tiny_model_config) as opened:
        with pytest.raises(RequestRefused, match="content filter"):
            await converse(opened).ask()


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"input": MESSAGES, "top_k": 3}, "unknown parameter top_k"),
        ({"input": [{"role": "tool", "content": "x"}]}, "role"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "no tool call found"),
        ({"input": [{"type": "reasoning", "id": "r", "summary": []}]}, "required following item"),
    ],
)
def test_the_stand_in_refuses_what_the_provider_does(body: dict[str, Any], named: str) -> None:
    assert named in "; ".join(find_faults(body))
