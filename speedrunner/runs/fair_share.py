"""Episodes of several runs on one engine: so many at a time, and none of the runs more than its share."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairShare:
    """A number of slots. One that gets free goes to the run that has the fewest of those that wait for one.

    So runs that have enough to play come to have equally many, however many each of them asks for at a time,
    and what one does not need the others have.

    Args:
        slots: episodes at a time; `None` for no bound.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._free = slots
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, run: Hashable) -> AsyncIterator[None]:
        """Wait for a slot, and have it while the context lasts."""
        if self._free is None:
            yield
            return
        await self._take(run)
        try:
            yield
        finally:
            self._give_back(run)

    async def _take(self, run: Hashable) -> None:
        if self._free:
            self._hand_out(run)
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run, deque()).append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if not mine.cancelled():  # handed over at the same moment
                self._give_back(run)
            raise

    def _hand_out(self, run: Hashable) -> None:
        assert self._free
        self._free -= 1
        self._held[run] += 1

    def _give_back(self, run: Hashable) -> None:
        assert self._free is not None
        self._free += 1
        self._held[run] -= 1
        for each in sorted(self._waiting, key=lambda other: self._held[other]):
            queue = self._waiting[each]
            while queue and queue[0].done():  # those that have given up
                queue.popleft()
            if queue:
                self._hand_out(each)
                queue.popleft().set_result(None)
                return
        self._waiting.clear()
