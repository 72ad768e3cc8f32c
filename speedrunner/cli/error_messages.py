"""Report a command's error in one line."""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path

from envs import InvalidOption
from serving.errors import ServingError
from speedrunner.cli.init_command import NotWritten
from speedrunner.experiments.forecast import NothingMeasured
from speedrunner.loopback import PortInUse
from speedrunner.methods.method_registry import InvalidMethodOption
from speedrunner.optional import NotInstalled
from speedrunner.results.comparison import CannotCompare
from speedrunner.runs.drain import TimeTooShort
from speedrunner.runs.executor import RunStopped
from speedrunner.runs.setup import SETUP_ERRORS
from speedrunner.sandbox.settings import SandboxError
from speedrunner.slurm import SlurmRefused
from speedrunner.store.files import StorageError
from speedrunner.workers.env_worker import WorkerError

FOR_PEOPLE = (
    *SETUP_ERRORS,
    *(CannotCompare, WorkerError, NothingMeasured, NotInstalled, NotWritten, PortInUse),
    *(RunStopped, SandboxError, ServingError, SlurmRefused, StorageError, TimeTooShort),
)
"""Errors with a text for people. Any other error is a bug and shows its traceback."""

SECTIONS: dict[type[Exception], str] = {InvalidOption: "env", InvalidMethodOption: "method"}
"""Errors about options, and the section of the keys that set these."""

OPTION = re.compile(r"option '(\w+)' of (?:method )?\S+")
"""How such an error names an option."""

READERS = ("show", "compare", "cost", "report", "view", "status", "export", "library")
"""Commands that only read runs, possibly of someone else."""

UNFIT = (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, AssertionError, RecursionError)
"""Errors of readers if records are well-formed and contradict each other."""


def explain(error: Exception, arguments: Sequence[str]) -> str | None:
    """Return the line for a command's error; `None` for a bug, which shows its traceback.

    Contradicting records of a run can make any step of a reader fail. The line then also names the place in
    the code, so that a bug can still be found.
    """
    text = _name_keys(error)
    if not isinstance(error, FOR_PEOPLE):
        if next(iter(arguments), "") not in READERS or not isinstance(error, UNFIT):
            return None
        at = traceback.extract_tb(error.__traceback__)[-1]
        text = (
            f"records of the run contradict each other ({type(error).__name__}: {error}, at"
            f" {Path(at.filename).name}:{at.lineno}); run `speedrunner verify` to find the record"
        )
    return f"error: {'; '.join(filter(None, map(str.strip, text.splitlines())))}"


def _name_keys(error: Exception) -> str:
    """Return an error's text, with an option of an environment or a method as its key in the command."""
    section = next((name for kind, name in SECTIONS.items() if isinstance(error, kind)), None)
    found = section and OPTION.search(str(error))
    if not found:
        return str(error)
    key = f"{section}.{found[1]}"
    rest = re.sub(rf"\b{found[1]}=", f"{key}=", str(error)[found.end() :])
    return str(error)[: found.start()] + key + rest
