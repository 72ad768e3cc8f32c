"""A run's conversations as lists of messages: what exports have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import get_args

import msgspec

from serving.tokens.tools import ToolCall
from serving.usage import Usage
from speedrunner.store.data import load
from speedrunner.store.records import Phase, SleepRecord, Trajectory, Turn


def check(path: Path) -> Path:
    """Read once all that is exported of a run, a file at a time: half of it is not to be written.

    Raises what `speedrunner.store.discovery` knows.
    """
    run = load(path)
    _ = run.settings, run.episodes, run.sleeps
    for phase in get_args(Phase):
        for _ in run.played(phase):
            pass
    return path


class ChatMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message, an agent's own among them: what it wrote and thought, and the call that was parsed."""

    role: str
    content: str
    reasoning: str = ""
    call: ToolCall | None = None


class Conversation(msgspec.Struct, frozen=True):
    """One role's conversation, whole.

    Attributes:
        number: within its episode or sleep.
        calls: requests to the model.
        usage: of all of them, in tokens.
    """

    role: str
    number: int
    messages: list[ChatMessage]
    calls: int
    usage: Usage


def of_episode(trajectory: Trajectory) -> list[Conversation]:
    """The conversations of an episode, in the order in which they were opened."""
    turns = sorted(trajectory.turns, key=lambda turn: turn.conversation)  # stable: each in its own order
    return [
        _conversation(own[0].role, number, own)
        for number, each in groupby(turns, key=lambda turn: turn.conversation)
        for own in [list(each)]
    ]


def of_sleep(record: SleepRecord) -> list[Conversation]:
    """The conversations of a sleep's agents, but for episodes that were played in it."""
    return [_conversation(agent.role, number, agent.turns) for number, agent in enumerate(record.agents)]


def _conversation(role: str, number: int, turns: Sequence[Turn]) -> Conversation:
    usage = sum((turn.usage for turn in turns), Usage())
    return Conversation(role, number, list(_messages(turns)), len(turns), usage)


def _messages(turns: Sequence[Turn]) -> Iterator[ChatMessage]:
    for turn in turns:
        for message in turn.messages:
            yield ChatMessage(message.role, message.content)
        yield ChatMessage("assistant", turn.text, turn.reasoning, turn.call)
