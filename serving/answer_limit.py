"""The time limit of an answer, which the restart of an engine prolongs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class AnswerLimit:
    """The limit of the answer that a task waits for.

    Attributes:
        restart_s: seconds lost to restarts of the engine, by which the limit was moved.
    """

    timeout: asyncio.Timeout
    restart_s: float = 0.0


_LIMIT: ContextVar[AnswerLimit | None] = ContextVar("answer limit", default=None)


@asynccontextmanager
async def limit_answer(deadline: float | None) -> AsyncIterator[AnswerLimit]:
    """Raise `TimeoutError` at `deadline`, in monotonic seconds; `None`: never."""
    async with asyncio.timeout_at(deadline) as timeout:
        limit = AnswerLimit(timeout)
        before = _LIMIT.set(limit)
        try:
            yield limit
        finally:
            _LIMIT.reset(before)


async def without_restart(restart: Awaitable[bool], since: float) -> bool:
    """Wait for `restart`, which returns whether the engine was restarted. If so, the time since `since`, the
    start of the try that the engine lost, does not count for the limit of the answer."""
    if (limit := _LIMIT.get()) is None:
        return await restart
    deadline = limit.timeout.when()
    limit.timeout.reschedule(None)
    restarted = await restart
    lost_s = time.monotonic() - since if restarted else 0.0
    limit.restart_s += lost_s
    if deadline is not None:
        limit.timeout.reschedule(deadline + lost_s)
    return restarted
