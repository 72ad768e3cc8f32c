"""The steps of `speedrunner bench gpu`, in order of value, and how they are played on one server."""

from __future__ import annotations

import asyncio
import shutil
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from serving.deployment import Deployment, deploy
from serving.engine.endpoint import Endpoint
from serving.engine.gpus import read_gpus
from serving.engine.server import USUAL_CACHES
from serving.engine.server_processes import option_of, server_processes
from serving.errors import ServerFailed, ServingError
from serving.model_config import CONVOY_STEPS, ModelConfig
from serving.sizing import MATCH_UNIT, SEQUENCES, cache_on
from speedrunner.bench.engine import cache_of, describe_cache
from speedrunner.bench.gpu.utilisation import measure_utilisation
from speedrunner.bench.measurement import MeasuredFigure, MeasuredTable, Measurement
from speedrunner.bench.probes import probe_cache, probe_tools
from speedrunner.bench.record import BenchRecord, StepRecord, write_page
from speedrunner.bench.rollouts import LEAST_JUDGED, measure_rollouts
from speedrunner.config.schema import InvalidConfig
from speedrunner.plain.console import Status, prefix_status
from speedrunner.runs.setup import Setup
from speedrunner.runs.shutdown import Shutdown

LONGEST_S = 470.0
"""Most seconds of a step, with the start of its server."""

EXPECTED_S = {
    **{"start-cold": (230, 40), "capacity": (1, 1), "tools": (90, 20), "cache-probe": (15, 10)},
    **{"utilisation": (75, 45), "rollout": (150, 60), "start-warm": (60, 40), "schedule": (110, 90)},
}
"""About how many seconds a step takes on a running server: the 27B on an H200, of which starts and
`utilisation` were measured, and a tiny model on a CPU."""

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

KINDS = 12
"""Kinds of tool-call probes."""

CACHE_TURNS = 8
"""Requests of the conversation that probes the cache."""

LENGTHS = (8192, 32_768)
"""Lengths in tokens of the conversations that are counted, in addition to the whole context."""


class BenchStep(NamedTuple):
    """One part of a record.

    Attributes:
        name: name of its file.
        play: function that measures.
        restarts: whether it starts the server itself; other steps find it running.
        kind: its key in `EXPECTED_S`, if it is not its name; `--only` takes it for all of the kind.
    """

    name: str
    play: Callable[[Bench], Awaitable[Measurement]]
    restarts: bool = False
    kind: str = ""


@dataclass
class Bench:
    """The record and its server, shared by all steps.

    Attributes:
        status: shows the current activity.
    """

    setup: Setup
    record: BenchRecord
    status: Status
    _deployment: Deployment | None = None
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    _failed: str = ""
    """Why the server did not start in this process."""

    @property
    def deployment(self) -> Deployment:
        """The running server's deployment."""
        assert self._deployment is not None
        return self._deployment

    @property
    def compiled(self) -> Path:
        """Folder for the server's compiled code. It is part of the record's folder."""
        return self.record.folder / "compiled"

    @property
    def is_running(self) -> bool:
        """Whether the server runs and its process is alive."""
        if self._deployment is None:
            return False
        return self._deployment.server is None or self._deployment.server.alive

    async def start(self, model_config: ModelConfig | None = None) -> float:
        """Start the server again, and return the seconds of the start.

        Args:
            model_config: what it serves instead of the record's own; it is always tried.

        Raises `ServerFailed`, `InvalidModelConfig`; if it has already failed in this process, without another
        try.
        """
        if self._failed and model_config is None:
            raise ServerFailed(f"its server did not start: {self._failed}")
        await self.stop()
        began, self._failed = time.monotonic(), "it took too long"
        deployed = deploy(
            with_folder(model_config or self.setup.model_config, self.compiled),
            self.setup.config.serving,
            log=self.record.folder / "server.log",
            say=self.status,
            waiting=self.status,
            logs_steps=True,
        )
        try:
            self._deployment = await self._stack.enter_async_context(deployed)
        except ServingError as error:
            self._failed = first_line(error)
            raise
        self._failed = ""
        return time.monotonic() - began

    async def stop(self) -> None:
        """Stop the server if it runs."""
        self._deployment = None
        await self._stack.aclose()

    def expected_s(self, step: BenchStep) -> float:
        """Return about how many seconds a step takes, with the start of its server."""
        kinds = [step.kind or step.name]
        if not (step.restarts or self.is_running or self.setup.config.serving.url):
            kinds.append("start-cold")
        return sum(EXPECTED_S[kind][0 if self.setup.model_config.gpus else 1] for kind in kinds)

    async def play(self, step: BenchStep, status: Status, most_s: float) -> None:
        """Play one step in at most these seconds, and keep its result or the reason of its failure."""
        clock, limit_s = time.monotonic(), min(most_s, LONGEST_S)
        outer, self.status = self.status, status
        kept = StepRecord(step=step.name, began=time.time())
        try:
            async with asyncio.timeout(limit_s) as limit:
                if not step.restarts and not self.is_running:
                    await self.start()
                kept.measured = await step.play(self)
        except Exception as error:
            kept.reason, kept.traceback = (
                f"{type(error).__name__}: {first_line(error)}",
                traceback.format_exc(),
            )
            if limit.expired():
                kept.reason = f"it took longer than its limit of {limit_s:.0f} s"
        finally:
            self.status = outer
        kept.seconds = time.monotonic() - clock
        self.record.keep(kept)


async def play_steps(bench: Bench, steps: Sequence[BenchStep], minutes: float, shutdown: Shutdown) -> None:
    """Play the steps that the record lacks, in order, as long as the minutes last.

    A step that is expected to take longer than the rest of them is left out. One that fails is recorded with
    its reason, and the others follow. The server is stopped at the end, whatever the reason. Raises
    `StorageError` if a result cannot be written.
    """
    end = time.monotonic() + 60 * minutes
    try:
        write_page(bench.record)
        for number, step in enumerate(steps, start=1):
            left_s, expected_s = end - time.monotonic(), bench.expected_s(step)
            if bench.record.has_succeeded(step.name) or expected_s > left_s:
                continue
            with shutdown.unit(step.name):
                doing = f"step {number} of {len(steps)}, {step.name} (takes about {expected_s:.0f} s)"
                await bench.play(step, prefix_status(bench.status, doing), left_s)
            write_page(bench.record)
    finally:
        await bench.stop()


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text. A server's further lines are also in its log."""
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)


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
        BenchStep("start-cold", partial(measure_start, "cold"), restarts=True),
        BenchStep("capacity", measure_capacity),
        BenchStep("tools", partial(measure_tool_calls, levels[len(levels) // 2])),
        BenchStep("cache-probe", lambda bench: probe_cache(bench.deployment, CACHE_TURNS, bench.status)),
        BenchStep("utilisation", measure_load),
        *(BenchStep(f"rollout-{level}", partial(measure_rollout, level), kind="rollout") for level in levels),
        BenchStep("start-warm", partial(measure_start, "warm"), restarts=True),
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


def as_served(model_config: ModelConfig, endpoint: Endpoint) -> ModelConfig:
    """Return the model config with a running server's own number of sequences, if its processes are found."""
    sequences = option_of(server_processes(endpoint), SEQUENCES)
    is_known = sequences is not None and sequences.isdigit()
    return model_config.with_flags({SEQUENCES: int(sequences or 0)}) if is_known else model_config


def _levels(model_config: ModelConfig, levels: Sequence[int]) -> list[int]:
    """Return the numbers of episodes in flight; none is more than the server's sequences."""
    most = model_config.server.flags.get(SEQUENCES)
    taken = most * model_config.replicas if isinstance(most, int) else max(levels)
    return sorted({min(level, taken) for level in levels})


async def measure_start(kind: str, bench: Bench) -> Measurement:
    """Start the server: `cold`, without compiled code as on a new machine, or `warm`."""
    await bench.stop()
    # If an earlier try took too long, its compiled code stays, so that this one gets further.
    if kind == "cold" and "start-cold" not in bench.record.steps:
        await asyncio.to_thread(shutil.rmtree, bench.compiled, ignore_errors=True)
    rows = [{"start": kind, "seconds": await bench.start()}]
    return Measurement(f"Start, {kind}", tables=[MeasuredTable("starts", rows, ("start", "seconds:.1f"))])


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
        return await probe_tools(model, role, KINDS + 2 * in_flight, in_flight, bench.status)


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
        await bench.stop()  # the next step has the record's own server
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
