"""Restarts of our server after its death, a limited number of times in a row."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable

from serving.engine.endpoint import BUSY_S
from serving.engine.server import VllmServer
from serving.errors import EngineDead, ServerFailed

MOST_RESTARTS, LONG_UPTIME_S = 10, 1800.0
"""Number of restarts in a row, and the seconds of uptime after which the count starts again. A job of 100
hours thus survives a rare fault at any time. An episode with a request that kills the engine is played twice,
with five tries each, and fails before the run stops."""

PAUSE_S = 10.0
"""Seconds between a failed start and the next one: processes of the failed one may still hold GPU memory."""


class Restarts:
    """Restarts our server when it dies.

    Args:
        start: starts the server and waits until it answers. Raises `ServerFailed`.
        say: called with a line about each restart.

    Attributes:
        alone: see `engine.client.Engine`.
        latest: the latest restart, which returns the monotonic time at which the server was ready.
    """

    def __init__(
        self,
        server: VllmServer,
        start: Callable[[VllmServer], Awaitable[None]],
        say: Callable[[str], None],
    ) -> None:
        self.latest: asyncio.Task[float] | None = None
        self._server = server
        self._start = start
        self._say = say
        self.alone = asyncio.Lock()
        self._deaths = 0
        """Deaths in a row; a failed start is one."""
        self._ready = time.monotonic()
        self._killing: asyncio.Future[None] | None = None

    async def recover(self, since: float) -> bool:
        """Start the server again if it died; see `engine.client.Recover`.

        Raises `EngineDead` if it has died too often.
        """
        last = self.latest
        # Another request may restart it, or have restarted it meanwhile. A restart that failed is final.
        is_final = last is not None and last.done() and last.exception() is not None
        if (last is None or last.done()) and not is_final and await self._is_dead() and self.latest is last:
            # A context of its own: time limits of the request that found the server dead do not apply.
            self.latest = asyncio.create_task(self._start_again(), context=contextvars.Context())
        # This object owns the task: the request that found the server dead may time out.
        return self.latest is not None and await asyncio.shield(self.latest) > since

    async def _is_dead(self) -> bool:
        """Return whether the server's process has ended, or reports that its engine has.

        A live server may be too busy to answer; the watchdog decides whether it hangs.
        """
        if not self._server.alive:
            return True
        return await self._server.endpoint.health(BUSY_S) not in (200, None)

    async def kill(self) -> None:
        """End the server, which hangs. The next request that loses it restarts it."""
        self._killing = asyncio.ensure_future(asyncio.to_thread(self._server.kill))
        await asyncio.shield(self._killing)

    async def close(self) -> None:
        """Abort a restart in progress."""
        if self.latest is not None:
            self.latest.cancel()
            await asyncio.gather(self.latest, return_exceptions=True)

    async def _start_again(self) -> float:
        """Start the server until it is ready. Returns that time."""
        if time.monotonic() - self._ready > LONG_UPTIME_S:
            self._deaths = 0
        failure, what, pause_s = self._server.failure(), "the engine died", 0.0
        while True:
            self._count_death(failure)
            await asyncio.sleep(pause_s)
            if self._killing is not None:  # requests learn of the server's end before it is complete
                await self._killing
            self._say(f"{what} ({failure.splitlines()[0]}); restarting it")
            await self._server.stop()
            try:
                await self._start(self._server)
            except ServerFailed as error:
                failure, what, pause_s = str(error), "the restart failed", PAUSE_S
            else:
                self._ready = time.monotonic()
                return self._ready

    def _count_death(self, failure: str) -> None:
        """Count a death. Raises `EngineDead` if there is no other restart."""
        self._deaths += 1
        why = "; ".join(line.strip() for line in failure.splitlines()[:2])
        if self._deaths > MOST_RESTARTS:
            raise EngineDead(
                f"the engine failed {self._deaths} times without {LONG_UPTIME_S / 60:.0f} min of uptime in"
                f" between, most recently: {why}; fix the cause and rerun the same command to resume"
            )
