"""An engine's replicas, as all conversations with it share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from serving.admission import Admission
from serving.engine.metrics import CacheConfig


@dataclass(eq=False, slots=True)
class Replica:
    """One copy of the model within an engine.

    Attributes:
        number: its place among them.
        address: the same for requests; `None` where it is the only one.
        cache: its prefix cache, where the engine tells of it.
        admission: who may be cached there; `None` lets everybody in.
        open: conversations that stay with it, of all clients.
    """

    number: int = 0
    address: int | None = None
    cache: CacheConfig | None = None
    admission: Admission | None = None
    open: int = 0


def replicas_of(caches: Sequence[CacheConfig], *, admission: bool) -> list[Replica]:
    """The replicas of an engine with these caches; one, of which nothing is known, where it tells none.

    Args:
        admission: hold conversations back that a cache has no room for.
    """
    return [
        Replica(number, number if len(caches) > 1 else None, cache, Admission(cache) if admission else None)
        for number, cache in enumerate(caches)
    ] or [Replica()]
