"""Transcripts with chosen budgets and formats."""

from __future__ import annotations

from typing import Any

import msgspec

from serving.model_config import Role, Roles
from serving.model_configs import load_model_config
from serving.tokens.tokenizer import ChatTokenizer
from serving.tokens.tools import ToolSpec
from serving.tokens.transcript import Transcript


def transcript_of(
    tokenizer: ChatTokenizer,
    messages: list[dict[str, str]],
    tools: list[ToolSpec],
    *,
    thinking_tokens: int = 0,
    string_tokens: int = 20,
    **fields: Any,
) -> Transcript:
    """Open a transcript with these budgets; `fields` are of the model config."""
    role = Role(string_tokens=string_tokens, thinking_tokens=thinking_tokens)
    fields |= {"roles": Roles(role, role)}
    model_config = msgspec.structs.replace(load_model_config("tiny-random"), **fields)
    return Transcript(model_config, "actor", tokenizer, messages, tools)
