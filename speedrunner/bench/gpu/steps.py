"""Measurements of the steps of `speedrunner bench gpu`, on the server that runs."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from serving.engine.gpus import Gpu, read_gpus
from serving.engine.toolkit import find_toolkit
from serving.model_card import ModelCard
from serving.sizing import cache_on
from speedrunner.bench.cache_probe import probe_cache
from speedrunner.bench.cache_use import LEVEL_COLUMNS, TARGETS, play_level
from speedrunner.bench.engine import cache_of, cache_text
from speedrunner.bench.episodes import bench_run
from speedrunner.bench.gpu.session import Bench, Result
from speedrunner.bench.long_prompts import measure_long_prompts
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.bench.rollout_speed import measure_timed_rollout
from speedrunner.bench.rollouts import Rollout
from speedrunner.bench.tool_probe import probe_tools
from speedrunner.runs.machine import machine
from speedrunner.runs.versions import versions

MAIN = "main"
"""The server with the model configuration as it is."""

KINDS, MOST_PROBES = 12, 200
"""Kinds of tool-call probes, and the most probes that are sent."""

CACHE_TURNS = 8
"""Requests of the conversation of `probe cache`."""

MORE_PACKAGES = ("flashinfer-python", "triton", "cuda-python")


async def measure_environment(bench: Bench) -> Result:
    """Describe the machine and what is installed."""
    return Result(await asyncio.to_thread(_describe_machine))


def _describe_machine() -> Measurement:
    this = machine()
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    gpus = read_gpus().usable
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
    """Describe the CUDA toolkit that servers use, or why they use none."""
    toolkit = find_toolkit()
    if toolkit.problems:
        return f"not used: {toolkit.problems[0].text}"
    return f"{toolkit.nvcc}, {'.'.join(map(str, toolkit.version or ()))}"


async def start_cold(bench: Bench) -> Result:
    """Start with no compiled code, as on a new machine."""
    await bench.stop()
    if "start-cold" in bench.record.steps:
        # An earlier try took too long. What it compiled stays, so that this one comes further.
        return Result(_started("cold, continued", await bench.start(MAIN, bench.setup.card)))
    await asyncio.to_thread(shutil.rmtree, bench.compiled, ignore_errors=True)
    return Result(_started("cold", await bench.start(MAIN, bench.setup.card)))


async def start_warm(bench: Bench) -> Result:
    """Start with what the first start compiled."""
    return Result(_started("warm", await bench.start(MAIN, bench.setup.card)))


def _started(start: str, phases: dict[str, float]) -> Measurement:
    rows = [{"start": start, "phase": phase, "seconds": seconds} for phase, seconds in phases.items()]
    shown = columns("start", "phase", "seconds:.1f")
    return Measurement(f"Start, {start}", tables=[Table("starts", rows, shown)], facts=dict(phases))


def claims(card: ModelCard, gpus: Sequence[Gpu]) -> dict[int, int]:
    """Return how many conversations the cache should keep on these GPUs, by their tokens.

    The arithmetic is that of `serving.sizing`. Empty where it does not know the model, and without GPUs.
    """
    cache = cache_on(card, gpus)
    lengths = {min(tokens, card.context) for tokens in (8192, 32_768, card.context)}
    found = {tokens: cache.conversations(tokens) for tokens in sorted(lengths)} if cache else {}
    return {tokens: conversations for tokens, conversations in found.items() if conversations}


async def measure_capacity(bench: Bench) -> Result:
    """Compare how many conversations the engine's cache keeps with what the configuration claims."""
    card, cache = bench.deployment.card, cache_of(bench.deployment)
    gpus = (await asyncio.to_thread(read_gpus)).usable if bench.deployment.server else []
    claimed = claims(card, gpus)
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


async def measure_tool_calls(in_flight: int, given: str, bench: Bench) -> Result:
    """Send tool-call probes, as many as fit into the time, at least as many as are in flight."""
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


async def measure_grammar(in_flight: int, given: str, bench: Bench) -> Result:
    """The same with many requests in flight, where the grammar costs most."""
    count = KINDS + 2 * in_flight
    async with bench.deployment.client(lambda row: None, admission=False) as model:
        found = await probe_tools(model, model.card.role("actor"), count, in_flight, bench.status)
    found.tables = []
    return Result(found, f"speedrunner probe tools {given} --count {count} --in-flight {in_flight}")


async def measure_cache_probe(given: str, bench: Bench) -> Result:
    """Send known conversations to the prefix cache."""
    found = await probe_cache(bench.deployment, CACHE_TURNS, bench.status)
    return Result(found, f"speedrunner probe cache {given} --turns {CACHE_TURNS}")


async def measure_rollout(in_flight: int, given: str, bench: Bench) -> Result:
    """Play a rollout and its bare replay on the server as configured."""
    found = await measure_timed_rollout(
        bench.deployment, bench.setup, in_flight, bench.status, server="as configured", aim_s=bench.aim_s
    )
    return Result(found, _command_of(given, found))


async def repeat_rollout(like: str, server: str, given: str, bench: Bench) -> Result:
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
    return Result(found, _command_of(given, found))


def _command_of(given: str, found: Measurement) -> str:
    limits = f"model.actor.max_calls={found.facts['calls']} --in-flight {found.facts['in_flight']} --pairs 1"
    return f"speedrunner bench rollout {given} {limits}"


async def measure_prompts(bench: Bench) -> Result:
    """Send single prompts up to the context."""
    return Result(await measure_long_prompts(bench.deployment, 2 * bench.aim_s, bench.status))


async def measure_cache_share(in_flight: int, like: str, given: str, bench: Bench) -> Result:
    """Compare cached tokens of episodes with the most that the cache can give.

    Args:
        like: name of a step; episodes have as many requests as its episodes.
    """
    calls = bench.record.facts(like).get("calls", CACHE_TURNS)
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


async def repeat_in_half_the_cache(bench: Bench) -> Result:
    """Play what `measure_cache_share` played on a server with half the room."""
    facts = bench.record.facts("cache-share")
    levels = await _play_levels(bench, facts["level"]["in_flight"], facts["calls"])
    title = f"{bench.deployment.card.name}: the same in a cache for half of the conversations"
    return Result(
        Measurement(title, tables=[Table("levels", levels, LEVEL_COLUMNS)]),
        bench.record.steps["cache-share"].command,
    )


async def _play_levels(bench: Bench, in_flight: int, calls: int) -> list[Rollout]:
    """Play as many episodes as are in flight, with admission and then without."""
    levels = []
    with bench_run(bench.setup, calls) as run:
        for admits in (True, False) if bench.setup.config.serving.admission else (False,):
            levels.append(await play_level(bench.deployment, run, in_flight, in_flight, admits, bench.status))
    return levels
