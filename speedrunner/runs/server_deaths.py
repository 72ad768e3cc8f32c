"""Find the episode or sleep whose requests end each server, and give up that one instead of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from serving.errors import ServerDied

Unit = tuple[str, str]
"""The directory of a run, and the key of one of its episodes or sleeps."""


class ServerDeaths:
    """Notes what is in flight when servers die.

    After two deaths, the units that were in flight at both are suspects: they are played first, and each unit
    alone, until no suspect is left. A suspect that is in flight alone when the server dies is given up.
    """

    def __init__(self) -> None:
        self._deaths = 0
        """Deaths since there was no suspect."""
        self._suspects: set[Unit] = set()
        self._waiting: set[Unit] = set()
        self._in_flight: set[Unit] = set()
        self._at_death: set[Unit] = set()
        self._given_up: set[Unit] = set()
        self._changed = asyncio.Event()

    def is_given_up(self, unit: Unit) -> bool:
        """Return whether a unit ended the servers."""
        return unit in self._given_up

    @asynccontextmanager
    async def turn(self, unit: Unit) -> AsyncIterator[None]:
        """Wait until a unit may be played; it is in flight inside."""
        self._waiting.add(unit)
        try:
            while not self._may_play(unit):
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._waiting.discard(unit)
        self._in_flight.add(unit)
        try:
            yield
            self._clear({unit})
        except ServerDied:
            self._at_death |= self._in_flight
            raise
        finally:
            self._in_flight.discard(unit)
            self._changed.set()

    def judge(self) -> str | None:
        """Note a death after which nothing is in flight. Return a line about a unit that is given up."""
        at_death, self._at_death = self._at_death, set()
        if not at_death:
            return None
        self._deaths += 1
        if len(at_death) == 1 and at_death <= self._suspects:
            self._given_up |= at_death
            self._clear(at_death)
            ((_, key),) = at_death
            return f"{key} was in flight alone when the server died again: it is given up"
        self._suspects = (self._suspects & at_death) or at_death
        return None

    def forget(self, run: str) -> None:
        """Suspect nothing of a run that has stopped."""
        self._clear({unit for unit in self._suspects if unit[0] == run})

    def _may_play(self, unit: Unit) -> bool:
        if self._deaths < 2 or not self._suspects:
            return True
        return not self._in_flight and (unit in self._suspects or not self._suspects & self._waiting)

    def _clear(self, units: set[Unit]) -> None:
        self._suspects -= units
        if not self._suspects:
            self._deaths = 0
        self._changed.set()
