"""CPU time, memory and power of client, server and GPUs during a measurement."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

import psutil

from serving.engine.gpus import read_gpus
from speedrunner.workers.available_memory import MB

SAMPLE_S = 1
"""Seconds between two samples of the GPUs' memory and power."""


def _cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Return CPU seconds of processes and of their ended children."""
    return _sum(processes, lambda process: sum(process.cpu_times()[:4]))


def _sum(processes: Iterable[psutil.Process], value: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += value(process)
    return total


class Resources:
    """Measures the resources that are used while its context lasts.

    Args:
        server_pid: root of the server's process tree; `None` for a server that was not started here.
        gpus: number of the server's GPUs, the first visible ones.

    Attributes (`None` if not measured):
        seconds: length of the context.
        client_cpu_s: CPU seconds of this process, all threads.
        server_cpu_s: CPU seconds of the server's process tree.
        server_mb: memory of the server's process tree at the end, in MB; shared pages count once.
    """

    def __init__(self, server_pid: int | None, gpus: int) -> None:
        self._pid = server_pid
        self._gpus = gpus
        self._sampling: asyncio.Task[None] | None = None
        self._samples: dict[str, list[tuple[float, float]]] = {}
        """MiB and watts by GPU."""
        self.server_cpu_s: float | None = None
        self.server_mb: float | None = None

    async def __aenter__(self) -> Self:
        if self._gpus:
            usable = (await asyncio.to_thread(read_gpus)).usable[: self._gpus]
            if ids := [gpu.uuid for gpu in usable]:
                self._sampling = asyncio.create_task(self._sample(ids), name="GPU samples")
        self._before = time.process_time(), _cpu_s(self._server_tree()), time.monotonic()
        return self

    async def __aexit__(self, *_: object) -> None:
        client_s, server_s, began = self._before
        self.seconds = time.monotonic() - began
        self.client_cpu_s = time.process_time() - client_s
        if tree := self._server_tree():
            self.server_cpu_s = _cpu_s(tree) - server_s
            self.server_mb = _sum(tree, lambda process: process.memory_full_info().pss) / MB
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)

    @property
    def gpu_mib(self) -> float | None:
        """Most memory used on each GPU by any process, summed, in MiB."""
        return sum(max(mib for mib, _ in each) for each in self._samples.values()) or None

    @property
    def watts(self) -> float | None:
        """Average power of each GPU, summed."""
        return sum(statistics.mean(watts for _, watts in each) for each in self._samples.values()) or None

    def _server_tree(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            if self._pid is not None:
                root = psutil.Process(self._pid)
                return [root, *root.children(recursive=True)]
        return []

    async def _sample(self, ids: list[str]) -> None:
        """Read memory and power of these GPUs, by UUID, until cancelled."""
        command = ["nvidia-smi", "--query-gpu=uuid,memory.used,power.draw", f"--id={','.join(ids)}"]
        try:
            process = await asyncio.create_subprocess_exec(
                *(*command, "--format=csv,noheader,nounits", f"--loop={SAMPLE_S}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                with suppress(ValueError):  # a GPU that does not report a value shows `[N/A]`
                    uuid, mib, watts = (cell.strip() for cell in line.decode(errors="replace").split(","))
                    self._samples.setdefault(uuid, []).append((float(mib), float(watts)))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
