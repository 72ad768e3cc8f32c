"""A pool of warm workers, each lent to one episode after another, and the memory that they may take."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from envs.env_registry import REGISTRY
from speedrunner.config.schema import SandboxConfig
from speedrunner.workers.env_worker import EnvWorker, WorkerError
from speedrunner.workers.fork_server import ForkServer
from speedrunner.workers.sandbox.child_process import MIB

MB = 1_000_000
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

SKILLS_MB = 14
"""Memory in MB of a worker's two sandboxed processes (one is spare) before their skills allocate more."""


def available_mb() -> int:
    """Return the megabytes that can be used without swapping.

    A control group with a limit, such as a batch job's, may allow less than the machine has. Only control
    groups of version 2 are read.
    """
    return min([psutil.virtual_memory().available, *_free_in_cgroups()]) // MB


def _free_in_cgroups() -> Iterator[int]:
    """Yield the free bytes of each limited control group of this process; its file cache counts as free."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:
        return
    for path in (line.removeprefix("0::/") for line in lines if line.startswith("0::/")):
        for folder in (CGROUPS / path, *(CGROUPS / parent for parent in Path(path).parents)):
            with suppress(OSError, ValueError, KeyError):  # the outermost has no limit, others may have "max"
                limit = int((folder / "memory.max").read_text())
                used = int((folder / "memory.current").read_text())
                statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                yield max(0, limit - used + int(statistics["inactive_file"]))


def worker_mb(env: str) -> int:
    """Return the memory in MB that a pool reserves for each worker. Raises `UnknownEnvironment`."""
    return REGISTRY.find(env).memory_mb + SKILLS_MB


def needed_mb(env: str, workers: int, memory_mb: int) -> int:
    """Return the memory in MB that a pool reserves: its workers', and that of one skill at its limit of
    `memory_mb` MiB. If several skills reach it, the kernel ends them first."""
    return workers * worker_mb(env) + memory_mb * MIB // MB


class TooManyWorkers(WorkerError):
    """The machine lacks the memory for as many workers as were requested."""


_reserved: dict[WorkerPool, int] = {}
"""Memory in MB of each open pool. Workers take much of it only while they play."""

_first_mb = 0
"""Memory that was available before the first of the open pools."""


def _reserve(pool: WorkerPool, env: str, workers: int, memory_mb: int) -> None:
    """Reserve memory for a pool, unless its workers would have to swap. Raises `UnknownEnvironment`,
    `TooManyWorkers`."""
    global _first_mb
    _first_mb = _first_mb if _reserved else available_mb()
    one_mb, needed = worker_mb(env), needed_mb(env, workers, memory_mb)
    available = max(0, min(available_mb(), _first_mb - sum(_reserved.values())))
    if needed > available:
        fit = max(0, workers + (available - needed) // one_mb)
        remedy = f"set run.in_flight to {fit} or less" if fit else "use a larger machine"
        raise TooManyWorkers(
            f"{workers} workers of {env} take up to {needed:,} MB of memory, {one_mb} MB each and"
            f" {needed - workers * one_mb:,} MB for a skill at its limit (sandbox.memory_mb), and"
            f" {available:,} MB are available: {remedy}"
        )
    _reserved[pool] = needed


class WorkerPool:
    """A fixed number of workers of one environment. They start in the background. An async context manager.

    Args:
        size: number of workers; each plays one episode at a time.
        env: name of the environment, as for `envs.make`.
        options: the environment's options.
        log: file to which the error streams of all workers are appended; `None` to drop them.
        sandbox: how skills are confined; `child_process.require` checks that this works here.
    """

    def __init__(
        self,
        size: int,
        env: str,
        options: Mapping[str, Any] | None = None,
        log: Path | None = None,
        sandbox: SandboxConfig = SandboxConfig(),  # noqa: B008 - immutable
    ) -> None:
        self._env = env
        self._options = dict(options or {})
        self._log = log
        self._sandbox = sandbox
        self._fork_server: ForkServer | None = None
        self._loading = asyncio.Lock()
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)
        self._starts: list[asyncio.Task[None]] = []
        self._workers: dict[int, EnvWorker] = {}  # by slot
        self._free: list[int] = []  # slots; the last used one is the warmest
        self._waiting: list[tuple[bool, int, asyncio.Future[int]]] = []  # a heap
        self._tickets = itertools.count()
        self._slots = range(size)

    async def __aenter__(self) -> Self:
        """Start all workers, without waiting for them.

        Raises:
            UnknownEnvironment: there is no such environment.
            TooManyWorkers: they would not fit into the machine's memory, after what is reserved for this
                process's other pools; none is started.
        """
        _reserve(self, self._env, len(self._slots), self._sandbox.memory_mb)
        self._starts = [asyncio.create_task(self._first_start(slot)) for slot in self._slots]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all workers."""
        for start in self._starts:
            start.cancel()
        try:
            await asyncio.gather(*self._starts, return_exceptions=True)
            await asyncio.gather(*(worker.close() for worker in self._workers.values()))
        finally:
            for worker in self._workers.values():
                worker.kill()
            if self._fork_server is not None:
                self._fork_server.end()
            _reserved.pop(self, None)

    async def ready(self) -> None:
        """Wait until all workers have started. Raises `WorkerError` as soon as one fails."""
        for start in asyncio.as_completed(self._starts):
            await start

    @asynccontextmanager
    async def worker(self, *, behind: bool = False) -> AsyncIterator[EnvWorker]:
        """Lend a worker for one episode, as soon as one is free. A dead or interrupted one is replaced.

        Args:
            behind: let all requests without this flag go first.

        Raises `WorkerError`: it did not start.
        """
        slot = await self._take(behind)
        try:
            worker = self._workers.get(slot)
            if worker is None or not worker.usable:
                if worker is not None:  # it died while it was free
                    worker.kill()
                worker = await self._start(slot)
            yield worker
        finally:
            if (used := self._workers.get(slot)) is not None:
                if used.usable:
                    used.finish()
                else:  # an interrupted call would continue: it ends with its worker
                    used.kill()
            self._give_back(slot)

    async def _take(self, behind: bool) -> int:
        if self._free:
            return self._free.pop()
        mine: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (behind, next(self._tickets), mine))
        try:
            return await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # a slot arrived at the same moment
                self._give_back(mine.result())
            raise

    def _give_back(self, slot: int) -> None:
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():  # skip cancelled requests
                waiter.set_result(slot)
                return
        self._free.append(slot)

    async def _first_start(self, slot: int) -> None:
        """Start a slot's first worker. If that fails, the first taker of the slot tries again."""
        try:
            await self._start(slot)
        finally:
            self._give_back(slot)

    async def _start(self, slot: int) -> EnvWorker:
        async with self._starting:
            async with self._loading:
                if self._fork_server is None or not self._fork_server.usable:  # not loaded yet, or dead
                    self._fork_server = await ForkServer(self._env, self._log).loaded()
                fork_server = self._fork_server
            worker = self._workers[slot] = await fork_server.worker(self._options, self._sandbox)
        return worker
