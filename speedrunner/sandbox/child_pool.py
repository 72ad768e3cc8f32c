"""A child that is started before it is needed."""

from __future__ import annotations

import math
from contextlib import suppress

from speedrunner.sandbox.child_process import Child, started
from speedrunner.sandbox.settings import Sandbox, SandboxError, SandboxNotStarted


class ChildPool:
    """Processes for skills, each to be used once; one stands ready.

    Args:
        sandbox: how they are confined.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._spare: Child | None = None

    def refill(self) -> None:
        """Start what is missing, without waiting for it. To be called whenever there is time.

        Where the machine starts no process now, `take` tries again.
        """
        if self._spare is None:
            with suppress(SandboxError):
                self._spare = Child(self._sandbox, "skills")

    def take(self, deadline: float = math.inf) -> Child:
        """Return a process that is ready and nobody else's; its taker ends it. A full machine is tried again.

        Args:
            deadline: of the monotonic clock, after which nothing is tried.

        Raises:
            SandboxError: none starts.
        """
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(SandboxNotStarted):  # it may have been killed since, by whoever was short of memory
                spare.wait(deadline)
                return spare
        return started(self._sandbox, deadline)

    def close(self) -> None:
        """End the process that nobody has taken."""
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
