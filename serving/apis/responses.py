"""The responses API (`/v1/responses`) of OpenAI, on which its models reason and call tools; without state at
the provider: each request carries all items, also the encrypted reasoning."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

import msgspec

from serving.apis.messages import Item, MessageAnswer, MessageConversation, WrittenAnswer, WrittenCall
from serving.engine.one_try import Count, Counts, Details
from serving.model_config import Role
from serving.tokens.tools import ToolSpec


class _Text(msgspec.Struct, tag="output_text"):
    text: str


class _Refusal(msgspec.Struct, tag="refusal"):
    refusal: str


class _Thought(msgspec.Struct):
    text: str


class _Reasoning(msgspec.Struct, tag="reasoning"):
    summary: list[_Thought] = []
    content: list[_Thought] | None = None


class _Message(msgspec.Struct, tag="message"):
    content: list[_Text | _Refusal]


class _FunctionCall(msgspec.Struct, tag="function_call"):
    name: str
    arguments: str
    call_id: str | None = None


_Output = _Reasoning | _Message | _FunctionCall


class _Counts(Counts):
    prompt_tokens: Count = msgspec.field(name="input_tokens")
    completion_tokens: Count = msgspec.field(name="output_tokens")
    prompt_tokens_details: Details | None = msgspec.field(name="input_tokens_details", default=None)
    completion_tokens_details: Details | None = msgspec.field(name="output_tokens_details", default=None)


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class Response(MessageAnswer):
    """The answer of `/v1/responses`, with its output items as plain JSON."""

    status: Literal["completed", "incomplete"]
    output: list[dict[str, Any]]
    usage: _Counts
    incomplete_details: _Incomplete | None = None

    def read(self, turn: int) -> WrittenAnswer:
        """See `MessageAnswer`."""
        text, reasoning = "", ""
        calls, items = list[WrittenCall](), list[Item]()
        for came, item in zip(self.output, msgspec.convert(self.output, list[_Output]), strict=True):
            items.append({name: value for name, value in came.items() if value is not None})
            match item:
                case _Reasoning():
                    reasoning += "".join(thought.text for thought in [*item.summary, *(item.content or [])])
                case _Message():
                    text += "".join(
                        part.text if isinstance(part, _Text) else part.refusal for part in item.content
                    )
                case _FunctionCall():
                    calls.append(
                        WrittenCall(item.call_id or f"call_{turn}_{len(calls)}", item.name, item.arguments)
                    )
                    items[-1]["call_id"] = calls[-1].id
        while items and items[-1]["type"] == "reasoning":  # refused without the item that follows it
            items.pop()
        reason = self.incomplete_details.reason if self.incomplete_details else None
        return WrittenAnswer(
            text=text,
            reasoning=reasoning,
            calls=calls,
            items=items,
            is_cut=self.status == "incomplete" and reason != "content_filter",
            is_filtered=reason == "content_filter",
        )


class ResponsesConversation(MessageConversation):
    """A conversation as items: messages, reasoning, calls and their outputs."""

    path = "responses"
    form = Response
    items_field = "input"

    def own_options(self, tools: list[ToolSpec], role: Role) -> Item:
        """See `MessageConversation`."""
        # A provider keeps requests with one key on one machine, where a conversation's prompts are cached.
        key = hashlib.sha256(json.dumps([self._labels, self.items]).encode()).hexdigest()[:32]
        effort = {"reasoning": {"effort": role.reasoning_effort}, "include": ["reasoning.encrypted_content"]}
        return {
            "tools": [_function(tool) for tool in tools],
            "max_output_tokens": self._max_tokens,
            "store": False,
            "prompt_cache_key": key,
            **(effort if role.reasoning_effort else {}),
        }

    def reply_to(self, call_id: str, text: str) -> Item:
        """See `MessageConversation`."""
        return {"type": "function_call_output", "call_id": call_id, "output": text}


def _function(tool: ToolSpec) -> Item:
    """Return a tool in this API's form. A strict schema may have no optional parameter, so it is not strict
    unless the tool asks for it."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.doc,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
