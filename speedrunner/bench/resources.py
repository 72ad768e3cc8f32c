"""CPU time, memory and power of client, server and GPUs during a measurement, and leftovers after it."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

from serving.engine.gpus import read_gpus
from speedrunner.hosts.memory import MB

SAMPLE_S = 1
"""Seconds between two samples of the GPUs' memory and power."""


def cpu_s() -> float:
    """Return CPU seconds of this process and all below it, ended ones included."""
    return cpu_s_of([psutil.Process(), *below()])


def cpu_s_of(processes: Iterable[psutil.Process]) -> float:
    """Return CPU seconds of processes, those of their ended children included."""
    return _sum(processes, lambda process: sum(process.cpu_times()[:4]))


def memory_mb(processes: Iterable[psutil.Process]) -> float:
    """Return the memory of processes in MB; shared pages count once."""
    return _sum(processes, lambda process: process.memory_full_info().pss) / MB


def below() -> list[psutil.Process]:
    """Return all processes below this one."""
    return psutil.Process().children(recursive=True)


def _sum(processes: Iterable[psutil.Process], of: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += of(process)
    return total


class Resources:
    """Measures what is used while its context lasts.

    Args:
        server_pid: root of the server's process tree; `None` for a server that was not started here.
        gpus: GPUs of the server, the first visible ones.

    Attributes (all `None` where not measured):
        seconds: length of the context.
        cpu_s: CPU seconds of this process and all below it.
        client_cpu_s: CPU seconds of this process, all threads.
        server_cpu_s: CPU seconds of the server's process tree.
        server_mb: memory of the server's process tree at the end, in MB; shared pages count once.
        gpu_mib: most memory used on the GPUs, summed, in MiB, by any process.
        watts: average power of the GPUs, summed.
    """

    def __init__(self, server_pid: int | None = None, gpus: int = 0) -> None:
        self._pid = server_pid
        self._gpus = gpus
        self._sampling: asyncio.Task[None] | None = None
        self._samples: dict[str, list[tuple[float, float]]] = {}
        self.seconds = self.cpu_s = self.client_cpu_s = 0.0
        self.server_cpu_s: float | None = None
        self.server_mb: float | None = None

    async def __aenter__(self) -> Self:
        if self._gpus and (ids := await asyncio.to_thread(_sampled_gpus, self._gpus)):
            self._sampling = asyncio.create_task(self._sample(ids), name="GPU samples")
        self._cpu_s, self._client_s, self._server_s = cpu_s(), time.process_time(), cpu_s_of(self._tree())
        self._began = time.monotonic()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.monotonic() - self._began
        self.client_cpu_s = time.process_time() - self._client_s
        self.cpu_s = cpu_s() - self._cpu_s
        if tree := self._tree():
            self.server_cpu_s = cpu_s_of(tree) - self._server_s
            self.server_mb = memory_mb(tree)
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)

    @property
    def gpu_mib(self) -> float | None:
        """See the class."""
        return sum(max(mib for mib, _ in each) for each in self._samples.values()) or None

    @property
    def watts(self) -> float | None:
        """See the class."""
        return sum(statistics.mean(watts for _, watts in each) for each in self._samples.values()) or None

    def _tree(self) -> list[psutil.Process]:
        if self._pid is None:
            return []
        try:
            root = psutil.Process(self._pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    async def _sample(self, ids: list[str]) -> None:
        """Read memory (MiB) and power (W) of these GPUs, by UUID, until cancelled."""
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
                cells = [cell.strip() for cell in line.decode(errors="replace").split(",")]
                with suppress(ValueError):  # `[N/A]` of a GPU that does not report it
                    uuid, mib, watts = cells
                    self._samples.setdefault(uuid, []).append((float(mib), float(watts)))
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _sampled_gpus(count: int) -> list[str]:
    """Return UUIDs of the first visible GPUs, without MIG slices, whose power nvidia-smi does not report."""
    return [gpu.uuid for gpu in read_gpus().usable[:count] if not gpu.is_slice]


class Leftovers:
    """Tasks, threads and processes that were not there when it was made."""

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())
        self._processes = set(below())

    async def found(self) -> list[str]:
        """Return a line for each that is left. The event loop's own threads are ended first."""
        await asyncio.get_running_loop().shutdown_default_executor()
        tasks = [f"task {each.get_name()}" for each in asyncio.all_tasks() - self._tasks]
        threads = [each for each in threading.enumerate() if each not in self._threads]
        for each in threads:
            each.join(timeout=1.0)  # it may be about to end
        processes = set(below()) - self._processes
        return [
            *tasks,
            *(f"thread {each.name}" for each in threads if each.is_alive()),
            *(f"process {' '.join(each.cmdline())}" for each in processes),
        ]
