"""Stop cleanly after a signal or when the time runs out; a second signal stops at once."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

TO_ALL = frozenset({signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1})
"""Signals that a closed terminal and Slurm send to every process, including engine and workers."""

SIGNALS = (signal.SIGINT, *sorted(TO_ALL))

SHOWN = 8
"""Maximum number of aborted units that are listed by name."""


class Interrupted(Exception):
    """A signal ended the work; everything recorded is kept. `number` is the signal's."""

    def __init__(self, number: int, why: str = "") -> None:
        super().__init__(why or f"stopped by {signal.Signals(number).name}")
        self.number = number


class TimeIsUp(Interrupted):
    """The time limit was reached; treated like a SIGUSR1."""

    def __init__(self) -> None:
        super().__init__(signal.SIGUSR1, "the time limit of the job was reached")


class TimeTooShort(Exception):
    """No unit of work could end in the available time, so a retry with the same time would fail, too."""


class Shutdown:
    """Records whether a stop was requested and which units of work are in flight.

    Args:
        say: called with a line when a signal arrives, and when units are aborted.
        patience_s: seconds that units in flight may take after the first signal. A SIGUSR1 warns of a job's
            end; after it, they may run until that end if it is known.
        time_s: seconds from now until everything must have ended; `None`: no limit.

    Attributes:
        is_cleaning: whether the work is over and its cleanup runs, which nothing cancels but a second signal.
    """

    def __init__(
        self, say: Callable[[str], None], patience_s: float = 0.0, time_s: float | None = None
    ) -> None:
        self._say = say
        self._patience_s = patience_s
        self._time_s = time_s
        self._end = None if time_s is None else time.monotonic() + time_s
        self._ended = 0
        """Number of units that have ended, and of steps from which units can continue in another process."""
        self._signal: int | None = None
        self._is_over = False
        """Whether the time is over. It stays false after SIGINT or SIGTERM."""
        self._units: list[str] = []
        """Units in flight."""
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.is_cleaning = False

    @property
    def requested(self) -> bool:
        """Return whether a stop was requested; no new unit of work should start then."""
        return self._signal is not None or self._is_over

    def note_step(self) -> None:
        """Note that a unit in flight has recorded a step: it need not end in this process."""
        self._ended += 1

    def check(self) -> None:
        """Raise `Interrupted` if a stop was requested."""
        if self._is_over:
            raise TimeIsUp
        if self._signal is not None:
            raise Interrupted(self._signal)

    @contextmanager
    def unit(self, name: str) -> Iterator[None]:
        """Mark a unit of work (an episode, a sleep) as in flight, so that a shutdown waits for it."""
        self._units.append(name)
        try:
            yield
            self._ended += 1
        finally:
            self._units.remove(name)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` with signals handled.

        Raises:
            Interrupted: a signal ended it, or the time ran out (`TimeIsUp`).
            TimeTooShort: the time ran out before any unit had ended.
        """
        loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        left_s = self._remaining_s()
        end = None if left_s is None else loop.call_later(left_s, self._on_end)
        try:
            try:
                with _take_signals(TO_ALL):
                    return await task
            except (asyncio.CancelledError, Exception):
                if self._cancelled:  # whatever its result
                    self.check()
                raise
        except TimeIsUp as up:
            if not self._ended and self._time_s is not None:
                raise TimeTooShort(
                    f"no episode or sleep could finish in the {self._time_s:.0f} s that this job has,"
                    " including the start of its server: request more minutes"
                ) from up
            raise
        finally:
            if end is not None:
                end.cancel()
            for number in handled:
                loop.remove_signal_handler(number)

    def _remaining_s(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def _on_end(self) -> None:
        """Stop because the time is over. Units in flight are lost, except for their recorded steps."""
        if self._signal in (None, signal.SIGUSR1):
            self._is_over = True
        self._cancel()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP:  # the terminal is closed, and writing to it is an error
            for stream in (1, 2):
                if stat.S_ISCHR(os.fstat(stream).st_mode):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        if self.requested:
            self._give_up()
            # Workers and server watch this process and end with it; the lock becomes stale.
            os._exit(128 + number)
        self._signal = number
        patience_s, left_s = self._patience_s, self._remaining_s()
        if self._units:
            if left_s is not None and (number == signal.SIGUSR1 or left_s < patience_s):
                patience_s = left_s  # until `_on_end`
            else:
                asyncio.get_running_loop().call_later(patience_s, self._cancel)
            self._say(
                f"{signal.Signals(number).name}: {len(self._units)} in flight, waiting up to"
                f" {patience_s:.0f} s for them; send the signal again to stop now"
            )
        else:
            # Late in a job a SIGUSR1 announces its end. Earlier, the job is preempted.
            if number == signal.SIGUSR1 and self._time_s and left_s is not None and left_s < self._time_s / 2:
                self._is_over = True
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        if self._cancelled or self.is_cleaning:
            return  # cleanup must not be cancelled
        self._give_up()
        self._cancelled = True
        self._task.cancel()

    def _give_up(self) -> None:
        """List the aborted units."""
        if self._units:
            names = ", ".join(sorted(self._units)[:SHOWN])
            names += ", ..." if len(self._units) > SHOWN else ""
            self._say(
                f"aborted: {len(self._units)} in flight ({names}); a resumed run restarts episodes and"
                " continues sleeps"
            )


@contextmanager
def _take_signals(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """Deliver signals to this process, but not to processes that it starts meanwhile.

    Child processes inherit blocked signals, so signals are blocked in all threads except one. The main thread
    still runs the handlers.
    """
    over = threading.Event()

    def take() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        over.wait()

    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    thread = threading.Thread(target=take, name="signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
