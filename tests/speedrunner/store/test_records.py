from __future__ import annotations

from envs import Outcome
from serving.usage import Usage
from speedrunner.store.episode_summary import summarize_episode
from speedrunner.store.records import EpisodeRow, Termination
from tests.speedrunner.run_samples import TASK, trajectory


def test_every_count_of_a_row():
    assert summarize_episode(trajectory("test/0050/3", attempt=2), "test", 50) == EpisodeRow(
        episode="test/0050/3",
        phase="test",
        checkpoint=50,
        task=TASK,
        policy=0,
        attempt=2,
        termination=Termination.SUCCESS,
        score=1.0,
        success=True,
        llm_calls=2,
        actions=3,
        skill_calls=1,
        invalid_calls=1,
        usage=Usage(230, 180, 30, 5),
        seconds=1.5,
        repeated_calls=0,
    )


def test_a_fault_of_ours_is_unscored_and_not_zero():
    row = summarize_episode(
        trajectory(termination=Termination.ENGINE_ERROR, outcome=None, error="gone"), "train", 0
    )
    assert row.score is None
    assert row.success is None
    assert row.llm_calls == 2


def test_a_failure_is_scored():
    row = summarize_episode(
        trajectory(termination=Termination.FAILURE, outcome=Outcome(0.25, False, {})), "train", 0
    )
    assert (row.score, row.success) == (0.25, False)
