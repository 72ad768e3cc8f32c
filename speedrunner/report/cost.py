"""What episodes cost: the paper's formula, with each sleep's cost spread over its batch (Appendix A.3)."""

from __future__ import annotations

from serving.usage import Prices, Usage
from speedrunner.records import EpisodeRow, SleepRecord


def rollout_costs(episodes: list[EpisodeRow], sleeps: list[SleepRecord], prices: Prices) -> dict[str, float]:
    """USD of each training rollout: its own requests and its share of the sleep that followed its batch."""
    by_policy = {record.sleep - 1: prices.cost(record.usage) / record.rollouts for record in sleeps}
    return {
        row.episode: prices.cost(row.usage) + by_policy.get(row.policy, 0.0)
        for row in episodes
        if row.phase == "train"
    }


def mean_usage(rows: list[EpisodeRow]) -> tuple[float, float, float]:
    """Uncached, cached and output tokens per episode; zeros where there is none."""
    total = sum((row.usage for row in rows), Usage())
    count = max(len(rows), 1)
    return total.uncached / count, total.cached / count, total.completion / count
