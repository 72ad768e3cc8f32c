"""Keeps tests without the marker `process` from starting processes, so that `make check` stays quick."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

STARTS = frozenset(
    ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "pty.spawn", "subprocess.Popen")
)
"""Python's audit events of a start; `multiprocessing` has none where it starts a new interpreter."""

SPAWN = "multiprocessing"


class StartsProcess(Exception):
    """A test without the marker starts a process. Not an `OSError`, which the code under test may expect."""


class ProcessGuard:
    """Refuses to start processes while `test` is set.

    Attributes:
        test: the test that may start none; `None` while any may be started.
        started: what that test tried to start, also where it caught the exception.
    """

    def __init__(self) -> None:
        self.test: str | None = None
        self.started: list[str] = []
        sys.addaudithook(self._check)
        spawn = util.spawnv_passfds  # type: ignore[attr-defined]

        def spawn_guarded(*arguments: Any) -> Any:
            self._refuse(SPAWN)
            return spawn(*arguments)

        util.spawnv_passfds = spawn_guarded  # type: ignore[attr-defined]

    def watch(self, test: str | None) -> None:
        """Watch another test, or none."""
        self.test, self.started = test, []

    def complaint(self) -> str:
        """Return one line about the first start that was refused."""
        return (
            f"{self.test} starts a process ({self.started[0]}): "
            "mark it with @pytest.mark.process, which keeps it out of `make check`"
        )

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let a shared fixture start processes: a model's recipe, which runs once in a clone."""
        test, self.test = self.test, None
        try:
            yield
        finally:
            self.test = test

    def _check(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in STARTS:
            self._refuse(arguments[1] if event == "subprocess.Popen" else event)

    def _refuse(self, command: object) -> None:
        if self.test is not None:
            self.started.append(str(command)[:200])
            raise StartsProcess(self.complaint())


guard = ProcessGuard()
