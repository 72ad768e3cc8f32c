"""The steps of `speedrunner bench gpu`, in order of value, and how they are played on one server."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import msgspec

from serving.deployment import Deployment
from serving.engine.gpus import read_gpus
from serving.engine.server_processes import server_processes
from serving.errors import ServingError
from serving.model_config import CONVOY_STEPS, ModelConfig
from serving.probes.tool_battery import battery
from serving.sizing import MATCH_UNIT, SEQUENCES, cache_on
from speedrunner.bench.engine import cache_of, describe_cache, open_engine
from speedrunner.bench.gpu.utilisation import measure_utilisation
from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.bench.probes import measure_tools, probe_cache
from speedrunner.bench.rollouts import LEAST_JUDGED, measure_rollouts
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import Status, prefix_status
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.identity import machine, versions
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown
from speedrunner.store.files import StorageError
from speedrunner.workers.env_worker import WorkerError

LEVELS, LOAD_LEVELS, SCHEDULE_LEVELS = (16, 64, 128), (8, 32, 64), (32, 64)
"""Episodes at the same time in rollouts, in `utilisation` and in `schedule`, if the server takes as many."""

SCHEDULES = {
    **{"schedule-16": (16, 0), "schedule-16-convoys": (16, CONVOY_STEPS)},
    **{"schedule-1": (1, 0), "schedule-1-convoys": (1, CONVOY_STEPS)},
}
"""Match unit and convoy steps of the compared servers, by the names of their steps."""

CONVOYS_LOSE, CONVOYS_GAIN = 1.5, 1.8
"""Time of a mixed step, in decode-only steps, below which convoys lose and above which they gain, by
simulation."""

LENGTHS = (8192, 32_768)
"""Lengths in tokens of the conversations that are counted, in addition to the whole context."""

FAILURES = (ServingError, WorkerError, StorageError, RunStopped)
"""Errors of a step after which the others are played."""

Play = Callable[[Deployment, Setup, Status], Awaitable[Measurement]]
"""Measures on a running server; shows its current activity."""


class BenchStep(NamedTuple):
    """One benchmark.

    Attributes:
        name: its name for `--only`.
        play: function that measures.
        kind: a common name of several steps, which `--only` also takes.
        own: what the server of this step serves instead of the configured model.
    """

    name: str
    play: Play
    kind: str = ""
    own: ModelConfig | None = None


async def play_steps(
    setup: Setup,
    steps: Sequence[BenchStep],
    status: Status,
    shutdown: Shutdown,
    show: Callable[[Measurement], None],
) -> bool:
    """Play steps in order, and return whether all have a result and reach their targets.

    A step that fails misses its only target, and the others follow. A server is used until it dies or a step
    needs another one, and it is stopped at the end, whatever the reason.

    Args:
        show: called with each result at once; the title of a step that failed is its reason.

    Raises `ServerFailed`, `InvalidModelConfig`: the model's own server does not start.
    """
    deployment: Deployment | None = None
    served: ModelConfig | None = None
    is_good = True
    async with AsyncExitStack() as stack:
        for number, step in enumerate(steps, start=1):
            said = prefix_status(status, f"step {number} of {len(steps)}, {step.name}")
            model_config = step.own or setup.model_config
            with shutdown.unit(step.name):
                try:
                    server = None if deployment is None else deployment.server
                    is_dead = server is not None and not server.alive
                    if deployment is None or is_dead or served is not model_config:
                        deployment, served = None, model_config
                        await stack.aclose()
                        engine = open_engine(model_config, setup.config, said, logs_steps=True)
                        deployment = await stack.enter_async_context(engine)
                    measured = await step.play(deployment, setup, said)
                except FAILURES as error:  # a server's further lines are in its log
                    if deployment is None and step.own is None:
                        raise
                    reason = str(error).partition("\n")[0]
                    measured = Measurement(reason, figures=[MeasuredFigure("result", None, at_least=0)])
            is_good = is_good and measured.met is not False
            show(replace(measured, title=f"{step.name}: {measured.title}"))
    return is_good


def describe_environment(setup: Setup) -> Measurement:
    """Return what is measured, and on which machine, as a table."""
    this, gpus = machine(), read_gpus().usable
    names = Counter(gpu.name for gpu in gpus)
    hardware = ", ".join(f"{count} x {name}" for name, count in names.items()) or this.cpu
    facts = {"CPU": this.cpu, "cores": str(this.cores), "host memory": f"{this.memory_gb:.0f} GB"}
    for gpu in gpus:
        capability = ".".join(map(str, gpu.capability))
        facts[f"GPU {gpu.id}"] = f"{gpu.name}, {gpu.total} MiB, compute capability {capability}"
        facts["driver"] = gpu.driver
    facts |= versions()
    rows = [{"name": name, "value": value} for name, value in facts.items()]
    date = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    title = f"{setup.model_config.name} on {hardware}, {date}"
    return Measurement(title, tables=[MeasuredTable("environment", rows)])


def steps_of(setup: Setup, only: Sequence[str] = ()) -> list[BenchStep]:
    """Return the steps that a configuration allows.

    Without prefix cache there is none to probe. Schedules are compared only on request, on servers that are
    started here for a model that can convoy.

    Args:
        only: names or kinds of the steps to play; empty for all. Raises `InvalidConfig` if there is none.
    """
    model_config = setup.model_config
    levels, load_levels = _levels(model_config, LEVELS), _levels(model_config, LOAD_LEVELS)
    calls = levels[len(levels) // 2]  # the grammar costs most with many requests in flight
    probes = len(battery()) + 2 * calls
    rollout = partial(measure_rollouts, pairs=1, most_calls=LEAST_JUDGED)
    steps = [
        BenchStep("capacity", measure_capacity),
        BenchStep("tools", lambda deployment, _, status: measure_tools(deployment, probes, calls, status)),
        BenchStep("cache-probe", lambda deployment, _, status: probe_cache(deployment, status)),
        BenchStep("utilisation", partial(measure_utilisation, levels=load_levels)),
        *(BenchStep(f"rollout-{level}", partial(rollout, levels=[level]), "rollout") for level in levels),
    ]
    if model_config.server.flags.get("enable-prefix-caching") is False:
        steps = [step for step in steps if step.name != "cache-probe"]
    if model_config.can_convoy and setup.config.serving.url is None:
        for name, (unit, convoy_steps) in SCHEDULES.items():
            changed = model_config.with_flags({MATCH_UNIT: unit})
            own = msgspec.structs.replace(changed, convoy_steps=convoy_steps)
            steps.append(BenchStep(name, measure_schedule, kind="schedule", own=own))
    for name in only:
        if name not in {known for step in steps for known in (step.name, step.kind)}:
            raise InvalidConfig(f"--only {name}: the steps here are {', '.join(step.name for step in steps)}")
    if only:
        return [step for step in steps if {step.name, step.kind} & set(only)]
    return [step for step in steps if step.kind != "schedule"]


def _levels(model_config: ModelConfig, levels: Sequence[int]) -> list[int]:
    """Return the numbers of episodes in flight; none is more than the server's sequences."""
    most = model_config.server.flags.get(SEQUENCES)
    taken = most * model_config.replicas if isinstance(most, int) else max(levels)
    return sorted({min(level, taken) for level in levels})


async def measure_capacity(deployment: Deployment, setup: Setup, status: Status) -> Measurement:
    """Compare how many conversations the engine's cache holds with the arithmetic of `serving.sizing`."""
    model_config, cache = deployment.model_config, cache_of(deployment)
    is_here = deployment.server is not None or server_processes(deployment.endpoint)
    claim = cache_on(model_config, (await asyncio.to_thread(read_gpus)).usable if is_here else [])
    rows, ratios = list[dict[str, int]](), list[float]()
    for tokens in sorted({min(tokens, model_config.context) for tokens in (*LENGTHS, model_config.context)}):
        rows.append({"tokens": tokens, "conversations": cache.conversations(tokens)})
        if claim:
            rows[-1]["claimed"] = claimed = claim.conversations(tokens)
            ratios += [rows[-1]["conversations"] / claimed] if claimed else []
    found = Measurement(describe_cache(model_config, cache), tables=[MeasuredTable("capacity", rows)])
    if ratios:
        name = "least ratio of conversations that fit to the configuration's claim"
        found.figures = [MeasuredFigure(name, min(ratios), at_least=1.0, form=".2f")]
    return found


async def measure_schedule(deployment: Deployment, setup: Setup, status: Status) -> Measurement:
    """Measure how busy a server is with its match unit and its convoys."""
    served, levels = deployment.model_config, _levels(setup.model_config, SCHEDULE_LEVELS)
    found = await measure_utilisation(deployment, setup, status, levels)
    schedule = {"match unit": served.server.flags[MATCH_UNIT], "convoy steps": served.convoy_steps}
    rows = [schedule | row for row in found.tables[0].rows]
    found.tables = [MeasuredTable("schedules", rows, turned=True)]
    mixed_ms, decode_ms = (rows[-1][f"{name} step, ms"] for name in ("mixed", "decode-only"))
    if mixed_ms and decode_ms:
        found.notes.append(describe_ratio(mixed_ms / decode_ms))
    return found


def describe_ratio(ratio: float) -> str:
    """Return what the time of a mixed step, in decode-only steps, means for convoys."""
    advice = "compare output tokens/s"
    if ratio < CONVOYS_LOSE:
        advice = "convoys lose (convoy_steps: 0)"
    elif ratio > CONVOYS_GAIN:
        advice = "convoys gain"
    return f"A mixed step takes {ratio:.2f} times as long as a decode-only step: {advice}."
