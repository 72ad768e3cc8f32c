"""Recorded episodes as text, with their indented call trees: one form for agents, people and code of agents.

It takes episodes as a run's files hold them, plain JSON values, and needs the standard library alone: the
inducer's Python session in the sandbox has it, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]

TASK_CHARS = 200
"""Characters of a task that a headline shows."""

SUMMARY_CHARS, REFUSALS_SHOWN = 300, 3
"""Characters of a line on an earlier sleep; refused edits, the last ones, that are told of it."""


def headline(trajectory: Json) -> str:
    """One line on an episode: key, policy, end, score, what it took, and its task's first paragraph."""
    outcome, turns = trajectory["outcome"], trajectory["turns"]
    score = "unscored" if outcome is None else f"score {outcome['score']:g}"
    actions = sum(turn["executed"]["actions"] for turn in turns if turn["executed"] is not None)
    tokens = sum(turn["usage"]["completion"] for turn in turns)
    took = f"{len(turns)} LLM calls, {actions} actions, {tokens} output tokens"
    task = " ".join(opening(trajectory).partition("\n\n")[0].split())
    more = f"; {task[:TASK_CHARS]}" + " ..." * (len(task) > TASK_CHARS) if task else ""
    return (
        f"{trajectory['episode']}: policy v{trajectory['policy']:04d}, {trajectory['termination']}, {score},"
        f" {took}{more}"
    )


def opening(trajectory: Json) -> str:
    """What the actor was told of its task."""
    turns = trajectory["turns"]
    return (
        "\n".join(each["content"] for each in turns[0]["messages"] if each["role"] == "user") if turns else ""
    )


def trajectory_lines(trajectory: Json, first: int = 1, last: int | None = None) -> Iterator[str]:
    """An episode: its headline; its task as the actor was shown it, before turn 1; some turns."""
    yield headline(trajectory)
    if first <= 1 and (told := opening(trajectory)):
        yield from told.split("\n")
    for lines in turns(trajectory, first, last):
        yield from lines


def turns(trajectory: Json, first: int = 1, last: int | None = None) -> Iterator[list[str]]:
    """The lines of each turn; see `turn_lines`."""
    replies = _replies(trajectory["turns"])
    numbered = list(enumerate(zip(trajectory["turns"], replies, strict=True), start=1))
    for number, (turn, reply) in numbered[max(first, 1) - 1 : last]:
        yield [*turn_lines(number, turn, reply)]


def turn_lines(number: int, turn: Json, reply: str | None = None) -> Iterator[str]:
    """One turn: what the agent thought, what it called, what came of it.

    Args:
        reply: what it was told then. `None` where what was told and written is shown by other means.
    """
    yield f"[{number}]"
    yield from _labelled("thought: ", turn["reasoning"])
    text = turn["text"].strip()
    if reply is not None and turn["call"] is not None and text[:1] not in ("<", "{", "["):
        yield from _labelled("text: ", text)  # beside its call; some routes give the call itself as text
    if turn["executed"] is not None:
        yield from call_lines(turn["executed"], 1)
        yield from _labelled("reply: ", _beyond(turn["executed"], reply or ""))
    elif turn["call"] is not None:
        yield f"  {turn['call']['name']}({turn['call']['arguments']}) was not completed"
    else:
        yield from _labelled(f"no valid call: {turn['error']}; written: ", turn["text"] or "nothing")


def slept(record: Json) -> Json:
    """An earlier sleep in short: `sleep`, `rollouts` before it, the edits that were `accepted`, and those
    `refused`, with their errors, the `error` that kept it from more, and the agent's own `summary`."""
    edits = record["edits"]
    calls = [turn["call"] for agent in record["agents"] for turn in agent["turns"]]
    said = [call["arguments"]["summary"] for call in calls if call is not None and call["name"] == "finish"]
    return {
        "sleep": record["sleep"],
        "rollouts": record["rollouts"],
        "accepted": [f"{each['action']} {each['name']}" for each in edits if each["error"] is None],
        "refused": [
            {name: each[name] for name in ("action", "name", "error")}
            for each in edits
            if each["error"] is not None
        ],
        "error": record["error"],
        "summary": said[-1] if said else "",
    }


def slept_lines(record: Json) -> Iterator[str]:
    """The same in a few lines, cut to `SUMMARY_CHARS` each."""
    told = slept(record)
    yield f"sleep {told['sleep']}: {', '.join(told['accepted']) or 'no accepted edits'}"[:SUMMARY_CHARS]
    if told["summary"]:
        yield f"  summary: {' '.join(told['summary'].split())}"[:SUMMARY_CHARS]
    if told["error"]:
        yield f"  problem: {told['error']}"[:SUMMARY_CHARS]
    for edit in told["refused"][-REFUSALS_SHOWN:]:
        error = " ".join(edit["error"].split())
        yield f"  refused: {edit['action']} {edit['name']}: {error}"[:SUMMARY_CHARS]


def call_lines(call: Json, indent: int = 0) -> Iterator[str]:
    """A call and the calls below it, one line each, their results indented under them.

    Equal calls in a row that returned None are one line, with their number.
    """
    pad, made = "  " * indent, written(call["name"], call["arguments"])
    if _silent(call) is not None:
        yield pad + made
        return
    came = f"error: {call['error']}" if call["error"] is not None else f"-> {result_text(call['result'])}"
    if not call["calls"] and not call["omitted"] and "\n" not in came:
        yield f"{pad}{made} {came}"
        return
    yield pad + made
    for text, run in itertools.groupby(call["calls"], key=_silent):
        if text is not None:
            yield from (f"{pad}  {each}" for each in counted(text for _ in run))
        else:
            for below in run:
                yield from call_lines(below, indent + 1)
    if call["omitted"]:
        yield f"{pad}  [{call['omitted']} further calls were not recorded]"
    yield from (f"{pad}  {line}" for line in came.split("\n"))


def written(name: str, arguments: Json) -> str:
    """A call as Python writes it."""
    return f"{name}({', '.join(f'{each}={value!r}' for each, value in arguments.items())})"


def counted(texts: Iterable[str]) -> list[str]:
    """Each text, and where it stands several times in a row, how often."""
    runs = ((text, len(list(run))) for text, run in itertools.groupby(texts))
    return [text if times == 1 else f"{text} x{times}" for text, times in runs]


def _silent(call: Json) -> str | None:
    """A call of which there is nothing to say but that it was made."""
    said = call["calls"] or call["omitted"] or call["error"] is not None or call["result"] is not None
    return None if said else written(call["name"], call["arguments"])


def result_text(result: Any) -> str:
    """A result as the actor reads it, but `None`, which is said in words of its own there."""
    if result is None or isinstance(result, str):
        return str(result)
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def _replies(turns: list[Json]) -> list[str]:
    """What was told after each turn: what stands before the next one of its conversation."""
    told: dict[int, str] = {}
    replies = []
    for turn in reversed(turns):
        replies.append(told.get(turn["conversation"], ""))
        told[turn["conversation"]] = "\n".join(each["content"] for each in turn["messages"])
    return replies[::-1]


def _beyond(call: Json, reply: str) -> str:
    """What a reply says beyond the call's result, or its error without the traceback."""
    said = result_text(call["result"]) if call["error"] is None else f"Error: {call['error']}"
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(said, reply, strict=False))
    rest = reply[sum(1 for _ in same) :]
    return (rest if rest[:1] in ("", "\n") else reply).strip("\n")


def _labelled(label: str, text: str) -> Iterator[str]:
    """A text with a label before it; further lines are indented."""
    if text := text.strip("\n"):
        first, *rest = text.split("\n")
        yield from (f"  {label}{first}", *(f"    {line}".rstrip() for line in rest))
