"""Means of test episodes by checkpoint, from summary rows."""

from __future__ import annotations

from envs import Outcome
from speedrunner.statistics.progress import progress
from speedrunner.store.records import Ending, EpisodeRow
from tests.speedrunner.run_samples import trajectory


def row(episode: str, score: float | None, checkpoint: int) -> EpisodeRow:
    fault = {"ending": Ending.ENGINE_ERROR, "outcome": None}
    played = trajectory(episode, **(fault if score is None else {"outcome": Outcome(score, score == 1, {})}))
    return EpisodeRow.of(played, "train" if episode.startswith("train") else "test", checkpoint)


def test_each_checkpoint_has_its_means_and_faults_are_in_none() -> None:
    rows = [row("test/0010/0000", 1.0, 10), row("test/0000/0000", 0.5, 0), row("train/0000", 0.0, 0)]
    rows += [row("test/0000/0001", 0.0, 0), row("test/0000/0002", None, 0)]
    first, second = progress(rows)
    assert (first.rollouts, first.episodes, first.scored, first.score) == (0, 3, 2, 0.25)
    assert (second.rollouts, second.score, second.llm_calls) == (10, 1.0, 2)
    assert (second.uncached, second.cached, second.output) == (50, 180, 30)


def test_of_faults_alone_nothing_is_known() -> None:
    (only,) = progress([row("test/0000/0000", None, 0)])
    assert (only.episodes, only.scored, only.score, only.output) == (1, 0, None, None)
