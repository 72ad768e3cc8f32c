"""This process and all below it: their time, their memory, and what is left of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from speedrunner.hosts.memory import MB


def cpu_s() -> float:
    """CPU seconds of this process and all below it, also of those that have ended."""
    return cpu_s_of([psutil.Process(), *below()])


def cpu_s_of(processes: Iterable[psutil.Process]) -> float:
    """Return CPU seconds of processes, those of their children that have ended included."""
    return _sum(processes, lambda process: sum(process.cpu_times()[:4]))


def memory_mb(processes: Iterable[psutil.Process]) -> float:
    """Memory of processes; pages that several of them share are counted once."""
    return _sum(processes, lambda process: process.memory_full_info().pss) / MB


def below() -> list[psutil.Process]:
    """All processes below this one."""
    return psutil.Process().children(recursive=True)


def _sum(processes: Iterable[psutil.Process], of: Callable[[psutil.Process], float]) -> float:
    total = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            total += of(process)
    return total


class Stopwatch:
    """Seconds, and CPU seconds of all processes, since it was made."""

    def __init__(self) -> None:
        self._began, self._cpu_s = time.monotonic(), cpu_s()

    def per_token(self, tokens: int) -> tuple[float, float]:
        """Tokens per second, and CPU milliseconds per token."""
        used_s = cpu_s() - self._cpu_s
        return tokens / (time.monotonic() - self._began), 1000 * used_s / tokens


class Leftovers:
    """Tasks, threads and processes that were not there when it was made."""

    def __init__(self) -> None:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())
        self._processes = set(below())

    async def found(self) -> list[str]:
        """Those that stay, in words. The event loop's own threads are ended first."""
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
