"""What episodes cost: the paper's formula, with each sleep's cost spread over its batch (Appendix A.3)."""

from __future__ import annotations

from dataclasses import dataclass

from serving.usage import Prices, Usage
from speedrunner.store.records import EpisodeRow, SleepRecord


@dataclass(frozen=True)
class RolePrices:
    """The price list of the actor's model and that of every other role's."""

    actor: Prices
    others: Prices

    def of(self, role: str) -> Prices:
        """The price list of a role."""
        return self.actor if role == "actor" else self.others


def rollout_costs(
    episodes: list[EpisodeRow], sleeps: list[SleepRecord], prices: RolePrices
) -> dict[str, float]:
    """USD of each training rollout: its own requests and its share of the sleep that followed its batch."""
    by_policy = {record.sleep - 1: prices.others.cost(record.usage) / record.rollouts for record in sleeps}
    return {
        row.episode: prices.actor.cost(row.usage) + by_policy.get(row.policy, 0.0)
        for row in episodes
        if row.phase == "train"
    }


def mean_usage(rows: list[EpisodeRow]) -> tuple[float, float, float]:
    """Uncached, cached and output tokens per episode; zeros where there is none."""
    total = sum((row.usage for row in rows), Usage())
    count = max(len(rows), 1)
    return total.uncached / count, total.cached / count, total.completion / count
