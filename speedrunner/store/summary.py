"""The summary row of an episode, derived from its trajectory."""

from __future__ import annotations

from typing import Literal

from speedrunner.records import EpisodeRow, Trajectory


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
