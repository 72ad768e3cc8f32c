"""Notices an engine that hangs: its API still answers, but nothing that it counts moves any more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Activity, read_metrics
from serving.errors import ServerFailed

log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def watched(
    endpoint: Endpoint,
    patience_s: float,
    in_flight: Callable[[], set[int | None]],
    on_hang: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Watch an engine while the context lasts.

    Args:
        patience_s: how long its counters may stand still while requests run, in seconds: ours, or others'
            of which the engine itself tells.
        in_flight: the replicas on whose answers ours wait now; `None` stands for any of them.
        on_hang: called when it hangs; the watch then begins anew.
    """

    async def watch() -> None:
        look_every_s = min(patience_s / 6, 10.0)
        seen = Activity()
        moved: dict[int | None, float] = {}
        while True:
            await asyncio.sleep(look_every_s)
            now = time.monotonic()
            try:
                activity = (await read_metrics(endpoint)).activity()
            except ServerFailed:  # no progress is seen; a dead engine is found by its requests
                activity = seen
            except Exception:
                log.exception("the watchdog cannot read the engine's counters")
                continue
            busy = in_flight() | activity.running
            for replica in {*moved, *busy}:
                idle = replica not in busy
                if idle or replica not in moved or activity.done.get(replica) != seen.done.get(replica):
                    moved[replica] = now
            seen = activity
            if any(now - since > patience_s for since in moved.values()):
                await on_hang()
                moved.clear()

    task = asyncio.create_task(watch(), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
