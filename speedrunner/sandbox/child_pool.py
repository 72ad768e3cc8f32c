"""Children that are started before they are needed."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from speedrunner.sandbox.child_process import Child
from speedrunner.sandbox.settings import Sandbox, SandboxError


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
        """Return a process that is ready and nobody else's; its taker ends it.

        Raises:
            SandboxError: none starts.
        """
        while self._waiting:
            spare = self._waiting.popleft()
            try:
                spare.wait()
            except SandboxError:  # it may have been killed since, by whoever was short of memory
                continue
            return spare
        fresh = Child(self._sandbox, "skills")
        fresh.wait()
        return fresh

    def close(self) -> None:
        """End the processes that nobody has taken."""
        while self._waiting:
            self._waiting.pop().kill()
