"""The responses API as the scripted engine speaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def read_messages(items: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return role and content of each turn of a request's input; an answer's items are one turn."""
    turns: list[tuple[str, str]] = []
    for item in items:
        content = item.get("content", item.get("output", ""))
        text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        role = "tool" if item.get("type") == "function_call_output" else item.get("role", "assistant")
        if role == "assistant" and turns and turns[-1][0] == role:
            text = turns.pop()[1] + text
        turns.append((role, text))
    return turns


def write_response(
    number: int, text: str, calls: Sequence[tuple[str, str]], thinking: str | None, usage: Any, finish: str
) -> dict[str, Any]:
    """Return an answer as the API writes it."""
    output: list[dict[str, Any]] = []
    if thinking is not None:
        summary = [{"type": "summary_text", "text": thinking}]
        output.append(
            {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": "gAAA="}
        )
    if text:
        part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        output.append({**item, "content": [part]})
    for index, (name, arguments) in enumerate(calls):
        item = {"id": f"fc_{number}_{index}", "type": "function_call", "status": "completed"}
        output.append({**item, "call_id": f"call_{number}_{index}", "name": name, "arguments": arguments})
    reasons = {"length": "max_output_tokens", "content_filter": "content_filter"}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "error": None,
        "status": "incomplete" if finish in reasons else "completed",
        "incomplete_details": {"reason": reasons[finish]} if finish in reasons else None,
        "output": output,
        "usage": usage
        and {
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": usage["prompt_tokens_details"],
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
        },
    }
