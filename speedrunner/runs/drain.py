"""Stopping in good order: at a signal, a second one of which ends at once, or when the time runs out."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

FROM_SLURM = frozenset({signal.SIGTERM, signal.SIGUSR1})
"""What Slurm sends to every process of a job's step, those of engine and workers among them."""

SIGNALS = (signal.SIGINT, *sorted(FROM_SLURM))

SHOWN = 8
"""Units that are named, at most, when they are given up."""


def _on_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report what nobody awaits, but for one thing that is no error: a request on a Unix socket that is
    cancelled at the moment of its answer, whose reader anyio then wakes in vain."""
    if not isinstance(context.get("exception"), asyncio.InvalidStateError):
        loop.default_exception_handler(context)


class Interrupted(Exception):
    """A signal ended the work; everything recorded is kept. `number` is the signal's."""

    def __init__(self, number: int, why: str = "") -> None:
        super().__init__(why or f"stopped by {signal.Signals(number).name}")
        self.number = number


class TimeIsUp(Interrupted):
    """What comes next would not end in the time that is left; it counts as a SIGUSR1."""

    def __init__(self) -> None:
        super().__init__(signal.SIGUSR1, "the job's time is up")


class TimeTooShort(Exception):
    """Nothing at all could end in the time that there was, so that the same time will do no better."""


class Drain:
    """Whether a stop was asked for, and which units of work are in flight.

    Args:
        say: called with a line when a signal comes, and when units are given up.
        patience_s: how long units in flight may go on after the first signal; after a SIGUSR1, which warns of
            a job's end, until that end where it is known.
        time_s: seconds from now in which everything must have ended; `None` for no bound.
    """

    def __init__(
        self, say: Callable[[str], None], patience_s: float = 0.0, time_s: float | None = None
    ) -> None:
        self._say = say
        self._patience_s = patience_s
        self._time_s = time_s
        self._end = None if time_s is None else time.monotonic() + time_s
        self._longest: dict[str, float] = {}
        self._is_short = False
        self._ended = 0
        self._signal: int | None = None
        self._units: list[tuple[str, float]] = []
        """In flight, with when they began."""
        self._endless = ""
        """What was in flight for most of the time, and not over at its end."""
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._cancelled = False

    @property
    def requested(self) -> bool:
        """Whether no new unit of work should begin."""
        return self._signal is not None

    def may_begin(self, kind: str) -> bool:
        """Whether a new unit of a kind may begin: no stop was asked for, and the longest one so far would end
        in the time that is left."""
        if self.requested:
            return False
        longest_s, left_s = self._longest.get(kind, 0.0), self._left_s()
        if left_s is None or longest_s < left_s:
            return True
        if not self._is_short:
            self._is_short = True
            self._say(
                f"{left_s:.0f} s are left, and what comes next has taken up to {longest_s:.0f} s: it is left"
            )
        return False

    def took(self, kind: str, seconds: float) -> None:
        """Learn how long a unit of a kind has taken."""
        self._longest[kind] = max(seconds, self._longest.get(kind, 0.0))

    def check(self) -> None:
        """Raise `Interrupted` when a stop was asked for."""
        if self._signal is not None:
            raise Interrupted(self._signal)

    @contextmanager
    def unit(self, name: str, kind: str) -> Iterator[None]:
        """A unit of work that a drain waits for (an episode, a sleep)."""
        began = time.monotonic()
        self._units.append((name, began))
        try:
            yield
            self._ended += 1
            self.took(kind, time.monotonic() - began)
        finally:
            self._units.remove((name, began))
            if self._timer is not None and not self._units:
                self._timer.cancel()  # putting things away takes its time, also after a failure

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` with signals handled.

        Raises:
            Interrupted: a signal has ended it, or (`TimeIsUp`) the time.
            TimeTooShort: the time has, or a SIGUSR1 that warned of a job's end, and no unit had ended, or one
                had not that had most of the time.
        """
        loop = asyncio.get_running_loop()
        task: asyncio.Task[T] = asyncio.ensure_future(work)
        self._task = task
        loop.set_exception_handler(_on_loop_error)
        for number in SIGNALS:
            loop.add_signal_handler(number, self._on_signal, number)
        left_s = self._left_s()
        end = None if left_s is None else loop.call_later(left_s, self._on_end)
        try:
            with _taken_here(FROM_SLURM):
                return await task
        except Interrupted as interrupted:
            if interrupted.number == signal.SIGUSR1:
                self._require_progress()
            raise
        except (asyncio.CancelledError, Exception):
            if self._cancelled:  # whatever came of it
                if self._signal == signal.SIGUSR1:
                    self._require_progress()
                if self._is_short:
                    raise TimeIsUp from None
                self.check()
            raise
        finally:
            if end is not None:
                end.cancel()
            for number in SIGNALS:
                loop.remove_signal_handler(number)

    def _left_s(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def _require_progress(self) -> None:
        if self._endless:
            raise TimeTooShort(
                f"{self._endless} of the {self._time_s:.0f} s that this job has: give it more minutes"
            )
        if not self._ended and self._time_s is not None:
            longest_s = max(self._longest.values(), default=0.0)
            known = f"; one has taken up to {longest_s:.0f} s before" if longest_s else ""
            raise TimeTooShort(
                f"no episode and no sleep could end in the {self._time_s:.0f} s that this job has, its"
                f" server's start among them{known}: give it more minutes"
            )

    def _on_end(self) -> None:
        """The time is over: what is in flight is lost, and would be in the next job, if it had most of it."""
        assert self._time_s is not None
        for name, began in self._units:
            had_s = time.monotonic() - began
            if had_s > self._time_s / 2:
                self._endless = f"{name} was not over after {had_s:.0f}"
        if self._signal is None:
            self._signal, self._is_short = signal.SIGUSR1, True
        self._cancel()

    def _on_signal(self, number: int) -> None:
        if self._signal is not None:
            self._give_up()
            # Workers and server watch this process and end with it; the lock is found stale.
            os._exit(128 + number)
        self._signal = number
        assert self._task is not None
        if self._units:
            patience_s, left_s = self._patience_s, self._left_s()
            if left_s is not None:
                patience_s = left_s if number == signal.SIGUSR1 else min(patience_s, left_s)
            self._say(
                f"{signal.Signals(number).name}: {len(self._units)} in flight may end within"
                f" {patience_s:.0f} s; once more to stop at once"
            )
            self._timer = asyncio.get_running_loop().call_later(patience_s, self._cancel)
        else:
            self._cancel()

    def _cancel(self) -> None:
        assert self._task is not None
        if self._cancelled:
            return  # what is put away meanwhile must not be cancelled
        self._give_up()
        self._cancelled = True
        self._task.cancel()

    def _give_up(self) -> None:
        """Say what is lost."""
        if self._units:
            names = ", ".join(sorted(name for name, _ in self._units)[:SHOWN])
            names += ", ..." if len(self._units) > SHOWN else ""
            self._say(f"given up in flight, to be begun anew: {len(self._units)} ({names})")


@contextmanager
def _taken_here(signals: frozenset[signal.Signals]) -> Iterator[None]:
    """Let signals reach this process, but none that it starts meanwhile.

    They are blocked, which other processes inherit, but for one thread; the handlers are run by the main
    thread as ever.
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
