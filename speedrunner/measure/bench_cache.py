"""What the prefix cache gives to real episodes, of the most that it can: `speedrunner bench cache`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from serving.cards import ModelCard
from serving.deployment import Deployment
from serving.engine.metrics import CacheConfig
from serving.errors import ServerFailed
from serving.probes.cache import TARGETS
from serving.usage import Usage
from speedrunner.cli.command import AsJson, Status
from speedrunner.config.check import InvalidConfig
from speedrunner.hosts.host_pool import HostPool
from speedrunner.measure.episodes import BenchRun, RecordingActor, bench_run
from speedrunner.measure.serving import (
    Overrides,
    bench_deployment,
    bench_setup,
    carry_out_in_folder,
    metrics,
    with_flags,
)
from speedrunner.runs.setup import Setup


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes of which so many were in flight. Tokens are sums over all their requests.

    Attributes:
        admission: whether conversations were held back for which the cache had no room.
        cacheable: the most prompt tokens that the cache could give.
        held_back: requests before which the episode was held back.
        preemptions: requests that the engine stopped for want of blocks, and computed again.
        shared_blocks: blocks of the cache that all conversations share.
        own_blocks: that one holds beside them at its end, on average.
    """

    in_flight: int
    admission: bool
    episodes: int
    turns: int
    prompt: int
    cached: int
    cacheable: int
    share_of_maximum: float
    hit_rate: float
    output_tokens_per_s: float
    held_back: int
    preemptions: int
    shared_blocks: int
    own_blocks: float


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured.

    Attributes:
        share_of_maximum: the least over all levels.
        small_cache: the last level again, with a cache that holds about half of its conversations; none
            on a server that is not ours.
        small_cache_blocks: how many blocks that cache had.
    """

    model: str
    cache: CacheConfig
    share_of_maximum: float
    target: float
    met: bool
    levels: list[Level]
    small_cache_blocks: int | None
    small_cache: list[Level]


async def measure(
    setup: Setup, in_flight: Sequence[int], episodes: int, status: Status, folder: Path
) -> Result:
    """Play episodes at each level, with admission and without.

    Raises:
        ServingError, HostError, StorageError, RunStopped: something failed.
    """
    levels: list[Level] = []
    small: list[Level] = []
    with bench_run(setup, folder) as run:
        async with bench_deployment(setup.card, setup, status) as deployment:
            if not deployment.caches:
                raise ServerFailed(
                    f"the engine at {deployment.endpoint} tells nothing about its prefix cache"
                )
            cache = deployment.caches[0]
            for count in in_flight:
                levels += await _both(deployment, setup, run, count, episodes, status)
        blocks = None
        if setup.config.serving.url is None:
            blocks = _half(levels[-1])
            card = _smaller(setup.card, cache, blocks)
            async with bench_deployment(card, setup, status) as deployment:
                small = await _both(deployment, setup, run, in_flight[-1], episodes, status)
    share = min(level.share_of_maximum for level in levels)
    target = TARGETS[setup.card.cache]
    return Result(
        model=setup.card.name,
        cache=cache,
        share_of_maximum=share,
        target=target,
        met=share >= target,
        levels=levels,
        small_cache_blocks=blocks,
        small_cache=small,
    )


async def _both(
    deployment: Deployment, setup: Setup, run: BenchRun, in_flight: int, episodes: int, status: Status
) -> list[Level]:
    status(f"{episodes} episodes, {in_flight} in flight, and again without admission")
    async with run.hosts(in_flight) as pool:
        return [
            await _level(deployment, setup, run, pool, in_flight, episodes, admission)
            for admission in ((True, False) if setup.config.serving.admission else (False,))
        ]


async def _level(
    deployment: Deployment,
    setup: Setup,
    run: BenchRun,
    pool: HostPool,
    in_flight: int,
    episodes: int,
    admission: bool,
) -> Level:
    async with deployment.client(run.directory.append_request, admission=admission) as model:
        actor = RecordingActor(setup, model)
        before = await metrics(deployment.endpoint, "num_preemptions_total")
        began = time.monotonic()
        played = await run.play(actor, pool, episodes)
        seconds = time.monotonic() - began
        after = await metrics(deployment.endpoint, "num_preemptions_total")
        shared = len(actor.shared_prefix(run.spec()))
    rows = [row for row in run.rows(played) if row.usage is not None]
    usages = [(row.usage or Usage(), row.cacheable or 0) for row in rows]
    total = sum((usage for usage, _ in usages), Usage())
    cacheable = sum(most for _, most in usages)
    # What is given beyond the most, by a world that was played before, makes up for nothing.
    given = sum(min(usage.cached, most) for usage, most in usages)
    cache = deployment.caches[0]
    own = [cache.blocks(len(talk.transcript.ids), shared) for talk in actor.talks.values()]
    return Level(
        in_flight=in_flight,
        admission=admission,
        episodes=len(played),
        turns=len(rows),
        prompt=total.prompt,
        cached=total.cached,
        cacheable=cacheable,
        share_of_maximum=given / cacheable if cacheable else 0.0,
        hit_rate=total.cached / total.prompt if total.prompt else 0.0,
        output_tokens_per_s=total.completion / seconds,
        held_back=sum(turn.held_s > 0 for each in played for turn in each.turns),
        preemptions=after["num_preemptions_total"] - before["num_preemptions_total"],
        shared_blocks=shared // cache.block_size,
        own_blocks=sum(own) / len(own),
    )


def _half(level: Level) -> int:
    """Blocks for half of the conversations that are in flight; the engine keeps one to itself."""
    return level.shared_blocks + math.ceil(level.own_blocks * max(level.in_flight / 2, 1)) + 1


def _smaller(card: ModelCard, cache: CacheConfig, blocks: int) -> ModelCard:
    """The card with a cache of so many blocks, and no longer context than they hold."""
    card = msgspec.structs.replace(card, context=min(card.context, (blocks - 1) * cache.block_size))
    return with_flags(card, num_gpu_blocks_override=blocks)


def bench_cache(
    overrides: Overrides = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes of each measurement.")] = 16,
    turns: Annotated[
        int | None, typer.Option(min=2, help="Most requests of an episode; by default the environment's.")
    ] = None,
    in_flight: Annotated[
        str, typer.Option(help="Episodes at the same time, one level after another.")
    ] = "1,4,16",
    as_json: AsJson = False,
) -> None:
    """Play episodes, and compare their cached tokens with the most that the cache can give.

    With a server of our own, the last level is played again with a cache that holds half of its
    conversations. The exit status is 1 when one of the levels before gives less than 99 % (attention) or
    97 % (hybrid models). Tokens per second are those of a shared machine: compare them within one table only.

    Example: speedrunner bench cache model=tiny --in-flight 1,8
    """
    levels = _levels(in_flight)
    setup = bench_setup(overrides, turns)
    result = carry_out_in_folder(lambda status, folder: measure(setup, levels, episodes, status, folder))
    typer.echo(json.dumps(msgspec.to_builtins(result)) if as_json else _text(result))
    if not result.met:
        raise typer.Exit(1)


def _levels(text: str) -> list[int]:
    try:
        levels = sorted({int(each) for each in text.split(",")})
    except ValueError:
        levels = [0]
    if levels[0] < 1:
        raise InvalidConfig(f"--in-flight {text}: write numbers of episodes with commas, such as 1,4,16")
    return levels


def _text(result: Result) -> str:
    cache = result.cache
    kind = "hybrid" if cache.hybrid else "attention"
    lines = [
        f"{result.model}: {kind} cache of {cache.num_gpu_blocks} blocks of {cache.block_size} tokens, matched"
        f" in units of {cache.match_unit}",
        f"{'in flight':>9}{'admission':>11}{'turns':>7}{'prompt tokens':>15}{'cached':>9}{'of maximum':>12}"
        f"{'output/s':>10}{'held back':>11}{'preempted':>11}",
        *map(_line, result.levels),
    ]
    if result.small_cache_blocks is None:
        lines.append("A running server's cache is not made smaller: what admission does is not measured.")
    else:
        lines.append(
            f"With a cache of {result.small_cache_blocks} blocks, which holds half of what is in flight:"
        )
        lines += map(_line, result.small_cache)
        if len(result.small_cache) == 2:
            held, free = result.small_cache
            lines.append(
                f"Admission keeps {held.hit_rate:.1%} instead of {free.hit_rate:.1%} of the prompt tokens"
                f" cached, at {held.output_tokens_per_s / free.output_tokens_per_s:.2f} times the output"
                " tokens per second."
            )
    lines.append(
        f"Target: at least {result.target:.0%} of the maximum: {result.share_of_maximum:.2%},"
        f" {'met' if result.met else 'MISSED'}."
    )
    return "\n".join(lines)


def _line(level: Level) -> str:
    return (
        f"{level.in_flight:9}{'yes' if level.admission else 'no':>11}{level.turns:7}{level.prompt:15}"
        f"{level.hit_rate:9.1%}{level.share_of_maximum:12.2%}{level.output_tokens_per_s:10.0f}"
        f"{level.held_back:11}{level.preemptions:11}"
    )
