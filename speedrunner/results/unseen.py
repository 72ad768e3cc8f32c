"""Scores on test tasks whose instruction occurs in training, and on those whose instruction does not.

Instructions are read from the recorded first prompts, of the run with the most training episodes of each
environment. The tasks are then the same for all methods, also for those that do not train.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from envs import Task
from speedrunner.config.condition import Choice
from speedrunner.results.conditions import Condition
from speedrunner.results.inference import CONFIDENCE, estimate_score
from speedrunner.results.run_result import RunResult
from speedrunner.results.writing import Cell, Table, caption
from speedrunner.store.records import Turn
from speedrunner.store.run_data import EpisodeKey, load

MARK = "Your task"
"""Begins the paragraph of an actor's first message that has the instruction."""


class _Played(EpisodeKey, kw_only=True):
    """The fields of `Trajectory` that have the task."""

    task: Task
    turns: list[msgspec.Raw]


def read_instruction(trajectory: _Played) -> str:
    """Return an episode's instruction; empty if no first message has it."""
    turns = (msgspec.json.decode(turn, type=Turn) for turn in trajectory.turns[:1])
    texts = (message.content for turn in turns for message in turn.messages)
    paragraphs = (paragraph for text in texts for paragraph in text.split("\n\n"))
    return next((paragraph for paragraph in paragraphs if paragraph.startswith(MARK)), "")


def find_unseen(run: RunResult) -> dict[Task, bool]:
    """Return the first evaluation's tasks of a run, each with whether its instruction is in no training
    episode; none if the run did not train. Raises `StorageError`."""
    data = load(Path(run.path))
    if not run.points or not (seen := {read_instruction(played) for played in data.parts("train", _Played)}):
        return {}
    tested = {played.task: read_instruction(played) for played in data.parts("test", _Played, run.points[0])}
    return {task: instruction not in seen for task, instruction in tested.items() if instruction}


def unseen_table(conditions: Sequence[Condition]) -> Table:
    """Return the scores of each condition at each checkpoint, by whether training has the instruction.
    Environments in which all or none of the test instructions occur in training are left out.

    Raises `StorageError`.
    """
    by_env: dict[Choice, list[RunResult]] = {}
    for condition in conditions:
        by_env.setdefault(condition.identity.env, []).extend(condition.runs.values())
    unseen = {
        env: find_unseen(max(runs, key=lambda run: int((run.episodes["phase"] == "train").sum())))
        for env, runs in by_env.items()
    }
    rows: list[tuple[Cell, ...]] = []
    for condition in conditions:
        tasks = unseen[condition.identity.env]
        if len({*tasks.values()}) < 2:
            continue
        for point in condition.points:
            values = condition.values(point, "score")
            other, found = (
                estimate_score(
                    {seed: own[own.index.map(tasks.get) == is_new] for seed, own in values.items()}
                )
                for is_new in (False, True)
            )
            if found and other:
                counts = point, len(values), len(tasks) - sum(tasks.values()), sum(tasks.values())
                rows.append((*condition.names, *counts, other.mean, found.mean, found.low, found.high))
    columns = ["env", "method", "model", "checkpoint", "seeds", "tasks_seen", "tasks_unseen", "score_seen"]
    columns += ["score_unseen", "low", "high"]
    return Table("unseen", caption("unseen", confidence=CONFIDENCE), columns, rows)
