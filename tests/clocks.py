"""A clock that a test advances."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


class Clock:
    """The time of the running event loop, with its timers and timeouts, and of one module.

    Args:
        module: name of a module that uses only `monotonic` of `time`; `None`: the event loop alone.
        runs: whether time also passes by itself. Otherwise the clock stands still.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, module: str | None = None, *, runs: bool = False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._real: Callable[[], float] = self._loop.time if runs else lambda: now
        self._passed_s = 0.0
        monkeypatch.setattr(self._loop, "time", self.monotonic)
        if module is not None:
            monkeypatch.setattr(f"{module}.time", self)

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return self._real() + self._passed_s

    def advance(self, seconds: float) -> None:
        """Let time pass; any thread may call it. The event loop then finds the timers that are due."""
        self._passed_s += seconds
        self._loop.call_soon_threadsafe(lambda: None)

    async def sleep(self, seconds: float) -> None:
        """Let time pass, and return when all timers of this time have run."""
        self._loop.call_soon(self.advance, seconds)
        await asyncio.sleep(seconds)
