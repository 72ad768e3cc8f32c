"""The time limit of an answer, which does not count time in which the engine is away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self


class AnswerLimit:
    """Raises `TimeoutError` at `deadline`, in monotonic seconds; `None`: never.

    Attributes:
        paused_s: seconds that did not count, by which the limit was moved.
    """

    def __init__(self, deadline: float | None) -> None:
        self.timeout = asyncio.timeout_at(deadline)
        self.paused_s = 0.0

    async def __aenter__(self) -> Self:
        self._before = _LIMIT.set(self)
        await self.timeout.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        _LIMIT.reset(self._before)
        await self.timeout.__aexit__(*error)


_LIMIT: ContextVar[AnswerLimit | None] = ContextVar("answer limit", default=None)


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
