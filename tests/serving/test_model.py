"""A model config with its engine: which kind of conversation each role gets."""

from __future__ import annotations

from typing import Any

import msgspec

from serving.apis.completions import TokenConversation
from serving.engine.client import Engine
from serving.engine.endpoint import Endpoint
from serving.meter import Meter
from serving.model import Model
from serving.model_config import ModelConfig
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from tests.tool_samples import STRING, record

SAY = ToolSpec("say", "Say.", record("text", text=STRING))
MESSAGES = [{"role": "user", "content": "Begin."}]


def engine(model_config: ModelConfig) -> Engine:
    return Engine(
        Endpoint.parse("http://127.0.0.1:9/v1"),
        model_config.name,
        Meter(lambda row: None, model_config.prices),
    )


def with_roles(model_config: ModelConfig, **actor: Any) -> ModelConfig:
    roles = msgspec.structs.replace(
        model_config.roles, actor=msgspec.structs.replace(model_config.roles.actor, **actor)
    )
    return msgspec.structs.replace(model_config, roles=roles)


async def test_each_role_has_its_own_bounds(
    tiny_model_config: ModelConfig, tiny_tokenizer: ChatTokenizer
) -> None:
    model_config = with_roles(tiny_model_config, string_tokens=10, thinking_tokens=0)
    model = Model(model_config, engine(model_config), tiny_tokenizer)
    sizes = {}
    for role in ("actor", "inducer", "critic"):
        talk = model.converse(role, MESSAGES, [SAY], {})
        assert isinstance(talk, TokenConversation)
        sizes[role] = talk.transcript.answer_tokens
    difference = model_config.roles.inducer.string_tokens - 10
    assert sizes["inducer"] == sizes["critic"] == sizes["actor"] + difference
