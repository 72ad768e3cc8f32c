"""Notices an engine that hangs: its API still answers, but nothing that it counts moves any more."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from serving.endpoint import Endpoint
from serving.errors import ServerFailed
from serving.metrics import read_activity


@contextlib.asynccontextmanager
async def watched(
    endpoint: Endpoint,
    patience_s: float,
    in_flight: Callable[[], int],
    on_hang: Callable[[], Awaitable[None]],
) -> AsyncIterator[None]:
    """Watch an engine while the context lasts.

    Args:
        patience_s: how long its counters may stand still while requests run, in seconds.
        in_flight: how many requests wait for an answer now.
        on_hang: called when it hangs; the watch then begins anew.
    """
    task = asyncio.create_task(_watch(endpoint, patience_s, in_flight, on_hang), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _watch(
    endpoint: Endpoint,
    patience_s: float,
    in_flight: Callable[[], int],
    on_hang: Callable[[], Awaitable[None]],
) -> None:
    look_every_s = min(patience_s / 6, 10.0)
    seen, moved = -1.0, time.monotonic()
    while True:
        await asyncio.sleep(look_every_s)
        if not in_flight():
            moved = time.monotonic()
            continue
        try:
            activity = await read_activity(endpoint)
        except ServerFailed:
            activity = (
                seen  # an API that says nothing shows no progress either; a dead one is found by its requests
            )
        if activity != seen:
            seen, moved = activity, time.monotonic()
        elif time.monotonic() - moved > patience_s:
            await on_hang()
            moved = time.monotonic()
