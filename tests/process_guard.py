"""Keeps tests without the marker `process` from starting processes, so that `make check` stays quick."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from multiprocessing import util
from typing import Any

STARTS = (
    *((os, name) for name in ("execv", "execve", "fork", "forkpty", "posix_spawn", "posix_spawnp", "system")),
    *((subprocess.Popen, "_execute_child"), (util, "spawnv_passfds")),
)
"""The functions through which Python starts processes. An audit hook would also be called at each import and
opened file, which slows tests."""


class StartsProcess(Exception):
    """A test without the marker starts a process. Not an `OSError`, which the code under test may expect."""


class ProcessGuard:
    """Refuses to start processes while `test` is set.

    Attributes:
        test: the test that may start none; `None` while any may be started.
        started: the functions that this test called to start one, also where it caught the exception.
    """

    def __init__(self) -> None:
        self.test: str | None = None
        self.started: list[str] = []
        for owner, name in STARTS:
            setattr(owner, name, self._guarded(getattr(owner, name)))

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

    def _guarded(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(start)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if self.test is not None:
                self.started.append(f"{start.__name__}{arguments[:2]}"[:200])  # without the environment
                raise StartsProcess(self.complaint())
            return start(*arguments, **named)

        return guarded


guard = ProcessGuard()
