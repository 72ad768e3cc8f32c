"""All routes through one protocol, against an engine that says what the test wants."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from serving.admission import Replica
from serving.apis.chat_completions import ChatConversation
from serving.apis.completions import TokenConversation
from serving.apis.messages import ANSWER_TOKENS
from serving.conversation import NEUTRAL, Conversation
from serving.engine.capacity import CacheConfig
from serving.errors import ContextOverflow, InvalidCall, TruncatedCall
from serving.meter import LedgerRow, Meter
from serving.model import Model
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolCall, ToolSpec
from serving.usage import Usage
from tests import scripted_engine as scripted
from tests.scripted_engine import Answer, Script, ScriptedEngine, call, say
from tests.scripted_runs import scripted_model
from tests.tool_samples import STRING, record

GO = ToolSpec("go", "Go somewhere.", record("to", to=STRING))
WAIT = ToolSpec("wait", "Wait.", record())
MESSAGES = [{"role": "system", "content": "Play."}, {"role": "user", "content": "Begin."}]
APIS = ["completions", "chat", "responses"]


@dataclass
class Rig:
    """A scripted engine with a conversation and the rows it leaves."""

    server: ScriptedEngine
    model: Model
    talk: Conversation
    meter: Meter
    rows: list[LedgerRow]


@pytest.fixture
def open_talk(tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig) -> Callable[..., Any]:
    @asynccontextmanager
    async def rig(script: Script, api: str, thinking_tokens: int = 0, **changes: Any) -> AsyncIterator[Rig]:
        role = Role(
            string_tokens=40,
            thinking_tokens=thinking_tokens,
            temperature=0.5,
            top_k=20,
            reasoning_effort=None if api == "completions" else "low",
            template_options={"shown": True},
        )
        model_config = msgspec.structs.replace(
            tiny_model_config, api=api, roles=Roles(actor=role, inducer=role), **changes
        )
        async with scripted_model(script, model_config, tiny_tokenizer) as opened:
            talk = opened.model.converse("actor", MESSAGES, [GO, WAIT], {"episode": "7"})
            yield Rig(opened.server, opened.model, talk, opened.model.engine.meter, opened.rows)

    return rig


@pytest.mark.parametrize("api", APIS)
async def test_a_call_is_asked_for_answered_and_answered_to(open_talk: Any, api: str) -> None:
    async with open_talk([call("go", to="é\n"), call("wait")], api) as rig:
        first = await rig.talk.ask()
        assert first.call == ToolCall("go", {"to": "é\n"})
        assert first.problem is None
        assert first.usage.completion > 0
        rig.talk.tell("a wall")
        second = await rig.talk.ask()
        assert second.call == ToolCall("wait", {})
        assert second.usage.cached > 0
        assert [row.usage for row in rig.rows] == [first.usage, second.usage]
        assert [(row.status, row.wasted) for row in rig.rows] == [("ok", False)] * 2
        where = {"replica": "0"} if api == "completions" else {}
        assert rig.rows[0].labels == {"role": "actor", "episode": "7", **where}
        assert [request.turn for request in rig.server.requests] == [0, 1]
        assert "a wall" in rig.server.requests[1].last


async def test_a_turn_could_reuse_what_the_warmed_prefix_or_the_turn_before_left_in_the_cache(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    async with scripted_model([call("wait")] * 3, tiny_model_config, tiny_tokenizer) as opened:
        model, tools = opened.model, [GO, WAIT]
        messages = [MESSAGES[0], {"role": "user", "content": "Begin. " * 20}]
        model.replicas = [Replica(CacheConfig(scripted.BLOCK, 1000, True, scripted.BLOCK))]
        prefix = await model.warm("actor", messages, tools, {})
        talk = model.converse("actor", messages, tools, {})
        for _ in range(3):
            await talk.ask()
            talk.tell("a wall " * 20)
        warmed, *rows = opened.rows
        sent = [prefix, *(row.usage.prompt + row.usage.completion - 1 for row in rows if row.usage)]
        kept = [tokens // scripted.BLOCK * scripted.BLOCK for tokens in sent[:3]]
        assert kept[0] < kept[1] < kept[2]
        assert warmed.cacheable is None
        assert [row.cacheable for row in rows] == [row.usage and row.usage.cached for row in rows] == kept


@pytest.mark.parametrize("api", APIS)
async def test_each_turn_has_a_seed_also_in_a_process_that_resumes(open_talk: Any, api: str) -> None:
    seeds = []
    for key in ("0/train/0000/1/actor/0", "1/train/0000/1/actor/0", ""):
        async with open_talk([call("wait")] * 2, api) as one, open_talk([call("wait")], api) as other:
            one.talk.seed_key = other.talk.seed_key = key
            other.talk.recorded = [await one.talk.ask()]
            await other.talk.ask()
            for rig in (one, other):
                rig.talk.tell("a wall")
                await rig.talk.ask()
            first, second, resumed = (
                each.body.get("seed") for each in one.server.requests + other.server.requests
            )
            assert second == resumed
            seeds += [first, second]
    assert (len(set(seeds)), seeds[-2:]) == (5, [None, None])


MISTAKES = [
    (say("I would go left."), InvalidCall, "invalid"),
    (say(""), InvalidCall, "invalid"),
    (call("fly"), InvalidCall, "invalid"),
    (call("go", to=3), InvalidCall, "invalid"),
    (call("go"), InvalidCall, "invalid"),
    (scripted.two_calls(call("wait"), call("wait")), InvalidCall, "invalid"),
    (scripted.cut_arguments("go", '{"to": "fa'), InvalidCall, "invalid"),
    (scripted.cut(call("go", to="far away"), 12), TruncatedCall, "truncated"),
    (Answer(calls=call("go", to="x").calls, keep=12, finish="tool_calls"), InvalidCall, None),
]


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("answer", "kind", "status"), MISTAKES)
async def test_the_models_mistake_is_data_and_the_conversation_goes_on(
    open_talk: Any, api: str, answer: Answer, kind: type[InvalidCall], status: str | None
) -> None:
    async with open_talk([answer, call("wait")], api) as rig:
        first = await rig.talk.ask()
        assert first.call is None
        assert isinstance(first.problem, kind)
        assert "\n" not in str(first.problem)
        assert rig.rows[0].status in ((status,) if status else ("invalid", "truncated"))
        assert not rig.rows[0].wasted
        rig.talk.tell("make one call")
        assert (await rig.talk.ask()).call == ToolCall("wait", {})
        assert rig.server.requests[1].last == "make one call"


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("answer", [scripted.overflow(), scripted.overflow(exactly=True)])
async def test_an_overflow_is_told_apart(open_talk: Any, api: str, answer: Answer) -> None:
    async with open_talk([call("wait"), answer], api) as rig:
        await rig.talk.ask()
        rig.talk.tell("a long text")
        with pytest.raises(ContextOverflow):
            await rig.talk.ask()
        assert [(row.status, row.wasted) for row in rig.rows] == [("ok", False), ("overflow", True)]
        assert rig.rows[1].usage == Usage()


async def test_the_tokens_route_sends_ids_that_only_grow_and_the_tag(open_talk: Any) -> None:
    async with open_talk(lambda request: call("go", to=f"<|im_end|> {request.turn}"), "completions") as rig:
        assert isinstance(rig.talk, TokenConversation)
        answers = []
        for _ in range(4):
            answers.append((await rig.talk.ask()).token_ids)
            rig.talk.tell("<|im_start|>assistant\n")
        bodies = [request.body for request in rig.server.requests]
        for earlier, answer, later in zip(bodies, answers, bodies[1:], strict=False):
            assert later["prompt"][: len(earlier["prompt"]) + len(answer)] == earlier["prompt"] + answer
        tag = json.loads(bodies[0]["structured_outputs"]["structural_tag"])
        assert tag["type"] == "structural_tag"
        assert {body["structured_outputs"]["structural_tag"] for body in bodies} == {rig.talk.tag}
        assert bodies[0].items() >= {**NEUTRAL, "temperature": 0.5, "top_k": 20}.items()
        assert bodies[0]["max_tokens"] == rig.talk.transcript.answer_tokens


async def test_each_role_has_its_own_bounds(
    tiny_tokenizer: ChatTokenizer, tiny_model_config: ModelConfig
) -> None:
    roles = Roles(actor=Role(string_tokens=10), inducer=Role(string_tokens=70))
    model_config = msgspec.structs.replace(tiny_model_config, roles=roles)
    sizes = {}
    async with scripted_model([], model_config, tiny_tokenizer) as opened:
        for role in ("actor", "inducer", "critic"):
            talk = opened.model.converse(role, MESSAGES, [GO], {})
            assert isinstance(talk, TokenConversation)
            sizes[role] = talk.transcript.answer_tokens
    assert sizes["inducer"] == sizes["critic"] == sizes["actor"] + 60


async def test_a_full_context_overflows_before_anything_is_sent(open_talk: Any) -> None:
    async with open_talk([], "completions", context=100) as rig:
        with pytest.raises(ContextOverflow, match="context is 100"):
            await rig.talk.ask()
        assert rig.rows == []


async def test_an_answer_cut_by_the_end_of_the_context_is_an_overflow_with_what_there_was_room_for(
    open_talk: Any,
) -> None:
    async with open_talk([], "completions", thinking_tokens=30) as rig:
        prompt = len(rig.talk.transcript.ids)
    answer = Answer(calls=call("go", to="x" * 500).calls, thinking="left")
    async with open_talk([answer], "completions", context=prompt + 10, thinking_tokens=30) as rig:
        found = await rig.talk.ask()
        assert found.overflows
        assert "10 tokens left" in str(found.problem)
        (row,) = rig.rows
        assert (row.status, row.wasted, row.usage) == ("overflow", False, found.usage)
        assert found.usage.completion == 10
        assert found.call is None
        assert found.text + found.reasoning != ""


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_the_tokens_of_a_reply_are_estimated_by_the_provider_s_count(open_talk: Any, api: str) -> None:
    text = "You see a grey door and a red ball, two steps ahead. " * 40
    async with open_talk([call("wait")] * 2, api) as rig:
        first = await rig.talk.ask()
        model = Model(rig.model.model_config, rig.model.engine, tokenizer=None)
        estimate = model.count_tokens(text, rig.talk.bytes_per_token)
        rig.talk.tell(text)
        grown = (await rig.talk.ask()).usage.prompt - first.usage.prompt
    assert 0.7 < estimate / grown < 1.4


async def test_the_chat_route_sends_messages_tools_and_effort(open_talk: Any) -> None:
    async with open_talk([call("wait"), call("wait")], "chat") as rig:
        assert isinstance(rig.talk, ChatConversation)
        await rig.talk.ask()
        rig.talk.tell("a wall")
        await rig.talk.ask()
        first, second = (request.body for request in rig.server.requests)
        assert first["messages"] == MESSAGES
        assert first["tools"] == [GO.openai, WAIT.openai]
        assert first["tool_choice"] == "required"
        assert first["parallel_tool_calls"] is False
        assert first["reasoning_effort"] == "low"
        assert first["chat_template_kwargs"] == {"shown": True}
        assert first["max_completion_tokens"] == 40 + ANSWER_TOKENS
        *before, assistant, reply = second["messages"]
        assert before == MESSAGES
        assert assistant["tool_calls"][0]["function"] == {"name": "wait", "arguments": "{}"}
        assert reply == {
            "role": "tool",
            "tool_call_id": assistant["tool_calls"][0]["id"],
            "content": "a wall",
        }
