"""The steps of the record that `speedrunner bench gpu` makes, in order of value."""

from __future__ import annotations

import asyncio
import functools
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from serving.cards import list_cards
from serving.engine.gpus import visible_gpus
from serving.engine.metrics import CacheConfig
from serving.model_card import ModelCard
from speedrunner.config.named import actor_card
from speedrunner.measure.bench_cache import LEVEL_COLUMNS, Level, play_level, smaller
from speedrunner.measure.engine import cache_of, cache_text, with_flags
from speedrunner.measure.gpu_bench import LONGEST_S, Bench, Play, Result, Step
from speedrunner.measure.gpu_record import Record
from speedrunner.measure.long_prompts import measure_long_prompts
from speedrunner.measure.measurement import Figure, Measurement, Table, columns
from speedrunner.measure.played_episodes import bench_run
from speedrunner.measure.probe_cache import TARGETS, probe_cache
from speedrunner.measure.probe_tools import probe_tools
from speedrunner.measure.timed_rollout import measure_timed_rollout
from speedrunner.runs.machine import machine
from speedrunner.runs.setup import Setup
from speedrunner.runs.versions import versions

LEVELS = (16, 64, 128)
"""Episodes at the same time, as far as the server takes so many sequences."""

KINDS, MOST_PROBES = 12, 200
"""Kinds of tool-call probes, and the most probes that are sent."""

CACHE_TURNS = 8
"""Requests of the conversation of `probe cache`."""

MORE_PACKAGES = ("flashinfer-python", "triton", "cuda-python")

MAIN, HALF, NO_CACHE, FP8 = "main", "half-cache", "no-cache", "fp8"
"""Servers: as the model configuration says, with half the cache, without it, and in 8 bits."""


class Sizes(msgspec.Struct, frozen=True):
    """Seconds on one kind of machine: bounds of a start, a step and a short step, and what a step aims at."""

    start_s: float
    bound_s: float
    short_s: float
    aim_s: float


ON_GPU = Sizes(start_s=LONGEST_S, bound_s=300, short_s=60, aim_s=90)
ON_CPU = Sizes(start_s=240, bound_s=180, short_s=60, aim_s=15)


def sizes_of(card: ModelCard) -> Sizes:
    """Return the times for a model configuration."""
    return ON_GPU if card.gpus else ON_CPU


def bench_of(setup: Setup, record: Record, status: Any) -> Bench:
    """Return what the steps share. A start may take 1.5 times the longest measured one and 30 s."""
    sizes = sizes_of(setup.card)
    totals = [record.facts(step).get("total", 0.0) for step in ("start-cold", "start-warm")]
    start_s = min(1.5 * max(totals) + 30, sizes.start_s) if any(totals) else sizes.start_s
    return Bench(setup, record, start_s, sizes.aim_s, status)


def steps_of(setup: Setup, overrides: Sequence[str]) -> list[Step]:
    """Return all steps for a configuration; those that cannot be played here have a reason."""
    card, sizes, given = setup.card, sizes_of(setup.card), shlex.join(overrides)
    foreign = (
        "" if setup.config.serving.url is None else "serving.url names a server that this does not start"
    )
    cached = card.server.flags.get("enable-prefix-caching", True) is not False
    uncached = "" if cached else "the prefix cache is off"
    eight_bits = f"{card.name}-fp8"
    no_fp8 = "" if eight_bits in list_cards() else f"there is no model configuration {eight_bits}"

    levels = {level: _in_flight(card, level) for level in LEVELS}
    steps = {in_flight: f"rollout-{level}" for level, in_flight in reversed(levels.items())}
    middle = levels[LEVELS[1]]

    def step(name: str, play: Play, server: str = MAIN, bound_s: float = sizes.bound_s, **more: Any) -> Step:
        return Step(name=name, bound_s=bound_s, play=play, server=server, **more)

    def rollout(level: int) -> Step:
        in_flight = levels[level]
        skip = (
            ""
            if steps[in_flight] == f"rollout-{level}"
            else (f"the server takes {in_flight} sequences at a time, which {steps[in_flight]} measures")
        )
        return step(f"rollout-{level}", functools.partial(_rollout, in_flight, given), skip=skip)

    def compared(name: str, server: str, play: Play, card: Any, skip: str) -> Step:
        return step(name, play, server, card=card, needs=steps[middle], skip=skip)

    less = f"{given} model.prefix_caching=false"
    in_8_bits = shlex.join(f"model={eight_bits}" if each.startswith("model=") else each for each in overrides)
    return [
        step("environment", _environment, "", sizes.short_s),
        step("start-cold", _start_cold, "", sizes.start_s, starts=MAIN, skip=foreign),
        step("capacity", _capacity, bound_s=sizes.short_s),
        step("tools", functools.partial(_tools, given)),
        step("cache-probe", functools.partial(_cache_probe, given), skip=uncached),
        *map(rollout, LEVELS),
        step("long-prompts", _long_prompts),
        step("cache-share", functools.partial(_cache_share, levels[LEVELS[0]], given), skip=uncached),
        step("grammar", functools.partial(_grammar, middle, given)),
        step("start-warm", _start_warm, "", sizes.start_s, starts=MAIN, needs="start-cold", skip=foreign),
        compared(
            "no-cache",
            NO_CACHE,
            functools.partial(_compared_rollout, steps[middle], "without prefix cache", less),
            _without_cache,
            foreign or uncached,
        ),
        step("half-cache", _half_cache, HALF, card=_half, needs="cache-share", skip=foreign or uncached),
        compared(
            "fp8",
            FP8,
            functools.partial(_compared_rollout, steps[middle], "FP8", in_8_bits),
            functools.partial(_in_8_bits, setup, eight_bits),
            foreign or no_fp8,
        ),
    ]


def _in_flight(card: ModelCard, level: int) -> int:
    """Return so many episodes, or fewer if the server takes fewer sequences at a time."""
    most = card.server.flags.get("max-num-seqs")
    return min(level, most * card.replicas) if isinstance(most, int) else level


# Servers of their own.


def _without_cache(record: Record, card: ModelCard) -> ModelCard:
    return with_flags(card, enable_prefix_caching=False)


def _half(record: Record, card: ModelCard) -> ModelCard:
    facts = record.facts("cache-share")
    level = msgspec.convert(facts["level"], Level)
    return smaller(card, msgspec.convert(facts["cache"], CacheConfig), level)


def _in_8_bits(setup: Setup, name: str, record: Record, card: ModelCard) -> ModelCard:
    model = msgspec.structs.replace(setup.config.model, card=name)
    return actor_card(msgspec.structs.replace(setup.config, model=model))


# Steps.


async def _environment(bench: Bench) -> Result:
    return Result(await asyncio.to_thread(_describe_machine))


def _describe_machine() -> Measurement:
    this = machine()
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    try:
        gpus = visible_gpus()
    except (OSError, subprocess.SubprocessError):
        gpus = []
    for gpu in gpus:
        capability = ".".join(map(str, gpu.capability))
        facts[f"GPU {gpu.id}"] = f"{gpu.name}, {gpu.total} MiB, compute capability {capability}"
    if gpus:
        facts |= {"driver": gpus[0].driver, "CUDA toolkit (nvcc)": _toolkit()}
    facts |= versions()
    for package in MORE_PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    return Measurement("The machine and what is installed", tables=[Table("environment", rows)])


def _toolkit() -> str:
    """The release of the CUDA compiler."""
    try:
        done = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return "none on the PATH"
    return next((line for line in done.stdout.splitlines() if "release" in line), "unknown release")


async def _start_cold(bench: Bench) -> Result:
    """Start with no compiled code, as on a new machine."""
    await bench.stop()
    await asyncio.to_thread(shutil.rmtree, bench.compiled, ignore_errors=True)
    return Result(_started("cold", await bench.start(MAIN, bench.setup.card)))


async def _start_warm(bench: Bench) -> Result:
    """Start with what the first start compiled."""
    return Result(_started("warm", await bench.start(MAIN, bench.setup.card)))


def _started(start: str, phases: dict[str, float]) -> Measurement:
    rows = [{"start": start, "phase": phase, "seconds": seconds} for phase, seconds in phases.items()]
    shown = columns("start", "phase", "seconds:.1f")
    return Measurement(f"Start, {start}", tables=[Table("starts", rows, shown)], facts=dict(phases))


def claims(card: ModelCard) -> dict[int, int]:
    """Return how many conversations the cache keeps by the model configuration, by their tokens."""
    return {each.tokens: each.conversations for each in card.holds}


async def _capacity(bench: Bench) -> Result:
    card, cache = bench.deployment.card, cache_of(bench.deployment)
    claimed = claims(card)
    lengths = claimed or [*(tokens for tokens in (8192, 32_768) if tokens < card.context), card.context]
    rows = [
        {"tokens": tokens, "conversations": cache.num_gpu_blocks // cache.blocks(tokens)}
        for tokens in lengths
    ]
    found = Measurement(cache_text(card, cache), facts={"cache": cache})
    for row in rows:
        if claimed:
            row["claimed"] = claimed[row["tokens"]]
    found.tables = [Table("capacity", rows)]
    if claimed:
        least = min(row["conversations"] / row["claimed"] for row in rows)
        name = "least ratio of conversations that fit to those that the configuration claims"
        found.figures = [Figure(name, least, at_least=1.0, form=".2f")]
    return Result(found)


async def _tools(given: str, bench: Bench) -> Result:
    in_flight = _in_flight(bench.deployment.card, LEVELS[0])
    role = bench.deployment.card.role("actor")
    async with bench.deployment.client(lambda row: None, admission=False) as model:
        began = time.monotonic()
        await probe_tools(model, role, KINDS, in_flight, bench.status)
        per_probe_s = (time.monotonic() - began) / KINDS
        # Each probe is sent twice, with the grammar and without.
        fits = int(bench.aim_s / (2 * per_probe_s))
        count = KINDS + min(max(fits, in_flight), MOST_PROBES - KINDS)
        found = await probe_tools(model, role, count, in_flight, bench.status)
    return Result(found, f"speedrunner probe tools {given} --count {count} --in-flight {in_flight}")


async def _grammar(in_flight: int, given: str, bench: Bench) -> Result:
    """The same with many requests in flight, where the grammar costs most."""
    count = KINDS + 2 * in_flight
    async with bench.deployment.client(lambda row: None, admission=False) as model:
        found = await probe_tools(model, model.card.role("actor"), count, in_flight, bench.status)
    found.tables = []
    return Result(found, f"speedrunner probe tools {given} --count {count} --in-flight {in_flight}")


async def _cache_probe(given: str, bench: Bench) -> Result:
    found = await probe_cache(bench.deployment, CACHE_TURNS, bench.status)
    return Result(found, f"speedrunner probe cache {given} --turns {CACHE_TURNS}")


async def _rollout(in_flight: int, given: str, bench: Bench) -> Result:
    found = await measure_timed_rollout(
        bench.deployment, bench.setup, in_flight, bench.status, server="as configured", aim_s=bench.aim_s
    )
    return Result(found, _rollout_command(given, found))


async def _compared_rollout(like: str, server: str, given: str, bench: Bench) -> Result:
    """Play what another step has played, on another server."""
    facts = bench.record.facts(like)
    found = await measure_timed_rollout(
        bench.deployment,
        bench.setup,
        facts["in_flight"],
        bench.status,
        server=server,
        aim_s=bench.aim_s,
        calls=facts["calls"],
        replayed=False,
    )
    return Result(found, _rollout_command(given, found))


def _rollout_command(given: str, found: Measurement) -> str:
    limits = f"model.actor.max_calls={found.facts['calls']} --in-flight {found.facts['in_flight']} --pairs 1"
    return f"speedrunner bench rollout {given} {limits}"


async def _long_prompts(bench: Bench) -> Result:
    return Result(await measure_long_prompts(bench.deployment, 2 * bench.aim_s, bench.status))


async def _cache_share(in_flight: int, given: str, bench: Bench) -> Result:
    calls = bench.record.facts(f"rollout-{LEVELS[0]}").get("calls", CACHE_TURNS)
    levels = await _play_levels(bench, in_flight, calls)
    card = bench.deployment.card
    share = min(level.of_maximum for level in levels)
    found = Measurement(
        f"{card.name}: episodes of at most {calls} requests",
        figures=[Figure("least share of the maximum", share, at_least=TARGETS[card.cache], form=".2%")],
        tables=[Table("levels", levels, LEVEL_COLUMNS)],
        facts={"level": levels[0], "cache": cache_of(bench.deployment), "calls": calls},
    )
    sizes = f"--in-flight {in_flight} --episodes {in_flight} --turns {calls}"
    return Result(found, f"speedrunner bench cache {given} {sizes}")


async def _half_cache(bench: Bench) -> Result:
    facts = bench.record.facts("cache-share")
    levels = await _play_levels(bench, facts["level"]["in_flight"], facts["calls"])
    title = f"{bench.deployment.card.name}: the same in a cache for half of the conversations"
    return Result(
        Measurement(title, tables=[Table("levels", levels, LEVEL_COLUMNS)]),
        bench.record.steps["cache-share"].command,
    )


async def _play_levels(bench: Bench, in_flight: int, calls: int) -> list[Level]:
    """Play as many episodes as are in flight, with admission and then without."""
    levels = []
    with bench_run(bench.setup, calls) as run:
        for admits in (True, False) if bench.setup.config.serving.admission else (False,):
            levels.append(await play_level(bench.deployment, run, in_flight, in_flight, admits, bench.status))
    return levels
