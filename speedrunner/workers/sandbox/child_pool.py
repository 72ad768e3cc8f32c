"""A pool with one child that is started before it is needed."""

from __future__ import annotations

import time
from contextlib import suppress

from speedrunner.workers.sandbox.child_process import START_LIMIT_S, Child, start_process
from speedrunner.workers.sandbox.settings import Sandbox, SandboxError, SandboxNotStarted


class ChildPool:
    """Processes for skills, each used once; one is kept ready.

    Args:
        sandbox: how they are confined.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._spare: Child | None = None

    def refill(self) -> None:
        """Start the missing process, without waiting for it. Call this whenever there is time.

        If the machine cannot start a process now, `take` tries again.
        """
        if self._spare is None:
            with suppress(SandboxError):
                self._spare = Child(self._sandbox, "skills")

    def take(self) -> Child:
        """Return a process that is ready. The caller owns and ends it. If the machine is full, starts are
        tried again.

        Raises:
            SandboxError: none starts within `START_LIMIT_S`.
        """
        deadline = time.monotonic() + START_LIMIT_S
        spare, self._spare = self._spare, None
        if spare is not None:
            with suppress(SandboxNotStarted):  # it may have been killed since, e.g. for lack of memory
                spare.wait(deadline)
                return spare
        return start_process(self._sandbox, deadline)

    def close(self) -> None:
        """End the process that was not taken."""
        if self._spare is not None:
            self._spare.kill()
            self._spare = None
