"""The chat API (`/v1/chat/completions`): hosted models, or vLLM's built-in tool calls."""

from __future__ import annotations

from typing import Any

from serving.apis.message_apis import MessageConversation, Said, WrittenCall
from serving.engine.answers import ChatCompletion
from serving.engine.client import EngineResponse
from serving.tokens.tools import ToolSpec


class ChatConversation(MessageConversation[ChatCompletion]):
    """See `MessageConversation`."""

    @staticmethod
    def tool(tool: ToolSpec) -> dict[str, Any]:
        """See `MessageConversation`."""
        return tool.openai

    @staticmethod
    def effort(effort: str | None) -> dict[str, Any]:
        """See `MessageConversation`."""
        return {} if effort is None else {"reasoning_effort": effort}

    def read(self, reply: EngineResponse[ChatCompletion]) -> Said:
        """See `MessageConversation`."""
        choice = reply.answer.choices[0]
        message = choice.message or {}
        calls = message.get("tool_calls") or []
        echo = {"role": "assistant", "content": message.get("content") or ""}
        if calls:
            echo["tool_calls"] = calls
        # vLLM's templates lose the reasoning unless it is sent back under the name that it arrived with.
        echo |= {key: message[key] for key in ("reasoning", "reasoning_content") if message.get(key)}
        functions = [(entry["id"], entry.get("function") or {}) for entry in calls]
        return Said(
            text=message.get("content") or "",
            reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
            calls=[
                WrittenCall(call_id, function.get("name", ""), function.get("arguments") or "")
                for call_id, function in functions
            ],
            cut=choice.finish_reason == "length",
            echo=[echo],
        )

    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """See `MessageConversation`."""
        return {"role": "tool", "tool_call_id": call_id, "content": text}
