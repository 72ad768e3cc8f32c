"""The time limit of an answer, which does not count time in which the engine is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class AnswerLimit:
    """The limit of the answer that a task waits for.

    Attributes:
        paused_s: seconds that did not count, by which the limit was moved.
    """

    timeout: asyncio.Timeout
    paused_s: float = 0.0


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


@contextmanager
def pause_limit(since: float) -> Iterator[None]:
    """Do not count the time from `since`, in monotonic seconds, to the end of this context."""
    if (limit := _LIMIT.get()) is None:
        yield
        return
    deadline = limit.timeout.when()
    limit.timeout.reschedule(None)
    try:
        yield
    finally:
        paused_s = time.monotonic() - since
        limit.paused_s += paused_s
        if deadline is not None:
            limit.timeout.reschedule(deadline + paused_s)
