"""Warm hosts, lent to one episode after another."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

from envs.registry import REGISTRY
from speedrunner.hosts.host import HostError
from speedrunner.hosts.memory import available_mb
from speedrunner.hosts.process_host import ProcessHost
from speedrunner.hosts.template import Template
from speedrunner.sandbox.settings import Sandbox

SKILLS_MB = 30
"""Memory of a host's two sandboxed processes, one of them spare, before the skills in them ask for more."""


class TooManyHosts(HostError):
    """The machine has not the memory for as many hosts as were asked for."""


class _Promises:
    """Memory that open pools may come to take, much of which they do only as they play."""

    def __init__(self) -> None:
        self._first_mb = 0
        self._pools: dict[HostPool, int] = {}

    def make(self, pool: HostPool, env: str, hosts: int) -> None:
        """Refuse hosts that would have to swap. Raises `UnknownEnvironment`, `TooManyHosts`."""
        if not self._pools:
            self._first_mb = available_mb()
        each = REGISTRY.find(env).memory_mb + SKILLS_MB
        available = min(available_mb(), self._first_mb - sum(self._pools.values()))
        if hosts * each > available:
            raise _too_many(env, hosts, each, max(available, 0))
        self._pools[pool] = hosts * each

    def take_back(self, pool: HostPool) -> None:
        """Its hosts have ended."""
        self._pools.pop(pool, None)


_PROMISES = _Promises()


def _too_many(env: str, hosts: int, each: int, available: int) -> TooManyHosts:
    fit = available // each
    remedy = f"set run.in_flight to {fit} or less" if fit else "free some, or take a larger machine"
    return TooManyHosts(
        f"{hosts} hosts of {env} take up to {hosts * each:,} MB of memory, {each} MB each, and"
        f" {available:,} MB are available: {remedy}"
    )


class HostPool:
    """A fixed number of hosts of one environment, which come up beside what else is begun. An async context
    manager.

    Args:
        size: hosts, each of which plays one episode at a time.
        env: name of the environment, as for `envs.make`.
        options: the environment's.
        log: file to which the error streams of all hosts are appended; `None` to drop them.
        sandbox: how skills are confined; `child_process.require` says whether it can be done.
    """

    def __init__(
        self,
        size: int,
        env: str,
        options: Mapping[str, Any] | None = None,
        log: Path | None = None,
        sandbox: Sandbox = Sandbox(),  # noqa: B008 - immutable
    ) -> None:
        self._env = env
        self._options = dict(options or {})
        self._log = log
        self._sandbox = sandbox
        self._template: Template | None = None
        self._loading = asyncio.Lock()
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)
        self._starts: list[asyncio.Task[None]] = []
        self._hosts: dict[int, ProcessHost] = {}  # by slot
        self._failures: dict[int, Exception] = {}  # of the first start, by slot; for its first taker
        self._free: list[int] = []  # the last used is the warmest
        self._waiting: list[tuple[bool, int, asyncio.Future[int]]] = []  # a heap
        self._tickets = itertools.count()
        self._slots = range(size)

    async def __aenter__(self) -> Self:
        """Let all hosts begin to start, without waiting for them.

        Raises:
            UnknownEnvironment: there is no such environment.
            TooManyHosts: they would not fit into the memory that the machine has beside what this process's
                other pools may come to take; none is started.
        """
        _PROMISES.make(self, self._env, len(self._slots))
        self._starts = [asyncio.create_task(self._first_start(slot)) for slot in self._slots]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all hosts."""
        for start in self._starts:
            start.cancel()
        try:
            await asyncio.gather(*self._starts, return_exceptions=True)
            await asyncio.gather(*(host.close() for host in self._hosts.values()))
        finally:
            for host in self._hosts.values():
                host.kill()
            if self._template is not None:
                self._template.end()
            _PROMISES.take_back(self)

    async def ready(self) -> None:
        """Wait until all hosts have started. Raises `HostError` as soon as one has not."""
        for start in asyncio.as_completed(self._starts):
            await start

    @asynccontextmanager
    async def host(self, *, behind: bool = False) -> AsyncIterator[ProcessHost]:
        """Lend a host for one episode, as soon as one is free. A dead or interrupted one is replaced.

        Args:
            behind: let everybody who is in a hurry go first.

        Raises:
            HostError: it did not start; the next one is tried afresh.
        """
        slot = await self._take(behind)
        try:
            if (failure := self._failures.pop(slot, None)) is not None:
                raise failure
            host = self._hosts.get(slot)
            if host is None or not host.usable:
                if host is not None:  # it died while nobody had it
                    host.kill()
                host = await self._start(slot)
            yield host
        finally:
            if (used := self._hosts.get(slot)) is not None:
                if used.usable:
                    used.finish()
                else:  # an interrupted call would go on running: it ends with its host
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
            if not mine.cancelled():  # handed over at the same moment
                self._give_back(mine.result())
            raise

    def _give_back(self, slot: int) -> None:
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.done():  # not one that has given up
                waiter.set_result(slot)
                return
        self._free.append(slot)

    async def _first_start(self, slot: int) -> None:
        """Start a slot's first host and let it be taken, or the error in its place."""
        try:
            await self._start(slot)
        except Exception as error:
            self._failures[slot] = error
            raise
        finally:
            self._give_back(slot)

    async def _start(self, slot: int) -> ProcessHost:
        async with self._starting:
            template = await self._loaded()
            self._hosts[slot] = await template.host(self._options, self._sandbox)
        return self._hosts[slot]

    async def _loaded(self) -> Template:
        """The template; a new one where it has died."""
        async with self._loading:
            if self._template is None or not self._template.usable:
                self._template = await Template(self._env, self._log).loaded()
            return self._template
