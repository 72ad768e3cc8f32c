"""Effects of the prefix cache: its share of prompts, and policies evaluated again on a server without it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import astuple

from speedrunner.config.names import ConditionName
from speedrunner.results.conditions import Condition, Spread, mean_sd, spread
from speedrunner.results.writing import Cell, Table

MEASURES = ("score", "uncached", "cached", "output", "actor_usd")
"""Columns of a checkpoint; USD of the test episodes only."""


class CacheEffect(msgspec.Struct, frozen=True):
    """A measure of one condition's policies on a server with prefix cache and on one without.

    Attributes:
        with_cache, without_cache: over the seeds that have both.
        ratio: the value with cache divided by the value without.
        runs: paths of the evaluated runs and of the evaluations.
    """

    condition_name: ConditionName
    measure: str
    seeds: int
    with_cache: Spread | None
    without_cache: Spread | None
    ratio: float | None
    runs: list[str]


def cache_effects(groups: Sequence[Condition]) -> list[CacheEffect]:
    """Return the effects of each condition with last policies that were also evaluated without
    prefix cache."""
    return [
        effect
        for group in groups
        if not has_cache(group)
        for other in groups
        if _begins_with(group, other)
        for effect in _effects(other, group)
    ]


def has_cache(group: Condition) -> bool:
    """Return whether the server had a prefix cache, which is the default."""
    return group.first.config.model.prefix_caching is not False


def cache_table(groups: Sequence[Condition]) -> Table:
    """Return a table with a row for each effect."""
    rows: list[tuple[Cell, ...]] = [
        (
            *(*astuple(each.condition_name), each.measure, each.seeds),
            *(mean_sd(each.with_cache)[0], mean_sd(each.without_cache)[0], each.ratio),
        )
        for each in cache_effects(groups)
    ]
    columns = ("env", "method", "model", "measure", "seeds", "with_cache", "without_cache", "ratio")
    text = (
        "The same policies on a server with and without prefix cache: means over test episodes, then"
        " over the seeds that have both; USD of the test episodes only. Ratio: with over without."
    )
    return Table("cache", text, columns, rows)


def share_table(groups: Sequence[Condition]) -> Table:
    """Return a table with a row for each condition: the share of its prompts that came from the
    prefix cache."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        ends = [run.checkpoints.iloc[-1] for run in group.runs.values() if len(run.checkpoints)]
        cached, uncached = (spread(row[name] for row in ends) for name in ("cached", "uncached"))
        share = spread(row["cached"] / (row["cached"] + row["uncached"] or float("nan")) for row in ends)
        if cached and uncached and share:
            rows.append((*group.names, share.seeds, cached.mean, uncached.mean, share.mean, share.sd))
    columns = ("env", "method", "model", "seeds", "cached", "uncached", "cached_share", "cached_share_std")
    text = (
        "Prompt tokens per test episode at the last checkpoint that the engine took from its prefix cache and"
        " that it had to compute, and the cached ones as a share of both: means over seeds."
    )
    return Table("cache_shares", text, columns, rows)


def _begins_with(group: Condition, other: Condition) -> bool:
    """Return whether a group evaluates the policies of the other one."""
    names = {run.path.rpartition("/")[2] for run in other.runs.values()}
    sources = {(run.config.run.start_from or "").rpartition("/")[2] for run in group.runs.values()}
    return bool(names & sources)


def _effects(cached: Condition, uncached: Condition) -> Iterator[CacheEffect]:
    pairs = cached.pair(uncached).values()
    whole = [pair for pair in pairs if all(len(run.checkpoints) for run in pair)]
    runs = [run.path for pair in pairs for run in pair]
    for name in MEASURES:
        with_, without = (spread(pair[side].checkpoints[name].iloc[-1] for pair in whole) for side in (0, 1))
        ratio = with_.mean / without.mean if with_ and without and without.mean else None
        yield CacheEffect(cached.condition_name, name, len(whole), with_, without, ratio, runs)
