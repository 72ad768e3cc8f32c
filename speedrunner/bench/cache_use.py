"""Cached tokens of real episodes, compared with the most that can be: `speedrunner bench cache`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.metrics import CacheConfig
from serving.model_card import ModelCard
from speedrunner.bench.engine import cache_of, cache_text, opened, with_flags
from speedrunner.bench.episodes import BenchRun, bench_run
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.bench.rollouts import Rollout, open_player
from speedrunner.console import Status, within
from speedrunner.runs.setup import Setup

TARGETS = {"attention": 0.99, "hybrid": 0.97}
"""Least share of the most that a cache can give, by its kind."""

EPISODES_EACH = 2
"""Episodes for each one in flight, at most: a level of one would take as long as all others."""

ADMISSION_ORDER = (True, False, False, True)
"""Admission by pass where both are compared: changes over time affect both alike."""

LEVEL_COLUMNS = {
    **columns("cache_blocks", "in_flight", "admission", "turns", "prompt", "hit_rate:.1%", "of_maximum:.2%"),
    "output tokens per s": "output_per_s:.0f",
    **columns("cpu_ms:.3f", "held_back", "preemptions"),
}


async def measure_cache(
    setup: Setup, in_flight: Sequence[int], episodes: int, turns: int, status: Status
) -> Measurement:
    """Play episodes at each level, then the last level again with admission and without it.

    A server of our own is measured in a smaller cache, too.

    Args:
        in_flight: episodes at the same time, level by level.
        episodes: of each level, but at most `EPISODES_EACH` for each one in flight.
        turns: maximum requests of an episode.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    card, admission = setup.card, setup.config.serving.admission
    levels: list[Rollout] = []
    whole: list[Rollout] = []
    small: list[Rollout] = []
    with bench_run(setup, turns) as run:

        async def add(
            to: list[Rollout], deployment: Deployment, count: int, admits: bool, doing: str
        ) -> None:
            reported = within(status, f"{_so_far(levels + whole + small)}{doing}")
            to.append(await play_level(deployment, run, many, count, admits, reported))

        async with opened(card, setup.config, status) as deployment:
            card, cache = deployment.card, cache_of(deployment)
            for many in in_flight:
                count = min(episodes, EPISODES_EACH * many)
                await add(levels, deployment, count, admission, f"{count} episodes, {many} in flight")
            for admits in ADMISSION_ORDER if admission else ():
                await add(whole, deployment, count, admits, f"the last level {_with(admits)} once more")
        if setup.config.serving.url is None:
            async with opened(
                smaller(card, cache, msgspec.structs.asdict(levels[-1])), setup.config, status
            ) as deployment:
                for admits in ADMISSION_ORDER if admission else (False,):
                    doing = f"the last level {_with(admits)} in half the cache"
                    await add(small, deployment, count, admits, doing)
    return _measurement(card, cache, levels, whole, small)


def _with(admission: bool) -> str:
    return "with admission" if admission else "without admission"


def _so_far(levels: Sequence[Rollout]) -> str:
    return "".join(f"{each.of_maximum:.2%}, {each.output_per_s:.0f} output tokens/s; " for each in levels)


async def play_level(
    deployment: Deployment, run: BenchRun, in_flight: int, episodes: int, admission: bool, status: Status
) -> Rollout:
    """Play episodes, `in_flight` at a time, with admission or without it. Raises as `measure_cache`."""
    cache_of(deployment)
    async with open_player(deployment, run, in_flight, admission=admission) as player:
        return await player.play(episodes, status)


def smaller(card: ModelCard, cache: CacheConfig, level: Mapping[str, Any]) -> ModelCard:
    """Return the model configuration with a cache for half of the conversations of a level, and a context
    that fits into it.

    Args:
        level: `in_flight`, `shared_blocks` and `own_blocks` of a `Rollout`.
    """
    own = math.ceil(level["own_blocks"] * max(level["in_flight"] / 2, 1))
    blocks = level["shared_blocks"] + own + 1  # the engine keeps one to itself
    card = msgspec.structs.replace(card, context=min(card.context, (blocks - 1) * cache.block_size))
    named = card.server.flags.get("max-num-seqs")
    sequences = min(named, blocks - 1) if isinstance(named, int) else blocks - 1
    # A hybrid model takes a block for each sequence.
    return with_flags(card, num_gpu_blocks_override=blocks, max_num_seqs=sequences)


def _measurement(
    card: ModelCard, cache: CacheConfig, levels: list[Rollout], whole: list[Rollout], small: list[Rollout]
) -> Measurement:
    share = min(level.of_maximum for level in levels)
    tables = {"levels": levels, "whole_cache": whole, "small_cache": small}
    found = Measurement(
        cache_text(card, cache),
        figures=[Figure("least share of the maximum", share, at_least=TARGETS[card.cache], form=".2%")],
        tables=[Table(name, rows, LEVEL_COLUMNS) for name, rows in tables.items() if rows],
        facts={"model": card.name, "cache": cache},
    )
    if whole:
        faster = _with_over_without(whole, lambda each: each.output_per_s)
        cpu = _with_over_without(whole, lambda each: each.cpu_ms)
        found.figures += [
            Figure("whole cache: output tokens/s with admission over without", faster, form=".3f"),
            Figure("whole cache: CPU time per output token with admission over without", cpu, form=".3f"),
        ]
    if len(small) > 1:
        held, free = (
            statistics.mean(each.hit_rate for each in small if each.admission == admits)
            for admits in (True, False)
        )
        faster = _with_over_without(small, lambda each: each.output_per_s)
        found.figures += [
            Figure("half the cache: hit rate with admission", held, form=".1%"),
            Figure("half the cache: hit rate without admission", free, form=".1%"),
            Figure("half the cache: output tokens/s with admission over without", faster, form=".3f"),
        ]
    elif not small:
        found.notes.append(
            "A running server's cache is not made smaller: admission where room is short is not measured."
        )
    return found


def _with_over_without(levels: Sequence[Rollout], figure: Callable[[Rollout], float | None]) -> float | None:
    """Return the mean ratio of neighbors, one played with admission and one without it."""
    ratios = []
    for pair in zip(levels[::2], levels[1::2], strict=True):
        without, held = (figure(each) for each in sorted(pair, key=lambda each: each.admission))
        if held is None or without is None:
            return None
        ratios.append(held / without)
    return statistics.mean(ratios)
