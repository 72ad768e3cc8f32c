"""A run's conversations, which all exports of runs write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec

from serving.usage import Usage
from speedrunner.store.records import Phase, Trajectory, Turn
from speedrunner.store.run_data import RunData
from speedrunner.store.stored_run import sleep_key


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
    """Return Unix seconds in ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


Split = Literal[Phase, "sleep"]
"""Where a conversation is from."""


class RecordedConversation(msgspec.Struct, frozen=True):
    """One role's whole conversation. `number` is its place within its episode or sleep."""

    role: str
    number: int
    turns: list[Turn]

    @property
    def usage(self) -> Usage:
        """The tokens of all requests."""
        return sum((turn.usage for turn in self.turns), Usage())


def of_episode(trajectory: Trajectory) -> list[RecordedConversation]:
    """Return the conversations of an episode, in the order in which they were opened."""
    turns = sorted(trajectory.turns, key=lambda turn: turn.conversation)  # a stable sort
    grouped = (list(group) for _, group in groupby(turns, key=lambda turn: turn.conversation))
    return [RecordedConversation(own[0].role, own[0].conversation, own) for own in grouped]


def offered_tools(run: RunData) -> dict[tuple[str, int | None], list[dict[str, Any]]]:
    """Return the tools of each role and policy, in OpenAI's format, where the run recorded them."""
    return {(row.role, row.policy): [tool.openai for tool in row.tools] for row in run.tools}


def iterate_conversations(
    run: RunData, split: Split
) -> Iterator[tuple[dict[str, Any], RecordedConversation]]:
    """Yield the conversations of a run's training, evaluations or sleeps, with facts about each.

    The facts have `episode` (the key), `policy` and `termination`; those of episodes also `task`,
    `task_index`, `score` and `success`. Conversations of one episode share them.
    """
    if split == "sleep":
        for record in run.sleeps:
            for number, agent in enumerate(record.agents):
                yield (
                    {
                        "episode": sleep_key(record.sleep),
                        "policy": record.sleep - 1,
                        "termination": str(agent.termination),
                    },
                    RecordedConversation(agent.role, number, agent.turns),
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
        for conversation in of_episode(played):
            yield facts, conversation
