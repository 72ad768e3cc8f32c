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
    for split in get_args(Split):
        for facts, conversation in iterate_conversations(run, split):
            agent: Json = {
                "name": "speedrunner",
                "version": version("speedrunner"),
                "model_name": run.model_name,
                "extra": {"role": conversation.role, **about},
            }
            if offered := tools.get((conversation.role, facts["policy"])):
                agent["tool_definitions"] = offered
            # The format wants at least one step.
            steps = [*_steps(conversation.turns, times)] or [
                {"source": "system", "message": "No request was answered."}
            ]
            key = f"{facts['episode'].replace('/', '-')}-{conversation.number:04d}"
            metrics = {f"total_{name}": count for name, count in _metrics(conversation.usage).items()}
            yield (
                key,
                {
                    "schema_version": SCHEMA,
                    "session_id": name,
                    "trajectory_id": key,
                    "agent": agent,
                    "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
                    "final_metrics": metrics | {"total_steps": len(steps)},
                    "extra": facts,
                },
            )


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
        following = turns[number + 1].messages if number + 1 < len(turns) else []
        replies = [message.content for message in following if message.role == "tool"]
        reply = replies[0] if replies else _shown(turn.executed)
        step: Json = {"source": "agent", "message": turn.text, "llm_call_count": 1}
        if (ended := times.get(turn.request)) is not None:
            step["timestamp"] = timestamp(ended)
        if turn.reasoning:
            step["reasoning_content"] = turn.reasoning
        if turn.call is not None:
            step |= _call(f"turn-{number}", turn.call.name, turn.call.arguments, reply)
        elif reply is not None:
            step["observation"] = {"results": [{"content": reply}]}
        yield step | {
            "metrics": {**_metrics(turn.usage), "extra": {"reasoning_tokens": turn.usage.reasoning}}
        }
        below = () if turn.executed is None else _walk(turn.executed, 1)
        for place, (depth, node) in enumerate(below, start=1):
            yield {
                "source": "agent",
                "message": "",
                "llm_call_count": 0,
                **_call(f"turn-{number}-{place}", node.name, node.arguments, _shown(node)),
                "extra": {
                    "depth": depth,
                    "kind": node.kind,
                    "seconds": node.seconds,
                    "actions": node.actions,
                },
            }


def _metrics(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "cached_tokens": usage.cached,
    }


def _call(name: str, function: str, arguments: Json, result: str | None) -> Json:
    """Return a tool call with what it returned, if it returned anything."""
    call: Json = {"tool_calls": [{"tool_call_id": name, "function_name": function, "arguments": arguments}]}
    if result is not None:
        call["observation"] = {"results": [{"source_call_id": name, "content": result}]}
    return call


def _walk(node: CallNode, depth: int) -> Iterator[tuple[int, CallNode]]:
    """Yield the calls below a call with their depths, callers first."""
    for call in node.calls:
        yield depth, call
        yield from _walk(call, depth + 1)


def _shown(node: CallNode | None) -> str | None:
    """Return the error or result of a call as text; `None` without either."""
    result = None if node is None else node.error or node.result
    if result is None or isinstance(result, str):
        return result
    return msgspec.json.encode(result).decode()
