"""Share one engine's episode slots fairly among several runs."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class FairShare:
    """A fixed number of slots. A free slot goes to the waiting run that has the fewest.

    Runs with enough work therefore get equal numbers of slots, however many each requests. Slots that one run
    does not need go to the others.

    Args:
        slots: number of concurrent episodes; `None`: no limit.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._free = slots
        self._held: Counter[Hashable] = Counter()
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, run: Hashable) -> AsyncIterator[None]:
        """Wait for a slot and hold it while the context lasts."""
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
            if not mine.cancelled():  # the slot was handed over at the same moment
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
            while queue and queue[0].done():  # waiters that were cancelled
                queue.popleft()
            if queue:
                self._hand_out(each)
                queue.popleft().set_result(None)
                return
        self._waiting.clear()
