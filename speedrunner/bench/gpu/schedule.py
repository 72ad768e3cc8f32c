"""The steps of `speedrunner bench gpu` for a configuration, in order of value, with their times."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from serving.engine.cache_config import CacheConfig
from serving.model_config import ModelConfig
from serving.model_configs import list_model_configs
from speedrunner.bench.cache_probe import probe_cache
from speedrunner.bench.cache_use import smaller
from speedrunner.bench.engine import with_flags
from speedrunner.bench.gpu import steps as do
from speedrunner.bench.gpu.record import Record
from speedrunner.bench.gpu.session import LONGEST_S, Bench, Play, Step
from speedrunner.bench.gpu.steps import CACHE_TURNS, MAIN
from speedrunner.bench.long_prompts import measure_long_prompts
from speedrunner.config.console import Status
from speedrunner.config.named import actor_model_config
from speedrunner.runs.setup import Setup

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


def steps_of(setup: Setup, overrides: Sequence[str]) -> list[Step]:
    """Return all steps for a configuration; steps that cannot be played here have a reason."""
    model_config, sizes = setup.model_config, sizes_of(setup.model_config)
    foreign = FOREIGN if setup.config.serving.url is not None else ""
    uncached = UNCACHED if model_config.server.flags.get("enable-prefix-caching") is False else ""
    fp8 = f"{model_config.name}-fp8"
    no_fp8 = "" if fp8 in list_model_configs() else f"the model configuration {fp8} does not exist"

    def step(name: str, play: Play, server: str = MAIN, bound_s: float = sizes.bound_s, **more: Any) -> Step:
        return Step(name=name, play=play, server=server, bound_s=bound_s, **more)

    def command(start: str, options: str, given: Sequence[str] = overrides) -> str:
        # Facts of a step fill the braces of its options.
        named = shlex.join(given).replace("{", "{{").replace("}", "}}")
        return f"speedrunner {start} {named} {options}"

    tools = command("bench probe tools", "--count {count} --in-flight {in_flight}")
    alone = "model.actor.max_calls={calls} --in-flight {in_flight} --pairs 1"
    cache_share = command("bench cache", "--in-flight {in_flight} --episodes {in_flight} --turns {calls}")
    without_cache = command("bench rollout", alone, [*overrides, "model.prefix_caching=false"])
    as_fp8 = [f"model={fp8}" if each.startswith("model=") else each for each in overrides]
    starting: dict[str, Any] = {"server": "", "bound_s": sizes.start_s, "starts": MAIN, "skip": foreign}

    levels = {f"rollout-{level}": _in_flight(model_config, level) for level in LEVELS}
    first, middle, *_ = levels
    rollouts = []
    for name, in_flight in levels.items():
        same = next(other for other in levels if levels[other] == in_flight)
        capped = f"the server runs {in_flight} sequences at a time, as in {same}"
        play, skip = partial(do.measure_rollout, in_flight), "" if same == name else capped
        rollouts.append(step(name, play, command=command("bench rollout", alone), skip=skip))
    if rollouts[1].skip:
        middle = first
    return [
        step("environment", do.measure_environment, server="", bound_s=SHORT_S),
        step("start-cold", do.start_cold, **starting),
        step("capacity", do.measure_capacity, bound_s=SHORT_S),
        step("tools", partial(do.measure_tool_calls, levels[first]), command=tools),
        step(
            "cache-probe",
            lambda bench: probe_cache(bench.deployment, CACHE_TURNS, bench.status),
            command=command("bench probe cache", f"--turns {CACHE_TURNS}"),
            skip=uncached,
        ),
        *rollouts,
        step(
            "long-prompts",
            lambda bench: measure_long_prompts(bench.deployment, 2 * bench.aim_s, bench.status),
        ),
        step(
            "cache-share",
            partial(do.measure_cache_share, levels[first], first),
            command=cache_share,
            skip=uncached,
        ),
        step("grammar", partial(do.measure_grammar, levels[middle]), command=tools),
        step("start-warm", do.start_warm, needs="start-cold", **starting),
        step(
            "no-cache",
            partial(do.repeat_rollout, middle, "without prefix cache"),
            server="no-cache",
            model_config=_without_cache,
            command=without_cache,
            needs=middle,
            skip=foreign or uncached,
        ),
        step(
            "half-cache",
            do.repeat_in_half_the_cache,
            server="half-cache",
            model_config=_with_half_the_cache,
            command=cache_share,
            needs="cache-share",
            skip=foreign or uncached,
        ),
        step(
            "fp8",
            partial(do.repeat_rollout, middle, "FP8"),
            server="fp8",
            model_config=partial(_in_8_bits, setup, fp8),
            command=command("bench rollout", alone, as_fp8),
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
