"""Cached tokens of episodes compared with the most that the cache can provide: `speedrunner bench cache`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.cache_config import CacheConfig
from serving.model_config import ModelConfig
from speedrunner.bench.engine import cache_of, describe_cache, open_engine, with_flags
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.bench.rollouts import BenchRun, Rollout, bench_run, open_player
from speedrunner.config.console import Status, prefix_status
from speedrunner.runs.setup import Setup

TARGETS = {"attention": 0.99, "hybrid": 0.97}
"""Target for the least share of the possible cached tokens, by kind of cache."""

EPISODES_EACH = 2
"""Most episodes for each one in flight: a level with one in flight would take as long as all others."""

ADMISSION_ORDER = (True, False, False, True)
"""Admission by pass if both are compared: changes over time affect both alike."""

LEVEL_COLUMNS = {
    **columns("cache_blocks", "in_flight", "admission", "turns", "prompt", "hit_rate:.1%", "of_maximum:.2%"),
    "output tokens per s": "output_per_s:.0f",
    **columns("cpu_ms:.3f", "queued", "preemptions"),
}


async def measure_cache(
    setup: Setup, in_flight: Sequence[int], episodes: int, turns: int, status: Status
) -> Measurement:
    """Play episodes at each level, then the last level again with and without admission.

    A server that is started here is also measured with a smaller cache.

    Args:
        in_flight: episodes at the same time, level by level.
        episodes: episodes of each level, at most `EPISODES_EACH` for each one in flight.
        turns: maximum requests of an episode.

    Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    admission = setup.config.serving.admission
    compared = [(in_flight[-1], admits) for admits in (ADMISSION_ORDER if admission else ())]
    small: list[Rollout] = []
    with bench_run(setup, turns) as run:
        async with open_engine(setup.model_config, setup.config, status) as deployment:
            model_config, cache = deployment.model_config, cache_of(deployment)
            levels = await play_levels(
                deployment, run, [(many, admission) for many in in_flight], episodes, status
            )
            reported = prefix_status(status, "the last level, repeated")
            whole = await play_levels(deployment, run, compared, episodes, reported)
        if setup.config.serving.url is None:
            half = smaller(model_config, cache, msgspec.structs.asdict(levels[-1]))
            reported = prefix_status(status, "the last level in half the cache")
            async with open_engine(half, setup.config, status) as deployment:
                again = compared or [(in_flight[-1], False)]
                small = await play_levels(deployment, run, again, episodes, reported)
    return _measurement(model_config, cache, levels, whole, small)


async def play_levels(
    deployment: Deployment,
    run: BenchRun,
    levels: Sequence[tuple[int, bool]],
    episodes: int,
    status: Status,
) -> list[Rollout]:
    """Play episodes at each level: a number in flight, with admission or without. Raises as `measure_cache`.

    Args:
        episodes: see `measure_cache`.
    """
    cache_of(deployment)
    found: list[Rollout] = []
    for number, (in_flight, admits) in enumerate(levels, start=1):
        so_far = "".join(f"{each.of_maximum:.2%} of the maximum; " for each in found[-1:])
        kind = "with admission" if admits else "without admission"
        reported = prefix_status(
            status, f"{so_far}level {number} of {len(levels)}, {in_flight} in flight {kind}"
        )
        async with open_player(deployment, run, in_flight, admission=admits) as player:
            found.append(await player.play(min(episodes, EPISODES_EACH * in_flight), reported))
    return found


def share_of_maximum(model_config: ModelConfig, levels: Sequence[Rollout]) -> Figure:
    """Return the least share of the possible cached tokens, with its target."""
    least = min(level.of_maximum for level in levels)
    return Figure("least share of the maximum", least, at_least=TARGETS[model_config.cache], form=".2%")


def smaller(model_config: ModelConfig, cache: CacheConfig, level: Mapping[str, Any]) -> ModelConfig:
    """Return the model config with a cache for half of a level's conversations, and a context that fits into
    it.

    Args:
        level: `in_flight`, `shared_blocks` and `own_blocks` of a `Rollout`.
    """
    own = math.ceil(level["own_blocks"] * max(level["in_flight"] / 2, 1))
    blocks = level["shared_blocks"] + own + 1  # the engine reserves one
    model_config = msgspec.structs.replace(
        model_config, context=min(model_config.context, (blocks - 1) * cache.block_size)
    )
    named = model_config.server.flags.get("max-num-seqs")
    sequences = min(named, blocks - 1) if isinstance(named, int) else blocks - 1
    # A hybrid model takes a block for each sequence.
    return with_flags(model_config, num_gpu_blocks_override=blocks, max_num_seqs=sequences)


def _measurement(
    model_config: ModelConfig,
    cache: CacheConfig,
    levels: list[Rollout],
    whole: list[Rollout],
    small: list[Rollout],
) -> Measurement:
    tables = {"levels": levels, "whole_cache": whole, "small_cache": small}
    found = Measurement(
        describe_cache(model_config, cache),
        figures=[share_of_maximum(model_config, levels)],
        tables=[Table(name, rows, LEVEL_COLUMNS) for name, rows in tables.items() if rows],
        facts={"model": model_config.name, "cache": cache},
    )
    for where, rows in (("whole cache", whole), ("half the cache", small)):
        if len(rows) > 1:
            held, free = _mean(rows, "hit_rate", admits=True), _mean(rows, "hit_rate", admits=False)
            found.figures += [
                Figure(f"{where}: hit rate with admission", held, form=".1%"),
                Figure(f"{where}: hit rate without admission", free, form=".1%"),
                _with_over_without(f"{where}: output tokens/s", rows, "output_per_s"),
                _with_over_without(f"{where}: CPU time per output token", rows, "cpu_ms"),
            ]
    if not small:
        found.notes.append(
            "The cache of a running server cannot be shrunk, so admission in a small cache is not measured."
        )
    return found


def _with_over_without(name: str, levels: Sequence[Rollout], field: str) -> Figure:
    """Return the mean with admission as a multiple of the mean without."""
    held, free = _mean(levels, field, admits=True), _mean(levels, field, admits=False)
    ratio = None if held is None or free is None else held / free
    return Figure(f"{name}, ratio with to without admission", ratio, form=".3f")


def _mean(levels: Sequence[Rollout], field: str, *, admits: bool) -> float | None:
    values = [getattr(each, field) for each in levels if each.admission == admits]
    return None if None in values else statistics.mean(values)
