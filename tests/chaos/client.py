"""A run's process in a trial: forked with everything imported, then changed as the trial wants it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

from serving.engine.client import RetryPolicy
from speedrunner.cli.app import main
from speedrunner.store import run_lock
from tests.chaos.disk import Trigger, watch


@dataclass(frozen=True)
class Client:
    """One process of a run.

    Attributes:
        arguments: of the command line.
        run: the run's directory, whose changes are watched if there is a log.
        output: gets what the process prints.
        log: see `tests.chaos.disk`.
        environment: changes to the environment's variables; `None` removes one.
        machine: what the process takes for its machine, for locks; "" for the true one.
    """

    arguments: tuple[str, ...]
    run: Path
    output: Path
    log: Path | None = None
    trigger: Trigger | None = None
    environment: dict[str, str | None] = field(default_factory=dict)
    folder: Path | None = None
    umask: int = 0o022
    machine: str = ""

    def main(self) -> None:
        """Be this process, to its end."""
        os.setsid()
        descriptor = os.open(self.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        for name, value in self.environment.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
        if self.folder is not None:
            os.chdir(self.folder)
        os.umask(self.umask)
        if self.machine:
            run_lock._machine = lambda: self.machine  # type: ignore[assignment]
            run_lock.BEAT_S, run_lock.STALE_S = 0.05, 0.5
        wait_s = RetryPolicy.wait_s
        RetryPolicy.wait_s = lambda policy, retry: wait_s(policy, retry) / 10  # type: ignore[method-assign]
        if self.log is not None:
            watch(self.run, self.log, self.trigger)
        try:
            main(self.arguments)
        except SystemExit as end:
            sys.stdout.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        os._exit(0)
