"""The responses API as a strict provider speaks it, by the types that OpenAI publishes for its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from openai.types.responses import EasyInputMessageParam, FunctionToolParam, ResponseReasoningItemParam
from openai.types.responses import ResponseFunctionToolCallParam as FunctionCallParam
from openai.types.responses import ResponseOutputMessageParam as OutputMessageParam
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from openai.types.responses.response_input_param import FunctionCallOutput
from openai.types.shared_params import Reasoning
from pydantic import TypeAdapter, ValidationError

ITEMS: dict[str, Any] = {
    "reasoning": ResponseReasoningItemParam,
    "function_call": FunctionCallParam,
    "function_call_output": FunctionCallOutput,
    "message": OutputMessageParam,
}
"""The types of input items, by `type`; an item without one is a message."""


def find_faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a provider refuses a request: unknown or missing fields, values of wrong types, items out of
    order."""
    plain = {name: body[name] for name in body if name not in ("input", "tools", "reasoning")}
    fields = ResponseCreateParamsNonStreaming
    yield from (f"unknown parameter {name}" for name in body if name not in fields.__optional_keys__)
    yield from _misfits("request", plain, fields)
    yield from _misfits("reasoning", body.get("reasoning", {}), Reasoning)
    for number, tool in enumerate(body.get("tools", [])):
        yield from _misfits(f"tools[{number}]", tool, FunctionToolParam)
    for number, item in enumerate(body["input"]):
        kind = ITEMS[item["type"]] if "type" in item else EasyInputMessageParam
        yield from _misfits(f"input[{number}]", item, kind)
    yield from _disorder(body["input"], stores=body.get("store", True))


def _misfits(place: str, value: Any, kind: Any) -> Iterator[str]:
    unknown = set(value) - kind.__required_keys__ - kind.__optional_keys__
    yield from (f"{place}: unknown parameter {name}" for name in sorted(unknown))
    try:
        TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        yield f"{place}: {error.errors()[0]['loc']}: {error.errors()[0]['msg']}"


def _disorder(items: Sequence[Mapping[str, Any]], *, stores: bool) -> Iterator[str]:
    open_calls, seen = set[str](), set[str]()
    for item, following in zip(items, [*items[1:], {}], strict=True):
        kind = item.get("type")
        if kind == "reasoning":
            if following.get("type") not in ("reasoning", "message", "function_call"):
                yield f"{item['id']} of type 'reasoning' was provided without its required following item"
            if not stores and not item.get("encrypted_content"):
                yield f"item {item['id']} was not found: items are not persisted when store is false"
        elif kind == "function_call":
            if item["call_id"] in seen:
                yield f"duplicate call {item['call_id']}"
            seen.add(item["call_id"])
            open_calls.add(item["call_id"])
        elif kind == "function_call_output":
            if item["call_id"] not in open_calls:
                yield f"no tool call found for function call output with call_id {item['call_id']}"
            open_calls.discard(item["call_id"])
        elif open_calls and "role" in item and item["role"] != "assistant":
            yield f"no tool output found for function call {', '.join(sorted(open_calls))}"
    if open_calls:
        yield f"no tool output found for function call {', '.join(sorted(open_calls))}"
