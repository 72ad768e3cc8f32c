"""An engine's replicas: who may keep its place in the prefix cache of each, and who waits.

A conversation that is cached costs its next turn only the new tokens. When more conversations go on than
the cache can hold, each turn evicts another's prefix; on a hybrid model, played in turns, one too many makes
every hit a miss. So conversations are *residents* of the cache or they wait, by age: the oldest waiting one
comes in as soon as there is room for it, and when residents outgrow the cache the youngest makes room at the
end of its turn and waits again. The oldest is always let in, so that somebody always goes on (no deadlock);
nobody overtakes an older one (no starvation). A conversation that waits for another one, which its own agent
opened, gives its place away meanwhile (`Slot.rest`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.engine.ideal_cache import IdealCache
from serving.engine.metrics import CacheConfig

ROOM_TO_GROW = 0.1
"""Share of the cache that newcomers leave free, since those inside grow with each turn."""


@dataclass(eq=False)
class Slot:
    """One conversation's place: its owner calls `enter` before each request, `pause` after it, `leave` last.

    Attributes:
        queued: whether it waits where there is no room for it; another is let in always.
        age: its number in the order of opening; the lower, the older.
        prefix_id: of its first tokens, with which other conversations begin too.
        shared: how many these are.
        blocks: what it holds for itself, or would hold if it were let in.
    """

    replica: Replica
    queued: bool
    age: int
    prefix_id: int
    shared: int
    blocks: int = 0
    admitted: bool = False
    busy: bool = False
    let_in: asyncio.Event = field(default_factory=asyncio.Event)

    async def enter(self, tokens: int) -> float:
        """Wait until the conversation, now of `tokens`, may be cached. Returns the seconds queued."""
        if not self.queued or self.replica.cache is None:
            return 0.0
        began = time.monotonic()
        self.blocks = self.replica.cache.blocks(tokens, shared=self.shared)
        self.busy = True
        if not self.admitted:
            self.let_in.clear()
        self.replica.settle(asking=self)
        if self.admitted:
            return 0.0
        try:
            await self.let_in.wait()
        except asyncio.CancelledError:
            self.pause()  # it may have kept others waiting
            raise
        return time.monotonic() - began

    def pause(self) -> None:
        """Its request is over; from here on it may have to make room."""
        self.busy = False
        self.replica.settle()

    def rest(self) -> None:
        """Give the place away: the owner does not go on before another conversation has."""
        self.admitted = False
        self.pause()

    def leave(self) -> None:
        """It is over, and whatever it holds may go. A second call does nothing."""
        if self in self.replica.slots:
            self.replica.slots.remove(self)
            self.admitted = False
            self.pause()


class Replica:
    """One copy of the model within an engine, as all conversations with it share it.

    Args:
        cache: its prefix cache, where the engine tells of it.
        number: its place among the replicas.
        address: the same for requests; `None` where it is the only one.
        admission: hold conversations back that the cache has no room for.

    Attributes:
        seats: the open conversations', oldest first.
        ideal: what its cache could give, where the engine tells of it.
    """

    def __init__(
        self,
        cache: CacheConfig | None = None,
        *,
        number: int = 0,
        address: int | None = None,
        admission: bool = False,
    ) -> None:
        self.cache = cache
        self.ideal = IdealCache(cache) if cache else None
        self.number = number
        self.address = address
        self.capacity = cache.num_gpu_blocks - 1 if cache else 0  # vLLM keeps one to itself
        self._admission = admission
        self._prefixes: dict[tuple[int, ...], int] = {}
        self.slots: list[Slot] = []
        self._ages = itertools.count()

    @property
    def waiting(self) -> int:
        """Conversations that wait now."""
        return sum(not slot.admitted and slot.busy for slot in self.slots)

    @property
    def admitted_blocks(self) -> int:
        """Blocks that the residents hold, what they share counted once."""
        admitted_slots = [slot for slot in self.slots if slot.admitted]
        if self.cache is None:
            return 0
        shared = {slot.prefix_id: slot.shared // self.cache.block_size for slot in admitted_slots}
        return sum(shared.values()) + sum(slot.blocks for slot in admitted_slots)

    def slot(self, prefix: tuple[int, ...] = (), queued: bool = True) -> Slot:
        """A place for a new conversation, whose first tokens `prefix` are other conversations' too.

        Args:
            queued: wait where there is no room, if the replica holds conversations back at all.
        """
        number = self._prefixes.setdefault(prefix, len(self._prefixes))
        slot = Slot(self, queued and self._admission, next(self._ages), number, len(prefix))
        self.slots.append(slot)
        return slot

    def settle(self, asking: Slot | None = None) -> None:
        """Let the youngest make room until the residents fit, then let in whom there is room for."""
        admitted_slots = [slot for slot in self.slots if slot.admitted]  # oldest first
        while self.admitted_blocks > self.capacity and len(admitted_slots) > 1:
            youngest = admitted_slots.pop()
            if youngest.busy and youngest is not asking:
                break  # it makes room when its request is over
            youngest.admitted = False
            youngest.let_in.clear()
        for slot in self.slots:
            if slot.admitted or not slot.busy:
                continue
            slot.admitted = True
            # Younger ones that are inside, since they asked first, make room for it.
            idle = [other for other in self.slots if other.admitted and not other.busy]
            while self._is_full and idle and idle[-1].age > slot.age:
                idle.pop().admitted = False
            if self._is_full and any(other.admitted for other in self.slots if other is not slot):
                slot.admitted = False
                return  # nobody overtakes it
            slot.let_in.set()

    @property
    def _is_full(self) -> bool:
        return self.admitted_blocks > self.capacity * (1 - ROOM_TO_GROW)


def replicas_of(caches: Sequence[CacheConfig], *, admission: bool) -> list[Replica]:
    """The replicas of an engine with these caches; one, of which nothing is known, where it tells none."""
    several = len(caches) > 1
    return [
        Replica(cache, number=number, address=number if several else None, admission=admission)
        for number, cache in enumerate(caches)
    ] or [Replica()]
