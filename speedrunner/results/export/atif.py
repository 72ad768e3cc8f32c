"""Export runs as ATIF 1.8 trajectories, one JSON file for each conversation.

| in the record | in the trajectory |
|---|---|
| a system or user message | a step with its source |
| a turn: text, reasoning, call, tokens | an agent step with `llm_call_count: 1` |
| the reply to a tool call | the observation of the step that made the call |
| a call below it in the call tree | an agent step with `llm_call_count: 0`, callers first |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import msgspec

from serving.usage import Usage
from speedrunner.config.names import identify_condition
from speedrunner.results.export.conversations import (
    Split,
    iterate_conversations,
    offered_tools,
    run_names,
    timestamp,
)
from speedrunner.store.records import CallNode, Turn
from speedrunner.store.run_data import RunData, load

SCHEMA = "ATIF-v1.8"

Json = dict[str, Any]


def write_trajectories(paths: Sequence[Path], folder: Path) -> int:
    """Write each run into a subfolder of an empty folder. Return the number of trajectories.

    Raises:
        StorageError: a run cannot be read.
        InvalidConfig: a run's configuration cannot be read.
        OSError: the folder cannot be written.
    """
    count = 0
    for name, path in zip(run_names(paths), paths, strict=True):
        run = load(path)
        (folder / name).mkdir()
        for key, document in _documents(run, name):
            (folder / name / f"{key}.json").write_bytes(msgspec.json.encode(document))
            count += 1
    return count


def _documents(run: RunData, name: str) -> Iterator[tuple[str, Json]]:
    """Yield the trajectories of a run with their file names, without suffix."""
    about = identify_condition(run.settings).by_column
    times = {row.request: row.time for row in run.ledger}
    tools = offered_tools(run)
    model = run.model_name
    for split in get_args(Split):
        for facts, conversation in iterate_conversations(run, split):
            agent: Json = {
                "name": "speedrunner",
                "version": version("speedrunner"),
                "model_name": model,
                "extra": {"role": conversation.role, **about},
            }
            if offered := tools.get((conversation.role, facts["policy"])):
                agent["tool_definitions"] = offered
            steps = list(_steps(conversation.turns, times))
            if not steps:  # the format wants at least one
                steps = [{"source": "system", "message": "No request was answered."}]
            key = f"{facts['episode'].replace('/', '-')}-{conversation.number:04d}"
            yield (
                key,
                {
                    "schema_version": SCHEMA,
                    "session_id": name,
                    "trajectory_id": key,
                    "agent": agent,
                    "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
                    "final_metrics": _final_metrics(conversation.usage, len(steps)),
                    "extra": facts,
                },
            )


def _final_metrics(usage: Usage, steps: int) -> Json:
    return {
        "total_prompt_tokens": usage.prompt,
        "total_completion_tokens": usage.completion,
        "total_cached_tokens": usage.cached,
        "total_steps": steps,
        "extra": {"reasoning_tokens": usage.reasoning},
    }


def _steps(turns: Sequence[Turn], times: Mapping[str, float]) -> Iterator[Json]:
    """Yield the steps of a conversation, without their numbers.

    Args:
        times: Unix seconds at which each request ended.
    """
    for number, turn in enumerate(turns):
        for message in turn.messages:
            if message.role != "tool":  # a tool's reply is the observation of its call
                source = message.role if message.role in ("system", "user") else "user"
                yield {"source": source, "message": message.content}
        step: Json = {"source": "agent", "message": turn.text, "llm_call_count": 1}
        if (ended := times.get(turn.request)) is not None:
            step["timestamp"] = timestamp(ended)
        if turn.reasoning:
            step["reasoning_content"] = turn.reasoning
        if turn.call is not None:
            step["tool_calls"] = [_tool_call(f"turn-{number}", turn.call.name, turn.call.arguments)]
        step["metrics"] = _metrics(turn.usage)
        following = turns[number + 1].messages if number + 1 < len(turns) else []
        replies = [message.content for message in following if message.role == "tool"]
        if replies or turn.executed is not None:
            _observe(step, replies[0] if replies else _shown(turn.executed))
        yield step
        if turn.executed is not None:
            below = _walk(turn.executed, 1)
            for place, (depth, node) in enumerate(below, start=1):
                yield _skill_step(f"turn-{number}-{place}", depth, node)


def _skill_step(name: str, depth: int, node: CallNode) -> Json:
    """Return the step of a call that a skill made, `depth` levels below the agent's own call."""
    step: Json = {
        "source": "agent",
        "message": "",
        "llm_call_count": 0,
        "tool_calls": [_tool_call(name, node.name, node.arguments)],
        "extra": {"depth": depth, "kind": node.kind, "seconds": node.seconds, "actions": node.actions},
    }
    _observe(step, _shown(node))
    return step


def _metrics(usage: Usage) -> Json:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
        "extra": {"reasoning_tokens": usage.reasoning},
    }


def _tool_call(name: str, function: str, arguments: Json) -> Json:
    return {"tool_call_id": name, "function_name": function, "arguments": arguments}


def _observe(step: Json, text: str | None) -> None:
    """Add what the step's call returned, if it returned anything."""
    if text is not None:
        calls = step.get("tool_calls")
        source = {"source_call_id": calls[0]["tool_call_id"]} if calls else {}
        step["observation"] = {"results": [{**source, "content": text}]}


def _walk(node: CallNode, depth: int) -> Iterator[tuple[int, CallNode]]:
    for call in node.calls:
        yield depth, call
        yield from _walk(call, depth + 1)


def _shown(node: CallNode | None) -> str | None:
    """Return the error or result of a call as text."""
    if node is None:
        return None
    if node.error is not None:
        return node.error
    if node.result is None or isinstance(node.result, str):
        return node.result
    return msgspec.json.encode(node.result).decode()
