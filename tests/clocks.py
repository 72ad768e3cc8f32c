"""A clock that stands still until a test lets time pass."""

from __future__ import annotations

import asyncio

import pytest


class Clock:
    """The time of the running event loop, with its timers and timeouts, and of one module.

    Args:
        module: name of a module that uses only `monotonic` of `time`; `None`: the event loop alone.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: str | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time()
        monkeypatch.setattr(self._loop, "time", self.monotonic)
        if module is not None:
            monkeypatch.setattr(f"{module}.time", self)

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; any thread may call it. The event loop then finds the timers that are due."""
        self._now += seconds
        self._loop.call_soon_threadsafe(lambda: None)

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and return when all timers of this time have run."""
        self._loop.call_soon(self.advance, seconds)
        await asyncio.sleep(seconds)
