"""A model without an engine: every role answers with fake calls, always the same for the same
conversation."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from serving.conversation import Completion, Conversation
from serving.errors import InvalidCall
from serving.model import Messages
from serving.model_config import ModelConfig, Role, Roles
from serving.tokens.tools import Schema, ToolCall, ToolSpec
from serving.usage import Prices, Usage
from speedrunner.runs.direct import LocalModel

CALLS = 20
"""Number of requests of one agent: enough to try each of its tools in order."""

SILENT = 8
"""One in this many answers contains no call."""

MODEL_CONFIG = ModelConfig(
    name="fake",
    tried="Answers are made up.",
    context=100_000,
    api="chat",
    base_url="http://localhost",
    roles=Roles(Role(string_tokens=100, max_calls=CALLS), Role(string_tokens=3000, max_calls=CALLS)),
    prices=Prices(0, 0, 0),
)

SKILL = 'def idea_{number}() -> str:\n    """Say a number."""\n    return "{number}"'
"""Half of all string arguments are this skill, so that programs written by agents are tried as well."""


class FakeModel(LocalModel):
    """Its answers depend on the conversation only, in any process. It sends no requests."""

    def __init__(self) -> None:
        super().__init__(MODEL_CONFIG)

    def converse(
        self, role: str, messages: Messages, tools: list[ToolSpec], labels: dict[str, str]
    ) -> Conversation:
        """See `Model`."""
        return _Fake([role, *(each["content"] for each in messages)], tools)


class _Fake(Conversation):
    """One conversation: `texts` are the role and all messages to the model."""

    def __init__(self, texts: list[str], tools: list[ToolSpec]) -> None:
        self._texts = texts
        self._tools = tools
        self._answers = 0

    async def request_answer(self) -> Completion:
        said = json.dumps([self._texts, [tool.name for tool in self._tools]]).encode()
        rng = random.Random(hashlib.sha256(said).digest())
        tool = self._tools[self._answers % len(self._tools)]
        call = ToolCall(tool.name, _value(tool.parameters, self._texts[-1].split(), rng))
        self._answers += 1
        problem = None if rng.randrange(SILENT) else InvalidCall("the answer has no tool call", "Hm.")
        return Completion(
            text="Hm.",
            reasoning="",
            call=None if problem else call,
            problem=problem,
            usage=Usage(prompt=len(said), completion=1),
            seconds=0.0,
        )

    def tell(self, text: str) -> None:
        self._texts.append(text)


def _value(schema: Schema, words: list[str], rng: random.Random) -> Any:
    """Make up a value for a schema. Strings are skills, their names, or words of the last message."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    match schema["type"]:
        case "object":
            return {name: _value(schema["properties"][name], words, rng) for name in schema["required"]}
        case "array":
            return [_value(schema["items"], words, rng)]
        case "string":
            skill, name = (text.format(number=rng.randrange(3)) for text in (SKILL, "idea_{number}"))
            return rng.choice([skill, skill, name, rng.choice(words or ["word"])])
        case "number":
            return rng.random()
        case "boolean":
            return rng.random() < 0.5
        case _:
            return rng.randrange(4)
