"""Turns of a conversation as steps of an ATIF 1.8 trajectory, and back without loss.

Both sides are JSON objects, not records: a field that an earlier version did not write stays missing.

| in the record | in the trajectory |
|---|---|
| a system or user message | a step with its source |
| the reply to a tool call | the observation of the step that made the call |
| a turn: text, reasoning, call, tokens | an agent step with `llm_call_count: 1` |
| a call below it in the call tree | an agent step with `llm_call_count: 0`, callers first |
| everything else | `extra.speedrunner` of the step, see `StepNote` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from serving.conversation import TokenIds
from serving.usage import Integer, Prices, Usage
from speedrunner.export.conversations import timestamp
from speedrunner.store.records import CallNode, Turn

Json = dict[str, Any]

NAME = "speedrunner"
"""Key of everything in `extra` that ATIF has no field for."""


class StepNote(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The part of a record that a step's own fields cannot hold.

    Attributes:
        turn: number of the turn in its record, from 0; only agent steps with a model's answer have it.
        rest: other fields of the turn or of the call.
        depth: depth of a call below the agent's own; 0: another step.
        holds: field of the call that its observation shows; `json`: the result, which is no text.
        unseen: whether no prompt shows the observation, because the agent's work was over.
        role: role of a message, if its source is another one.
        filler: whether the step only says that the conversation has no answer.
    """

    turn: Integer | None = None
    rest: Json = {}
    depth: Integer = 0
    holds: Literal["result", "json", "error"] | None = None
    unseen: bool = False
    role: str | None = None
    filler: bool = False


PROMPT_IDS = 1_000_000
"""Maximum sum of the prompt lengths of a conversation, in tokens, up to which its answers have the ids of
their prompts. Each repeats the ids before it, so the sum grows with the square of the number of turns.
"""


def has_long_prompts(turns: Sequence[tuple[int, Json]]) -> bool:
    """Return whether the recorded token ids of a conversation's prompts exceed `PROMPT_IDS`."""
    recorded = (turn["token_ids"] for _, turn in turns if "token_ids" in turn)
    total: int = sum(ids["shared"] + len(ids["prompt"]) for ids in recorded)
    return total > PROMPT_IDS


def note_of(step: Json) -> StepNote:
    """Return the note of a step or of an observation's result. Raises `msgspec.ValidationError`."""
    return msgspec.convert(step.get("extra", {}).get(NAME, {}), StepNote)


def in_order(record: Json, kind: type[msgspec.Struct]) -> Json:
    """Return a record with its keys in the order of its type's fields."""
    names = (field.encode_name for field in msgspec.structs.fields(kind))
    return {name: record[name] for name in names if name in record} | record


def steps_of(
    turns: Sequence[tuple[int, Json]],
    times: Mapping[str, float],
    prices: Prices | None,
    with_ids: bool = False,
) -> list[Json]:
    """Return the steps of a conversation; at least one.

    Args:
        turns: with their numbers in the record.
        times: Unix seconds at which each request ended.
        prices: prices of the model's tokens, if known.
        with_ids: whether answers have the token ids of their requests, if they were recorded. Those of the
            prompts are left out if `has_long_prompts`.
    """
    with_prompts = with_ids and not has_long_prompts(turns)
    steps: list[Json] = []
    ids: list[int] = []
    answer: Json | None = None
    for number, turn in turns:
        messages = turn["messages"]
        if answer is not None and messages and messages[0]["role"] == "tool":
            _observe(answer, messages[0]["content"], StepNote())
            messages = messages[1:]
        steps += map(_message, messages)
        answer = _answer(number, turn, times, prices)
        if with_ids and "token_ids" in turn:
            recorded = msgspec.convert(turn["token_ids"], TokenIds)
            if with_prompts:
                prompt = recorded.whole_prompt(ids)
                answer["metrics"]["prompt_token_ids"] = prompt
                ids = prompt + recorded.answer
            answer["metrics"]["completion_token_ids"] = recorded.answer
        steps += [answer, *_calls_below(number, turn["executed"] or {"calls": []})]
    if answer is not None and (last := turns[-1][1]["executed"]) is not None:
        holds, text = _shown(last)
        if holds is not None:
            _observe(answer, text, StepNote(unseen=True))
    if not steps:
        steps = [_noted({"source": "system", "message": "No request was answered."}, StepNote(filler=True))]
    return [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]


def turns_of(steps: Sequence[Json]) -> Iterator[tuple[int, Json]]:
    """Yield the turns of an exported conversation with their numbers.

    Raises:
        LookupError, TypeError, ValueError: the steps are not those of an exported trajectory.
    """
    messages: list[Json] = []
    callers: list[Json] = []
    for step in steps:
        note = note_of(step)
        if note.turn is not None:
            turn = _turn(step, note) | {"messages": messages}
            messages = []
            if (said := step.get("observation")) and not _first_note(said).unseen:
                messages = [{"role": "tool", "content": said["results"][0]["content"]}]
            callers = [turn["executed"]]
            yield note.turn, in_order(turn, Turn)
        elif note.depth:
            if not callers or note.depth > len(callers):
                raise ValueError(f"step {step['step_id']} is a call without its caller")
            del callers[note.depth :]
            callers.append(_call(step, note))
            callers[-2]["calls"].append(callers[-1])
        elif not note.filler:
            messages.append({"role": note.role or step["source"], "content": step["message"]})
    if messages:
        raise ValueError("its last messages have no answer")


def _noted(step: Json, note: StepNote) -> Json:
    """Return a step, or an observation's result, with a note, if that says anything."""
    content = msgspec.to_builtins(note)
    return {**step, "extra": {NAME: content}} if content else step


def _first_note(observation: Json) -> StepNote:
    return note_of(observation["results"][0])


def _observe(step: Json, text: str, note: StepNote) -> None:
    calls = step.get("tool_calls")
    source = {"source_call_id": calls[0]["tool_call_id"]} if calls else {}
    step["observation"] = {"results": [_noted({**source, "content": text}, note)]}


def _message(message: Json) -> Json:
    role = message["role"]
    source = role if role in ("system", "user") else "user"
    note = StepNote() if source == role else StepNote(role=role)
    return _noted({"source": source, "message": message["content"]}, note)


def _answer(number: int, turn: Json, times: Mapping[str, float], prices: Prices | None) -> Json:
    """Return the step of a model's answer."""
    call, executed, usage = turn["call"], turn["executed"], turn["usage"]
    held = ("messages", "text", "reasoning", "usage", "call", "executed")
    rest = {name: value for name, value in turn.items() if name not in held}
    if executed is not None:  # its name and arguments are mostly those of the call
        rest["executed"] = {
            name: value
            for name, value in executed.items()
            if name != "calls" and not (call and name in call and _same(value, call[name]))
        }
    step: Json = {"source": "agent", "message": turn["text"], "llm_call_count": 1}
    if (moment := times.get(turn.get("request", ""))) is not None:
        step["timestamp"] = timestamp(moment)
    if turn["reasoning"]:
        step["reasoning_content"] = turn["reasoning"]
    if call is not None:
        step["tool_calls"] = [_tool_call(f"turn-{number}", call)]
    step["metrics"] = _metrics(usage, prices)
    return _noted(step, StepNote(turn=number, rest=rest))


def _metrics(usage: Json, prices: Prices | None) -> Json:
    metrics: Json = {
        "prompt_tokens": usage["prompt"],
        "completion_tokens": usage["completion"],
        "cached_tokens": usage["cached"],
        "extra": {"reasoning_tokens": usage["reasoning"]},
    }
    if prices is not None:
        metrics["cost_usd"] = prices.cost(msgspec.convert(usage, Usage))
    return metrics


def _tool_call(name: str, call: Json) -> Json:
    found = {"tool_call_id": name, "function_name": call["name"], "arguments": call["arguments"]}
    rest = {key: value for key, value in call.items() if key not in ("name", "arguments")}
    return {**found, "extra": {NAME: rest}} if rest else found


def _turn(step: Json, note: StepNote) -> Json:
    """Return the turn of an answer's step, without its messages; its executed call has no calls yet."""
    metrics = step["metrics"]
    call = None
    if calls := step.get("tool_calls"):
        (made,) = calls
        call = {"name": made["function_name"], "arguments": made["arguments"]}
        call |= made.get("extra", {}).get(NAME, {})
    executed = note.rest.get("executed")
    if executed is not None:
        from_call = {name: call[name] for name in ("name", "arguments")} if call else {}
        executed = in_order({**from_call, **executed, "calls": []}, CallNode)
    return {
        **note.rest,
        "text": step["message"],
        "reasoning": step.get("reasoning_content", ""),
        "call": call,
        "executed": executed,
        "usage": {
            "prompt": metrics["prompt_tokens"],
            "cached": metrics["cached_tokens"],
            "completion": metrics["completion_tokens"],
            "reasoning": metrics["extra"]["reasoning_tokens"],
        },
    }


def _calls_below(number: int, node: Json) -> Iterator[Json]:
    """Yield the steps of all calls below an agent's own."""
    found = list(_walk(node, 1))
    for place, (depth, each) in enumerate(found, start=1):
        made = {"name": each["name"], "arguments": each["arguments"]}
        step: Json = {"source": "agent", "message": "", "llm_call_count": 0}
        step["tool_calls"] = [_tool_call(f"turn-{number}-{place}", made)]
        holds, text = _shown(each)
        if holds is not None:
            _observe(step, text, StepNote())
        field = "result" if holds == "json" else holds
        held = ("name", "arguments", "calls", field)
        rest = {
            key: value
            for key, value in each.items()
            if key not in held and not (value is None and key in ("result", "error"))
        }
        yield _noted(step, StepNote(depth=depth, holds=holds, rest=rest))


def _walk(node: Json, depth: int) -> Iterator[tuple[int, Json]]:
    for each in node["calls"]:
        yield depth, each
        yield from _walk(each, depth + 1)


def _call(step: Json, note: StepNote) -> Json:
    """Return the call of such a step, without the calls below it."""
    (made,) = step["tool_calls"]
    call = {"name": made["function_name"], "arguments": made["arguments"], "result": None, "error": None}
    if note.holds is not None:
        text = step["observation"]["results"][0]["content"]
        if note.holds == "json":
            call["result"] = msgspec.json.decode(text)
        else:
            call[note.holds] = text
    return in_order({**call, **note.rest, "calls": []}, CallNode)


def _shown(node: Json) -> tuple[Literal["result", "json", "error"] | None, str]:
    """Return which field of a call an observation shows, and its text."""
    if node["error"] is not None:
        return "error", node["error"]
    if node["result"] is None:
        return None, ""
    if isinstance(node["result"], str):
        return "result", node["result"]
    return "json", msgspec.json.encode(node["result"]).decode()


def _same(value: object, other: object) -> bool:
    """Return whether two values are the same JSON; `1 == 1.0` in Python."""
    return msgspec.json.encode(value) == msgspec.json.encode(other)
