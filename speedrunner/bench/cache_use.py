"""Cached tokens compared with the most that the cache can provide: `bench cache` and `bench probe cache`.

`bench cache` plays episodes. `bench probe cache` sends known conversations: one grows turn by turn, then
siblings that share a prefix, warmed up before, start at once. The most that the cache can provide for each
request is what an ideal cache with its rule would (`serving.engine.ideal_cache`).
"""

from __future__ import annotations

import math
import secrets
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from serving.deployment import Deployment
from serving.engine.cache_config import CacheConfig
from serving.engine.metrics import read_counters
from serving.errors import ContextOverflow
from serving.meter import LedgerRow
from serving.model import Model
from serving.model_config import ModelConfig
from serving.probes.start_check import OTHERS, advice, note_tools, text_of
from serving.together import run_together
from speedrunner.bench.engine import cache_of, completions_api, describe_cache, open_engine, with_flags
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.bench.player import Script, play_script
from speedrunner.bench.rollouts import BenchRun, Rollout, bench_run, open_player
from speedrunner.config.console import Status, prefix_status
from speedrunner.config.schema import Config, InvalidConfig
from speedrunner.runs.setup import Setup

SYSTEM_TOKENS = 2000
REPLY_TOKENS = 160
SIBLINGS = 8

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


class CacheRequest(msgspec.Struct, frozen=True):
    """One request, in tokens.

    Attributes:
        cached_tokens: name of the request, for users.
        expected: the most prompt tokens that the cache can provide.
        reported: the tokens that the engine reports as cached.
    """

    cached_tokens: str
    prompt: int
    expected: int
    reported: int


async def measure_cache_use(
    model_config: ModelConfig, config: Config, turns: int, status: Status
) -> Measurement:
    """Probe the cache of a model's engine. Raises as `probe_cache`; `InvalidConfig` for too many turns."""
    async with open_engine(completions_api(model_config), config, status) as deployment:
        try:
            return await probe_cache(deployment, turns, status)
        except ContextOverflow as error:
            raise InvalidConfig(f"--turns {turns} is too many: {error}") from error


async def probe_cache(deployment: Deployment, turns: int, status: Status) -> Measurement:
    """Play a conversation of this many turns, then siblings of another one.

    Raises:
        ServerFailed: the engine reports no cache.
        ContextOverflow: the turns do not fit the model's context.
        ServingError: the engine failed.
    """
    model_config, cache = deployment.model_config, cache_of(deployment)
    parts: dict[str, list[CacheRequest]] = {"turn": [], "sibling": []}

    def write(row: LedgerRow) -> None:
        part = parts.get(row.labels.get("part", ""))
        if part is not None and row.usage is not None:
            name = f"{row.labels['part']} {len(part) + 1}"
            part.append(CacheRequest(name, row.usage.prompt, row.cacheable or 0, row.usage.cached))
            sent = sum(map(len, parts.values()))
            status(f"{sent} of {turns + SIBLINGS} requests, the last with {row.usage.cached} tokens cached")

    counted = await read_counters(deployment.endpoint)
    # Without admission, because the engine is measured.
    async with deployment.client(write, admission=False) as model:
        await play_script(model, _script(model, "turn", "0", secrets.token_hex(4), turns))
        nonce = secrets.token_hex(4)
        family = [_script(model, "sibling", str(number), nonce, 1) for number in range(SIBLINGS)]
        warmed = await model.warm("actor", family[0].messages, family[0].tools, {})
        await run_together(lambda script: play_script(model, script), family, SIBLINGS)
    hits = (await read_counters(deployment.endpoint) - counted).cached > 0
    prefix = max((length for length, _ in warmed), default=0)
    growing, siblings = parts.values()
    requests = [*growing, *siblings]
    prompt, expected, reported = (
        sum(getattr(each, name) for each in requests) for name in ("prompt", "expected", "reported")
    )
    share = reported / expected if expected else 0.0
    found = Measurement(
        describe_cache(model_config, cache),
        figures=[Figure("share of the maximum", share, at_least=TARGETS[model_config.cache], form=".2%")],
        tables=[Table("requests", [*requests, CacheRequest("all", prompt, expected, reported)])],
        facts={"model": model_config.name, "cache": cache, "prefix": prefix},
        notes=[f"(siblings share a prefix of {prefix} tokens, which was sent once before them)"],
    )
    changes = advice(model_config, cache, hits, reported > 0)
    if not found.met:
        changes = [*changes, *_room(cache, growing, siblings, prefix)] or [OTHERS]
    found.notes += [f"To change: {line}" for line in changes]
    found.facts["advice"] = changes
    return found


def _room(
    cache: CacheConfig, turns: Sequence[CacheRequest], siblings: Sequence[CacheRequest], prefix: int
) -> list[str]:
    """Return what to change if the cache is too small for the requests."""
    alone = max(cache.blocks(each.prompt) for each in turns)
    own = sum(cache.blocks(each.prompt, shared=prefix) for each in siblings)
    needed = max(alone, own + prefix // cache.block_size)
    if needed < cache.num_gpu_blocks:
        return []
    return [
        f"its cache of {cache.num_gpu_blocks} blocks is too small for them (they take {needed}):"
        " raise --gpu-memory-utilization (on a CPU, VLLM_CPU_KVCACHE_SPACE)"
    ]


def _script(model: Model, part: str, name: str, nonce: str, turns: int) -> Script:
    """Write a conversation of known lengths; `nonce` separates it from all earlier requests."""
    system = text_of(model, nonce, min(SYSTEM_TOKENS, model.model_config.context // 4))
    user = text_of(model, name, REPLY_TOKENS)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    replies = [text_of(model, "another", REPLY_TOKENS)] * (turns - 1)
    return Script(messages, note_tools(), replies, labels={"role": "probe", "part": part})
