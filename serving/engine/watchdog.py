"""Notices an engine that hangs: its API still answers, but none of its counters changes any longer."""

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

FLOOR_S = 300.0
"""Least patience in seconds: a new engine may still compile kernels. An estimate, not measured on a GPU."""

PREFILL_TOKENS_PER_S = 1000
"""Lowest expected speed of a long prompt's computation in tokens per second."""


def patience_for(context: int) -> float:
    """Return how long an engine may show no progress while requests run, in seconds.

    A healthy engine changes its counters or the used share of its cache at each step, which takes a second or
    two on a GPU. Even if they do not change during a whole prefill, the patience covers it.

    Args:
        context: longest prompt plus completion, in tokens.
    """
    return max(FLOOR_S, context / PREFILL_TOKENS_PER_S)


@contextlib.asynccontextmanager
async def watch(
    endpoint: Endpoint,
    patience_s: float,
    in_flight: Callable[[], set[int | None]],
    on_hang: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Watch an engine while the context lasts.

    Args:
        patience_s: how long the engine may show no progress while requests run, in seconds. These are our
            requests, and others' that the engine itself reports.
        in_flight: the replicas that our requests wait for now; `None` in it means any replica.
        on_hang: called when it hangs; then the watch continues.
    """

    async def watch() -> None:
        seen = Activity()
        moved: dict[int | None, float] = {}
        while True:
            await asyncio.sleep(min(patience_s / 6, 10.0))
            now = time.monotonic()
            try:
                activity = (await read_metrics(endpoint)).activity()
            except ServerFailed:
                # No progress for requests of ours that still wait: a server that shuts down refuses new
                # connections, and may keep the old ones for ever. Nothing else runs: an engine that starts
                # again must not be taken for one that hangs.
                activity = Activity(seen.done)
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
