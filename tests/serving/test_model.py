"""A card with its engine: which kind of conversation each role gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.errors import InvalidCard, InvalidTool
from serving.meter import Meter
from serving.model import Model
from serving.model_card import ModelCard
from serving.routes.chat import ChatConversation
from serving.routes.tokens import TokenConversation
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from tests.tool_samples import STRING, record

SAY = ToolSpec("say", "Say.", record("text", text=STRING))
MESSAGES = [{"role": "user", "content": "Begin."}]


def engine(card: ModelCard) -> Engine:
    return Engine(Endpoint.parse("http://127.0.0.1:9/v1"), card.name, Meter(lambda row: None, card.prices))


def with_roles(card: ModelCard, **actor: Any) -> ModelCard:
    roles = msgspec.structs.replace(card.roles, actor=msgspec.structs.replace(card.roles.actor, **actor))
    return msgspec.structs.replace(card, roles=roles)


async def test_each_role_has_its_own_bounds(tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer) -> None:
    card = with_roles(tiny_card, string_tokens=10, thinking_tokens=0)
    model = Model(card, engine(card), tiny_tokenizer)
    sizes = {}
    for role in ("actor", "inducer", "critic"):
        talk = model.converse(role, MESSAGES, [SAY], {})
        assert isinstance(talk, TokenConversation)
        sizes[role] = talk.transcript.answer_tokens
    difference = card.roles.inducer.string_tokens - 10
    assert sizes["inducer"] == sizes["critic"] == sizes["actor"] + difference


async def test_a_role_that_thinks_gets_a_thinking_region(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    card = with_roles(tiny_card, thinking_tokens=33)
    talk = Model(card, engine(card), tiny_tokenizer).converse("actor", MESSAGES, [SAY], {})
    assert isinstance(talk, TokenConversation)
    assert '"max_tokens": 33' in talk.tag


async def test_the_chat_route_needs_neither_tokenizer_nor_format(tiny_card: ModelCard) -> None:
    card = msgspec.structs.replace(tiny_card, route="chat", tool_format=None)
    model = Model(card, engine(card), None)
    assert isinstance(model.converse("actor", MESSAGES, [SAY], {}), ChatConversation)
    model.check_tool(SAY)


def unreadable(schema: dict[str, Any]) -> ToolSpec:
    return msgspec.structs.replace(SAY, parameters=record("text", text=schema))


async def test_tools_are_checked_against_the_served_tokenizer(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    model = Model(tiny_card, engine(tiny_card), tiny_tokenizer)
    model.check_tool(SAY)
    with pytest.raises(InvalidTool, match=r"^say: a call that its schema allows cannot be read"):
        # The grammar takes its options as they are, the reader by their types.
        model.check_tool(unreadable({"enum": [float("nan")]}))


async def test_text_is_counted_in_tokens_or_in_bytes_where_there_is_no_tokenizer(
    tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer
) -> None:
    text = "go to the grüne box <|im_end|>"
    served = Model(tiny_card, engine(tiny_card), tiny_tokenizer)
    assert served.count_tokens(text) == len(tiny_tokenizer.outside_text(text))
    card = msgspec.structs.replace(tiny_card, route="chat", tool_format=None)
    assert Model(card, engine(card), None).count_tokens(text) == 31


async def test_the_tokens_route_needs_both(tiny_card: ModelCard, tiny_tokenizer: ChatTokenizer) -> None:
    with pytest.raises(InvalidCard, match="needs tool_format and a tokenizer"):
        Model(tiny_card, engine(tiny_card), None)
    card = msgspec.structs.replace(tiny_card, tool_format=None)
    with pytest.raises(InvalidCard, match="needs tool_format and a tokenizer"):
        Model(card, engine(card), tiny_tokenizer)
