"""The responses API (`/v1/responses`): hosted models that reason between calls.

The provider stores nothing: each request carries the whole conversation, with every item of earlier answers
unchanged. These items include the reasoning (encrypted by OpenAI, in the clear by vLLM).
"""

from __future__ import annotations

from typing import Any

from serving.apis.message_apis import MessageConversation, Said, WrittenCall
from serving.engine.answers import Item, Response
from serving.engine.client import EngineResponse
from serving.tokens.tools import ToolSpec


class ResponsesConversation(MessageConversation[Response]):
    """See `MessageConversation`."""

    @staticmethod
    def tool(tool: ToolSpec) -> dict[str, Any]:
        """See `MessageConversation`."""
        # Without `strict`, OpenAI makes optional parameters required.
        return {"type": "function", **tool.openai["function"], "strict": tool.strict}

    @staticmethod
    def effort(effort: str | None) -> dict[str, Any]:
        """See `MessageConversation`."""
        # Sent even without an effort: OpenAI does not recognize an item that it neither stored nor encrypted.
        whole = {"store": False, "include": ["reasoning.encrypted_content"]}
        return whole if effort is None else whole | {"reasoning": {"effort": effort}}

    def read(self, reply: EngineResponse[Response]) -> Said:
        """See `MessageConversation`."""
        response, items = reply.answer, reply.answer.items()
        # Trailing reasoning must not be sent back: OpenAI requires the item that followed it.
        last = max((n for n, item in enumerate(items) if item.type != "reasoning"), default=-1)
        return Said(
            text=_text(items, "message"),
            reasoning=_text(items, "reasoning"),
            calls=[
                WrittenCall(item.call_id, item.name, item.arguments)
                for item in items
                if item.type == "function_call"
            ],
            cut=response.cut,
            echo=response.output[: last + 1],
        )

    def output(self, call_id: str, text: str) -> dict[str, Any]:
        """See `MessageConversation`."""
        return {"type": "function_call_output", "call_id": call_id, "output": text}


def _text(items: list[Item], kind: str) -> str:
    """Return the text of all items of a kind, one paragraph for each part."""
    parts = [part for item in items if item.type == kind for part in (item.content or item.summary or [])]
    return "\n\n".join(part.text or part.refusal for part in parts)
