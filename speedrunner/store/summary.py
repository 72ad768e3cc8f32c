"""What is derived from stored records: an episode's summary row, the attempts that were made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from serving.meter import LedgerRow
from speedrunner.store.labels import Labels
from speedrunner.store.records import EpisodeRow, Trajectory


def summarise(trajectory: Trajectory, phase: Literal["train", "test"], checkpoint: int) -> EpisodeRow:
    """Count what tables need.

    Args:
        trajectory: the whole episode.
        phase: `train` or `test`.
        checkpoint: training rollouts played before: the batch's start, or the evaluation's point.
    """
    executed = [turn.executed for turn in trajectory.turns if turn.executed is not None]
    outcome = trajectory.outcome
    return EpisodeRow(
        episode=trajectory.episode,
        phase=phase,
        checkpoint=checkpoint,
        task=trajectory.task,
        policy=trajectory.policy,
        attempt=trajectory.attempt,
        ending=trajectory.ending,
        score=None if outcome is None else outcome.score,
        success=None if outcome is None else outcome.success,
        llm_calls=len(trajectory.turns),
        actions=sum(node.actions for node in executed),
        skill_calls=sum(node.kind == "skill" for node in executed),
        invalid_calls=sum(turn.call is None for turn in trajectory.turns),
        usage=trajectory.usage,
        seconds=trajectory.seconds,
    )


def attempts(rows: Iterable[LedgerRow]) -> dict[str, int]:
    """Highest attempt in the ledger for each value of the label `episode`; the next try is one more."""
    highest: dict[str, int] = {}
    for row in rows:
        labels = Labels.of(row.labels)
        if labels.episode is not None and labels.attempt is not None:
            highest[labels.episode] = max(labels.attempt, highest.get(labels.episode, 0))
    return highest
