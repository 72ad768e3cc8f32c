"""Children that are started before they are needed."""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress

from speedrunner.sandbox.child_process import START_PAUSES_S, Child
from speedrunner.sandbox.settings import Sandbox, SandboxError, SandboxNotStarted


class ChildPool:
    """Processes for skills, each to be used once.

    Args:
        sandbox: how they are confined.
        spares: processes that stand ready.
    """

    def __init__(self, sandbox: Sandbox, spares: int = 1) -> None:
        self._sandbox = sandbox
        self._spares = spares
        self._waiting: deque[Child] = deque()

    def refill(self) -> None:
        """Start what is missing, without waiting for it. To be called whenever there is time.

        Where the machine starts no process now, `take` tries again.
        """
        with suppress(SandboxError):
            while len(self._waiting) < self._spares:
                self._waiting.append(Child(self._sandbox, "skills"))

    def take(self) -> Child:
        """Return a process that is ready and nobody else's; its taker ends it. A full machine is tried again.

        Raises:
            SandboxError: none starts.
        """
        while self._waiting:
            spare = self._waiting.popleft()
            try:
                spare.wait()
            except SandboxNotStarted:  # it may have been killed since, by whoever was short of memory
                continue
            return spare
        pauses_s = iter(START_PAUSES_S)
        while True:
            try:
                fresh = Child(self._sandbox, "skills")
                fresh.wait()
                return fresh
            except SandboxNotStarted:
                if (pause_s := next(pauses_s)) is None:
                    raise
                time.sleep(pause_s)

    def close(self) -> None:
        """End the processes that nobody has taken."""
        while self._waiting:
            self._waiting.pop().kill()
