"""Stopping in good order: the first signal lets work in flight end, a second one ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)

SHOWN = 8
"""Units that are named, at most, when they are given up."""


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what nobody awaits, but for one thing that is no error: a request on a Unix socket that is
    cancelled at the moment of its answer, whose reader anyio then wakes in vain."""
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class Interrupted(Exception):
    """A signal ended the work; everything recorded is kept. `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.number = number


class Drain:
    """Whether a stop was asked for, and which units of work are in flight.

    Args:
        say: called with a line when a signal comes, and when units are given up.
        patience_s: how long units in flight may go on after the first signal.
    """

    def __init__(self, say: Callable[[str], None], patience_s: float = 0.0) -> None:
        self._say = say
        self._patience_s = patience_s
        self._signal: int | None = None
        self._units: list[str] = []
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    @property
    def requested(self) -> bool:
        """Whether no new unit of work should begin."""
        return self._signal is not None

    def check(self) -> None:
        """Raise `Interrupted` when a stop was asked for."""
        if self._signal is not None:
            raise Interrupted(self._signal)

    @contextmanager
    def unit(self, name: str) -> Iterator[None]:
        """A unit of work that a drain waits for (an episode, a sleep)."""
        self._units.append(name)
        try:
            yield
        finally:
            self._units.remove(name)
            if self._timer is not None and not self._units:
                self._timer.cancel()  # putting things away takes its time, also after a failure

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` with signals handled. Raises `Interrupted` when one has ended it."""
        loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        loop.set_exception_handler(_on_loop_error)
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            return await task
        except (asyncio.CancelledError, Exception):
            if self._cancelled:  # whatever came of it
                self.check()
            raise
        finally:
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _on_signal(self, number: int) -> None:
        if self._signal is not None:
            self._give_up()
            # Hosts and server watch this process and end with it; the lock is found stale.
            os._exit(128 + number)
        self._signal = number
        assert self._task is not None
        if self._units:
            self._say(
                f"{signal.Signals(number).name}: {len(self._units)} in flight may end within"
                f" {self._patience_s:g} s; once more to stop at once"
            )
            self._timer = asyncio.get_running_loop().call_later(self._patience_s, self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        self._give_up()
        self._cancelled = True
        self._task.cancel()

    def _give_up(self) -> None:
        """Say what is lost."""
        if self._units:
            names = ", ".join(sorted(self._units)[:SHOWN]) + (", ..." if len(self._units) > SHOWN else "")
            self._say(f"given up in flight, to be begun anew: {len(self._units)} ({names})")
