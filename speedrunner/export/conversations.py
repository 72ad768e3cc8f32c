"""A run's conversations as lists of messages, shared by all exports."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from serving.tokens.tools import ToolCall
from serving.usage import MAX_TIMESTAMP, Usage
from speedrunner.store.records import Phase, SleepRecord, Trajectory, Turn
from speedrunner.store.run_data import RunData, load
from speedrunner.store.stored_run import sleep_key


def check(path: Path) -> tuple[Path, list[str]]:
    """Read everything that will be exported of a run, a file at a time, so that no export stops halfway.

    Returns the path, and one line for each broken record, which is left out. Raises the errors listed in
    `speedrunner.store.discovery`.
    """
    run = load(path, skip_broken=True)
    _ = run.settings, run.episodes, run.sleeps
    for phase in get_args(Phase):
        for _ in run.played(phase):
            pass
    return path, run.left_out or []


def run_names(runs: Sequence[Path]) -> list[str]:
    """Return a file name for each run: that of its folder, or its path from the last folder that all runs
    share if these are not unique.
    """
    paths = [Path(os.path.normpath(path.absolute())) for path in runs]  # "." and ".." are no names
    names = [path.name for path in paths]
    if len(set(names)) == len(names):
        return names
    shared = Path(os.path.commonpath(paths)).parent
    return [str(path.relative_to(shared)).replace("/", "_") for path in paths]


def timestamp(seconds: float) -> str:
    """Return Unix seconds in ISO 8601. Moments outside the calendar become the nearest one within it."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), MAX_TIMESTAMP), UTC).isoformat()


Split = Literal[Phase, "sleep"]
"""Where a conversation is from."""


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message. An agent's own has its text, its thoughts, the parsed call and the id of the request."""

    role: str
    content: str
    reasoning: str = ""
    call: ToolCall | None = None
    request: str = ""


class Conversation(msgspec.Struct, frozen=True):
    """One role's whole conversation.

    Attributes:
        number: within its episode or sleep.
        calls: number of requests to the model.
        usage: of all requests, in tokens.
    """

    role: str
    number: int
    messages: list[ChatMessage]
    calls: int
    usage: Usage


def of_episode(trajectory: Trajectory) -> list[Conversation]:
    """Return the conversations of an episode, in the order in which they were opened."""
    turns = sorted(trajectory.turns, key=lambda turn: turn.conversation)  # a stable sort
    return [
        _conversation(own[0].role, number, own)
        for number, each in groupby(turns, key=lambda turn: turn.conversation)
        for own in [list(each)]
    ]


def of_sleep(record: SleepRecord) -> list[Conversation]:
    """Return the conversations of a sleep's agents, without those of episodes played in it."""
    return [_conversation(agent.role, number, agent.turns) for number, agent in enumerate(record.agents)]


def iterate_conversations(run: RunData, split: Split) -> Iterator[tuple[dict[str, Any], Conversation]]:
    """Yield the conversations of a run's training, evaluations or sleeps, with facts about each.

    The facts have `episode` (the key), `policy` and `termination`; those of episodes also `task`,
    `task_index`, `score` and `success`. Conversations of one episode share them.
    """
    if split == "sleep":
        for record in run.sleeps:
            for agent, each in zip(record.agents, of_sleep(record), strict=True):
                yield (
                    {
                        "episode": sleep_key(record.sleep),
                        "policy": record.sleep - 1,
                        "termination": str(agent.termination),
                    },
                    each,
                )
        return
    for played in run.played(split):
        outcome, task = played.outcome, played.task
        facts = {
            "episode": played.episode,
            "task": task.name,
            "task_index": task.index,
            "policy": played.policy,
            "termination": str(played.termination),
            "score": outcome and outcome.score,
            "success": outcome and outcome.success,
        }
        for each in of_episode(played):
            yield facts, each


def _conversation(role: str, number: int, turns: Sequence[Turn]) -> Conversation:
    usage = sum((turn.usage for turn in turns), Usage())
    return Conversation(role, number, list(_messages(turns)), len(turns), usage)


def _messages(turns: Sequence[Turn]) -> Iterator[ChatMessage]:
    for turn in turns:
        for message in turn.messages:
            yield ChatMessage(message.role, message.content)
        yield ChatMessage("assistant", turn.text, turn.reasoning, turn.call, turn.request)
