"""The child's own time limit: a call that takes too long gets an exception where it was. The worker enforces
the limit on processes that ignore it."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType

RECURSION_LIMIT = 1_000
"""Python frames for untrusted code."""

RECURSION_RESERVE = 1_000
"""Extra frames for a message to the worker, however deep the code that sends it."""

AGAIN_S = 0.2
"""Seconds between interruptions of a call that continues after its time limit."""


class TimeLimitReached(BaseException):
    """The call used up its time. Not an `Exception`, so that ordinary `except` clauses do not catch it."""

    __module__ = "builtins"  # tracebacks show the name without a module


class Alarm:
    """Interrupts the main thread when a call's time is up, repeatedly until the call ends.

    Inside `with alarm:`, interruptions wait until the end of the block, and recursion has extra frames. A
    message must not be sent half.
    """

    def __init__(self) -> None:
        self.expired = False
        self._limit_s = 0.0
        self._running = False
        self._held = False
        signal.signal(signal.SIGALRM, self._handle_signal)

    def start(self, limit_s: float, left_s: float) -> None:
        """Raise `TimeLimitReached` in `left_s` from now, wherever the program is then; the message names
        `limit_s`."""
        self._limit_s = limit_s
        self.expired, self._running, self._held = False, True, False
        sys.setrecursionlimit(RECURSION_LIMIT)
        signal.setitimer(signal.ITIMER_REAL, max(left_s, 0.001), AGAIN_S)  # 0 would mean no alarm

    def stop(self) -> None:
        """Stop the alarm."""
        self._running = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def __enter__(self) -> None:
        self._held = True
        sys.setrecursionlimit(RECURSION_LIMIT + RECURSION_RESERVE)

    def __exit__(self, *_: object) -> None:
        with suppress(RecursionError):  # still too deep for this limit
            sys.setrecursionlimit(RECURSION_LIMIT)
        self._held = False
        if self.expired and self._running:
            raise self._error()

    def _handle_signal(self, number: int, frame: FrameType | None) -> None:
        if self._running:
            self.expired = True
            if not self._held:
                raise self._error()

    def _error(self) -> TimeLimitReached:
        return TimeLimitReached(f"stopped at the time limit of {self._limit_s:g} s")
