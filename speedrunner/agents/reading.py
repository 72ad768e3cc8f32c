"""Recorded episodes as text with indented call trees: one format for agents, people and the inducer's code.

The functions take plain JSON values, as stored in a run's files. They need only the standard library, because
the inducer's Python session in the sandbox uses them, too.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import Any

Json = dict[str, Any]

TASK_CHARS = 200
"""Characters of a task that a headline shows."""

SUMMARY_CHARS = 300
"""Characters of each line about an earlier sleep."""

ENDED = "[this call ended the episode]"
"""Follows the call after which the environment had ended the episode."""


def headline(trajectory: Json, *, has_task: bool = True) -> str:
    """Return one line about an episode: key, policy, termination, score, resources, and the task's first
    paragraph. It has the outcome's `detail` and the `environment` if the trajectory has them.

    Args:
        has_task: whether it has the task; `False` where the task follows.
    """
    outcome, turns = trajectory["outcome"], trajectory["turns"]
    score = "unscored" if outcome is None else f"score {outcome['score']:g}"
    if outcome is not None and outcome.get("detail"):
        score += f" {json.dumps(outcome['detail'], ensure_ascii=False)}"
    actions = sum(turn["executed"]["actions"] for turn in turns if turn["executed"] is not None)
    tokens = sum(turn["usage"]["completion"] for turn in turns)
    took = f"{len(turns)} LLM calls, {actions} actions, {tokens} output tokens"
    task = task_line(trajectory) if has_task else ""
    more = f"; {task[:TASK_CHARS]}" + " ..." * (len(task) > TASK_CHARS) if task else ""
    place = f"{trajectory['environment']}, " if trajectory.get("environment") else ""
    return (
        f"{trajectory['episode']}: {place}policy v{trajectory['policy']:04d}, {trajectory['termination']},"
        f" {score}, {took}{more}"
    )


def task_line(trajectory: Json) -> str:
    """Return the task's first paragraph as the actor was shown it, in one line."""
    return " ".join(opening(trajectory).partition("\n\n")[0].split())


def opening(trajectory: Json) -> str:
    """Return the task as the actor was shown it."""
    turns = trajectory["turns"]
    return (
        "\n".join(message["content"] for message in turns[0]["messages"] if message["role"] == "user")
        if turns
        else ""
    )


def trajectory_lines(trajectory: Json, first: int = 1, last: int | None = None) -> Iterator[str]:
    """Yield an episode's lines: its headline, the task before turn 1, and turns `first` to `last`."""
    told = opening(trajectory) if first <= 1 else ""
    yield headline(trajectory, has_task=not told)
    yield from told.split("\n") if told else ()
    for lines in turns(trajectory, first, last):
        yield from lines


def turns(trajectory: Json, first: int = 1, last: int | None = None) -> Iterator[list[str]]:
    """Yield the lines of each turn; see `turn_lines`."""
    ending = ending_call(trajectory)
    numbered = list(enumerate(zip(trajectory["turns"], replies(trajectory), strict=True), start=1))
    for number, (turn, reply) in numbered[max(first, 1) - 1 : last]:
        yield [*turn_lines(number, turn, reply, ending)]


def turn_lines(
    number: int, turn: Json, reply: str | None = None, ending: Json | None = None
) -> Iterator[str]:
    """Yield one turn: what the agent thought, what it called, and the result.

    Args:
        reply: the reply that the agent read. `None`: reply and text are shown elsewhere.
        ending: the call that ended the episode, see `ending_call`.
    """
    yield f"[{number}]"
    yield from _add_label("thought: ", turn["reasoning"])
    text = turn["text"].strip()
    if reply is not None and turn["call"] is not None and text[:1] not in ("<", "{", "["):
        yield from _add_label("text: ", text)  # text next to the call; some APIs return the call as text
    if turn["executed"] is not None:
        yield from call_lines(turn["executed"], 1, ending)
        yield from _add_label("reply: ", _cut_known_part(turn["executed"], reply or ""))
    elif turn["call"] is not None:
        yield f"  {turn['call']['name']}({turn['call']['arguments']}) was not completed"
    else:
        written = turn["text"] or ("only the thought above" if turn["reasoning"] else "nothing")
        yield from _add_label(f"no valid call: {turn['error']}; written: ", written)


def summarize_sleep(record: Json) -> Json:
    """Summarize an earlier sleep: `sleep`, the `rollouts` before it, the `accepted` edits and other changes,
    the `refused` edits with their errors, the `error` that ended it early, and the agent's own `summary`.
    """
    edits = record["edits"]
    calls = [turn["call"] for agent in record["agents"] for turn in agent["turns"]]
    ends = [call["arguments"] for call in calls if call is not None and call["name"] == "finish"]
    return {
        "sleep": record["sleep"],
        "rollouts": record["rollouts"],
        "accepted": [
            *(f"{edit['action']} {edit['name']}" for edit in edits if edit["error"] is None),
            *filter(None, [record.get("changed")]),
        ],
        "refused": [
            {name: edit[name] for name in ("action", "name", "error")}
            for edit in edits
            if edit["error"] is not None
        ],
        "error": record["error"],
        "summary": ends[-1].get("summary", "") if ends else "",
    }


def summary_lines(record: Json) -> Iterator[str]:
    """Yield the same summary in a few lines, each cut to `SUMMARY_CHARS`."""
    summary = summarize_sleep(record)
    refused = f" ({len(summary['refused'])} refused)" if summary["refused"] else ""
    changes = f"sleep {summary['sleep']}: {', '.join(summary['accepted']) or 'no changes'}"
    yield changes[: SUMMARY_CHARS - len(refused)] + refused
    if summary["summary"]:
        yield f"  you wrote: {' '.join(summary['summary'].split())}"[:SUMMARY_CHARS]
    if summary["error"]:
        yield f"  problem: {summary['error']}"[:SUMMARY_CHARS]


def call_lines(call: Json, indent: int = 0, ending: Json | None = None) -> Iterator[str]:
    """Yield a call and the calls below it, one line each, with their results indented below.

    Equal calls in a row that returned None become one line with their number. The call `ending` is marked as
    the one that ended the episode.
    """
    pad, made = "  " * indent, write_call(call["name"], call["arguments"])
    mark = f" {ENDED}" if call is ending else ""
    if _silent(call) is not None:
        yield pad + made + mark
        return
    came = f"error: {call['error']}" if call["error"] is not None else f"-> {result_text(call['result'])}"
    came += mark
    if not call["calls"] and not call["omitted"] and "\n" not in came:
        yield f"{pad}{made} {came}"
        return
    yield pad + made
    silent_texts = (None if below is ending else _silent(below) for below in call["calls"])
    pairs = zip(silent_texts, call["calls"], strict=True)
    for text, run in itertools.groupby(pairs, key=lambda pair: pair[0]):
        if text is not None:
            yield from (f"{pad}  {line}" for line in merge_repeats(text for _ in run))
        else:
            for _, below in run:
                yield from call_lines(below, indent + 1, ending)
    if call["omitted"]:
        yield f"{pad}  [{call['omitted']} further calls were not recorded]"
    yield from (f"{pad}  {line}" for line in came.split("\n"))


def list_calls(trajectory: Json) -> Iterator[tuple[int, int, Json]]:
    """Yield (turn from 1, depth, call) for every recorded call, in order; the agent's own have depth 0."""
    for number, turn in enumerate(trajectory["turns"], start=1):
        waiting = [(0, turn["executed"])] if turn["executed"] is not None else []
        while waiting:
            depth, call = waiting.pop()
            yield number, depth, call
            waiting += [(depth + 1, below) for below in reversed(call["calls"])]


def ending_call(trajectory: Json) -> Json | None:
    """Return the call of a primitive after which the environment had ended the episode. `None`: it did not,
    or the call may be one that was not recorded.
    """
    if trajectory["termination"] not in ("success", "failure"):
        return None
    made = [call for _, _, call in list_calls(trajectory)]
    ran = [call for call in made if call["kind"] == "primitive" and call["error"] is None]
    return ran[-1] if ran and not any(call["omitted"] for call in made) else None


def write_call(name: str, arguments: Json) -> str:
    """Return a call in Python syntax."""
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def merge_repeats(texts: Iterable[str]) -> list[str]:
    """Return the texts with equal neighbours merged into one that ends with its count."""
    runs = ((text, len(list(run))) for text, run in itertools.groupby(texts))
    return [text if times == 1 else f"{text} x{times}" for text, times in runs]


def _silent(call: Json) -> str | None:
    """Return a call without result, error or children as text; `None` for any other call."""
    said = call["calls"] or call["omitted"] or call["error"] is not None or call["result"] is not None
    return None if said else write_call(call["name"], call["arguments"])


def result_text(result: Any) -> str:
    """Return a result as the actor reads it. `None` becomes "None", as Python prints it: most primitives of
    Crafter return None (paper, Appendix D.2)."""
    if result is None or isinstance(result, str):
        return str(result)
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def replies(trajectory: Json) -> list[str]:
    """Return the reply after each turn, which is stored with the next turn of its conversation. That to the
    last turn, which the agent did not read, is stored with the turn itself."""
    following: dict[int, str] = {}
    texts = []
    for turn in reversed(trajectory["turns"]):
        texts.append(following.get(turn["conversation"], turn.get("unread", "")))
        following[turn["conversation"]] = "\n".join(message["content"] for message in turn["messages"])
    return texts[::-1]


def _cut_known_part(call: Json, reply: str) -> str:
    """Return what a reply adds to the call's result, or to its error without the traceback."""
    said = result_text(call["result"]) if call["error"] is None else f"Error: {call['error']}"
    same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(said, reply, strict=False))
    rest = reply[sum(1 for _ in same) :]
    return (rest if rest[:1] in ("", "\n") else reply).strip("\n")


def _add_label(label: str, text: str) -> Iterator[str]:
    """Yield a text with a label on its first line; further lines are indented."""
    if text := text.strip("\n"):
        first, *rest = text.split("\n")
        yield from (f"  {label}{first}", *(f"    {line}".rstrip() for line in rest))
