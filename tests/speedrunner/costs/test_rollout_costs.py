"""Costs, with numbers worked out by hand."""

from __future__ import annotations

import pytest

from serving.usage import Prices, Usage
from speedrunner.costs.rollout_costs import RolePrices, mean_usage, rollout_costs
from speedrunner.store.records import AgentRecord, Ending, EpisodeRow, SleepRecord, Turn
from speedrunner.store.summary import summarise
from tests.speedrunner.run_samples import sleep, trajectory

PRICES = Prices(uncached=0.75, cached=0.075, output=4.5)
BOTH = RolePrices(actor=PRICES, others=PRICES)


def row(episode: str, usage: Usage, policy: int = 0) -> EpisodeRow:
    turns = [Turn(messages=[], text="", usage=usage, seconds=0.0)]
    played = trajectory(episode, turns=turns, policy=policy)
    return summarise(played, "train" if episode.startswith("train") else "test", 0)


def slept(number: int, rollouts: int, *usages: Usage) -> SleepRecord:
    record = sleep(number)
    turns = [Turn(messages=[], text="", usage=usage, seconds=0.0) for usage in usages]
    record.agents = [AgentRecord("inducer", [turn], Ending.SUBMITTED) for turn in turns]
    record.rollouts = rollouts
    return record


def test_the_papers_formula() -> None:
    # (3000 - 2000) * 0.75 + 2000 * 0.075 + 400 * 4.5 = 750 + 150 + 1800 millionths
    assert PRICES.cost(Usage(prompt=3000, cached=2000, completion=400, reasoning=100)) == pytest.approx(
        0.0027
    )


def test_a_rollout_costs_its_requests_and_its_share_of_the_sleep_after_it() -> None:
    own = Usage(prompt=1000, cached=600, completion=10)  # 300 + 45 + 45 = 390 millionths
    inducer = [Usage(prompt=2000, cached=0, completion=0), Usage(prompt=0, cached=0, completion=1000)]
    # 1500 + 4500 = 6000 millionths over two rollouts
    episodes = [row("train/0000", own), row("train/0001", own + own)]
    assert rollout_costs(episodes, [slept(1, 2, *inducer)], BOTH) == pytest.approx(
        {"train/0000": 390e-6 + 3000e-6, "train/0001": 780e-6 + 3000e-6}
    )


def test_each_sleep_is_spread_over_its_own_batch() -> None:
    episodes = [
        row("train/0000", Usage()),
        row("train/0001", Usage()),
        row("train/0002", Usage(), policy=1),
        row("train/0003", Usage(), policy=2),
    ]
    sleeps = [slept(1, 2, Usage(completion=1000)), slept(2, 1, Usage(completion=2000))]
    assert rollout_costs(episodes, sleeps, BOTH) == pytest.approx(
        {"train/0000": 0.00225, "train/0001": 0.00225, "train/0002": 0.009, "train/0003": 0.0}
    )


def test_all_shares_of_a_sleep_make_up_its_cost() -> None:
    episodes = [row(f"train/{number:04d}", Usage()) for number in range(7)]
    record = slept(1, 7, Usage(prompt=999, cached=500, completion=123))
    assert sum(rollout_costs(episodes, [record], BOTH).values()) == pytest.approx(PRICES.cost(record.usage))


def test_test_episodes_bear_no_sleep() -> None:
    assert rollout_costs([row("test/0000/0000", Usage())], [slept(1, 1, Usage(9, 0, 9))], BOTH) == {}


def test_mean_usage_is_per_episode() -> None:
    rows = [row("test/0/0", Usage(100, 40, 10, 3)), row("test/0/1", Usage(300, 200, 20, 0))]
    assert mean_usage(rows) == (80, 120, 15)
    assert mean_usage([]) == (0, 0, 0)
