"""The chat completions API (`/v1/chat/completions`): hosted models, or vLLM's built-in tool calls."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec

from serving.apis.messages import Item, MessageAnswer, MessageConversation, WrittenAnswer, WrittenCall
from serving.model_config import Role
from serving.tokens.tools import ToolSpec


class _Text(msgspec.Struct, tag="text"):
    text: str


class _Thinking(msgspec.Struct, tag="thinking"):
    thinking: str | list[_Text]


class _Refusal(msgspec.Struct, tag="refusal"):
    refusal: str


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None
    """JSON as text; some gateways give the object."""


class _Call(msgspec.Struct):
    function: _Function
    id: str | None = None


class _Message(msgspec.Struct):
    """An assistant's message. Mistral's models, and some others, write its content in parts."""

    content: str | list[_Text | _Thinking | _Refusal] | None = None
    refusal: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    """The model's message, as the plain JSON that later requests send back."""

    message: dict[str, Any]
    finish_reason: str | None = None


class ChatCompletion(MessageAnswer):
    """The answer of `/v1/chat/completions`."""

    choices: Annotated[list[_Choice], msgspec.Meta(min_length=1)]

    @property
    def aborted(self) -> bool:
        """See `Answer`."""
        return self.choices[0].finish_reason == "abort"

    def read(self, turn: int) -> WrittenAnswer:
        """See `MessageAnswer`."""
        choice = self.choices[0]
        message = choice.message
        said = msgspec.convert(message, _Message)
        text, thoughts = _read_content(said.content)
        calls = [
            WrittenCall(call.id or f"call_{turn}_{n}", call.function.name, _write(call.function.arguments))
            for n, call in enumerate(said.tool_calls or [])
        ]
        echo = {"role": "assistant", "content": message.get("content") or ""}
        if calls:
            sent = zip(message["tool_calls"], calls, strict=True)
            echo["tool_calls"] = [{**entry, "id": call.id} for entry, call in sent]
        # vLLM's templates lose the reasoning unless it is sent back under the name that it arrived with.
        echo |= {key: message[key] for key in ("reasoning", "reasoning_content") if message.get(key)}
        return WrittenAnswer(
            text=text or said.refusal or "",
            reasoning=said.reasoning or said.reasoning_content or thoughts,
            calls=calls,
            items=[echo],
            is_cut=choice.finish_reason == "length",
            is_filtered=choice.finish_reason == "content_filter",
        )


def _read_content(content: str | list[_Text | _Thinking | _Refusal] | None) -> tuple[str, str]:
    """Return the text and the thinking of a message's content."""
    text, thoughts = "", ""
    for part in [_Text(content)] if isinstance(content, str) else content or []:
        match part:
            case _Text():
                text += part.text
            case _Refusal():
                text += part.refusal
            case _Thinking():
                inner = part.thinking
                thoughts += inner if isinstance(inner, str) else "".join(piece.text for piece in inner)
    return text, thoughts


class ChatConversation(MessageConversation):
    """A conversation as messages."""

    path = "chat/completions"
    form = ChatCompletion
    items_field = "messages"

    def own_options(self, tools: list[ToolSpec], role: Role) -> Item:
        """See `MessageConversation`."""
        effort = {"reasoning_effort": role.reasoning_effort} if role.reasoning_effort else {}
        return {
            "tools": [tool.openai for tool in tools],
            "max_completion_tokens": self._max_tokens,
            **effort,
        }

    def reply_to(self, call_id: str, text: str) -> Item:
        """See `MessageConversation`."""
        return {"role": "tool", "tool_call_id": call_id, "content": text}


def _write(arguments: str | dict[str, Any] | None) -> str:
    """Return arguments as JSON text, empty without any."""
    return arguments or "" if not isinstance(arguments, dict) else json.dumps(arguments)
