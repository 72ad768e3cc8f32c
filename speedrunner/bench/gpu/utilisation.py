"""How busy the GPUs and the server's processes are while episodes are played: the step `utilisation`."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

from serving.deployment import Deployment
from serving.engine.gpus import GpuReading, Nvml, read_gpus
from serving.engine.metrics import read_metrics
from serving.engine.server_processes import cpu_seconds, find_server_gpus, server_processes
from serving.engine.step_log import LoggedStep, read_steps
from speedrunner.bench.measurement import MeasuredTable, Measurement
from speedrunner.bench.rollouts import WARM_UP_CALLS, open_player
from speedrunner.plain.console import Status, prefix_status
from speedrunner.runs.setup import Setup

CALLS = 3
"""Requests of each episode."""

SAMPLE_S = 0.2
"""Seconds between two readings of the GPUs. The driver's own window is up to a second."""

STEPS = "iteration_tokens_total_count"
"""The engine's own counter of steps with output."""


IDLE_S = 1.0
"""A longer time from one step to the next is no step: the engine had nothing to do."""


class Watch:
    """Reads a server's processes, its GPUs and its log of steps.

    Attributes:
        samples: readings of each GPU.
        notes: what cannot be measured, and why.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._endpoint = deployment.endpoint
        self._log = deployment.server and deployment.server.step_log
        self._processes = server_processes(deployment.endpoint)
        report = read_gpus()
        self._nvml = Nvml(report.failure)
        usable = [gpu.uuid for gpu in report.usable] if deployment.model_config.gpus else []
        self._gpus = find_server_gpus(self._nvml, self._processes, usable, deployment.model_config.all_gpus)
        self.samples: list[GpuReading] = []
        self.notes = list[str]()
        if deployment.model_config.gpus and self._nvml.failure:
            self.notes.append(f"The GPUs cannot be read: {self._nvml.failure}.")
        if usable and self._processes and not self._gpus:
            self.notes.append(
                "Which of this machine's GPUs the server uses is not known: they are not measured."
            )
        if not self._processes:
            self.notes.append(
                f"The processes of the server at {self._endpoint} cannot be found: they are another user's or"
                " on another machine. Their CPU and GPUs are not measured."
            )

    async def sample(self) -> None:
        """Read the GPUs until it is cancelled."""
        self.samples = []
        while True:
            self.samples += [self._nvml.read(uuid) for uuid in self._gpus]
            await asyncio.sleep(SAMPLE_S)

    async def read(self) -> dict[str, float]:
        """Return the time, and the steps and CPU seconds of processes so far. Raises `ServerFailed`."""
        steps = (await read_metrics(self._endpoint)).sums(STEPS).get(STEPS, 0.0)
        used = {f"CPU cores, {name}": seconds for name, seconds in cpu_seconds(self._processes).items()}
        return {"time": time.monotonic(), "steps": steps, **used}

    def row(self, before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
        """Return the means between two readings by their headings."""
        spent = {name: value - before.get(name, 0.0) for name, value in after.items()}
        seconds, steps = spent.pop("time"), spent.pop("steps")
        row: dict[str, Any] = {"steps": int(steps), "ms a step": 1000 * seconds / steps if steps else None}
        logged = read_steps(self._log) if self._log else []
        row |= describe_steps([step for step in logged if before["time"] <= step.time_s <= after["time"]])
        row |= {name: used / seconds for name, used in spent.items()}
        readings = {"GPU busy": "busy", "GPU power, W": "watts", "GPU memory, MiB": "memory_mib"}
        for heading, name in readings.items():
            values = [getattr(each, name) for each in self.samples]
            row[heading] = statistics.mean(values) if values and None not in values else None
        return row


def describe_steps(steps: Sequence[LoggedStep]) -> dict[str, float | None]:
    """Return what decides the speed of logged steps, by heading; all `None` without steps.

    A step that only decodes computes one token for each request; any other is mixed. The time of a step is
    that since the end of the one before it.
    """
    timed = [
        (later, 1000 * (later.time_s - earlier.time_s))
        for earlier, later in itertools.pairwise(steps)
        if later.time_s - earlier.time_s < IDLE_S
    ]
    mixed = [(step, ms) for step, ms in timed if not step.only_decodes]
    graphs = [step.graph_mode == "full" for step, _ in timed if step.graph_mode != "unknown"]
    return {
        "requests running": _mean(step.requests for step, _ in timed),
        "requests waiting": _mean(step.waiting for step, _ in timed),
        "decode-only steps": _mean(step.only_decodes for step, _ in timed),
        "decode-only step, ms": _mean(ms for step, ms in timed if step.only_decodes),
        "mixed step, ms": _mean(ms for _, ms in mixed),
        "prefill tokens of a mixed step": _mean(step.prefill_tokens for step, _ in mixed),
        "steps with a full CUDA graph": _mean(graphs),
    }


def _mean(values: Iterable[float]) -> float | None:
    """Return the mean; `None` without values."""
    known = list(values)
    return statistics.fmean(known) if known else None


async def measure_utilisation(
    deployment: Deployment, setup: Setup, status: Status, levels: Sequence[int]
) -> Measurement:
    """Play short episodes with different numbers of them in flight.

    Raises `ServingError`, `WorkerError`, `StorageError`, `RunStopped`.
    """
    watch, rows = Watch(deployment), list[dict[str, Any]]()
    for level in levels:
        async with open_player(deployment, setup, level) as player:
            await player.play(WARM_UP_CALLS, prefix_status(status, f"{level} in flight: warming up"))
            before, sampling = await watch.read(), asyncio.create_task(watch.sample())
            try:
                rollout = await player.play(CALLS, prefix_status(status, f"{level} in flight"))
            finally:
                sampling.cancel()
            speed = {"in flight": level, "output tokens/s": rollout.output_per_s}
            rows.append({**speed, **watch.row(before, await watch.read())})
    if rows[0]["requests running"] is None:
        watch.notes.append(
            "The server logs no steps, because it is not SpeedRunner's own or another scheduler runs."
        )
    return Measurement(
        f"{deployment.model_config.name}: means while episodes of {CALLS} requests are played",
        tables=[MeasuredTable("utilisation", rows, turned=True)],
        notes=watch.notes,
    )
