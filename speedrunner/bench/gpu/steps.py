"""The steps of `speedrunner bench gpu`, in order of value, and how they are played on one server."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from serving.deployment import Deployment, deploy, server_log
from serving.engine.gpus import read_gpus
from serving.engine.server import USUAL_CACHES
from serving.engine.server_processes import server_processes
from serving.errors import ServingError
from serving.model_config import CONVOY_STEPS, ModelConfig
from serving.probes.tool_battery import battery
from serving.sizing import MATCH_UNIT, SEQUENCES, cache_on
from speedrunner.bench.engine import cache_of, describe_cache
from speedrunner.bench.gpu.utilisation import measure_utilisation
from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.bench.probes import probe_cache, probe_tools
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

CACHE_TURNS = 8
"""Requests of the conversation that probes the cache."""

LENGTHS = (8192, 32_768)
"""Lengths in tokens of the conversations that are counted, in addition to the whole context."""

FAILURES = (ServingError, WorkerError, StorageError, RunStopped)
"""Errors of a step after which the others are played."""


class BenchStep(NamedTuple):
    """One benchmark.

    Attributes:
        name: its name for `--only`.
        play: function that measures.
        restarts: whether it starts the server itself; other steps find it running.
        kind: a common name of several steps, which `--only` also takes.
    """

    name: str
    play: Callable[[Bench], Awaitable[Measurement]]
    restarts: bool = False
    kind: str = ""


@dataclass
class Bench:
    """The server, shared by all steps.

    Attributes:
        status: shows the current activity.
        folder: empty folder for the compiled code of a cold start.
        compiled: folder for the server's compiled code; `None`: the usual one.
    """

    setup: Setup
    status: Status
    folder: Path
    compiled: Path | None = None
    _deployment: Deployment | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def deployment(self) -> Deployment:
        """Return the running server's deployment."""
        assert self._deployment is not None
        return self._deployment

    @property
    def is_running(self) -> bool:
        """Return whether the server runs and its process is alive."""
        if self._deployment is None:
            return False
        return self._deployment.server is None or self._deployment.server.alive

    async def start(self, model_config: ModelConfig | None = None) -> float:
        """Start the server again, and return the seconds of the start.

        Args:
            model_config: what it serves instead of the configured model.

        Raises `ServerFailed`, `InvalidModelConfig`.
        """
        await self.stop()
        began, own = time.monotonic(), model_config or self.setup.model_config
        deployed = deploy(
            with_folder(own, self.compiled) if self.compiled else own,
            self.setup.config.serving,
            log=server_log(own),
            say=self.status,
            waiting=self.status,
            logs_steps=True,
        )
        self._deployment = await self._stack.enter_async_context(deployed)
        return time.monotonic() - began

    async def stop(self) -> None:
        """Stop the server if it runs."""
        self._deployment = None
        await self._stack.aclose()

    async def play(self, step: BenchStep) -> Measurement:
        """Return the result of a step; one that fails misses its only target. Raises the errors of `start`
        for a step that needs a running server."""
        if not step.restarts and not self.is_running:
            await self.start()
        try:
            measured = await step.play(self)
        except FAILURES as error:  # a server's further lines are in its log
            reason = str(error).partition("\n")[0]
            measured = Measurement(reason, figures=[MeasuredFigure("result", None, at_least=0)])
        return replace(measured, title=f"{step.name}: {measured.title}")


async def play_steps(
    setup: Setup,
    steps: Sequence[BenchStep],
    status: Status,
    shutdown: Shutdown,
    show: Callable[[Measurement], None],
) -> bool:
    """Play steps in order, and return whether all have a result and reach their targets.

    The others follow a step that fails. The server is stopped at the end, whatever the reason.

    Args:
        show: called with each result at once; the title of a step that failed is its reason.

    Raises `ServerFailed`, `InvalidModelConfig`: the model's own server does not start.
    """
    is_good = True
    with tempfile.TemporaryDirectory(prefix="speedrunner-bench-") as folder:
        bench = Bench(setup, status, Path(folder))
        try:
            for number, step in enumerate(steps, start=1):
                bench.status = prefix_status(status, f"step {number} of {len(steps)}, {step.name}")
                with shutdown.unit(step.name):
                    measured = await bench.play(step)
                is_good = is_good and measured.met is not False
                show(measured)
        finally:
            await bench.stop()
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


def with_folder(model_config: ModelConfig, compiled: Path) -> ModelConfig:
    """Return the model config with a server that keeps compiled code in this folder."""
    folders = {name: str(compiled.resolve() / name.lower()) for name in USUAL_CACHES}
    server = msgspec.structs.replace(model_config.server, env={**model_config.server.env, **folders})
    return msgspec.structs.replace(model_config, server=server)


def steps_of(setup: Setup, only: Sequence[str] = ()) -> list[BenchStep]:
    """Return the steps that a configuration allows.

    A running server is not started again. Without prefix cache there is none to probe. Only a model
    that can convoy has schedules to compare, and only on request.

    Args:
        only: names or kinds of the steps to play; empty for all. Raises `InvalidConfig` if there is none.
    """
    flags = setup.model_config.server.flags
    levels = _levels(setup.model_config, LEVELS)
    steps = [
        BenchStep("start-cold", partial(measure_start, "cold"), restarts=True, kind="start"),
        BenchStep("capacity", measure_capacity),
        BenchStep("tools", partial(measure_tool_calls, levels[len(levels) // 2])),
        BenchStep("cache-probe", lambda bench: probe_cache(bench.deployment, CACHE_TURNS, bench.status)),
        BenchStep("utilisation", measure_load),
        *(BenchStep(f"rollout-{level}", partial(measure_rollout, level), kind="rollout") for level in levels),
        BenchStep("start-warm", partial(measure_start, "warm"), restarts=True, kind="start"),
        *(
            BenchStep(name, partial(measure_schedule, *schedule), restarts=True, kind="schedule")
            for name, schedule in SCHEDULES.items()
        ),
    ]
    possible = [
        step
        for step in steps
        if not (step.restarts and setup.config.serving.url is not None)
        and not (step.name == "cache-probe" and flags.get("enable-prefix-caching") is False)
        and not (step.kind == "schedule" and not setup.model_config.can_convoy)
    ]
    known = {name for step in possible for name in (step.name, step.kind)}
    for name in only:
        if name not in known:
            raise InvalidConfig(
                f"--only {name}: the steps here are {', '.join(step.name for step in possible)}"
            )
    if only:
        return [step for step in possible if {step.name, step.kind} & set(only)]
    return [step for step in possible if step.kind != "schedule"]


def _levels(model_config: ModelConfig, levels: Sequence[int]) -> list[int]:
    """Return the numbers of episodes in flight; none is more than the server's sequences."""
    most = model_config.server.flags.get(SEQUENCES)
    taken = most * model_config.replicas if isinstance(most, int) else max(levels)
    return sorted({min(level, taken) for level in levels})


async def measure_start(kind: str, bench: Bench) -> Measurement:
    """Start the server: `cold`, without compiled code as on a new machine, or `warm`."""
    await bench.stop()
    if kind == "cold":
        bench.compiled = bench.folder
    rows = [{"start": kind, "seconds": await bench.start()}]
    return Measurement(f"start, {kind}", tables=[MeasuredTable("starts", rows, ("start", "seconds:.1f"))])


async def measure_capacity(bench: Bench) -> Measurement:
    """Compare how many conversations the engine's cache holds with the arithmetic of `serving.sizing`."""
    model_config, cache = bench.deployment.model_config, cache_of(bench.deployment)
    is_here = bench.deployment.server is not None or server_processes(bench.deployment.endpoint)
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


async def measure_tool_calls(in_flight: int, bench: Bench) -> Measurement:
    """Send tool-call probes with many requests in flight, where the grammar costs most."""
    async with bench.deployment.client(lambda row: None) as model:
        role = model.model_config.role("actor")
        return await probe_tools(model, role, len(battery()) + 2 * in_flight, in_flight, bench.status)


async def measure_load(bench: Bench) -> Measurement:
    """Measure how busy the server is, with different numbers of episodes in flight."""
    levels = _levels(bench.setup.model_config, LOAD_LEVELS)
    found = await measure_utilisation(bench.deployment, bench.setup, levels, bench.status)
    if levels[-1] < max(LOAD_LEVELS):
        found.notes.append(f"The server takes {levels[-1]} sequences: no more were in flight.")
    return found


async def measure_rollout(in_flight: int, bench: Bench) -> Measurement:
    """Play a rollout and its bare replay."""
    return await measure_rollouts(bench.deployment, bench.setup, [in_flight], 1, bench.status, LEAST_JUDGED)


async def measure_schedule(unit: int, convoy_steps: int, bench: Bench) -> Measurement:
    """Measure how busy a server is with this match unit and these convoys."""
    model_config = bench.setup.model_config
    changed = model_config.with_flags({MATCH_UNIT: unit})
    await bench.start(msgspec.structs.replace(changed, convoy_steps=convoy_steps))
    try:
        levels = _levels(model_config, SCHEDULE_LEVELS)
        found = await measure_utilisation(bench.deployment, bench.setup, levels, bench.status)
    finally:
        await bench.stop()  # the next step has the configured server
    measured = found.tables[0].rows
    rows = [{"match unit": unit, "convoy steps": convoy_steps, **row} for row in measured]
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
