"""The table of a run: one row per checkpoint."""

from __future__ import annotations

import msgspec

from speedrunner.costs.rollout_costs import RolePrices, mean_usage, rollout_costs
from speedrunner.store.data import RunData
from speedrunner.store.records import EpisodeRow


class CheckpointRow(msgspec.Struct, frozen=True):
    """Means over the test episodes of one checkpoint; `None` where nothing was played.

    Attributes:
        rollouts: training rollouts before it.
        episodes: test episodes played.
        unscored: those of them that ended by a fault of ours and are left out of `score`.
        uncached, cached, output: tokens per test episode.
        cost: USD per test episode.
        rollout_cost: USD per training rollout since the checkpoint before, its share of the sleeps included.
        public, skills: public skills and all skills of the policy.
    """

    rollouts: int
    episodes: int
    unscored: int
    score: float | None
    llm_calls: float
    uncached: float
    cached: float
    output: float
    cost: float
    rollout_cost: float | None
    public: int
    skills: int


def checkpoint_rows(run: RunData, prices: RolePrices) -> list[CheckpointRow]:
    """Summarise every checkpoint of a run that has a test episode."""
    rows = []
    costs = rollout_costs(run.episodes, run.sleeps, prices)
    points = sorted({row.checkpoint for row in run.episodes if row.phase == "test"})
    before = 0
    for point in points:
        played = [row for row in run.episodes if row.phase == "test" and row.checkpoint == point]
        since = [usd for episode, usd in costs.items() if before <= _number(episode) < point]
        rows.append(_row(point, played, since, run, prices))
        before = point
    return rows


def _number(episode: str) -> int:
    """Position of a training episode: `train/0007` -> 7."""
    return int(episode.rsplit("/", 1)[1])


def _row(
    point: int, played: list[EpisodeRow], since: list[float], run: RunData, prices: RolePrices
) -> CheckpointRow:
    scores = [row.score for row in played if row.score is not None]
    uncached, cached, output = mean_usage(played)
    policy = run.policies.load(played[0].policy)
    return CheckpointRow(
        rollouts=point,
        episodes=len(played),
        unscored=len(played) - len(scores),
        score=sum(scores) / len(scores) if scores else None,
        llm_calls=sum(row.llm_calls for row in played) / len(played),
        uncached=uncached,
        cached=cached,
        output=output,
        cost=sum(prices.actor.cost(row.usage) for row in played) / len(played),
        rollout_cost=sum(since) / len(since) if since else None,
        public=sum(skill.public for skill in policy.skills),
        skills=len(policy.skills),
    )
