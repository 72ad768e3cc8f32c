"""Warm hosts, lent to one episode after another."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import envs.registry
from speedrunner.hosts.host import Host, HostError
from speedrunner.hosts.memory import available_mb
from speedrunner.sandbox.settings import Sandbox

SKILLS_MB = 30
"""Memory of a host's two sandboxed processes, one of them spare, before the skills in them ask for more."""


class TooManyHosts(HostError):
    """The machine has not the memory for as many hosts as were asked for."""


def _require_memory(env: str, hosts: int) -> None:
    """Refuse hosts that would have to swap. Raises `UnknownEnvironment`, `TooManyHosts`."""
    each, available = envs.registry.memory_mb(env) + SKILLS_MB, available_mb()
    if hosts * each <= available:
        return
    fit = available // each
    remedy = f"set run.in_flight to {fit} or less" if fit else "free some, or take a larger machine"
    raise TooManyHosts(
        f"{hosts} hosts of {env} take up to {hosts * each:,} MB of memory, {each} MB each, and"
        f" {available:,} MB are available: {remedy}"
    )


class HostPool:
    """A fixed number of warm hosts of one environment. An async context manager.

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
        self._hosts: dict[int, Host] = {}  # by slot
        self._free: list[int] = []  # the last used is the warmest
        self._waiting: deque[asyncio.Future[int]] = deque()
        self._waiting_behind: deque[asyncio.Future[int]] = deque()
        self._slots = range(size)
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)

    async def __aenter__(self) -> Self:
        """Start all hosts.

        Raises:
            UnknownEnvironment: there is no such environment.
            TooManyHosts: they would not fit into the machine's memory; none is started.
            HostError: one did not start.
        """
        _require_memory(self._env, len(self._slots))
        starts = [asyncio.create_task(self._start(slot)) for slot in self._slots]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for start in starts:
                start.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self._close()
            raise
        self._free = list(self._slots)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    @asynccontextmanager
    async def host(self, *, behind: bool = False) -> AsyncIterator[Host]:
        """Lend a host for one episode, as soon as one is free. A dead or interrupted one is replaced.

        Args:
            behind: let everybody who is in a hurry go first.

        Raises:
            HostError: a replacement did not start; the next one is tried afresh.
        """
        slot = await self._take(behind)
        try:
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
        queue = self._waiting_behind if behind else self._waiting
        queue.append(mine)
        try:
            return await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # handed over at the same moment
                self._give_back(mine.result())
            else:
                with suppress(ValueError):  # it is no longer there when it was passed over
                    queue.remove(mine)
            raise

    def _give_back(self, slot: int) -> None:
        for queue in (self._waiting, self._waiting_behind):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():  # not one that was cancelled at this moment
                    waiter.set_result(slot)
                    return
        self._free.append(slot)

    async def _start(self, slot: int) -> Host:
        async with self._starting:
            self._hosts[slot] = await Host.start(self._env, self._options, self._log, self._sandbox)
        return self._hosts[slot]

    async def _close(self) -> None:
        try:
            await asyncio.gather(*(host.close() for host in self._hosts.values()))
        finally:
            for host in self._hosts.values():
                host.kill()
