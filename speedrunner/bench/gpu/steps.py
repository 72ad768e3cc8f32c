"""The steps of `speedrunner bench gpu` for a configuration, in order of value, and what each one measures."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from serving.engine.cache_config import CacheConfig
from serving.engine.gpus import Gpu, read_gpus
from serving.engine.toolkit import find_toolkit
from serving.model_config import ModelConfig
from serving.model_configs import list_model_configs
from serving.sizing import cache_on
from speedrunner.bench.cache_use import LEVEL_COLUMNS, play_levels, probe_cache, share_of_maximum, smaller
from speedrunner.bench.engine import cache_of, describe_cache, with_flags
from speedrunner.bench.gpu.record import Record
from speedrunner.bench.gpu.session import LONGEST_S, Bench, Play, Step
from speedrunner.bench.long_prompts import measure_long_prompts
from speedrunner.bench.measurement import Figure, Measurement, Table, columns
from speedrunner.bench.rollout_speed import measure_timed_rollout
from speedrunner.bench.rollouts import Rollout, bench_run
from speedrunner.bench.tool_probe import probe_tools
from speedrunner.config.console import Status
from speedrunner.config.named import actor_model_config
from speedrunner.runs.machine import installed, machine, versions
from speedrunner.runs.setup import Setup

MAIN = "main"
"""The server with the unchanged model config."""

KINDS, MOST_PROBES = 12, 200
"""Kinds of tool-call probes, and the most probes that are sent."""

CACHE_TURNS = 8
"""Requests of a conversation if no rollout shows how many fit."""

LENGTHS = (8192, 32_768)
"""Lengths in tokens of the conversations that are counted, in addition to the whole context."""

MORE_PACKAGES = ("flashinfer-python", "triton", "cuda-python")

LEVELS = (16, 64, 128)
"""Episodes at the same time, if the server takes as many sequences."""

FOREIGN = "it starts a server, but serving.url is a running one"
UNCACHED = "the prefix cache is off"

SHORT_S = 60
"""Bound of a step that only asks for facts, in seconds."""


class Sizes(msgspec.Struct, frozen=True):
    """Seconds on one kind of machine: bounds of a start and of a step, and the target time of a step."""

    start_s: float
    bound_s: float
    aim_s: float


ON_GPU = Sizes(start_s=LONGEST_S, bound_s=300, aim_s=90)
ON_CPU = Sizes(start_s=240, bound_s=180, aim_s=15)


def sizes_of(model_config: ModelConfig) -> Sizes:
    """Return how long steps with a model config take."""
    return ON_GPU if model_config.gpus else ON_CPU


def bench_of(setup: Setup, record: Record, status: Status) -> Bench:
    """Return what the steps share, with the times for the model config."""
    sizes = sizes_of(setup.model_config)
    return Bench(setup, record, sizes.start_s, sizes.aim_s, status)


def steps_of(setup: Setup) -> list[Step]:
    """Return all steps for a configuration; steps that cannot be played here have a reason."""
    model_config, sizes = setup.model_config, sizes_of(setup.model_config)
    foreign = FOREIGN if setup.config.serving.url is not None else ""
    uncached = UNCACHED if model_config.server.flags.get("enable-prefix-caching") is False else ""
    fp8 = f"{model_config.name}-fp8"
    no_fp8 = "" if fp8 in list_model_configs() else f"the model configuration {fp8} does not exist"

    def step(name: str, play: Play, server: str = MAIN, bound_s: float = sizes.bound_s, **more: Any) -> Step:
        return Step(name=name, play=play, server=server, bound_s=bound_s, **more)

    starting: dict[str, Any] = {"server": "", "bound_s": sizes.start_s, "starts": MAIN, "skip": foreign}

    levels = {f"rollout-{level}": _in_flight(model_config, level) for level in LEVELS}
    first, middle, *_ = levels
    rollouts = []
    for name, in_flight in levels.items():
        same = next(other for other in levels if levels[other] == in_flight)
        capped = f"the server runs {in_flight} sequences at a time, as in {same}"
        play, skip = partial(measure_rollout, in_flight), "" if same == name else capped
        rollouts.append(step(name, play, skip=skip))
    if rollouts[1].skip:
        middle = first
    return [
        step("environment", measure_environment, server="", bound_s=SHORT_S),
        step("start-cold", start_cold, **starting),
        step("capacity", measure_capacity, bound_s=SHORT_S),
        step("tools", partial(measure_tool_calls, levels[first])),
        step(
            "cache-probe",
            lambda bench: probe_cache(bench.deployment, CACHE_TURNS, bench.status),
            skip=uncached,
        ),
        *rollouts,
        step(
            "long-prompts",
            lambda bench: measure_long_prompts(bench.deployment, 2 * bench.aim_s, bench.status),
        ),
        step(
            "cache-share",
            partial(measure_cache_share, levels[first], first),
            skip=uncached,
        ),
        step("grammar", partial(measure_grammar, levels[middle])),
        step("start-warm", start_warm, needs="start-cold", **starting),
        step(
            "no-cache",
            partial(repeat_rollout, middle, "without prefix cache"),
            server="no-cache",
            model_config=_without_cache,
            needs=middle,
            skip=foreign or uncached,
        ),
        step(
            "half-cache",
            repeat_in_half_the_cache,
            server="half-cache",
            model_config=_with_half_the_cache,
            needs="cache-share",
            skip=foreign or uncached,
        ),
        step(
            "fp8",
            partial(repeat_rollout, middle, "FP8"),
            server="fp8",
            model_config=partial(_in_8_bits, setup, fp8),
            needs=middle,
            skip=foreign or no_fp8,
        ),
    ]


def _in_flight(model_config: ModelConfig, level: int) -> int:
    """Return `level` episodes, or fewer if the server takes fewer sequences at a time."""
    most = model_config.server.flags.get("max-num-seqs")
    return min(level, most * model_config.replicas) if isinstance(most, int) else level


def _without_cache(record: Record, model_config: ModelConfig) -> ModelConfig:
    return with_flags(model_config, enable_prefix_caching=False)


def _with_half_the_cache(record: Record, model_config: ModelConfig) -> ModelConfig:
    facts = record.facts("cache-share")
    return smaller(model_config, msgspec.convert(facts["cache"], CacheConfig), facts["level"])


def _in_8_bits(setup: Setup, name: str, record: Record, model_config: ModelConfig) -> ModelConfig:
    model = msgspec.structs.replace(setup.config.model, name=name)
    return actor_model_config(msgspec.structs.replace(setup.config, model=model))


async def measure_environment(bench: Bench) -> Measurement:
    """Describe the machine and the installed software."""
    return await asyncio.to_thread(_describe_machine)


def _describe_machine() -> Measurement:
    this = machine()
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    gpus = read_gpus().usable
    for gpu in gpus:
        capability = ".".join(map(str, gpu.capability))
        facts[f"GPU {gpu.id}"] = f"{gpu.name}, {gpu.total} MiB, compute capability {capability}"
    if gpus:
        facts |= {"driver": gpus[0].driver, "CUDA toolkit (nvcc)": _toolkit()}
    facts |= versions() | installed(MORE_PACKAGES)
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    return Measurement("Machine and versions", tables=[Table("environment", rows)])


def _toolkit() -> str:
    """Describe the CUDA toolkit that servers use, or why they use none."""
    toolkit = find_toolkit()
    if toolkit.problems:
        return f"not used: {toolkit.problems[0].text}"
    return f"{toolkit.nvcc}, {'.'.join(map(str, toolkit.version or ()))}"


async def start_cold(bench: Bench) -> Measurement:
    """Start without compiled code, as on a new machine."""
    await bench.stop()
    # If an earlier try took too long, its compiled code stays, so that this one gets further.
    continued = "start-cold" in bench.record.steps
    if not continued:
        await asyncio.to_thread(shutil.rmtree, bench.compiled, ignore_errors=True)
    return await _start("cold, continued" if continued else "cold", bench)


async def start_warm(bench: Bench) -> Measurement:
    """Start with the code that the first start compiled."""
    return await _start("warm", bench)


async def _start(kind: str, bench: Bench) -> Measurement:
    phases = await bench.start(MAIN, bench.setup.model_config)
    rows = [{"start": kind, "phase": phase, "seconds": seconds} for phase, seconds in phases.items()]
    shown = columns("start", "phase", "seconds:.1f")
    return Measurement(f"Start, {kind}", tables=[Table("starts", rows, shown)], facts=dict(phases))


def claims(model_config: ModelConfig, gpus: Sequence[Gpu]) -> dict[int, int]:
    """Return how many conversations the cache should hold on these GPUs, by their tokens.

    The arithmetic is that of `serving.sizing`. Empty if it does not know the model, and without GPUs.
    """
    cache = cache_on(model_config, gpus)
    lengths = {min(tokens, model_config.context) for tokens in (*LENGTHS, model_config.context)}
    found = {tokens: cache.conversations(tokens) for tokens in sorted(lengths)} if cache else {}
    return {tokens: conversations for tokens, conversations in found.items() if conversations}


async def measure_capacity(bench: Bench) -> Measurement:
    """Compare how many conversations the engine's cache holds with what the configuration claims."""
    model_config, cache = bench.deployment.model_config, cache_of(bench.deployment)
    gpus = (await asyncio.to_thread(read_gpus)).usable if bench.deployment.server else []
    claimed = claims(model_config, gpus)
    rows = [
        {"tokens": tokens, "conversations": cache.conversations(tokens)}
        for tokens in claimed
        or [*(tokens for tokens in LENGTHS if tokens < model_config.context), model_config.context]
    ]
    found = Measurement(
        describe_cache(model_config, cache), tables=[Table("capacity", rows)], facts={"cache": cache}
    )
    if claimed:
        for row in rows:
            row["claimed"] = claimed[row["tokens"]]
        least = min(row["conversations"] / row["claimed"] for row in rows)
        name = "least ratio of conversations that fit to the configuration's claim"
        found.figures = [Figure(name, least, at_least=1.0, form=".2f")]
    return found


async def measure_tool_calls(in_flight: int, bench: Bench) -> Measurement:
    """Send tool-call probes: as many as fit into the time, but at least as many as are in flight."""
    began = time.monotonic()
    await _send_probes(KINDS, in_flight, bench)
    per_probe_s = (time.monotonic() - began) / KINDS
    # Each probe is sent twice, with the grammar and without.
    fits = int(bench.aim_s / (2 * per_probe_s))
    return await _send_probes(KINDS + min(max(fits, in_flight), MOST_PROBES - KINDS), in_flight, bench)


async def measure_grammar(in_flight: int, bench: Bench) -> Measurement:
    """Send the same probes with many requests in flight, where the grammar costs most."""
    found = await _send_probes(KINDS + 2 * in_flight, in_flight, bench)
    found.tables = []
    return found


async def _send_probes(count: int, in_flight: int, bench: Bench) -> Measurement:
    async with bench.deployment.client(lambda row: None, admission=False) as model:
        return await probe_tools(model, model.model_config.role("actor"), count, in_flight, bench.status)


async def measure_rollout(in_flight: int, bench: Bench) -> Measurement:
    """Play a rollout and its bare replay on the server as configured."""
    return await measure_timed_rollout(
        bench.deployment, bench.setup, in_flight, bench.status, server="as configured", aim_s=bench.aim_s
    )


async def repeat_rollout(like: str, server: str, bench: Bench) -> Measurement:
    """Play the same as another step, on another server."""
    facts = bench.record.facts(like)
    return await measure_timed_rollout(
        bench.deployment,
        bench.setup,
        facts["in_flight"],
        bench.status,
        server=server,
        aim_s=bench.aim_s,
        calls=facts["calls"],
        replayed=False,
    )


async def measure_cache_share(in_flight: int, like: str, bench: Bench) -> Measurement:
    """Compare cached tokens of episodes with the most that the cache can provide.

    Args:
        like: name of a step; episodes have as many requests as its episodes.
    """
    calls = bench.record.facts(like).get("calls", CACHE_TURNS)
    levels = await _play_levels(bench, in_flight, calls)
    model_config, cache = bench.deployment.model_config, cache_of(bench.deployment)
    return Measurement(
        f"{model_config.name}: episodes of at most {calls} requests",
        figures=[share_of_maximum(model_config, levels)],
        tables=[Table("levels", levels, LEVEL_COLUMNS)],
        facts={"level": levels[0], "cache": cache, "calls": calls, "in_flight": in_flight},
    )


async def repeat_in_half_the_cache(bench: Bench) -> Measurement:
    """Play the same as `measure_cache_share`, on a server with half the room."""
    facts = bench.record.facts("cache-share")
    levels = await _play_levels(bench, facts["in_flight"], facts["calls"])
    return Measurement(
        f"{bench.deployment.model_config.name}: the same in a cache for half of the conversations",
        tables=[Table("levels", levels, LEVEL_COLUMNS)],
        facts={"calls": facts["calls"], "in_flight": facts["in_flight"]},
    )


async def _play_levels(bench: Bench, in_flight: int, calls: int) -> list[Rollout]:
    """Play as many episodes as are in flight, with admission and then without."""
    levels = [(in_flight, admits) for admits in (True, False)[not bench.setup.config.serving.admission :]]
    with bench_run(bench.setup, calls) as run:
        return await play_levels(bench.deployment, run, levels, in_flight, bench.status)
