"""A run's checkpoints: what its policies scored, and what their episodes cost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import fmean

import msgspec

from speedrunner.costs.ledger import Line, RunCosts
from speedrunner.store.data import RunData
from speedrunner.store.records import Ending
from speedrunner.store.stored_run import sleep_key

CUT = (Ending.WALL_CLOCK, Ending.CONTEXT_OVERFLOW)
"""Endings that say something about a limit of the machinery as much as about the agent."""


class CheckpointRow(msgspec.Struct, frozen=True):
    """Means over the test episodes of one checkpoint; `None` where there is nothing, or no price.

    Attributes:
        rollouts: training rollouts before it.
        episodes: test episodes played.
        unscored: those of them that ended by a fault of ours and are left out of all means.
        uncached, cached, output: tokens per test episode.
        cost: USD per test episode.
        rollout_cost: USD per training rollout since the checkpoint before, its share of the sleeps included.
        public, skills: public skills and all skills of the policy.
        notes: whether it keeps notes for the actor.
        cut: how many test episodes ended at the wall clock or by an overflow of the context, by ending.
        unreported: requests of test episodes that were cut off before their tokens were told.
        at_most: the most tokens that they can have taken beyond the means, per test episode.
    """

    rollouts: int
    episodes: int
    unscored: int
    score: float | None
    llm_calls: float
    uncached: float
    cached: float
    output: float
    cost: float | None
    rollout_cost: float | None
    public: int
    skills: int
    notes: bool = False
    cut: dict[str, int] = {}
    unreported: int = 0
    at_most: float = 0.0


def rollout_costs(run: RunData, costs: RunCosts) -> dict[str, float]:
    """USD of each training rollout: its own requests, of all roles, and its share of the sleep after it.

    The cost of a sleep is spread evenly over the rollouts of its batch (paper, Appendix A.3).
    """
    lines = costs.episodes
    shares = {
        record.sleep - 1: lines.get(sleep_key(record.sleep), Line()).useful_usd / record.rollouts
        for record in run.sleeps
    }
    return {
        row.episode: lines.get(row.episode, Line()).useful_usd + shares.get(row.policy, 0.0)
        for row in run.episodes
        if row.phase == "train"
    }


def checkpoint_rows(run: RunData, costs: RunCosts) -> list[CheckpointRow]:
    """Summarise every checkpoint of a run that has a test episode."""
    # By the position of a training episode: `train/0007` -> 7.
    rollouts = {int(key.rsplit("/", 1)[1]): usd for key, usd in rollout_costs(run, costs).items()}
    points = sorted({row.checkpoint for row in run.episodes if row.phase == "test"})
    rows = []
    for before, point in pairwise([0, *points]):
        played = [row for row in run.episodes if row.phase == "test" and row.checkpoint == point]
        since = [usd for number, usd in rollouts.items() if before <= number < point]
        scores = [row.score for row in played if row.score is not None]
        whole = [row for row in played if row.score is not None] or played  # half an episode looks cheap
        lines = [costs.episodes.get(row.episode, Line()) for row in whole]
        tokens = [line.useful for line in lines]
        policy = run.policies.load(played[0].policy)
        rows.append(
            CheckpointRow(
                rollouts=point,
                episodes=len(played),
                unscored=len(played) - len(scores),
                score=fmean(scores) if scores else None,
                llm_calls=fmean(row.llm_calls for row in whole),
                uncached=fmean(each.computed for each in tokens),
                cached=fmean(each.cached for each in tokens),
                output=fmean(each.reasoning + each.action for each in tokens),
                cost=None if costs.unpriced else fmean(line.useful_usd for line in lines),
                rollout_cost=fmean(since) if since and not costs.unpriced else None,
                public=sum(skill.public for skill in policy.skills),
                skills=len(policy.skills),
                notes=bool(policy.notes),
                cut=dict(Counter(row.ending.value for row in played if row.ending in CUT)),
                unreported=sum(line.unreported for line in lines),
                at_most=fmean(line.at_most.total for line in lines),
            )
        )
    return rows
