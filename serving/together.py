"""Run one function on many items, some of them at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")


async def run_together(do: Callable[[S], Awaitable[T]], each: Sequence[S], most: int) -> list[T]:
    """Call `do` on all of `each` in order, at most `most` at the same time. Raises the first exception and
    cancels the other calls."""
    gate = asyncio.Semaphore(most)

    async def one(item: S) -> T:
        async with gate:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in each]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
