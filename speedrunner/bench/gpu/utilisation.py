"""How busy the GPUs and the server's processes are while episodes are played: the step `utilisation`."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

from serving.deployment import Deployment
from serving.engine.gpus import GpuReading, Nvml, read_gpus
from serving.engine.metrics import read_metrics
from serving.engine.server_processes import cpu_seconds, find_server_gpus, server_processes
from serving.engine.step_clock import TIMED, read_clock
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


class Watch:
    """Reads a server's processes, its GPUs and its clock.

    Attributes:
        samples: readings of each GPU.
        notes: what cannot be measured, and why.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._endpoint = deployment.endpoint
        self._processes = server_processes(deployment.endpoint)
        self._nvml = Nvml()
        usable = [gpu.uuid for gpu in read_gpus().usable] if deployment.model_config.gpus else []
        self._gpus = find_server_gpus(self._nvml, self._processes, usable, deployment.model_config.all_gpus)
        self.samples: list[GpuReading] = []
        self.notes = [f"The GPUs cannot be read: {self._nvml.failure}."] * bool(usable and self._nvml.failure)
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
        """Return what has been used so far: time, steps, ms of their parts and CPU seconds of processes.

        Raises `ServerFailed`.
        """
        socket = self._endpoint.socket
        clock = read_clock(socket.parent) if socket and self._processes else {}
        counted = (await read_metrics(self._endpoint)).sums(STEPS).get(STEPS, 0.0)
        found = {"time": time.monotonic(), "steps": clock["output"][0] if clock else counted}
        found |= {f"{part}, ms": 1000 * seconds for part, (_, seconds) in clock.items()}
        return found | {f"CPU cores, {name}": used for name, used in cpu_seconds(self._processes).items()}

    def row(self, before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
        """Return the means between two readings by their headings."""
        spent = {name: value - before.get(name, 0.0) for name, value in after.items()}
        seconds, steps = spent.pop("time"), spent.pop("steps")
        row: dict[str, Any] = {"steps": int(steps), "ms a step": 1000 * seconds / steps if steps else None}
        for name in (f"{part}, ms" for part in TIMED):
            row[name] = spent.pop(name) / steps if steps and name in spent else None
        row |= {name: used / seconds for name, used in spent.items()}
        readings = {"GPU busy": "busy", "GPU power, W": "watts", "GPU memory, MiB": "memory_mib"}
        for heading, name in readings.items():
            values = [getattr(each, name) for each in self.samples]
            row[heading] = statistics.mean(values) if values and None not in values else None
        return row


async def measure_utilisation(
    deployment: Deployment, setup: Setup, levels: Sequence[int], status: Status
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
    if rows[0]["output, ms"] is None:
        watch.notes.append(
            "The server has no clock of steps: it is not SpeedRunner's own, or its model computes in other"
            " processes. A step is not split."
        )
    return Measurement(
        f"{deployment.model_config.name}: means while episodes of {CALLS} requests are played",
        tables=[MeasuredTable("utilisation", rows, turned=True)],
        notes=watch.notes,
    )
