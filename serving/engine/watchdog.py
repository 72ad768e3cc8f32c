"""Notices an engine that hangs: its API still answers, but none of its counters changes any longer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from serving.engine.endpoint import Endpoint
from serving.engine.metrics import Activity, read_metrics
from serving.errors import ServerFailed, TooManyOpenFiles

log = logging.getLogger(__name__)

FLOOR_S, CPU_FLOOR_S = 60.0, 180.0
"""Least patience in seconds, on a GPU and on a CPU."""

FIRST_TOKEN_S = 300.0
"""Least patience in seconds until an engine has produced its first token since its start: vLLM may still
compile kernels then. An estimate, not measured on a GPU."""

PREFILL_TOKENS_PER_S, CPU_PREFILL_TOKENS_PER_S = 1000, 200
"""Lowest expected speed of a prompt's computation in tokens per second, on GPUs and on a CPU."""


def patience_for(context: int, *, on_gpu: bool) -> float:
    """Return how long an engine may show no progress while requests run, in seconds.

    A healthy engine changes its counters or the used share of its cache at each step, which takes a second or
    two on a GPU. Even if they do not change during a whole prefill, the patience covers it. By arithmetic
    (not measured), the longest prompt takes 18 s on an H100 (the 27B, 131,072 tokens) and over 100 s on four
    A6000 (262,144 tokens, 2,600 per second); the patience is more than 2.5 times as long. On a CPU of two
    cores, the small random model took 26.8 s for a prompt of 16,000 tokens (600 per second, measured). Other
    work may slow it down.

    Args:
        context: longest prompt plus completion, in tokens.
    """
    if on_gpu:
        return max(FLOOR_S, context / PREFILL_TOKENS_PER_S)
    return max(CPU_FLOOR_S, context / CPU_PREFILL_TOKENS_PER_S)


@contextlib.asynccontextmanager
async def watch(
    endpoint: Endpoint,
    patience_s: float,
    in_flight: Callable[[], set[int | None]],
    on_hang: Callable[[float], Awaitable[None]],
) -> AsyncIterator[None]:
    """Watch an engine while the context lasts.

    The patience doubles with each hang: a request that was only slow is sent again, and must not be taken for
    a hang a second time. It is at least `FIRST_TOKEN_S` for an engine that has produced nothing since its
    start.

    Args:
        patience_s: how long the engine may show no progress while requests run, in seconds. These are our
            requests, and others' that the engine itself reports.
        in_flight: the replicas that our requests wait for now; `None` in it means any replica.
        on_hang: called when it hangs, with the elapsed patience in seconds; then the watch continues.
    """

    async def watch() -> None:
        allowed_s = patience_s
        seen = Activity()
        moved: dict[int | None, float] = {}
        while True:
            await asyncio.sleep(min(allowed_s / 6, 10.0))
            now = time.monotonic()
            try:
                activity = (await read_metrics(endpoint)).activity()
            except TooManyOpenFiles:
                continue
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
            for replica, since in moved.items():
                produced, _ = activity.done.get(replica, (0.0, 0.0))
                limit_s = allowed_s if produced else max(allowed_s, FIRST_TOKEN_S)
                if now - since > limit_s:
                    await on_hang(limit_s)
                    allowed_s = 2 * limit_s
                    moved.clear()
                    break

    task = asyncio.create_task(watch(), name="watchdog")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
