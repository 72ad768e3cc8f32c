"""Admission to an engine's prefix cache: which conversations keep a slot in each replica, and which wait.

While a conversation is cached, its next turn costs only the new tokens. When more conversations run than the
cache can hold, each turn evicts another one's prefix. On a hybrid model, if conversations take turns, one
conversation too many makes every hit a miss. So each conversation is either *admitted* to the cache or
queued, by age. The oldest queued one is admitted as soon as the cache has room for it. When the admitted ones
outgrow the cache, the youngest gives up its slot at the end of its turn and queues again. The oldest is
always admitted, so one conversation can always continue (no deadlock). No conversation overtakes an older one
(no starvation). A conversation that waits for another one, opened by its own agent, gives up its slot
meanwhile (`Slot.rest`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from serving.engine.capacity import CacheConfig

ROOM_TO_GROW = 0.1
"""Share of the cache that newly admitted conversations must leave free, since conversations grow with each
turn."""


@dataclass(eq=False)
class Slot:
    """The slot of one conversation. Its owner calls `enter` before each request, `pause` after it and `leave`
    last.

    Attributes:
        prefix_id: id of its first tokens, which other conversations share.
        shared: number of these tokens.
        blocks: cache blocks that it holds (or would hold if admitted), without the shared ones.
    """

    replica: Replica
    prefix_id: int
    shared: int
    blocks: int = 0
    admitted: bool = False
    busy: bool = False
    let_in: asyncio.Event = field(default_factory=asyncio.Event)

    async def enter(self, tokens: int) -> float:
        """Wait until the conversation, now `tokens` long, is admitted. Returns the seconds queued."""
        if not self.replica.admission or self.replica.cache is None:
            return 0.0
        began = time.monotonic()
        blocks = self.replica.cache.blocks(tokens, shared=self.shared)
        self.replica.admitted_blocks += self.admitted * (blocks - self.blocks)
        self.blocks, self.busy = blocks, True
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
        """Mark the request as finished; from now on the conversation may have to give up its slot."""
        self.busy = False
        self.replica.settle()

    def rest(self) -> None:
        """Give up the slot: the conversation continues only after another one has."""
        self.replica.admit(self, False)
        self.pause()

    def leave(self) -> None:
        """Close the slot and release everything it holds. A second call does nothing."""
        if self in self.replica.slots:
            self.replica.slots.remove(self)
            self.rest()


class Replica:
    """One copy of the model within an engine, shared by all conversations with it.

    Args:
        cache: its prefix cache, if the engine reports it.
        number: its position among the replicas.
        address: the same number for requests; `None` for the only replica.
        admission: queue conversations while the cache has no room for them.

    Attributes:
        slots: slots of the open conversations, oldest first.
        admitted_blocks: blocks that the admitted ones hold; shared blocks count once.
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
        self.number = number
        self.address = address
        self.capacity = cache.num_gpu_blocks - 1 if cache else 0  # vLLM reserves one block
        self.admission = admission
        self._prefixes: dict[tuple[int, ...], int] = {}
        self._sharing: Counter[int] = Counter()
        """Number of admitted conversations by the id of their prefix."""
        self.slots: list[Slot] = []
        self.admitted_blocks = 0

    @property
    def waiting(self) -> int:
        """Number of conversations that wait now."""
        return sum(not slot.admitted and slot.busy for slot in self.slots)

    def slot(self, prefix: tuple[int, ...] = ()) -> Slot:
        """Return a slot for a new conversation that shares its first tokens `prefix` with others."""
        number = self._prefixes.setdefault(prefix, len(self._prefixes))
        slot = Slot(self, number, len(prefix))
        self.slots.append(slot)
        return slot

    def admit(self, slot: Slot, admitted: bool = True) -> None:
        """Admit a conversation, or take its slot in the cache away."""
        if slot.admitted == admitted:
            return
        assert self.cache is not None
        slot.admitted = admitted
        change = 1 if admitted else -1
        self._sharing[slot.prefix_id] += change
        is_alone = self._sharing[slot.prefix_id] == admitted
        shared_blocks = slot.shared // self.cache.block_size if is_alone else 0
        self.admitted_blocks += change * (slot.blocks + shared_blocks)

    def settle(self, asking: Slot | None = None) -> None:
        """Remove the youngest from the cache until the admitted ones fit, then admit those that it has room
        for."""
        if self.admitted_blocks > self.capacity:
            admitted_slots = [slot for slot in self.slots if slot.admitted]  # oldest first
            while self.admitted_blocks > self.capacity and len(admitted_slots) > 1:
                youngest = admitted_slots.pop()
                if youngest.busy and youngest is not asking:
                    break  # it gives up its slot when its request is over
                self.admit(youngest, False)
        for place, slot in enumerate(self.slots):
            if slot.admitted or not slot.busy:
                continue
            self.admit(slot)
            # Admit this slot before idle younger ones, which were admitted because they asked first.
            idle = [other for other in self.slots[place:] if other.admitted and not other.busy]
            while self._is_full and idle:
                self.admit(idle.pop(), False)
            if self._is_full and any(other.admitted for other in self.slots if other is not slot):
                self.admit(slot, False)
                return  # no conversation overtakes it
            slot.let_in.set()

    @property
    def _is_full(self) -> bool:
        return self.admitted_blocks > self.capacity * (1 - ROOM_TO_GROW)


def replicas_of(caches: Sequence[CacheConfig], *, admission: bool) -> list[Replica]:
    """Return the replicas of an engine with these caches; a single one without a cache if there are none."""
    several = len(caches) > 1
    return [
        Replica(cache, number=number, address=number if several else None, admission=admission)
        for number, cache in enumerate(caches)
    ] or [Replica()]
