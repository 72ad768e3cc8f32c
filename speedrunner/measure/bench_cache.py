"""What the prefix cache gives to real episodes, of the most that it can: `speedrunner bench cache`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence

import msgspec

from serving.deployment import Deployment
from serving.engine.metrics import CacheConfig, read_metrics
from serving.model_card import ModelCard
from speedrunner.measure.engine import cache_of, cache_text, opened, with_flags
from speedrunner.measure.measurement import Figure, Measurement, Status, Table, columns, within
from speedrunner.measure.played_episodes import BenchRun, bench_run
from speedrunner.measure.probe_cache import TARGETS
from speedrunner.measure.processes import Stopwatch
from speedrunner.results.ledger import token_line
from speedrunner.runs.setup import Setup

FEW = 2
"""So many episodes for each one in flight are enough: a level of one would take as long as all others."""

IN_TURN = (True, False, False, True)
"""Admission, pass by pass, where both are compared: what changes with time alone tells on both alike."""

PREEMPTIONS = "num_preemptions_total"


LEVEL_COLUMNS = columns(
    *("cache_blocks", "in_flight", "admission", "turns", "prompt", "hit_rate:.1%", "of_maximum:.2%"),
    *("output_tokens_per_s:.0f", "cpu_ms:.3f", "held_back", "preemptions"),
)
"""How people see a `Level`."""


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """Episodes of which so many were in flight. Tokens are sums over all their requests.

    Attributes:
        cache_blocks: of the cache.
        admission: whether conversations were held back for which the cache had no room.
        cacheable: the most prompt tokens that the cache could give.
        of_maximum: what it gave of that.
        hit_rate: what it gave of all prompt tokens.
        cpu_ms: CPU time per output token of all processes together, the engine's too, which depends little on
            what else the machine does; `None` where the engine is not ours.
        held_back: requests before which the episode was held back.
        preemptions: requests that the engine stopped for want of blocks, and computed again.
        shared_blocks: blocks of the cache that all conversations share.
        own_blocks: that one holds beside them at its end, on average.
    """

    cache_blocks: int
    in_flight: int
    admission: bool
    episodes: int
    turns: int
    prompt: int
    cached: int
    cacheable: int
    of_maximum: float
    hit_rate: float
    output_tokens_per_s: float
    cpu_ms: float | None
    held_back: int
    preemptions: int
    shared_blocks: int
    own_blocks: float


async def measure_cache(
    setup: Setup, in_flight: Sequence[int], episodes: int, turns: int, status: Status
) -> Measurement:
    """Play episodes at each level, the last one again with admission and without, in turn; with an engine of
    our own also in a smaller cache.

    Args:
        in_flight: episodes at the same time, level by level.
        episodes: of each level, but no more than `FEW` for each one in flight.
        turns: most requests of an episode.

    Raises `ServingError`, `HostError`, `StorageError`, `RunStopped`.
    """
    card, admission = setup.card, setup.config.serving.admission
    levels: list[Level] = []
    whole: list[Level] = []
    small: list[Level] = []
    with bench_run(setup, turns) as run:
        async with opened(card, setup.config, status) as deployment:
            card, cache = deployment.card, cache_of(deployment)
            for many in in_flight:
                count = min(episodes, FEW * many)
                told = within(status, f"{_so_far(levels)}{count} episodes, {many} in flight")
                levels.append(await play_level(deployment, run, many, count, admission, told))
            for admits in IN_TURN if admission else ():
                told = within(status, f"{_so_far(levels + whole)}the last level {_with(admits)} once more")
                whole.append(await play_level(deployment, run, many, count, admits, told))
        if setup.config.serving.url is None:
            async with opened(smaller(card, cache, levels[-1]), setup.config, status) as deployment:
                for admits in IN_TURN if admission else (False,):
                    doing = f"the last level {_with(admits)} in half the cache"
                    told = within(status, f"{_so_far(levels + whole + small)}{doing}")
                    small.append(await play_level(deployment, run, many, count, admits, told))
    return _measurement(card, cache, levels, whole, small)


def _with(admission: bool) -> str:
    return "with admission" if admission else "without admission"


def _so_far(levels: Sequence[Level]) -> str:
    found = (f"{each.of_maximum:.2%}, {each.output_tokens_per_s:.0f} output tokens/s; " for each in levels)
    return "".join(found)


async def play_level(
    deployment: Deployment, run: BenchRun, in_flight: int, episodes: int, admission: bool, status: Status
) -> Level:
    """Play so many episodes, `in_flight` at a time, with admission or without. Raises as `measure_cache`."""
    cache = cache_of(deployment)
    async with run.hosts(in_flight) as pool, deployment.client(run.record, admission=admission) as model:
        shared = len(await run.warm(model))
        await pool.ready()
        before = (await read_metrics(deployment.endpoint)).sums(PREEMPTIONS)
        watch = Stopwatch()
        played = await run.play(model, pool, episodes, status)
        per_s, cpu_ms = watch.per_token(sum(each.trajectory.usage.completion for each in played))
        after = (await read_metrics(deployment.endpoint)).sums(PREEMPTIONS)
    line = token_line(row for each in played for row in each.rows)
    tokens = line.tokens
    prompt = tokens.cached + tokens.computed
    own = [cache.blocks(len(each.talk.transcript.ids), shared) for each in played]
    return Level(
        cache_blocks=cache.num_gpu_blocks,
        in_flight=in_flight,
        admission=admission,
        episodes=len(played),
        turns=line.requests,
        prompt=int(prompt),
        cached=int(tokens.cached),
        cacheable=line.cacheable,
        of_maximum=line.cache_share or 0.0,
        hit_rate=tokens.cached / prompt,
        output_tokens_per_s=per_s,
        cpu_ms=None if deployment.server is None else cpu_ms,
        held_back=sum(turn.held_s > 0 for each in played for turn in each.trajectory.turns),
        preemptions=int(after.get(PREEMPTIONS, 0) - before.get(PREEMPTIONS, 0)),
        shared_blocks=shared // cache.block_size,
        own_blocks=sum(own) / len(own),
    )


def smaller(card: ModelCard, cache: CacheConfig, level: Level) -> ModelCard:
    """The card with a cache for half of a level's conversations, and no longer context than it holds."""
    own = math.ceil(level.own_blocks * max(level.in_flight / 2, 1))
    blocks = level.shared_blocks + own + 1  # the engine keeps one to itself
    card = msgspec.structs.replace(card, context=min(card.context, (blocks - 1) * cache.block_size))
    named = card.server.flags.get("max-num-seqs")
    sequences = min(named, blocks - 1) if isinstance(named, int) else blocks - 1
    # A hybrid model takes a block for each sequence.
    return with_flags(card, num_gpu_blocks_override=blocks, max_num_seqs=sequences)


def _measurement(
    card: ModelCard, cache: CacheConfig, levels: list[Level], whole: list[Level], small: list[Level]
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
        faster = _with_over_without(whole, lambda each: each.output_tokens_per_s)
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
        faster = _with_over_without(small, lambda each: each.output_tokens_per_s)
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


def _with_over_without(levels: Sequence[Level], figure: Callable[[Level], float | None]) -> float | None:
    """Mean of the ratios of neighbours, of which one was played with admission and one without."""
    ratios = []
    for pair in zip(levels[::2], levels[1::2], strict=True):
        without, held = (figure(each) for each in sorted(pair, key=lambda each: each.admission))
        if held is None or without is None:
            return None
        ratios.append(held / without)
    return statistics.mean(ratios)
