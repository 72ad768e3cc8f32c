"""Report a command's error in one line."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

from serving.errors import ServingError
from speedrunner.cli.init_command import NotWritten
from speedrunner.config.optional import NotInstalled
from speedrunner.config.slurm import SlurmRefused
from speedrunner.pages.view_server import PortInUse
from speedrunner.results.pairing import CannotCompare
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.runs.shutdown import TimeTooShort
from speedrunner.store.files import StorageError
from speedrunner.workers.env_worker import WorkerError
from speedrunner.workers.sandbox.settings import SandboxError

FOR_PEOPLE = (
    *SETUP_ERRORS,
    *(CannotCompare, WorkerError, NotInstalled, NotWritten, PortInUse),
    *(RunStopped, SandboxError, ServingError, SlurmRefused, StorageError, TimeTooShort),
)
"""Errors with a text for people. Any other error is a bug and shows its traceback."""

READERS = ("show", "compare", "cost", "report", "view", "status", "export", "library")
"""Commands that only read runs, possibly of someone else."""

UNFIT = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, AssertionError, RecursionError)
"""Errors of readers if records are well-formed and contradict each other."""


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line for a command's error; `None` for a bug, which shows its traceback.

    Contradicting records of a run can make any step of a reader fail. The line then also names the place in
    the code, so that a bug can still be found.
    """
    text = str(error)
    if not isinstance(error, FOR_PEOPLE):
        if next(iter(arguments), "") not in READERS or not isinstance(error, UNFIT):
            return None
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"records of the run contradict each other ({type(error).__name__}: {error}, at"
            f" {Path(at.filename).name}:{at.lineno}); run `speedrunner verify` to find the record"
        )
    return f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"
